"""Reductions of what a mask selects, tf.reduce_mean(tf.boolean_mask(x, mask)), without a loop."""

import numpy as np
import pytest
import tensorflow as tf

import tf_pfor
from tests.comparisons import assert_close, mapped, strict_map, value_and_gradient

D = tf.float64
RNG = np.random.default_rng(0)
X = tf.constant(RNG.normal(size=[6, 5]))
MASK = tf.constant([*(RNG.random([4, 5]) < 0.5), [False] * 5, [True] * 5])
ALL = tf.fill([6, 5], True)


def pairs(x):
    return tf.stack([x, 2.0 * x], 1)


def square_of_norm(x, m):
    kept = tf.boolean_mask(x, m)
    return tf.reduce_sum((kept - tf.reduce_mean(kept)) ** 2)


def two_masks(x, m):
    """Each needs the other in the gradient."""
    return tf.reduce_sum(tf.boolean_mask(x, m)) * tf.reduce_mean(tf.boolean_mask(x, x > 0))


def count(x, m):
    kept = tf.boolean_mask(x, m)
    return tf.reduce_sum(kept) * tf.cast(tf.size(kept), D) + x[0] * tf.cast(tf.shape(kept)[0], D)


def of_truths(x, m):
    positive = tf.boolean_mask(x, m) > 0
    return tf.where(tf.reduce_any(positive), x[0], tf.where(tf.reduce_all(positive), x[1], x[2]))


def of_integers(x, m):
    ids = tf.boolean_mask(tf.cast(x * 9, tf.int32), m)
    return tf.cast(tf.reduce_sum(ids) + tf.reduce_prod(ids), D) + x[0]


PROGRAMS = {
    "sum": lambda x, m: tf.reduce_sum(tf.boolean_mask(x, m)),
    "mean": lambda x, m: tf.reduce_mean(tf.boolean_mask(x, m)),
    "mean of squares": lambda x, m: tf.reduce_mean(tf.boolean_mask(x, m) ** 2),
    "mean of pairs": lambda x, m: tf.reduce_mean(tf.boolean_mask(pairs(x), m)),
    "means of columns": lambda x, m: tf.reduce_sum(
        tf.reduce_mean(tf.boolean_mask(pairs(x), m), 0) * x[:2]
    ),
    "sums of rows": lambda x, m: tf.reduce_sum(
        tf.sin(tf.reduce_sum(tf.boolean_mask(pairs(x), m) * x[:2], 1))
    ),
    "largest": lambda x, m: tf.reduce_max(tf.boolean_mask(x, m)),
    "smallest": lambda x, m: tf.reduce_min(tf.boolean_mask(x, m)),
    "product": lambda x, m: tf.reduce_prod(tf.boolean_mask(x, m)),
    "logarithms": lambda x, m: tf.reduce_sum(tf.math.log(tf.boolean_mask(x, x > 0))),
    "roots": lambda x, m: tf.reduce_mean(tf.sqrt(tf.boolean_mask(x, x >= 0))),
    "quotients": lambda x, m: tf.reduce_sum(1.0 / tf.boolean_mask(tf.nn.relu(x), x > 0)),
    "log of a sum of exp": lambda x, m: tf.reduce_logsumexp(tf.boolean_mask(x, m)),
    "two of one mask": lambda x, m: tf.reduce_sum(
        tf.boolean_mask(x, m) * tf.sin(tf.boolean_mask(2.0 * x, m))
    ),
    "sums so far": lambda x, m: tf.reduce_max(tf.cumsum(tf.boolean_mask(x, m))),
    "softmax": lambda x, m: tf.reduce_sum(tf.nn.softmax(tf.boolean_mask(x, m)) ** 2),
    "variance": square_of_norm,
    "two masks": two_masks,
    "count": count,
    "truths": of_truths,
    "integers": of_integers,
}


def gradient(fn):
    def one(x, m):
        return value_and_gradient(lambda: fn(x, m), x, unconnected_gradients="zero")

    return one


def expected(fn, x=X, m=MASK):
    one = tf.function(gradient(fn), autograph=False)
    return [np.stack(e) for e in zip(*(one(*row) for row in zip(x, m)))]


@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("name", PROGRAMS)
def test_values(name, compiled):
    fn = PROGRAMS[name]

    def run(x, m):
        return mapped(fn, x, m)

    run = tf.function(run, autograph=False, jit_compile=compiled)
    assert_close([run(X, MASK)], expected(fn)[:1])


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_tape_around(name):
    """Nothing flows back from what is not selected, where the derivative may be infinite."""
    fn = PROGRAMS[name]

    @tf.function(autograph=False)
    def run(x, m):
        return value_and_gradient(lambda: mapped(fn, x, m), x, unconnected_gradients="zero")

    assert_close(run(X, MASK), expected(fn))


@pytest.mark.parametrize("name", PROGRAMS)
def test_gradients_in_the_body(name):
    found = tf.function(lambda x, m: mapped(gradient(PROGRAMS[name]), x, m))(X, MASK)
    assert_close(found, expected(PROGRAMS[name]))


@pytest.mark.parametrize("name", ["mean", "logarithms", "count", "largest"])
@pytest.mark.parametrize("n", [0, 1, 6])
def test_unknown_sizes(name, n):
    fn = PROGRAMS[name]
    specs = [tf.TensorSpec([None, None], D), tf.TensorSpec([None, None], tf.bool)]

    @tf.function(autograph=False, input_signature=specs)
    def run(x, m):
        return mapped(fn, x, m)

    found = run(X[:n], MASK[:n])
    np.testing.assert_allclose(found, expected(fn)[0][:n], rtol=1e-9)


@pytest.mark.parametrize("name", ["mean of squares", "logarithms", "variance", "two masks"])
def test_two_maps(name):
    one = gradient(PROGRAMS[name])

    rows = [tf.reshape(t, [2, 3, 5]) for t in (X, MASK)]
    found = strict_map(lambda rows: mapped(one, *rows), rows)
    wanted = expected(PROGRAMS[name])
    assert_close([tf.reshape(t, e.shape) for t, e in zip(found, wanted)], wanted)


@pytest.mark.parametrize("dtype", [tf.float16, tf.bfloat16, tf.float32])
def test_dtypes(dtype):
    def one(x, m):
        kept = tf.boolean_mask(x, m)
        return tf.reduce_sum(kept), tf.reduce_mean(kept)

    x = tf.cast(X, dtype)
    found = mapped(one, x, MASK)
    for f, e in zip(found, zip(*(one(*row) for row in zip(x, MASK))), strict=True):
        assert f.dtype == dtype
        np.testing.assert_allclose(tf.cast(f, tf.float32), tf.cast(tf.stack(e), tf.float32), 0.02)


@pytest.mark.parametrize("dtype", [tf.complex64, tf.int32])
def test_means_that_are_not_of_floats(dtype):
    """TensorFlow's mean of no complex numbers is zero."""
    x, m = tf.cast(X * 9, dtype), tf.concat([MASK[:4], ALL[:2]], 0)
    m = m if dtype == tf.int32 else MASK
    with pytest.warns(tf_pfor.FallbackWarning, match="not floating point"):
        found = tf_pfor.vectorized_map(lambda r: tf.reduce_mean(tf.boolean_mask(*r)), (x, m))
    np.testing.assert_allclose(found, [tf.reduce_mean(tf.boolean_mask(*r)) for r in zip(x, m)])


def test_infinite_derivatives_of_what_is_selected_stay():
    """Derivatives and numbers of elements that are not selected are dropped."""
    x = tf.constant([[0.0, 4.0, -1.0], [0.0, 0.0, 9.0], [np.inf, np.nan, 1.0]], D)
    m = tf.constant([[True, True, False], [False, False, True], [False, False, True]])
    one = gradient(lambda x, m: tf.reduce_sum(tf.sqrt(tf.boolean_mask(x, m))))
    found = tf.function(lambda: mapped(one, x, m), autograph=False)()
    np.testing.assert_array_equal(found[0], [2.0, 3.0, 1.0])
    np.testing.assert_array_equal(found[1], [[np.inf, 0.25, 0], [0, 0, 1 / 6], [0, 0, 0.5]])


@pytest.mark.parametrize("count", [5, 7])
def test_as_many_columns_as_slices(count):
    """A tensor with as many items as a slice is not taken for one with as many as selected."""

    def one(x, m):
        kept = tf.boolean_mask(x, m)
        ones = tf.fill([tf.shape(kept)[-1]], tf.constant(1.0, D))
        some = tf.fill([tf.shape(kept)[::-1][0]], tf.constant(1.0, D))
        many = tf.fill(tf.shape(kept)[:1], tf.constant(1.0, D))
        return tf.reduce_sum(ones), tf.reduce_sum(some), tf.reduce_sum(many), tf.reduce_sum(kept)

    x = tf.constant(RNG.normal(size=[6, 5, count]))
    specs = [tf.TensorSpec([6, 5, None], D), tf.TensorSpec([6, 5], tf.bool)]

    @tf.function(autograph=False, input_signature=specs)
    def run(x, m):
        return tf_pfor.vectorized_map(lambda r: one(*r), (x, m))

    wanted = [np.stack(e) for e in zip(*(one(*row) for row in zip(x, MASK)))]
    found = run(x, MASK)
    assert_close(found, wanted)


OTHERS = {
    "a shape that is set": lambda x, m: tf.reduce_sum(tf.ensure_shape(tf.boolean_mask(x, m), [5])),
    "reshaped": lambda x, m: tf.reduce_sum(tf.reshape(tf.boolean_mask(x, m), [5]) * x),
    "by its size": lambda x, m: tf.reshape(x, [tf.size(tf.boolean_mask(x, m)), -1])[0, 0],
    "sorted": lambda x, m: tf.reduce_max(tf.sort(tf.boolean_mask(x, m))),
    "places": lambda x, m: tf.cast(tf.reduce_sum(tf.where(tf.boolean_mask(x, m) > 0)), D),
}


@pytest.mark.parametrize("name", OTHERS)
@pytest.mark.filterwarnings("ignore::tf_pfor.FallbackWarning")
def test_others(name):
    """Ops that see the number or the places of elements give the numbers of a loop."""
    fn = OTHERS[name]
    found = tf_pfor.vectorized_map(lambda r: fn(*r), (X, ALL))
    np.testing.assert_allclose(found, [fn(*row) for row in zip(X, ALL)], rtol=1e-9)


@pytest.mark.parametrize(
    "fn", [lambda v: v[0] * v[-1], lambda v: v[tf.size(v) - 1] * v[0], lambda v: v[-1]]
)
def test_one_of_what_is_selected(fn):
    """The first or the last; if none is selected, the error of a slice beyond the end."""

    def strict(one, x, m):
        return mapped(one, x, m)

    def one(x, m):
        return fn(tf.boolean_mask(x, m))

    def slope(x, m):
        return gradient(one)(x, m)[1]

    assert_close(strict(gradient(one), X[:4], MASK[:4]), expected(one, X[:4], MASK[:4]))
    for each in (one, slope):
        with pytest.raises(tf.errors.InvalidArgumentError, match="out of bounds|is not in"):
            strict(each, X, MASK)


def test_products_of_what_is_selected():
    w = tf.constant(RNG.normal(size=[2, 3]))

    def one(x, m):
        return tf.reduce_sum(tf.sin(tf.boolean_mask(pairs(x), m) @ w))

    found = mapped(gradient(one), X, MASK)
    assert_close(found, expected(one))
