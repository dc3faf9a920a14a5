"""Windows of rows that are large and whose elements lie apart: crops of images.

A gather of a crop moves three numbers at a time. Where rows are large it is several times faster to
copy each row's window by itself (``row_kernels``).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from tf_pfor import _tf
from tf_pfor._tf._custom_gradients import attached
from tf_pfor.converters.math import _row_kernels as row_kernels
from tf_pfor.core.call import Call
from tf_pfor.core.values import is_static

_PIECE = 128  # bytes that lie together, from which on a gather is as fast


def are_large(call: Call, shape: Any, sizes: Sequence[int], dtype: tf.DType) -> bool:
    """Whether windows of ``sizes`` in rows of ``shape`` are copied row by row.

    Args:
      call: the op that reads or writes them.
      shape: the shape of a row.
      sizes: the sizes of a window.
      dtype: the dtype of the elements.
    """
    if not is_static(shape) or not row_kernels.may_be_used(call):
        return False
    if dtype in (tf.string, tf.resource, tf.variant) or np.prod(sizes) < row_kernels.LEAST:
        return False
    cut = [i for i, (full, size) in enumerate(zip(shape, sizes)) if full != size]
    return bool(cut) and dtype.size * np.prod(sizes[cut[-1] + 1 :]) < _PIECE


def _sizes(x: tf.Tensor) -> list[int]:
    """The shape of a row, which is static."""
    shape: Any = x.shape[1:]
    return list(shape)


def _sizes_of_row(x: tf.Tensor) -> list[int]:
    shape: Any = x.shape
    return list(shape)


def read(x: tf.Tensor, starts: tf.Tensor, sizes: Sequence[int]) -> tf.Tensor:
    """[n, ...] -> [n, *sizes]: of each row the window that begins at ``starts`` [n, rank]."""
    return _with_gradient(x, starts, sizes, _sizes(x), _copied, _gathered, write)


def write(y: tf.Tensor, starts: tf.Tensor, shape: Sequence[int]) -> tf.Tensor:
    """[n, *sizes] -> [n, *shape]: windows that begin at ``starts``, among zeros."""
    sizes = _sizes(y)
    return _with_gradient(y, starts, shape, sizes, _padded, _placed, read)


def _with_gradient(
    x: tf.Tensor,
    starts: tf.Tensor,
    sizes: Sequence[int],
    own: Sequence[int],
    kernel: Callable[..., Any],
    formula: Callable[..., Any],
    back: Callable[..., Any],
) -> tf.Tensor:
    """A copy by the kernel on a CPU, else by the formula; its gradient is the other copy."""
    sizes, own = list(sizes), list(own)

    def run(*given: tf.Tensor) -> list[tf.Tensor]:
        return [
            row_kernels.by_device(
                lambda x, start: kernel(x, start, sizes),
                lambda x, starts: formula(x, starts, sizes),
                given,
                sizes,
            )
        ]

    def gradient(given: Sequence[tf.Tensor], upstream: tf.Tensor) -> list[tf.Tensor | None]:
        return [back(upstream, _tf.captured(given[1]), own), None]

    return attached(run, [_tf.captured(x), _tf.captured(starts)], gradient)[0]


def _copied(x: tf.Tensor, start: tf.Tensor, sizes: list[int]) -> tf.Tensor:
    return tf.slice(x, start, sizes)


def _padded(y: tf.Tensor, start: tf.Tensor, shape: list[int]) -> tf.Tensor:
    after = tf.constant(np.subtract(shape, _sizes_of_row(y)), start.dtype) - start
    made = tf.pad(y, tf.stack([start, after], 1))
    made.set_shape(shape)
    return made


def _gathered(x: tf.Tensor, starts: tf.Tensor, sizes: list[int]) -> tf.Tensor:
    for axis, (full, size) in enumerate(zip(x.shape[1:], sizes)):
        if full != size:
            at = starts[:, axis, None] + tf.range(size, dtype=starts.dtype)
            x = tf.gather(x, at, axis=axis + 1, batch_dims=1)
    return x


def _placed(y: tf.Tensor, starts: tf.Tensor, shape: list[int]) -> tf.Tensor:
    for axis, full in enumerate(shape):
        size = y.shape[axis + 1]
        if full != size:
            at = tf.range(full, dtype=starts.dtype) - starts[:, axis, None]
            y = tf.pad(y, [[0, 1] if k == axis + 1 else [0, 0] for k in range(len(shape) + 1)])
            at = tf.where((at >= 0) & (at < size), at, size)
            y = tf.gather(y, at, axis=axis + 1, batch_dims=1)
    return y
