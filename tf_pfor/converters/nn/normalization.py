"""Batch and local response normalization.

A batch norm of each iteration is one batch norm of n times as many channels. If parameters or
statistics differ between iterations, each iteration has separate channels. Inference with invariant
parameters takes the loop into the batch.
"""

from __future__ import annotations

from typing import Any

from tf_pfor.converters.math._families import fold_batch, table
from tf_pfor.converters.nn._channels import channel_axis, from_axis, image_dims, into_axis
from tf_pfor.core.call import Call
from tf_pfor.core.errors import CannotVectorize
from tf_pfor.core.registry import ANY, RegisterPFor
from tf_pfor.core.shapes import fold, unfold
from tf_pfor.core.values import Value

_LRN = ("depth_radius", "bias", "alpha", "beta")
fold_batch(table("LRN", *_LRN), "input")
fold_batch(table("LRNGrad", *_LRN), ("input_grads", "input_image", "output_image"))


@RegisterPFor(
    "FusedBatchNorm FusedBatchNormV2 FusedBatchNormV3",
    ANY,
    attrs="epsilon exponential_avg_factor data_format is_training",
)
def batch_norm(
    call: Call, x: Value, scale: Value, offset: Value, mean: Value, variance: Value
) -> Any:
    """Per channel: (x - mean) / sqrt(variance + epsilon) * scale + offset."""
    vectors = {"scale": scale, "offset": offset, "mean": mean, "variance": variance}
    if not call.attr("is_training") and not any(v.is_stacked for v in vectors.values()):
        y, *statistics = call.rebuild(x=fold(call, x))
        return [unfold(call, y, x), *map(Value.unstacked, statistics)]
    channels = known_size(scale)
    axis = channel_axis(call, call.require_rank(x))
    y, *statistics = call.rebuild(
        x=into_axis(call, x, axis), **{k: widened(call, v) for k, v in vectors.items()}
    )
    rows = [from_axis(call, t, [channels], 0) for t in statistics[:4]]
    return [
        from_axis(call, y, image_dims(call, y, channels), axis),
        *rows,
        *map(Value.unstacked, statistics[4:]),  # reserved for other devices: empty
    ]


@RegisterPFor(
    "FusedBatchNormGrad FusedBatchNormGradV2 FusedBatchNormGradV3",
    ANY,
    attrs="epsilon data_format is_training",
)
def batch_norm_gradient(
    call: Call, y_backprop: Value, x: Value, scale: Value, first: Value, second: Value, *rest: Value
) -> Any:
    """In n times as many channels: each iteration has its own scale_backprop."""
    if any(v.is_stacked for v in rest):
        raise CannotVectorize("reserve_space_3 differs between iterations")
    channels = known_size(scale)
    axis = channel_axis(call, call.require_rank(x))
    made = call.rebuild(
        y_backprop=into_axis(call, y_backprop, axis),
        x=into_axis(call, x, axis),
        scale=widened(call, scale),
        reserve_space_1=widened(call, first),
        reserve_space_2=widened(call, second),
    )
    return [
        from_axis(call, made[0], image_dims(call, made[0], channels), axis),
        from_axis(call, made[1], [channels], 0),
        from_axis(call, made[2], [channels], 0),
        *map(Value.unstacked, made[3:]),  # empty
    ]


def widened(call: Call, vector: Value) -> Any:
    """[n, c] -> [n*c]; the empty statistics of training stay as they are."""
    if vector.inner_shape == (0,) and not vector.is_stacked:
        return vector.tensor
    return into_axis(call, vector, 0)


def known_size(vector: Value) -> int:
    if vector.inner_shape is None or vector.inner_shape[0] is None:
        raise CannotVectorize("the number of channels is unknown")
    return vector.inner_shape[0]
