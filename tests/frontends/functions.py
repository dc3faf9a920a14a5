"""Functions of one example, for the command line to find."""

import tensorflow as tf

W = tf.Variable([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]])
NUMBER = 3


def linear(x):
    """[k, 3] -> [k, 2]."""
    return tf.nn.relu(x @ W)


def product(x, y):
    return tf.reduce_sum(x * y)


def grows(x):
    """AutoGraph: a loop on a tensor."""
    total = x
    while total < 10.0:
        total = total * 2.0 + 1.0
    return total


def square(i):
    return i * i


def looped(x):
    """Python code: a loop on purpose."""
    return tf.py_function(lambda y: y + 1.0, [x], tf.float32)


def incomplete_beta(x):
    return tf.math.betainc(tf.abs(x) + 1.0, 2.0, 0.4)


def broken(x):
    raise KeyError("a mistake of the user")


class Holder:
    linear = staticmethod(linear)


def leaves(x):
    """Ends the process."""
    raise SystemExit(5)
