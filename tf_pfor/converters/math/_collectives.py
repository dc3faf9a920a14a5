"""Collectives become reductions over the loop axis (Agarwal, 2019)."""

from __future__ import annotations

import dataclasses

import numpy as np
import tensorflow as tf

from tf_pfor import _tf
from tf_pfor.core.call import Call
from tf_pfor.core.collectives import Collective
from tf_pfor.core.emit import Dim
from tf_pfor.core.errors import Refused
from tf_pfor.core.values import Stacked, Unstacked, Value
from tf_pfor.layouts.ragged import is_ragged

_REDUCTIONS = {"psum": "Sum", "pmean": "Mean", "pmax": "Max", "pmin": "Min"}


def convert(call: Call, args: list[Value]) -> Value | tf.Tensor:
    """A collective of this loop; one of a loop further out stays, for its walker to convert."""
    what = Collective.of(call.op)
    loop = call.loop
    is_own = what.axis in loop.axes
    if not is_own and not call.emit.is_trial and not _tf.in_body(call.emit.graph):
        raise Refused(_foreign(what))
    if what.kind not in ("axis_index", "axis_size") and not loop.is_whole:
        raise Refused(
            f"{what.kind} is in a branch or a loop that only some of the iterations are in at a "
            "time: call it before the branch or the loop, for all"
        )
    args = [_of_one_shape(call, x) for x in args]
    if not is_own:
        return _kept(call, what, args)
    if what.kind == "axis_index":
        return Stacked.deferred(lambda: loop.numbers, (), tf.int32)
    if what.kind == "axis_size":
        return _count(call)
    exchange = None if loop.block is None else loop.block.exchange
    if loop.is_block and exchange is None:
        raise Refused(
            f"{what.kind} needs all iterations at once, and they run in blocks: leave "
            "parallel_iterations (chunk_size) out"
        )
    (x,) = args
    if what.kind in _REDUCTIONS:
        return _reduced(call, x, what) if exchange is None else _over_replicas(call, x, what)
    rows = call.stacked(x)
    if exchange is None:
        return _moved(call, rows, what, loop.length)
    with call.emit.graph.as_default():  # of all rows, and then of the rows that are here
        total = loop.total
        joined = exchange.joined(rows, total)
        joined.set_shape([total if isinstance(total, int) else None, *rows.shape[1:]])
        whole = _moved(call, joined, what, total)
        return _rows_here(call, whole) if isinstance(whole, tf.Tensor) else whole


def _of_one_shape(call: Call, x: Value) -> Value:
    """Rows [n, ...]; a check that all have one shape where they may differ."""
    if not is_ragged(x):
        return x
    return Value.stacked(call.stacked(x)).with_inner_shape(x.inner_shape)


def _moved(call: Call, x: tf.Tensor, what: Collective, n: Dim) -> Value | tf.Tensor:
    """A collective that moves the rows [n, ...] of all iterations: new rows, or a shared value."""
    if what.kind == "ppermute":
        return _permuted(call, x, what, n)
    if what.kind == "all_gather":
        return _gathered(call, x, what.place)
    return _exchanged(call, x, what.place, n)


def _rows_here(call: Call, whole: tf.Tensor) -> tf.Tensor:
    """The rows of this loop's iterations, of the rows of all iterations."""
    block = call.loop.block
    assert block is not None
    made = whole[block.first : block.first + call.loop.length_tensor]
    made.set_shape([call.loop.static_length, *whole.shape[1:]])
    call.emit.operations.append(made.op)
    return made


def _over_replicas(call: Call, x: Value, what: Collective) -> Value:
    """A reduction in each replica, and then over the replicas."""
    loop, block = call.loop, call.loop.block
    assert block is not None
    exchange = block.exchange
    assert exchange is not None
    with call.emit.graph.as_default():
        if what.kind in ("pmax", "pmin"):
            own = call.emit(_REDUCTIONS[what.kind], call.stacked(x), np.int32(0))
            joined = exchange.joined(own[None], exchange.count)
            made = call.emit(_REDUCTIONS[what.kind], joined, np.int32(0))
            return call.like(made, Unstacked)
        if x.is_stacked:
            own = call.emit("Sum", x.tensor, np.int32(0))
        else:
            own = x.tensor * tf.cast(loop.length_tensor, x.dtype)
        made = exchange.total(own)
        made.set_shape(own.shape)
        if what.kind == "pmean":
            made = made / tf.cast(block.total, made.dtype)
    call.emit.operations.append(made.op)
    return call.like(made, Unstacked)


def _reduced(call: Call, x: Value, what: Collective) -> Value:
    """A reduction over all iterations."""
    loop = call.loop
    if x.is_stacked:
        made = call.emit(_REDUCTIONS[what.kind], x.tensor, np.int32(0))
        return call.like(made, Unstacked)
    if what.kind == "psum":
        n = call.emit("Cast", loop.length_tensor, DstT=x.dtype)
        return call.like(call.emit("Mul", x.tensor, n), Unstacked)
    return x


def _foreign(what: Collective) -> str:
    if not what.axis.startswith("#"):
        return f"{what.kind} names the axis '{what.axis}', and no map around it has that name"
    return (
        f"{what.kind} was traced in another map (in a tf.function that is used in both): give the "
        "axis a name, in vmap and in the collective"
    )


def _kept(call: Call, what: Collective, args: list[Value]) -> Value:
    """Over an outer axis, for all rows of this loop at once."""
    stacked = bool(args) and args[0].is_stacked
    shape = call.output_shape()
    if stacked:
        what = dataclasses.replace(what, place=what.place + 1)
        shape = None if shape is None else (call.loop.static_length, *shape)
    made = what.emit(call.emit.graph, [v.tensor for v in args], shape)
    call.emit.operations.append(made.op)
    return call.like(made, Stacked if stacked else Unstacked)


def _count(call: Call) -> Value:
    total = call.loop.total
    if not isinstance(total, int):
        return Value.unstacked(total)
    n = np.asarray(total, np.int32)
    return Unstacked.deferred(lambda: call.emit.constant(n), (), tf.int32, known=n)


def _gathered(call: Call, x: tf.Tensor, place: int) -> Value:
    """[n] + s -> s[:place] + [n] + s[place:], the same in all iterations."""
    if place:
        perm = [*range(1, place + 1), 0, *range(place + 1, len(x.shape))]
        x = call.emit("Transpose", x, np.asarray(perm, np.int32))
    return call.like(x, Unstacked)


def _exchanged(call: Call, x: tf.Tensor, place: int, n: Dim) -> tf.Tensor:
    """[n] + s, of which axis ``place`` has n rows as well: both axes change places."""
    rows = x.shape[place + 1]
    if not isinstance(n, int) or rows is None:  # checked when it runs
        shape = call.emit("Shape", x)
        ends = [
            call.emit("GatherV2", shape, np.arange(0, place + 1), np.int32(0)),
            call.emit(
                "Reshape", n if not isinstance(n, int) else np.int32(n), np.asarray([1], np.int32)
            ),
            call.emit("GatherV2", shape, np.arange(place + 2, len(x.shape)), np.int32(0)),
        ]
        x = call.emit("Reshape", x, call.emit("ConcatV2", ends, np.int32(0)))
    elif n != rows:
        raise Refused(
            f"all_to_all needs as many rows along its axis as there are examples, {n}; found {rows}"
        )
    perm = np.arange(len(x.shape), dtype=np.int32)
    perm[[0, place + 1]] = perm[[place + 1, 0]]
    return call.emit("Transpose", x, perm)


def _permuted(call: Call, x: tf.Tensor, what: Collective, n: Dim) -> tf.Tensor:
    """Row b is row a of ``x`` for each pair (a, b), else zeros: a gather from x with a zero row."""
    if not isinstance(n, int):
        raise Refused("ppermute needs a mapped axis whose size is known before running")
    if any(i >= n for pair in what.perm for i in pair):
        raise Refused(
            f"perm of ppermute is {list(what.perm)}, and the mapped axis has {n} entries: pass "
            f"numbers below {n}"
        )
    rows = np.full([n], n, np.int32)
    for source, destination in what.perm:
        rows[destination] = source
    if (rows == n).any():
        zeros = call.emit("ZerosLike", x)
        last = call.emit.constant(np.zeros([1], np.int32))
        zero = call.emit("GatherV2", zeros, last, np.int32(0))
        x = call.emit("ConcatV2", [x, zero], np.int32(0))
    return call.emit("GatherV2", x, rows, np.int32(0))
