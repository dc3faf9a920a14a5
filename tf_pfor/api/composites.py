"""Ragged and sparse tensors as elements and as results: taken apart, and put together again.

An element becomes dense tensors with a length for each row, which the body cuts; a row is what
``rt[i]`` is: a dense tensor of its own length, or a RaggedTensor of one rank less; a SparseTensor
of one axis less. A result of the body becomes its parts; the parts of all iterations are stacked
as ``tf.ragged.stack`` and ``tf.sparse.concat`` of expanded tensors would.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import tensorflow as tf

from tf_pfor.core import nests
from tf_pfor.core.errors import ArgumentError

_RAGGED: Any = tf.RaggedTensor


# ---------------------------------------------------------------------------
# Elements
# ---------------------------------------------------------------------------


class _Rows(NamedTuple):
    """Rows of own lengths."""

    padded: Any  # [longest, ...] in an iteration, [n, longest, ...] outside
    length: Any  # [], [n]

    @classmethod
    def of(cls, ragged: Any) -> _Rows:
        """Of a RaggedTensor of ragged rank 1."""
        return cls(ragged.to_tensor(), ragged.row_lengths())

    @property
    def cut(self) -> tf.Tensor:
        """In an iteration: the row."""
        return self.padded[: self.length]


class _RaggedRows(NamedTuple):
    """Rows of a RaggedTensor of ragged rank 2 or more."""

    flat: _Rows
    lengths: tuple[_Rows, ...]

    @classmethod
    def of(cls, ragged: Any) -> _RaggedRows:
        """Of the RaggedTensor."""
        splits, lengths, inner = ragged.row_splits, list[_Rows](), ragged.values
        while isinstance(inner, tf.RaggedTensor):
            level: Any = inner
            lengths.append(_Rows.of(_RAGGED.from_row_splits(level.row_lengths(), splits)))
            splits, inner = tf.gather(level.row_splits, splits), level.values
        return cls(_Rows.of(_RAGGED.from_row_splits(inner, splits)), tuple(lengths))

    @property
    def cut(self) -> Any:
        """In an iteration: the RaggedTensor of the row."""
        lengths = [level.cut for level in self.lengths]
        return _RAGGED.from_nested_row_lengths(self.flat.cut, lengths, validate=False)


class _SparseRows(NamedTuple):
    """Rows of a SparseTensor."""

    indices: _Rows
    values: _Rows
    shape: Any  # no elements, of the shape of a row and one axis more

    @classmethod
    def of(cls, sparse: Any) -> _SparseRows:
        """Of the SparseTensor."""
        sparse = tf.sparse.reorder(sparse)  # or the elements of a row need not lie together
        n, numbers = sparse.dense_shape[0], sparse.indices[:, 0]
        counts = tf.math.unsorted_segment_sum(tf.ones_like(numbers), numbers, n)
        indices, values = (
            _Rows.of(_RAGGED.from_row_lengths(x, counts))
            for x in (sparse.indices[:, 1:], sparse.values)
        )
        shape = tf.zeros(tf.concat([sparse.dense_shape, [0]], 0), tf.bool)
        shape.set_shape([*sparse.shape, 0])
        return cls(indices, values, shape)

    @property
    def cut(self) -> Any:
        """In an iteration: the SparseTensor of the row."""
        shape = tf.shape(self.shape, tf.int64)[:-1]
        return tf.SparseTensor(self.indices.cut, self.values.cut, shape)


def opened(nest: Any) -> Any:
    """A nest with dense tensors in place of ragged and sparse ones; itself if it has none."""
    found: list[Any] = []

    def rows(x: Any) -> Any:
        found.append(x)
        if isinstance(x, tf.SparseTensor):
            return _SparseRows.of(x)
        return _Rows.of(x) if x.ragged_rank == 1 else _RaggedRows.of(x)

    made = nests.replaced(nest, (tf.RaggedTensor, tf.SparseTensor), rows)
    return made if found else nest


def cut(row: Any) -> Any:
    """One iteration of what ``opened`` made: the rows as they are."""
    return nests.replaced(row, (_Rows, _RaggedRows, _SparseRows), lambda x: x.cut)


# ---------------------------------------------------------------------------
# Results
# ---------------------------------------------------------------------------


class _RaggedResult(NamedTuple):
    """The parts of a RaggedTensor: of one iteration, or stacked."""

    flat: Any
    lengths: tuple[Any, ...]  # of each level, the outermost first
    counts: tuple[Any, ...]  # how many elements each of these has, and ``flat``


class _SparseResult(NamedTuple):
    """The parts of a SparseTensor: of one iteration, or stacked."""

    indices: Any
    values: Any
    shape: Any
    count: Any


def by_parts(fn: Callable[..., Any]) -> Callable[..., Any]:
    """``fn``, returning the parts of ragged and sparse tensors."""
    return lambda *rows: parts(fn(*rows))


def parts(result: Any) -> Any:
    """What the body returned, with the parts of ragged and sparse tensors in their place."""

    def of(x: Any) -> Any:
        if isinstance(x, tf.SparseTensor):
            return _SparseResult(x.indices, x.values, x.dense_shape, tf.shape(x.values)[0])
        lengths, flat = tuple(x.nested_row_lengths()), x.flat_values
        return _RaggedResult(flat, lengths, tuple(tf.shape(t)[0] for t in (*lengths, flat)))

    return nests.replaced(result, (tf.RaggedTensor, tf.SparseTensor), of)


def check_axes(structure: Any, axes: list[Any]) -> None:
    """Ragged and sparse results have the mapped axis in front.

    Args:
      structure: what the body returned, by ``parts``.
      axes: of its leaves.

    Raises:
      ArgumentError: if an axis for one of them is not 0.
    """

    def check(x: Any) -> Any:
        if any(axis != 0 for axis in nests.flatten(x)):
            kind = "RaggedTensor" if isinstance(x, _RaggedResult) else "SparseTensor"
            raise ArgumentError(
                f"out_axes asks for an axis of a {kind} that the body returns. Expected: 0."
            )
        return x

    nests.replaced(nests.pack(structure, axes), (_RaggedResult, _SparseResult), check)


def assembled(result: Any) -> Any:
    """The inverse, of the parts of all iterations."""
    return nests.replaced(
        result,
        (_RaggedResult, _SparseResult),
        lambda x: _ragged(x) if isinstance(x, _RaggedResult) else _sparse(x),
    )


def _packed(rows: Any, counts: tf.Tensor) -> tf.Tensor:
    """[n, most, ...] or ragged -> [total, ...]: the first elements of each row."""
    if isinstance(rows, tf.RaggedTensor):
        values: Any = rows.values  # of an unknown number of axes: indices that all are as long
        return values.to_tensor() if isinstance(values, tf.RaggedTensor) else values
    shape, mask = tf.shape(rows), tf.sequence_mask(counts, tf.shape(rows)[1])
    flat = tf.reshape(rows, tf.concat([[shape[0] * shape[1]], shape[2:]], 0))
    made = tf.gather(flat, tf.where(tf.reshape(mask, [-1]))[:, 0])
    made.set_shape([None, *rows.shape[2:]])
    return made


def _ragged(x: _RaggedResult) -> Any:
    made = _packed(x.flat, x.counts[-1])
    for lengths, counts in reversed(list(zip(x.lengths, x.counts))):
        made = _RAGGED.from_row_lengths(made, _packed(lengths, counts), validate=False)
    counts = tf.cast(x.counts[0], made.row_splits.dtype)
    return _RAGGED.from_row_lengths(made, counts, validate=False)


def _sparse(x: _SparseResult) -> Any:
    n = tf.shape(x.count, tf.int64)[:1]
    numbers = tf.repeat(tf.range(n[0]), x.count)
    indices = tf.concat([numbers[:, None], _packed(x.indices, x.count)], 1)
    sizes = tf.reduce_max(tf.pad(x.shape, [[0, 1], [0, 0]]), 0)  # zeros if there are no rows
    return tf.SparseTensor(indices, _packed(x.values, x.count), tf.concat([n, sizes], 0))
