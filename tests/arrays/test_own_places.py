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
BODIES = {**GATHERS}


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


@pytest.mark.parametrize("name", sorted(BODIES))
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


@pytest.mark.filterwarnings("ignore::tf_pfor.FallbackWarning")
@pytest.mark.parametrize("name", sorted(n for n in BODIES if isinstance(rows_of(n), tuple)))
def test_gradients_inside(name):
    body, rows = BODIES[name]

    def gradient(x, *others):
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = body(x, *others)
            total = tf.reduce_sum(y**2) if y.dtype.is_floating else 0.0 * tf.reduce_sum(x)
        return tf.convert_to_tensor(tape.gradient(total, x))

    found = tf_pfor.vectorized_map(lambda e: gradient(*e), rows)
    assert_rows(found, [gradient(*[x[i] for x in rows]) for i in range(N)])


BEYOND = {
    "a column": lambda x, k: tf.gather(x[:, :k], [2], axis=1),
    "a column of its own": lambda x, k: tf.gather(x[:, :k], tf.range(3) - k, axis=1),
    "one of each": lambda x, k: tf.gather(x[:k, :k], tf.range(k), axis=1, batch_dims=1) + x[0, k],
    "axes that do not fit": lambda x, k: tf.gather(x[:k], tf.range(k - 1), batch_dims=1),
}


@pytest.mark.parametrize("name", ["a column", "a column of its own", "axes that do not fit"])
def test_what_a_row_refuses_is_an_error(name):
    with pytest.raises(tf.errors.InvalidArgumentError, match=r"test_own_places.py:\d+"):
        tf_pfor.vectorized_map(lambda e: BEYOND[name](*e), (X, K), fallback="error")
