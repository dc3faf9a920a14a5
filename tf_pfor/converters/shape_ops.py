"""Ops that change or ask for shapes."""

from __future__ import annotations

from typing import Any

import numpy as np
import tensorflow as tf

from tf_pfor.call import Call
from tf_pfor.emit import Dim
from tf_pfor.errors import CannotVectorize
from tf_pfor.registry import ANY, RegisterPFor
from tf_pfor.shapes import inner_dims
from tf_pfor.values import Folded, Layout, Value, is_static


def reshaped(call: Call, value: Value, parts: list[Dim]) -> Value:
    """``value`` with the inner shape ``parts``; free when it is only a fold or an unfold."""
    source = value.any_form
    static = tuple(p if isinstance(p, int) else None for p in parts)

    def make() -> tf.Tensor:
        return call.emit.reshape(source, [call.loop.length, *parts])

    folded = None
    if static[:1] == (1,):  # [n, 1, ...rest] is what [n, ...rest] unfolds to
        lead: list[Dim] = [call.loop.length, *parts[1:]]
        if _same(source, lead):
            folded = Folded(source, 1)
    return Value.deferred(Layout.STACKED, make, static, value.dtype, folded=folded)


def _same(tensor: tf.Tensor, parts: list[Dim]) -> bool:
    shape = tensor.shape.as_list() if tensor.shape.rank is not None else None
    return shape == [p if isinstance(p, int) else None for p in parts] and shape.count(None) <= 1


@RegisterPFor("Reshape", ("tensor",))
def reshape(call: Call, tensor: Value, shape: Value) -> Any:
    """[n, ...] -> [n] + shape, from the folded form where there is one."""
    target = call.output_shape()
    if is_static(target):
        return reshaped(call, tensor, list(target))  # type: ignore[arg-type]
    if target is not None and target.count(None) == 1 and is_static(tensor.inner_shape):
        known = int(np.prod([d for d in target if d is not None]))
        size = int(np.prod(tensor.inner_shape))  # type: ignore[arg-type]
        if known:
            return reshaped(call, tensor, [size // known if d is None else d for d in target])
    head = call.emit.shape_vector([call.loop.length])
    if shape.dtype != tf.int32:
        head = call.emit("Cast", head, DstT=shape.dtype)
    return call.emit(
        "Reshape", tensor.any_form, call.emit("ConcatV2", [head, shape.tensor], 0)
    )


@RegisterPFor("ExpandDims", ("input",))
def expand_dims(call: Call, input: Value, dim: Value) -> Any:
    """A one at ``dim`` of the inner shape."""
    axis = int(call.constant("dim").reshape([]))
    parts = inner_dims(call, input)
    parts.insert(axis + len(parts) + 1 if axis < 0 else axis, 1)
    return reshaped(call, input, parts)


@RegisterPFor("Squeeze", ANY, attrs=("squeeze_dims",))
def squeeze(call: Call, input: Value) -> Any:
    """Drops inner axes of size one."""
    rank = call.require_rank(input)
    drop = {a % rank for a in call.attr("squeeze_dims")}
    if not drop:
        if not is_static(input.inner_shape):
            raise CannotVectorize("Squeeze of all ones needs a static shape")
        drop = {i for i, d in enumerate(input.inner_shape or ()) if d == 1}
    parts = [d for i, d in enumerate(inner_dims(call, input)) if i not in drop]
    return reshaped(call, input, parts)
