"""Reshapes of rows of different shapes: each row must fill its own new shape."""

import pytest
import tensorflow as tf

import tf_pfor


def mapped(body, lengths):
    return tf_pfor.vectorized_map(body, tf.constant(lengths), fallback_to_while_loop=False)


@pytest.mark.parametrize("shape", [[2, 2], [-1, 2]])
def test_rows_that_do_not_fill_it(shape):
    """Three and five elements are as many as four and four."""
    with pytest.raises(tf.errors.InvalidArgumentError, match="do not fill its new shape"):
        mapped(lambda k: tf.reshape(tf.range(k), shape), [3, 5])


def test_a_shape_of_the_row():
    def body(k):
        return tf.reshape(tf.range(k), [k // 2, 2])

    assert mapped(body, [2, 4]).to_list() == [[[0, 1]], [[0, 1], [2, 3]]]
    with pytest.raises(tf.errors.InvalidArgumentError, match="do not fill its new shape"):
        mapped(body, [3, 5])


def test_rows_that_fill_it():
    found = mapped(lambda k: tf.reshape(tf.range(8)[:k], [2, 2]), [4, 4])
    assert found.numpy().tolist() == [[[0, 1], [2, 3]]] * 2
    found = mapped(lambda k: tf.reshape(tf.range(k), [-1, 2]), [4, 2])
    assert found.to_list() == [[[0, 1], [2, 3]], [[0, 1]]]
