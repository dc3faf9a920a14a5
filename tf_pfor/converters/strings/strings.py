"""Text, each element by itself: case, length, patterns, numbers, hashes, encodings, pieces."""

from __future__ import annotations

from typing import Any

import numpy as np

from tf_pfor.converters.math._families import fold_batch, table
from tf_pfor.core.call import Call
from tf_pfor.core.errors import CannotVectorize
from tf_pfor.core.registry import ANY, RegisterPFor
from tf_pfor.core.shapes import fold, inner_dims, unfold
from tf_pfor.core.values import Value

fold_batch(table("Fingerprint"), "data")


@RegisterPFor("SdcaFprint", ("input",))
def fingerprints(call: Call, input: Value) -> Any:
    """Two numbers for each text of a vector: [n*m] -> [n*m, 2]."""
    return unfold(call, call.rebuild(input=fold(call, input)), input)


@RegisterPFor("ShardedFilename ShardedFilespec", ANY)
def name_of_shard(call: Call, basename: Value, *numbers: Value) -> Any:
    """The name, the shard and the number of shards, which have five digits."""
    emit = call.emit
    digits = [emit("AsString", v.tensor, width=5, fill="0") for v in numbers]
    which = [emit.constant("?????"), *digits][-2]
    parts = [basename.tensor, emit.constant("-"), which, emit.constant("-of-"), digits[-1]]
    return emit("StringJoin", parts)


@RegisterPFor("RegexFullMatch", ("input",))
@RegisterPFor("RegexReplace", ("input",), attrs=("replace_global",))
def pattern(call: Call, text: Value, *_: Value) -> Any:
    """The pattern, and what to put in its place, are the same in all rows."""
    return call.rebuild(input=text.tensor)


@RegisterPFor("ReduceJoin", ("inputs",), attrs=("keep_dims", "separator"))
def reduce_join(call: Call, inputs: Value, reduction_indices: Value) -> Any:
    """The axes move by one, in their order."""
    axes = call.constant("reduction_indices")
    rank = call.require_rank(inputs)
    moved = np.where(axes < 0, axes + rank, axes) + 1
    return call.rebuild(inputs=inputs.tensor, reduction_indices=moved.astype(axes.dtype))


@RegisterPFor("StringJoin", ANY, attrs=("separator",))
def join(call: Call, parts: list[Value]) -> Any:
    """The kernel takes scalars and tensors of one shape: what it would broadcast is repeated."""
    return call.rebuild(inputs=_of_one_shape(call, parts))


@RegisterPFor("Substr", ANY, attrs=("unit",))
def substr(call: Call, *_: Value) -> Any:
    """Flat where positions differ: the kernel broadcasts few axes."""
    values = call.flat_inputs()
    if not values[1].is_stacked and not values[2].is_stacked and values[1].inner_rank == 0:
        return call.rebuild(input=values[0].tensor)
    tensors = _of_one_shape(call, values, with_scalars=False)
    flat = [call.emit("Reshape", t, np.asarray([-1], np.int32)) for t in tensors]
    made = call.rebuild(**dict(zip(call.inputs, flat)))
    return call.emit("Reshape", made, call.emit.shape_of(tensors[0]))


def _of_one_shape(call: Call, values: list[Value], *, with_scalars: bool = True) -> list[Any]:
    """Each as [n, ...] of the shape of those with most axes; scalars of all rows may stay.

    Raises:
      CannotVectorize: if sizes of 1 would be repeated.
    """
    ranks = [call.require_rank(v) for v in values]
    full = next(v for v, rank in zip(values, ranks) if rank == max(ranks))
    parts = [call.loop.length, *inner_dims(call, full)]
    if any(r and v.inner_shape != full.inner_shape for v, r in zip(values, ranks)):
        raise CannotVectorize("its inputs have different shapes")
    made: list[Any] = []
    for value, rank in zip(values, ranks):
        if with_scalars and not value.is_stacked and rank == 0:
            made.append(value.tensor)
        elif rank == max(ranks):
            made.append(call.stacked(value))
        else:  # [n] -> [n, ...]
            column = call.emit.reshape(call.stacked(value), [call.loop.length, *[1] * max(ranks)])
            made.append(call.emit("BroadcastTo", column, call.emit.shape_vector(parts)))
    return made
