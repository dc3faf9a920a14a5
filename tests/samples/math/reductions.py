"""Samples of tf_pfor/converters/math/reductions.py."""

import numpy as np
import tensorflow as tf

from tests.sample import bools, fixed, ints, normal, sample

X = normal(2, 3, 4)


def dynamic(x, axis):
    """A sum over an axis that is not known before running."""
    return tf.reduce_sum(x, axis, keepdims=True)


def _own_axis(first, second=None, name="axis"):
    """An axis and what to reduce; of one tensor alone the axis depends on it."""
    if second is not None:
        return {"input": second, name: first}
    is_high = first[0, 0] if first.dtype == tf.bool else first[0, 0] > 0
    return {"input": first, name: tf.cast(is_high, tf.int32)}


SAMPLES = [
    sample("Sum", lambda x: tf.reduce_sum(x, [0, -1]), X),
    sample("Sum", lambda x: tf.reduce_sum(x, []), X, label="no axes"),
    sample("Sum", tf.reduce_sum, X, label="all axes"),
    sample("Sum", tf.reduce_sum, normal(), label="scalar"),
    sample("Sum", lambda x: tf.reduce_sum(x, 1), normal(2, 0), label="empty"),
    sample("Sum", lambda x: tf.reduce_sum(x, [0, 2, 4]), normal(2, 1, 2, 1, 2, 2), label="rank 6"),
    sample("Sum", dynamic, X, fixed(np.int32([0, -1])), label="dynamic axis", xla=False),
    sample("Sum", lambda x: tf.reduce_sum(x, [-1]), X, label="negative vector"),
    sample("Sum", lambda x: tf.reduce_sum(x, 0), normal(3, dtype=np.complex64), label="complex"),
    sample("Mean", lambda x: tf.reduce_mean(x, 1, keepdims=True), X),
    sample(
        "Mean",
        lambda x: tf.reduce_mean(x, -1),
        normal(2, 3, dtype=np.float16),
        label="half",
        rtol=1e-2,  # three digits
        atol=1e-2,
    ),
    sample("Max", lambda x: tf.reduce_max(x, -1), X),
    sample("Min", lambda x: tf.reduce_min(x, [1], keepdims=True), X),
    sample("Max", lambda x: tf.reduce_max(x, 0), ints(3, 2, dtype=np.int64), label="int64"),
    sample("Prod", lambda x: tf.reduce_prod(x, tf.constant([0, 2], tf.int64)), X),
    sample("All", lambda x: tf.reduce_all(x, 0), bools(2, 3), grad=False),
    sample("Any", lambda x: tf.reduce_any(x, 1), bools(2, 3), grad=False),
    sample("EuclideanNorm", lambda x: tf.math.reduce_euclidean_norm(x, [1, 2]), X, xla=False),
    sample("ArgMax", lambda x: tf.argmax(x, 0), X, grad=False),
    sample("ArgMin", lambda x: tf.argmin(x, -1, tf.int32), X, grad=False),
    sample("ArgMax", lambda x: tf.argmax(x, 2), normal(1, 2, 3, 1, 2, 1, 2), label="rank 7",
        grad=False),
    *[sample(op, lambda x, fn=fn: fn(x, 1), X, label=label)
        for label, options in (("", {}),
        ("exclusive reverse", {"exclusive": True, "reverse": True}))
        for op, fn in (("Cumsum", lambda x, a, o=options: tf.cumsum(x, a, **o)),
        ("Cumprod", lambda x, a, o=options: tf.math.cumprod(x, a, **o)),
        ("CumulativeLogsumexp", lambda x, a, o=options: tf.math.cumulative_logsumexp(x, a, **o)))],
    sample("Cumsum", lambda x: tf.cumsum(x, -1), X, label="negative"),
    *[sample(name, lambda *args, name=name, more=more: getattr(tf.raw_ops, name)(**_own_axis(*args),
        **more), *inputs, label=f"own-axis-{label}", max_ops=40, xla=False)
        for name, draw, more in (("All", bools, {"keep_dims": False}), ("Any", bools, {}),
        ("EuclideanNorm", normal, {}), ("Max", normal, {}), ("Mean", normal, {}),
        ("Min", normal, {}), ("Prod", normal, {}), ("Sum", normal, {}))
        for label, inputs in (("both", (draw(3, 3),)),
        ("axis", (ints(low=-2, high=2), draw(3, 3).fixed)))],
    *[sample(name, lambda *args, name=name: getattr(tf.raw_ops,
        name)(**_own_axis(*args, name="dimension")), *inputs, label=f"own-axis-{label}", max_ops=40,
        xla=False) for name in ("ArgMax", "ArgMin")
        for label, inputs in (("both", (normal(3, 3),)),
        ("axis", (ints(low=-2, high=2), normal(3, 3).fixed)))],
    *[sample(name, lambda x, a, name=name: getattr(tf.raw_ops, name)(x=x, axis=a, exclusive=True,
        reverse=True), normal(2, 2, 2), ints(low=-3, high=3), label="own-axis", max_ops=40,
        xla=False) for name in ("Cumprod", "Cumsum", "CumulativeLogsumexp")],
]  # fmt: skip
