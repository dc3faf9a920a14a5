"""tf.custom_gradient on rows of different shapes, and gradients across branches."""

import numpy as np
import pytest
import tensorflow as tf

import tf_pfor
from tests.comparisons import flat, gradient_of
from tests.ways import table_of

X = tf.random.stateless_normal([4, 5, 3], [1, 2])
LENGTHS = tf.constant([4, 2, 0, 5])
W = tf.random.stateless_normal([3, 3], [1, 3])


@tf.custom_gradient
def clipped(x):
    return x * 2.0, lambda dy: tf.clip_by_value(dy, -0.5, 0.5)


@tf.custom_gradient
def of_small_norm(x):
    return x * 1.0, lambda dy: tf.clip_by_norm(dy, 0.5)


@tf.custom_gradient
def of_two(a, b):
    return a * b, lambda dy: (tf.clip_by_value(dy * b, -0.5, 0.5), dy * a * 3.0)


PROGRAMS = {
    "clipped": clipped,
    "of small norm": of_small_norm,
    "of two": lambda x: of_two(x, tf.tanh(x)),
    "recomputed": lambda x: tf.recompute_grad(lambda y: tf.sin(y) * y)(x),
    "reduced": lambda x: tf.reduce_sum(clipped(x) ** 2, 0),
    "silu": lambda x: tf.nn.silu(x @ W),
    "straight through": lambda x: tf.grad_pass_through(tf.round)(x) * 2.0,
    "twice": lambda x: clipped(clipped(x)),
}


def of_cut(function):
    return lambda x, k: function(x[:k])


def in_a_loop(function):
    """A stride of the row has no rule: all that reads its result is copied into the loop."""

    def body(x, k):
        made = function(tf.sin(x[:k])[:: k // 2 + 1])
        return tf.reduce_sum(tf.sin(made) * tf.cast(tf.range(3), tf.float32))

    return body


@tf.custom_gradient
def of_a_constant(x):
    return x * 1.0, lambda dy: dy * W[0] + x


def of_integers(n):
    """They are not divided by padding."""
    return tf.range(n)[:, None] // (tf.range(n)[None] + 1)


def no_texts(s):
    return tf.concat([s[None], tf.zeros([0], tf.string)], 0)


CHOSEN = tf.Variable(True)
LOOPED = {
    f"{k} in a loop": in_a_loop(f) for k, f in (*PROGRAMS.items(), ("constant", of_a_constant))
}
ROWS = tf.RaggedTensor.from_tensor(X, lengths=LENGTHS)
OTHERS = {
    "of ragged elements": (clipped, ROWS),
    "results of other shapes": lambda x, k: tf.nn.lrn(clipped(x[:k])[None, None])[0, 0],
    "a branch for all rows": lambda x, k: tf.cond(
        CHOSEN, lambda: x[:k] * 3.0, lambda: tf.reverse(x[:k], [0])),
    "of integers": (of_integers, tf.constant([0, 2, 3])),
    "no texts": (no_texts, tf.constant(["a", "b"])),
}  # fmt: skip
AROUND = ["around", "function, around"]
test_table_of_custom_gradients = table_of(
    {**{name: of_cut(f) for name, f in PROGRAMS.items()}, **LOOPED, **OTHERS},
    X, LENGTHS, ways=["eager", *AROUND], only={"eager": ["of integers", "no texts"]},
    but={
        "around": [*LOOPED, "of integers", "no texts"],
        "function, around": [k for k in OTHERS if k != "of ragged elements"],
    },
    looped=dict.fromkeys(AROUND, [*LOOPED, *OTHERS]), tolerance=(1e-4, 1e-5),
)  # fmt: skip


def gradient(run):
    """The gradient of the sum of sines of a function of all rows, with respect to the rows."""
    return gradient_of(lambda: tf.reduce_sum(tf.sin(flat(run()))), X)


def second(run):
    return gradient_of(lambda: tf.reduce_sum(tf.sin(gradient(run))), X)


def looped_twice(function):
    def body(e):
        return tf.reduce_sum(function(tf.sin(e[0][: e[1]])[:: e[1] // 2 + 1]) ** 2)

    def mapped():
        return tf_pfor.vectorized_map(body, (X, LENGTHS), warn=False)

    run = tf.function(lambda: second(mapped), autograph=False)
    wanted = second(lambda: [body(row) for row in zip(tf.unstack(X), tf.unstack(LENGTHS))])
    return run, wanted


def test_second_derivatives_of_a_linear_gradient_in_a_loop():
    run, wanted = looped_twice(tf.custom_gradient(lambda x: (x * 1.0, lambda dy: dy * W[0])))
    np.testing.assert_allclose(run(), wanted, rtol=1e-4, atol=1e-4)


def test_second_derivatives_of_another_gradient_in_a_loop_are_refused():
    """It would be clipped in parts, of which the sum is another one."""
    run, _ = looped_twice(clipped)
    with pytest.raises(tf_pfor.NotVectorizableError, match="has no second derivative"):
        run()


def test_a_gradient_that_reads_what_the_loop_does_not_have():
    def body(e):
        far = tf.random.uniform([])

        @tf.custom_gradient
        def scaled(x):
            return x * 1.0, lambda dy: dy * far

        return tf.reduce_sum(scaled(tf.sin(e[0][: e[1]])[:: e[1] // 2 + 1]) ** 2)

    run = tf.function(
        lambda: gradient(lambda: tf_pfor.vectorized_map(body, (X, LENGTHS), warn=False)),
        autograph=False,
    )
    with pytest.raises(tf_pfor.NotVectorizableError, match="made outside of that loop"):
        run()


PADDED = {"clipped": clipped, "of two": PROGRAMS["of two"]}


def slope(function):
    """A derivative that the body takes itself."""

    def body(x):
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = tf.reduce_sum(tf.sin(function(x)) ** 2)
        return tape.gradient(y, x)

    return body


def test_a_map_in_a_map_of_ragged_rows_of_ragged_rows(recwarn):
    rows = tf.ragged.constant([[[1.0, 2.0], [3.0]], [[], [4.0, 5.0, 6.0]]], tf.float32)
    scale, body = tf.constant(1.5), slope(clipped)
    each = lambda x: body(x * scale)
    inner = lambda row: tf_pfor.vectorized_map(each, row)
    with tf.GradientTape(persistent=True) as tape:
        tape.watch(scale)
        found = tf_pfor.vectorized_map(inner, rows).flat_values
        wanted = tf.concat([each(x) for row in rows for x in row], 0)
    np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-5)
    slopes = [tape.gradient(y, scale) for y in (found, wanted)]
    np.testing.assert_allclose(*slopes, rtol=1e-4, atol=1e-5)
    assert not [w for w in recwarn if issubclass(w.category, tf_pfor.FallbackWarning)]


@pytest.mark.parametrize("name", PADDED)
def test_under_xla(name):
    body = lambda x, k: tf.reduce_sum(tf.sin(PADDED[name](x[:k])) ** 2)
    run = lambda: tf_pfor.vmap(body, jit_compile=True)(X, LENGTHS)
    one_by_one = lambda: tf.stack([body(*row) for row in zip(X, LENGTHS)])
    np.testing.assert_allclose(run(), one_by_one(), rtol=1e-4, atol=1e-5)
    found, wanted = (gradient_of(lambda f=f: tf.reduce_sum(f()), X) for f in (run, one_by_one))
    np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-5)
