"""Samples of tf_pfor/converters/arrays/slicing.py."""

import numpy as np
import tensorflow as tf

from tests.sample import fixed, ints, normal, sample

raw = tf.raw_ops


def _grad(fn, shape):
    """The gradient of a slice with respect to the sliced tensor."""

    def run(dy, *rest):
        x = tf.zeros(shape)
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = fn(x, *rest)
        return tape.gradient(y, x, output_gradients=dy)

    return run


def _strided(label, fn, *inputs, **options):
    return sample("StridedSlice", fn, *inputs, label=label, **options)


def _strided_grad(label, fn, shape, *inputs, **options):
    return sample("StridedSliceGrad", _grad(fn, shape), *inputs, label=label, **options)


SAMPLES = [
    sample("StridedSlice", lambda x: x[..., tf.newaxis], normal(), label="new_axis_of_scalar"),
    sample("Slice", lambda x: tf.slice(x, [0, 1], [2, 2]), normal(2, 4)),
    sample("Slice", lambda x: tf.slice(x[None], [0, 1, 0], [-1, 1, 2]), normal(2, 4),
           label="folded"),
    sample("Slice", lambda x, b: tf.slice(x, b, [2, 1]), normal(4, 3), ints(2, high=2),
           label="begin", max_ops=22),  # with the checks that nothing is read past an edge
    sample("Slice", lambda x, b: tf.slice(x, [1, b], [-1, 2]), normal(4, 3), ints(high=2),
           label="part"),
    _strided("", lambda x: x[1:, ::-1], normal(3, 4)),
    _strided("all masks", lambda x: x[..., tf.newaxis, 1, :-1], normal(2, 3, 4)),
    _strided("new", lambda x: x[tf.newaxis, :, tf.newaxis], normal(3), max_ops=1),
    _strided("squeeze", lambda x: x[0, :, -1], normal(1, 3, 1), max_ops=1),
    _strided("dynamic", lambda x, i: x[:, i:], normal(3, 4), fixed(1), xla=False),
    _strided("index", lambda x, i: x[i], normal(5, 3), ints(low=-5)),
    _strided("int64", lambda x, i: x[i], normal(5, 3), ints(low=-5, dtype=np.int64)),
    _strided("inner", lambda x, i: x[1:, i], normal(5, 4), ints(low=-4, high=4)),
    _strided("indices", lambda x, i, j: x[i, j], normal(5, 4, 2), ints(low=-5), ints(high=4),
             max_ops=18),
    _strided("apart", lambda x, i, j: x[i, :, j], normal(5, 2, 4), ints(), ints(low=-4, high=4),
             max_ops=18),
    _strided("range", lambda x, i: x[i : i + 2, 0], normal(6, 2), ints(), xla=False, max_ops=18),
    _strided("steps", lambda x, i: x[:, i - 6 : i - 1 : 2, None], normal(2, 6), ints(high=1),
             xla=False, max_ops=18),
    _strided("scalar", lambda x, i: x[i], ints(5), ints()),
    _strided_grad("", lambda x: x[1:, ::-1], [3, 4], normal(2, 4)),
    _strided_grad("new", lambda x: x[None, :, 0], [3, 1], normal(1, 3), max_ops=1),
    _strided_grad("masks", lambda x: x[..., None, 1, :-1], [2, 3, 4], normal(2, 1, 3)),
    _strided_grad("index", lambda x, i: x[i], [5, 3], normal(3), ints(low=-5), max_ops=16),
    _strided_grad("inner", lambda x, i: x[1:, i], [5, 4], normal(4), ints(high=4), max_ops=16),
    _strided_grad("indices", lambda x, i, j: x[i, :, j], [5, 2, 4], normal(2), ints(),
                  ints(high=4), max_ops=22),
    _strided_grad("range", lambda x, i: x[:, i : i + 2], [2, 6], normal(2, 2), ints(),
                  max_ops=22, xla=False),
    sample("TensorStridedSliceUpdate",
        lambda x, v: raw.TensorStridedSliceUpdate(input=x, begin=[0, 1], end=[0, 3], strides=[1, 1],
        value=v, begin_mask=1, end_mask=1), normal(2, 4), normal(2, 2)),
]  # fmt: skip
