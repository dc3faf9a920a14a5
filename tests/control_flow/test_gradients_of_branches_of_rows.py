"""Gradients that a body takes of branches that read or make rows of different lengths."""

import numpy as np
import pytest
import tensorflow as tf

import tf_pfor
from tests.cases import grid
from tests.comparisons import compare_around, gradient_of, mapped, strict_map

LENGTHS = [3, 1, 2, 4, 1]
FLAT = tf.random.stateless_uniform([sum(LENGTHS), 4], [1, 2], -1.0, 1.0)
ROWS = tf.RaggedTensor.from_row_lengths(FLAT, LENGTHS)
W = tf.random.stateless_normal([4, 3], [1, 4])
total = lambda x: tf.reduce_sum(x) + 0.1


def either(x):
    return tf.cond(
        total(x) > 0.0, lambda: tf.reduce_sum(x**2), lambda: tf.reduce_sum(tf.sin(x) * x)
    )


def layer(x):
    return tf.cond(
        total(x) > 0.0, lambda: tf.reduce_sum(tf.tanh(x @ W)), lambda: tf.reduce_sum(tf.exp(x @ W))
    )


def of_rows(x):
    y = tf.cond(total(x) > 0.0, lambda: tf.tanh(x), lambda: tf.sin(x) * x)
    return tf.reduce_sum(y * y)


def of_other_lengths(x):
    y = tf.cond(total(x) > 0.0, lambda: x**2, lambda: tf.sin(x[1:]) * 3.0)
    return tf.reduce_sum(y * y)


def selected(x):
    def positive():
        y = tf.boolean_mask(x, x[:, 0] > 0.0)
        return tf.reduce_sum(tf.sin(y) * y**2)

    return tf.cond(total(x) > 0.0, positive, lambda: tf.reduce_max(tf.exp(x)))


def softmaxed(x):
    return tf.cond(
        total(x) > 0.0,
        lambda: tf.reduce_sum(tf.nn.softmax(x, 0) ** 2),
        lambda: tf.reduce_sum(tf.matmul(x, x, transpose_b=True) ** 2),
    )


def choice(x):
    which = tf.cast(tf.abs(x[0, 0]) * 100.0, tf.int32) % 3
    branches = [
        lambda: tf.reduce_sum(tf.exp(x)),
        lambda: x[0, 0] ** 2,
        lambda: tf.reduce_sum(tf.concat([x, x[:1]], 0) ** 3),
    ]
    return tf.switch_case(which, branches)


def nested(x):
    y = tf.sin(x)
    if total(x) > 0.3:
        if x[0, 0] > 0.0:
            loss = tf.reduce_sum(tf.exp(y * x))
        else:
            loss = tf.reduce_sum(tf.tanh(y)) * x[-1, 0]
    elif total(x) > -0.3:
        loss = tf.reduce_sum(tf.exp(y[1:] * x[1:]))
    else:
        loss = tf.reduce_sum(y**3)
    return loss


def loop_inside(x):
    y = x
    if total(x) > 0.0:
        for _ in tf.range(2):
            y = tf.nn.softmax(y, 0) * x
    return tf.reduce_sum(y * y)


def own_trips_inside(x):
    y = x
    if total(x) > 0.0:
        for _ in tf.range(tf.cast(tf.abs(x[0, 0]) * 100.0, tf.int32) % 3):
            y = tf.tanh(y) * x
    return tf.reduce_sum(y * y)


def shared_predicate(x):
    return tf.cond(
        tf.reduce_sum(W) > 0.0, lambda: tf.reduce_sum(tf.exp(x)), lambda: tf.reduce_sum(tf.sin(x))
    )


def of_shapes(x):
    wide = lambda: tf.reduce_sum(tf.broadcast_to(tf.reduce_mean(x, 0), tf.shape(x)) * x)
    return tf.cond(total(x) > 0.0, wide, lambda: tf.reduce_mean(tf.square(x)))


PROGRAMS = {
    f.__name__: f
    for f in (
        either, layer, of_rows, of_other_lengths, selected, softmaxed, choice, nested,
        loop_inside, own_trips_inside, shared_predicate, of_shapes,
    )
}  # fmt: skip


def gradient(name):
    row = lambda x: gradient_of(lambda: PROGRAMS[name](x), x)
    return row


mapped = lambda name, elems, **options: strict_map(gradient(name), elems, **options)


def looped(name, rows=ROWS):
    one = tf.function(gradient(name), input_signature=[tf.TensorSpec([None, 4])])
    return tf.concat([one(r) for r in rows], 0)


@grid(name=PROGRAMS, form=["ragged", "cut", "chunks", "one row", "in a map", "unknown n"])
def test_values(name, form):
    row, want = gradient(name), looped(name)
    run = lambda x: mapped(name, x)
    if form == "ragged":
        found = run(ROWS)
    elif form == "cut":
        elems = (ROWS.to_tensor(), tf.constant(LENGTHS))
        found = strict_map(lambda e: row(e[0][: e[1]]), elems)
    elif form == "chunks":
        found = mapped(name, ROWS, chunk_size=3)
    elif form == "one row":
        found, want = run(ROWS[:1]), want[:3]
    elif form == "in a map":
        outer = tf.RaggedTensor.from_row_lengths(ROWS, [2, 0, 3])
        # Slices in branches of an inner map over rows run in a loop.
        found = tf_pfor.vectorized_map(lambda rows: run(rows), outer, warn=False)
    else:
        spec = tf.RaggedTensorSpec([None, None, 4], tf.float32, 1)
        found = tf.function(run, input_signature=[spec])(ROWS)
    np.testing.assert_allclose(found.flat_values, want, rtol=2e-5, atol=1e-6)


@pytest.mark.parametrize("name", PROGRAMS)
def test_no_rows_and_rows_of_one_branch(name):
    assert mapped(name, ROWS[:0]).shape[0] == 0
    same = tf.RaggedTensor.from_row_lengths(tf.abs(FLAT), LENGTHS)
    np.testing.assert_allclose(
        mapped(name, same).flat_values, looped(name, same), rtol=2e-5, atol=1e-6
    )


@pytest.mark.parametrize("name", PROGRAMS)
def test_gradients_around(name):
    compare_around(gradient(name), ROWS, rtol=2e-4, atol=1e-5)
