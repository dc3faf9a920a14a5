"""Lists that a loop carries: their room, and the items that trips push.

XLA cannot make a list longer. So the list is set aside, and the trips push to an empty list, all
rows in one place. After the loop the new items of each row follow its old items. TensorFlow's
gradient of a loop that pops a list is such a loop: it pushes to the list that the pops have left.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Sequence

import tensorflow as tf

from tf_pfor import _tf
from tf_pfor.converters.analysis._loop_graphs import is_popped, only_pushed
from tf_pfor.converters.lists._capacity import most_trips_given, with_room
from tf_pfor.converters.lists._list_lengths import list_length
from tf_pfor.converters.lists._list_rows import (
    dense,
    from_zero,
    known_lengths,
    lengths_of,
    relist,
    where_rows,
)
from tf_pfor.converters.lists._lists import declared_shape
from tf_pfor.core.call import Call
from tf_pfor.core.stacked_lists import ListRows, StackedList, rows_of
from tf_pfor.core.values import Layout, Value


def set_aside(
    call: Call,
    args: Sequence[Value],
    graph: tf.Graph,
    cond: tf.Graph,
    passed: Collection[int],
    most: int | tf.Tensor | None,
) -> tuple[list[Value], dict[int, Value]]:
    """The inputs of a loop, whose empty lists have room, and the lists that were set aside.

    In their places are empty lists, with room for ``most`` trips; None sets nothing aside.
    """
    out, aside = list(args), dict[int, Value]()
    if most is None or not _tf.in_xla_context(call.emit.graph):
        return with_room(call, out, graph, most), aside
    for i, arg in enumerate(args):
        if i in passed or arg.dtype != tf.variant or cond.inputs[i].consumers():
            continue
        pushed, rows = only_pushed(graph, i), rows_of(arg)
        if pushed is None or pushed.dtype == tf.variant or rows is None or rows.lengths is None:
            continue
        shape, room = declared_shape(call, arg.tensor), call.emit.as_tensor(most)
        empty = call.emit("EmptyTensorList", shape, room, element_dtype=pushed.dtype)
        rows = dataclasses.replace(rows, lengths=None, starts=None, is_even=True)
        out[i], aside[i] = StackedList.of(empty, rows), arg
    return with_room(call, out, graph, most), aside


def on_top(call: Call, below: Value, above: Value) -> Value:
    """The list ``below`` that was set aside; in each row the items of ``above`` follow."""
    emit, below, above = call.emit, from_zero(call, below), from_zero(call, above)
    rows, own, more = rows_of(below), lengths_of(call, below), known_lengths(above)
    assert rows is not None
    if more is None:  # as many as there were trips
        more = list_length(call, above.tensor)
    lengths = emit("AddV2", own, more)  # [size]
    if rows.mask is not None:
        lengths = where_rows(emit, rows.mask, lengths, own)
    pair = [dense(call, v) for v in (below, above)]  # [R, size, ...], [M, size, ...]
    with emit.graph.as_default():
        room, size = tf.shape(pair[0])[0], tf.shape(pair[0])[1]
        count = room + tf.shape(pair[1])[0]
        place = tf.range(count)[:, None]  # [R + M, 1]
        place = tf.where(place < own, place, tf.minimum(place - own + room, count - 1))
        at = tf.stack([place, tf.broadcast_to(tf.range(size), tf.shape(place))], 2)
        whole = tf.gather_nd(tf.concat(pair, 0), at)
    rows = dataclasses.replace(rows, lengths=lengths, base=None)
    return relist(call, StackedList.of(below.tensor, rows), whole)


def most_pops(call: Call, args: Sequence[Value], graph: tf.Graph) -> tf.Tensor | None:
    """The room of a list that trips pop, under XLA: there are no more trips than that."""
    if not _tf.in_xla_context(call.emit.graph):
        return None
    lists = (Layout.STACKED_LIST, Layout.UNSTACKED)
    for i, arg in enumerate(args):
        if arg.dtype == tf.variant and arg.layout in lists and is_popped(graph, i):
            return call.emit("TensorListLength", arg.tensor)
    return None


def most_trips(
    call: Call, args: Sequence[Value], graph: tf.Graph, cond: tf.Graph, *, is_counted: bool
) -> tf.Tensor | None:
    """A bound of the trips that is known when it runs: by a list, or by the number of trips.

    That is the second input (``is_counted``), if no trip changes it and all rows begin at once.
    """
    most = most_pops(call, args, graph)
    return most_trips_given(call, args[1], cond) if most is None and is_counted else most


def lengths_before(call: Call, value: Value, rows: ListRows) -> tf.Tensor:
    """int32 [size]: the length of each row of a list whose rows are equally long."""
    length = list_length(call, value.tensor)
    return call.emit("Fill", call.emit.shape_vector([rows.size]), length)
