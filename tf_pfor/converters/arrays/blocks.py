"""Ops that move blocks of an image between space, depth and batch."""

from __future__ import annotations

from typing import Any

from tf_pfor.converters.math._families import fold_batch
from tf_pfor.core.call import Call
from tf_pfor.core.emit import Dim
from tf_pfor.core.errors import CannotVectorize
from tf_pfor.core.registry import RegisterPFor
from tf_pfor.core.shapes import fold, inner_dims, transpose, unfold
from tf_pfor.core.values import Value, dims, size_of

fold_batch(
    {
        "DepthToSpace": ("block_size", "data_format"),
        "SpaceToDepth": ("block_size", "data_format"),
    },
    "input",
)


@RegisterPFor("SpaceToBatch", ("input",), attrs=("block_size",))
@RegisterPFor("SpaceToBatchND", ("input",))
def space_to_batch(call: Call, input: Value, *_: Value) -> Any:
    """On [n*b, ...], which makes [p, n*b, ...]; then n comes before the p places in a block."""
    places = _places(call)
    batch = inner_dims(call, input)[0]
    made = call.rebuild(input=fold(call, input))  # [p*n*b, rest]
    shape = dims(made)
    assert shape is not None
    rest: list[Dim] = [
        call.emit.dim(made, i) if d is None else d for i, d in enumerate(shape) if i > 0
    ]
    split = call.emit.reshape(made, [places, call.loop.length, batch, *rest])
    moved = transpose(call, split, [1, 0, *range(2, len(rest) + 3)])  # [n, p, b, rest]
    total = _times(call, batch, places)
    return call.emit.reshape(moved, [call.loop.length, total, *rest])


@RegisterPFor("BatchToSpace", ("input",), attrs=("block_size",))
@RegisterPFor("BatchToSpaceND", ("input",))
def batch_to_space(call: Call, input: Value, *_: Value) -> Any:
    """[n, p, b, ...] -> [p, n*b, ...], on which the kernel makes [n*b, ...]."""
    places = _places(call)
    first, *rest = inner_dims(call, input)
    batch = first // places if isinstance(first, int) else call.emit("FloorDiv", first, places)
    split = call.emit.reshape(input.any_form, [call.loop.length, places, batch, *rest])
    moved = transpose(call, split, [1, 0, *range(2, len(rest) + 3)])  # [p, n, b, rest]
    lead = _times(call, _times(call, batch, places), call.loop.length)
    made = call.rebuild(input=call.emit.reshape(moved, [lead, *rest]))  # [n*b, ...]
    static = batch if isinstance(batch, int) else None
    shape = (static, *(None,) * len(rest))
    like = Value.stacked(moved)  # only its size is read: the batch is in axis 2
    if static is None:
        raise CannotVectorize("the batch size is unknown")
    return unfold(call, made, like.with_inner_shape(shape))


def _places(call: Call) -> int:
    """The number of places of a block."""
    if call.op_type in ("BatchToSpace", "SpaceToBatch"):
        return call.attr("block_size") ** 2
    return size_of(call.constant("block_shape"))


def _times(call: Call, a: Dim, b: Dim) -> Dim:
    if isinstance(a, int) and isinstance(b, int):
        return a * b
    return call.emit("Mul", call.emit.as_tensor(a), call.emit.as_tensor(b))
