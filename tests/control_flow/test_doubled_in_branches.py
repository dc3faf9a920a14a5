"""Tensors that a branch adds to themselves, with gradients around the map.

TensorFlow's optimizer ends such a branch where sizes are unknown: its results are empty tensors.
"""

import numpy as np
import tensorflow as tf

import tf_pfor
from tests.cases import grid
from tests.comparisons import gradient_of

X = tf.constant([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0], [7.0, 8.0, 9.0], [1.0, 1.0, 1.0]])
K = tf.constant([1.0, -1.0, 1.0, -1.0])
DOUBLED = {
    "twice": (lambda a: a + a, 2.0),
    "three times": (lambda a: a + a + a, 3.0),
    "a residual": (lambda a: a + (a - 1.0), 2.0),
    "reshaped": (lambda a: tf.reshape(a, tf.shape(a)) + a, 2.0),
}
of_row = lambda double, k: lambda a: tf.cond(a[1] * k > 0, lambda: double(a[0]), lambda: a[0] * 5.0)


@grid(order=[1, 2], name=DOUBLED)
def test_predicates_of_rows(name, order):
    double, factor = DOUBLED[name]

    @tf.function(input_signature=[tf.TensorSpec([None, 3]), tf.TensorSpec([None])])
    def run(x, k):
        def slope(d):
            mapped = lambda: tf_pfor.vectorized_map(of_row(double, 1.0), (x, k))
            return gradient_of(mapped, x, output_gradients=d)

        d = 2.0 * x
        return slope(d) if order == 1 else gradient_of(lambda: slope(d), d)

    factors = np.where(K.numpy() > 0, factor, 5.0)[:, None]
    expected = factors * (2.0 * X if order == 1 else tf.ones_like(X))
    np.testing.assert_allclose(run(X, K), expected)


@grid(shared=[1.0, -1.0], name=DOUBLED)
def test_predicates_that_all_rows_share(name, shared):
    double, factor = DOUBLED[name]

    @tf.function(input_signature=[tf.TensorSpec([None, 3]), tf.TensorSpec([])])
    def run(x, k):
        body = of_row(double, k)
        return gradient_of(lambda: tf_pfor.vectorized_map(lambda a: body((a, 1.0)), x), x)

    np.testing.assert_allclose(run(X, shared), (factor if shared > 0 else 5.0) * tf.ones_like(X))


def test_variable_length_rows():
    x = tf.ragged.constant([[1.0, 2.0], [3.0], [5.0, 6.0, 7.0]])

    @tf.function
    def run(values):
        body = lambda r: tf.cond(tf.reduce_sum(r) > 3.5, lambda: r + r, lambda: r * 3.0)
        mapped = lambda: tf_pfor.vectorized_map(body, x.with_values(values)).values
        return gradient_of(mapped, values)

    np.testing.assert_allclose(run(x.values), [3.0, 3.0, 3.0, 2.0, 2.0, 2.0])
