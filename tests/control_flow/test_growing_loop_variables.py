"""Loop variables that grow (``shape_invariants``): gradients in the body, and refusals.

What such a loop leaves is ragged where rows choose how many trips they make (tests/ragged/
test_growing.py). So its gradient in the body carries ragged rows.
"""

import numpy as np
import pytest
import tensorflow as tf

from tests.cases import grid, refuse
from tests.comparisons import assert_close, by_row, compare, gradient_in_body, in_two_maps, mapped

RNG = np.random.default_rng(0)
W = tf.constant(RNG.normal(size=[2, 2]))
X = tf.constant(RNG.normal(size=[3, 1, 2]))
K = tf.constant([1, 3, 2])
SAME = tf.constant([2, 2, 2])
COMPILED = {"jit_compile": True}


def while_k(body, k, s, most=None):
    shapes = (tf.TensorShape([]), tf.TensorShape([None, 2]))
    return tf.while_loop(
        lambda t, _: t < k,
        lambda t, s: (t + 1, body(s)),
        (0, s),
        shape_invariants=shapes,
        maximum_iterations=most,
    )[1]


def appended(k, x, most=None):
    """The appended item depends on all items before."""
    return while_k(lambda s: tf.concat([tf.tanh(s @ W), s[-1:] * s[:1]], 0), k, x, most)


captured = lambda k, x: while_k(lambda s: tf.concat([s, x * 3.0], 0), k, x)
# Could grow, and does not.
still = lambda k, x, most=None: while_k(lambda s: tf.tanh(s @ W) * s, k, x, most)
total = lambda model: lambda k, x: tf.reduce_sum(model(k, x) ** 3)


def check(one, k, x=X, **options):
    assert_close(mapped(one, k, x, **options), by_row(one, k, x))


@grid(k=[SAME * 0, SAME, K], model=[appended, captured])
def test_gradient_in_the_body(model, k):
    check(gradient_in_body(model), k, out_shapes="dense")


def test_gradient_of_an_invariant_trip_count():
    check(gradient_in_body(lambda k, x: appended(2, x)), K)


def test_few_rows():
    check(gradient_in_body(appended), K[1:2], X[:1], out_shapes="dense")
    assert mapped(gradient_in_body(appended), K[:0], X[:0]).shape[0] == 0


@pytest.mark.parametrize("strategy", ["auto", "compact", "mask"])
def test_a_shape_that_stays(strategy):
    check(gradient_in_body(still), K, while_strategy=strategy)
    check(total(still), K, while_strategy=strategy)


def test_rows_that_leave_one_by_one():
    check(total(appended), K)


def test_a_loop_of_which_only_one_result_grows():
    """Trials of the outer trip ask for the vector that may grow first, for the other one later."""
    shapes = (tf.TensorShape([]), tf.TensorShape([None]), tf.TensorShape([2]))

    def inner(t, v, s):
        return t + 1, v * 1.1, tf.sin(s) + tf.reduce_sum(v)

    def outer(t, v, s):
        return t + 1, *tf.while_loop(lambda j, *_: j < 2, inner, (0, v, s), shapes)[1:]

    def one(k, x):
        start = (0, x[0, :1], x[0])
        _, v, s = tf.while_loop(lambda t, *_: t < k, outer, start, shapes)
        return tf.reduce_sum(v) + s

    assert_close(mapped(one, K, X), by_row(one, K, X))


def test_refused_before_it_runs():
    match = "its shape, and while_strategy is 'ma"
    refuse(total(appended), SAME, X, while_strategy="mask", match=match)


def test_two_maps():
    """One map over the pairs: no outer map could convert the compacted rows of an inner one."""
    model, ks = total(appended), tf.stack([SAME, K])
    found = in_two_maps(model, ks, tf.stack([X, -X]))
    np.testing.assert_allclose(found, [mapped(model, SAME, X), mapped(model, K, -X)], rtol=1e-12)


@grid(make=[total, gradient_in_body], k=[SAME, tf.constant(2)])
def test_refused_under_jit_compile(make, k):
    one = lambda i, x: make(lambda k, x: appended(k, x, most=4))(i if k.shape.rank else k, x)
    refuse(one, SAME, X, function=COMPILED, match="its shape, under jit_compile")


def test_a_shape_that_stays_under_jit_compile():
    one = total(lambda k, x: still(k, x, most=4))
    compare(one, K, X, function=COMPILED)
    compare(one, K[None], X[None], maps=2)
