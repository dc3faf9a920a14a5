"""tf.custom_gradient on rows of different shapes, and gradients across branches."""

import numpy as np
import pytest
import tensorflow as tf

import tf_pfor
from tests.comparisons import gradient_of

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


def gradient(run):
    """The gradient of the sum of sines of a function of all rows, with respect to the rows."""
    with tf.GradientTape() as tape:
        tape.watch(X)
        made = run()
        parts = made if isinstance(made, list) else [made]
        flat = [p.flat_values if isinstance(p, tf.RaggedTensor) else p for p in parts]
        total = tf.add_n([tf.reduce_sum(tf.sin(p)) for p in flat])
    return tape.gradient(total, X)


def cut(e):
    return e[0][: e[1]]


def by_rows(body):
    return gradient(lambda: [body(row) for row in zip(tf.unstack(X), tf.unstack(LENGTHS))])


@pytest.mark.parametrize("in_function", [False, True])
@pytest.mark.parametrize("name", PROGRAMS)
def test_a_tape_around(name, in_function):
    def body(e):
        return PROGRAMS[name](cut(e))

    def run():
        return gradient(lambda: tf_pfor.vectorized_map(body, (X, LENGTHS), fallback="error"))

    found = tf.function(run, autograph=False)() if in_function else run()
    np.testing.assert_allclose(found, by_rows(body), rtol=1e-4, atol=1e-5)


def test_ragged_elements():
    rows = tf.RaggedTensor.from_tensor(X, lengths=LENGTHS)
    values = rows.values
    with tf.GradientTape() as tape:
        tape.watch(values)
        made = tf_pfor.vectorized_map(clipped, rows.with_values(values), fallback="error")
        total = tf.reduce_sum(made.flat_values**2)
    np.testing.assert_allclose(tape.gradient(total, values), np.clip(4 * values, -0.5, 0.5))


@tf.custom_gradient
def of_a_constant(x):
    return x * 1.0, lambda dy: dy * W[0] + x


LOOPED = {**PROGRAMS, "of a constant": of_a_constant}


@pytest.mark.parametrize("name", sorted(LOOPED))
def test_copies_in_a_loop_have_the_same_gradient(name):
    """A stride of the row has no rule: all that reads its result is copied into the loop."""

    def body(e):
        made = LOOPED[name](tf.sin(cut(e))[:: e[1] // 2 + 1])
        return tf.reduce_sum(tf.sin(made) * tf.cast(tf.range(3), tf.float32))

    run = tf.function(
        lambda: gradient(lambda: tf_pfor.vectorized_map(body, (X, LENGTHS), warn=False)),
        autograph=False,
    )
    np.testing.assert_allclose(run(), by_rows(body), rtol=1e-4, atol=1e-5)


def test_a_copy_whose_results_differ_in_shape():
    def body(e):
        return tf.nn.lrn(clipped(cut(e))[None, None])[0, 0]

    found = gradient(lambda: tf_pfor.vectorized_map(body, (X, LENGTHS), warn=False))
    np.testing.assert_allclose(found, by_rows(body), rtol=1e-4, atol=1e-5)


def second(run):
    return gradient_of(lambda: tf.reduce_sum(tf.sin(gradient(run))), X)


def looped_twice(function):
    def body(e):
        return tf.reduce_sum(function(tf.sin(cut(e))[:: e[1] // 2 + 1]) ** 2)

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

        return tf.reduce_sum(scaled(tf.sin(cut(e))[:: e[1] // 2 + 1]) ** 2)

    run = tf.function(
        lambda: gradient(lambda: tf_pfor.vectorized_map(body, (X, LENGTHS), warn=False)),
        autograph=False,
    )
    with pytest.raises(tf_pfor.NotVectorizableError, match="made outside of that loop"):
        run()


def test_a_branch_for_all_rows():
    chosen = tf.Variable(True)

    def body(e):
        x = cut(e)
        return tf.cond(chosen, lambda: x * 3.0, lambda: tf.reverse(x, [0]))

    found = gradient(lambda: tf_pfor.vectorized_map(body, (X, LENGTHS)))
    np.testing.assert_allclose(found, by_rows(body), rtol=1e-4, atol=1e-5)


def test_integers_are_not_divided_by_padding():
    def body(n):
        return tf.range(n)[:, None] // (tf.range(n)[None] + 1)

    found = tf_pfor.vectorized_map(body, tf.constant([0, 2, 3]), fallback="error")
    for got, n in zip(found, [0, 2, 3], strict=True):
        np.testing.assert_array_equal(got.to_tensor(shape=[n, n]), body(n))


def test_no_texts():
    def body(s):
        return tf.concat([s[None], tf.zeros([0], tf.string)], 0)

    found = tf_pfor.vectorized_map(body, tf.constant(["a", "b"]))
    assert found.numpy().tolist() == [[b"a"], [b"b"]]
