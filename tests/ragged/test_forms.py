"""Ragged rows change between their packed and padded forms: nothing comes out of the padding."""

import numpy as np
import pytest
import tensorflow as tf

import tf_pfor
from tests.ways import table_of

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


BODIES = (attention, convolved, of_two_softmaxes, logarithms)
KEEP = [tf.sequence_mask(k, T)[..., None] for k in (LENGTHS, OTHERS)]
ENDS = {"nan": np.nan, "inf": np.inf}
POISONED = {
    end: [tf.where(m, t, tf.constant(bad, t.dtype)) for m, t in zip(KEEP, (X, Y))]
    for end, bad in ENDS.items()
}
EXACT = {"tolerance": (1e-9, 1e-10), "by": (*W, KERNEL)}


def cut(body):
    return lambda x, k, y, m: body(x[:k], y[:m])


def dense(x, y):
    return x, LENGTHS, y, OTHERS


def ragged(x, y):
    return tuple(tf.RaggedTensor.from_tensor(t, k) for t, k in ((x, LENGTHS), (y, OTHERS)))


# Nothing comes out of the padding.
test_table_of_poisoned_rows = table_of(
    {
        f"{body.__name__}, {end}, {form.__name__}": (
            cut(body) if form is dense else body, form(*POISONED[end]))
        for body in BODIES
        for end in ENDS
        for form in (dense, ragged)
    },
    ways=["eager", "around"], **EXACT,
)  # fmt: skip


def quotients(x, y):
    """The sums of a matrix without rows are zero, and its padding is divided by them."""
    scores = tf.matmul(x, y, transpose_b=True)
    return tf.matmul(x, scores / tf.reduce_sum(scores, 0), transpose_a=True)


def attended(x, y):
    return tf.nn.softmax(tf.matmul(x, x, transpose_b=True)) @ x


def penalty(x, y):
    """A gradient by a tanh whose rows are put together: TensorFlow's next gradient of it fails."""
    with tf.GradientTape() as tape:
        tape.watch(x)
        both = tf.concat([x * tf.reduce_sum(x), y], 0)
        value = tf.reduce_sum(tf.tanh(tf.concat([both, both], 0)))
    return tape.gradient(value, x)


# Each element of a row meets the padding of another row: x / 0 has an infinite gradient.
test_table_of_finite_rows = table_of(
    {
        "quotients": cut(quotients),
        "xdivy": cut(lambda x, y: tf.math.xdivy(x[:, :1], tf.exp(y[:, 0]))),
        "xlogy": cut(lambda x, y: tf.math.xlogy(x[:, :1], tf.exp(y[:, 0]))),
        "attended": cut(attended),
        "penalty": cut(penalty),
    },
    *dense(X, Y), ways=["eager", "around", "twice around"], only={"twice around": ["attended"]},
    **EXACT,
)  # fmt: skip

LISTS = tf.ragged.constant([[[1.0, 2.0], [3.0]], [], [[4.0], [5.0, 6.0, 7.0]]])
FLAT_LISTS = LISTS.merge_dims(1, 2)


def summed(row):
    row = row.flat_values if isinstance(row, tf.RaggedTensor) else row
    return tf.reduce_sum(row**2) + tf.reduce_sum(tf.cumsum(row))


def in_a_branch(row, k):
    return tf.cond(k > 0, lambda: summed(row), lambda: summed(row) + 0.0)


SITES = [f"{site}, few rows" for site in ("eager", "vmap", "function", "in a map", "dataset")]
test_table_of_ragged_elements = table_of(
    {
        "rank 1": (summed, FLAT_LISTS),
        "rank 2": (summed, LISTS),
        "rank 1 in a branch": (in_a_branch, (FLAT_LISTS, tf.range(3))),
        "rank 2 in a branch": (in_a_branch, (LISTS, tf.range(3))),
    },
    ways=[*SITES, "chunks"], looped=[*SITES, "chunks"], tolerance=(1e-7, 0.0),
)  # fmt: skip


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


def test_pairs_of_vectors_are_not_padded():
    points = tf.RaggedTensor.from_row_lengths(tf.ones([7, 2]), [1, 0, 5, 1])
    weigh = lambda r: tf.reduce_sum(tf.exp(r[:, None] - r[None]) * tf.cast(tf.size(r), tf.float32))

    @tf.function
    def run(rows):
        with tf.GradientTape() as tape:
            tape.watch(rows.flat_values)
            found = tf_pfor.vectorized_map(weigh, rows)
        return found, tape.gradient(found, rows.flat_values)

    graph = run.get_concrete_function(points).graph
    types = {op.type for op in graph.get_operations()}
    assert "RaggedGather" in types
    assert not types & {"RaggedTensorToTensor", "GatherNd", "ScatterNd", "Where"}
    found, slopes = run(points)
    assert found.numpy().tolist() == [4.0, 0.0, 500.0, 4.0]
    np.testing.assert_allclose(slopes, np.zeros([7, 2]), atol=1e-5)


@pytest.mark.parametrize("lengths", [[4, 0], [0, 4], [0, 0], [4], [2, 0, 2]])
def test_constant_lengths(lengths):
    """In a graph the begins of rows may be one constant, or their ends."""
    values = tf.range(float(sum(lengths)))

    @tf.function
    def run(values):
        rows = tf.RaggedTensor.from_row_lengths(values, lengths)
        return tf_pfor.vectorized_map(lambda r: tf.reduce_sum(r) + 1.0, rows)

    wanted = [np.sum(part) + 1 for part in np.split(values, np.cumsum(lengths)[:-1])]
    np.testing.assert_allclose(run(values), wanted)


def test_explain_says_the_form():
    report = tf_pfor.explain(lambda x, k: tf.nn.softmax(x[:k] @ W[0], 0), X, LENGTHS)
    notes = {r.op_type: r.reason for r in report.records}
    assert notes["MatMul"] == f"packed rows, {T} at most"
    assert notes["Softmax"] == f"padded rows, {T} at most"
