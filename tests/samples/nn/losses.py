"""Samples of tf_pfor/converters/nn/losses.py."""

import numpy as np
import tensorflow as tf

from tests.sample import drawn, ints, normal, sample, uniform

raw = tf.raw_ops
HALF = {"rtol": 1e-2, "atol": 1e-2}

SAMPLES = [
    *[sample(op, lambda x, op=op: getattr(raw, op)(logits=x), normal(*shape, dtype=dtype),
        label=label, **options) for op in ("Softmax", "LogSoftmax")
        for label, shape, dtype, options in (("", (3, 4), np.float32, {}),
        ("vector", (4,), np.float64, {}), ("rank-5", (2, 1, 2, 2, 3), np.float32, {}),
        ("half", (2, 3), np.float16, HALF))],
    sample("SoftmaxCrossEntropyWithLogits",
        lambda x, y: list(raw.SoftmaxCrossEntropyWithLogits(features=x, labels=y)), normal(3, 4),
        uniform(3, 4)),
    sample(
        "SoftmaxCrossEntropyWithLogits",
        lambda x, y: raw.SoftmaxCrossEntropyWithLogits(features=x, labels=y)[0],
        normal(3, 4), uniform(1, 4), label="broadcast",
        grad=False,  # TensorFlow's gradient does not sum over the repeated rows
    ),
    *[sample("SparseSoftmaxCrossEntropyWithLogits",
        lambda x, y: raw.SparseSoftmaxCrossEntropyWithLogits(features=x, labels=y)[0],
        normal(3, 5, dtype=dtype), ints(3, dtype=labels), label=label)
        for label, dtype, labels in (("", np.float32, np.int32), ("f64", np.float64, np.int64))],
    sample("L2Loss", tf.nn.l2_loss, normal(3, 4)),
    sample("L2Loss", tf.nn.l2_loss, normal(dtype=np.float64), label="scalar"),
    sample(
        "CTCLoss",
        lambda x, y, length: list(
            raw.CTCLoss(
                inputs=x, labels_indices=np.int64([[0, 0], [0, 1], [1, 0]]), labels_values=y,
                sequence_length=length, ctc_merge_repeated=True,
            )
        ),
        normal(5, 2, 4), drawn((3,), lambda rng: rng.permutation(3).astype(np.int32)),
        ints(2, low=4, high=6), xla=False,  # XLA has no such op
        grad=False,  # of the second output it is an error; see the sample "grad"
        max_ops=30,
    ),
    sample("CTCLoss",
        lambda x: raw.CTCLoss(inputs=x, labels_indices=np.int64([[0, 0], [1, 1]]),
        labels_values=[1, 2], sequence_length=[4, 5])[0], normal(5, 2, 4), label="grad", xla=False,
        max_ops=30),
]  # fmt: skip
