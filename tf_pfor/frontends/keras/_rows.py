"""Variable-length rows: a Keras mask cuts them, and results get masks again."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from tf_pfor.core.errors import ArgumentError
from tf_pfor.core.nests import Nest
from tf_pfor.frontends.keras import _scopes
from tf_pfor.frontends.keras._scopes import keras


@dataclasses.dataclass(frozen=True)
class Cut:
    """A batch whose rows are to be cut to the steps that their masks call valid.

    Attributes:
      rows: [n, time, ...], the valid steps in front.
      lengths: int32 [n].
    """

    rows: tf.Tensor
    lengths: tf.Tensor


def cut(x: tf.Tensor, mask: tf.Tensor, name: str) -> Cut:
    """Moves valid steps to the front, if they are not there already, and counts them."""
    mask = tf.cast(mask, tf.bool)
    if mask.shape.rank != 2:
        raise ArgumentError(
            f"{name} has a Keras mask of shape {mask.shape}. Expected: [batch, time]. Give what "
            "Vectorized wraps an argument `mask`, to which the mask of the example is handed."
        )
    lengths = tf.reduce_sum(tf.cast(mask, tf.int32), 1)
    in_front = tf.reduce_all(tf.equal(mask, tf.sequence_mask(lengths, tf.shape(mask)[1])))

    def moved() -> tf.Tensor:
        order = tf.argsort(tf.cast(tf.logical_not(mask), tf.int32), 1, stable=True)
        return tf.gather(x, order, axis=1, batch_dims=1)

    rows = tf.cond(in_front, lambda: tf.identity(x), moved)
    rows.set_shape(x.shape)
    return Cut(rows, lengths)


# Sizes that stand for those that are not known, in the trace of an example of full length.
_PROBES = (83, 89, 97, 101, 103, 107, 109, 113, 127, 131)


def probes(rows: Sequence[Cut | None]) -> list[int | None]:
    """For each leaf that is cut and whose time is unknown, a size that stands for it."""
    free = iter(_PROBES)
    found: list[int | None] = []
    for row in rows:
        is_open = row is not None and row.rows.shape[1] is None
        found.append(next(free, None) if is_open else None)
    return found


def full_sizes(
    spec: tf.TensorSpec, rows: Sequence[Cut | None], stand_ins: Sequence[int | None]
) -> list[Any]:
    """The size of each axis of an output for an example of full length; None if unknown."""
    of: dict[Any, Any] = {
        p: tf.shape(r.rows)[1] for p, r in zip(stand_ins, rows) if p is not None and r
    }
    return [of.get(size, size) for size in spec.shape]


def finished(y: Nest, mask: Any, sizes: Sequence[Any] | None, name: str) -> Any:
    """A dense output, padded with zeros; it has a Keras mask if the length differs per row.

    Args:
      y: an output for all rows; ragged if its rows may differ in shape.
      mask: the Keras mask that the example's output had, for all rows, or None.
      sizes: the axes of a row of full length, each an int, a scalar or None; None if unknown.
      name: the name of the layer or function that made it, for messages.
    """
    if isinstance(y, tf.SparseTensor):
        return y
    if isinstance(y, tf.RaggedTensor):
        y, valid = _padded(y, sizes, name)
        mask = valid if mask is None else mask
    if mask is not None:
        if isinstance(mask, tf.RaggedTensor):
            mask = mask.to_tensor(False)
        missing = tf.shape(y)[1] - tf.shape(mask)[1]
        paddings: Any = [[0, 0], [0, missing], *[[0, 0]] * (mask.shape.rank - 2)]
        mask = tf.pad(mask, paddings)
        mask.set_shape(y.shape[: mask.shape.rank])
        y = tf.identity(y)
        _scopes.set_mask(y, mask)
    return y


def _padded(
    y: tf.RaggedTensor, sizes: Sequence[Any] | None, name: str
) -> tuple[tf.Tensor, tf.Tensor]:
    """The rows padded to a full length where it is known, else to the largest; and the mask."""
    lengths = y.row_lengths()
    found = y.bounding_shape(out_type=tf.int64)
    inner = len(y.shape) - 1
    if sizes is None or len(sizes) != inner:
        sizes = [None] * inner
    wanted = [
        found[i + 1] if size is None else tf.cast(size, tf.int64) for i, size in enumerate(sizes)
    ]
    shape = tf.stack([y.nrows(tf.int64), *wanted])
    check = tf.debugging.assert_less_equal(
        found,
        shape,
        f"{name} made a row larger than it makes of an example that nothing was cut from. Expected:"
        " no more than that. Found, and expected, of the batch:",
    )
    with tf.control_dependencies([check] if check is not None else []):
        dense = y.to_tensor(shape=tf.identity(shape))
    static = [size if isinstance(size, int) else None for size in sizes]
    dense.set_shape([y.shape[0], *[a or b for a, b in zip(static, y.shape[1:])]])
    return dense, tf.sequence_mask(lengths, shape[1])


def flat(nest: Nest) -> list[Any]:
    """The leaves, as Keras counts them."""
    return keras.tree.flatten(nest)
