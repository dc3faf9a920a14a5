"""associative_scan: against a Python loop, in all contexts, with gradients and errors."""

import numpy as np
import pytest
import tensorflow as tf

import tf_pfor
from tests.api.test_errors import Untraced, table_of_errors
from tests.comparisons import strict_map
from tf_pfor import ArgumentError, ArgumentTypeError, associative_scan


def given(*shape, dtype=np.float32):
    return np.random.default_rng(shape).normal(size=shape).astype(dtype)


def close(found, expected):
    assert tf.convert_to_tensor(found).shape == np.shape(expected)
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-4)


def linear(first, second):
    """Composes x -> a x + b: not commutative."""
    return {"a": second["a"] * first["a"], "b": second["a"] * first["b"] + second["b"]}


def looped(fn, rows):
    """Rows of a nest, one after the other."""
    made = rows[:1]
    for row in rows[1:]:
        made.append(fn(made[-1], row))
    return made


def recurrence(a, b):
    rows = looped(linear, [{"a": x, "b": y} for x, y in zip(a, b)])
    return np.stack([r["b"] for r in rows]) if rows else b


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("n", [0, 1, 2, 3, 4, 7, 8, 13])
def test_against_a_loop(n, dtype):
    a, b = given(n, 2, dtype=dtype), given(n, 2, dtype=dtype)
    run = lambda a, b: associative_scan(linear, {"a": a, "b": b})["b"]  # noqa: E731
    unknown = tf.function(run, input_signature=[tf.TensorSpec([None, 2], dtype)] * 2)
    for way in (run, tf.function(run), tf.function(run, jit_compile=True), unknown):
        found = way(a, b)
        assert found.dtype == dtype
        close(found, recurrence(a, b))


@pytest.mark.parametrize("axis", [0, 1, -1, -2])
@pytest.mark.parametrize("reverse", [False, True])
def test_axes_and_order(axis, reverse):
    x = given(5, 6, 4)
    expected = tf.cumsum(x, axis, reverse=reverse)
    close(associative_scan(tf.add, x, reverse, axis), expected)
    specs = [tf.TensorSpec([None] * 3)]
    run = tf.function(lambda x: associative_scan(tf.add, x, reverse, axis), input_signature=specs)
    close(run(x), expected)


@pytest.mark.parametrize("n", [1, 6, 9])
def test_products_of_matrices(n):
    m = given(n, 3, 3)
    close(associative_scan(tf.matmul, m), np.stack(looped(np.matmul, list(m))))
    backwards = np.stack(looped(np.matmul, list(m[::-1])))[::-1]
    close(associative_scan(tf.matmul, m, reverse=True), backwards)


def test_pairs_of_dtypes():
    def last(first, second):
        return tf.where(second[1] > 0, second[0], first[0]), tf.maximum(first[1], second[1])

    values, flags = associative_scan(last, (tf.range(6.0), tf.constant([1, 0, 0, 1, 0, 1])))
    close(values, [0, 0, 0, 3, 3, 5])
    assert flags.numpy().tolist() == [1] * 6


@pytest.mark.parametrize("is_known", [True, False])
def test_under_a_map_with_gradients(is_known):
    a, b = given(3, 7), given(3, 7)
    spec = tf.TensorSpec([3, 7] if is_known else [None, None])

    def one(a, b):
        return associative_scan(linear, {"a": a, "b": b})["b"]

    mapped = tf.function(tf_pfor.vmap(one, fallback="error"), input_signature=[spec] * 2)
    close(mapped(a, b), np.stack([recurrence(*row) for row in zip(a, b)]))
    rows = strict_map(lambda r: one(*r), (a, b))
    close(rows, mapped(a, b))

    def gradient(a, b):
        return tf_pfor.grad(lambda a: tf.reduce_sum(one(a, b) ** 2))(a)

    inside = tf.function(tf_pfor.vmap(gradient, fallback="error"), input_signature=[spec] * 2)
    with tf.GradientTape() as tape:
        x = tf.constant(a)
        tape.watch(x)
        y = tf.reduce_sum(mapped(x, b) ** 2)
    outside = tape.gradient(y, x)
    close(inside(a, b), outside)
    step = 1e-3
    k = np.zeros_like(a)
    k[1, 2] = step
    total = lambda a: sum((recurrence(*r) ** 2).sum() for r in zip(a.astype("f8"), b))  # noqa: E731
    np.testing.assert_allclose(outside[1, 2], (total(a + k) - total(a - k)) / (2 * step), rtol=1e-2)


def test_the_number_of_combinations():
    """Fewer than 2 n, in about 2 log2(n) calls."""
    sizes = []

    def add(x, y):
        sizes.append(int(x.shape[0]))
        return x + y

    associative_scan(add, tf.ones([64]))
    assert sum(sizes) < 128
    assert len(sizes) == 11


X = np.ones([4, 3], np.float32)
WRONG = {
    "sizes": (lambda: associative_scan(Untraced(), (X, X[1:])), "elems differ in the size of axis"),
    "axis": (lambda: associative_scan(Untraced(), {"x": X}, axis=2), "elems['x'] has shape (4, 3)"),
    "scalar": (lambda: associative_scan(Untraced(), 1.0), "no axis 0"),
    "nothing": (lambda: associative_scan(Untraced(), []), "elems holds no tensor"),
    "structure": (lambda: associative_scan(lambda x, y: (x, y), X), "a nest like its arguments"),
    "shape": (lambda: associative_scan(lambda x, y: x[0], X), "a nest like its arguments"),
    "dtype": (
        lambda: associative_scan(lambda x, y: tf.cast(x, tf.int32), X),
        "Expected: [('float32', TensorShape([2, 3]))]; found: [('int32'",
    ),
}
TYPES = {
    "no function": (lambda: associative_scan(3, X), "must be a function"),
    "no axis": (lambda: associative_scan(tf.add, X, axis=0.5), "an int"),
    "no tensor": (lambda: associative_scan(tf.add, object()), "elems is a object"),
}
test_errors = table_of_errors(WRONG, ArgumentError)
test_what_is_no_tensor = table_of_errors(TYPES, ArgumentTypeError)


def test_unknown_sizes_that_differ():
    specs = [tf.TensorSpec([None]), tf.TensorSpec([None])]
    run = tf.function(lambda x, y: associative_scan(lambda a, b: b, (x, y)), input_signature=specs)
    with pytest.raises(tf.errors.InvalidArgumentError, match="differ in the number of rows"):
        run(tf.ones([4]), tf.ones([6]))
