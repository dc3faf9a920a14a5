"""Reductions of what a mask selects, tf.reduce_mean(tf.boolean_mask(x, mask)), without a loop."""

import numpy as np
import pytest
import tensorflow as tf

import tf_pfor
from tests.comparisons import mapped, value_and_gradient
from tests.ways import errors_of, slopes_of, table_of

D = tf.float64
RNG = np.random.default_rng(0)
X = tf.constant(RNG.normal(size=[6, 5]))
MASK = tf.constant([*(RNG.random([4, 5]) < 0.5), [False] * 5, [True] * 5])
ALL = tf.fill([6, 5], True)
W = tf.constant(RNG.normal(size=[2, 3]))


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
ONE = {  # of what is selected
    "first": lambda x, m: tf.boolean_mask(x, m)[0] * tf.boolean_mask(x, m)[-1],
    "by its size": lambda x, m: tf.boolean_mask(x, m)[tf.size(tf.boolean_mask(x, m)) - 1],
    "last": lambda x, m: tf.boolean_mask(x, m)[-1],
}
EXACT = {"tolerance": (1e-9, 1e-12)}
FEW = ["unknown sizes, few rows"]
test_table_of_programs = table_of(
    {
        **PROGRAMS,
        "product of a matrix": lambda x, m: tf.reduce_sum(tf.sin(tf.boolean_mask(pairs(x), m) @ W)),
        **{name: (one, (X[:4], MASK[:4])) for name, one in ONE.items()},
    },
    X, MASK,
    ways=[
        "function", "compiled", "function, around", "function, inside", *FEW, "two maps",
        "two maps, inside",
    ],
    only={
        FEW[0]: ["mean", "logarithms", "count", "largest"],
        **dict.fromkeys(["two maps", "two maps, inside"],
                        ["mean of squares", "logarithms", "variance", "two masks"]),
    },
    but={"compiled": ["product of a matrix", *ONE]}, **EXACT,
)  # fmt: skip
test_table_of_dtypes = table_of(
    {
        f"{name} of {dtype.name}": (
            lambda x, m, f=f: f(tf.boolean_mask(x, m)), (tf.cast(X, dtype), MASK))
        for name, f in (("sum", tf.reduce_sum), ("mean", tf.reduce_mean))
        for dtype in (tf.float16, tf.bfloat16, tf.float32)
    },
    ways=["eager"], tolerance=(0.02, 0.0),
)  # fmt: skip
OTHERS = {
    "a shape that is set": lambda x, m: tf.reduce_sum(tf.ensure_shape(tf.boolean_mask(x, m), [5])),
    "reshaped": lambda x, m: tf.reduce_sum(tf.reshape(tf.boolean_mask(x, m), [5]) * x),
    "by its size": lambda x, m: tf.reshape(x, [tf.size(tf.boolean_mask(x, m)), -1])[0, 0],
    "sorted": lambda x, m: tf.reduce_max(tf.sort(tf.boolean_mask(x, m))),
    "places": lambda x, m: tf.cast(tf.reduce_sum(tf.where(tf.boolean_mask(x, m) > 0)), D),
}
# Ops that see the number or the places of elements give the numbers of a loop.
test_table_of_others = table_of(OTHERS, X, ALL, ways=["eager"], looped=["eager"], **EXACT)
# The first or the last; if none is selected, the error of a slice beyond the end.
# If none is selected, it is the error of a slice beyond the end.
test_one_of_none = errors_of(
    {**ONE, **{f"gradient of {name}": slopes_of(one, None) for name, one in ONE.items()}},
    X, MASK, match="out of bounds|is not in",
)  # fmt: skip


@pytest.mark.parametrize("dtype", [tf.complex64, tf.int32])
def test_means_that_are_not_of_floats(dtype):
    """TensorFlow's mean of no complex numbers is zero."""
    x, m = tf.cast(X * 9, dtype), tf.concat([MASK[:4], ALL[:2]], 0)
    m = m if dtype == tf.int32 else MASK
    found = tf_pfor.vmap(lambda *r: tf.reduce_mean(tf.boolean_mask(*r)), fallback="error")(x, m)
    np.testing.assert_allclose(found, [tf.reduce_mean(tf.boolean_mask(*r)) for r in zip(x, m)])


def test_infinite_derivatives_of_what_is_selected_stay():
    """Derivatives and numbers of elements that are not selected are dropped."""
    x = tf.constant([[0.0, 4.0, -1.0], [0.0, 0.0, 9.0], [np.inf, np.nan, 1.0]], D)
    m = tf.constant([[True, True, False], [False, False, True], [False, False, True]])

    def one(x, m):
        return value_and_gradient(lambda: tf.reduce_sum(tf.sqrt(tf.boolean_mask(x, m))), x)

    found = tf.function(lambda: mapped(one, x, m), autograph=False)()
    np.testing.assert_array_equal(found[0], [2.0, 3.0, 1.0])
    np.testing.assert_array_equal(found[1], [[np.inf, 0.25, 0], [0, 0, 1 / 6], [0, 0, 0.5]])


def columns(x, m):
    """A tensor with as many items as a slice is not taken for one with as many as selected."""
    kept = tf.boolean_mask(x, m)
    ones = tf.fill([tf.shape(kept)[-1]], tf.constant(1.0, D))
    some = tf.fill([tf.shape(kept)[::-1][0]], tf.constant(1.0, D))
    many = tf.fill(tf.shape(kept)[:1], tf.constant(1.0, D))
    return tf.reduce_sum(ones), tf.reduce_sum(some), tf.reduce_sum(many), tf.reduce_sum(kept)


test_table_of_columns = table_of(
    {str(n): (columns, (tf.constant(RNG.normal(size=[6, 5, n])), MASK)) for n in (5, 7)},
    ways=["unknown sizes"], **EXACT,
    specs=(tf.TensorSpec([6, 5, None], D), tf.TensorSpec([6, 5], tf.bool)),
)  # fmt: skip
