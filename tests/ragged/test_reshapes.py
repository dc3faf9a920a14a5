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
