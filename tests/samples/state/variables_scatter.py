"""Samples of tf_pfor/converters/state/variables_scatter.py: that it converts everywhere;
test_state.py has what becomes of the state."""

import tensorflow as tf

from tests.sample import ints, normal, sample

r = tf.raw_ops
TARGET = tf.Variable(tf.ones([5, 2]))


def _scatter(op_type):
    def body(i, x):
        getattr(r, op_type)(resource=TARGET.handle, indices=i, updates=x)
        return x + tf.cast(tf.reduce_sum(i), tf.float32)

    return body


def _scatter_nd(op_type):
    def body(i, x):
        getattr(r, op_type)(ref=TARGET.handle, indices=i, updates=x)
        return x + tf.cast(tf.reduce_sum(i), tf.float32)

    return body


def _same_value(i, x):
    r.ResourceScatterUpdate(resource=TARGET.handle, indices=i, updates=3.0)
    return x + tf.cast(i, tf.float32)


def _same_value_nd(i, x):
    r.ResourceScatterNdUpdate(ref=TARGET.handle, indices=i, updates=[[3.0, 4.0]])
    return x + tf.cast(tf.reduce_sum(i), tf.float32)


SAMPLES = [
    *(sample(op_type, _scatter(op_type), ints(3, high=5), normal(3, 2))
        for op_type in ("ResourceScatterAdd", "ResourceScatterDiv", "ResourceScatterMax",
        "ResourceScatterMin", "ResourceScatterMul", "ResourceScatterSub")),
    *(sample(op_type, _scatter(op_type), ints(3, high=5), normal(), label="scalar")
        for op_type in ("ResourceScatterAdd", "ResourceScatterMax")),
    *(
        # XLA does not compile scatters of maxima and minima.
        sample(
            op_type,
            _scatter_nd(op_type),
            ints(3, 1, high=5),
            normal(3, 2),
            xla=not op_type.endswith(("Max", "Min")),
        )
        for op_type in (
            "ResourceScatterNdAdd",
            "ResourceScatterNdMax",
            "ResourceScatterNdMin",
            "ResourceScatterNdSub",
        )
    ),
    # Different values may not meet in one row: test_state.py.
    sample("ResourceScatterNdUpdate", _same_value_nd, ints(1, 1, high=5), normal(2), unknown=False),
    sample("ResourceScatterUpdate", _same_value, ints(high=5), normal(2), unknown=False),
]  # fmt: skip
