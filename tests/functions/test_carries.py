"""``scan``, compared with a Python loop."""

import numpy as np
import pytest
import tensorflow as tf

import tf_pfor
from tests.cases import errors
from tests.comparisons import close
from tf_pfor import ArgumentError, ArgumentTypeError, associative_scan, scan

X = np.random.default_rng(0).normal(size=[3, 5, 2]).astype(np.float32)


def decay(state, x):
    state = 0.5 * state + tf.sin(x)
    return state, (state * 2.0, tf.reduce_sum(state))


def by_hand(x, axis, reverse=False):
    """The last state and both results of ``decay`` along an axis of an array."""
    rows = np.moveaxis(x, axis, 0)
    state, made = np.zeros_like(rows[0]), []
    for row in rows[::-1] if reverse else rows:
        state = 0.5 * state + np.sin(row)
        made.append(state)
    states = np.stack(made[::-1] if reverse else made)
    sums = states.sum(tuple(range(1, states.ndim)))
    return state, np.moveaxis(2 * states, 0, axis), sums


@pytest.mark.parametrize("site", ["eager", "tf.function", "unknown", "jit_compile"])
@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("axis", [0, 1, 2, -1])
def test_axes(axis, reverse, site):
    def run(x):
        def step(state, x):
            state, (doubled, total) = decay(state, x)
            return state, (doubled, total + tf.zeros([2, 2]))

        first = tf.zeros_like(tf.gather(x, 0, axis=axis))
        state, (states, sums) = scan(step, first, x, reverse=reverse, axis=axis)
        return state, states, sums

    specs = [tf.TensorSpec([None, None, 2] if site == "unknown" else [3, 5, 2])]
    if site != "eager":
        run = tf.function(run, jit_compile=site == "jit_compile", input_signature=specs)
    state, states, sums = by_hand(X, axis, reverse)
    sums = np.moveaxis(np.broadcast_to(sums[:, None, None], [len(sums), 2, 2]), 0, axis)
    for found, wanted in zip(run(X), (state, states, sums), strict=True):
        close(found, wanted)


def test_nests_without_rows_and_without_results():
    def step(carry, x):
        return {"i": carry["i"] + 1, "s": carry["s"] + x["a"] * x["b"]}, None

    start = {"i": tf.constant(0), "s": tf.constant(0.0)}
    last, nothing = scan(step, start, {"a": tf.range(4.0), "b": tf.range(4.0)})
    assert nothing is None
    assert (int(last["i"]), float(last["s"])) == (4, 14.0)
    last, powers = scan(lambda c, _: (c * 2, c), tf.constant(1), length=5)
    assert int(last) == 32
    assert powers.numpy().tolist() == [1, 2, 4, 8, 16]
    last, none = scan(lambda c, x: (c + x, c), tf.constant(3.0), tf.zeros([0]))
    assert (float(last), none.shape) == (3.0, [0])


def test_nones_in_nests():
    step = lambda c, x: ((c[0] + x[0], None), {"before": c[0], "none": None})
    last, ys = tf_pfor.scan(step, (0.0, None), (tf.range(3.0), None))
    assert (float(last[0]), last[1], ys["none"]) == (3.0, None, None)
    assert ys["before"].numpy().tolist() == [0.0, 0.0, 1.0]
    for wrong in ((1.0, 2.0), (None, None)):
        with pytest.raises(tf_pfor.ArgumentError, match="another structure than init"):
            tf_pfor.scan(lambda c, x, wrong=wrong: (wrong, None), (0.0, None), tf.range(3.0))


def test_examples_take_each_step_together():
    def one(x, start):
        return scan(decay, start, x)

    start = tf.constant(X[:, 0])
    state, (states, sums) = tf_pfor.vmap(one, fallback="error")(X, start)
    for i in range(3):
        wanted, (more, total) = scan(decay, start[i], X[i])
        close(state[i], wanted)
        close(states[i], more)
        close(sums[i], total)


def test_gradients():
    x, w = tf.constant(X[0]), tf.Variable(0.5)

    def loss(x):
        return tf.reduce_sum(scan(lambda s, v: (w * s + v, tf.square(s)), tf.zeros([2]), x)[1])

    def by_loop(x):
        state, total = tf.zeros([2]), 0.0
        for v in tf.unstack(x):
            total += tf.reduce_sum(tf.square(state))
            state = w * state + v
        return total

    found = []
    for fn in (loss, by_loop):
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = fn(x)
        found.append(tape.gradient(y, [x, w]))
    for a, b in zip(*found, strict=True):
        close(a, b)
    each = tf_pfor.vmap(tf_pfor.grad(loss))(X)
    close(each[0], found[0][0])


def test_python_runs_once_for_each_signature():
    ran = []

    def step(carry, x):
        ran.append(1)
        return carry + x, carry

    for _ in range(3):
        tf.function(lambda: scan(step, 0.0, tf.range(3.0)))()
    assert len(ran) == 3


class Pair(tf.experimental.ExtensionType):
    """Tensors of any shape."""

    a: tf.Tensor
    b: tf.Tensor


def test_extension_types():
    x = tf.constant([1.0, 2.0, 3.0])

    def step(c, e):
        return Pair(c.a + e.a, e.b), Pair(c.a, e.b)

    last, ys = scan(step, Pair(0.0, 0.0), Pair(x, -x))
    close(last.a, 6.0)
    close(ys.a, [0.0, 1.0, 3.0])
    close(ys.b, -x)
    made = associative_scan(lambda p, q: Pair(p.a + q.a, p.b * q.b), Pair(x, x))
    close(made.a, [1.0, 3.0, 6.0])
    close(made.b, [1.0, 2.0, 6.0])


RAGGED = tf.ragged.constant([[1.0, 2.0], [3.0]])


test_wrong_use = errors(
    (lambda: scan(3, 0.0, tf.zeros([2])), ArgumentTypeError, "must be a function"),
    (lambda: scan(decay, 0.0, tf.zeros([2]), axis=0.5), ArgumentTypeError, "axis must be"),
    (lambda: scan(decay, 0.0, tf.zeros([2]), axis=1), ArgumentError, "no axis 1"),
    (lambda: scan(decay, 0.0, X, reverse="no"), ArgumentTypeError, "reverse must be a bool"),
    (lambda: scan(decay, 0.0, {"a": RAGGED}), ArgumentTypeError, "xs has a RaggedTensor"),
    (lambda: scan(decay, 0.0, RAGGED.to_sparse()), ArgumentTypeError, "xs has a SparseTensor"),
    (lambda: scan(lambda c, x: (c, RAGGED), 0.0, X), ArgumentTypeError, "y has a RaggedTensor"),
    (lambda: scan(decay, 0.0), ArgumentError, "needs length"),
    (lambda: scan(decay, [object()], X), ArgumentTypeError, "expected a tensor"),
    (lambda: scan(decay, tf.zeros([3, 2]), X, axis=1), ArgumentError, "no room for axis 1"),
    (lambda: scan(decay, 0.0, length=-1), ArgumentError, "length must be"),
    (lambda: scan(decay, 0.0, tf.zeros([2]), length=3), ArgumentError, "must agree"),
    (lambda: scan(decay, 0.0, (tf.zeros([2]), tf.zeros([3]))), ArgumentError, "must agree"),
    (lambda: scan(lambda c, x: c, 0.0, tf.zeros([2])), ArgumentError, r"\(carry, y\)"),
    (lambda: scan(lambda c, x: ((c, c), x), 0.0, tf.zeros([2])), ArgumentError, "structure"),
    (lambda: scan(lambda c, x: (1, x), 0.0, tf.zeros([2])), ArgumentError, "int32"),
    (
        lambda: scan(lambda c, x: (x, x), 0.0, tf.zeros([2, 3])),
        ArgumentError,
        "the same dtypes",
    ),
)


def test_rows_that_disagree_when_it_runs():
    @tf.function(input_signature=[tf.TensorSpec([None]), tf.TensorSpec([None])])
    def run(a, b):
        return scan(lambda c, x: (c + x[0] * x[1], None), 0.0, (a, b))[0]

    assert float(run(tf.ones([3]), tf.ones([3]))) == 3.0
    with pytest.raises(tf.errors.InvalidArgumentError, match="differ in the number of rows"):
        run(tf.ones([3]), tf.ones([2]))
