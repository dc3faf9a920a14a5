"""Variables in a vectorized loop: the cases of docs/state.md."""

import numpy as np
import pytest
import tensorflow as tf

import tf_pfor
from tests.cases import case
from tests.comparisons import gradient_of
from tests.state.maps import X, check_as_the_loop, mapped, refused, var  # noqa: F401  (mapped is a fixture)
from tf_pfor import NotVectorizableError
from tf_pfor.core.errors import UnsupportedStateError

# -- Sums of updates -------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [tf.float32, tf.float64, tf.half, tf.bfloat16, tf.int32, tf.int8,
                                   tf.uint8, tf.int64, tf.complex64])  # fmt: skip
def test_assign_add_and_sub_of_every_dtype(dtype):
    v = var(tf.cast(100, dtype))
    tf_pfor.vectorized_map(lambda x: v.assign_add(x), tf.cast(X, dtype))
    assert v.numpy() == 107
    tf_pfor.vectorized_map(lambda x: v.assign_sub(tf.ones_like(x) * 2), tf.cast(X, dtype))
    assert v.numpy() == 101


def test_assign_add(mapped):
    v = var([1.0, 1.0])
    mapped(lambda x: v.assign_add([x, 10.0]))
    np.testing.assert_allclose(v, [8.0, 31.0])


def test_an_invariant_delta_counts_once_for_each_iteration(mapped):
    v = var(0)
    assert mapped(lambda x: v.assign_add(2)).numpy().tolist() == [2, 4, 6]
    assert v.numpy() == 6


@pytest.mark.parametrize("start", [tf.constant(1.0), tf.constant([1.0, -1.0])], ids=["0", "1"])
def test_reads_before_and_after_an_update(mapped, start):
    v = var(start)

    def body(x):
        before = v + 0.0
        v.assign_sub(x + tf.zeros_like(v))
        return before, v + 0.0

    before, after = mapped(body)
    rows = tf.stack([start - x for x in (0.0, 1.0, 3.0, 7.0)])
    np.testing.assert_array_equal(before, rows[:-1])
    np.testing.assert_array_equal(after, rows[1:])


@pytest.mark.parametrize("dtype", [tf.uint8, tf.int16, tf.float64])
def test_reads_of_every_dtype(mapped, dtype):
    """Some integers have no negation, and XLA has no running sums of them."""
    v = var(tf.cast(5, dtype))
    found = mapped(lambda x: (v.assign_sub(tf.cast(2, dtype)), v.read_value())[1])
    assert found.dtype == dtype
    np.testing.assert_array_equal(found, np.asarray([3, 1, -1]).astype(dtype.as_numpy_dtype))


def test_the_returned_value_of_an_update(mapped):
    v = var(0.0)
    found = mapped(lambda x: v.assign_add(x) * x)
    assert found.numpy().tolist() == [1.0, 6.0, 28.0]


def test_no_iterations_no_update(mapped):
    v, w, u = var(1.0), var([1.0, 1.0]), var([1.0, 1.0])

    def body(x):
        v.assign(5.0)
        w.assign_add([x, 2.0])
        u.scatter_update(tf.IndexedSlices(7.0, 0))
        return x

    mapped(body, X[:0])
    assert v.numpy() == 1.0
    assert w.numpy().tolist() == u.numpy().tolist() == [1.0, 1.0]


# -- Assignments -----------------------------------------------------------------------------------


def test_assigning_an_invariant_value(mapped):
    v = var(1.0)
    assert mapped(lambda x: v.assign(3.0) + x).numpy().tolist() == [4.0, 5.0, 7.0]
    assert v.numpy() == 3.0


def test_assigning_a_variant_value_is_an_error(mapped):
    v = var(1.0, name="weights")

    def body(x):
        v.assign(x)  # here
        return x

    with pytest.raises(UnsupportedStateError) as caught:
        mapped(body)
    message = str(caught.value)
    line = body.__code__.co_firstlineno + 1
    for text in ("AssignVariableOp", "weights", f"test_state.py:{line}", "assign_add"):
        assert text in message
    assert v.numpy() == 1.0


def test_with_the_fallback_on_it_is_an_error_as_well():
    v = var(1.0)
    with pytest.raises(NotVectorizableError):
        tf_pfor.vectorized_map(lambda x: v.assign(x), X)


# -- Read-modify-writes: what a loop does ----------------------------------------------------------

W = tf.constant([[2.0, 0.5], [-1.0, 3.0]])


def _counter(v, x):
    old = v * 1.0
    v.assign(v + 1.0)
    return old + 0.0 * x


def _average(v, x):
    old = v.read_value()
    v.assign(v * 0.9 + x * 0.1)
    return old


def _difference(v, x):
    v.assign(v - (v - x) * 0.25)
    return x


def _growth(v, x):
    v.assign(v * 1.5 + x)
    return x


def _nonlinear(v, x):
    old = v.read_value()
    v.assign(tf.tanh(v) * x + tf.reduce_sum(v))
    return tf.exp(-tf.abs(old)) * x


def _own_factor(v, x):
    old = v.read_value()
    v.assign(v * x)
    return old * x


def _matrix(v, x):
    old = v.read_value()
    v.assign(tf.linalg.matvec(W, v) * 0.1 + x)
    return old


def _legacy_average(v, x):
    v.assign_sub((v - x) * 0.1)
    return x


def _product(v, x):
    old = v.read_value()
    v.assign_add(v * x)
    return old


BODIES = [
    _legacy_average, _product, _average, _counter, _difference, _growth, _matrix, _nonlinear,
    _own_factor,
]  # fmt: skip


@pytest.mark.parametrize("body", BODIES)
def test_read_modify_write(mapped, body):
    check_as_the_loop(body, [3.0, -1.0], mapped=mapped)


@pytest.mark.parametrize("dtype", [tf.int32, tf.int64, tf.uint32, tf.uint8])
def test_counters_are_exact(dtype):
    def body(v, x):
        old = v.read_value()
        v.assign(v * 5 + tf.cast(x, dtype))
        return old

    start, rows = tf.cast(7, dtype), tf.range(100)
    check_as_the_loop(body, start, mapped=tf_pfor.vectorized_map, elems=rows, rtol=0)


def test_a_long_average_does_not_overflow():
    v, w = var(1.0), var(1.0)
    xs = tf.random.stateless_uniform([700], [1, 2])
    tf_pfor.vectorized_map(lambda x: _growth_of(v, x, 0.5), xs)
    tf_pfor.vectorized_map(lambda x: _growth_of(w, x, -1.0), xs)
    expected = 1.0
    for x in xs.numpy():
        expected = expected * 0.5 + x
    np.testing.assert_allclose(v, expected, rtol=1e-5)
    assert np.isfinite(w.numpy())
    zero = var(0.0)
    tf_pfor.vectorized_map(lambda x: _growth_of(zero, x * 0.0, 2.0), xs)
    assert zero.numpy() == 0.0  # powers of 2 overflow, the loop does not


def _growth_of(v, x, factor):
    v.assign(v * factor + x)
    return x


@case(check_as_the_loop, 1.0, 2.0)
def test_two_variables_that_need_each_other(v, w, x):
    a, b = v.read_value(), w.read_value()
    v.assign(a * 0.5 + b)
    w.assign(b - a * x)
    return a + b


@case(check_as_the_loop, 1.0, 2.0)
def test_a_variable_that_follows_another(v, w, x):
    a = v * 1.0
    v.assign(v + x)
    w.assign(w * 2.0 + a)
    return a


@case(check_as_the_loop, 1.0, 0.0, rtol=1e-7)
def test_only_the_active_rows_update(v, w, x):
    if x > 1.5:
        v.assign(v * 2.0 + x)
        w.assign_add(1.0)
    return x


def test_updates_in_a_while_loop(mapped):
    """Rows that have left the loop no longer count."""
    v, w = var(0.0), var([0.0] * 5)

    def body(x):
        k = 0
        while tf.cast(k, tf.float32) < x:
            v.assign_add(x)
            w.scatter_add(tf.IndexedSlices(1.0, k))
            k += 1
        return x

    mapped(body)
    assert v.numpy() == 1.0 + 4.0 + 16.0
    assert w.numpy().tolist() == [3.0, 2.0, 1.0, 1.0, 0.0]


def test_gradients_are_those_of_reads():
    v = var(2.0)

    def body(x):
        y = v * x
        v.assign(v * 0.5 + x)
        return y

    assert gradient_of(lambda: tf_pfor.vectorized_map(body, X), v).numpy() == 7.0


def test_a_print_between_read_and_assignment_does_not_disturb(capfd):
    v = var(1.0)

    def body(x):
        y = v + x
        tf.print(y)
        v.assign(y)

    tf_pfor.vectorized_map(body, X)
    assert v.numpy() == 8.0
    assert "[2 4 8]" in capfd.readouterr().err


def test_the_same_variable_as_two_arguments():
    @tf.function
    def update(a, b, x):
        a.assign(a + b * x)
        return x

    check_as_the_loop(lambda v, x: update(v, v, x), 1.0, mapped=tf_pfor.vectorized_map, rtol=0)


# -- Order -----------------------------------------------------------------------------------------


def test_explicit_control_dependencies(mapped):
    v, w = var(0.0), var(0.0)

    def body(x):
        with tf.control_dependencies([v.assign_add(x)]):
            y = v.read_value()
        with tf.control_dependencies([y]):
            w.assign(100.0)
        return y, w.read_value()

    y, after = mapped(body)
    assert y.numpy().tolist() == [1.0, 3.0, 7.0]
    assert after.numpy().tolist() == [100.0] * 3


def test_a_variable_made_on_the_first_call():
    made = []

    @tf.function
    def step(xs):
        def body(x):
            if not made:
                made.append(tf.Variable(0.0))
            return made[0].assign_add(x)

        return tf_pfor.vectorized_map(body, xs)

    assert step(X).numpy().tolist() == [1.0, 3.0, 7.0]
    assert step(X).numpy().tolist() == [8.0, 10.0, 14.0]


def test_pfor_and_vmap_and_nested_maps():
    v = var(0)
    tf_pfor.pfor(lambda i: v.assign_add(i), 4)
    assert v.numpy() == 6
    tf_pfor.vmap(lambda x: v.assign_add(tf.cast(x, tf.int32)))(X)
    assert v.numpy() == 13
    tf_pfor.pfor(lambda i: tf_pfor.pfor(lambda j: v.assign_add(i * j), 3), 3)
    assert v.numpy() == 13 + 9
    tf_pfor.pfor(lambda i: v.assign(v * 2 + i), 3, parallel_iterations=1)
    assert v.numpy() == ((22 * 2) * 2 + 1) * 2 + 2
