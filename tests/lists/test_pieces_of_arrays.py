"""Tensors cut into pieces by a TensorArray, and joined again; stacks of a given length."""

import numpy as np
import pytest
import tensorflow as tf

import tf_pfor
from tests.comparisons import by_row, gradient_of

D = tf.float64
X = tf.constant(np.arange(8.0).reshape([2, 4]))
MATRICES = tf.constant(np.random.default_rng(0).normal(size=[2, 4, 3]))


def cut(lengths, *read):
    """Squares of some pieces."""

    def fn(x):
        a = tf.TensorArray(D, len(lengths), infer_shape=False, clear_after_read=False)
        a = a.split(x, lengths)
        pieces = [tf.ensure_shape(a.read(i), [lengths[i], *x.shape[1:]]) for i in read]
        return tf.add_n([tf.reduce_sum(p**2) * (i + 1.0) for i, p in zip(read, pieces)])

    return fn


def joined(x):
    a = tf.TensorArray(D, 2, infer_shape=False)
    whole = a.write(0, x[:3]).write(1, x[3:]).concat()
    return tf.reduce_sum(tf.ensure_shape(whole, x.shape) ** 3)


def gradient(fn):
    of = lambda x: gradient_of(lambda: tf.reduce_sum(fn(x) ** 2), x)
    return of


mapped = lambda fn, fallback="error": lambda x: tf_pfor.vectorized_map(fn, x, fallback=fallback)
PROGRAMS = {
    "all": cut([3, 1], 0, 1),
    "the first": cut([1, 3], 0),
    "the last": cut([1, 3], 1),
    "one of three": cut([1, 2, 1], 1),
    "equal ones": cut([2, 2], 1),
    "joined": joined,
}


@pytest.mark.parametrize(
    "x", [X, MATRICES, X[:1], X[:0]], ids=["vectors", "matrices", "one", "none"]
)
@pytest.mark.parametrize("name", PROGRAMS)
def test_pieces_of_other_lengths(name, x):
    fn = PROGRAMS[name]
    for each in (fn, gradient(fn), gradient(gradient(fn))):
        found = mapped(each)(x)
        assert found.shape[0] == x.shape[0]
        if x.shape[0]:
            np.testing.assert_allclose(found, by_row(each, x), rtol=1e-12)


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_tape_around(name):
    fn = PROGRAMS[name]
    around = tf.function(lambda x: gradient_of(lambda: tf.reduce_sum(mapped(fn)(x) ** 2), x))
    np.testing.assert_allclose(around(X), by_row(gradient(fn), X), rtol=1e-12)


@pytest.mark.parametrize("name", PROGRAMS)
def test_unknown_numbers_of_rows(name):
    fn = gradient(PROGRAMS[name])
    of_all = tf.function(mapped(fn), input_signature=[tf.TensorSpec([None, 4], D)])
    np.testing.assert_allclose(of_all(X), by_row(fn, X), rtol=1e-12)
    assert of_all(X[:0]).shape == [0, 4]


@pytest.mark.parametrize("place", [0, 1])
def test_lengths_that_are_known_when_it_runs(place):
    @tf.function
    def of_all(x, lengths):
        def fn(row):
            a = tf.TensorArray(D, 2, infer_shape=False).split(row, lengths)
            return tf.reduce_sum(tf.ensure_shape(a.read(place), [None]) ** 2) * (place + 1.0)

        found = mapped(gradient(fn))(x)
        return found.to_tensor() if isinstance(found, tf.RaggedTensor) else found

    for lengths in ([1, 3], [3, 1], [4, 0]):
        wanted = by_row(gradient(cut(lengths, place)), X)
        np.testing.assert_allclose(of_all(X, tf.constant(lengths)), wanted, rtol=1e-12)
        assert of_all(X[:0], tf.constant(lengths)).shape[0] == 0


def grown(x, k, fixed):
    """A list of k items, stacked as three."""
    raw, shape = tf.raw_ops, tf.constant([], tf.int32)
    made = raw.EmptyTensorList(element_shape=shape, max_num_elements=-1, element_dtype=D)
    for i in tf.range(k):
        made = raw.TensorListPushBack(input_handle=made, tensor=x[i])
    return raw.TensorListStack(
        input_handle=made, element_shape=shape, element_dtype=D, num_elements=fixed
    )


@pytest.mark.parametrize("lengths", [[3, 3], [3, 0], [4, 3], [1, 2]], ids=str)
def test_all_lists_are_as_long_as_their_stack_says(lengths):
    of_all = lambda x, k: tf_pfor.vectorized_map(lambda row: grown(*row, 3), (x, k))
    if lengths == [3, 3]:
        np.testing.assert_array_equal(tf.function(of_all)(X, tf.constant(lengths)), X[:, :3])
        return
    with pytest.raises(tf.errors.InvalidArgumentError, match="length of the list differs"):
        tf.function(of_all)(X, tf.constant(lengths))
