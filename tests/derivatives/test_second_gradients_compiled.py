"""Second gradients in the body of loops with a trip count for each row, under jit_compile."""

import numpy as np
import pytest
import tensorflow as tf

import tf_pfor
from tests.cases import case, table
from tests.comparisons import assert_close, by_row, mapped, value_and_gradient
from tf_pfor._tf import _functions

RNG = np.random.RandomState(3)
W = tf.constant(RNG.randn(3, 3) * 0.6)
K = tf.constant([3, 0, 5, 1, 2, 4])
X = tf.constant(RNG.randn(6, 3))
cell = lambda w, s, x: tf.tanh(tf.linalg.matvec(w, s) + x)


def loop(goes_on, most=None, step=None):
    def model(w, k, x):
        def body(t, s):
            return t + 1, cell(w, s, x) if step is None else step(t, s, w, k, x)

        return tf.while_loop(
            lambda t, s: goes_on(t, s, k), body, (0, x), maximum_iterations=most
        )[1]  # fmt: skip

    return model


def lstm(w, k, x):
    def body(t, h, c):
        z = tf.linalg.matvec(w, h) + x
        c = tf.sigmoid(z[:1]) * c + tf.sigmoid(z[1:2]) * tf.tanh(z)
        return t + 1, tf.tanh(c) * tf.sigmoid(z[2:]), c

    start = 0, x, tf.zeros_like(x)
    return tf.while_loop(lambda t, *_: t < k, body, start, maximum_iterations=5)[1]


def reads_steps(w, k, x):
    xs = tf.stack([x, x * 2.0, x * x, tf.sin(x), x])
    return tf.while_loop(
        lambda t, _: t < k, lambda t, s: (t + 1, cell(w, s, xs[t])), (0, x), maximum_iterations=5
    )[1]


def python_for(w, k, x):
    s = x
    for _ in tf.range(k):
        s = cell(w, s, x)
    return s


def python_while(w, k, x):
    s, t = x, 0
    while t < tf.minimum(k, 5):
        s = cell(w, s, x)
        t += 1
    return s


branch = lambda t, s, w, k, x: tf.cond(t < k - 1, lambda: tf.sin(s) * x, lambda: cell(w, s, x))
MODELS = {
    "maximum_iterations": loop(lambda t, s, k: t < k, 5),
    "bound in condition": loop(lambda t, s, k: (t < k) & (t < 100)),
    "ends by value": loop(lambda t, s, k: (t < 9) & (tf.reduce_sum(s * s) > 0.3)),
    "all rows alike": loop(lambda t, s, k: t < 4, 4),
    "branch": loop(lambda t, s, k: t < k, 5, branch),
    "lstm": lstm,
    "reads steps": reads_steps,
    "for": _functions.autographed(python_for),
    "while": _functions.autographed(python_while),
}
WEIGHTS = {"constant": W, "variable": tf.Variable(W)}
total = lambda y: tf.reduce_sum(y * y)


def by_tapes(model, w):
    """A gradient of the gradient, and a gradient penalty by the weights: tape in tape."""

    def one(k, x):
        with tf.GradientTape() as outer:
            outer.watch([x, w])
            y, g = value_and_gradient(lambda: total(model(w, k, x)), x)
            loss = (tf.sqrt(total(g) + 1e-3) - 1.0) ** 2 + y
        return outer.gradient(loss, [x, w], unconnected_gradients="zero")

    return one


def by_gradients(model, w):
    """The same by tf.gradients, where one graph holds all loops."""

    def one(k, x):
        weights = tf.convert_to_tensor(w)
        y = total(model(weights, k, x))
        (g,) = tf.gradients(y, x)
        loss = (tf.sqrt(total(g) + 1e-3) - 1.0) ** 2 + y
        return tf.gradients(loss, [x, weights], unconnected_gradients="zero")

    return one


def of_two_gradients(model, w):
    """Both gradients of one loop read what it kept: their gradients are added."""

    def one(k, x):
        with tf.GradientTape() as outer:
            outer.watch([x, w])
            with tf.GradientTape(persistent=True) as tape:
                tape.watch(x)
                s = model(w, k, x)
                y, z = total(s), tf.reduce_sum(tf.sin(s))
            g, h = tape.gradient(y, x), tape.gradient(z, x)
            loss = total(tf.sin(g)) + tf.reduce_sum(g * h)
        return outer.gradient(loss, [x, w], unconnected_gradients="zero")

    return one


def assert_right(one, n=6, *, unknown=False):
    size = None if unknown else n
    signature = [tf.TensorSpec([size], tf.int32), tf.TensorSpec([size, 3], tf.float64)]
    run = lambda k, x: mapped(one, k, x)
    compiled = tf.function(run, jit_compile=True, autograph=False, input_signature=signature)
    found = compiled(K[:n], X[:n])
    if n:
        assert_close(found, by_row(one, K[:n], X[:n]))
    else:
        assert [t.shape for t in found] == [(0, 3), (0, 3, 3)]


def right_by_tapes(name, weight):
    assert_right(by_tapes(MODELS[name], WEIGHTS[weight]))


def right_of(name, n):
    assert_right(by_tapes(MODELS[name], W), n, unknown=name != "for" or n == 0)


test_table_of_second_gradients = table({
    "by tapes": (right_by_tapes, ["maximum_iterations", "ends by value", "while"], ["constant"]),
    "variables": (right_by_tapes, ["bound in condition", "all rows alike", "for"], ["variable"]),
    "larger bodies": (right_by_tapes, ["branch", "lstm", "reads steps"], WEIGHTS),
    "by gradients": (
        lambda name: assert_right(by_gradients(MODELS[name], W)),
        ["maximum_iterations", "bound in condition"],
    ),
    "lengths": (right_of, ["bound in condition", "for"], [0, 1]),
    "two gradients": (
        lambda name: assert_right(of_two_gradients(MODELS[name], WEIGHTS["variable"])),
        ["bound in condition"],
    ),
})  # fmt: skip


@case(assert_right)
def test_third_gradients(k, x):
    with tf.GradientTape() as tape:
        tape.watch([x, W])
        y = total(by_tapes(MODELS["bound in condition"], W)(k, x)[0])
    return tape.gradient(y, [x, W], unconnected_gradients="zero")


def test_loops_in_loops_are_refused():
    def model(w, k, x):
        def body(t, s):
            s = tf.while_loop(
                lambda u, _: u < 2, lambda u, r: (u + 1, cell(w, r, x)), (0, s),
                maximum_iterations=2,
            )[1]  # fmt: skip
            return t + 1, tf.sin(s)

        return tf.while_loop(lambda t, _: t < k, body, (0, x), maximum_iterations=5)[1]

    with pytest.raises(tf_pfor.NotVectorizableError, match="leave out jit_compile"):
        assert_right(by_tapes(model, W))
