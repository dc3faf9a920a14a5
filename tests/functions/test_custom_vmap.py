"""custom_vmap: the rule runs for all rows at once, in every context; what it returns is checked."""

import numpy as np
import pytest
import tensorflow as tf

import tf_pfor
from tests.api.test_errors import table_of_errors
from tests.comparisons import strict
from tf_pfor import ArgumentError, ArgumentTypeError, NotVectorizableError, custom_vmap, vmap

X = np.array([[1.0, 2.0], [3.0, 4.0], [0.5, -1.0]], np.float32)
W = tf.constant([2.0, -3.0])


def close(found, expected):
    found = tf.convert_to_tensor(found)
    assert found.shape == np.shape(expected)
    np.testing.assert_allclose(found, expected, rtol=1e-6)


def scaled():
    """x * w and its sum, and the calls of the rule."""
    calls = []

    @custom_vmap
    def fn(pair, w):
        y = pair["x"] * w
        return {"y": y, "sum": tf.reduce_sum(y), "none": None}

    @fn.def_vmap
    def rule(axis_size, in_batched, pair, w):
        n = None if isinstance(axis_size, tf.Tensor) else axis_size
        calls.append((n, in_batched))
        xs = pair["x"] if in_batched[0]["x"] else pair["x"][None]
        ws = w if in_batched[1] else w[None]
        y = xs * ws
        return {"y": y, "sum": tf.reduce_sum(y, 1), "none": None}, True

    return fn, calls


@pytest.mark.parametrize("n", [0, 1, 3])
def test_the_rule_is_used(n):
    fn, calls = scaled()
    x = X[:n]
    for way in (strict(fn, in_axes=(0, None)), tf.function(strict(fn, in_axes=(0, None)))):
        found = way({"x": x}, W)
        close(found["y"], x * W)
        close(found["sum"], (x * W).numpy().sum(1))
        assert found["none"] is None
    size = n or None  # a number of rows that may be zero is not known before running
    assert calls
    assert all(c == (size, [{"x": True}, False]) for c in calls)
    calls.clear()
    both = strict(fn)({"x": x}, tf.tile(W[None], [n, 1]))
    close(both["y"], x * W)
    assert calls == [(size, [{"x": True}, True])]


def test_outside_of_a_map_and_for_shared_arguments_it_is_the_function():
    fn, calls = scaled()
    for way in (fn, tf.function(fn)):
        close(way({"x": X[0]}, w=W)["y"], X[0] * W)
    shared = strict(lambda x: fn({"x": W}, W)["y"] + x)
    close(shared(X), X + W**2)
    assert not calls


def test_under_xla_and_with_an_unknown_number_of_rows():
    fn, calls = scaled()
    close(strict(fn, in_axes=(0, None), jit_compile=True)({"x": X}, W)["y"], X * W)
    spec = [tf.TensorSpec([None, 2])]
    run = tf.function(lambda x: strict(fn, in_axes=(0, None))({"x": x}, W), input_signature=spec)
    close(run(X)["sum"], (X * W).numpy().sum(1))
    assert calls[-1][0] is None


def test_maps_in_maps():
    fn, calls = scaled()
    x = tf.constant(np.arange(12.0).reshape(3, 2, 2), tf.float32)
    inner = strict(lambda v: fn({"x": v}, W)["y"])
    close(strict(inner)(x), x * W)
    assert {c[0] for c in calls} == {2}  # the rule ran for one row of the outer map

    def outer(rows, w):
        return strict(lambda v: fn({"x": v}, w)["sum"])(rows)

    ws = tf.constant([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]])
    close(strict(outer)(x, ws), tf.reduce_sum(x * ws[:, None], 2))


def test_a_rule_that_calls_another():
    @custom_vmap
    def outer(x):
        return fn({"x": x}, W)["sum"]

    fn, calls = scaled()

    @outer.def_vmap
    def rule(axis_size, in_batched, x):
        del axis_size, in_batched
        return vmap(lambda v: fn({"x": v}, W)["sum"])(x), True

    close(strict(outer)(X), (X * W).numpy().sum(1))
    assert [c[0] for c in calls] == [3]


def test_in_branches_and_functions():
    fn, calls = scaled()
    inside = tf.function(lambda x: fn({"x": x}, W)["y"])

    def branch(x):
        return tf.cond(x[0] > 0.75, lambda: inside(x), lambda: x)

    close(strict(inside)(X), X * W)
    close(strict(branch)(X), np.where(X[:, :1] > 0.75, X * W, X))
    assert len(calls) >= 2


def test_gradients():
    """The rule is differentiated around the map; the function is differentiated in it."""

    @custom_vmap
    def cube(x):
        return x**3

    @cube.def_vmap
    def rule(axis_size, in_batched, x):
        del axis_size, in_batched
        return x * x * x, True

    x = tf.constant(X)
    with tf.GradientTape() as tape:
        tape.watch(x)
        y = strict(cube)(x)
    close(y, X**3)
    close(tape.gradient(y, x), 3 * X**2)
    inside = tf_pfor.grad(lambda x: tf.reduce_sum(cube(x)))
    close(strict(inside)(x), 3 * X**2)
    hessian = strict(tf_pfor.hessian(lambda x: tf.reduce_sum(cube(x))))(x)
    close(hessian, 6 * X[:, :, None] * np.eye(2))


def test_a_result_that_all_rows_share():
    @custom_vmap
    def first(x, y):
        return x, y

    @first.def_vmap
    def rule(axis_size, in_batched, x, y):
        del axis_size
        return (x, y), tuple(in_batched)

    x, y = strict(first, in_axes=(0, None), out_axes=(0, None))(X, W)
    close(x, X)
    close(y, W)


def test_a_function_that_cannot_be_vectorized():
    """Sorted by NumPy: without a rule it would be a loop."""

    @custom_vmap
    def ordered(x):
        return tf.ensure_shape(tf.numpy_function(np.sort, [x], tf.float32), x.shape)

    @ordered.def_vmap
    def rule(axis_size, in_batched, x):
        del axis_size, in_batched
        return tf.sort(x, 1), True

    close(strict(ordered)(X), np.sort(X, 1))
    close(ordered(X[2]), np.sort(X[2]))


@pytest.mark.parametrize(
    "make",
    [
        lambda x: tf.reshape(tf.reshape(x, [2, 1]) @ tf.ones([1, 2]), [4]),
        lambda x: tf.reduce_sum(x[:, None] * tf.ones([2, 3]), 0),
        lambda x: tf.transpose(x[None])[:, 0],
    ],
)
def test_arguments_that_the_walker_keeps_in_other_forms(make):
    calls = []
    fn = custom_vmap(lambda y: y * 2)

    @fn.def_vmap
    def rule(axis_size, in_batched, y):
        del in_batched
        calls.append(axis_size)
        return y * 2, True

    close(strict(lambda x: fn(make(x)))(X), tf.stack([make(x) * 2 for x in tf.constant(X)]))
    assert calls == [3]


def test_rows_of_different_shapes_are_for_the_function():
    @custom_vmap
    def total(x):
        return tf.reduce_sum(x)

    @total.def_vmap
    def rule(axis_size, in_batched, x):
        raise AssertionError("a rule gets dense rows")

    rows = tf.ragged.constant([[1.0], [2.0, 3.0]])
    close(tf_pfor.vectorized_map(total, rows), [1, 5])


def test_another_rule_makes_another_trace():
    fn, _ = scaled()
    run = lambda x: tf_pfor.vectorized_map(lambda v: fn({"x": v}, W)["sum"], x)  # noqa: E731
    close(run(X), (X * W).numpy().sum(1))

    @fn.def_vmap
    def rule(axis_size, in_batched, pair, w):
        del in_batched, w
        return {"y": pair["x"], "sum": tf.zeros([axis_size]), "none": None}, True

    close(run(X), [0, 0, 0])


def test_calls_share_a_trace():
    tf_pfor.clear_cache()
    half = custom_vmap(lambda x: x / 2)
    half.def_vmap(lambda n, in_batched, x: (x / 2, True))
    for _ in range(3):
        tf_pfor.vectorized_map(lambda x: half(x) + 1, tf.constant(X))
    assert (tf_pfor.cache_info().misses, tf_pfor.cache_info().hits) == (1, 2)


def with_rule(rule):
    fn = custom_vmap(lambda x: (x, tf.reduce_sum(x)))
    fn.def_vmap(rule)
    return fn


WRONG = {
    "no rule": (lambda: custom_vmap(lambda x: x)(X), "has no rule"),
    "no rule in a map": (lambda: vmap(custom_vmap(lambda x: x))(X), "has no rule"),
    "no pair": (lambda: vmap(with_rule(lambda n, b, x: x))(X),
        "must return (outputs, out_batched)"),
    "outputs": (lambda: vmap(with_rule(lambda n, b, x: (x, True)))(X), "must return outputs like"),
    "bools": (lambda: vmap(with_rule(lambda n, b, x: ((x, x), (True, (True,)))))(X),
        "must return out_batched like"),
    "shape": (lambda: vmap(with_rule(lambda n, b, x: ((x, x), True)))(X),
        "returned float32(3, 2) with out_batched True. Expected: a bool, and float32(3,)"),
    "no bool": (lambda: vmap(with_rule(lambda n, b, x: ((x, x[:, 0]), (True, 1))))(X),
        "Expected: a bool"),
    "dtype": (lambda: vmap(with_rule(lambda n, b, x: ((x, tf.zeros([n], tf.int32)), True)))(X),
        "float32(3,)"),
}  # fmt: skip
test_errors = table_of_errors(WRONG, ArgumentError)


def test_wrong_arguments():
    with pytest.raises(ArgumentTypeError, match="expects a function"):
        custom_vmap(3)
    fn, _ = scaled()
    with pytest.raises(ArgumentTypeError, match="def_vmap expects a function"):
        fn.def_vmap(None)
    with pytest.raises(ArgumentTypeError, match=r"argument\[1\] of fn is a object"):
        vmap(lambda x: fn({"x": x}, object()))(X)
    only = custom_vmap(lambda x, *, y: x)
    only.def_vmap(lambda n, b, x: (x, True))
    with pytest.raises(ArgumentError, match="by keyword only"):
        vmap(lambda x: only(x, y=x))(X)


def test_a_tensor_of_the_row_that_is_closed_over():
    def body(x):
        fn = custom_vmap(lambda y: y * x)
        fn.def_vmap(lambda n, b, y: (y, True))
        return fn(x)

    with pytest.raises(NotVectorizableError, match="closes over a tensor that differs"):
        vmap(body)(X)
