"""Rows whose rank is known only when it runs: ranks are aligned then."""

import tensorflow as tf

import tf_pfor
from tests.comparisons import gradient_of
from tests.ways import table_of

C = tf.constant([1.0, 2.0, 3.0])


def gradient(x, y):
    return gradient_of(lambda: tf.reduce_sum(tf.tanh(x * y) + x * C), [x, y])


def jacobian(x, y):
    return tf_pfor.jacrev(lambda a: tf.reduce_sum(a * a * y))(x)


BODIES = {
    "product": lambda x, y: x * y,
    "closure": lambda x, y: (x + C) * y - 1.0,
    "compared": lambda x, y: tf.where(x > y, x * y, tf.zeros_like(x)),
    "gradient": gradient,
    "jacobian": jacobian,
    "filled": lambda x, y: tf.fill(tf.shape(x), tf.reduce_sum(y)),
    "broadcast": lambda x, y: tf.broadcast_to(y, tf.shape(x)),
}
SHAPES = {"scalars": ([2, 3], []), "vectors": ([2, 3], [3]), "same": ([3], [3]),
          "of more axes": ([4, 1, 3], [2, 3])}  # fmt: skip
CASES = {
    f"{name}, {kind}": (
        body, tuple(tf.random.stateless_normal([3, *s], [1, k]) for k, s in enumerate(shapes)))
    for name, body in BODIES.items()
    for kind, shapes in SHAPES.items()
    # The row itself does not broadcast.
    if not (name in ("broadcast", "compared") and kind == "of more axes")
}  # fmt: skip
test_table_of_unknown_ranks = table_of(
    CASES, ways=["unknown, few rows", "compiled, unknown, few rows"],
    specs=(tf.TensorSpec(None), tf.TensorSpec(None)),
)  # fmt: skip
