"""Features of examples, and the ways in which maps over text and bytes run."""

import tensorflow as tf


def text(*values):
    return tf.train.Feature(bytes_list=tf.train.BytesList(value=values))


def floats(*values):
    return tf.train.Feature(float_list=tf.train.FloatList(value=values))


def ints(*values):
    return tf.train.Feature(int64_list=tf.train.Int64List(value=values))


# The last batch of a data set is smaller.
WAYS = ("eager, few rows", "function", "unknown n, few rows", "dataset")
EXACT = (0.0, 0.0)
