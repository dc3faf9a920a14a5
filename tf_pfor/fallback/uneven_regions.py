"""Values whose size differs between iterations: the ops that share a loop over rows.

Such a tensor cannot be stacked. The op that makes it, its readers, and the ops between run together
in one sequential loop, until the sizes are equal again. An example is the largest of the sums so
far of a ``boolean_mask``: it leaves the loop as one number a row.
"""

from __future__ import annotations

import contextlib
from collections.abc import Generator, Iterable, Iterator, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from tf_pfor import _tf
from tf_pfor._tf import _functions, _graphs
from tf_pfor.core import regions
from tf_pfor.core.accesses import HARMLESS, QUERIES, READS, accesses
from tf_pfor.core.conversion import Conversion
from tf_pfor.core.emit import Emitter
from tf_pfor.core.errors import CannotVectorize, Refused
from tf_pfor.core.facts import facts_of
from tf_pfor.core.matching import group
from tf_pfor.core.regions import key
from tf_pfor.core.registry import REGISTRY
from tf_pfor.core.values import dims, is_static
from tf_pfor.fallback import refusals
from tf_pfor.layouts.ragged import RowShape, RowSize, differ_in_shape, is_ragged

_SHAPES = ("Rank", "Shape", "ShapeN", "Size")
_SOME_SIZES = (6, 1)  # in place of one that is unknown, but the same in all iterations

_SIZED = ("BroadcastTo", "Fill", "Range", "Reshape", "Tile")
_OPEN = "regions whose inputs are being converted"
_QUESTIONS = "the graph in which shapes are asked for"


class Leaves(CannotVectorize):
    """A function of the body returns such a tensor: its call must join the loop of the caller."""


def leaving(graph: tf.Graph, walker: Conversion, why: str) -> CannotVectorize:
    """The error that a function cannot be inlined: its call is to loop over the rows."""
    effects = [op for op in graph.get_operations() if walker.is_done(op) and has_effects(op)]
    if not effects:
        return Leaves(why)
    where = f"{effects[0].type} ({_tf.user_line(effects[0]) or 'line unknown'})"
    return Refused(
        f"{why}; so the call of its function must loop over the rows, and cannot: {where} in the "
        "function would run twice. Move it out of the function"
    )


def together(first: tf.Operation, walker: Conversion) -> tuple[list[tf.Operation], set[Any]]:
    """The ops that share a loop with ``first``, an op that no rule takes, in running order.

    Returns:
      The ops; none if they were converted on the way. And the keys of their outputs whose shapes
      may differ between iterations.

    Raises:
      CannotVectorize: if one of them must not be in such a loop.
      Leaves: if the result of a function inside the body may differ in shape.
    """
    is_alone = _may_leave(first, walker) and not gradients(first, walker)
    if is_alone and has_effects(first):
        return [first], set()
    members, uneven, varies = spread(first, walker)
    if not members:
        schema = _tf.schema(first.type)
        assert schema is not None
        ops = [first] if schema.is_stateful else regions.grow(first, walker, uneven)
        return regions.in_order({*ops, *copies(set(ops), walker)}), set()
    if is_alone and have_effects(first, members, walker):
        return [first], uneven
    uneven |= _lists(members, varies)
    try:
        _check(first, members, walker, uneven)
    except Refused:  # its function cannot loop
        if _may_try(first, walker):
            return [first], set()
        raise
    members |= copies(members, walker)
    needs = {o for m in members for o in regions.needs(m)}
    outside = _tf.by_creation(needs - members)
    with being_converted(members, walker):
        walker.visit([op for op in outside if not walker.is_done(op)])
    if walker.failed(outside):
        raise walker.Failed
    if any(is_ragged(walker.value_of(t)) for m in members for t in m.inputs):
        # some inputs were not known to differ in shape before they were converted
        started = walker.memo["sources of unequal shapes"] | members
        uneven |= _uneven(walker, walker.wanted(), started, in_loop=True)[0]
    return ([] if walker.is_done(first) else regions.in_order(members)), uneven


def spread(
    first: tf.Operation, walker: Conversion, *, in_loop: bool = True
) -> tuple[set[tf.Operation], set[Any], set[Any]]:
    """The ops that the unequal shapes of an op's outputs spread to; its inputs are converted.

    In a loop over rows a list is the list of one row. If it is not for one (``in_loop``), the
    spread ends where lists are made of such tensors.

    Returns:
      The op, the ops that make or read such tensors, and the ops on paths between; none if its
      outputs have equal shapes. The keys of such tensors, and of all tensors that differ in value.
    """
    started = walker.memo.setdefault("sources of unequal shapes", set())
    started.add(first)
    wanted = walker.wanted()
    uneven, varies = _uneven(walker, wanted, started, in_loop)
    if not any(key(t) in uneven for t in first.outputs) and not gradients(first, walker):
        started.discard(first)
        return set(), uneven, varies
    members, before = {first}, set[tf.Operation]()
    if not in_loop:
        members |= _listed(first, walker, wanted)
    while members != before:
        before = members
        members = _closed(members, walker, wanted, uneven, varies if in_loop else set())
        members |= _sharers(members, walker, wanted) if in_loop else set()
        for other in walker.memo.get(_OPEN, ()):
            if other & _before(members, walker):  # each needs the other
                members = members | {op for op in other if not walker.is_done(op)}
        uneven, varies = _uneven(walker, wanted, started | members, in_loop)
    return members, uneven, varies


def in_order(ops: Sequence[tf.Operation], walker: Conversion) -> set[Any]:
    """The keys of tensors whose shapes may differ between rows that run one after the other."""
    outputs = [t for op in ops for t in op.outputs if t.shape.rank != 0]
    if all(is_static(dims(t)) for t in outputs) or _tf.in_xla_context(walker.emit.graph):
        return set()
    found, _ = _uneven(walker, set(ops), set(ops), in_loop=True)
    return found & set(map(key, outputs))


def check_alone(op: tf.Operation, walker: Conversion) -> None:
    """Raises CannotVectorize if an op may not have a loop of its own: its results are uneven."""
    if all(is_static(dims(t)) for t in op.outputs) or has_effects(op):
        return
    if differ_in_shape(walker.value_of(t) for t in op.inputs):  # which the loop knows
        return
    _, uneven, _ = spread(op, walker)
    if any(key(t) in uneven for t in op.outputs):
        raise CannotVectorize("the shape of its result may differ between iterations")


@contextlib.contextmanager
def being_converted(members: set[tf.Operation], walker: Conversion) -> Generator[None]:
    """While the inputs of a region are converted, what needs its results joins it.

    Two of them may need each other: the gradient of ``f(a) * g(b)`` by a needs g(b).
    """
    regions_that_wait = walker.memo.setdefault(_OPEN, [])
    regions_that_wait.append(members)
    try:
        yield
    finally:
        regions_that_wait.pop()


def reason(ops: Sequence[tf.Operation], uneven: set[Any], other: str) -> str:
    """Why these ops share a loop: the ``other`` reason, and what they have in common."""
    if not uneven:
        return other
    with_it = f", and with it {len(ops) - 1} ops that depend on it" if len(ops) > 1 else ""
    why = f"its result cannot be stacked: shape, or list, may differ between iterations{with_it}"
    return f"{other}; {why}"


def have_effects(first: tf.Operation, members: Iterable[tf.Operation], walker: Conversion) -> bool:
    """Whether ops that would share a loop with ``first`` change something that others see.

    A read-modify-write that needs ``first`` does, if one of them needs what it reads.
    """
    if any(map(has_effects, members)):
        return True
    if walker.has_caller and any(walker.is_asked(t) for o in members for t in o.outputs):
        done = (o for o in first.graph.get_operations() if walker.is_done(o))
        if any(map(has_effects, done)):  # its call cannot loop: they would run twice
            return True
    known = accesses(first.graph, walker.memo)
    behind = _behind({first}, walker.wanted()) if known.update_groups else set[tf.Operation]()
    updates = [g for g in known.update_groups if any(u.assign in behind for u in g)]
    reads = {o for group in updates for u in group for o in (*u.reads, *u.later)}
    return bool(reads) and not reads.isdisjoint(_before({*members}, walker))


def _may_try(first: tf.Operation, walker: Conversion) -> bool:
    """Whether an op has a loop of its own if all of its results have one shape when it runs."""
    has_lists = any(t.dtype == tf.variant for t in first.outputs)
    return has_effects(first) and not has_lists and not gradients(first, walker)


def gradients(op: tf.Operation, walker: Conversion) -> list[tf.Operation]:
    """The gradients of a Python function: in a row they ask for what its last call has left."""
    if op.type != "EagerPyFunc":
        return []
    found = [c for c in _tf.control_outputs(op) if _functions.is_gradient(c)]
    wanted = walker.wanted() if found else ()
    return [c for c in found if c in wanted and not walker.is_done(c)]


def _may_leave(first: tf.Operation, walker: Conversion) -> bool:
    """Whether the results of ``first`` can be ragged rows behind its loop."""
    is_known = all(t.dtype != tf.variant and t.shape.rank is not None for t in first.outputs)
    return is_known and not _tf.in_xla_context(walker.emit.graph)


def _check(
    first: tf.Operation, members: set[tf.Operation], walker: Conversion, uneven: set[Any]
) -> None:
    where = f"'{first.type}' ({_tf.user_line(first) or 'line unknown'})"
    for op in _tf.by_creation(members):
        if op is not first and not walker.settings.may_loop(op.type):
            raise CannotVectorize(
                "the shape of its result may differ between iterations, and the op that reads it "
                f"may not loop: {op.type}"
            )
        refusal = refusals.why_not_inside(op, True) if has_effects(op) else ""
        if refusal:
            raise CannotVectorize(
                "the shape of its result may differ between iterations, and what depends on it "
                f"cannot run row by row: {op.type} ({_tf.user_line(op) or 'line unknown'}): "
                f"{refusal}"
            )
    returned = [t for op in members for t in op.outputs if key(t) in uneven and walker.is_asked(t)]
    if returned and walker.has_caller:
        why = f"it returns a tensor whose shape may differ between iterations, of {where}"
        raise leaving(first.graph, walker, why)
    if any(t.dtype == tf.variant for t in returned):
        raise CannotVectorize(
            "a list of tensors whose shapes differ between iterations is a result: return a "
            "tensor, by TensorArray.stack() or concat()"
        )


def has_effects(op: tf.Operation) -> bool:
    """Whether a loop of its own would do, or see, other things than the op at its place."""
    schema = _tf.schema(op.type)
    if schema is None:
        return True
    if not schema.is_stateful:
        return False
    inner = _tf.functions_of(op)
    if inner:
        return any(has_effects(o) for graph in inner for o in graph.get_operations())
    return not (op.type in READS | QUERIES | HARMLESS or _tf.draws_randomly(op.type))


# ---------------------------------------------------------------------------
# Which ops
# ---------------------------------------------------------------------------


def _closed(
    members: set[tf.Operation],
    walker: Conversion,
    wanted: set[tf.Operation],
    uneven: set[Any],
    varies: set[Any],
) -> set[tf.Operation]:
    """The members, the ops that make or read their uneven tensors, and the ops on paths between."""

    def near(op: tf.Operation) -> Iterator[tf.Operation]:
        lists = _lists([op], varies)
        others = [t.op for t in op.inputs if key(t) in uneven or key(t) in lists]
        others += [c for t in op.outputs if key(t) in uneven for c in t.consumers()]
        others += gradients(op, walker)
        return (o for o in others if o in wanted and not walker.is_done(o))

    found = members | regions.closure(members, near)
    return found | (_behind(found, wanted) & _before(found, walker))


def _sharers(
    members: set[tf.Operation], walker: Conversion, wanted: set[tf.Operation]
) -> set[tf.Operation]:
    """The ops that read or write what members write: these run in the order of the loop."""
    known = accesses(next(iter(members)).graph, walker.memo)
    written = {a.handle for a in known.all if a.writes and a.op in members}
    together = [frozenset(map(known.handle_of, group)) for group in known.update_groups]
    together += [handles for handles, _ in known.unclear]
    while any(written & handles and not handles <= written for handles in together):
        written = written.union(*(handles for handles in together if handles & written))
    found = {a.op for a in known.all if a.handle in written}
    return {op for op in found if op in wanted and not walker.is_done(op)}


def _lists(members: Iterable[tf.Operation], varies: set[Any]) -> set[Any]:
    """The lists that members read: in their loop a list is the list of one row."""
    return {
        key(t) for op in members for t in op.inputs if t.dtype == tf.variant and key(t) in varies
    }


def copies(members: set[tf.Operation], walker: Conversion) -> set[tf.Operation]:
    """The ops that made the lists that members read, to run once more for each row.

    Ops that were converted are meant, and ops that became part of another op on the way.
    """
    found: set[tf.Operation] = set()
    todo = list(members)
    while todo:
        for tensor in todo.pop().inputs:
            value, op = walker.value_of(tensor), tensor.op
            is_waiting = value is None and (op in members or not walker.is_done(op))
            is_item = value is not None and (value.is_tensor or is_ragged(value))
            if is_waiting or is_item or op in found:
                continue
            if op.type == "Placeholder":
                why = (
                    "it reads a list that is made outside of the loop over the rows: make the "
                    "TensorArray in the same function, or read a tensor in its place"
                )
                raise leaving(op.graph, walker, why) if walker.has_caller else CannotVectorize(why)
            if has_effects(op):
                raise CannotVectorize(
                    "it reads a list that an op with side effects has made, which cannot run "
                    f"again: {op.type} ({_tf.user_line(op) or 'line unknown'}). Turn the list into "
                    "a tensor first, by TensorArray.stack()"
                )
            found.add(op)
            todo.append(op)
    return found


def _behind(members: set[tf.Operation], wanted: set[tf.Operation]) -> set[tf.Operation]:
    return regions.closure(members, lambda op: wanted.intersection(regions.after(op)))


def _before(members: set[tf.Operation], walker: Conversion) -> set[tf.Operation]:
    return regions.closure(
        members, lambda op: (o for o in regions.needs(op) if not walker.is_done(o))
    )


# ---------------------------------------------------------------------------
# Which tensors
# ---------------------------------------------------------------------------


def _listed(
    first: tf.Operation, walker: Conversion, wanted: set[tf.Operation]
) -> set[tf.Operation]:
    """The ops that may make lists of as many items as ``first`` has: gradients of stacks do."""
    found, todo, seen = set[tf.Operation](), [first], {first}
    for op in todo:  # grows
        for other in regions.after(op):
            if other in seen or other not in wanted or walker.is_done(other):
                continue
            seen.add(other)
            if other.type == "TensorListFromTensor" and other.inputs[0].shape[:1] == [None]:
                found.add(other)
            elif not _tf.functions_of(other):
                todo.append(other)
    return found


def _uneven(
    walker: Conversion, wanted: set[tf.Operation], looped: set[tf.Operation], in_loop: bool
) -> tuple[set[Any], set[Any]]:
    """The keys of tensors whose shapes may depend on values that differ, and of all that differ.

    Only ops that were not converted yet count. An op with a converter that reads no such tensor has
    results of equal shapes. Otherwise it will be found to be a source when it is converted. Ops
    that are ``looped`` are the exception.
    """
    varies: set[Any] = set()
    found: set[Any] = set()
    sizes: set[Any] = set()  # numbers made of the shapes of these tensors
    memo = walker.memo.setdefault("shapes of results that were asked for", {})
    for op in regions.in_order({op for op in wanted if not walker.is_done(op)}):
        values = [walker.value_of(t) for t in op.inputs]
        differ = [
            key(t) in varies if v is None else v.is_stacked for t, v in zip(op.inputs, values)
        ]
        found.update(key(t) for t, v in zip(op.inputs, values) if is_ragged(v))
        sizes.update(
            key(t) for t, v in zip(op.inputs, values) if isinstance(v, (RowShape, RowSize))
        )
        reads = any(key(t) in found for t in op.inputs)
        tells_shapes = op.type in _SHAPES  # ZerosLike gives a tensor, whose shape may differ
        differs = any(differ) and (reads or not tells_shapes)
        if not (differs or _tf.draws_randomly(op.type) or op in looped):
            continue
        varies.update(map(key, op.outputs))
        if (tells_shapes and reads) or any(key(t) in sizes for t in op.inputs):
            unknown = [t for t in op.outputs if not is_static(dims(t))]
            sizes.update(key(t) for t in op.outputs if is_static(dims(t)))
            found.update(key(t) for t in unknown if op.type in _SIZED)
        if reads or op in looped or op.type not in REGISTRY:
            known = [None if v is None else v.constant for v in values]
            found.update(_grown(op, differ, known, found, reads, in_loop, memo))
    return found, varies


def _grown(
    op: tf.Operation,
    differ: list[bool],
    known: list[Any],
    uneven: set[Any],
    reads: bool,
    in_loop: bool,
    memo: dict[Any, Any],
) -> Iterable[Any]:
    """The outputs of ``op`` that are uneven."""
    handles = [key(t) for t in op.outputs if t.dtype == tf.variant and in_loop]
    unknown = [t for t in op.outputs if t.dtype != tf.variant and not is_static(dims(t))]
    if not unknown:
        return handles
    if _tf.functions_of(op):
        return [*handles, *map(key, unknown)]
    # An input of size 1 may be broadcast; some sizes must equal sizes of other inputs.
    others = {d for t in op.inputs for d in dims(t) or () if d is not None}
    sizes = dict.fromkeys((*_SOME_SIZES[: 1 + reads], *sorted(others)[:4]))
    # A pass over the body asks the same of most ops as the one before, and of many ops alike.
    known = [
        _tf.static_value(t) if k is None and not d else k
        for t, d, k in zip(op.inputs, differ, known)
    ]
    contents = (_contents(op, k) for k in known)
    asked = (*_kind(op, memo), *differ, *contents, *(key(t) in uneven for t in op.inputs))
    if _QUESTIONS not in memo:
        memo[_QUESTIONS] = Emitter(_graphs.QuickGraph("shapes"))
    even, has_fit = [*unknown], False
    for size in sizes:
        if (*asked, size) not in memo:
            memo[(*asked, size)] = _inferred(memo[_QUESTIONS], op, differ, known, uneven, size)
        is_known = memo[(*asked, size)]
        if is_known is not None:
            has_fit = True
            even = [t for t in even if is_known[t.value_index]]
        if not even:
            break
    return [*handles, *(key(t) for t in unknown if not has_fit or all(t is not e for e in even))]


def _kind(op: tf.Operation, memo: dict[Any, Any]) -> tuple[Any, ...]:
    """A key of the op's type, attributes, and the shapes of its inputs."""
    if op not in memo:
        schema, attrs = _tf.schema(op.type), _tf.attr_map(op)
        assert schema is not None
        own = [(k, attrs[k].SerializeToString()) for k in schema.attr_types if k in attrs]
        memo[op] = (op.type, *own, *((t.dtype, dims(t)) for t in op.inputs))
    return memo[op]


def _contents(op: tf.Operation, known: object) -> Any:
    """A key that tells the constants from which an op's shapes may follow; None for no constant.

    Shapes follow from integers. They follow from floating point numbers in a Range only.
    """
    if known is None:
        return None
    array = np.asarray(known)
    if array.dtype.kind not in "biuO" and op.type != "Range":
        return array.shape
    return array.shape, tuple(array.flat) if array.dtype == object else array.tobytes()


def _inferred(
    emit: Emitter,
    op: tf.Operation,
    differ: list[bool],
    known: list[Any],
    uneven: set[Any],
    size: int,
) -> Sequence[bool] | None:
    """For each output whether its shape is known if all sizes that do not differ were ``size``.

    None if such inputs do not fit together.
    """
    schema = _tf.schema(op.type)
    assert schema is not None
    protos = {k: v for k, v in _tf.attr_map(op).items() if k in schema.attr_types}
    places = group(op, schema, range(len(op.inputs)))
    # another number in place of an axis would be another shape, or none
    axes = [places[name] for name in facts_of(op.type).axes]
    inputs = [
        _stand_in(emit, t, d, k, key(t) in uneven, None if i in axes else size)
        for i, (t, d, k) in enumerate(zip(op.inputs, differ, known))
    ]
    try:
        made = emit.create(op.type, inputs, protos)
    except (TypeError, ValueError):
        return None
    return [t.shape.is_fully_defined() for t in made.outputs]


def _stand_in(
    emit: Emitter,
    tensor: tf.Tensor,
    differs: bool,
    known: object,
    is_uneven: bool,
    size: int | None,
) -> tf.Tensor:
    """The stand-in of an input: its value, or a tensor with ``size`` for unknown sizes."""
    if known is not None:
        return emit.constant(known, tensor.dtype)
    shape = dims(tensor)
    if not is_uneven and shape is not None and size is not None:
        shape = tuple(size if d is None else d for d in shape)
        if not differs and tensor.dtype in (tf.int32, tf.int64):
            return emit(
                "Fill", np.asarray(shape, np.int32), np.ones([], tensor.dtype.as_numpy_dtype)
            )
    return emit.stand_in(tensor.dtype, shape)
