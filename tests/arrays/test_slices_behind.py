"""Slices by numbers of the row, of axes that all rows share, of rows of different lengths."""

import numpy as np
import pytest
import tensorflow as tf

from tests.comparisons import compare_around, strict_map

LENGTHS = tf.constant([2, 3, 1])
X = tf.random.stateless_normal([3, 3, 4], [1, 2])
RAGGED = tf.RaggedTensor.from_tensor(X, LENGTHS)
PLACES, COUNTS = tf.constant([-1, 2, 1]), tf.constant([1, 3, 0])
REST = (LENGTHS, PLACES, COUNTS)
ONE = tf.Variable(1)

SLICES = {
    "column": lambda r, j, k: r[:, j],
    "element": lambda r, j, k: r[0, j],
    "column of all rows": lambda r, j, k: r[:, ONE],
    "element of the column": lambda r, j, k: r[-1, ONE],
    "first columns": lambda r, j, k: r[:, :k],
    "last columns": lambda r, j, k: r[:, k:],
    "window": lambda r, j, k: r[:, k : k + 1],
    "every other": lambda r, j, k: r[:, k::2],
    "part of the first": lambda r, j, k: r[0, :k],
    "part of the last": lambda r, j, k: r[-1:, k:],
    "both axes": lambda r, j, k: r[:k, :k],
    "new axis": lambda r, j, k: r[None, :, None, j],
    "two axes": lambda r, j, k: tf.reshape(r, [-1, 2, 2])[:, j % 2, :k],
    "in front": lambda r, j, k: tf.transpose(r)[j],
    "range in front": lambda r, j, k: tf.transpose(r)[:k, 1:],
}


def flat(results):
    return [tf.reshape(getattr(r, "flat_values", r), [-1]).numpy() for r in results]


def looped(f):
    return flat([f(x[:k], j, c) for x, k, j, c in zip(X, LENGTHS, PLACES, COUNTS)])


def mapped(f, elems, **options):
    return strict_map(lambda e: f(*e), elems, **options)


def in_map(f):
    """Each row twice, in a map of a map."""

    def outer(e):
        x, k, j, c = e
        elems = (tf.stack([x[:k], x[:k]]), tf.stack([j, j]), tf.stack([c, c]))
        return strict_map(lambda r: f(*r), elems)

    return strict_map(outer, (X, LENGTHS, PLACES, COUNTS))


@pytest.mark.parametrize("form", ["ragged", "cut", "chunks", "in a map"])
@pytest.mark.parametrize("name", SLICES)
def test_values(name, form):
    f = SLICES[name]
    if form == "ragged":
        found = mapped(f, (RAGGED, PLACES, COUNTS))
    elif form == "in a map":
        if name in ("two axes", "range in front"):
            pytest.skip("a loop")
        found = [row[1] for row in in_map(f)]
    else:
        options = {"chunk_size": 2} if form == "chunks" else {}
        elems = (X, LENGTHS, PLACES, COUNTS)
        found = mapped(lambda x, k, j, c: f(x[:k], j, c), elems, **options)
    for got, want in zip(flat(found[i] for i in range(3)), looped(f), strict=True):
        np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize("name", SLICES)
def test_gradients(name):
    body = lambda x, k, j, c: SLICES[name](x[:k], j, c)  # noqa: E731
    compare_around(body, X, *REST, rtol=1e-6, atol=1e-12)


@pytest.mark.parametrize("name", SLICES)
def test_jit_compile(name):
    def row(x, k, j, c):
        return tf.reduce_sum(SLICES[name](x[:k], j, c))

    run = tf.function(lambda: mapped(row, (X, *REST)), jit_compile=True)
    np.testing.assert_allclose(run(), [w.sum() for w in looped(SLICES[name])], rtol=1e-5)


def test_an_index_beyond_the_end_is_an_error():
    with pytest.raises(tf.errors.InvalidArgumentError, match="an index is out of bounds"):
        mapped(SLICES["column"], (RAGGED, PLACES + 3, COUNTS))


def test_square_cuts_are_known_to_be_square():
    """The size of the row cuts the other axis, which has room for it."""

    def row(x, k):
        r = x[:k]
        square = r[:, : tf.shape(r)[0]]
        return square @ square

    run = tf.function(
        lambda: mapped(lambda x, k: tf.reduce_sum(row(x, k)), (X, LENGTHS)), jit_compile=True
    )
    want = [tf.reduce_sum(row(x, k)) for x, k in zip(X, LENGTHS)]
    np.testing.assert_allclose(run(), want, rtol=1e-4)


def best_path(scores):
    """Viterbi's path: back pointers [k - 1, 4] are read at the place of the row."""
    n, best = tf.shape(scores)[0], scores[0]
    back = tf.TensorArray(tf.int32, n - 1, element_shape=[4])
    for t in tf.range(1, n):
        each = best[:, None] + X[0, :1] * 0.5
        back = back.write(t - 1, tf.argmax(each, 0, output_type=tf.int32))
        best = tf.reduce_max(each, 0) + scores[t]
    pointers, at = back.stack(), tf.argmax(best, output_type=tf.int32)
    path = tf.TensorArray(tf.int32, n, element_shape=[]).write(n - 1, at)
    for t in tf.range(n - 2, -1, -1):
        at = pointers[t, at]
        path = path.write(t, at)
    return path.stack()


def test_paths():
    found = strict_map(best_path, RAGGED)
    one = tf.function(best_path, input_signature=[tf.TensorSpec([None, 4])])
    assert found.to_list() == [one(x[:k]).numpy().tolist() for x, k in zip(X, LENGTHS)]
