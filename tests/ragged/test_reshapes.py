"""Reshapes of rows of different shapes: each row must fill its own new shape."""

import numpy as np
import pytest
import tensorflow as tf

import tf_pfor
from tests.comparisons import gradient_of, mapped
from tests.ways import errors_of, table_of

X = tf.random.stateless_normal([5, 6, 3], [1, 2])
RANGE = tf.range(24)


def repeated(k, m):
    """The gradients of a broadcast element are added up, in rows with one element."""
    x = tf.range(1.0, 6.0)
    a, b = tf.sin(x[:k]), tf.cos(x[:m])
    return gradient_of(lambda: a * b, [a, b])


def jacobian(x):
    with tf.GradientTape() as tape:
        tape.watch(x)
        y = x**3
    return tape.jacobian(y, x)


def slopes_of_frames(x):
    """The slices of the gradient begin at places that all rows share, known at run time only."""
    return gradient_of(lambda: tf.reduce_sum(tf.sin(tf.signal.overlap_and_add(x, 2))), x)


def shape_of_own(shape):
    """Four elements in the shape that a row asks for, of which the body knows the sizes."""
    return lambda x, k: tf.reshape(x, shape(k))


def squared(x, k):
    made = tf.reshape(x, [k, k])
    made.set_shape([2, 2])
    return made


def if_right(shape):
    return lambda x, k: tf.cond(tf.equal(k, 2), lambda: tf.reshape(x, shape(k)), lambda: SQUARE)


def in_trips(x, k):
    """A row that makes no trip asks for a wrong shape."""
    loop = lambda i, total: (i + 1, total + tf.reshape(x, [k, 2]))  # noqa: E731
    return tf.while_loop(lambda i, _: i < tf.minimum(k, 2), loop, [0, SQUARE])[1]


def in_inner_map(x, k):
    return mapped(lambda m: tf.reshape(x, [m, 2]) + 1.0, tf.stack([k, 2]))


SQUARE = tf.zeros([2, 2])
FOURS = tf.random.stateless_normal([3, 4], [1, 7])
ASKED = {
    "[k, 2]": lambda k: [k, 2],
    "[2, k]": lambda k: tf.stack([2, k]),
    "[k, 2, 1]": lambda k: [k, 2, 1],
    "[k + k]": lambda k: [k + k],
}
test_table_of_own_shapes = table_of(
    {
        **{name: (shape_of_own(f), (FOURS, tf.constant([2, 2, 2]))) for name, f in ASKED.items()},
        "-1": (shape_of_own(ASKED["[k, 2]"]), (FOURS, tf.constant([2, -1, 2]))),
        "set shape": (squared, (FOURS, tf.constant([2, 2, 2]))),
        "if right": (if_right(ASKED["[k, 2]"]), (FOURS, tf.constant([2, 3, -3]))),
        "in trips": (in_trips, (FOURS, tf.constant([2, 0, -3]))),
        "in an inner map": (in_inner_map, (FOURS, tf.constant([2, 2, 2]))),
    },
    ways=["eager", "unknown n", "no rows", "around", "inside", "compact", "mask", "compiled"],
    only={"compact": ["in trips"], "mask": ["in trips"], "compiled": [*ASKED, "-1", "if right"]},
    tolerance=(1e-6, 1e-6),
)  # fmt: skip
WRONG = {"too large": 3, "zero": 0, "negative": -3}
test_own_shapes_that_rows_do_not_fill = errors_of(
    {
        **{
            f"{name}, {which}": (shape_of_own(f), (FOURS, tf.constant([2, k, 2])))
            for name, f in ASKED.items()
            for which, k in WRONG.items()
        },
        "two of -1": (squared, (FOURS, tf.constant([2, -1, 2]))),
        "of shared elements": (
            lambda k: tf.reshape(tf.range(4), [k, 2]), tf.constant([2, 3, 2])),
        "of a slice": (
            lambda x, k: tf.reshape(x[:2], [k, 2]), (FOURS, tf.constant([1, 3, 1]))),
        "in trips": (in_trips, (FOURS, tf.constant([2, 1, 2]))),
        "in an inner map": (in_inner_map, (FOURS, tf.constant([2, 3, 2]))),
    },
    match=r"test_reshapes.py:\d+\): the shape is not",
)  # fmt: skip

LEFT = (tf.constant([3, 0, 0, 2, 0]), tf.constant([2, 2, 0, 4, 0]))
FRAMES = tf.RaggedTensor.from_row_lengths(tf.random.stateless_normal([9, 4], [1, 2]), [3, 1, 5])
test_table_of_reshapes = table_of(
    {
        "a shape of the row": (lambda k: tf.reshape(tf.range(k), [k // 2, 2]), tf.constant([2, 4])),
        "to one shape": (lambda k: tf.reshape(tf.range(8)[:k], [2, 2]), tf.constant([4, 4])),
        "what is left": (lambda k: tf.reshape(tf.range(k), [-1, 2]), tf.constant([4, 2])),
        "of no elements to any size": (
            lambda x, k, m: tf.reshape(x[:k], [k, m]),
            (X[:2], tf.constant([0, 2]), tf.constant([5, 3]))),
        "of dense rows": (
            lambda x, k, m: tf.reshape(x[:, 0], [k, m]) * 2.0,
            (X[:3], tf.constant([2, 3, 1]), tf.constant([3, 2, 6]))),
        "[m, -1]": (lambda k, m: tf.shape(tf.reshape(RANGE[: k * 4], [m, -1])), LEFT),
        "[k, m, -1]": (lambda k, m: tf.shape(tf.reshape(RANGE[: k * 4], [k, m, -1])), LEFT),
        "[m, -1, k]": (lambda k, m: tf.shape(tf.reshape(RANGE[: k * 4], [m, -1, k])), LEFT),
        "repeated": (repeated, (tf.constant([3, 1, 4, 1, 2]), tf.constant([1, 5, 4, 1, 2]))),
        "frames that overlap": (slopes_of_frames, FRAMES),
    },
    ways=["eager"], tolerance=(1e-6, 1e-6),
)  # fmt: skip

# A row fails; it must not take elements of the row beside it: three and five are four and four.
test_rows_that_do_not_fill_it = errors_of(
    {
        "to one shape": (lambda k: tf.reshape(tf.range(k), [2, 2]), tf.constant([3, 5])),
        "what is left": (lambda k: tf.reshape(tf.range(k), [-1, 2]), tf.constant([3, 5])),
        "a shape of the row": (lambda k: tf.reshape(tf.range(k), [k // 2, 2]), tf.constant([3, 5])),
        "what is left of none": (lambda k: tf.reshape(tf.range(3), [k, -1]), tf.constant([3, 0])),
        "cut, as many in all": lambda x, k, m: tf.reshape(x[:k, 0], [m, 1]),
        "cut, to one shape": lambda x, k, m: tf.reshape(x[:k, 0], [3]),
        "cut, what is left": (
            lambda x, k: tf.reshape(x[:k, 0], [-1, 2]), (X[:2], tf.constant([3, 5]))),
        "of dense rows": lambda x, k, m: tf.reshape(x[:, 0], [k, m]),
    },
    X[:2], tf.constant([2, 4]), tf.constant([4, 2]), match="fill its new shape|6 values",
)  # fmt: skip


@pytest.mark.parametrize("lengths", [[3, 0, 1], [0, 0]])
@pytest.mark.parametrize("is_flat", [False, True])
@pytest.mark.parametrize("mapper", [tf_pfor.vmap, None])
def test_jacobians_of_rows_of_no_elements(mapper, is_flat, lengths):
    def body(x):
        return jacobian(tf.reshape(x, [-1]) if is_flat else x)

    values = tf.reshape(tf.range(3.0 * sum(lengths)), [-1, 3])
    rows = tf.RaggedTensor.from_row_lengths(values, lengths)
    with tf.GradientTape() as tape:
        tape.watch(rows.flat_values)
        found = mapper(body)(rows) if mapper else mapped(body, rows)
        loss = tf.reduce_sum(found.flat_values**2)
    assert found.nrows() == len(lengths)
    for got, row in zip(found, rows):
        want = body(row).numpy()
        np.testing.assert_allclose(got.flat_values.numpy().reshape(want.shape), want, rtol=1e-5)
    np.testing.assert_allclose(tape.gradient(loss, rows.flat_values), 36 * values**3, rtol=1e-5)


def test_repeats_keep_the_sizes_that_rows_share():
    """tf.repeat by a number of the row makes a shape out of parts of shapes."""
    x, k = tf.reshape(tf.range(24.0), [3, 4, 2]), tf.constant([1, 3, 0])
    found = tf_pfor.vectorized_map(lambda e: tf.repeat(e[0], e[1], 0), (x, k))
    assert found.shape.as_list() == [3, None, 2]
    for row, one, number in zip(found, x, k):
        np.testing.assert_array_equal(row, tf.repeat(one, number, 0))
