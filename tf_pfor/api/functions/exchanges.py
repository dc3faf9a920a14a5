"""Collectives that are made of others: all_to_all, psum_scatter, pargmax, pargmin."""

from __future__ import annotations

import numbers
from collections.abc import Callable
from typing import Any

import tensorflow as tf

from tf_pfor.api.leaves import moved
from tf_pfor.core import axes
from tf_pfor.core.collectives import (
    axis_index,
    axis_size,
    exchanged,
    map_tensors,
    merged,
    pmax,
    pmin,
    psum,
)
from tf_pfor.core.errors import ArgumentError, ArgumentTypeError

_no_autograph = tf.autograph.experimental.do_not_convert


@_no_autograph
def all_to_all(
    x: object,
    axis_name: str | None = None,
    split_axis: int = 0,
    concat_axis: int = 0,
    *,
    tiled: bool = False,
) -> Any:
    """Each example of a mapped axis gets one part of each example, as ``jax.lax.all_to_all``.

    Args:
      x: a nest of tensors, inside a function that is mapped over n examples.
      axis_name: the ``axis_name`` of one map; None: the innermost one.
      split_axis: the axis of n parts, of which part i goes to example i; negative ones from the
        end.
      concat_axis: the axis of the result along which the parts of an example stand.
      tiled: whether a part is 1/n of ``split_axis`` and parts are joined along ``concat_axis``,
        instead of one row each that is stacked.

    Returns:
      The nest of ``x``. Its shapes lack ``split_axis``, of size n, and have a new axis of size n.
      With ``tiled``, ``split_axis`` is n times as short, and ``concat_axis`` n times as long.

    Raises:
      ArgumentError: outside of a map, if there is no such axis, or if it has not n parts.
      NotVectorizableError: as for ``psum``.

    >>> import tensorflow as tf
    >>> import tf_pfor
    >>> transposed = tf_pfor.vmap(tf_pfor.all_to_all)
    >>> transposed(tf.constant([[1, 2], [3, 4]])).numpy().tolist()
    [[1, 3], [2, 4]]
    """

    def exchange(tensor: tf.Tensor) -> tf.Tensor:
        rank = _rank(tensor, "all_to_all")
        split = _axis(split_axis, rank, "all_to_all: split_axis")
        concat = _axis(concat_axis, rank, "all_to_all: concat_axis")
        parts = moved(_parts(tensor, axis_name, split, tiled, "all_to_all"), split, 0)
        made = moved(exchanged(parts, axis_name, 0), 0, concat)
        return merged(made, concat) if tiled else made

    axes.find(axis_name, "all_to_all")
    return map_tensors("all_to_all", exchange, x)


@_no_autograph
def psum_scatter(
    x: object, axis_name: str | None = None, *, scatter_dimension: int = 0, tiled: bool = False
) -> Any:
    """Each example of a mapped axis gets one part of the ``psum``, as ``jax.lax.psum_scatter``.

    Args:
      x: a nest of numeric tensors, inside a function that is mapped over n examples.
      axis_name: the ``axis_name`` of one map; None: the innermost one.
      scatter_dimension: the axis of n parts, of which example i gets part i; negative ones from the
        end.
      tiled: whether a part is 1/n of the axis, instead of one row.

    Returns:
      The nest of ``x``, of the same dtypes: without that axis, or with ``tiled`` n times as short.

    Raises:
      ArgumentError: outside of a map, if there is no such axis, or if it has not n parts.
      NotVectorizableError: as for ``psum``.

    >>> import tensorflow as tf
    >>> import tf_pfor
    >>> part_of_sum = tf_pfor.vmap(tf_pfor.psum_scatter)
    >>> part_of_sum(tf.constant([[1, 2], [3, 4]])).numpy().tolist()
    [4, 6]
    """

    def scatter(tensor: tf.Tensor) -> tf.Tensor:
        rank = _rank(tensor, "psum_scatter")
        place = _axis(scatter_dimension, rank, "psum_scatter: scatter_dimension")
        total = psum(_parts(tensor, axis_name, place, tiled, "psum_scatter"), axis_name)
        return tf.gather(total, axis_index(axis_name), axis=place)

    axes.find(axis_name, "psum_scatter")
    return map_tensors("psum_scatter", scatter, x)


@_no_autograph
def pargmax(x: object, axis_name: str | None = None) -> Any:
    """The number of the example of a mapped axis with the largest ``x``, as ``jax.lax.pargmax``.

    Args:
      x: a nest of real tensors, inside a function that is mapped.
      axis_name: the ``axis_name`` of one map; None: the innermost one.

    Returns:
      The nest of ``x``: int32 tensors of the same shapes, for each element the first example that
      has the maximum. NaN is larger than all, as in NumPy. Without examples (``out_axes=None``) it
      is the largest int32, the number of none.

    Raises:
      ArgumentError: outside of a map.
      NotVectorizableError: as for ``psum``.

    >>> import tensorflow as tf
    >>> import tf_pfor
    >>> tf_pfor.vmap(tf_pfor.pargmax, out_axes=None)(tf.constant([3., 5., 5.])).numpy()
    np.int32(1)
    """
    return _extreme("pargmax", pmax, x, axis_name)


@_no_autograph
def pargmin(x: object, axis_name: str | None = None) -> Any:
    """The number of the example of a mapped axis with the smallest ``x``: see ``pargmax``.

    >>> import tensorflow as tf
    >>> import tf_pfor
    >>> tf_pfor.vmap(tf_pfor.pargmin, out_axes=None)(tf.constant([3., 5., 1.])).numpy()
    np.int32(2)
    """
    return _extreme("pargmin", pmin, x, axis_name)


def _extreme(kind: str, of_all: Callable[..., Any], x: object, axis_name: str | None) -> Any:
    axes.find(axis_name, kind)

    def one(tensor: tf.Tensor) -> tf.Tensor:
        dtype = tensor.dtype
        if not (dtype.is_floating or dtype.is_integer):
            raise ArgumentTypeError(f"{kind} expects a real tensor, found {dtype.name}.")
        hit = tensor == of_all(tensor, axis_name)
        if dtype.is_floating:
            is_nan = tf.math.is_nan(tensor)
            some = pmax(tf.cast(is_nan, tf.int32), axis_name) > 0
            hit = tf.where(some, is_nan, hit)
        return pmin(tf.where(hit, axis_index(axis_name), tf.int32.max), axis_name)

    return map_tensors(kind, one, x)


def _rank(tensor: tf.Tensor, kind: str) -> int:
    if tensor.shape.rank is None:
        raise ArgumentError(f"{kind}: the rank of a tensor is unknown. Give it: tf.ensure_shape.")
    return tensor.shape.rank


def _axis(axis: object, rank: int, what: str) -> int:
    """An axis of a tensor, counted from the front."""
    if isinstance(axis, bool) or not isinstance(axis, numbers.Integral):
        raise ArgumentTypeError(f"{what} must be an int, found {axis!r}.")
    number = int(axis)
    if not -rank <= number < rank:
        raise ArgumentError(f"{what} is {number}, and the tensor has {rank} axes.")
    return number % rank


def _parts(
    tensor: tf.Tensor, axis_name: str | None, axis: int, tiled: bool, kind: str
) -> tf.Tensor:
    """The tensor with an axis that has one part for each example; with ``tiled`` it is a new one.

    Raises:
      ArgumentError: if the axis is known to have another number of parts. An unknown number is
        checked when the map runs.
    """
    n, rows = axes.size_here(axes.find(axis_name, kind)), tensor.shape[axis]
    if n is not None and rows is not None and (rows % max(n, 1) if tiled else rows != n):
        expected = f"a multiple of {n}" if tiled else str(n)
        raise ArgumentError(
            f"{kind}: axis {axis} of a tensor of shape {tensor.shape} must have one part for each "
            f"example of the mapped axis. Expected: size {expected}."
        )
    if not tiled and n is not None and rows is not None:
        return tensor
    size = axis_size(axis_name)
    shape = tf.shape(tensor)
    part = [size, shape[axis] // tf.maximum(size, 1)] if tiled else [size]
    made = tf.reshape(tensor, tf.concat([shape[:axis], part, shape[axis + 1 :]], 0))
    known = [n, rows // max(n, 1) if n is not None and rows is not None else None]
    kept = [*tensor.shape]
    made.set_shape([*kept[:axis], *(known if tiled else [n or rows]), *kept[axis + 1 :]])
    return made
