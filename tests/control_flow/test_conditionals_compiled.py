"""Conditionals in loops and loops in conditionals under jit_compile, with gradients.

The number of rows is static or unknown, the tape around the map or in the body.
"""

import functools

import numpy as np
import pytest
import tensorflow as tf

import tf_pfor
from tests.cases import case, grid
from tests.comparisons import assert_close, by_row, compare, mapped, value_and_gradient

N = 5
X = tf.constant(np.random.default_rng(0).normal(size=(N, 3)))
K = tf.constant([0, 3, 1, 2, 7])
FLAG = tf.Variable(1.0)
_sine = lambda x: tf.sin(x) * x
_bell = lambda x: tf.tanh(x) * tf.exp(-x * x)
_cosine = lambda x: tf.cos(x) * x


def for_all_rows(x, k):
    for i in tf.range(4):
        x = tf.tanh(x) * tf.sin(x) if i % 2 == 0 else tf.cos(x) * x
    return x


def switched_for_all_rows(x, k):
    for i in tf.range(5):
        ways = [_sine, _bell, _cosine]
        x = tf.switch_case(i % 3, [functools.partial(way, x) for way in ways])
    return x


def by_row_in_one_loop(x, k):
    for _ in tf.range(4):
        x = tf.tanh(x) * tf.sin(x) if x[1] > 0.1 else tf.cos(x) * x
    return x


def by_row_in_a_loop_by_row(x, k):
    for i in tf.range(tf.minimum(k, 6)):
        if x[1] > 0.1:
            x = tf.tanh(x) * tf.sin(x) if i % 2 == 0 else x * x
        else:
            x = tf.cos(x) * x
    return x


def stops_and_skips(x, k):
    s = tf.zeros([], tf.float64)
    for v in x:
        if v > 0.5:
            break
        if v < -0.2:
            continue
        s += v * v
    return x * s


def loop_in_a_branch(x, k):
    if x[0] > 0:
        for _ in tf.range(tf.minimum(k, 6)):
            x = tf.sin(x) * x
    else:
        x = x * x
    return x


PROGRAMS = [
    for_all_rows, switched_for_all_rows, by_row_in_one_loop, by_row_in_a_loop_by_row,
    stops_and_skips, loop_in_a_branch,
]  # fmt: skip
expected = lambda f: value_and_gradient(lambda: by_row(f, X, K), X)


def compiled(run, is_known):
    spec = tf.TensorSpec([N if is_known else None, 3], tf.float64)
    specs = [spec, tf.TensorSpec(spec.shape[:1], tf.int32)]
    return tf.function(run, jit_compile=True, input_signature=specs)(X, K)


@grid(f=PROGRAMS, is_known=[True, False])
def test_a_tape_around_the_map(f, is_known):
    run = lambda x, k: value_and_gradient(lambda: mapped(f, x, k), x)
    assert_close(compiled(run, is_known), expected(f))


@grid(f=PROGRAMS[:-1], is_known=[True, False])
def test_a_tape_in_the_body(f, is_known):
    run = lambda x, k: mapped(lambda *a: value_and_gradient(lambda: f(*a), a[0]), x, k)
    assert_close(compiled(run, is_known), expected(f))


@case(compare, X, function={"jit_compile": True})
def test_a_branch_for_all_rows_with_a_loop_that_writes_an_array(x):
    """A forward pass keeps nothing: one conditional."""
    array = tf.TensorArray(tf.float64, 3, element_shape=[], clear_after_read=False).unstack(x)
    if FLAG > 0.5:
        for i in tf.range(2):
            array = array.write(i, array.read(i + 1) * 2.0)
    else:
        array = array.write(0, x[2])
    return array.stack()


def mask_in_a_branch(x):
    return tf.reduce_sum(tf.boolean_mask(x, x > 0) ** 2) if x[0] > 0 else tf.reduce_min(x) * 2.0


def masks_in_both_branches(x):
    kept = lambda mask: tf.reduce_sum(tf.sin(tf.boolean_mask(x, mask)) ** 2)
    return kept(x > 0.0) if x[0] > 0 else kept(x < 0.2)


def logarithm_of_a_mask(x):
    return tf.reduce_sum(tf.math.log(tf.boolean_mask(x, x > 0))) if x[0] > 0 else x[1]


@pytest.mark.parametrize("body", [mask_in_a_branch, masks_in_both_branches, logarithm_of_a_mask])
@pytest.mark.parametrize("sign", ["some", "none", "all"])
def test_gradients_of_a_mask_in_a_branch(body, sign):
    x = tf.random.stateless_normal([4, 5], [1, 2])
    x = {"some": x, "none": -tf.abs(x), "all": tf.abs(x)}[sign]
    slope = tf_pfor.grad(body)
    found = tf_pfor.vmap(slope, jit_compile=True)(x)
    np.testing.assert_allclose(found, tf.stack([slope(row) for row in x]), rtol=1e-4, atol=1e-5)
