"""associative_scan: all prefixes of a sequence, in a logarithmic number of steps."""

from __future__ import annotations

import numbers
from collections.abc import Callable
from typing import Any

import tensorflow as tf

from tf_pfor.api.leaves import array
from tf_pfor.core import nests
from tf_pfor.core.errors import ArgumentError, ArgumentTypeError
from tf_pfor.core.nests import Nest
from tf_pfor.tracing.user_code import autographed

_Leaves = list[tf.Tensor]


@tf.autograph.experimental.do_not_convert
def associative_scan(
    fn: Callable[[Any, Any], Any], elems: Nest, reverse: bool = False, axis: int = 0
) -> Any:
    """All prefixes combined by an associative function, as ``jax.lax.associative_scan``.

    Row i of the result is ``fn(...fn(fn(x[0], x[1]), x[2])..., x[i])``. It takes about 2 log2(n)
    calls of ``fn`` one after the other, each of many rows. There are fewer than 2 n combinations
    (Blelloch, 1990, "Prefix sums and their applications"). If n is not known before running, it
    takes log2(n) calls and n log2(n) combinations (Hillis and Steele, 1986).

    Args:
      fn: an associative function of two nests like ``elems``, which hold as many rows each, along
        ``axis``. It combines row by row, for example by ``tf.matmul``, and returns such a nest.
      elems: a nest of tensors, all with n rows along ``axis``.
      reverse: combine from the last row on: row i is
        ``fn(...fn(fn(x[n - 1], x[n - 2]), x[n - 3])..., x[i])``.
      axis: the axis of each tensor that has the rows; a negative axis counts from its end.

    Returns:
      A nest like ``elems``, of the same shapes and dtypes.

    Raises:
      ArgumentError: if tensors differ in n or have no such axis, or if ``fn`` does not return a
        nest like its arguments.
      ArgumentTypeError: if ``fn`` is no function or ``elems`` holds a leaf that is no tensor.

    >>> import tensorflow as tf
    >>> import tf_pfor
    >>> tf_pfor.associative_scan(tf.add, tf.constant([1, 2, 3, 4])).numpy().tolist()
    [1, 3, 6, 10]
    >>> tf_pfor.associative_scan(tf.maximum, tf.constant([1, 5, 2]), reverse=True).numpy().tolist()
    [5, 5, 2]
    """
    if not callable(fn):
        raise ArgumentTypeError(
            f"associative_scan: fn must be a function of two nests, found a {type(fn).__name__}."
        )
    if isinstance(axis, bool) or not isinstance(axis, numbers.Integral):
        raise ArgumentTypeError(f"associative_scan: axis must be an int, found {axis!r}.")
    structure = nests.opened(elems)
    leaves = [
        array(x, f"associative_scan: {name}")
        for x, name in zip(tf.nest.flatten(structure), nests.paths(structure, "elems"))
    ]
    scan = _Scan(fn, structure, leaves, axis)
    if reverse:
        leaves = scan.turned(leaves)
    leaves = scan.of(leaves)
    if reverse:
        leaves = scan.turned(leaves)
    return nests.to_user(tf.nest.pack_sequence_as(structure, leaves))


class _Scan:
    """A scan of leaves of known rank along one axis each."""

    def __init__(self, fn: Callable[..., Any], structure: Nest, leaves: _Leaves, axis: int):
        self._fn = autographed(fn)
        self._structure = structure
        names = nests.paths(structure, "elems")
        for x, name in zip(leaves, names):
            if x.shape.rank is None or not -x.shape.rank <= axis < x.shape.rank:
                raise ArgumentError(
                    f"associative_scan: {name} has shape {x.shape}, and no axis {axis}."
                )
        if not leaves:
            raise ArgumentError("associative_scan: elems holds no tensor.")
        self._axes = [axis % len(x.shape) for x in leaves]
        sizes = [x.shape[a] for x, a in zip(leaves, self._axes)]
        if len({*sizes} - {None}) > 1:
            shapes = ", ".join(f"{name}: {x.shape}" for x, name in zip(leaves, names))
            raise ArgumentError(
                f"associative_scan: elems differ in the size of axis {axis}. Found: {shapes}."
            )
        self._is_known = None not in sizes

    def of(self, xs: _Leaves) -> _Leaves:
        """All prefixes."""
        return self._halved(xs) if self._is_known else self._doubled(xs)

    def turned(self, xs: _Leaves) -> _Leaves:
        """The rows in reverse order."""
        return [tf.reverse(x, [a]) for x, a in zip(xs, self._axes)]

    def _halved(self, xs: _Leaves) -> _Leaves:
        """Prefixes of pairs are the odd rows; one call more makes the even ones."""
        n = int(xs[0].shape[self._axes[0]] or 0)
        if n < 2:
            return xs
        pairs = self._combined(self._rows(xs, 0, n - 1, 2), self._rows(xs, 1, n, 2))
        odd = self._halved(pairs)
        even = self._rows(xs, 0, 1)
        if n > 2:
            rest = self._combined(self._rows(odd, 0, (n - 1) // 2), self._rows(xs, 2, n, 2))
            even = self._joined(even, rest)
        both = [
            tf.stack([x[0], x[1]], a + 1)
            for *x, a in zip(self._rows(even, 0, n // 2), odd, self._axes)
        ]
        merged = [
            tf.reshape(x, tf.concat([tf.shape(x)[:a], [n // 2 * 2], tf.shape(x)[a + 2 :]], 0))
            for x, a in zip(both, self._axes)
        ]
        for x, old, a in zip(merged, xs, self._axes):
            x.set_shape([*old.shape[:a], n // 2 * 2, *old.shape[a + 1 :]])
        return self._joined(merged, self._rows(even, n // 2, n // 2 + 1)) if n % 2 else merged

    def _doubled(self, xs: _Leaves) -> _Leaves:
        """After k steps row i combines the last 2**k rows up to it."""
        sizes = tf.stack([tf.shape(x)[a] for x, a in zip(xs, self._axes)])
        text = "associative_scan: elems differ in the number of rows:"
        check = tf.debugging.Assert(tf.reduce_all(sizes == sizes[0]), [text, sizes], len(xs))
        with tf.control_dependencies([check]):
            n = tf.identity(sizes[0])
        shapes = [
            tf.TensorShape([*x.shape[:a], None, *x.shape[a + 1 :]]) for x, a in zip(xs, self._axes)
        ]

        def step(shift: tf.Tensor, *xs: tf.Tensor) -> Any:
            rows = [*xs]
            made = self._combined(self._rows(rows, 0, n - shift), self._rows(rows, shift, n))
            return shift * 2, *self._joined(self._rows(rows, 0, shift), made)

        _, *found = tf.while_loop(
            lambda shift, *_: shift < n, step, [tf.constant(1), *xs], [tf.TensorShape([]), *shapes]
        )
        for x, old in zip(found, xs):
            x.set_shape(old.shape)
        return found

    def _rows(self, xs: _Leaves, begin: object, end: object, stride: int = 1) -> _Leaves:
        return [
            x[(slice(None),) * a + (slice(begin, end, stride),)] for x, a in zip(xs, self._axes)
        ]

    def _joined(self, first: _Leaves, second: _Leaves) -> _Leaves:
        return [tf.concat([x, y], a) for x, y, a in zip(first, second, self._axes)]

    def _combined(self, first: _Leaves, second: _Leaves) -> _Leaves:
        """The results of the user's function for rows."""
        nest = [
            nests.to_user(tf.nest.pack_sequence_as(self._structure, xs)) for xs in (first, second)
        ]
        result = nests.opened(self._fn(*nest))
        try:
            tf.nest.assert_same_structure(self._structure, result, check_types=False)
            made = [tf.convert_to_tensor(x) for x in tf.nest.flatten(result)]
        except (TypeError, ValueError):
            made = []
        if len(made) == len(first) and all(
            x.dtype == y.dtype and x.shape.is_compatible_with(y.shape) for x, y in zip(made, first)
        ):
            return made
        expected = [(x.dtype.name, x.shape) for x in first]
        found = [(x.dtype.name, x.shape) for x in made] or type(result).__name__
        raise ArgumentError(
            "associative_scan: fn must return a nest like its arguments, of the same dtypes and "
            f"shapes. Expected: {expected}; found: {found}."
        )
