"""Tests of corners in which recorded ops must be as eager ops, or are refused."""

import numpy as np
import pytest
import tensorflow as tf

import tf_pfor


def test_a_list_of_no_tensors():
    with tf_pfor.lazy():
        x = tf.zeros([0, 2]) * 2.0
        assert tf.unstack(x) == []
    fn = tf_pfor.batched(lambda k: tf.constant(k) + len(tf.unstack(tf.zeros([0, 2]) * k)))
    assert fn([1.0, 2.0]).numpy().tolist() == [1.0, 2.0]


@pytest.mark.parametrize("n", [2, 7, 8, 9, 10, 16, 17, 18, 25])
def test_sums_of_many_tensors_have_equal_bits(n):
    tensors = list(tf.random.stateless_normal([n, 40], [n, 1]))
    with tf_pfor.lazy():
        found = tf.add_n(tensors)
    np.testing.assert_array_equal(found, tf.add_n(tensors), strict=True)


def test_gradients_of_a_long_recurrence_have_equal_bits():
    start = tf.random.stateless_normal([4, 4], [1, 2])

    def gradient():
        h, w = tf.ones([1, 4]) * 0.3, tf.Variable(start)
        with tf.GradientTape() as tape:
            for _ in range(20):
                h = tf.tanh(h @ w)
            y = tf.reduce_sum(h**2)
        return tape.gradient(y, w)

    np.testing.assert_array_equal(tf_pfor.lazy(gradient)(), gradient(), strict=True)
