"""Ragged rows change between their packed and padded forms: nothing comes out of the padding."""

import numpy as np
import pytest
import tensorflow as tf

import tf_pfor
from tests.comparisons import strict_map

N, T, D = 6, 5, 3
LENGTHS = tf.constant([3, 0, 5, 1, 2, 0])
OTHERS = tf.constant([0, 4, 2, 0, 5, 0])
X = tf.random.stateless_normal([N, T, D], [5, 1], dtype=tf.float64)
Y = tf.random.stateless_normal([N, T, D], [5, 2], dtype=tf.float64)
W = [tf.random.stateless_normal([D, D], [5, 3 + k], dtype=tf.float64) for k in range(3)]
KERNEL = tf.random.stateless_normal([3, D, D], [5, 6], dtype=tf.float64)


def attention(x, y):
    scores = tf.matmul(x @ W[0] + 1.0, y @ W[1], transpose_b=True)
    return tf.nn.softmax(scores) @ (y @ W[2] + 1.0)  # of no keys: zeros


def convolved(x, y):
    with_more = tf.concat([x, W[0][:1]], 0)
    return tf.exp(tf.nn.conv1d(with_more[None], KERNEL, 1, "SAME")[0]) @ W[1]


def of_two_softmaxes(x, y):
    scores = tf.matmul(x, x, transpose_b=True)
    first = tf.nn.softmax(scores)
    return first @ tf.nn.softmax(2.0 * scores) + tf.matmul(first, first, transpose_a=True)


def logarithms(x, y):
    made = tf.nn.log_softmax(tf.matmul(x, x, transpose_b=True))
    return tf.exp(made) @ x + tf.reduce_sum(made)


def rows_of(x, y, by):
    if by == "dense":
        given = (x, LENGTHS, y, OTHERS)
        return lambda body: strict_map(lambda e: body(e[0][: e[1]], e[2][: e[3]]), given)
    given = [tf.RaggedTensor.from_tensor(t, k) for t, k in ((x, LENGTHS), (y, OTHERS))]
    return lambda body: tf_pfor.vmap(body, fallback="error")(*given)


def with_gradients(run, x, y):
    with tf.GradientTape() as tape:
        tape.watch([x, y, *W, KERNEL])
        flat = run()
        total = tf.reduce_sum(tf.sin(flat))
    found = tape.gradient(total, [x, y, *W, KERNEL], unconnected_gradients="zero")
    return [flat, *map(tf.convert_to_tensor, found)]


@pytest.mark.parametrize("by", ["dense", "ragged"])
@pytest.mark.parametrize("bad", [np.nan, np.inf])
@pytest.mark.parametrize("body", [attention, convolved, of_two_softmaxes, logarithms])
def test_nothing_comes_out_of_the_padding(body, bad, by):
    keep = [tf.sequence_mask(k, T)[..., None] for k in (LENGTHS, OTHERS)]
    bad = tf.constant(bad, dtype=tf.float64)
    x, y = (tf.where(m, t, bad) for m, t in zip(keep, (X, Y)))

    def one_by_one():
        pairs = [(x[i, : LENGTHS[i]], y[i, : OTHERS[i]]) for i in range(N)]
        return tf.concat([tf.reshape(body(*p), [-1]) for p in pairs], 0)

    def all_at_once():
        return tf.reshape(rows_of(x, y, by)(body).flat_values, [-1])

    pairs = zip(with_gradients(all_at_once, x, y), with_gradients(one_by_one, x, y), strict=True)
    for found, wanted in pairs:
        np.testing.assert_allclose(found, wanted, rtol=1e-9, atol=1e-10)


LISTS = [[[1.0, 2.0], [3.0]], [], [[4.0], [5.0, 6.0], [7.0]]]
SITES = {
    "eagerly": lambda f, r: tf_pfor.vectorized_map(f, r),
    "vmap": lambda f, r: tf_pfor.vmap(f)(r),
    "function": lambda f, r: tf.function(lambda r: tf_pfor.vectorized_map(f, r))(r),
    "blocks": lambda f, r: tf_pfor.vectorized_map(f, r, chunk_size=2),
    "nested": lambda f, r: tf_pfor.pfor(lambda i: tf_pfor.vectorized_map(f, r), 2)[1],
    "branch": lambda f, r: tf_pfor.vmap(
        lambda x, k: tf.cond(k > 0, lambda: f(x), lambda: f(x) + 0.0)
    )(r, tf.range(r.nrows())),
    "data": lambda f, r: next(
        iter(tf.data.Dataset.from_tensors(r).map(lambda r: tf_pfor.vectorized_map(f, r)))
    ),
}


@pytest.mark.filterwarnings("ignore::tf_pfor.FallbackWarning")
@pytest.mark.parametrize("rank", [1, 2])
@pytest.mark.parametrize("site", SITES)
def test_ragged_elements(site, rank):
    ragged = tf.ragged.constant(LISTS)
    rows = ragged if rank == 2 else ragged.merge_dims(1, 2)

    def one(row):
        flat = row.flat_values if rank == 2 else row
        return tf.reduce_sum(flat**2) + tf.reduce_sum(tf.cumsum(flat))

    wanted = [one(rows[i]) for i in range(3)]
    np.testing.assert_allclose(SITES[site](one, rows), wanted)
    np.testing.assert_allclose(SITES[site](one, rows[2:]), wanted[2:])
    if site != "blocks":
        assert SITES[site](one, rows[:0]).shape == [0]


def test_other_lengths_keep_the_trace():
    tf_pfor.clear_cache()
    for k in range(3):
        rows = tf.RaggedTensor.from_row_lengths(tf.ones([6 + k, 2]), [3, 3, k])
        for found in (
            tf_pfor.vectorized_map(lambda r: tf.reduce_sum(r), rows),
            tf_pfor.vmap(tf.reduce_sum)(rows),
        ):
            assert found.numpy().tolist() == [6.0, 6.0, 2.0 * k]
    assert (tf_pfor.cache_info().misses, tf_pfor.cache_info().hits) == (2, 4)


def test_ragged_elements_are_not_padded():
    rows = tf.RaggedTensor.from_row_lengths(tf.ones([6, 2]), [1, 0, 5])

    @tf.function
    def run(rows):
        return tf_pfor.vectorized_map(lambda r: tf.nn.relu(r @ tf.ones([2, 4])), rows)

    types = {op.type for op in run.get_concrete_function(rows).graph.get_operations()}
    assert not types & {"RaggedTensorToTensor", "GatherV2", "GatherNd", "ScatterNd", "Where"}
    assert run(rows).row_lengths().numpy().tolist() == [1, 0, 5]


def test_explain_says_the_form():
    report = tf_pfor.explain(lambda x, k: tf.nn.softmax(x[:k] @ W[0], 0), X, LENGTHS)
    notes = {r.op_type: r.reason for r in report.records}
    assert notes["MatMul"] == f"packed rows, {T} at most"
    assert notes["Softmax"] == f"padded rows, {T} at most"


def test_second_derivatives():
    def run(x):
        with tf.GradientTape() as outer:
            outer.watch(x)
            with tf.GradientTape() as tape:
                tape.watch(x)
                y = tf_pfor.vectorized_map(
                    lambda e: (
                        tf.nn.softmax(tf.matmul(e[0][: e[1]], e[0][: e[1]], transpose_b=True))
                        @ e[0][: e[1]]
                    ),
                    (x, LENGTHS),
                )
                total = tf.reduce_sum(y.flat_values**2)
            first = tape.gradient(total, x)
            norm = tf.reduce_sum(first**2)
        return first, outer.gradient(norm, x)

    def plain(x):
        with tf.GradientTape() as outer:
            outer.watch(x)
            with tf.GradientTape() as tape:
                tape.watch(x)
                rows = [x[i, : LENGTHS[i]] for i in range(N)]
                parts = [tf.nn.softmax(tf.matmul(r, r, transpose_b=True)) @ r for r in rows]
                total = tf.add_n([tf.reduce_sum(p**2) for p in parts])
            first = tape.gradient(total, x)
            norm = tf.reduce_sum(first**2)
        return first, outer.gradient(norm, x)

    for found, wanted in zip(tf.function(run)(X), plain(X)):
        np.testing.assert_allclose(tf.convert_to_tensor(found), wanted, rtol=1e-9)


def by_mapped_and_by_rows(body):
    """The results of all rows with the gradients of both inputs: mapped, and by a Python loop."""
    found = []
    for is_mapped in (True, False):
        with tf.GradientTape() as tape:
            tape.watch([X, Y])
            if is_mapped:
                flat = tf.reshape(rows_of(X, Y, "dense")(body).flat_values, [-1])
            else:
                pairs = [(X[i, : LENGTHS[i]], Y[i, : OTHERS[i]]) for i in range(N)]
                flat = tf.concat([tf.reshape(body(*p), [-1]) for p in pairs], 0)
        gradients = tape.gradient(flat, [X, Y], tf.sin(flat))
        found.append([flat, *map(tf.convert_to_tensor, gradients)])
    return found


def test_zeros_meet_no_quotient_of_the_padding():
    """The sums of a matrix without rows are zero, and its padding is divided by them."""

    def body(x, y):
        scores = tf.matmul(x, y, transpose_b=True)
        return tf.matmul(x, scores / tf.reduce_sum(scores, 0), transpose_a=True)

    for found, wanted in zip(*by_mapped_and_by_rows(body), strict=True):
        np.testing.assert_allclose(found, wanted, rtol=1e-9, atol=1e-10)


@pytest.mark.parametrize("op", [tf.math.xdivy, tf.math.xlogy])
def test_zeros_of_one_input_have_no_gradient_at_elements_of_the_other(op):
    """Each element of a row meets the padding of another row: x / 0 has an infinite gradient."""
    pairs = by_mapped_and_by_rows(lambda x, y: op(x[:, :1], tf.exp(y[:, 0])))
    for found, wanted in zip(*pairs, strict=True):
        np.testing.assert_allclose(found, wanted, rtol=1e-9, atol=1e-10)
