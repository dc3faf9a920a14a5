"""Samples of tf_pfor/converters/sparse/ragged.py."""

import numpy as np
import tensorflow as tf

from tests.sample import drawn, fixed, ints, normal, sample

raw = tf.raw_ops


def _splits(rows, total, dtype=np.int64):
    """Row splits of ``rows`` rows of ``total`` values."""

    def draw(r):
        return np.concatenate([[0], np.sort(r.integers(0, total + 1, rows - 1)), [total]])

    return drawn((rows + 1,), lambda r: draw(r).astype(dtype))


def _to_tensor(shape):
    def fn(values, default, *splits):
        return raw.RaggedTensorToTensor(
            shape=shape, values=values, default_value=default, row_partition_tensors=splits,
            row_partition_types=["ROW_SPLITS"] * len(splits),
        )  # fmt: skip

    return fn


_OPTIONS = {"xla": False, "max_ops": 60}  # one row alone does not compile

SAMPLES = [
    sample("RaggedTensorToTensor", _to_tensor([3, 4]), normal(5), normal(), _splits(3, 5),
           **_OPTIONS),
    sample("RaggedTensorToTensor", _to_tensor([2, 2, 2]), normal(5, 2), normal(2),
           _splits(3, 5, np.int32), label="crop", **_OPTIONS),
    sample("RaggedTensorToTensor", _to_tensor([-1, 2, 4]), ints(5), fixed(np.int32(7)),
           _splits(2, 3), _splits(3, 5), label="levels", grad=False, **_OPTIONS),
    sample("RaggedTensorToTensor", _to_tensor([2, 3]), drawn((0,), lambda r: np.zeros(0, "f")),
           normal(), drawn((1,), lambda r: np.zeros(1, np.int64)), label="empty", **_OPTIONS),
    sample("RaggedTensorToTensor",
           lambda x, n: tf.RaggedTensor.from_row_lengths(
               x, tf.stack([n, 6 - n]), validate=False).to_tensor(shape=[2, 5]),
           normal(6), ints(high=7), label="lengths", **_OPTIONS),
]  # fmt: skip
