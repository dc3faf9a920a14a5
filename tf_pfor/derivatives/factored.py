"""Gradients of weights by their two factors, which are much smaller than their product.

The gradient of ``w`` in ``x @ w`` is ``x^T g``, where g is the incoming gradient. The factors of
one example with m rows are [m, i] and [m, o], in place of [i, o]. The norm, and the sum over
examples, need no more than these factors (Goodfellow 2015; Li et al. 2022 for sequences).
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from tf_pfor.core.nests import Nest


class FactoredGradient(NamedTuple):
    """The gradient ``left^T right`` of a weight, in the shape of the weight.

    Attributes:
      left: [*batch, m, i].
      right: [*batch, m, o].
    """

    left: Any
    right: Any

    @classmethod
    def of(cls, gradient: Nest) -> FactoredGradient | None:
        """The factors of one example's gradient; None if it has none, or they are not smaller."""
        if not tf.is_symbolic_tensor(gradient) or not gradient.dtype.is_floating:
            return None
        found = _product(gradient)
        if found is None:
            return None
        left, right = found
        (m, i), (_, o) = left.shape, right.shape
        if m * (i + o) > i * o:
            return None
        if left.dtype in (tf.float16, tf.bfloat16):  # their squares overflow
            left, right = tf.cast(left, tf.float32), tf.cast(right, tf.float32)
        return cls(left, right)

    def squared_norms(self) -> tf.Tensor:
        """[*batch]: the sum of the squares of each product, without forming it."""
        if self.left.shape[-2] == 1:
            left, right = (tf.reduce_sum(tf.square(x), [-2, -1]) for x in self)
            return left * right
        left, right = (tf.matmul(x, x, transpose_b=True) for x in self)  # [*batch, m, m]
        return tf.maximum(tf.reduce_sum(left * right, [-2, -1]), 0)

    def sum(self, weights: tf.Tensor, like: tf.Variable) -> tf.Tensor:
        """The sum of all examples' products, each times its weight [n], of the form of ``like``."""
        wide = tf.cast(weights, self.left.dtype)[:, None, None]
        left, right = self.left, self.right
        if left.shape[-1] < right.shape[-1]:
            left *= wide
        else:
            right *= wide
        left, right = (tf.reshape(x, [-1, x.shape[-1]]) for x in (left, right))
        total = tf.matmul(left, right, transpose_a=True)
        return tf.cast(tf.reshape(total, tf.shape(like)), like.dtype)


def _product(gradient: tf.Tensor) -> tuple[Any, Any] | None:
    """The factors [m, i] and [m, o] of what is one matrix product but for its shape."""
    tensor, is_summed = gradient, False
    while tensor.op.type in ("Cast", "Identity", "Reshape", "Sum"):
        op = tensor.op
        source = op.inputs[0]
        if op.type == "Cast" and source.dtype not in (tf.float16, tf.bfloat16, tf.float32):
            return None
        if op.type == "Sum":
            axes = tf.get_static_value(op.inputs[1])
            if is_summed or axes is None or not _is_sum_of_products(source, axes):
                return None
            is_summed = True
        tensor = source
    op = tensor.op
    if op.type not in ("BatchMatMulV2", "BatchMatMulV3", "MatMul"):
        return None
    if not all(x.shape.is_fully_defined() for x in (*op.inputs, tensor)):
        return None
    names = ("transpose_a", "transpose_b") if op.type == "MatMul" else ("adj_x", "adj_y")
    first, second = (op.get_attr(name) for name in names)
    a, b = op.inputs
    if a.dtype != b.dtype or a.shape[:-2] != b.shape[:-2]:
        return None
    if not is_summed and a.shape[:-2].num_elements() != 1:
        return None
    left = a if first else tf.linalg.matrix_transpose(a)
    right = tf.linalg.matrix_transpose(b) if second else b
    return tf.reshape(left, [-1, left.shape[-1]]), tf.reshape(right, [-1, right.shape[-1]])


def _is_sum_of_products(tensor: tf.Tensor, axes: np.ndarray) -> bool:
    """Whether axes are all those in front of a product of matrices."""
    rank = tensor.shape.rank
    if rank is None or tensor.op.type not in ("BatchMatMulV2", "BatchMatMulV3"):
        return False
    return sorted(int(a) % rank for a in axes.reshape([-1])) == list(range(rank - 2))
