"""Lists of lists under XLA, which has no optionals, and so no packs (``_row_packs``).

Beside such a list stand other lists (``Holds.beside``). Each push to the list also pushes to them.
One is a list of int32 [n]: the ends of the inner lists in each row. If the inner lists are lists of
lists as well, there are also the lists that stand beside them.
"""

from __future__ import annotations

import tensorflow as tf

from tf_pfor import _tf
from tf_pfor.converters.analysis._loop_graphs import source
from tf_pfor.converters.analysis._variant_types import ITEM, Path, kind_of
from tf_pfor.converters.lists._list_lengths import declared_length, is_full, list_length
from tf_pfor.converters.lists._list_rows import known_lengths, own_rows
from tf_pfor.converters.lists._lists import size_of_rows, stack_list
from tf_pfor.converters.lists._optional_values import SCALAR
from tf_pfor.core.call import Call
from tf_pfor.core.errors import CannotVectorize
from tf_pfor.core.stacked_lists import Holds, ListRows, known_rows, list_with_rows, rows_of
from tf_pfor.core.values import Value


def has_ends(call: Call, made: tf.Tensor | None = None) -> bool:
    """Whether lists of lists have no packs: under XLA, and in the body of another map.

    There a list with optionals in it has packs; the body calls it ``made``.
    """
    graph = call.emit.graph
    if _tf.in_xla_context(graph):
        return True
    return _tf.in_body(graph) and (made is None or not _nest(call, made)[1])


def with_ends(call: Call, value: Value, made: tf.Tensor) -> Value:
    """A list of lists to which nothing was pushed yet, with the lists that stand beside it."""
    value, emit = stack_list(call, value), call.emit
    rows = rows_of(value) or ListRows(call.loop.length)
    if rows.holds.packs:
        return value
    op = source(value.tensor).op
    if op.type != "EmptyTensorList":
        raise CannotVectorize(
            "under jit_compile and in a map of a map, a list of lists that all rows share is not "
            "changed by some: leave out jit_compile, or take the gradient around the maps"
        )
    room, each = op.inputs[1], emit.shape_vector([rows.size])
    ends = [emit("EmptyTensorList", each, room, element_dtype=tf.int32)]
    ends += [
        emit("EmptyTensorList", SCALAR, room, element_dtype=tf.variant)
        for _ in range(_nest(call, made)[0] - 2)
    ]
    rows = rows.holding(packs=True, beside=tuple(ends))
    return list_with_rows(value, rows)


def _nest(call: Call, made: tf.Tensor) -> tuple[int, bool]:
    """The depth of nested lists, 1 if they hold tensors; and whether they hold optionals."""
    path: Path = ()
    while (kind := kind_of(call, made, path)) == tf.variant:
        path = (*path, ITEM)
    return len(path) + 1, isinstance(kind, tuple)


def with_own_rows(call: Call, value: Value, made: tf.Tensor) -> Value:
    """A list (``made`` in the body) with the rows of the loop, as it is put into another one."""
    has_others = known_rows(value).ids is not None
    is_known = known_lengths(value) is not None or is_full(value.tensor, call.emit)
    if has_others and not is_known and declared_length(call, made) is None:
        raise CannotVectorize(
            "under jit_compile, a list of which it is not known how long it is is kept in another "
            "one: leave out jit_compile"
        )
    return own_rows(call, value)


def pushed(call: Call, target: Value, item: Value) -> ListRows:
    """The rows of a list of lists to which ``item`` is pushed."""
    emit, rows = call.emit, rows_of(target)
    assert rows is not None
    lengths = known_lengths(item)
    if lengths is None:
        length = list_length(call, item.tensor)
        lengths = emit("Fill", emit.shape_vector([size_of_rows(call, item)]), length)
    items = [lengths, *known_rows(item).holds.beside]
    if len(items) != len(rows.holds.beside):
        raise CannotVectorize(
            "under jit_compile and in a map of a map, lists of lists of all rows and of some meet"
        )
    made = [emit("TensorListPushBack", e, t) for e, t in zip(rows.holds.beside, items)]
    return rows.holding(beside=tuple(made))


def popped(call: Call, target: Value) -> tuple[ListRows, ListRows]:
    """The rows of a list of lists of which the last is popped, and the rows of that."""
    emit, rows = call.emit, rows_of(target)
    assert rows is not None
    each = emit.shape_vector([rows.size])
    made = [emit("TensorListPopBack", rows.holds.beside[0], each, element_dtype=tf.int32)]
    made += [
        emit("TensorListPopBack", end, SCALAR, element_dtype=tf.variant)
        for end in rows.holds.beside[1:]
    ]
    (lengths, *inner) = (item for _, item in made)
    lengths.set_shape([rows.size if isinstance(rows.size, int) else None])
    item = ListRows(
        rows.size,
        ids=rows.ids,
        lengths=lengths,
        holds=Holds(packs=bool(inner), beside=tuple(inner)),
    )
    return rows.holding(beside=tuple(handle for handle, _ in made)), item
