"""Sparse tensors with entries of each row's own number, sets, counts and what is decoded."""

import warnings

import numpy as np
import pytest
import tensorflow as tf

import tf_pfor
from tests.comparisons import assert_rows, compare_around, flat, gradient_of, strict_map

N = 4
_RNG = np.random.default_rng(5)
_DENSE = _RNG.integers(-3, 4, (N, 3, 4)) * (_RNG.random((N, 3, 4)) < 0.5)
_DENSE[2] = 0  # a row without entries
X = tf.constant(_DENSE, tf.float32)
IDS = tf.constant(_RNG.integers(0, 4, (N, 2, 4)))
LOGITS = tf.random.stateless_normal([N, 6, 2, 4], [1, 2])
TABLE = tf.random.stateless_normal([5, 2], [1, 3])
DENSE = tf.random.stateless_normal([4, 2], [1, 4])
FIXED = tf.sparse.from_dense([[0.0, 2.0, 0.0, 1.0], [0.0] * 4, [1.0, 0.0, 0.0, 5.0]])
raw = tf.raw_ops


def sparse(x):
    return tf.sparse.from_dense(x)


def numbers(x):
    return tf.sparse.map_values(lambda v: tf.cast(tf.abs(v), tf.int64), sparse(x))


def parts(s):
    """The parts of a sparse tensor, with its shape."""
    return s.indices, s.values, s.dense_shape


def filled(x):
    s, is_empty = tf.sparse.fill_empty_rows(sparse(x), 7.0)
    return *parts(s), is_empty


def bags(combiner):
    def fn(ids):
        return tf.nn.embedding_lookup_sparse(TABLE, tf.sparse.from_dense(ids), None, combiner)

    return fn


def counted(x, **options):
    return parts(tf.sparse.bincount(numbers(x), axis=-1, **options))


def dense_counts(ids, **options):
    return list(
        raw.DenseCountSparseOutput(
            values=ids, weights=tf.zeros([0]), binary_output=False, **options
        )
    )


def decoded(x, decoder, **options):
    paths, chances = decoder(tf.transpose(x, [0, 1, 2]), [6, 5], **options)
    return [p for path in paths for p in parts(path)], chances


def stitched(ids):
    order = tf.argsort(ids[0] * 4 + tf.range(4, dtype=tf.int64))
    return tf.dynamic_stitch([order[:1], order[1:]], [tf.range(1.0), tf.range(1.0, 4.0)])


# name -> (body, its rows)
BODIES = {
    "add": (lambda x: parts(tf.sparse.add(sparse(x), FIXED)), X),
    "add dense": (lambda x: tf.sparse.add(sparse(x), tf.ones([3, 4])), X),
    "add with a threshold": (lambda x: parts(tf.sparse.add(sparse(x), FIXED, 1.5)), X),
    "concat": (lambda x: parts(tf.sparse.concat(1, [sparse(x), FIXED, sparse(x * 2.0)])), X),
    "counts": (lambda x: counted(x, minlength=2), X),
    "counts, cut": (lambda x: counted(x, maxlength=2), X),
    "counts, dense": (
        lambda x: tf.sparse.bincount(numbers(x), minlength=5, maxlength=5).values, X),
    "counts of a matrix": (lambda ids: dense_counts(ids), IDS),
    "counts of a vector": (lambda ids: dense_counts(ids[0], minlength=6), IDS),
    "counts of a ragged one": (
        lambda ids: list(raw.RaggedCountSparseOutput(
            splits=[0, 3, 3, 4], values=ids[0], weights=tf.ones([4]), binary_output=False)), IDS),
    "cross": (lambda x: parts(tf.sparse.cross_hashed([numbers(x), numbers(x)], 11)), X),
    "cwise": (lambda x: parts(sparse(x) * (1.0 + tf.reshape(tf.range(12.0), [3, 4]))), X),
    "difference of lists": (
        lambda ids: list(tf.compat.v1.setdiff1d(ids[0], ids[1][:2])), IDS),
    "decoded": (lambda x: decoded(x, tf.nn.ctc_greedy_decoder), LOGITS),
    "decoded with a beam": (
        lambda x: decoded(x, tf.nn.ctc_beam_search_decoder, top_paths=2, beam_width=4), LOGITS),
    "edit distance": (
        lambda ids: tf.edit_distance(
            sparse(ids), sparse(tf.constant([[1, 2], [3, 1]], tf.int64)), normalize=False),
        tf.maximum(IDS, 1)),
    "embedded, mean": (bags("mean"), tf.maximum(IDS, 1)),
    "embedded, sqrtn": (bags("sqrtn"), tf.maximum(IDS, 1)),
    "embedded, sum": (bags("sum"), tf.maximum(IDS, 1)),
    "extrema": (
        lambda x: [*parts(tf.sparse.maximum(sparse(x), FIXED)),
                   *parts(tf.sparse.minimum(sparse(x), FIXED))], X),
    "filled": (filled, X),
    "matmul": (lambda x: tf.sparse.sparse_dense_matmul(sparse(x), DENSE), X),
    "matmul of the row": (
        lambda x: tf.sparse.sparse_dense_matmul(sparse(x), x, adjoint_a=True), X),
    "max": (lambda x: tf.sparse.reduce_max(sparse(x), 1), X),
    "max, sparse": (
        lambda x: parts(tf.sparse.reduce_max(sparse(x), 1, output_is_sparse=True)), X),
    "partitions": (lambda ids: tf.dynamic_partition(tf.range(8), tf.reshape(
        tf.cast(ids, tf.int32), [8]), 4), IDS),
    "ranges": (
        lambda ids: tf.ragged.range(tf.zeros([4], tf.int64), ids[0]).flat_values, IDS),
    "reordered": (
        lambda x: parts(tf.sparse.reorder(tf.sparse.reshape(sparse(x), [4, 3]))), X),
    "rows of a ragged one": (
        lambda ids: tf.gather(tf.RaggedTensor.from_row_lengths(tf.range(6), [3, 0, 1, 2]),
                              ids[0]).flat_values, IDS),
    "segments": (
        lambda ids: tf.sparse.segment_sum(TABLE, ids[0], tf.sort(ids[1])), IDS),
    "sets": (
        lambda ids: [*parts(tf.sets.intersection(ids[:, :2], ids[:, 2:])),
                     *parts(tf.sets.union(ids[:, :2], ids[:, 2:])),
                     *parts(tf.sets.difference(ids[:, :3], ids[:, 2:]))], IDS),
    "sets, sparse": (
        lambda x: [*parts(tf.sets.union(numbers(x), numbers(x + 1.0))),
                   *parts(tf.sets.difference(tf.ones([3, 2], tf.int64), numbers(x))),
                   tf.sets.size(numbers(x))], X),
    "slice": (lambda x: parts(tf.sparse.slice(sparse(x), [0, 1], [2, 3])), X),
    "softmax": (lambda x: parts(tf.sparse.softmax(sparse(x))), X),
    "split": (lambda x: [p for s in tf.sparse.split(sparse(x), 2, 1) for p in parts(s)], X),
    "stitched": (stitched, IDS),
    "sum": (lambda x: tf.sparse.reduce_sum(sparse(x), 0, keepdims=True), X),
    "sum, sparse": (
        lambda x: parts(tf.sparse.reduce_sum(
            sparse(x), [0], keepdims=True, output_is_sparse=True)), X),
    "table's gradient": (
        lambda ids: list(raw.SparseSegmentMeanGradV2(
            grad=TABLE[:4] * tf.cast(ids[0][:, None], tf.float32), indices=ids[0],
            segment_ids=tf.sort(ids[1]), dense_output_dim0=5)), IDS),
    "to dense": (lambda x: tf.sparse.to_dense(sparse(x), 9.0), X),
    "transposed": (lambda x: parts(tf.sparse.transpose(sparse(x), [1, 0])), X),
}  # fmt: skip


@pytest.mark.parametrize("name", sorted(BODIES))
@pytest.mark.parametrize("site", ["eager", "unknown", "one row", "no rows"])
def test_values(name, site):
    body, x = BODIES[name]
    x = x[: {"one row": 1, "no rows": 0}.get(site, N)]

    run = results_of(body)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        if site == "unknown":
            spec = tf.TensorSpec([None, *x.shape[1:]], x.dtype)
            found = tf.function(run, input_signature=[spec])(x)
        else:
            found = run(x)
    assert not [str(w.message) for w in caught if "loop" in str(w.message)]
    assert_rows(found, [body(row) for row in x], rtol=1e-5, atol=1e-5)


def texts_apart(texts):
    a, b = (tf.sparse.from_dense(tf.strings.bytes_split(t)[None]) for t in texts)
    return tf.edit_distance(a, b, normalize=False)[0]


@pytest.mark.parametrize("n", [0, 4])
def test_edit_distance_of_texts(n):
    """Texts whose lengths differ, also none at all: the kernel refuses that."""
    texts = tf.constant([["kitten", "ab", "", "abc"], ["sitting", "ab", "xy", "bc"]])[:, :n]
    spec = tf.TensorSpec([2, None], tf.string)

    @tf.function(input_signature=[spec])
    def run(texts):
        return strict_map(texts_apart, (texts[0], texts[1]))

    np.testing.assert_array_equal(run(texts), [3.0, 0.0, 2.0, 1.0][:n])


@pytest.mark.parametrize("n", [0, 2])
@pytest.mark.parametrize("decoder", [tf.nn.ctc_greedy_decoder, tf.nn.ctc_beam_search_decoder])
def test_decoded_rows_of_own_length(decoder, n):
    def body(x):
        return decoder(x[:, None], [tf.shape(x)[0]])[0][0].values

    rows = tf.RaggedTensor.from_row_lengths(tf.random.stateless_normal([11, 4], [1, 2]), [6, 5])[:n]
    spec = tf.RaggedTensorSpec([None, None, 4], ragged_rank=1)
    run = tf.function(lambda x: strict_map(body, x), input_signature=[spec])
    assert run(rows).to_list() == [body(row).numpy().tolist() for row in rows]


def results_of(body):
    """The map of a body, and its results as a list."""
    return lambda x: tf.nest.flatten(tf_pfor.vectorized_map(body, x))


GRADIENTS = (
    "add", "add dense", "concat", "cwise", "embedded, mean", "filled", "matmul",
    "matmul of the row", "reordered", "segments", "slice", "softmax", "sum", "to dense",
    "transposed",
)  # fmt: skip


def _total(found):
    x = flat(found)
    return tf.reduce_sum(x * tf.cos(tf.range(tf.cast(tf.size(x), tf.float32))))


@pytest.mark.parametrize("name", GRADIENTS)
def test_gradients_around(name):
    body, x = BODIES[name]
    by = [TABLE, DENSE] if x.dtype.is_floating else [TABLE]
    compare_around(body, x, by=by, rtol=1e-4, atol=1e-5, fallback="loop")


@pytest.mark.parametrize("name", ["add dense", "embedded, mean", "filled", "slice", "sum"])
def test_gradients_inside(name):
    body, x = BODIES[name]
    wrt = TABLE if name.startswith("embedded") else x

    def gradient(row):
        of = TABLE if wrt is TABLE else row
        return tf.convert_to_tensor(gradient_of(lambda: _total(body(row)), of))

    found = tf_pfor.vectorized_map(gradient, x, warn=False)
    expected = tf.stack([gradient(row) for row in x])
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", ["add", "filled", "matmul", "sets", "sum"])
def test_in_two_maps_and_in_a_dataset(name):
    body, x = BODIES[name]

    def dense(row):
        return tf.nest.flatten(body(row))[-1]

    rows = [dense(r) for r in x]
    nested = tf_pfor.vectorized_map(
        lambda a: tf_pfor.vectorized_map(dense, a, warn=False), x[None], warn=False
    )
    assert_rows([nested[0]], [[r] for r in rows])
    ds = tf.data.Dataset.from_tensors(x).map(lambda a: tf_pfor.vectorized_map(dense, a, warn=False))
    assert_rows([next(iter(ds))], [[r] for r in rows])


def test_index_out_of_bounds_is_of_its_row():
    """An index that would be one of the next row's is an error."""
    at = tf.constant([[[0, 0], [2, 1]], [[0, 0], [1, 1]]], tf.int64)

    def body(row):
        kept = row[: tf.reduce_sum(tf.cast(row[:, 0] >= 0, tf.int32))]
        s = tf.SparseTensor(kept, tf.ones(tf.shape(kept)[:1]), [2, 2])
        return tf.sparse.reduce_sum(s, 1)

    with pytest.raises(tf.errors.InvalidArgumentError, match="out of bounds"):
        tf_pfor.vectorized_map(body, at)


FEW = tf.constant(_RNG.integers(0, 9, (N, 3, 4)))
LENGTHS = tf.constant([[1, 2, 0], [4, 0, 3], [0, 0, 0], [2, 2, 2]], tf.int64)


def lists(x, lengths):
    """Values and splits without a selection, which would be a loop of its own."""
    count = tf.reduce_sum(lengths)
    return tf.RaggedTensor.from_row_lengths(tf.reshape(x, [-1])[:count], lengths)


@pytest.mark.parametrize(
    "body",
    [
        lambda x, k: tf.ragged.cross([lists(x, k), lists(x + 1, k)]),
        lambda x, k: tf.ragged.cross_hashed([lists(x, k), x], 10),
        lambda x, k: tf.nn.safe_embedding_lookup_sparse(
            tf.reshape(tf.range(40.0), [10, 4]), lists(x, k), default_id=9
        ),
    ],
    ids=["cross", "cross_hashed", "safe_embedding"],
)
def test_ragged_tensors(body):
    found = tf_pfor.vectorized_map(lambda row: body(*row), (FEW, LENGTHS), warn=False)
    one = tf.function(body)
    for i in range(N):
        want, got = one(FEW[i], LENGTHS[i]), found[i]
        if isinstance(want, tf.RaggedTensor):
            assert got.to_list() == want.to_list()
        else:
            np.testing.assert_allclose(got, want)
