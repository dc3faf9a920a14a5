"""Makes the kinds of recorded calls: of ops, and of functions."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from tf_pfor import _tf
from tf_pfor._tf import _eager_ops, _functions
from tf_pfor._tf._all_ops import all_ops
from tf_pfor.core import nests
from tf_pfor.core.accesses import ASSIGNMENTS, HARMLESS, QUERIES, READS, draws_from_generator
from tf_pfor.core.errors import ArgumentTypeError, UnsupportedStateError
from tf_pfor.core.facts import FACTS, Facts
from tf_pfor.core.nests import Nest
from tf_pfor.recording.nodes import Kind
from tf_pfor.recording.tensors import Deferred
from tf_pfor.tracing.user_code import autographed

SMALL = 64  # elements of an input whose value may decide on a shape
SEEDS = "seed_generator"  # in names of variables and of a file of Keras
_READS = READS | QUERIES
_WRITES = ("Assign", "LookupTableInsert", "LookupTableRemove", "Resource")
_SURE = ASSIGNMENTS | frozenset(
    [
        "AvgPool",
        "AvgPool3D",
        "BiasAdd",
        "Conv2D",
        "Conv3D",
        "DepthwiseConv2dNative",
        "Einsum",
        "FusedBatchNormV3",
        "L2Loss",
        "LogSoftmax",
        "MaxPool",
        "MaxPool3D",
        "RngReadAndSkip",
        "Softmax",
        "SoftmaxCrossEntropyWithLogits",
        "StatelessRandomGetKeyCounter",
        "StatelessRandomNormalV2",
        "StatelessRandomUniformV2",
        "VarIsInitializedOp",
    ]
)
"""Ops that fail for no values; ``FACTS`` does not say so, since nothing else asks."""

_PLAIN = frozenset([int, float, bool, str, bytes, type(None)])
_OF_INTEGERS = frozenset(
    ["Div", "FloorDiv", "FloorMod", "Mod", "Pow", "TruncateDiv", "TruncateMod"]
)
"""Ops that fail for integers only: of zero, or of negative exponents."""


@dataclasses.dataclass(frozen=True, slots=True)
class OpType:
    """Facts of a type of ops.

    Attributes:
      name: the type.
      lists: for each input, whether it is a list of tensors.
      are_alone: for each input, whether no other input must have its dtype.
      is_read: whether it reads a variable or a resource.
      is_stateful: whether calls of the same inputs differ, or have an effect.
      is_single: whether it has one result, and no list of results.
      is_silent: whether it has no result, and no list of results.
      type_attrs: for each input, the attribute of its dtype; "" or None where it has none.
      dtypes: for each input, the dtype that the op fixes; None where it fixes none.
      count: the number of inputs; a list counts as one.
      has_lists: whether an input is a list.
    """

    name: str
    lists: tuple[bool, ...]
    are_alone: tuple[bool, ...]
    is_read: bool
    is_stateful: bool
    is_single: bool
    is_silent: bool
    type_attrs: tuple[str | None, ...]
    dtypes: tuple[tf.DType | None, ...]
    count: int
    has_lists: bool

    def is_sure(self, k: int, x: Nest, given: tuple[Any, ...]) -> bool:
        """Whether the input number k is a Python value, whose dtype no later input decides."""
        return type(x) in _PLAIN and (
            self.are_alone[k]
            or (
                k > 0
                and self.type_attrs[k] == self.type_attrs[k - 1]
                and isinstance(given[k - 1], tf.Tensor)
            )
        )

    def opened(self, given: tuple[Any, ...], lengths: list[Any]) -> list[Any]:
        """The inputs with lists opened; the lengths of the lists are added to ``lengths``."""
        found: list[Any] = []
        for x, is_list in zip(given, self.lists):
            if is_list:
                lengths.append(len(x))
                found += x
            else:
                found.append(x)
        return found


@functools.cache
def op_type_of(name: str) -> OpType | None:
    """The facts of a type of ops; None where TensorFlow has no such op."""
    schema = _tf.schema(name)
    if schema is None:
        return None
    attrs = [arg.type_attr for arg in schema.inputs]
    return OpType(
        name,
        tuple(arg.is_list for arg in schema.inputs),
        tuple(not arg.is_list and attrs.count(arg.type_attr) == 1 for arg in schema.inputs),
        name in _READS,
        schema.is_stateful and name not in _READS,
        schema.num_outputs == 1,
        schema.num_outputs == 0,
        tuple(attrs),
        tuple(arg.dtype for arg in schema.inputs),
        len(attrs),
        any(arg.is_list for arg in schema.inputs),
    )


class KindsOfOp:
    """The kinds of an op with inputs of some forms.

    Inputs whose values decide on the shapes of the results have a kind for each value.

    Attributes:
      varying: the numbers of the inputs that differ between calls of a kind.
      places: the numbers of the inputs whose values decide on shapes.
      lengths: the lengths of lists among the inputs, -1 for other inputs.
    """

    def __init__(
        self,
        op_type: OpType,
        inputs: list[Any],
        lengths: list[int],
        attrs: tuple[Any, ...],
        *,
        fixes_handles: bool,
        held: Sequence[int] = (),
    ) -> None:
        self.op_type = op_type
        self.lengths = lengths
        self._attrs = attrs
        fixed = [
            not isinstance(x, tf.Tensor) or (fixes_handles and x.dtype == tf.resource)
            for x in inputs
        ]
        self.places = list(held) or self._places_of_values(inputs, fixed)
        self._fixed = [f or i in self.places for i, f in enumerate(fixed)]
        self.varying = [i for i, f in enumerate(self._fixed) if not f]
        self._kinds: dict[Any, Kind] = {}
        self._only = None if self.places else self._kind(inputs)

    def of(self, inputs: list[Any]) -> Kind:
        """The kind of a call."""
        if self._only is not None:
            return self._only
        values = tuple([inputs[p].numpy().tobytes() for p in self.places])
        if values not in self._kinds:
            self._kinds[values] = self._kind(inputs)
        return self._kinds[values]

    def _kind(self, inputs: list[Any]) -> Kind:
        varying = [inputs[i] for i in self.varying]
        call = self._call(inputs, self._fixed)
        results = in_a_graph(call, varying)
        pack = _first if self.op_type.is_single else _none if self.op_type.is_silent else list
        attrs = _eager_ops.attributes_of(results[0].op) if results else ()
        dtypes = [x.dtype for x in results[0].op.inputs] if results else []
        return Kind(
            self.op_type.name,
            call,
            [tf.TensorSpec(x.shape, x.dtype) for x in varying],
            _known_specs(results),
            pack,
            is_single=self.op_type.is_single,
            may_share=not self.op_type.is_stateful,
            handles=[x for x, f in zip(inputs, self._fixed) if f and _is_handle(x)],
            gradient=self._gradient(inputs, attrs, dtypes),
            may_fail=_may_fail(self.op_type.name, varying),
            writes=self.op_type.is_stateful,
        )

    def _call(self, inputs: list[Any], fixed: list[bool]) -> Callable[..., list[tf.Tensor]]:
        """The op as a function of its inputs that are not fixed."""
        name, lengths, attrs = self.op_type.name, self.lengths, self._attrs
        filled = _filler(inputs, fixed)

        def call(*tensors: tf.Tensor) -> list[tf.Tensor]:
            supply = iter(filled(tensors))
            given = [next(supply) if n < 0 else [next(supply) for _ in range(n)] for n in lengths]
            return _eager_ops.run(name, (*given, *attrs))

        return _functions.never_converted(call)

    def _gradient(
        self, inputs: list[Any], attrs: tuple[Any, ...], dtypes: list[tf.DType]
    ) -> Callable[..., list[Any]]:
        """TensorFlow's gradient of the op, as a function of the inputs that are not fixed."""
        name, varying = self.op_type.name, self.varying
        filled = _filler(inputs, self._fixed)

        def gradient(
            wanted: Sequence[bool],
            given: Sequence[tf.Tensor],
            results: Sequence[tf.Tensor],
            slopes: Sequence[Any],
        ) -> list[Any]:
            whole = [tf.convert_to_tensor(x, dtype) for x, dtype in zip(filled(given), dtypes)]
            asked = {varying[k] for k, is_wanted in enumerate(wanted) if is_wanted}
            rest = tuple(k for k in range(len(whole)) if k not in asked)
            found = _eager_ops.gradient_of_op(name, attrs, whole, results, slopes, rest)
            return [found[k] for k in varying]

        return gradient

    def _places_of_values(self, inputs: list[Any], fixed: list[bool]) -> list[int]:
        """The numbers of the inputs whose values decide on the shapes of the results."""
        if any(map(_is_handle, inputs)):
            return []
        small = [i for i, f in enumerate(fixed) if not f and _is_small(inputs[i])]

        def are_enough(places: Sequence[int]) -> bool:
            held = [f or i in places for i, f in enumerate(fixed)]
            given = [x for x, h in zip(inputs, held) if not h]
            return _known_shapes(self._call(inputs, held), given)

        if not small or are_enough([]):
            return []
        places = small
        for place in small if are_enough(small) else ():
            rest = [p for p in places if p != place]
            places = rest if are_enough(rest) else places
        return places


def _may_fail(op_type: str, inputs: Sequence[tf.Tensor]) -> bool:
    """Whether the values of some inputs are an error."""
    if op_type in _SURE or op_type.startswith("ResourceApply"):
        return False
    if op_type in _OF_INTEGERS and all(x.dtype.is_floating for x in inputs):
        return False
    return FACTS.get(op_type, Facts()).may_fail


def _filler(
    inputs: Sequence[Any], fixed: Sequence[bool]
) -> Callable[[Sequence[tf.Tensor]], list[Any]]:
    """A function of the inputs that are not fixed, which adds those that are."""
    held = [x if f else None for x, f in zip(inputs, fixed)]  # no tensor of an example

    def filled(tensors: Sequence[tf.Tensor]) -> list[Any]:
        supply = iter(tensors)
        known = held
        if not tf.executing_eagerly():  # a captured tensor would be an input, unknown to XLA
            known = [_eager_ops.constant_of(x) for x in held]
        return [x if is_fixed else next(supply) for x, is_fixed in zip(known, fixed)]

    return filled


def in_a_graph(call: Callable[..., list[Any]], inputs: Sequence[tf.Tensor]) -> list[Any]:
    """The results of a call in a graph of its own, with placeholders for its inputs."""
    graph = tf.__internal__.FuncGraph("recorded")
    with _eager_ops.caught(None), graph.as_default():
        given = [tf.compat.v1.placeholder(x.dtype, x.shape) for x in inputs]
        for x, inside in zip(inputs, given):
            if x.dtype == tf.resource:
                _tf.copy_handle_data(x, inside)
        return call(*given)


def kind_of_unit(
    name: str,
    fn: Callable[..., Any],
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    *,
    is_plain: bool = False,
) -> Kind:
    """The kind of a call of a Python function.

    ``is_plain``: its ops are part of the program that calls it, without AutoGraph.
    """
    structure = nests.from_user((args, kwargs))
    leaves = nests.flatten(structure)
    are_tensors = [isinstance(x, (tf.Tensor, np.ndarray, np.generic, tf.Variable)) for x in leaves]
    held = [None if t else x for x, t in zip(leaves, are_tensors)]
    inputs = [tf.convert_to_tensor(x) for x, t in zip(leaves, are_tensors) if t]
    empty = nests.skeleton(structure)
    converted = fn if is_plain else autographed(fn, "cell")
    form: list[Any] = []

    def call(*tensors: tf.Tensor) -> list[tf.Tensor]:
        supply = iter(tensors)
        filled = [next(supply) if t else x for x, t in zip(held, are_tensors)]
        args, kwargs = nests.to_user(nests.pack(empty, filled))
        found = nests.from_user(converted(*args, **kwargs))
        leaves = nests.flatten(found)
        form[:] = nests.skeleton(found), [x is None for x in leaves]
        return [_returned(name, x) for x in leaves if x is not None]

    specs = [tf.TensorSpec(x.shape, x.dtype) for x in inputs]
    if is_plain:
        results = _known_specs(in_a_graph(call, inputs))
        pack = _packer(*form)
        return Kind(name, call, specs, results, pack, may_share=True, may_fail=False)
    with _eager_ops.caught(None):
        whole = tf.function(call, autograph=False)
        traced = whole.get_concrete_function(*specs)
    effects = _effects(traced.graph)
    if "writes" in effects:
        raise write_refused(name, draws=any(SEEDS in v.name for v in traced.graph.variables))
    if not traced.outputs and any(form[1]):
        raise ArgumentTypeError(
            f"{name} returns no tensor inside of batched(), where it would do nothing. Return a "
            "tensor from it, or call it outside."
        )
    results = _known_specs(traced.outputs)
    return Kind(
        name,
        whole,
        specs,
        results,
        _packer(*form),
        may_share=not effects,
        handles=[v.handle for v in traced.graph.trainable_variables],
        graph=traced.graph,
    )


def writes(op_types: Iterable[str], *, was_read: bool) -> bool:
    """Whether ops of these types write what recorded calls read: variables and tables.

    If nothing ``was_read`` of what they use, a new table may be filled, and a generator may draw.
    """
    return any(
        (t.startswith(_WRITES) and t not in _READS)
        or (was_read and (t.startswith("LookupTableImport") or draws_from_generator(t)))
        for t in op_types
    )


def write_refused(name: str, *, draws: bool) -> UnsupportedStateError:
    """The error of an op or a function that writes a variable; ``draws``: a seed of Keras."""
    advice = "Write it after the call, from what the function returns."
    if draws:
        advice = (
            "It is the seed generator of a Keras layer that draws random numbers, as Dropout does "
            "with training=True. Use an op in place of the layer, such as tf.nn.dropout."
        )
    return UnsupportedStateError(
        f"{name} writes a variable, a table or another resource inside of batched(), where "
        f"examples have no order. {advice}"
    )


def _known_specs(results: Sequence[tf.Tensor]) -> list[tf.TensorSpec] | None:
    """The specs of results; None where only a run shows them."""
    specs = [tf.TensorSpec(t.shape, t.dtype) for t in results]
    return specs if all(spec.shape.is_fully_defined() for spec in specs) else None


def _known_shapes(call: Callable[..., Any], inputs: Sequence[Any]) -> bool:
    """Whether the shapes of the results of a call follow from the shapes of its inputs."""
    try:
        made = in_a_graph(call, inputs)
    except (TypeError, ValueError):  # the op takes a constant only
        return False
    return all(t.shape.is_fully_defined() for t in made)


def _is_small(x: tf.Tensor) -> bool:
    """Whether the value of a tensor is known and may decide on a shape."""
    count = x.shape.num_elements()
    return not isinstance(x, Deferred) and x.dtype.is_integer and (count or 0) <= SMALL


def _is_handle(x: object) -> bool:
    return isinstance(x, tf.Tensor) and x.dtype == tf.resource


def _first(found: list[Any]) -> Any:
    return found[0]


def _none(found: list[Any]) -> None:
    """The result of an op that has none."""


def _returned(name: str, x: Nest) -> tf.Tensor:
    """A result of a Python function as a tensor."""
    try:
        return tf.convert_to_tensor(x)
    except (TypeError, ValueError) as why:
        raise ArgumentTypeError(
            f"{name} returns {x!r}, which is no tensor. Inside of batched() it may return a nest "
            "of tensors, numbers and None."
        ) from why


def _packer(skeleton: Nest, absent: Sequence[bool]) -> Callable[[list[Any]], Any]:
    """A function that puts leaves into a nest; ``absent``: true for leaves that are None."""
    cls = type(skeleton)
    if any(absent):

        def pack(leaves: list[Any]) -> Any:
            supply = iter(leaves)
            whole = [None if is_none else next(supply) for is_none in absent]
            return nests.to_user(nests.pack(skeleton, whole))

        return pack
    if skeleton is None:
        return _first
    if cls in (tuple, list) and all(x is None for x in skeleton):
        return cls
    return lambda leaves: nests.to_user(nests.pack(skeleton, leaves))


def _effects(graph: tf.Graph) -> set[str]:
    """The effects of a graph: "writes" of variables and resources, "draws" for all others."""
    found: set[str] = set()
    for op in all_ops(graph):
        schema = _tf.schema(op.type)
        is_known = schema is None or not schema.is_stateful or op.type in HARMLESS | _READS
        if not is_known and not _tf.functions_of(op):
            has_resource = any(t.dtype == tf.resource for t in op.inputs)
            found.add("writes" if has_resource else "draws")
    return found
