"""Sweep of tf.ragged."""

from __future__ import annotations

import tensorflow as tf

from tools.sweep.cases import Case, ascending, body, bools, floats, integers

RAGGED: list[Case] = [
    body("tf.ragged.range", lambda k: tf.ragged.range([k, 2]), integers(low=1, high=4)),
    body("tf.ragged.constant", lambda x: tf.ragged.constant([[1.0], [2.0, 3.0]]) * x, floats()),
    *[body(f"tf.reduce_{k}",
        lambda x, k=k: getattr(tf, f"reduce_{k}")(tf.RaggedTensor.from_row_lengths(x, [1, 0, 3]),
        axis=1), floats(4), label="ragged, fixed splits")
        for k in ("sum", "mean", "max", "min", "prod")],
    *[body(f"tf.reduce_{k}",
        lambda x, i, k=k: getattr(tf, f"reduce_{k}")(tf.RaggedTensor.from_value_rowids(x, i, 5),
        axis=1), floats(4), ascending(4), label="ragged, splits of the row")
        for k in ("sum", "mean", "max")],
    body("tf.RaggedTensor.to_tensor",
        lambda x: tf.RaggedTensor.from_row_lengths(x, [1, 0, 3]).to_tensor(), floats(4)),
    body("tf.RaggedTensor.to_tensor",
        lambda x, i: tf.RaggedTensor.from_value_rowids(x, i, 5).to_tensor(shape=[5, 4]), floats(4),
        ascending(4), label="splits of the row"),
    body("tf.RaggedTensor.to_sparse",
        lambda x: tf.RaggedTensor.from_row_lengths(x, [1, 0, 3]).to_sparse(), floats(4)),
    body("tf.RaggedTensor.from_tensor", lambda x: tf.RaggedTensor.from_tensor(x), floats(2, 3)),
    body("tf.gather", lambda x, i: tf.gather(tf.RaggedTensor.from_row_lengths(x, [1, 2, 1]), i),
        floats(4), integers(2, high=3), label="ragged"),
    body("tf.concat", lambda x: tf.concat([tf.RaggedTensor.from_row_lengths(x, [1, 3])] * 2, 1),
        floats(4), label="ragged"),
    body("tf.ragged.boolean_mask", lambda x, m: tf.ragged.boolean_mask(x, m), floats(2, 3),
        bools(2, 3)),
    body("tf.ragged.stack", lambda x, y: tf.ragged.stack([x, y]), floats(2), floats(3)),
    body("tf.math.bincount",
        lambda x: tf.math.bincount(tf.RaggedTensor.from_row_lengths(x, [1, 3]), minlength=5,
        maxlength=5, axis=-1), integers(4), label="ragged"),
    body("tf.ragged.cross_hashed",
        lambda x: tf.ragged.cross_hashed([tf.RaggedTensor.from_row_lengths(x, [1, 3])] * 2, 7),
        integers(4)),
]  # fmt: skip
