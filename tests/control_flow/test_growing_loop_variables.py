"""Loop variables that grow (``shape_invariants``): gradients in the body, and refusals.

What such a loop leaves is ragged where rows choose how many trips they make (tests/ragged/
test_growing.py). So its gradient in the body carries ragged rows.
"""

import numpy as np
import pytest
import tensorflow as tf

import tf_pfor
from tests.comparisons import assert_close, by_row, gradient_in_body, in_two_maps, mapped

RNG = np.random.default_rng(0)
W = tf.constant(RNG.normal(size=[2, 2]))
X = tf.constant(RNG.normal(size=[3, 1, 2]))
K = tf.constant([1, 3, 2])
SAME = tf.constant([2, 2, 2])


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


def still(k, x, most=None):
    """Could grow, and does not."""
    return while_k(lambda s: tf.tanh(s @ W) * s, k, x, most)


total = lambda model: lambda k, x: tf.reduce_sum(model(k, x) ** 3)


def check(one, k, x=X, **options):
    assert_close(mapped(one, k, x, **options), by_row(one, k, x))


@pytest.mark.parametrize("model", [appended, captured])
@pytest.mark.parametrize("k", [SAME * 0, SAME, K])
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


def test_refused_before_it_runs():
    with pytest.raises(tf_pfor.NotVectorizableError, match="its shape, and while_strategy is 'ma"):
        mapped(total(appended), SAME, X, while_strategy="mask")


def test_two_maps():
    """One map over the pairs: no outer map could convert the compacted rows of an inner one."""
    model, ks = total(appended), tf.stack([SAME, K])
    found = in_two_maps(model, ks, tf.stack([X, -X]))
    np.testing.assert_allclose(found, [mapped(model, SAME, X), mapped(model, K, -X)], rtol=1e-12)


@pytest.mark.parametrize("k", [SAME, tf.constant(2)])
@pytest.mark.parametrize("make", [total, gradient_in_body])
def test_refused_under_jit_compile(make, k):
    def one(i, x):
        return make(lambda k, x: appended(k, x, most=4))(i if k.shape.rank else k, x)

    run = tf.function(lambda: mapped(one, SAME, X), jit_compile=True, autograph=False)
    with pytest.raises(tf_pfor.NotVectorizableError, match="its shape, under jit_compile"):
        run()


def test_a_shape_that_stays_under_jit_compile():
    one = total(lambda k, x: still(k, x, most=4))
    found = tf.function(lambda: mapped(one, K, X), jit_compile=True, autograph=False)()
    np.testing.assert_allclose(found, mapped(one, K, X), rtol=1e-9)
    np.testing.assert_allclose(in_two_maps(one, K[None], X[None])[0], found, rtol=1e-9)
