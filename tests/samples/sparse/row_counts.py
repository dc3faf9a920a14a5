"""Samples of tf_pfor/converters/sparse/row_counts.py."""

import numpy as np
import tensorflow as tf

from tests.sample import drawn, ints, normal, sample

raw = tf.raw_ops
_QUIET = {"grad": False, "xla": False, "max_ops": 40}  # without gradients; XLA has none of them


def _places(count, *shape):
    def draw(r):
        chosen = np.sort(r.permutation(int(np.prod(shape)))[:count])
        return np.stack(np.unravel_index(chosen, shape), 1).astype(np.int64)

    return drawn((count, len(shape)), draw)


def _splits(rows, count):
    return drawn(
        (rows + 1,),
        lambda r: np.int64([0, *np.sort(r.integers(0, count + 1, rows - 1)), count]),
    )


def _bincount(shape, **options):
    def fn(at, x, w=None):
        weights = tf.zeros([0]) if w is None else w
        return raw.SparseBincount(
            indices=at, values=x, dense_shape=np.int64(shape), size=4, weights=weights, **options
        )

    return fn


def _ragged(splits, x, w=None, **options):
    weights = tf.zeros([0]) if w is None else w
    return raw.RaggedBincount(splits=splits, values=x, size=4, weights=weights, **options)


def _distance(a, x, b, y):
    return raw.EditDistance(
        hypothesis_indices=a, hypothesis_values=x, hypothesis_shape=np.int64([2, 4]),
        truth_indices=b, truth_values=y, truth_shape=np.int64([2, 3]), normalize=False,
    )  # fmt: skip


def _rows(count):
    """Places of a sparse [2, count] whose rows are filled from the left."""
    at = [[r, c] for r in range(2) for c in range(count // 2)]
    return drawn((count // 2 * 2, 2), lambda r: np.int64(at))


SAMPLES = [
    sample("EditDistance", _distance, _rows(6).fixed, ints(6), _rows(4).fixed, ints(4), **_QUIET),
    sample("RaggedBincount", _ragged, _splits(3, 5), ints(5), normal(5), **_QUIET),
    sample("RaggedBincount", lambda s, x: _ragged(s, x, binary_output=True), _splits(2, 6),
           ints(6), label="binary", **_QUIET),
    sample("SetSize", lambda at, x: raw.SetSize(
               set_indices=at, set_values=x, set_shape=np.int64([3, 4])),
           _places(5, 3, 4), ints(5, high=3), **_QUIET),
    sample("SparseBincount", _bincount([3, 4]), _places(5, 3, 4), ints(5), normal(5), **_QUIET),
    sample("SparseBincount", _bincount([6], binary_output=True), _places(4, 6), ints(4),
           label="vector", **_QUIET),
]  # fmt: skip
