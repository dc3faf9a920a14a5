"""Samples of tf_pfor/converters/control_flow/while_loop.py; tests/control_flow/test_while.py has
the rest.
"""

import tensorflow as tf

from tests.sample import In, ints, normal, sample


def _repeat(x, k):
    return tf.while_loop(lambda t, s: t < k, lambda t, s: (t + 1, tf.tanh(s * 1.5)), (0, x))[1]


def _checked(x, k):
    def body(t, s):
        tf.debugging.assert_greater_equal(k, 0)
        return t + 1, tf.tanh(s * 1.5)

    return tf.while_loop(lambda t, s: t < k, body, (0, x))[1]


_COUNT: In = ints(high=4)

SAMPLES = [
    sample("StatelessWhile", _repeat, normal(2), _COUNT, max_ops=60),
    sample("While", _checked, normal(2), _COUNT, max_ops=60),
]
