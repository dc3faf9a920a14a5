"""Bodies with AutoGraph, closures, variables, models, custom gradients, calls and maps."""

import keras
import numpy as np
import pytest
import tensorflow as tf

import tf_pfor
from tests.cases import case
from tests.comparisons import gradient_of, pairwise, value_and_gradient


def rows(n, *inner, seed=0):
    return np.random.default_rng(seed).normal(size=[n, *inner]).astype(np.float32)


def check(fn, *elems, rtol=1e-5, atol=1e-5, fallback=False):
    """``vectorized_map`` equals a Python loop, eagerly and in tf.function."""
    tensors = tuple(tf.constant(e) for e in elems)

    def run(*given):
        return tf_pfor.vectorized_map(lambda e: fn(*e), given, fallback_to_while_loop=fallback)

    one = tf.function(fn)
    expected = [tf.nest.flatten(one(*[t[r] for t in tensors])) for r in range(len(elems[0]))]
    for found in (run(*tensors), tf.function(run)(*tensors)):
        found = tf.nest.flatten(found)
        pairwise(np.testing.assert_allclose, found, zip(*expected), rtol=rtol, atol=atol)


# -- Python in the body ----------------------------------------------------------------------------


@case(check, rows(4, 3))
def test_python_loops_and_conditions(x):
    total = tf.zeros_like(x)
    for k in range(3):
        if k % 2 == 0:
            total = total + x * float(k)
    return total


@case(check, rows(4, 3))
def test_autograph_turns_a_loop_over_a_range_into_a_while(x):
    total = tf.zeros_like(x)
    for k in tf.range(3):
        total += x * tf.cast(k, x.dtype)
    return total


@case(check, rows(6, 3))
def test_autograph_turns_an_if_into_a_cond(x):
    if tf.reduce_sum(x) > 0.0:
        y = x * 2.0
    else:
        y = -x
    return y


def test_a_decorated_body():
    check(tf.function(lambda x: tf.tanh(x) + 1.0), rows(3, 2))
    check(tf.function(lambda x: tf.tanh(x) + 1.0, jit_compile=True), rows(3, 2))


def test_functions_called_in_the_body():
    w = tf.Variable(rows(3, 3))
    inner = tf.function(lambda x: tf.linalg.matvec(w, x))
    compiled = tf.function(lambda x: tf.sin(x) * 2.0, jit_compile=True)
    check(lambda x: inner(x) + compiled(x) + inner(x + 1.0), rows(4, 3))


# -- Closures --------------------------------------------------------------------------------------


def test_closures_over_tensors_and_variables():
    c, v = tf.constant(rows(3, seed=1)), tf.Variable(rows(3, seed=2))
    check(lambda x: x * c + v, rows(4, 3))
    v.assign_add([1.0, 1.0, 1.0])
    check(lambda x: x * c + v, rows(4, 3))


def test_closures_over_tensors_of_an_outer_graph():
    def run(a):
        scale = tf.reduce_max(a)
        return tf_pfor.vectorized_map(lambda r: r / scale, a)

    x = rows(4, 3)
    np.testing.assert_allclose(tf.function(run)(tf.constant(x)), x / x.max(), rtol=1e-5)


def test_a_variable_made_on_the_first_call():
    made = []

    def fn(x):
        if not made:
            made.append(tf.Variable([2.0, 3.0]))
        return x * made[0]

    x = rows(4, 2)
    for _ in range(2):
        np.testing.assert_allclose(
            tf_pfor.vectorized_map(fn, tf.constant(x)), x * [2, 3], rtol=1e-6
        )
    assert len(made) == 1


def test_a_keras_model_that_is_built_in_the_body():
    model = keras.Sequential([keras.layers.Dense(3, "tanh"), keras.layers.Dense(2)])
    x = rows(4, 5)
    found = tf_pfor.vectorized_map(lambda r: model(r[None])[0], tf.constant(x))
    np.testing.assert_allclose(found, model(x), rtol=1e-5, atol=1e-5)


def test_a_module():
    class Affine(tf.Module):
        def __init__(self):
            self.w = tf.Variable(rows(3, 2))
            self.b = tf.Variable(rows(2))

        @tf.function
        def __call__(self, x):
            return tf.linalg.matvec(self.w, x, transpose_a=True) + self.b

    check(Affine(), rows(4, 3))


def keras_models():
    layers = keras.layers
    text = keras.Input([5])
    attended = layers.Dense(6)(text[..., None])
    attended = layers.MultiHeadAttention(2, 3)(attended, attended)
    attended = layers.LayerNormalization()(attended)
    return {
        "dense": keras.Sequential([keras.Input([5]), layers.Dense(4, "relu"), layers.Dense(2)]),
        "conv": keras.Sequential(
            [
                keras.Input([6, 6, 2]),
                layers.Conv2D(3, 3, padding="same", activation="relu"),
                layers.BatchNormalization(),
                layers.MaxPooling2D(),
                layers.Flatten(),
                layers.Dense(2),
            ]
        ),
        "attention": keras.Model(text, layers.GlobalAveragePooling1D()(attended)),
    }


@pytest.mark.parametrize("name", ["dense", "conv", "attention"])
def test_keras_models(name):
    keras.utils.set_random_seed(0)
    model = keras_models()[name]
    x = rows(4, *model.input_shape[1:])
    found = tf_pfor.vectorized_map(
        lambda r: model(r[None], training=False)[0], tf.constant(x), fallback_to_while_loop=False
    )
    np.testing.assert_allclose(found, model(x, training=False), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", ["dense", "conv", "attention"])
def test_per_example_gradients_of_keras_models(name):
    keras.utils.set_random_seed(0)
    model = keras_models()[name]
    loss = lambda r: tf.reduce_sum(model(r[None], training=False) ** 2)
    slopes = lambda r: gradient_of(lambda: loss(r), model.trainable_variables)
    check(slopes, rows(4, *model.input_shape[1:]), rtol=1e-4, atol=1e-4)


# -- Gradients in the body -------------------------------------------------------------------------


def test_a_tape_in_the_body():
    w = tf.Variable(rows(3, 2))
    y = lambda x: tf.reduce_sum(tf.tanh(tf.linalg.matvec(w, x, transpose_a=True)))
    check(lambda x: gradient_of(lambda: y(x), [x, w]), rows(4, 3))


def test_tf_gradients_in_the_body():
    check(lambda x: tf.gradients(tf.reduce_sum(tf.exp(x) * x), x)[0], rows(4, 3))


def test_second_derivatives_in_the_body():
    fn = lambda x: gradient_of(lambda: gradient_of(lambda: tf.reduce_sum(tf.sin(x) * x**2), x), x)
    check(fn, rows(4, 3))


@tf.custom_gradient
def clipped(x):
    grad = lambda dy: tf.clip_by_value(dy * 2.0 * x, -1.0, 1.0)
    return x * x, grad


def test_a_custom_gradient_differentiated_in_the_body():
    check(lambda x: value_and_gradient(lambda: clipped(x), x), rows(4, 3))


def test_a_custom_gradient_differentiated_outside():
    x = tf.constant(rows(4, 3))
    found = gradient_of(lambda: tf_pfor.vectorized_map(clipped, x), x)
    np.testing.assert_allclose(found, np.clip(2 * x.numpy(), -1, 1), rtol=1e-5, atol=1e-6)


# -- Gradients through the result ------------------------------------------------------------------


def _outer_gradients(mapper, x, c, v):
    """First and second derivatives of a map with respect to element, closure, variable."""
    sources = [x, c, v]
    with tf.GradientTape(persistent=True) as outer:
        outer.watch([x, c])
        with tf.GradientTape() as inner:
            inner.watch([x, c])
            y = mapper(lambda r: tf.reduce_sum(tf.sin(r * c) * tf.tanh(v) * r), x)
            loss = tf.reduce_sum(y**2)
        first = inner.gradient(loss, sources)
        total = tf.add_n([tf.reduce_sum(tf.cos(g)) for g in first])
    return [*first, *outer.gradient(total, sources)]


@pytest.mark.parametrize("where", ["eager", "function"])
def test_gradients_to_elements_closures_and_variables(where):
    x, c = tf.constant(rows(4, 3)), tf.constant(rows(3, seed=1))
    v = tf.Variable(rows(3, seed=2))
    looped = lambda fn, elems: tf.stack([fn(elems[r]) for r in range(4)])
    run = tf.function(_outer_gradients) if where == "function" else _outer_gradients
    found = run(tf_pfor.vectorized_map, x, c, v)
    expected = _outer_gradients(looped, x, c, v)
    pairwise(np.testing.assert_allclose, found, expected, rtol=1e-4, atol=1e-5)


def test_gradients_through_pfor():
    x = tf.Variable(rows(4, 3))
    with tf.GradientTape() as tape:
        y = tf_pfor.pfor(lambda i: tf.gather(x, i) ** 2 * tf.cast(i, tf.float32), 4)
    expected = 2 * x.numpy() * np.arange(4, dtype=np.float32)[:, None]
    np.testing.assert_allclose(tf.convert_to_tensor(tape.gradient(y, x)), expected, rtol=1e-5)


# -- Maps in maps ----------------------------------------------------------------------------------


def test_a_map_in_a_map():
    x = rows(3, 4, 2)
    found = tf_pfor.vectorized_map(
        lambda a: tf_pfor.vectorized_map(lambda b: tf.reduce_sum(tf.tanh(b)), a), tf.constant(x)
    )
    np.testing.assert_allclose(found, np.tanh(x).sum(-1), rtol=1e-5)


def test_all_pairs():
    x, y = rows(3, 2), rows(4, 2, seed=1)
    ty = tf.constant(y)
    found = tf_pfor.vectorized_map(
        lambda a: tf_pfor.vectorized_map(lambda b: tf.reduce_sum(a * b), ty), tf.constant(x)
    )
    np.testing.assert_allclose(found, x @ y.T, rtol=1e-5, atol=1e-6)


def test_pfor_in_pfor():
    found = tf_pfor.pfor(lambda i: tf_pfor.pfor(lambda j: 10 * i + j, 3), 2)
    assert found.numpy().tolist() == [[0, 1, 2], [10, 11, 12]]


def test_a_jacobian_by_pfor():
    w = tf.constant(rows(3, 3))

    @tf.function
    def jacobian(x):
        with tf.GradientTape(persistent=True) as tape:
            tape.watch(x)
            y = tf.tanh(tf.linalg.matvec(w, x))
            parts = tf.unstack(y)
        return tf.stack([tape.gradient(p, x) for p in parts])

    @tf.function
    def by_pfor(x):
        y = tf.tanh(tf.linalg.matvec(w, x))
        return tf_pfor.pfor(lambda i: tf.gradients(tf.gather(y, i), x)[0], 3)

    x = tf.constant(rows(3))
    np.testing.assert_allclose(by_pfor(x), jacobian(x), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("n", [0, 4])
def test_elements_of_unknown_rank(n):
    k, x = tf.constant([2, 0, 3, 1])[:n], tf.constant(rows(4, 3))[:n]
    specs = [tf.TensorSpec([None], tf.int32), tf.TensorSpec(None, tf.float32)]

    def loop(e):
        return tf.while_loop(lambda t, _: t < e[0], lambda t, s: (t + 1, tf.sin(s)), (0, e[1]))[1]

    branches = lambda e: tf.cond(e[0] > 1, lambda: tf.exp(e[1]), lambda: tf.reverse(e[1], [0]))

    def equals_rows(fn):
        mapped = tf.function(
            lambda *e: tf_pfor.vectorized_map(fn, e), input_signature=specs, autograph=False
        )
        expected = [fn((a, b)) for a, b in zip(k, x)]
        np.testing.assert_allclose(mapped(k, x), np.reshape(expected, [n, 3]), rtol=1e-5)

    equals_rows(loop)
    with pytest.warns(tf_pfor.FallbackWarning, match="the rank of an output is unknown"):
        equals_rows(branches)
