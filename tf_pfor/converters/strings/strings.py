"""Text, each element by itself: case, length, patterns, numbers, hashes, encodings, pieces."""

from __future__ import annotations

from typing import Any

import numpy as np

from tf_pfor.converters.math._broadcast import of_one_shape
from tf_pfor.converters.math._families import fold_batch, table
from tf_pfor.core.call import Call
from tf_pfor.core.errors import CannotVectorize
from tf_pfor.core.registry import ANY, RegisterPFor
from tf_pfor.core.shapes import fold, unfold
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
    _require_one_shape(parts)
    return call.rebuild(inputs=of_one_shape(call, parts))


@RegisterPFor("Substr", ANY, attrs=("unit",))
def substr(call: Call, *_: Value) -> Any:
    """Flat where positions differ: the kernel broadcasts few axes."""
    values = call.flat_inputs()
    if not values[1].is_stacked and not values[2].is_stacked and values[1].inner_rank == 0:
        return call.rebuild(input=values[0].tensor)
    _require_one_shape(values)
    tensors = of_one_shape(call, values, with_scalars=False)
    flat = [call.emit("Reshape", t, np.asarray([-1], np.int32)) for t in tensors]
    made = call.rebuild(**dict(zip(call.inputs, flat)))
    return call.emit("Reshape", made, call.emit.shape_of(tensors[0]))


def _require_one_shape(values: list[Value]) -> None:
    """Raises if sizes of 1 would be repeated."""
    if len({v.inner_shape for v in values} - {()}) > 1:
        raise CannotVectorize("its inputs have different shapes")
