"""Gradients, in the body, of loops in loops whose rows make different numbers of trips."""

import numpy as np
import pytest
import tensorflow as tf

import tf_pfor

RNG = np.random.default_rng(0)
W = tf.Variable(RNG.normal(size=[3, 3]) * 0.5)
INNER = tf.constant([2, 0, 4, 1, 3])
OUTER = tf.constant([1, 3, 2, 0, 2])
X = tf.constant(RNG.normal(size=[5, 3]))


def cell(s):
    return tf.tanh(tf.linalg.matvec(W, s))


def while_in_while(k, m, x, bound=None):
    def outer(t, s):
        inner = tf.while_loop(
            lambda u, r: u < k - t, lambda u, r: (u + 1, cell(r)), (0, s), maximum_iterations=bound
        )
        return t + 1, inner[1] + s

    return tf.while_loop(lambda t, s: t < m, outer, (0, x), maximum_iterations=bound)[1]


def equal_outside(k, m, x, bound=None):
    return while_in_while(k, tf.constant(2), x, bound)


def arrays(k, m, x):
    def outer(t, s):
        array = tf.TensorArray(tf.float64, 5, element_shape=[3])

        def inner(u, r, array):
            return u + 1, cell(r), array.write(u, r)

        _, r, array = tf.while_loop(lambda u, *_: u < k - t, inner, (0, s, array))
        return t + 1, r + tf.reduce_sum(array.stack(), 0)

    return tf.while_loop(lambda t, s: t < m, outer, (0, x))[1]


def three_deep(k, m, x):
    def outer(t, s):
        return t + 1, while_in_while(k - t, m, s)

    return tf.while_loop(lambda t, s: t < 2, outer, (0, x))[1]


def loop_in_branch(k, m, x):
    def outer(t, s):
        def inside():
            return tf.while_loop(lambda u, r: u < k, lambda u, r: (u + 1, cell(r)), (0, s))[1]

        return t + 1, tf.cond(m > t, inside, lambda: s * 2.0)

    return tf.while_loop(lambda t, s: t < 3, outer, (0, x))[1]


def gradients(model, nested_tapes):
    """Under two tapes TensorFlow keeps what second gradients would need, also if nobody asks."""

    def one(k, m, x):
        with tf.GradientTape() as outer:
            if nested_tapes:
                outer.watch(x)
            with tf.GradientTape() as tape:
                tape.watch(x)
                loss = tf.reduce_sum(model(k, m, x) ** 2)
            return tape.gradient(loss, [x, W], unconnected_gradients="zero")

    return one


def mapped(one, n=5, **options):
    return tf_pfor.vectorized_map(
        lambda row: one(*row),
        (INNER[:n], OUTER[:n], X[:n]),
        fallback_to_while_loop=False,
        **options,
    )


def assert_right(found, one, n=5):
    one = tf.function(one)
    expected = [one(INNER[i], OUTER[i], X[i]) for i in range(n)]
    for f, e in zip(found, zip(*expected), strict=True):
        np.testing.assert_allclose(f, tf.stack(e), rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("strategy", ["compact", "mask"])
@pytest.mark.parametrize("nested_tapes", [False, True])
@pytest.mark.parametrize("model", [while_in_while, equal_outside, arrays])
def test_gradient_in_the_body(model, nested_tapes, strategy):
    one = gradients(model, nested_tapes)
    assert_right(mapped(one, while_strategy=strategy), one)


@pytest.mark.parametrize("model", [while_in_while, arrays])
def test_few_rows(model):
    one = gradients(model, False)
    assert_right(mapped(one, 1), one, 1)
    assert [t.shape for t in mapped(one, 0)] == [(0, 3), (0, 3, 3)]


def test_jit_compile_is_refused():
    one = gradients(lambda k, m, x: equal_outside(k, m, x, bound=4), False)
    with pytest.raises(tf_pfor.NotVectorizableError, match="under jit_compile it is not known how"):
        tf.function(lambda: mapped(one), jit_compile=True, autograph=False)()


@pytest.mark.parametrize(
    ("model", "reason"),
    [
        (three_deep, "the elements of a list of lists are wanted as one tensor"),
        (loop_in_branch, "an optional holds a list of which only some rows are active"),
    ],
)
def test_refused(model, reason):
    with pytest.raises(tf_pfor.NotVectorizableError, match=reason):
        mapped(gradients(model, False))
