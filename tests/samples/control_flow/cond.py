"""Samples of tf_pfor/converters/control_flow/cond.py; tests/control_flow/test_cond.py has the
rest.
"""

import tensorflow as tf

from tests.sample import bools, ints, normal, sample


def _checked(x):
    tf.debugging.assert_all_finite(x, "x")
    return tf.exp(x)


SAMPLES = [
    sample("Case", lambda k, x: tf.switch_case(k,
        [lambda: _checked(x), lambda: x * x, lambda: tf.sin(x)]), ints(high=4), normal(2),
        max_ops=60),
    sample("If", lambda p, x: tf.cond(p, lambda: _checked(x), lambda: x * x), bools(), normal(2),
           max_ops=40),
    sample("StatelessCase",
        lambda k, x: tf.switch_case(k, [lambda: tf.exp(x), lambda: x * x, lambda: tf.sin(x)]),
        ints(high=4), normal(2), max_ops=60),
    sample("StatelessIf", lambda p, x: tf.cond(p, lambda: tf.exp(x), lambda: x * x), bools(),
           normal(2), max_ops=40),
    sample("StatelessIf", lambda p, x: tf.cond(p, lambda: x + 1.0, lambda: -x), bools(), normal(2),
           label="linear"),
]  # fmt: skip
