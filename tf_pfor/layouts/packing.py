"""The two forms of ragged rows made of each other, with one set of masks and places for all.

A row in the padded form is one piece of memory. ``RaggedTensorToTensor`` copies the whole piece,
three times as fast as a scatter of its elements. The op runs on CPUs, and its gradient is slow.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Hashable, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from tf_pfor.core.emit import Dim
from tf_pfor.core.values import Cell
from tf_pfor.layouts import cpu_kernels, quick
from tf_pfor.layouts.pieces import (
    Numbers,
    copied,
    in_one,
    of_ranges,
    with_gradient,
)
from tf_pfor.layouts.row_sizes import (
    RowSizes,
    Size,
    as_number,
    beside,
    count_of,
    dims_of,
    row_counts,
)


def largest(size: Size) -> Any:
    """The room of the padded form along an axis; selected rows have the room of all rows.

    So two tensors of the same sizes have the same room, in whatever form they were made.
    """
    if not isinstance(size, RowSizes):
        return size
    size = size.of_all_rows
    if size.most is not None:
        return size.most
    return shared([size], "largest", lambda: quick.largest(size.tensor))


def shared(sizes: Sequence[Size], key: Hashable, make: Callable[[], tf.Tensor]) -> tf.Tensor:
    """A tensor made of sizes, once, beside the first of them that differs between rows."""
    differing = [s for s in sizes if isinstance(s, RowSizes)]
    first, others = differing[0], [s.tensor for s in differing[1:]]
    if any(isinstance(s, tf.Tensor) for s in sizes) or not tf.is_symbolic_tensor(first.tensor):
        return make()
    # Sizes that a loop made: the graph of the first sizes does not see them.
    if any(tf.is_symbolic_tensor(t) and t.graph is not first.tensor.graph for t in others):
        return make()
    names = (key, *[id(s) if isinstance(s, RowSizes) else ("int", s) for s in sizes])
    if names not in first.shared:  # the sizes must live as long as their ids are names
        first.shared[names] = (beside(first.tensor, make), [*sizes])
    return first.shared[names][0]


def _shared_in(
    sizes: Sequence[Size], room: Sequence[Any], key: str, make: Callable[[], tf.Tensor]
) -> tf.Tensor:
    """The same, of a padded form, where it is known how much room that has."""
    first = next(s for s in sizes if isinstance(s, RowSizes)).tensor

    def is_beside(most: Any) -> bool:
        both = tf.is_symbolic_tensor(first) and tf.is_symbolic_tensor(most)
        return both and most.graph is first.graph

    if not all(isinstance(most, int) or is_beside(most) for most in room):
        return make()
    names = [most if isinstance(most, int) else most.ref() for most in room]
    return shared(sizes, (key, *names), make)


def mask_of(sizes: Sequence[Size], room: Sequence[Any]) -> tf.Tensor:
    """bool [n, *room]: which elements of the padded form a row has."""

    def make() -> tf.Tensor:
        masks: list[tf.Tensor] = []
        is_whole = True
        for axis, (size, most) in enumerate(zip(sizes, room)):
            if isinstance(size, RowSizes):
                known = isinstance(most, int)
                at: Any = np.arange(most, dtype=np.int32) if known else tf.range(most)
                behind = [1] * (len(sizes) - 1 - axis)
                at = tf.reshape(at, [-1, *behind]) if behind else at
                masks.append(at < tf.reshape(size.tensor, [-1, *[1] * len(sizes)]))
            else:
                is_whole = is_whole and isinstance(most, int) and most == 1
        found = functools.reduce(operator.and_, masks)
        return found if is_whole else tf.broadcast_to(found, tf.stack([tf.shape(found)[0], *room]))

    return _shared_in(sizes, room, "mask", make)


def places_of(sizes: Sequence[Size]) -> tf.Tensor:
    """int64 [total, 1 + axes]: where the elements of the packed form lie in the padded one.

    These are the same in all padded forms, whatever room each of them has.
    """
    room = [largest(s) for s in sizes]
    return shared(sizes, "places", lambda: tf.where(mask_of(sizes, room)))


def masked(tensor: tf.Tensor, sizes: Sequence[Size], other: object = 0) -> tf.Tensor:
    """[n, largest, ...] with ``other`` in the padding; no gradient comes back from there."""
    count = len(sizes)
    mask: Any = mask_of(sizes, _room_in(tensor, count))
    more = _rank(tensor) - 1 - count
    mask = mask[(..., *[tf.newaxis] * more)] if more else mask
    if tensor.dtype == tf.string:
        return tf.where(mask, tensor, tf.constant(""))
    return tf.where(mask, tensor, tf.constant(np.asarray(other, tensor.dtype.as_numpy_dtype)))


def cleaned(padded: tf.Tensor, packed: Cell, sizes: Sequence[Size]) -> tf.Tensor:
    """The padded form with zeros in the padding, of a padded form with anything there.

    Where pieces are long, copying the elements takes no longer than masking the padding.

    Args:
      padded: the padded form.
      packed: the packed form, perhaps made already.
      sizes: the sizes of the rows.
    """
    rest = padded.shape[len(sizes) + 1 :]
    is_wide = packed.is_made or (rest.num_elements() or 0) >= _WIDE
    if _copies(padded.dtype, sizes, rest) and is_wide:
        return pad(packed.get(), sizes, _room_in(padded, len(sizes)))
    return masked(padded, sizes)


_WIDE = 8


def pack(padded: tf.Tensor, sizes: Sequence[Size]) -> tf.Tensor:
    """[n, largest, ...] -> [total, ...]."""
    count = len(sizes)
    room = _room_in(padded, count)

    def gathered(x: tf.Tensor) -> tf.Tensor:
        if count == 1 and cpu_kernels.may_run():
            size: Any = sizes[0]
            flat, begins = in_one(x)
            return copied(flat, *of_ranges(flat, begins, size.tensor))
        made = tf.gather_nd(x, places_of(sizes))
        made.set_shape([None, *padded.shape[count + 1 :]])
        return made

    return _with_gradient(gathered, padded, sizes, room, pad)


def pad(packed: tf.Tensor, sizes: Sequence[Size], room: Sequence[Any] | None = None) -> tf.Tensor:
    """[total, ...] -> [n, largest, ...], with zeros in the padding.

    Args:
      packed: the packed form.
      sizes: the sizes of its rows.
      room: the sizes of the axes of the result; just enough for the largest rows if None.
    """
    room = [largest(s) for s in sizes] if room is None else room
    n = count_of(sizes)
    rest = dims_of(packed, 1)
    if 0 in packed.shape[1:]:  # of which the kernel makes an error
        return tf.zeros(tf.stack([n, *room, *rest]), packed.dtype)

    def scattered(x: tf.Tensor) -> tf.Tensor:
        made = _scattered(x, sizes, n, room, rest)
        made.set_shape([x if isinstance(x, int) else None for x in (n, *room, *rest)])
        return made

    return _with_gradient(scattered, packed, sizes, room, lambda dy, own, _: pack(dy, own))


def _scattered(
    packed: tf.Tensor, sizes: Sequence[Size], n: Dim, room: Sequence[Any], rest: Sequence[Any]
) -> tf.Tensor:
    if _copies(packed.dtype, sizes, packed.shape[1:]):
        differ = {k: s for k, s in enumerate(sizes) if isinstance(s, RowSizes)}
        lines = [*differ.values()]
        partitions = [_line_splits(lines[: k + 1]) for k in range(len(lines))]
        made = tf.raw_ops.RaggedTensorToTensor(
            shape=tf.stack([n, *[room[k] for k in differ], *rest]),
            values=packed,
            default_value=tf.zeros([], packed.dtype),
            row_partition_tensors=partitions,
            row_partition_types=["ROW_SPLITS"] * len(partitions),
        )
        others = [slice(None) if k in differ else tf.newaxis for k in range(len(sizes))]
        return made if len(lines) == len(sizes) else made[(slice(None), *others)]
    at = places_of(sizes)
    if None in packed.shape[1:]:
        some = tf.where(tf.reduce_prod(tf.stack(rest)) > 0, tf.shape(packed)[0], 0)
        at, packed = at[:some], packed[:some]
    if packed.dtype != tf.string:
        return tf.scatter_nd(at, packed, tf.cast(tf.stack([n, *room, *rest]), tf.int64))
    shape = tf.cast(tf.stack([n, *room]), tf.int64)
    numbers = tf.scatter_nd(at, tf.range(tf.shape(at)[0]) + 1, shape)
    empty = tf.zeros(tf.concat([[1], tf.shape(packed)[1:]], 0), packed.dtype)
    return tf.gather(tf.concat([empty, packed], 0), numbers)


def _line_splits(sizes: Sequence[RowSizes]) -> tf.Tensor:
    """int32: where the lines along the last of some axes begin, and where the last line ends."""
    *before, size = sizes
    if not before:
        return size.splits

    def make() -> tf.Tensor:
        rows = RowSizes.of(row_counts(before)).rows if len(before) > 1 else before[0].rows
        return RowSizes.of(quick.gather(size.tensor, rows)).splits

    return shared(sizes, "line splits", make)


_DTYPES = frozenset(
    [
        tf.bool,
        tf.complex128,
        tf.complex64,
        tf.float16,
        tf.float32,
        tf.float64,
        tf.int16,
        tf.int32,
        tf.int64,
        tf.int8,
        tf.string,
        tf.uint16,
        tf.uint8,
    ]
)


def _copies(dtype: tf.DType, sizes: Sequence[Size], rest: tf.TensorShape) -> bool:
    """Whether the kernel that copies line by line takes it, and nobody has to convert that."""
    is_one = all(isinstance(s, RowSizes) or (isinstance(s, int) and s == 1) for s in sizes)
    is_known = rest.is_fully_defined() and 0 not in rest
    return is_one and is_known and dtype in _DTYPES and cpu_kernels.may_run()


def _with_gradient(
    make: Callable[[tf.Tensor], tf.Tensor],
    x: tf.Tensor,
    sizes: Sequence[Size],
    room: Sequence[Any],
    gradient: Callable[[tf.Tensor, Sequence[Size], Sequence[Any]], tf.Tensor],
) -> tf.Tensor:
    """``make(x)`` and its gradient, which needs the sizes and the room."""
    all_of = (*sizes, *room)
    numbers = [as_number(s) for s in all_of if not isinstance(s, int)]

    def back(dy: tf.Tensor, seen: Numbers | None) -> tf.Tensor:
        own: list[Any] = [*all_of]
        if seen is not None:
            supply = iter(seen)
            own = [s if isinstance(s, int) else _like(s, next(supply)) for s in all_of]
        return gradient(dy, own[: len(sizes)], own[len(sizes) :])

    return with_gradient(make, x, numbers, back)


def _like(size: Size, number: tf.Tensor) -> Any:
    return RowSizes.of(number, size.most) if isinstance(size, RowSizes) else number


def _room_in(padded: tf.Tensor, count: int) -> list[Any]:
    return dims_of(padded, 1, count + 1)


def _rank(tensor: tf.Tensor) -> int:
    rank = tensor.shape.rank
    assert rank is not None
    return rank
