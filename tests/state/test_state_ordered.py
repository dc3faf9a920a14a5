"""Updates whose meaning needs the order of the loop: run in that order, or refused."""

import keras
import numpy as np
import pytest
import tensorflow as tf

import tf_pfor
from tests.cases import case
from tests.comparisons import assert_close, pairwise, rows_of, strict_map
from tests.state.maps import X, check_as_the_loop, made, starts, var
from tf_pfor import NotVectorizableError

in_order = pytest.mark.filterwarnings("ignore::tf_pfor.FallbackWarning")


def _as_the_loop(make, rows=X, rtol=1e-5):
    """Results and state are the loop's; with the fallback off, one error and nothing changed.

    ``make()`` returns a body and its state, or is a function with ``starts``.
    """
    (a, mine), (b, theirs), (c, untouched) = made(make), made(make), made(make)
    one = tf.function(b)
    expected = [tf.nest.flatten(one(x)) for x in rows]
    found = tf.nest.flatten(tf_pfor.vectorized_map(a, rows))
    pairwise(np.testing.assert_allclose, found, zip(*expected), rtol=rtol)
    for p, q in zip(mine, theirs):
        np.testing.assert_allclose(_value(p), _value(q), rtol=rtol)
    before = [_value(v) for v in untouched]
    with pytest.raises(NotVectorizableError, match="the fallback loop is off"):
        strict_map(c, rows)
    for v, old in zip(untouched, before):
        np.testing.assert_array_equal(_value(v), old)


_value = lambda v: np.asarray(tf.convert_to_tensor(v))


# -- Optimizers ------------------------------------------------------------------------------------

OPTIMIZERS = {
    "Adadelta": {}, "Adafactor": {}, "Adagrad": {}, "Adam": {"amsgrad": True}, "AdamW": {},
    "Adamax": {}, "Ftrl": {}, "Lamb": {}, "Nadam": {}, "RMSprop": {"centered": True},
    "SGD": {"momentum": 0.9, "nesterov": True},
}  # fmt: skip


def _training(optimizer):
    def make():
        start = np.asarray([1.0, 2.0, 3.0], np.float32)
        weights = [keras.Variable(start), keras.Variable(np.float32(0.5))]
        known = optimizer()
        known.build(weights)

        def step(x):
            with tf.GradientTape() as tape:
                loss = (tf.reduce_sum(weights[0] * x) - 1.0 + weights[1]) ** 2
            grads = tape.gradient(loss, [w.value for w in weights])
            known.apply_gradients(zip(grads, weights))
            return loss

        return step, [*weights, *known.variables]

    return make


@in_order
@pytest.mark.parametrize("name", sorted(OPTIMIZERS))
def test_optimizers(name):
    rows = tf.random.stateless_normal([4, 3], [1, 2])
    make = _training(lambda: getattr(keras.optimizers, name)(0.1, **OPTIMIZERS[name]))
    _as_the_loop(make, rows, rtol=1e-3)


def test_gradient_descent_needs_no_fallback():
    """One update after the other, in the loop of a read-modify-write."""
    make = _training(lambda: keras.optimizers.SGD(0.1))
    (a, mine), (b, theirs) = make(), make()
    rows = tf.random.stateless_normal([4, 3], [1, 2])
    np.testing.assert_allclose(strict_map(a, rows), rows_of(b, rows), rtol=1e-5)
    for p, q in zip(mine, theirs):
        np.testing.assert_allclose(_value(p), _value(q), rtol=1e-5)


@case(_as_the_loop)
@in_order
@starts(1.0, 1.0)
def test_a_kernel_of_an_optimizer(v, w, x):
    tf.raw_ops.ResourceApplyMomentum(var=v.handle, accum=w.handle, lr=0.1, grad=v * x, momentum=0.9)
    return x


@case(_as_the_loop, tf.random.stateless_normal([4, 3], [1, 2]), rtol=1e-3)
@in_order
def test_a_training_step_in_a_function_with_dropout():
    """The draws of the forward pass are vectorized; the rest is in order."""
    model = keras.Sequential([keras.layers.Dense(4), keras.layers.Dropout(0.5, seed=1)])
    model.build([None, 3])
    for i, w in enumerate(model.trainable_variables):
        w.assign(tf.random.stateless_normal(w.shape, [1, i]))
    optimizer = keras.optimizers.Adam(0.1)
    optimizer.build(model.trainable_variables)

    @tf.function
    def update(grads):
        optimizer.apply(grads, model.trainable_variables)

    def step(x):
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(model(x[None], training=True) ** 2)
        update(tape.gradient(loss, [v.value for v in model.trainable_variables]))
        return loss

    return step, [*model.variables, *optimizer.variables]


# -- Reads and updates in other places -------------------------------------------------------------


def _old_version(v, x):
    old = v.read_value()
    v.assign_add(x)
    v.assign(old * 2.0)
    return x


def _read_in_a_function(v, x):
    read = tf.function(lambda: v * 2.0)
    v.assign(read() + x)
    return x


def _update_in_a_function(v, x):
    before = v.read_value()
    tf.function(lambda step: v.assign_sub(0.1 * step))(before * x)
    return before


def _read_in_both(v, x):
    before = v.read_value()
    tf.function(lambda step: v.assign(v - 0.1 * step))(before * x)
    return before


def _update_in_a_branch(v, x):
    before = v.read_value()
    if x > 1.5:
        v.assign_sub(0.1 * before * x)
    return before


def _update_in_a_loop(v, x):
    before = v.read_value()
    step = before * x
    for _ in tf.range(2):
        v.assign_sub(0.1 * step)
    return before


def _branch_on_the_value(v, x):
    if v < 3.0:
        v.assign_add(x)
    return x


def _random_number_between(v, x):
    count = tf.cast(v, tf.int32)
    v.assign(tf.reduce_sum(0.0 * tf.random.uniform([count])) + x)
    return x


BODIES = {
    f.__name__[1:].replace("_", " "): f
    for f in (
        _branch_on_the_value, _old_version, _random_number_between, _read_in_a_function,
        _read_in_both, _update_in_a_branch, _update_in_a_function, _update_in_a_loop,
    )
}  # fmt: skip


@in_order
@pytest.mark.parametrize("name", sorted(BODIES))
def test_the_loop_gives_a_meaning(name):
    _as_the_loop(starts(1.0)(BODIES[name]))


@case(_as_the_loop, rows=tf.constant([0, 2, 2, 1]))
@in_order
@starts(tf.reshape(tf.range(6.0), [3, 2]))
def test_an_embedding_that_learns(table, k):
    """Rows of a table that several iterations read and change."""
    row = tf.gather(table, k)
    table.scatter_sub(tf.IndexedSlices(0.5 * row, k))
    return row


@in_order
@pytest.mark.parametrize("n", [0, 1])
def test_few_iterations(n):
    @starts(1.0, 0.5)
    def update(v, m, x):
        m.assign(m * 0.5 + v * x)
        v.assign_sub(m)
        return m.read_value()

    body, (v, m) = made(update)
    assert tf_pfor.vectorized_map(body, X[:n]).shape == (n,)
    assert (v.numpy(), m.numpy()) == ((1.0, 0.5) if n == 0 else (-0.25, 1.25))


@starts(1.0, 0.5)
def _momentum(v, m, x):
    m.assign(m * 0.5 + v * x)
    v.assign_sub(0.1 * m)
    return m.read_value()


@starts(1.0, 0.5)
def _in_a_while_loop(v, m, x):
    y = 0.0
    for _ in tf.range(2):
        y += _momentum(v, m, x)
    return y


@starts(1.0, 0.5)
def _in_a_taken_branch(v, m, x):
    y = 0.0
    if x > 1.5:
        y = _momentum(v, m, x)
    return y


@in_order
@pytest.mark.parametrize("make", [_in_a_taken_branch, _in_a_while_loop, _momentum])
def test_steps_in_control_flow(make):
    _as_the_loop(make)


@in_order
@pytest.mark.parametrize("how", ["compiled", "function", "nested", "unknown n"])
def test_how_it_is_called(how):
    rows = tf.constant([1.0, 2.0, 4.0, 3.0])
    (body, state), (again, expected_state) = made(_momentum), made(_momentum)
    one = tf.function(again)
    expected = [one(x) for x in rows]
    if how == "nested":
        found = tf_pfor.vectorized_map(
            lambda r: tf_pfor.vectorized_map(body, r), tf.reshape(rows, [2, 2])
        )
    else:
        size = None if how == "unknown n" else 4
        run = tf.function(
            lambda x: tf_pfor.vectorized_map(body, x), autograph=False,
            jit_compile=how == "compiled", input_signature=[tf.TensorSpec([size])],
        )  # fmt: skip
        found = run(rows)
    np.testing.assert_allclose(tf.reshape(found, [-1]), expected, rtol=1e-5)
    assert_close(state, expected_state, rtol=1e-5, atol=0)


@in_order
def test_gradients_through_a_loop_in_order_do_not_update_again():
    v, m = var(1.0), var(0.5)

    def body(x):
        before = v * x
        m.assign(m * 0.5 + before)
        v.assign_sub(m)
        return before * x

    with tf.GradientTape() as tape:
        tape.watch(X)
        found = tf_pfor.vectorized_map(body, X)
    state = v.numpy(), m.numpy()
    gradient = tape.gradient(found, X)
    assert (v.numpy(), m.numpy()) == state
    w, k = var(1.0), var(0.5)
    expected = []
    for x in X:
        expected.append(2.0 * w.numpy() * x.numpy())
        k.assign(k * 0.5 + w * x)
        w.assign_sub(k)
    np.testing.assert_allclose(gradient, expected)


# -- Generators ------------------------------------------------------------------------------------


def _in_two_calls(g, x):
    draw = tf.function(lambda: g.normal([]))
    return draw() + 10.0 * draw() + x


def _in_a_call_and_outside(g, x):
    draw = tf.function(lambda: g.normal([]))
    return draw() + 10.0 * g.normal([]) + x


def _in_a_branch_and_outside(g, x):
    y = g.normal([])
    if x > 1.5:
        y = g.normal([])
    return y


def _in_a_loop(g, x):
    y = 0.0
    for _ in tf.range(2):
        y = 10.0 * y + g.normal([])
    return y + x


DRAWS = {
    f.__name__[1:].replace("_", " "): f
    for f in (_in_a_branch_and_outside, _in_a_call_and_outside, _in_a_loop, _in_two_calls)
}


@case(_as_the_loop)
@in_order
@pytest.mark.parametrize("name", sorted(DRAWS))
def test_draws_in_several_places(name):
    """The loop makes all draws of an iteration before the next iteration's draws."""
    g = tf.random.Generator.from_seed(3)
    return lambda x: DRAWS[name](g, x), [g.state]


_IDS = tf.ragged.constant([[0, 1, 1], [0], [1, 0]], dtype=tf.int32)


@in_order
@case(_as_the_loop, rows=_IDS)
@pytest.mark.parametrize("kind", ["gathers", "elements", "scatters"])
def test_reads_at_own_number_of_places(kind):
    """The numbers of the read rows are ragged; the reads belong to the updates nevertheless."""
    v = var([1.0, 2.0])

    def fn(i):
        g = tf.gather(v, i) if kind != "elements" else tf.gather_nd(v, i[:, None])
        s = tf.reduce_sum(g)
        if kind == "scatters":
            v.scatter_sub(tf.IndexedSlices(g * 0.1, i))
        else:
            v.assign(0.5 * v + s)
        return s

    return fn, [v]


# -- Sums of what rows see in order ----------------------------------------------------------------

MOVED = lambda mean, x: (x - mean, mean.assign_add((x - mean) * 0.5))[0]


def _read_after(mean, total, other, x):
    total.assign_add(MOVED(mean, x) * (x - mean))
    return total + 0.0


def _read_before(mean, total, other, x):
    d, before = MOVED(mean, x), total.read_value()
    total.assign_add(d)
    return before


def _by_count(mean, total, other, x):
    other.assign_add(1.0)
    d = x - mean
    mean.assign_add(d / other)
    total.assign_add(d * (x - mean))
    return total / other + mean


def _in_a_chain(mean, total, other, x):
    total.assign_add(MOVED(mean, x))
    other.assign_sub(total * 1.0)
    return other + 0.0


def _in_a_branch(mean, total, other, x):
    d = MOVED(mean, x)
    if d > 1.0:
        total.assign_add(d)
    return total + 0.0


def _behind_a_ring(place, total, buffer, x):
    """Sums of a buffer whose place moves on."""
    buffer[tf.cast(place, tf.int32) % 2].assign(x)
    place.assign_add(1.0)
    total.assign_add(tf.reduce_sum(buffer))
    return total + 0.0


def _in_functions(mean, total, other, x):
    @tf.function
    def moved():
        return MOVED(mean, x)

    @tf.function
    def summed(d):
        total.assign_add(d)
        return total + 0.0

    return summed(moved())


@pytest.mark.parametrize("body", [_read_after, _read_before, _by_count, _in_a_chain, _in_functions])
def test_sums_of_variables_in_order(body):
    """Welford's variance: a row saw the mean so far, and the squares of all rows."""
    check_as_the_loop(body, 0.0, 0.0, 0.0, mapped=strict_map)


@in_order
def test_sums_in_a_branch():
    _as_the_loop(starts(0.0, 0.0, 0.0)(_in_a_branch))


def test_sums_that_nobody_reads_are_sums():
    mean, total = var(0.0), var(0.0)

    def body(x):
        d = MOVED(mean, x)
        total.assign_add(d * x)
        return d

    found = strict_map(body, X)
    np.testing.assert_allclose(found, [1.0, 1.5, 2.75])
    assert total.numpy() == 15.0


# -- Places that the body moves on -----------------------------------------------------------------


def _ring(buffer, place, x):
    buffer.scatter_update(tf.IndexedSlices(x, place % 2))
    place.assign_add(1)
    return x


def _ring_of_items(buffer, place, x):
    place.assign_add(1)
    buffer[place % 2].assign(x)
    return tf.reduce_sum(buffer)


def _ring_of_places(buffer, place, x):
    buffer.scatter_nd_update([[place % 2]], [x])
    place.assign_add(1)
    return x


def _ring_in_a_branch(buffer, place, x):
    if x > 1.0:
        buffer[place % 2].assign(x)
        place.assign_add(1)
    return x


@in_order
@pytest.mark.parametrize("body", [_ring, _ring_of_items, _ring_of_places, _ring_in_a_branch])
def test_ring_buffers(body):
    """In lock-step all rows would write one place: refused, before."""
    _as_the_loop(starts([0.0, 0.0], 0)(body))


@in_order
def test_sums_of_a_ring_buffer():
    _as_the_loop(starts(0.0, 0.0, [0.0, 0.0])(_behind_a_ring))
