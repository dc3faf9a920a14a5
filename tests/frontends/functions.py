"""Functions of one example, for the command line to find."""

import tensorflow as tf

W = tf.Variable([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]])
NUMBER = 3
# [k, 3] -> [k, 2].
linear = lambda x: tf.nn.relu(x @ W)
product = lambda x, y: tf.reduce_sum(x * y)


def grows(x):
    """AutoGraph: a loop on a tensor."""
    total = x
    while total < 10.0:
        total = total * 2.0 + 1.0
    return total


square = lambda i: i * i
# Python code: a loop on purpose.
looped = lambda x: tf.py_function(lambda y: y + 1.0, [x], tf.float32)
incomplete_beta = lambda x: tf.math.betainc(tf.abs(x) + 1.0, 2.0, 0.4)


def broken(x):
    raise KeyError("a mistake of the user")


class Holder:
    linear = staticmethod(linear)


def leaves(x):
    """Ends the process."""
    raise SystemExit(5)
