"""Records the eager ops of a thread in place of running them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from tf_pfor import _tf
from tf_pfor._tf import _eager_ops
from tf_pfor._tf._eager_ops import PASSED
from tf_pfor.core import nests
from tf_pfor.core.accesses import HARMLESS, QUERIES, READS
from tf_pfor.core.errors import NotVectorizableError, UnsupportedStateError
from tf_pfor.core.nests import Nest
from tf_pfor.recording.nodes import Kind, Node, Recorded
from tf_pfor.tracing.user_code import autographed

_SMALL = 64  # elements of an input whose value may decide on a shape
_READS = READS | QUERIES
_WRITES = ("Assign", "Resource")


class Recorder:
    """Records calls, and finds the kind of each.

    Attributes:
      kinds: the kinds that were recorded before, kept between calls of a batched function.
      nodes: the calls that have not run.
      variables: the trainable variables that the calls read: tapes watch them.
    """

    def __init__(self, kinds: dict[Any, Any], wait: Callable[[], None]) -> None:
        self.kinds = kinds
        self.nodes: list[Node] = []
        self.variables: dict[Any, tf.Variable] = {}
        self._wait = wait
        self._known: dict[Any, Node] = {}
        self._constants: dict[Any, tf.Tensor] = {}

    # -----------------------------------------------------------------------
    # What a thread catches
    # -----------------------------------------------------------------------

    def op(self, op_type: str, given: tuple[Any, ...]) -> Any:
        """Records an op, unless its inputs are numbers that no gradient reaches."""
        schema = _tf.schema(op_type)
        if schema is None:
            return PASSED
        count = len(schema.inputs)
        arguments = self._arguments(given, schema)
        leaves = _flat(arguments)
        is_known = not any(isinstance(x, Recorded) for x in leaves)
        if not any(map(_is_followed, leaves)) or (is_known and "Dataset" in op_type):
            return PASSED
        if op_type == "Shape" and leaves[0].shape.is_fully_defined():
            attrs = dict(zip(given[count::2], given[count + 1 :: 2]))
            return tf.constant(leaves[0].shape.as_list(), attrs.get("out_type", tf.int32))
        is_read = op_type in _READS
        if schema.is_stateful and not is_read and any(map(_is_resource, leaves)):
            if is_known and not op_type.startswith(_WRITES):
                return PASSED  # an iterator or the like, of this example alone
            raise UnsupportedStateError(
                f"{op_type} writes a variable or a resource inside of batched(), where examples "
                "have no order. Write it after the call, from what the function returns."
            )
        kind, inputs = self._kind_of_op(op_type, arguments, given[count:], schema, is_read)
        return self._record(kind, inputs)

    def function(
        self, called: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        """Records the call of a ``tf.function`` as one."""
        leaves = nests.flatten((args, kwargs))
        if not any(isinstance(x, tf.Tensor) and _is_followed(x) for x in leaves):
            return PASSED
        name = getattr(called, "__name__", "function")
        return self.unit(called, name, called, args, kwargs)

    def custom_gradient(self, name: str, outputs: Sequence[Any]) -> None:
        """Refuses a gradient that a tape could not see."""
        if any(isinstance(x, Recorded) for x in nests.flatten(outputs)):
            raise NotVectorizableError(
                f"tf.custom_gradient of {name} inside of batched(): put the function that calls it "
                "into a tf_pfor.cell."
            )

    def accessed(self, variable: tf.Variable) -> None:
        """Keeps a variable for the tapes around."""
        if variable.trainable:
            self.variables[variable.ref()] = variable

    def runs(self, name: str, inputs: Sequence[Any]) -> None:
        """Refuses what would run without being recorded."""
        if any(isinstance(x, Recorded) for x in inputs):
            raise NotVectorizableError(
                f"{name} inside of batched() reads a recorded value. Put the function that calls "
                "it into a tf_pfor.cell."
            )

    # -----------------------------------------------------------------------
    # Kinds
    # -----------------------------------------------------------------------

    def unit(
        self,
        owner: object,
        name: str,
        fn: Callable[..., Any],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
    ) -> Any:
        """Records the call of a Python function of tensors as one."""
        leaves: list[Any] = []
        form = _opened((args, kwargs), leaves) if kwargs else _opened(args, leaves)
        key = (id(owner), form, *map(_form_of_leaf, leaves))
        found = self.kinds.get(key)
        if found is None:
            others = [x for x in leaves if not isinstance(x, tf.Tensor)]
            kind = _kind_of_unit(name, fn, args, kwargs)
            found = self.kinds[key] = kind, (owner, others)  # their ids stay theirs
        return self._record(found[0], [x for x in leaves if isinstance(x, tf.Tensor)])

    def _arguments(self, given: tuple[Any, ...], schema: _tf.Schema) -> list[Any]:
        """The inputs of an op: tensors, lists of tensors, and numbers as they were given.

        Integers that no other input has the dtype of become tensors: an index may differ between
        calls that run together.
        """
        found = [
            list(map(_as_tensor, x)) if arg.is_list else _as_tensor(x)
            for x, arg in zip(given, schema.inputs)
        ]
        for k, (x, arg) in enumerate(zip(found, schema.inputs)):
            if isinstance(x, (tf.Tensor, float)) or arg.is_list:
                continue
            if not any(
                other.type_attr == arg.type_attr and i != k for i, other in enumerate(schema.inputs)
            ):
                found[k] = self._integers(x)
        return found

    def _integers(self, x: Nest) -> Any:
        """A tensor of integers that were given as Python's or NumPy's; other things stay."""
        array = np.asarray(x)
        if array.dtype.kind != "i":
            return x
        key = type(x), array.dtype, array.shape, array.tobytes()
        if key not in self._constants:
            self._constants[key] = tf.constant(x)
        return self._constants[key]

    def _kind_of_op(
        self,
        op_type: str,
        arguments: list[Any],
        attrs: tuple[Any, ...],
        schema: _tf.Schema,
        is_read: bool,
    ) -> tuple[Kind, list[Any]]:
        """The kind of an op, and its inputs that differ between calls of the kind."""
        flat = _flat(arguments)
        lengths = tuple(len(a) if isinstance(a, list) else -1 for a in arguments)
        key = (op_type, lengths, _hashable(attrs), tuple(map(_description, flat)))
        if key not in self.kinds:
            self.kinds[key] = _places_of_values(op_type, arguments, attrs)
        places: list[int] = self.kinds[key]
        values = [(flat[p].dtype, flat[p].numpy().tobytes()) for p in places]
        fixed = [
            i in places or not isinstance(x, tf.Tensor) or x.dtype == tf.resource
            for i, x in enumerate(flat)
        ]
        inputs = [x for x, f in zip(flat, fixed) if not f]
        whole = (*key, *values, "kind")
        if whole not in self.kinds:
            may_share = is_read or not schema.is_stateful
            call = _call_of(op_type, arguments, attrs, fixed)
            self.kinds[whole] = _kind(op_type, call, inputs, may_share=may_share)
        return self.kinds[whole], inputs

    def _record(self, kind: Kind, inputs: list[Any]) -> Any:
        key = (kind, *map(_identity, inputs))
        if kind.may_share and (known := self._known.get(key)) is not None:
            return kind.pack(_results(known))
        depth = 1 + max((x.node.depth for x in inputs if isinstance(x, Recorded)), default=0)
        node = Node(kind, inputs, depth, self._wait)
        self.nodes.append(node)
        self._known[key] = node
        return kind.pack(_results(node))


def _results(node: Node) -> list[Recorded]:
    """The results of a call, the same ones each time."""
    if node.results:
        return node.results
    specs, forms = node.kind.results, node.kind.forms
    if specs is None or forms is None:  # only a run shows the shapes
        if node.ran is None:
            node.wait()
        assert node.ran is not None
        specs = [tf.TensorSpec(x.shape, x.dtype) for x in node.ran.results]
        forms = [(s.dtype, tuple(s.shape)) for s in specs]
    found = enumerate(zip(specs, forms))
    node.results = [Recorded(node, i, spec, form) for i, (spec, form) in found]
    return node.results


def _flat(arguments: list[Any]) -> list[Any]:
    """The inputs of an op, lists opened."""
    return [x for a in arguments for x in (a if isinstance(a, list) else [a])]


def _as_tensor(x: Nest) -> Any:
    """An input of an op as a tensor, if it is one or holds one; else as it was given."""
    if isinstance(x, tf.Variable):
        return tf.convert_to_tensor(x)
    if isinstance(x, tf.Tensor):
        return x
    if isinstance(x, (list, tuple)):
        has_tensor = any(isinstance(item, tf.Tensor) for item in nests.flatten(x))
        return tf.stack(x) if has_tensor else x
    if hasattr(x, "__tf_tensor__") or (isinstance(x, np.ndarray) and x.size > _SMALL):
        return tf.convert_to_tensor(x)
    return x


def _is_followed(x: object) -> bool:
    """Whether a gradient may reach ``x``, or its value is not known yet."""
    if isinstance(x, Recorded):
        return True
    if not isinstance(x, tf.Tensor):
        return False
    return x.dtype.is_floating or x.dtype.is_complex or x.dtype == tf.resource


def _is_resource(x: object) -> bool:
    return isinstance(x, tf.Tensor) and x.dtype == tf.resource


def _is_number(x: object) -> bool:
    return x is None or isinstance(x, (bool, int, float, complex, str, bytes, tf.DType))


def _description(x: object) -> Any:
    """A key that is equal for inputs of one kind of calls."""
    if isinstance(x, Recorded):
        return x.form
    if isinstance(x, tf.Tensor):
        if x.dtype == tf.resource:
            return "resource", x._id  # counted up: no other tensor gets it
        return x.dtype, tuple(x.shape)
    if isinstance(x, (np.ndarray, np.generic)):
        return x.dtype.str, x.shape, x.tobytes()
    return type(x), repr(x) if isinstance(x, (list, tuple)) else x


def _identity(x: tf.Tensor) -> Any:
    """Equal for inputs that are known to be equal.

    Numbers that a tape may watch are not compared by value: each has a gradient.
    """
    if isinstance(x, Recorded):
        return id(x.node), x.index
    if not x.shape.rank and not _is_followed(x) and hasattr(x, "numpy"):
        return x.dtype, x.numpy() if x.dtype == tf.string else x.numpy().tobytes()
    return id(x)


def _opened(x: Nest, leaves: list[Any]) -> Any:
    """Adds the leaves of a nest; returns what is equal for nests of one structure."""
    cls = type(x)
    if cls is tuple or cls is list:
        return cls, *[_opened(item, leaves) for item in x]
    if cls is dict:
        return dict, *[(k, _opened(x[k], leaves)) for k in sorted(x)]
    if isinstance(x, tf.Tensor) or _is_number(x):
        leaves.append(x)
        return None
    if isinstance(x, (np.ndarray, np.generic, tf.Variable)):
        given: Nest = x
        leaves.append(tf.convert_to_tensor(given))
        return None
    inner = nests.from_user(x)
    if not tf.nest.is_nested(inner) and not isinstance(x, tf.__internal__.CompositeTensor):
        leaves.append(x)
        return None
    return repr(nests.skeleton(inner)), *[_opened(leaf, leaves) for leaf in nests.flatten(inner)]


def _form_of_leaf(x: object) -> Any:
    """A key of a leaf: shape and dtype of a tensor, the value of another thing."""
    if isinstance(x, Recorded):
        return x.form
    if isinstance(x, tf.Tensor):
        return x.dtype, tuple(x.shape)
    return (type(x), x) if _is_number(x) else id(x)


def _packer(skeleton: Nest) -> Callable[[list[Any]], Any]:
    """A function that puts leaves into a nest."""
    cls = type(skeleton)
    if skeleton is None:
        return lambda leaves: leaves[0]
    if cls in (tuple, list) and all(x is None for x in skeleton):
        return cls
    return lambda leaves: nests.to_user(nests.pack(skeleton, leaves))


def _hashable(attrs: tuple[Any, ...]) -> Any:
    try:
        hash(attrs)
    except TypeError:
        return repr(attrs)
    return attrs


def _call_of(
    op_type: str, arguments: list[Any], attrs: tuple[Any, ...], fixed: list[bool]
) -> Callable[..., list[tf.Tensor]]:
    """The op as a function of its inputs that are not fixed."""
    flat = _flat(arguments)
    held = [x if f else None for x, f in zip(flat, fixed)]  # no tensor of an example stays alive
    lengths = [len(a) if isinstance(a, list) else -1 for a in arguments]

    def call(*tensors: tf.Tensor) -> list[tf.Tensor]:
        supply, whole = iter(tensors), iter(zip(held, fixed))

        def following() -> Any:
            x, is_fixed = next(whole)
            return x if is_fixed else next(supply)

        given = [following() if n < 0 else [following() for _ in range(n)] for n in lengths]
        return _eager_ops.run(op_type, (*given, *attrs))

    return call


def _known_shapes(call: Callable[..., Any], inputs: Sequence[Any]) -> bool:
    """Whether the shapes of the results of a call follow from the shapes of its inputs."""
    with _eager_ops.caught(None), tf.Graph().as_default():
        given = [tf.compat.v1.placeholder(x.dtype, x.shape) for x in inputs]
        try:
            made = call(*given)
        except (TypeError, ValueError):  # the op takes a constant only
            return False
        return all(t.shape.is_fully_defined() for t in made)


def _places_of_values(op_type: str, arguments: list[Any], attrs: tuple[Any, ...]) -> list[int]:
    """The inputs of an op whose values decide on the shapes of its results."""
    flat = _flat(arguments)
    if any(isinstance(x, tf.Tensor) and x.dtype == tf.resource for x in flat):
        return []
    fixed = [not isinstance(x, tf.Tensor) for x in flat]
    call = _call_of(op_type, arguments, attrs, fixed)
    tensors = [i for i, f in enumerate(fixed) if not f]
    small = [k for k, i in enumerate(tensors) if _is_small(flat[i])]
    if not small or _known_shapes(call, [flat[i] for i in tensors]):
        return []
    return [tensors[k] for k in small]


def _is_small(x: tf.Tensor) -> bool:
    """Whether the value of a tensor is known and may decide on a shape."""
    count = x.shape.num_elements()
    return not isinstance(x, Recorded) and x.dtype.is_integer and (count or 0) <= _SMALL


def _kind(
    op_type: str, call: Callable[..., list[tf.Tensor]], inputs: list[Any], *, may_share: bool
) -> Kind:
    """The kind of an op."""
    specs = [tf.TensorSpec(x.shape, x.dtype) for x in inputs]
    made = tf.function(call, autograph=False)
    with _eager_ops.caught(None):
        results = made.get_concrete_function(*specs).outputs
    known: list[tf.TensorSpec] | None = [tf.TensorSpec(t.shape, t.dtype) for t in results]
    if not all(spec.shape.is_fully_defined() for spec in known):
        known = None
    schema = _tf.schema(op_type)
    assert schema is not None

    def pack(found: list[Any]) -> Any:
        return found[0] if schema.num_outputs == 1 else found or None

    return Kind(op_type, call, specs, known, pack, may_share=may_share)


def _kind_of_unit(
    name: str, fn: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Kind:
    """The kind of a call of a Python function."""
    structure = nests.from_user((args, kwargs))
    leaves = nests.flatten(structure)
    are_tensors = [isinstance(x, (tf.Tensor, np.ndarray, np.generic, tf.Variable)) for x in leaves]
    held = [None if t else x for x, t in zip(leaves, are_tensors)]
    inputs = [tf.convert_to_tensor(x) for x, t in zip(leaves, are_tensors) if t]
    empty = nests.skeleton(structure)
    converted = autographed(fn, "cell")
    form: list[Any] = []

    def call(*tensors: tf.Tensor) -> list[tf.Tensor]:
        supply = iter(tensors)
        filled = [next(supply) if t else x for x, t in zip(held, are_tensors)]
        args, kwargs = nests.to_user(nests.pack(empty, filled))
        found = nests.from_user(converted(*args, **kwargs))
        form[:] = [nests.skeleton(found)]
        return [tf.convert_to_tensor(x) for x in nests.flatten(found)]

    specs = [tf.TensorSpec(x.shape, x.dtype) for x in inputs]
    with _eager_ops.caught(None):
        whole = tf.function(call, autograph=False)
        traced = whole.get_concrete_function(*specs)
    results: list[tf.TensorSpec] | None = [tf.TensorSpec(t.shape, t.dtype) for t in traced.outputs]
    if not all(spec.shape.is_fully_defined() for spec in results):
        results = None
    pack = _packer(form[0])
    effects = _effects(traced.graph)
    if "writes" in effects:
        raise UnsupportedStateError(
            f"{name} writes a variable or a resource inside of batched(), where examples have no "
            "order. Write it after the call, from what the function returns."
        )
    return Kind(name, whole, specs, results, pack, may_share=not effects)


def _effects(graph: tf.Graph) -> set[str]:
    """The effects of a graph: "writes" of variables and resources, "draws" for all others."""
    found: set[str] = set()
    for op in graph.get_operations():
        inner = _tf.functions_of(op)
        for function in inner:
            found |= _effects(function)
        schema = _tf.schema(op.type)
        if inner or schema is None or not schema.is_stateful or op.type in HARMLESS | _READS:
            continue
        has_resource = any(t.dtype == tf.resource for t in op.inputs)
        found.add("writes" if has_resource else "draws")
    return found
