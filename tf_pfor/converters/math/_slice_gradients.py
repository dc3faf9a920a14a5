"""Sums of gradients of slices: x[0], x[1] ... each leave zeros of the size of x around one slice.

A network that is unrolled over T steps reads each step of its input so. Where all that reads such a
gradient is a sum, the slices are joined instead: T slices are moved, not T tensors of T slices.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence

import numpy as np
import tensorflow as tf

from tf_pfor.converters.math._products import SUMS
from tf_pfor.core.call import Call
from tf_pfor.core.pending import Piece, ZeroExtended
from tf_pfor.core.values import Value, known_dims


def piece_or_zeros(
    call: Call, dy: Value, start: int, count: int, sizes: Sequence[int], plain: Callable[[], Value]
) -> Value:
    """``plain()``, put off where only a sum reads it.

    Args:
      call: the gradient of a slice along axis 0.
      dy: the gradient of the slice.
      start: the begin of the slice.
      count: the length of the slice.
      sizes: the static shape of what was sliced.
      plain: makes the gradient.
    """
    if not call.is_only_read_by(SUMS):
        return plain()
    return ZeroExtended.deferred(
        lambda: plain().tensor,
        tuple(sizes),
        dy.dtype,
        piece=Piece(dy, start, count),
    )


def sum_of_pieces(call: Call) -> Value | None:
    """The sum of the inputs if two pieces or more are among them that do not overlap; else None."""
    values = call.flat_inputs()
    pieces = sorted((v.piece for v in values if isinstance(v, ZeroExtended)), key=lambda p: p.start)
    if len(pieces) < 2 or len({v.inner_shape for v in values}) > 1:
        return None
    if any(a.start + a.count > b.start for a, b in itertools.pairwise(pieces)):
        return None
    rest = [call.stacked(v) for v in values if not isinstance(v, ZeroExtended)]
    emit, (size, *others) = call.emit, known_dims(values[0].inner_shape)
    zero = np.zeros((), pieces[0].dy.dtype.as_numpy_dtype)
    parts: list[tf.Tensor] = []
    end = 0
    for piece in (*pieces, Piece(pieces[0].dy, size, 0)):
        if piece.start > end:
            gap = emit.shape_vector([call.loop.length, piece.start - end, *others])
            parts.append(emit("Fill", gap, zero))
        if piece.count:
            shape = [call.loop.length, piece.count, *others]
            parts.append(emit.reshape(piece.dy.any_form, shape))
        end = piece.start + piece.count
    made = emit("ConcatV2", parts, np.int32(1))  # [n, size, ...]
    return Value.stacked(emit("AddN", [made, *rest]) if rest else made)
