"""Gathers, masks, segments, counts, scatters and sets at places that are each row's own."""

import warnings

import numpy as np
import pytest
import tensorflow as tf

import tf_pfor

N, T, D = 4, 4, 5
X = tf.random.stateless_normal([N, T, D], [1, 2])
K = tf.constant([2, 4, 1, 3])
IDS = tf.ragged.constant([[0, 1, 1, 3], [2], [], [1, 0]], dtype=tf.int32, inner_shape=())
SQUARES = (tf.random.stateless_normal([N, T, T], [1, 3]), K)
TABLE = tf.random.stateless_normal([4, 6], [1, 4])
V = tf.Variable(tf.random.stateless_normal([4, 5], [1, 5]))


def square(x, k):
    return x[:k, :k]


def sorted_square(x, k):
    places = tf.argsort(tf.reduce_sum(square(x, k), 1))
    return tf.gather(tf.gather(square(x, k), places), places, axis=1)


# name -> (body of the parts of a row, the rows)
GATHERS = {
    "columns of a table": (lambda i: tf.gather(TABLE, i, axis=1), IDS),
    "columns of a variable": (lambda i: tf.gather(V, i, axis=1), IDS),
    "columns": (lambda x, i: tf.gather(x, i, axis=-1), (X, IDS)),
    "first columns": (lambda x, k: tf.gather(x, tf.range(k), axis=1), (X, K)),
    "columns of cut rows": (lambda x, k, i: tf.gather(x[:k], i, axis=1), (X, K, IDS)),
    "same columns of cut columns": (
        lambda x, k: tf.gather(x[:, : k + 1], [1, 0, 1], axis=1), (X, K)),
    "in two axes": (sorted_square, SQUARES),
    "reversed": (
        lambda x, k: tf.gather(square(x, k), tf.range(k)[::-1], axis=1), SQUARES),
    "one of each": (
        lambda x, k: tf.gather(x[:k], tf.argmax(x[:k], 1), axis=1, batch_dims=1), (X, K)),
    "some of each": (
        lambda x, k: tf.gather(x[:k], tf.argsort(x[:k, ::2], 1), batch_dims=1), (X, K)),
    "own number of each": (
        lambda x, i: tf.gather(x[:2], tf.stack([i, i]), batch_dims=1), (X, IDS)),
    "own number of each of a table": (
        lambda i: tf.gather(TABLE[:2], tf.stack([i, i + 1]), batch_dims=1), IDS),
    "masked columns": (lambda x: tf.boolean_mask(x, x[0] > 0.0, axis=1), X),
    "masked columns of cut rows": (
        lambda x, k: tf.boolean_mask(x[:k], x[0] > 0.0, axis=1), (X, K)),
    "masked columns of a square": (
        lambda x, k: tf.boolean_mask(square(x, k), square(x, k)[0] > 0.0, axis=1), SQUARES),
    "transitions": (
        lambda i: tf.gather_nd(V, tf.stack([i[:-1], i[1:]], 1)), IDS),
    "transitions, summed": (
        lambda i: tf.reduce_sum(tf.gather_nd(V, tf.stack([i[:-1], i[1:]], 1))), IDS),
}  # fmt: skip


def distances(x):
    return tf.abs(x[:, None] - x[None])


def near(x):
    pairs = tf.where(distances(x) < 1.0)
    return tf.reduce_sum(tf.gather(x, pairs[:, 0]) * tf.gather(x, pairs[:, 1]))


def placed(i, v, shape):
    return tf.scatter_nd(tf.stack([i, i], 1), v, shape)


LINES = tf.RaggedTensor.from_row_splits(X[0, 0], [0, 3, 3, 4, 5])
VALUES = IDS.with_flat_values(tf.random.stateless_normal([7], [1, 6]))
SCATTERS = {
    "pairs": (lambda x: tf.where(distances(x) < 1.0), LINES),
    "neighbours": (near, LINES),
    "masked pairs": (lambda x: tf.boolean_mask(distances(x), distances(x) < 1.0), LINES),
    "places in a batch of squares": (
        lambda x, k: tf.where(tf.stack([square(x, k), -square(x, k)]) > 0.0), SQUARES),
    "square of a sparse tensor": (
        lambda x: tf.sparse.to_dense(tf.sparse.from_dense(distances(x))), LINES),
    "placed in a square": (lambda i, v: placed(i, v, [tf.size(i) + 3, 4]), (IDS, VALUES)),
    "placed in columns": (lambda i, v: placed(i, v, [4, tf.size(i) + 3]), (IDS, VALUES)),
    "placed in both": (
        lambda i, v: placed(i, v, [tf.size(i) + 3, tf.size(i) + 3]), (IDS, VALUES)),
    "rows that are placed": (
        lambda x, k: tf.scatter_nd(tf.range(k)[:, None] * 2, x[:k], [2 * k, D]), (X, K)),
    "one in a square": (lambda k: tf.scatter_nd([[0, 0]], [1.0], [k, k]), K),
    "set in its row": (
        lambda x, i: tf.tensor_scatter_nd_update(x, tf.range(tf.size(x))[:, None][:1], x[:1] * 3),
        (LINES, IDS)),
    "added to its row": (
        lambda v: tf.tensor_scatter_nd_add(v, tf.range(tf.size(v))[:, None], v), VALUES),
    "added to a square": (
        lambda x, k: tf.tensor_scatter_nd_add(
            square(x, k), tf.stack([tf.range(k), tf.range(k)], 1), tf.ones([k])), SQUARES),
}  # fmt: skip
IDS_IN_ORDER = tf.ragged.constant([[0, 0, 2, 3], [1], [], [0, 1]], dtype=tf.int32)
WIDE = tf.RaggedTensor.from_row_splits(tf.random.stateless_normal([7, 3], [1, 7]), IDS.row_splits)
segment = tf.math
SEGMENTS = {
    "sums in order": (segment.segment_sum, (VALUES, IDS_IN_ORDER)),
    "means in order": (segment.segment_mean, (WIDE, IDS_IN_ORDER)),
    "largest in order": (segment.segment_max, (WIDE, IDS_IN_ORDER)),
    "products in order": (segment.segment_prod, (VALUES, IDS_IN_ORDER)),
    "sums in order of cut rows": (
        lambda x, k: segment.segment_sum(x[:k], tf.constant([0, 0, 1, 3])[:k]), None),
    "sums in order of cut columns": (
        lambda x, k: segment.segment_sum(x[:, :k], tf.range(4) * k // 4), None),
    "sums of cut columns": (
        lambda x, k: segment.unsorted_segment_sum(x[:, :k], [0, 1, 1, 3], 4), None),
    "means of squares": (
        lambda x, k: segment.unsorted_segment_mean(square(x, k), tf.range(k) // 2, 3), None),
    "as many sums of cut columns as the row says": (
        lambda x, k: segment.unsorted_segment_max(x[:, :k], tf.range(4) % k, k), None),
    "bins": (lambda i, _: tf.math.bincount(i), (IDS, VALUES)),
    "bins, cut": (lambda i, _: tf.math.bincount(i, maxlength=tf.size(i)), (IDS, VALUES)),
    "bins of its length": (
        lambda i, _: tf.math.bincount(i, minlength=tf.size(i), maxlength=tf.size(i)),
        (IDS, VALUES)),
}  # fmt: skip
SEGMENTS = {name: (f, rows or (X, K)) for name, (f, rows) in SEGMENTS.items()}
COUNTS = {
    "weights": (
        lambda i, v: tf.math.bincount(i, v, minlength=tf.size(i), maxlength=tf.size(i)),
        (IDS, VALUES)),
}  # fmt: skip
SETS = {
    "common": (lambda i, j: tf.sparse.to_dense(tf.sets.intersection(i[None], j[None])), "pair"),
    "all of both": (lambda i, j: tf.sets.union(i[None], j[None]).values, "pair"),
    "left over": (lambda i, _: tf.sets.difference(i[None], [[1, 2]]).indices, "pair"),
    "of sparse and dense": (
        lambda i, _: tf.sets.intersection(i[None], tf.sparse.from_dense([[1, 2]])).values, "pair"),
    "sizes": (lambda i, _: tf.sets.size(tf.sparse.from_dense(i[None] + 1)), "pair"),
    "decoded": (lambda x, k: decoded(x[:, None], [4]), "frames"),
    "decoded, cut": (lambda x, k: decoded(x[:k, None], k[None]), "frames"),
    "counts": (lambda i, _: tf.sparse.to_dense(tf.sparse.bincount(i)), "pair"),
}  # fmt: skip
_PARTS = {
    "pair": (IDS, tf.ragged.constant([[1, 3], [0, 2], [1], []], dtype=tf.int32)),
    "frames": (X, K),
}


def decoded(x, lengths):
    return tf.sparse.to_dense(tf.nn.ctc_greedy_decoder(x, lengths)[0][0])


BODIES = {
    **GATHERS,
    **SCATTERS,
    **SEGMENTS,
    **COUNTS,
    **{name: (f, _PARTS[kind]) for name, (f, kind) in SETS.items()},
}


def run_of(name, **options):
    body, _ = BODIES[name]
    return lambda rows: tf_pfor.vectorized_map(
        lambda e: body(*e) if isinstance(e, tuple) else body(e), rows, **options
    )


def looped(name, rows):
    body, n = BODIES[name][0], tf.nest.flatten(rows)[-1].shape[0]
    rows = rows if isinstance(rows, tuple) else (rows,)
    return [body(*[x[i] for x in rows]) for i in range(n)]


def rows_of(name):
    return BODIES[name][1]


def first(rows, n):
    return tf.nest.map_structure(lambda x: x[:n], rows)


def flat(result):
    return result.flat_values if isinstance(result, tf.RaggedTensor) else result


def assert_rows(found, rows):
    for i, want in enumerate(rows):
        got = found[i]
        if isinstance(got, tf.RaggedTensor):
            got, want = got.flat_values, tf.reshape(want, got.flat_values.shape)
        assert got.dtype == want.dtype
        assert np.size(got) == np.size(want) == 0 or got.shape == want.shape
        np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-5)


def unknown(x):
    spec = tf.type_spec_from_value(x)
    if isinstance(x, tf.RaggedTensor):
        return tf.RaggedTensorSpec([None] * len(x.shape), x.dtype, x.ragged_rank)
    return tf.TensorSpec([None, *spec.shape[1:]], x.dtype)


@pytest.mark.parametrize("name", sorted(BODIES))
@pytest.mark.parametrize("site", ["eager", "unknown", "one row", "no rows", "chunks", "two maps"])
def test_values(name, site):
    rows, run = rows_of(name), run_of(name, fallback="error")
    rows = first(rows, {"one row": 1, "no rows": 0}.get(site, N))
    if site == "chunks":
        run = run_of(name, fallback="error", chunk_size=3)
    if site == "unknown":
        specs = [tf.nest.map_structure(unknown, rows)]
        found = tf.function(run, input_signature=specs)(rows)
    elif site == "two maps":
        found = two_maps(name, rows)
    else:
        found = run(rows)
    assert_rows(found, [] if site == "no rows" else looped(name, rows))


def two_maps(name, rows):
    """A map of a map, of one outer row: what loops there may loop."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", tf_pfor.FallbackWarning)
        found = tf_pfor.vectorized_map(lambda _: run_of(name)(rows), tf.range(2))
    return found[1]


@pytest.mark.parametrize("name", sorted(n for n in BODIES if n not in COUNTS))
def test_gradients_around(name):
    rows = rows_of(name)
    sources = [t for t in tf.nest.flatten(rows, expand_composites=True) if t.dtype.is_floating]
    sources += [TABLE, V]
    found = []
    for run in (run_of(name, fallback="error"), lambda rows: looped(name, rows)):
        with tf.GradientTape() as tape:
            tape.watch(sources)
            made = run(rows)
            parts = made if isinstance(made, list) else [flat(made)]
            if not parts[0].dtype.is_floating:
                return
            y = tf.concat([tf.reshape(t, [-1]) for t in parts], 0)
            total = tf.reduce_sum(y * tf.sin(tf.range(tf.cast(tf.size(y), tf.float32))))
        found.append(tape.gradient(total, sources, unconnected_gradients="zero"))
    for got, want in zip(*found):
        got, want = tf.convert_to_tensor(got), tf.convert_to_tensor(want)
        np.testing.assert_allclose(got, want, rtol=1e-3, atol=1e-4)


def is_inside(name):
    return isinstance(rows_of(name), tuple) and name not in (*SETS, *COUNTS)


@pytest.mark.filterwarnings("ignore::tf_pfor.FallbackWarning")
@pytest.mark.parametrize("name", sorted(n for n in BODIES if is_inside(n)))
def test_gradients_inside(name):
    body, rows = BODIES[name]

    def gradient(*parts):
        (x,) = [p for p in parts if p.dtype.is_floating]
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = tf.cast(body(*parts), tf.float32)
            total = tf.reduce_sum(y**2)
        return tf.convert_to_tensor(tape.gradient(total, x, unconnected_gradients="zero"))

    found = tf_pfor.vectorized_map(lambda e: gradient(*e), rows)
    assert_rows(found, [gradient(*[x[i] for x in rows]) for i in range(N)])


BEYOND = {
    "placed outside": lambda x, k: tf.scatter_nd([[1, 1]], [1.0], [k, k]),
    "set outside": lambda x, k: tf.tensor_scatter_nd_update(x[:k, 0], [[1]], [1.0]),
    "frames that are not there": lambda x, k: decoded(x[:k, None], [2]),
    "a column": lambda x, k: tf.gather(x[:, :k], [2], axis=1),
    "a column of its own": lambda x, k: tf.gather(x[:, :k], tf.range(3) - k, axis=1),
    "axes that do not fit": lambda x, k: tf.gather(x[:k], tf.range(k - 1), batch_dims=1),
}


@pytest.mark.parametrize("name", sorted(BEYOND))
def test_what_a_row_refuses_is_an_error(name):
    with pytest.raises(tf.errors.InvalidArgumentError, match=r"test_own_places.py:\d+"):
        tf_pfor.vectorized_map(lambda e: BEYOND[name](*e), (X, K), fallback="error")
