"""Regions: ops of the body that run together in one sequential loop."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any

import tensorflow as tf

from tf_pfor import _tf
from tf_pfor._tf import _custom_gradients, _functions, _graphs
from tf_pfor._tf._all_ops import all_ops
from tf_pfor.core.accesses import QUERIES, READS, may_repeat
from tf_pfor.core.conversion import Conversion
from tf_pfor.core.errors import NotVectorizableError
from tf_pfor.core.facts import is_linear
from tf_pfor.core.registry import REGISTRY
from tf_pfor.core.values import Shape, dims

_PURE = READS | QUERIES | {"Placeholder"}
_SMALL = 32  # elements of a constant that each row may hold


_OTHER_KERNELS = frozenset(["QuantizeV2"])  # oneDNN's and Eigen's differ by one


def handed_on(tensor: tf.Tensor) -> tf.Tensor | None:
    """The input of its op that a handle of a resource is; None if the op makes it."""
    op, k = tensor.op, tensor.value_index
    if op.type == "Identity" or op.type in _tf.LOOPS:
        return op.inputs[k]
    if op.type not in _tf.CALLS:
        return None
    (graph,) = _tf.functions_of(op)
    inner: tf.Tensor | None = graph.outputs[k]
    while inner is not None and all(inner is not t for t in graph.inputs):
        inner = handed_on(inner)
    return next((t for t, given in zip(op.inputs, graph.inputs) if given is inner), None)


def _is_pure(op: tf.Operation) -> bool:
    inner = _tf.functions_of(op)
    if inner and op.type in _tf.CONTAINERS:
        return all(_is_pure(o) for graph in inner for o in graph.get_operations())
    schema = _tf.schema(op.type)
    return (schema is not None and not schema.is_stateful) or op.type in _PURE


@dataclasses.dataclass(frozen=True, slots=True)
class Region:
    """Ops of the body that run together, once for each row.

    Attributes:
      ops: the ops, each after those it needs.
      inputs: the tensors of the body that they read and do not make.
      outputs: the tensors that others read.
      uneven: the numbers of outputs that may not have the same shape in all rows.
      handles: the handles of resources that others read, of ops that hand them on.
      same: ops whose result equals another tensor: reads of a value that was assigned before.
      like: the outputs as the body has them, where these are made of others.
    """

    ops: tuple[tf.Operation, ...]
    inputs: tuple[tf.Tensor, ...]
    outputs: tuple[tf.Tensor, ...]
    uneven: tuple[int, ...] = ()
    handles: tuple[tf.Tensor, ...] = ()
    same: Mapping[tf.Operation, tf.Tensor] = dataclasses.field(
        default_factory=dict[tf.Operation, tf.Tensor]
    )
    like: tuple[tf.Tensor, ...] = ()

    @property
    def needs_graph(self) -> bool:
        """Whether MapDefun runs it otherwise than a graph: some kernels, calls compiled by XLA."""
        return any(op.type in _OTHER_KERNELS or _holds(op, draws_by_xla) for op in self.ops)

    @classmethod
    def of(cls, ops: Sequence[tf.Operation], outputs: Iterable[tf.Tensor] | None = None) -> Region:
        """The region of ``ops``; all that they make is wanted if ``outputs`` is None."""
        # XLA wants to see the constants that are shapes, and empty lists have no gradient.
        inside = set(ops)
        new = [t.op for op in ops for t in op.inputs if _is_new_list(t)]
        small = {op: None for op in new if inside.isdisjoint(t.op for t in op.inputs)}
        memo: dict[Any, list[tf.Operation]] = {}
        is_deep = _tf.in_xla_context(tf.compat.v1.get_default_graph())
        read = [t for op in (*small, *ops) for t in op.inputs]
        read = [t for t in read if is_deep or t.op.type == "Const"]
        known = [o for t in read for o in _of_constants(t, memo)]
        small = {op: None for op in (*known, *small) if op not in ops}
        ops = [*small, *ops]
        inside = set(ops)
        inputs = {key(t): t for op in ops for t in op.inputs if t.op not in inside}
        if outputs is None:
            outputs = [t for op in ops for t in op.outputs if op not in small]
        return cls(tuple(ops), tuple(inputs.values()), tuple(outputs))

    @classmethod
    def read(
        cls, ops: Sequence[tf.Operation], walker: Conversion, uneven: Collection[Any] = ()
    ) -> Region:
        """The region of ``ops``, of which all is wanted that others read and that is not there yet.

        The keys ``uneven`` name the tensors whose shapes may differ between iterations.
        """
        inside, needed = set(ops), walker.wanted()
        has_lists = all(map(_is_pure, ops))  # a loop in order hands on none

        def is_read(tensor: tf.Tensor) -> bool:
            readers = set(tensor.consumers()) - inside
            is_list = tensor.dtype == tf.variant and not has_lists
            others = readers & needed if is_list or key(tensor) in uneven else readers
            return walker.is_asked(tensor) or bool(others)

        made = [t for op in ops if not walker.is_done(op) for t in op.outputs]
        wanted = [t for t in made if is_read(t)]
        if not uneven:  # an op that is read may be asked for its other results later
            read = {t.op for t in wanted}
            may_be = [t for t in made if t.dtype != tf.variant or has_lists or is_read(t)]
            wanted = [t for t in may_be if t.op in read]
        outputs = [t for t in wanted if t.dtype != tf.resource]
        return dataclasses.replace(
            cls.of(ops, outputs),
            uneven=tuple(i for i, t in enumerate(outputs) if key(t) in uneven),
            handles=tuple(t for t in wanted if t.dtype == tf.resource),
        )

    @property
    def waits_for(self) -> list[tf.Operation]:
        """The ops that must have run before, without being read."""
        inside = set(self.ops)
        return [o for op in self.ops for o in op.control_inputs if o not in inside]

    @classmethod
    def of_graph(cls, graph: tf.Graph) -> Region:
        """All ops of a function graph, from its inputs to its outputs."""
        given = {t.op for t in graph.inputs}  # small captured tensors are constants there
        made = {op for op in graph.get_operations() if op.type != "Placeholder"}
        ops = in_order(made - given)
        return cls(tuple(ops), tuple(graph.inputs), tuple(graph.outputs))

    @property
    def is_stateful(self) -> bool:
        """Whether running it has effects, or gives another result each time.

        Reads of variables do not count, if nothing in the region writes.
        """
        return not all(map(_is_pure, self.ops))

    def hidden(self, ops: Iterable[tf.Operation]) -> list[tf.Operation]:
        """The ops, of ``ops``, with a result that is no output of the region.

        The list is empty if the region must not run again: it has effects, or gives another result
        each time.
        """
        told = {key(t) for t in (*self.outputs, *self.handles)}
        if not all(map(may_repeat, self.ops)):
            return []
        return [op for op in ops if any(key(t) not in told for t in op.outputs)]

    @property
    def bent_gradient(self) -> tf.Operation | None:
        """An op whose tf.custom_gradient may not be linear in what flows back; None without one."""
        todo = list(self.ops)
        for op in todo:  # grows
            if op.type == "IdentityN" and _tf.has_own_gradient(op) and not _has_linear_gradient(op):
                return op
            if op.type in _tf.CALLS:
                todo += [o for graph in _tf.functions_of(op) for o in graph.get_operations()]
        return None

    @property
    def has_variables(self) -> bool:
        """Whether the region gets handles of variables."""
        return any(t.dtype == tf.resource for t in self.inputs)

    def copy(self, *inputs: tf.Tensor) -> list[tf.Tensor]:
        """Emits the ops in the current graph on ``inputs``; returns the outputs."""
        graph = tf.compat.v1.get_default_graph()
        new: dict[Any, tf.Tensor] = {key(t): x for t, x in zip(self.inputs, inputs)}
        copies: dict[tf.Operation, list[tf.Operation]] = {}
        for op in self.ops:
            if op in self.same:
                new[key(op.outputs[0])] = new[key(self.same[op])]
                continue
            given = [new[key(t)] for t in op.inputs]
            mark = len(graph.get_operations())
            with graph.control_dependencies(
                [x for c in op.control_inputs for x in copies.get(c, ())]
            ):
                if _tf.has_own_gradient(op) and op.type == "IdentityN":
                    made = _custom_gradients.copied(
                        op, given, lambda t, op=op: _copy(t, op, new), _copied_graph
                    )
                else:
                    made = copied(op, given)
            copies[op] = graph.get_operations()[mark:]
            for old, one in zip(op.outputs, made):
                if not one.shape.is_fully_defined():
                    one.set_shape(old.shape)  # a kernel may ask for more than its op infers
                new[key(old)] = one
        return [new[key(t)] for t in self.outputs]


def _copied_graph(graph: tf.Graph, inputs: Sequence[tf.Tensor]) -> list[tf.Tensor]:
    return Region.of_graph(graph).copy(*inputs)


def _has_linear_gradient(op: tf.Operation) -> bool:
    floats = [i for i, t in enumerate(op.outputs) if _custom_gradients.has_gradient(t)]
    graph, _ = _custom_gradients.traced(op, floats)
    needed = reached(t.op for t in graph.outputs)
    return is_linear(graph, needed, len(floats))


def _copy(tensor: tf.Tensor, reader: tf.Operation, known: Mapping[Any, tf.Tensor]) -> tf.Tensor:
    """The copy of a tensor that the gradient of ``reader`` reads; made if there is none.

    Raises:
      NotVectorizableError: if it is made of something that is not ``known``.
    """
    if getattr(tensor, "graph", None) is not reader.graph or key(tensor) in known:
        return known.get(key(tensor), tensor) if hasattr(tensor, "graph") else tensor
    missing, todo = set[tf.Operation](), [tensor]
    for t in todo:  # grows
        if key(t) in known or t.op in missing:
            continue
        if not may_repeat(t.op) or t.op.type == "Placeholder":
            raise _gradient_error(reader)
        missing.add(t.op)
        todo += t.op.inputs
    region = Region.of(in_order(missing), [tensor])
    return region.copy(*[known[key(t)] for t in region.inputs])[0]


def draws_by_xla(op: tf.Operation) -> bool:
    """Whether an op calls a function with ``jit_compile=True`` that draws by a seed.

    XLA draws other numbers than TensorFlow's kernels: all fractions, and integers of some seeds.
    """
    return op.type in _tf.CALLS and _tf.attr_map(op)["_XlaMustCompile"].b and _holds(op, _draws)


def _draws(op: tf.Operation) -> bool:
    return op.type.startswith(("StatelessMultinomial", "StatelessRandom", "StatelessTruncated"))


def _holds(op: tf.Operation, is_so: Callable[[tf.Operation], bool]) -> bool:
    """Whether something is so for an op, or for one in the functions that it calls."""
    return is_so(op) or any(map(is_so, all_ops(*_tf.functions_of(op))))


def copied(op: tf.Operation, inputs: Sequence[tf.Tensor]) -> Sequence[tf.Tensor]:
    """Emits one op on ``inputs`` in the current graph; for a call the called function."""
    graph = tf.compat.v1.get_default_graph()
    is_row_loop = _tf.is_row_loop(op)
    if op.type in _tf.CALLS and not is_row_loop:  # TensorFlow cannot differentiate its copy
        (body,) = _tf.functions_of(op)
        copy = Region.of_graph(body).copy
        if draws_by_xla(op) and not _tf.in_xla_context(graph):
            copy = tf.function(copy, autograph=False, jit_compile=True)
        return copy(*inputs)
    schema = _tf.schema(op.type)
    assert schema is not None
    attrs = _tf.attr_map(op).items()
    protos = {k: v for k, v in attrs if k in schema.attr_types or (is_row_loop and k[0] == "_")}
    if op.type in (*_tf.BRANCHES, *_tf.LOOPS):
        _functions.name_apart(op.graph, graph, protos)
    _tf.add_functions(op.graph, graph, protos)
    if op.type.startswith("CudnnRNNBackprop"):  # it writes to what its forward op reserved
        at = [a.name for a in schema.inputs].index("reserve_space")
        inputs = [tf.raw_ops.DeepCopy(x=x) if i == at else x for i, x in enumerate(inputs)]
    made = _graphs.create_op(graph, op.type, list(inputs), protos, op.name)
    _functions.tell_of_variables(made)
    return made.outputs


def _of_constants(tensor: tf.Tensor, memo: dict[Any, list[tf.Operation]]) -> list[tf.Operation]:
    """The ops that make a shape or the like of constants, in running order; none for others.

    Only integers and booleans count, since others may be differentiated by.
    """
    op, at = tensor.op, key(tensor)
    if at not in memo:
        memo[at] = []
        is_number = tensor.dtype.is_integer or tensor.dtype == tf.bool
        is_small = is_number and (tensor.shape.num_elements() or 0) <= _SMALL
        given = [_of_constants(t, memo) for t in op.inputs] if is_small and _is_plain(op) else []
        if is_small and (op.type == "Const" or (given and all(given))):
            memo[at] = [*dict.fromkeys(o for made in given for o in made), op]
    return memo[at]


def _is_plain(op: tf.Operation) -> bool:
    return not op.control_inputs and not _tf.functions_of(op) and may_repeat(op)


def _is_new_list(tensor: tf.Tensor) -> bool:
    return tensor.op.type in ("EmptyTensorList", "TensorListReserve")


def _gradient_error(own: tf.Operation) -> NotVectorizableError:
    """The error that the gradient of a copied tf.custom_gradient reads a value its loop lacks."""
    return NotVectorizableError(
        f"tf.custom_gradient ({_tf.user_line(own) or 'line unknown'}) is applied in a "
        "sequential loop over the rows, and its gradient reads a tensor that is made outside of "
        "that loop. Give this tensor to the function as an argument"
    )


def key(tensor: tf.Tensor) -> Any:
    """Names a tensor of a graph; equal for equal ones."""
    return (tensor.op, tensor.value_index)


def needs(op: tf.Operation) -> list[tf.Operation]:
    """The operations that ``op`` reads, or waits for."""
    return [*(t.op for t in op.inputs), *op.control_inputs]


def closure(
    roots: Iterable[tf.Operation], near: Callable[[tf.Operation], Iterable[tf.Operation]]
) -> set[tf.Operation]:
    """The operations that are ``near`` to the roots, near to these, and so on."""
    found: set[tf.Operation] = set()
    todo = list(roots)
    while todo:
        new = set(near(todo.pop())) - found
        found |= new
        todo += new
    return found


def reached(roots: Iterable[tf.Operation]) -> set[tf.Operation]:
    """The operations that ``roots`` need, and themselves."""
    roots = [*roots]
    return closure(roots, needs).union(roots)


# ---------------------------------------------------------------------------
# Growing
# ---------------------------------------------------------------------------


def grow(first: tf.Operation, walker: Conversion, uneven: Collection[Any]) -> list[tf.Operation]:
    """The ops that share a loop with ``first``, an op that no rule takes, in running order.

    They are stateless, have no rule at all, are connected with it through such ops, and no path
    leaves them and comes back. What they need from outside is converted on the way.

    Args:
      first: the op.
      walker: the walker that converts it.
      uneven: the keys of tensors whose shapes may differ between iterations: none of theirs.
    """
    wanted = {
        op for op in walker.wanted() if not any(key(t) in uneven for t in (*op.inputs, *op.outputs))
    }
    members = _connected(first, lambda op: op in wanted and _may_join(op, first, walker))
    _make_convex(members, walker.wanted())
    if len(members) == 1:
        return [first]
    outside = [t.op for op in in_order(members) for t in op.inputs if t.op not in members]
    walker.visit([op for op in outside if not walker.is_done(op)])
    joined: dict[tf.Operation, None] = {}
    for op in in_order(members):
        if op is first or _fits(op, joined, walker):
            joined[op] = None
    return list(joined)


def _may_join(op: tf.Operation, first: tf.Operation, walker: Conversion) -> bool:
    schema = _tf.schema(op.type)
    return (
        schema is not None
        and not schema.is_stateful
        and not walker.is_done(op)
        and op.type not in ("Const", "Placeholder")
        and op.type not in REGISTRY
        and walker.settings.may_loop(op.type)
        and not op.control_inputs
        and bool(op.outputs)
        and op.device == first.device
    )


def _connected(first: tf.Operation, may_join: Callable[..., Any]) -> set[tf.Operation]:
    """``first`` and what is connected with it through ops that may join."""

    def near(op: tf.Operation) -> Iterable[tf.Operation]:
        others = [t.op for t in op.inputs] if op is not first else []
        others += [c for t in op.outputs for c in t.consumers()]
        return filter(may_join, others)

    return {first} | closure([first], near)


def _make_convex(members: set[tf.Operation], wanted: set[tf.Operation]) -> None:
    """Takes out ops that a path reaches after it left the members, so that no path comes back."""
    while True:
        outside = {c for op in members for c in after(op) if c in wanted and c not in members}
        back = members & closure(outside, lambda op: wanted.intersection(after(op)))
        if not back:
            return
        members -= back


def after(op: tf.Operation) -> list[tf.Operation]:
    """The operations that read a result of ``op``, or wait for it."""
    return [c for t in op.outputs for c in t.consumers()] + list(_tf.control_outputs(op))


def in_order(members: set[tf.Operation]) -> list[tf.Operation]:
    """Some operations, each behind the operations that it needs."""
    order: dict[tf.Operation, None] = {}
    for root in _tf.by_creation(members):
        stack = [root]
        while stack:
            op = stack[-1]
            todo = [o for o in needs(op) if o in members and o not in order]
            stack += todo
            if not todo:
                order[stack.pop()] = None
    return list(order)


def _fits(op: tf.Operation, joined: dict[tf.Operation, None], walker: Conversion) -> bool:
    """Whether an op can run with the ops joined so far; a loop-invariant op is converted."""
    values = [walker.value_of(t) for t in op.inputs if t.op not in joined]
    if any(v is None or not v.is_tensor for v in values):
        return False
    if any(t.op in joined for t in op.inputs) or any(v and v.is_stacked for v in values):
        return True
    walker.visit([op])
    return False


def shapes_for(graph: tf.Graph, shapes: Sequence[tf.TensorShape]) -> list[Shape]:
    """The static shapes of the outputs of a function for inputs of these; None where they clash."""
    with tf.Graph().as_default():
        scratch = _graphs.QuickGraph("shapes")
    with scratch.as_default():
        inputs = [
            tf.compat.v1.placeholder(t.dtype, s) for t, s in zip(graph.inputs, shapes, strict=True)
        ]
        _tf.copy_handles(graph.inputs, inputs)
        try:
            return [dims(t) for t in Region.of_graph(graph).copy(*inputs)]
        except (TypeError, ValueError):
            return [None] * len(graph.outputs)
