"""Gradients in the body of loops, in a map in the body of another map: trip counts differ by row
of both."""

import keras
import numpy as np
import pytest
import tensorflow as tf

import tf_pfor

RNG = np.random.default_rng(0)
W = tf.Variable(RNG.normal(size=[3, 3]) * 0.5)
K = tf.constant([[0, 2, 1], [3, 1, 0], [0, 0, 0], [4, 2, 5]])
M = tf.constant([[1, 0, 2], [2, 2, 1], [3, 0, 0], [1, 1, 1]])
X = tf.constant(RNG.normal(size=[4, 3, 3]))
STEPS = tf.constant(RNG.normal(size=[4, 3, 5, 3]))
ARGS = (K, M, X, STEPS)


def cell(s):
    return tf.tanh(tf.linalg.matvec(W, s))


def captured(k, m, x, steps):
    def body(t, s):
        return t + 1, cell(s) + steps[t]

    return tf.while_loop(lambda t, _: t < k, body, (0, x))[1]


def of_an_array(k, m, x, steps):
    array = tf.TensorArray(tf.float64, 5, element_shape=[3]).unstack(steps)

    def body(t, s):
        return t + 1, cell(s) * array.read(t)

    return tf.while_loop(lambda t, _: t < k, body, (0, x))[1]


def to_an_array(k, m, x, steps):
    """Written, and read after the loop, at places of each row's own."""
    array = tf.TensorArray(tf.float64, 5, element_shape=[3]).unstack(tf.zeros([5, 3], tf.float64))

    def body(t, s, array):
        return t + 1, cell(s), array.write((t + m) % 5, s)

    _, s, array = tf.while_loop(lambda t, *_: t < k, body, (0, x, array))
    return s + tf.reduce_sum(array.stack(), 0) + array.read(m)


def equal_trips(k, m, x, steps):
    return captured(tf.constant(3), m, x, steps)


def gradients(model):
    def one(k, m, x, steps):
        with tf.GradientTape() as tape:
            tape.watch([x, steps])
            loss = tf.reduce_sum(model(k, m, x, steps) ** 2)
        return tape.gradient(loss, [x, steps, W], unconnected_gradients="zero")

    return one


def second_gradients(model):
    def one(k, m, x, steps):
        with tf.GradientTape() as tape:
            tape.watch([x, steps])
            loss = tf.reduce_sum(tf.cos(gradients(model)(k, m, x, steps)[0]))
        return tape.gradient(loss, [x, steps, W], unconnected_gradients="zero")

    return one


def of_rows(one, **options):
    return lambda *args: tf_pfor.vectorized_map(
        lambda row: one(*row), args, fallback_to_while_loop=False, **options
    )


def looped(one, n):
    """``one`` for n rows, one after the other."""

    def rows(*args):
        found = [one(*(a[i] for a in args)) for i in range(n)]
        return [tf.stack(column) for column in zip(*found)]

    return rows


def assert_same(found, expected):
    for f, e in zip(found, expected, strict=True):
        assert f.shape == e.shape
        np.testing.assert_allclose(f, e, rtol=1e-9, atol=1e-11)


def check(one, args=ARGS, **options):
    alone = tf.function(one)
    n, k = args[0].shape[:2]
    expected = looped(looped(alone, k), n)(*args)
    assert_same(of_rows(of_rows(one), **options)(*args), expected)


MODELS = [captured, of_an_array, to_an_array, equal_trips]


@pytest.mark.parametrize("model", MODELS)
def test_gradients(model):
    check(gradients(model))


@pytest.mark.parametrize("strategy", ["compact", "mask"])
@pytest.mark.parametrize("model", MODELS)
def test_strategies(model, strategy):
    check(gradients(model), while_strategy=strategy)


@pytest.mark.parametrize("model", [captured, of_an_array, equal_trips])
def test_second_gradients(model):
    check(second_gradients(model))


def differentiated(rows):
    """The gradient of a sum over what ``rows`` makes, by a tape of the outer body."""

    def one(k, m, x, steps):
        with tf.GradientTape() as tape:
            tape.watch([x, steps])
            total = tf.add_n([tf.reduce_sum(tf.sin(g)) for g in rows(k, m, x, steps)])
        return tape.gradient(total, [x, steps, W], unconnected_gradients="zero")

    return one


@pytest.mark.parametrize("model", [captured, equal_trips])
def test_differentiated_in_the_outer_body(model):
    one = gradients(model)
    expected = looped(tf.function(differentiated(looped(one, 3))), 4)(*ARGS)
    assert_same(of_rows(differentiated(of_rows(one)))(*ARGS), expected)


def test_differentiated_in_the_outer_body_with_an_array_is_refused():
    with pytest.raises(tf_pfor.NotVectorizableError, match="axes that differ are not indexed"):
        of_rows(differentiated(of_rows(gradients(of_an_array))))(*ARGS)


@pytest.mark.parametrize("model", [captured, to_an_array])
def test_differentiated_outside(model):
    """A tape around both maps."""

    def total(rows):
        with tf.GradientTape() as tape:
            x = tf.identity(X)
            tape.watch(x)
            made = rows(K, M, x, STEPS)
            loss = tf.add_n([tf.reduce_sum(tf.sin(g)) for g in made])
        return tape.gradient(loss, [x, W])

    one = gradients(model)
    found = tf.function(lambda: total(of_rows(of_rows(one))), autograph=False)()
    assert_same(found, tf.function(lambda: total(looped(looped(one, 3), 4)))())


def test_three_maps():
    one = gradients(captured)
    args = tuple(tf.stack([a, a[::-1]]) for a in (K, M, X, STEPS))
    expected = looped(looped(looped(tf.function(one), 3), 4), 2)(*args)
    assert_same(of_rows(of_rows(of_rows(one)))(*args), expected)


@pytest.mark.parametrize("rows", [(1, 3), (3, 1), (1, 1)])
def test_few_rows(rows):
    n, k = rows
    check(gradients(captured), tuple(a[-n:, :k] for a in ARGS))


@pytest.mark.parametrize("rows", [(0, 3), (3, 0), (0, 0)])
def test_no_rows(rows):
    n, k = rows
    found = of_rows(of_rows(gradients(captured)))(*(a[:n, :k] for a in ARGS))
    assert [g.shape for g in found] == [(n, k, 3), (n, k, 5, 3), (n, k, 3, 3)]


def test_unknown_number_of_rows():
    one = gradients(captured)
    specs = [tf.TensorSpec([None, None, *a.shape[2:]], a.dtype) for a in ARGS]
    run = tf.function(of_rows(of_rows(one)), input_signature=specs, autograph=False)
    for n, k in ((4, 3), (2, 1), (0, 3), (2, 0)):
        args = [a[:n, :k] for a in ARGS]
        if n and k:
            assert_same(run(*args), looped(looped(tf.function(one), k), n)(*args))
        else:
            assert run(*args)[0].shape == (n, k, 3)


def test_jit_compile():
    """XLA's lists have room for as many items in all rows."""

    def model(k, m, x, steps):
        return tf.while_loop(
            lambda t, _: t < k,
            lambda t, s: (t + 1, cell(s) + steps[t]),
            (0, x),
            maximum_iterations=5,
        )[1]

    one = gradients(model)
    found = tf.function(of_rows(of_rows(one)), jit_compile=True, autograph=False)(*ARGS)
    assert_same(found, looped(looped(tf.function(one), 3), 4)(*ARGS))


def test_vmap():
    def one(k, x, w):
        def body(t, s):
            return t + 1, tf.tanh(tf.linalg.matvec(w, s) + x)

        with tf.GradientTape() as tape:
            tape.watch([x, w])
            loss = tf.reduce_sum(tf.while_loop(lambda t, _: t < k, body, (0, x))[1] ** 2)
        return tape.gradient(loss, [x, w], unconnected_gradients="zero")

    found = tf_pfor.vmap(tf_pfor.vmap(one, in_axes=(0, 0, None)), in_axes=(0, 0, None))(
        K, X, W.value()
    )
    alone, w = tf.function(one), tf.convert_to_tensor(W)
    expected = looped(looped(lambda k, x: alone(k, x, w), 3), 4)(K, X)
    assert_same(found, expected)


@pytest.mark.parametrize("layer", [keras.layers.LSTM, keras.layers.GRU])
def test_keras(layer):
    """Per-example gradients of masked layers."""
    keras.utils.set_random_seed(3)
    made = layer(2)
    made.build((None, 4, 3))
    mask = tf.constant(np.arange(4) < np.array([[4, 1, 2], [3, 3, 0]])[..., None])
    rows = tf.constant(RNG.normal(size=[2, 3, 4, 3]), tf.float32)

    def one(x, mask):
        with tf.GradientTape() as tape:
            tape.watch(x)
            loss = tf.reduce_sum(made(x[None], mask=mask[None]) ** 2)
        return tape.gradient(loss, [x, *(v.value for v in made.trainable_variables)])

    expected = looped(looped(tf.function(one), 3), 2)(rows, mask)
    for f, e in zip(of_rows(of_rows(one))(rows, mask), expected, strict=True):
        np.testing.assert_allclose(f, e, rtol=2e-5, atol=2e-5)


def test_one_size_for_lists_of_different_lengths():
    """A list gets zeros behind its end, also where the list of another row was longer."""
    raw = tf.raw_ops

    def one(k, x, steps):
        made = raw.TensorListFromTensor(tensor=steps, element_shape=[3])
        made = raw.TensorListResize(input_handle=made, size=k)
        made = raw.TensorListResize(input_handle=made, size=6)
        item = raw.TensorListGetItem(
            input_handle=made, index=3, element_shape=[3], element_dtype=x.dtype
        )
        whole = raw.TensorListStack(
            input_handle=made, element_shape=[3], element_dtype=x.dtype, num_elements=6
        )
        return item + x, whole

    args = K[3], X[3], STEPS[3]
    assert_same(of_rows(one)(*args), looped(tf.function(one), 3)(*args))
