"""A function of one row by a kernel for all rows, whose results differ in shape: their order."""

import pytest
import tensorflow as tf

from tf_pfor.layouts import row_kernels

OUTPUTS = (
    tf.TensorSpec([None, 2], tf.int32),
    tf.TensorSpec([None, None], tf.string),
    tf.TensorSpec([], tf.int32),
)


def one(k, word):
    """[k, 2] numbers, [k % 3, 2] words, and k."""
    numbers = tf.stack([tf.range(k), tf.fill([k], k)], 1)
    words = tf.fill([k % 3, 2], tf.strings.join([word, tf.strings.as_string(k)]))
    return [numbers, words, k]


@pytest.mark.parametrize("n", [0, 1, 2, 3, 7, 8, 13])
def test_rows(n):
    sizes = [(5 * i) % 7 for i in range(n)]

    @tf.function(input_signature=[tf.TensorSpec([None], tf.int32)])
    def run(k):
        likes = [tf.compat.v1.placeholder(x.dtype, x.shape) for x in OUTPUTS]
        shapes = [tuple(x.shape) for x in OUTPUTS]
        found = row_kernels.all_rows(one, [k], [tf.constant("w")], likes, shapes, None)
        return found[0].ragged_tensor(), found[1].ragged_tensor(), found[2].tensor

    numbers, words, plain = run(tf.constant(sizes, tf.int32))
    assert numbers.to_list() == [[[j, k] for j in range(k)] for k in sizes]
    assert words.to_list() == [[[b"w%d" % k] * 2] * (k % 3) for k in sizes]
    assert plain.numpy().tolist() == sizes
