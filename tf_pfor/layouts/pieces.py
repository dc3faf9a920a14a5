"""Rows put together of pieces of memory, which are copied whole: no element has an index.

``RaggedGather`` is the kernel for that. It runs on CPUs, and its gradient is slow.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import tensorflow as tf

from tf_pfor import _tf
from tf_pfor._tf._custom_gradients import attached
from tf_pfor.layouts import quick
from tf_pfor.layouts.cpu_kernels import is_converted, may_run
from tf_pfor.layouts.row_sizes import RowSizes, dim

Numbers = Sequence[tf.Tensor]


def joined(x: tf.Tensor, cuts: tf.Tensor, which: tf.Tensor) -> tf.Tensor:
    """Some pieces of axis 0, one behind the other.

    Args:
      x: [total, ...].
      cuts: int32 [pieces + 1], where the pieces begin, and the total.
      which: int32, the numbers of different pieces.
    """
    if not may_run():
        return tf.gather(x, _places(cuts, which))
    return with_gradient(
        lambda t: copied(t, cuts, which),
        x,
        [cuts, which],
        lambda dy, seen: _put_back(dy, *(seen or (cuts, which))),
    )


def ranges(x: tf.Tensor, first: tf.Tensor, lengths: tf.Tensor) -> tf.Tensor:
    """Ranges of axis 0 that come one after the other: where each begins, and how long it is."""
    return joined(x, *of_ranges(x, first, lengths))


def elements_repeated(x: tf.Tensor, which: tf.Tensor) -> tf.Tensor:
    """Elements of axis 0, each some times in a row; the gradient adds up neighbours.

    Args:
      x: [total, ...].
      which: int32, the numbers of the elements, in ascending order.
    """
    total = tf.shape(x)[0]

    def back(dy: tf.Tensor, seen: Numbers | None) -> tf.Tensor:
        at, size = seen or (which, total)
        made = tf.math.segment_sum(dy, at)
        left = size - tf.shape(made)[0]  # the last elements may be repeated no times
        return tf.pad(made, tf.stack([[0, left], *[[0, 0]] * len(x.shape[1:])]))

    return with_gradient(lambda t: tf.gather(t, which), x, [which, total], back)


def pieces_repeated(x: tf.Tensor, cuts: tf.Tensor, which: tf.Tensor) -> tf.Tensor:
    """Pieces of axis 0, one behind the other, each as often as it is named.

    Args:
      x: [total, ...].
      cuts: int32 [pieces + 1], where the pieces begin, and the total.
      which: int32, the numbers of the pieces.
    """

    def back(dy: tf.Tensor, seen: Numbers | None) -> tf.Tensor:
        begins, numbers = seen or (cuts, which)
        return tf.math.unsorted_segment_sum(dy, _places(begins, numbers), begins[-1])

    return with_gradient(lambda t: copied(t, cuts, which), x, [cuts, which], back)


def of_ranges(x: tf.Tensor, first: tf.Tensor, lengths: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """The cuts before and behind each of such ranges, and which pieces they are."""
    both = quick.op("Reshape", quick.stack([first, quick.add(first, lengths)], 1), [-1])
    cuts = quick.concat([[0], both, quick.part(quick.shape(x), 0, 1)])
    return cuts, quick.numbers(quick.add(quick.multiply(dim(lengths, 0), 2), 1), 1, 2)


def in_one(x: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """[n, room, ...] as [n * room, ...], and where each row begins in that."""
    n, room, rest = dim(x, 0), dim(x, 1), x.shape[2:]
    is_known = rest.is_fully_defined() and 0 not in rest
    shape: tf.Tensor | list[int | None] = [-1, *rest]
    if not is_known:
        inner = quick.part(quick.shape(x), 2, None)
        shape = quick.concat([quick.stack([quick.multiply(n, room)]), inner])
    flat = quick.op("Reshape", x, shape)
    flat.set_shape([None, *rest])
    return flat, quick.multiply(quick.numbers(n), room)


def copied(x: tf.Tensor, cuts: tf.Tensor, which: tf.Tensor) -> tf.Tensor:
    """The result of ``joined``, by the kernel."""
    made = tf.raw_ops.RaggedGather(
        params_nested_splits=[cuts], params_dense_values=x, indices=which, OUTPUT_RAGGED_RANK=1
    ).output_dense_values
    made.set_shape([None, *x.shape[1:]])
    return made


def _places(cuts: tf.Tensor, which: tf.Tensor) -> tf.Tensor:
    """int32: where the elements of some pieces are."""
    sizes = RowSizes.of(tf.gather(cuts[1:] - cuts[:-1], which))
    at = tf.range(tf.shape(sizes.rows)[0])
    return at + tf.gather(tf.gather(cuts, which) - sizes.starts, sizes.rows)


def _put_back(dy: tf.Tensor, cuts: tf.Tensor, which: tf.Tensor) -> tf.Tensor:
    """The pieces where they were, and zeros for the others."""
    lengths = cuts[1:] - cuts[:-1]
    taken, pieces = tf.shape(which)[0], tf.shape(lengths)[0]
    place = tf.scatter_nd(which[:, None], tf.range(1, taken + 1), tf.stack([pieces]))
    is_left = tf.equal(place, 0)
    left = tf.where(is_left, lengths, 0)
    zeros = tf.zeros(tf.concat([[tf.reduce_sum(left)], tf.shape(dy)[1:]], 0), dy.dtype)
    ends = tf.cumsum(tf.concat([[0], tf.gather(lengths, which), left], 0))
    numbers = tf.where(is_left, taken + tf.range(pieces), place - 1)
    return joined(tf.concat([dy, zeros], 0), ends, numbers)


def with_gradient(
    make: Callable[[tf.Tensor], tf.Tensor],
    x: tf.Tensor,
    numbers: Numbers,
    gradient: Callable[[tf.Tensor, Numbers | None], tf.Tensor],
) -> tf.Tensor:
    """``make(x)`` with a gradient; the kernels' gradient where others convert the emitted ops.

    Numbers that the gradient needs are inputs as well. The gradient may be asked for in another
    graph, and the second gradient in a third graph.

    Args:
      make: a linear function.
      x: the argument of ``make``.
      numbers: the numbers that the gradient needs.
      gradient: a function of the incoming gradient, and of the numbers as its graph sees them. The
        numbers are None if they are in that graph.
    """
    if not (x.dtype.is_floating or x.dtype.is_complex) or is_converted():
        return make(x)
    given = [_tf.captured(t) for t in (x, *numbers)]  # in a branch, as its gradient sees it
    own = given[1:]

    def back(given: Sequence[tf.Tensor], dy: tf.Tensor) -> list[tf.Tensor | None]:
        graph = tf.compat.v1.get_default_graph()
        is_here = all(n is m for n, m in zip(given[1:], own)) and all(
            tf.is_symbolic_tensor(n) and n.graph is graph for n in own
        )
        seen = None if is_here else [tf.identity(n) for n in given[1:]]
        found = gradient(tf.convert_to_tensor(dy), seen)  # it may be slices
        found.set_shape(x.shape)
        return [found, *[None] * len(numbers)]

    (found,) = attached(lambda t, *_: [make(t)], given, back)
    # A loaded SavedModel takes dense gradients only; the gradient of a Reshape is dense.
    known = found.shape.as_list()
    is_known = known.count(None) <= 1 and 0 not in known
    return tf.reshape(
        found, [-1 if d is None else d for d in known] if is_known else tf.shape(found)
    )
