"""Sparse tensors with entries of each row's own number, sets, counts and what is decoded."""

import numpy as np
import tensorflow as tf

from tests.comparisons import gradient_of
from tests.ways import errors_of, table_of

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
SET_OPERATIONS = [tf.sets.union, tf.sets.intersection, tf.sets.difference]
BODIES = {
    "add": (lambda x: parts(tf.sparse.add(sparse(x), FIXED)), X),
    "add dense": (lambda x: tf.sparse.add(sparse(x), tf.ones([3, 4])), X),
    "add with a threshold": (lambda x: parts(tf.sparse.add(sparse(x), FIXED, 1.5)), X),
    "concat": (lambda x: parts(tf.sparse.concat(1, [sparse(x), FIXED, sparse(x * 2.0)])), X),
    "counts": (lambda x: counted(x, minlength=2), X),
    "counts, cut": (lambda x: counted(x, maxlength=2), X),
    "counts, dense": (lambda x: tf.sparse.bincount(numbers(x), minlength=5, maxlength=5).values, X),
    "counts of a matrix": (lambda ids: dense_counts(ids), IDS),
    "counts of a vector": (lambda ids: dense_counts(ids[0], minlength=6), IDS),
    "counts of a ragged one": (lambda ids: list(raw.RaggedCountSparseOutput(splits=[0, 3, 3, 4],
        values=ids[0], weights=tf.ones([4]), binary_output=False)), IDS),
    "cross": (lambda x: parts(tf.sparse.cross_hashed([numbers(x), numbers(x)], 11)), X),
    "cwise": (lambda x: parts(sparse(x) * (1.0 + tf.reshape(tf.range(12.0), [3, 4]))), X),
    "difference of lists": (lambda ids: list(tf.compat.v1.setdiff1d(ids[0], ids[1][:2])), IDS),
    "decoded": (lambda x: decoded(x, tf.nn.ctc_greedy_decoder), LOGITS),
    "decoded with a beam": (
        lambda x: decoded(x, tf.nn.ctc_beam_search_decoder, top_paths=2, beam_width=4), LOGITS),
    "edit distance": (lambda ids: tf.edit_distance(sparse(ids),
        sparse(tf.constant([[1, 2], [3, 1]], tf.int64)), normalize=False), tf.maximum(IDS, 1)),
    "embedded, mean": (bags("mean"), tf.maximum(IDS, 1)),
    "embedded, sqrtn": (bags("sqrtn"), tf.maximum(IDS, 1)),
    "embedded, sum": (bags("sum"), tf.maximum(IDS, 1)),
    "extrema": (lambda x: [*parts(tf.sparse.maximum(sparse(x), FIXED)),
        *parts(tf.sparse.minimum(sparse(x), FIXED))], X),
    "filled": (filled, X),
    "matmul": (lambda x: tf.sparse.sparse_dense_matmul(sparse(x), DENSE), X),
    "matmul of the row": (lambda x: tf.sparse.sparse_dense_matmul(sparse(x), x, adjoint_a=True), X),
    "max": (lambda x: tf.sparse.reduce_max(sparse(x), 1), X),
    "max, sparse": (lambda x: parts(tf.sparse.reduce_max(sparse(x), 1, output_is_sparse=True)), X),
    "partitions": (lambda ids: tf.dynamic_partition(tf.range(8), tf.reshape(
        tf.cast(ids, tf.int32), [8]), 4), IDS),
    "ranges": (lambda ids: tf.ragged.range(tf.zeros([4], tf.int64), ids[0]).flat_values, IDS),
    "reordered": (lambda x: parts(tf.sparse.reorder(tf.sparse.reshape(sparse(x), [4, 3]))), X),
    "rows of a ragged one": (lambda ids: tf.gather(tf.RaggedTensor.from_row_lengths(tf.range(6),
        [3, 0, 1, 2]), ids[0]).flat_values, IDS),
    "segments": (lambda ids: tf.sparse.segment_sum(TABLE, ids[0], tf.sort(ids[1])), IDS),
    "sets": (lambda ids: [*parts(tf.sets.intersection(ids[:, :2], ids[:, 2:])),
        *parts(tf.sets.union(ids[:, :2], ids[:, 2:])),
        *parts(tf.sets.difference(ids[:, :3], ids[:, 2:]))], IDS),
    "sets, their sizes": (lambda ids: [
        tf.sets.size(op(ids[:, :2], tf.roll(ids, 1, 0)[:, 2:])) for op in SET_OPERATIONS], IDS),
    "sets of sets": (lambda ids: parts(tf.sets.difference(
        tf.sets.union(ids[:, :2], ids[:, 2:]), ids[:, 1:2])), IDS),
    "sets, sparse": (lambda x: [*parts(tf.sets.union(numbers(x), numbers(x + 1.0))),
        *parts(tf.sets.difference(tf.ones([3, 2], tf.int64), numbers(x))),
        tf.sets.size(numbers(x))], X),
    "slice": (lambda x: parts(tf.sparse.slice(sparse(x), [0, 1], [2, 3])), X),
    "softmax": (lambda x: parts(tf.sparse.softmax(sparse(x))), X),
    "split": (lambda x: [p for s in tf.sparse.split(sparse(x), 2, 1) for p in parts(s)], X),
    "stitched": (stitched, IDS),
    "sum": (lambda x: tf.sparse.reduce_sum(sparse(x), 0, keepdims=True), X),
    "sum, sparse": (lambda x: parts(tf.sparse.reduce_sum(sparse(x), [0], keepdims=True,
        output_is_sparse=True)), X),
    "table's gradient": (lambda ids: list(raw.SparseSegmentMeanGradV2(grad=TABLE[:4] *
        tf.cast(ids[0][:, None], tf.float32), indices=ids[0], segment_ids=tf.sort(ids[1]),
        dense_output_dim0=5)), IDS),
    "to dense": (lambda x: tf.sparse.to_dense(sparse(x), 9.0), X),
    "transposed": (lambda x: parts(tf.sparse.transpose(sparse(x), [1, 0])), X),
}  # fmt: skip
FLOATS = [
    "add", "add dense", "concat", "cwise", "embedded, mean", "filled", "matmul",
    "matmul of the row", "reordered", "segments", "slice", "softmax", "sum", "to dense",
    "transposed",
]  # fmt: skip
NESTED = ["add", "filled", "matmul", "sets", "sets, their sizes", "sum"]
test_table_of_sparse_rows = table_of(
    BODIES,
    ways=["eager", "unknown n", "one row", "no rows", "around", "inside", "in a map", "dataset"],
    only={
        "around": FLOATS,
        "inside": ["add dense", "filled", "slice", "sum"],
        "in a map": NESTED,
        "dataset": NESTED,
    },
    looped=["around", "inside", "in a map", "dataset"], by=(TABLE, DENSE),
    tolerance=(1e-5, 1e-5), slopes=(1e-4, 1e-5),
)  # fmt: skip


def texts_apart(a, b):
    a, b = (tf.sparse.from_dense(tf.strings.bytes_split(t)[None]) for t in (a, b))
    return tf.edit_distance(a, b, normalize=False)[0]


def first_path(decoder):
    return lambda x: decoder(x[:, None], [tf.shape(x)[0]])[0][0].values


def embedded_slope(ids):
    """The gradient of a table that all rows share."""
    mean = bags("mean")
    return tf.convert_to_tensor(gradient_of(lambda: tf.reduce_sum(tf.sin(mean(ids))), TABLE))


FEW = tf.constant(_RNG.integers(0, 9, (N, 3, 4)))
LENGTHS = tf.constant([[1, 2, 0], [4, 0, 3], [0, 0, 0], [2, 2, 2]], tf.int64)


def lists(x, lengths):
    """Values and splits without a selection, which would be a loop of its own."""
    count = tf.reduce_sum(lengths)
    return tf.RaggedTensor.from_row_lengths(tf.reshape(x, [-1])[:count], lengths)


FRAMES = tf.RaggedTensor.from_row_lengths(tf.random.stateless_normal([11, 4], [1, 2]), [6, 5])
TEXTS = tf.constant([["a", "b"], ["c", "c"], ["", "x"], ["d", ""]])
OTHERS = {
    # Texts whose lengths differ, also none at all: the kernel refuses that.
    "edit distance of texts": (texts_apart, (
        tf.constant(["kitten", "ab", "", "abc"]), tf.constant(["sitting", "ab", "xy", "bc"]))),
    "decoded": (first_path(tf.nn.ctc_greedy_decoder), FRAMES),
    "decoded with a beam": (first_path(tf.nn.ctc_beam_search_decoder), FRAMES),
    "sizes of sets of texts": (
        lambda a, b: [tf.sets.size(op(a[None], b[None])) for op in SET_OPERATIONS],
        (TEXTS, tf.reverse(TEXTS, [0]))),
    "gradient of a table": (embedded_slope, tf.maximum(IDS, 1)),
    "cross": (lambda x, k: tf.ragged.cross([lists(x, k), lists(x + 1, k)]), (FEW, LENGTHS)),
    "cross_hashed": (lambda x, k: tf.ragged.cross_hashed([lists(x, k), x], 10), (FEW, LENGTHS)),
    "safe_embedding": (lambda x, k: tf.nn.safe_embedding_lookup_sparse(tf.reshape(tf.range(40.0),
        [10, 4]), lists(x, k), default_id=9), (FEW, LENGTHS)),
}  # fmt: skip
test_table_of_others = table_of(
    OTHERS, ways=["unknown n, few rows", "eager"],
    only={"unknown n, few rows": [
        "edit distance of texts", "sizes of sets of texts", "decoded", "decoded with a beam"]},
    looped={"eager": ["gradient of a table", "cross", "cross_hashed", "safe_embedding"]},
    tolerance=(1e-5, 1e-7),
)  # fmt: skip


def summed(row):
    kept = row[: tf.reduce_sum(tf.cast(row[:, 0] >= 0, tf.int32))]
    return tf.sparse.reduce_sum(tf.SparseTensor(kept, tf.ones(tf.shape(kept)[:1]), [2, 2]), 1)


# An index that would be one of the next row's is an error.
test_index_out_of_bounds_is_of_its_row = errors_of(
    {"sum": summed}, tf.constant([[[0, 0], [2, 1]], [[0, 0], [1, 1]]], tf.int64),
    match="out of bounds",
)  # fmt: skip


def nested(rows, rank=None):
    return tf.ragged.constant(rows, ragged_rank=rank, dtype=tf.float32)


def embedded(row):
    """The sums of embeddings of the lists of a row."""
    places = tf.cast(row, tf.int64).to_sparse()
    return tf.nn.embedding_lookup_sparse(TABLE, places, None, combiner="sum")


def embedded_safely(row):
    """The means of embeddings of the lists of a row, zeros for a list that is empty."""
    return tf.nn.safe_embedding_lookup_sparse(TABLE, tf.cast(row, tf.int64).to_sparse())


def two_lists(x):
    return tf.RaggedTensor.from_row_lengths(x, tf.stack([2, tf.size(x) - 2]))


def filled_lists(row):
    s, is_empty = tf.sparse.fill_empty_rows(row.to_sparse(), 7.0)
    return *parts(s), is_empty


def reshaped(shape_of):
    def body(row):
        s = row.to_sparse()
        return parts(tf.sparse.reshape(s, shape_of(*tf.unstack(s.dense_shape))))

    return body


def slope(row):
    x = row.flat_values
    return gradient_of(lambda: tf.reduce_sum(row.with_flat_values(x).to_sparse().values ** 2), x)


OF_TWO = nested([[[1.0, 2.0], [3.0]], [], [[0.0], [], [4.0, 2.0, 1.0]], [[]]])
OF_THREE = nested([[[[1.0], [2.0, 3.0]], []], [], [[[4.0]], [[], [5.0]]], [[[6.0, 7.0]]]])
OF_PAIRS = nested([[[[1.0, 2.0], [3.0, 4.0]], []], [[[5.0, 6.0]]], []], 2)
OF_ONE = nested([[1.0, 2.0, 3.0], [4.0, 5.0], [6.0, 7.0, 8.0, 9.0]])
TO_SPARSE = {
    "two axes": (lambda r: parts(r.to_sparse()), OF_TWO),
    "three axes": (lambda r: parts(r.to_sparse()), OF_THREE),
    "of pairs": (lambda r: parts(r.to_sparse()), OF_PAIRS),
    "of two lists": (lambda x: parts(two_lists(x).to_sparse()), OF_ONE),
    "itself": (lambda r: (r * 2.0).to_sparse(), OF_TWO),
    "sum": (lambda r: tf.sparse.reduce_sum(tf.sparse.map_values(tf.sin, r.to_sparse())), OF_TWO),
    "dense": (lambda r: tf.sparse.to_dense(r.to_sparse()), OF_TWO),
    "embedded": (embedded, OF_TWO),
    "slope": (slope, OF_TWO),
    "embedded safely": (embedded_safely, OF_TWO),
    "two lists, embedded safely": (lambda x: embedded_safely(two_lists(x % 5.0)), OF_ONE),
    "filled": (filled_lists, OF_TWO),
    "two lists, filled": (lambda x: filled_lists(two_lists(x)), OF_ONE),
    "in a vector": (reshaped(lambda a, b: [a * b]), OF_TWO),
    "in a vector, by -1": (reshaped(lambda a, b: [-1]), OF_TWO[::2]),
    "the other way": (reshaped(lambda a, b: tf.stack([b, a])), OF_TWO),
    "in three axes": (reshaped(lambda a, b: tf.stack([a, 1, b])), OF_TWO),
}  # fmt: skip
test_table_of_ragged_rows = table_of(
    TO_SPARSE, ways=["eager", "unknown n, few rows", "vmap", "around", "dataset"],
    only={
        "vmap": ["itself"],
        "around": ["of pairs", "of two lists", "sum", "filled", "two lists, embedded safely"],
    },
    tolerance=(1e-5, 1e-6), by=(TABLE,),
)  # fmt: skip
test_a_new_shape_of_another_number_of_places = errors_of(
    {"a column more": reshaped(lambda a, b: tf.stack([a, b + 1]))}, OF_TWO[::2],
    match="another number of places",
)  # fmt: skip
