"""Ops on rows of different shapes, vectorized: values, results and gradients against a loop."""

import warnings

import numpy as np
import pytest
import tensorflow as tf

import tf_pfor
from tests.comparisons import assert_rows, compare_around, strict_map

N, T, D = 5, 6, 3
X = tf.random.stateless_normal([N, T, D], [1, 2])
K = tf.constant([3, 1, 6, 2, 4])
WITH_EMPTY = tf.constant([3, 0, 6, 1, 0])
W = tf.random.stateless_normal([D, 4], [1, 3])
V = tf.random.stateless_normal([D], [1, 4])
TABLE = tf.random.stateless_normal([7, 2], [1, 5])
KERNEL = tf.random.stateless_normal([3, D, 2], [1, 6])


def attention(x, k):
    r = x[:k]
    scores = tf.matmul(r @ W, r @ W, transpose_b=True) / 2.0
    return tf.nn.softmax(scores) @ r


def mean_pooled(x, k):
    h = tf.nn.relu(x[:k] @ W + 1.0)
    return tf.reduce_mean(h, 0)


def normalized(x, k):
    r = x[:k]
    mean = tf.reduce_mean(r, -1, keepdims=True)
    return (r - mean) / tf.sqrt(tf.reduce_mean((r - mean) ** 2, -1, keepdims=True) + 1e-3)


PLACES = tf.range(T)


def group_means(x, k):
    keys, places = tf.unique(tf.range(T) * k // 4)
    return tf.math.unsorted_segment_mean(x, places, tf.size(keys))


def kernel(x, k):
    r = x[:k]
    return tf.matmul(r, r, transpose_b=True) + 2.0 * tf.eye(k)


def causal(r):
    scores = tf.matmul(r @ W, r @ W, transpose_b=True)
    length = tf.shape(r)[0]
    seen = tf.linalg.band_part(tf.ones([length, length]), -1, 0)
    return tf.nn.softmax(tf.where(seen > 0.0, scores, -1e9)) @ r


def written(x, k):
    made = tf.TensorArray(tf.float32, 0, dynamic_size=True, element_shape=[D])
    total = V
    for t in tf.range(k):
        total = total * 0.5 + x[t]
        made = made.write(t, total)
    return made.stack()


# name -> (body of a row [T, D] and its length, whether it stands empty rows)
BODIES = {
    "square": (lambda x, k: x[:k] ** 2, True),
    "last ones": (lambda x, k: tf.tanh(x[T - k:]), True),
    "between": (lambda x, k: x[k // 2 : k] * 3.0, True),
    "strided": (lambda x, k: x[:k:2] + 1.0, True),
    "columns": (lambda x, k: tf.exp(x[:, : k // 2]), True),
    "crop": (lambda x, k: x[:k, : k // 2] * 2.0, True),
    "of a shared tensor": (lambda x, k: X[0][k // 2 : k] * x[0], True),
    "by a vector": (lambda x, k: x[:k] * V + 1.0, True),
    "by a row's vector": (lambda x, k: x[:k] * x[0] - x[0, 0], True),
    "two slices": (lambda x, k: x[:k] * X[1][:k], True),
    "by numbers": (lambda x, k: x[:k] * tf.cast(tf.range(k), tf.float32)[:, None], True),
    "one or more": (lambda x, k: x[:k] * X[1][: 1 + (k - 1) * (k % 2)], False),
    "joined with others": (
        lambda x, k: tf.concat([x[:k], tf.cast(tf.range(k), tf.float32)[:, None]], 1), True),
    "compared": (lambda x, k: tf.where(x[:k] > 0, x[:k], -1.0), True),
    "cast": (lambda x, k: tf.cast(x[:k] > 0, tf.float64), True),
    "sum": (lambda x, k: tf.reduce_sum(x[:k] @ W), True),
    "sum of axis 0": (lambda x, k: tf.reduce_sum(tf.sin(x[:k]), 0), True),
    "sum of axis 1": (lambda x, k: tf.reduce_sum(tf.sin(x[:k]), 1), True),
    "kept": (lambda x, k: tf.reduce_sum(x[:k], 0, keepdims=True), True),
    "mean": (mean_pooled, False),
    "max": (lambda x, k: tf.reduce_max(x[:k] * 2.0, 0), True),
    "min": (lambda x, k: tf.reduce_min(x[:k] * 2.0), True),
    "all": (lambda x, k: tf.reduce_all(x[:k] < 1.0, 0), True),
    "product": (lambda x, k: tf.reduce_prod(x[:k], 0), True),
    "layers": (lambda x, k: tf.nn.relu(x[:k] @ W + 0.5) @ tf.transpose(W), True),
    "matmul by row": (lambda x, k: tf.matmul(x[:k], tf.ones([D, 2]) * x[0, 0]), True),
    "gram": (lambda x, k: tf.matmul(x[:k], x[:k], transpose_a=True), True),
    "outer": (lambda x, k: tf.matmul(x[:k], x[:k], transpose_b=True), True),
    "attention": (attention, True),
    "einsum": (lambda x, k: tf.einsum("td,dm->tm", x[:k], W), True),
    "einsum over rows": (lambda x, k: tf.einsum("td,te->de", x[:k], tf.sin(x[:k])), True),
    "normalized": (normalized, True),
    "softmax": (lambda x, k: tf.nn.softmax(x[:k], 0), True),
    "softmax of columns": (lambda x, k: tf.nn.log_softmax(x[:k]), True),
    "cumsum": (lambda x, k: tf.cumsum(x[:k]), True),
    "reverse cumsum": (lambda x, k: tf.cumsum(x[:k], reverse=True, exclusive=True), True),
    "argmax": (lambda x, k: tf.argmax(x[:k] * 1.0), False),
    "shape": (lambda x, k: tf.shape(x[:k] * 1.0), True),
    "number": (lambda x, k: tf.cast(tf.shape(x[:k] * 1.0)[0], tf.float32) * x[0], True),
    "size": (lambda x, k: tf.size(x[:k]), True),
    "flat": (lambda x, k: tf.reshape(x[:k], [-1]), True),
    "reshaped": (lambda x, k: tf.reshape(x[:k], [-1, D, 1]) * 2.0, True),
    "reshaped by shape": (lambda x, k: tf.reshape(x[:k], [tf.shape(x[:k])[0], D, 1]), True),
    "expanded": (lambda x, k: x[:k][None, :, None] * 2.0, True),
    "squeezed": (lambda x, k: tf.squeeze(tf.expand_dims(x[:k], 0), 0) * 2.0, True),
    "transposed": (lambda x, k: tf.transpose(x[:k]) * 2.0, True),
    "convolved": (lambda x, k: tf.nn.conv1d(x[:k][None], KERNEL, 1, "SAME")[0], False),
    "convolved, valid": (lambda x, k: tf.nn.conv1d(x[:k + 2][None], KERNEL, 1, "VALID")[0], False),
    "gathered by a size": (lambda x, k: tf.gather(TABLE, tf.size(x[:k]) // D) * x[0, 0], True),
    "column by a size": (lambda x, k: tf.gather(X[0], tf.shape(x[:k])[:1] % T) * x[0], True),
    "embedded": (lambda x, k: tf.gather(TABLE, tf.range(k)) * x[0, 0], True),
    "gathered": (lambda x, k: tf.gather(tf.sin(x[:k]), [0, 0]), False),
    "first": (lambda x, k: (x[:k] * 2.0)[0], False),
    "last": (lambda x, k: (x[:k] * 2.0)[-1], False),
    "all but the first": (lambda x, k: (x[:k] * 2.0)[1:], True),
    "differences": (lambda x, k: tf.cumsum(x[:k])[1:] * 2.0, True),
    "last column": (lambda x, k: x[:k][:, -1] * 2.0, True),
    "reversed": (lambda x, k: (x[:k] * 2.0)[::-1], True),
    "joined": (lambda x, k: tf.concat([x[:k], x[:2], x[:k] * 2.0], 0), True),
    "joined columns": (lambda x, k: tf.concat([x[:k], tf.sin(x[:k])], 1), True),
    "mask": (lambda x, k: tf.boolean_mask(x[:, 0], x[:, 0] > 0) * 2.0, True),
    "one hot": (lambda x, k: tf.one_hot(tf.range(T)[:k], 4) * x[0, 0], True),
    "cross entropy": (
        lambda x, k: tf.nn.sparse_softmax_cross_entropy_with_logits(tf.range(T)[:k] % D, x[:k]),
        True),
    "soft cross entropy": (
        lambda x, k: tf.nn.softmax_cross_entropy_with_logits(tf.nn.softmax(x[:k]), x[:k] * 2.0),
        True),
    "split": (lambda x, k: tf.split(x[:k], [1, 2], -1)[1] * 2.0, True),
    "unstacked": (lambda x, k: tf.unstack(x[:k], axis=1)[1] * 2.0, True),
    "stacked": (lambda x, k: tf.stack([x[:k], tf.sin(x[:k])], 1), True),
    "stacked in front": (lambda x, k: tf.stack([x[:k], tf.sin(x[:k])]), True),
    "sorted": (lambda x, k: tf.sort(x[:k, 0] * 2.0), False),
    "sorted down": (lambda x, k: tf.sort(x[:k, 0] * 2.0, direction="DESCENDING"), False),
    "median": (lambda x, k: tf.sort(x[:k, 0])[k // 2], False),
    "largest two": (lambda x, k: tf.math.top_k(x[: k + 1, 0], 2)[0], False),
    "largest columns": (lambda x, k: tf.math.top_k(x[:k], 2)[0], True),
    "repeated": (lambda x, k: tf.repeat(x[0], k), True),
    "tiled": (lambda x, k: tf.tile(x[:2], [k, 1]) * 2.0, True),
    "tensordot": (lambda x, k: tf.tensordot(x[:k], W, 1), True),
    "tensordot of rank 3": (lambda x, k: tf.tensordot(x[:k][:, None], W, [[2], [0]]), True),
    "padded": (lambda x, k: tf.pad(x[:k], [[1, 2], [0, 0]]), True),
    "padded to one size": (lambda x, k: tf.pad(x[:k], [[0, T - k], [0, 0]]), True),
    "standard deviation": (lambda x, k: tf.math.reduce_std(x[:k], 0), False),
    "logsumexp": (lambda x, k: tf.reduce_logsumexp(x[:k], 0), False),
    "segments": (lambda x, k: tf.math.segment_max(x, tf.minimum(tf.range(T), k - 1)), False),
    "window": (lambda x, k: x[k // 3 : k // 3 + 2] * 2.0, True),
    "sized slice": (lambda x, k: tf.slice(x, [T - k, 0], [k, D]) * 2.0, True),
    "rest of a slice": (lambda x, k: tf.slice(x, [k // 2, 0], [-1, D]) * 2.0, True),
    "noise": (lambda x, k: x[:k] + tf.random.stateless_normal(tf.shape(x[:k]), [1, 2]), True),
    "jacobian": (
        lambda x, k: tf_pfor.jacrev(lambda a: tf.reduce_sum(tf.sin(a @ W), 0))(x[:k]), True),
    "ones like": (lambda x, k: tf.ones_like(x[:k]), True),
    "called": (tf.function(lambda x, k: tf.tanh(x[:k]) @ W), True),
    "summed by segments": (
        lambda x, k: tf.math.unsorted_segment_sum(x[:k], PLACES[:k] % 2, 2) * x[0, 0], True),
    "largest by segments": (
        lambda x, k: tf.math.unsorted_segment_max(x[:k, 0], PLACES[:k] % 3 - 1, 2), True),
    "degrees": (
        lambda x, k: tf.math.unsorted_segment_sum(tf.ones([k]), tf.range(k) % 2, tf.shape(x)[1]),
        True),
    "counted": (
        lambda x, k: tf.math.bincount(tf.range(k) % 3, minlength=4, maxlength=4), True),
    "weighed": (
        lambda x, k: tf.math.bincount(
            tf.range(k) % 3, weights=tf.stop_gradient(x[:k, 0]), minlength=4, maxlength=4), True),
    "scattered": (lambda x, k: tf.scatter_nd(PLACES[:k, None] % 3, x[:k], [4, D]), True),
    "into a tensor": (
        lambda x, k: tf.tensor_scatter_nd_add(x[:4], PLACES[:k, None] % 3, x[:k] * 2.0), True),
    "gathered places": (
        lambda x, k: tf.gather_nd(x, tf.stack([tf.range(k), tf.range(k) % D], 1)) * 2.0, True),
    "distinct": (lambda x, k: tf.unique(tf.range(T) // k)[0], False),
    "distinct of ragged": (lambda x, k: tf.unique(tf.range(k) % 2)[1], True),
    "counts of distinct": (lambda x, k: tf.unique_with_counts(tf.range(k) // 2)[2], True),
    "group means": (lambda x, k: group_means(x, k), True),
    "rolled": (lambda x, k: tf.roll(x[:k], 1, 0) * 2.0, True),
    "rolled by its own": (lambda x, k: tf.roll(x[:k, 0], k // 2 + 1, 0) * 2.0, True),
    "each twice": (lambda x, k: tf.repeat(x[:k], 2, 0) * 2.0, True),
    "tiled rows": (lambda x, k: tf.tile(x[:k], [2, 1]) * 2.0, True),
    "top of own number": (lambda x, k: tf.math.top_k(x[:, 0], k)[0] * 2.0, True),
    "steps between": (lambda x, k: x[:k][1:] - x[:k][:-1], True),
    "pairs": (lambda x, k: tf.reduce_sum((x[:k, None] - x[None, :k]) ** 2, -1), True),
    "cast sizes": (
        lambda x, k: x[:k] / tf.cast(tf.shape(x[:k], tf.int64)[0], tf.float32), True),
    "reversed by its axis": (lambda x, k: tf.reverse(x[:k], [0]) * 2.0, True),
    "reversed both ways": (lambda x, k: tf.reverse(x[:k, : k // 2 + 1], [0, 1]) * 2.0, True),
    "reversed columns": (lambda x, k: tf.reverse(x[:k], [1]) * 2.0, True),
    "equal to one of others": (
        lambda x, k: tf.reduce_any(PLACES[:k, None] == PLACES[None, : k // 2 + 1] + 1, 1), True),
    "not equal": (lambda x, k: tf.cast(PLACES[:k] != k // 2, tf.float32) * x[:k, 0], True),
    "identity": (lambda x, k: tf.eye(k) * x[0, 0], True),
    "kernel": (lambda x, k: kernel(x, k), True),
    "cholesky": (lambda x, k: tf.linalg.cholesky(kernel(x, k)), True),
    "inverse": (lambda x, k: tf.linalg.inv(kernel(x, k)), True),
    "log determinant": (lambda x, k: tf.linalg.logdet(kernel(x, k)), True),
    "solved": (lambda x, k: tf.linalg.solve(kernel(x, k), x[:k]), True),
    "solved by a triangle": (
        lambda x, k: tf.linalg.triangular_solve(tf.linalg.cholesky(kernel(x, k)), x[:k]), True),
    "least squares": (
        lambda x, k: tf.linalg.lstsq(x[:k, :2], x[:k, 2:], l2_regularizer=0.5), True),
    "many small ones": (
        lambda x, k: tf.linalg.solve(x[:k, :, None] * x[:k, None] + tf.eye(D), x[:k, :, None]),
        True),
    "band": (lambda x, k: tf.linalg.band_part(x[:k] @ tf.transpose(x[:k]), -1, 0), True),
    "causal attention": (lambda x, k: causal(x[:k]), True),
    "diagonal": (lambda x, k: tf.linalg.diag_part(kernel(x, k)) * 2.0, True),
    "set diagonal": (
        lambda x, k: tf.linalg.set_diag(kernel(x, k), x[:k, 0]) * 2.0, True),
    "transforms": (lambda x, k: tf.abs(tf.signal.rfft(x[:k])), True),
    "spectrogram": (
        lambda x, k: tf.abs(tf.signal.stft(tf.reshape(x, [-1])[: k + 7], 6, 2)), True),
    "mapped items": (lambda x, k: tf.map_fn(lambda r: tf.reduce_sum(r * r), x[:k]), False),
    "scanned items": (lambda x, k: tf.scan(lambda a, r: a * 0.5 + r, x[:k], V), False),
    "folded items": (lambda x, k: tf.foldl(lambda a, r: a * 0.5 + r, x[:k], V), False),
    "written items": (lambda x, k: written(x, k), True),
    "parts": (lambda x, k: tf.dynamic_partition(x, tf.cast(x[:, 0] > 0, tf.int32), 2)[1], True),
    "segments of own number": (
        lambda x, k: tf.math.unsorted_segment_sum(x, tf.range(T) % (k + 1), k + 1), True),
    "numbered": (lambda x, k: x[:k, 0] * tf.cast(tf.range(tf.size(x[:k, 0])), tf.float32), True),
}  # fmt: skip
LOOPED = ("jacobian", "soft cross entropy")  # what is made of shapes that differ


def mapped(name, ks, **options):
    body, _ = BODIES[name]
    return lambda x: tf_pfor.vectorized_map(lambda e: body(*e), (x, ks), **options)


def rows_of(name, ks):
    return [BODIES[name][0](x, k) for x, k in zip(X, ks)]


@pytest.mark.parametrize("name", sorted(BODIES))
@pytest.mark.parametrize("site", ["eager", "unknown", "empty rows", "one row", "no rows"])
def test_values(name, site):
    ks = WITH_EMPTY if site == "empty rows" else K
    if site == "empty rows" and not BODIES[name][1]:
        pytest.skip("a row itself fails, or is not a number")
    n = {"one row": 1, "no rows": 0}.get(site, N)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        if site == "unknown":
            specs = [tf.TensorSpec([None, None, D]), tf.TensorSpec([None], tf.int32)]
            run = tf.function(lambda x, k: mapped(name, k)(x), input_signature=specs)
            found = run(X, ks)
        else:
            found = mapped(name, ks[:n])(X[:n])
    if site == "eager" and name not in LOOPED:
        assert not [str(w.message) for w in caught if "loop" in str(w.message)]
    assert_rows(found, rows_of(name, ks)[:n], rtol=1e-4, atol=1e-5)


@pytest.mark.filterwarnings("ignore::tf_pfor.FallbackWarning")
@pytest.mark.parametrize("name", sorted(BODIES))
@pytest.mark.parametrize("ks", [K, WITH_EMPTY], ids=["full", "empty rows"])
def test_gradients_around(name, ks):
    body, stands_empty_rows = BODIES[name]
    if ks is WITH_EMPTY and not stands_empty_rows:
        pytest.skip("a row itself fails, or is not a number")
    options = {"rtol": 1e-3, "atol": 1e-4, "fallback": "loop", "eager": True}
    compare_around(body, X, ks, by=[W, V], **options)


@pytest.mark.filterwarnings("ignore::tf_pfor.FallbackWarning")
@pytest.mark.parametrize("name", sorted(BODIES))
def test_gradients_inside(name):
    body = BODIES[name][0]

    def gradient(x, k):
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = body(x, k)
            if not y.dtype.is_floating:
                return tf.zeros_like(x)
            total = tf.reduce_sum(tf.cast(y, tf.float32) ** 2)
        return tape.gradient(total, x, unconnected_gradients="zero")

    found = tf_pfor.vectorized_map(lambda e: gradient(*e), (X, K))
    np.testing.assert_allclose(
        found, tf.stack([gradient(x, k) for x, k in zip(X, K)]), rtol=1e-3, atol=1e-4
    )


def test_sizes_that_do_not_fit():
    """The map fails where a row fails, with the line and the sizes."""
    with pytest.raises(tf.errors.InvalidArgumentError, match=r"test_rules.py:\d+.*differ in some"):
        tf_pfor.vectorized_map(lambda e: e[0][: e[1]] * X[1][: e[1] - 1], (X, K))


def test_the_largest_of_a_row_that_may_be_shorter_is_refused_under_xla():
    with pytest.raises(tf_pfor.NotVectorizableError, match="a row may be shorter than what is"):
        tf_pfor.vmap(lambda e: tf.math.top_k(e[0][: e[1], 0], 1).values, jit_compile=True)((X, K))
    sort = tf_pfor.vmap(
        lambda e: tf.sort(e[0][: e[1], 0], direction="DESCENDING")[0], jit_compile=True
    )
    wanted = [tf.reduce_max(x[:k, 0]) for x, k in zip(X, K)]
    np.testing.assert_array_equal(sort((X, K)), wanted)


def test_what_has_no_form_under_xla_is_refused():
    with pytest.raises(tf_pfor.NotVectorizableError, match="under jit_compile"):
        tf.function(
            lambda: tf_pfor.vectorized_map(lambda e: tf.roll(e[0][: e[1], 0], 1, 0)[0], (X, K)),
            jit_compile=True,
        )()


# Under XLA the padded form alone; results must have one shape.
UNDER_XLA = [
    "sum", "sum of axis 0", "kept", "mean", "max", "min", "all", "product", "gram",
    "einsum over rows", "argmax", "number", "summed by segments", "largest by segments",
    "scattered", "into a tensor",
]  # fmt: skip


@pytest.mark.parametrize("name", UNDER_XLA)
def test_under_xla(name):
    body = BODIES[name][0]

    @tf.function(jit_compile=True)
    def run(x, k):
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = tf_pfor.vectorized_map(lambda e: body(*e), (x, k))
            total = tf.reduce_sum(tf.cast(y, tf.float32) ** 2) if y.dtype.is_floating else 0.0
        return y, tape.gradient(total, x) if y.dtype.is_floating else x

    found, gradient = run(X, K)
    np.testing.assert_allclose(found, rows_of(name, K), rtol=1e-4, atol=1e-5)
    with tf.GradientTape() as tape:
        tape.watch(X)
        y = tf_pfor.vectorized_map(lambda e: body(*e), (X, K))
        total = tf.reduce_sum(tf.cast(y, tf.float32) ** 2)
    if y.dtype.is_floating:
        np.testing.assert_allclose(gradient, tape.gradient(total, X), rtol=1e-3, atol=1e-4)


def scalar(body):
    return lambda x, k: tf.reduce_sum(tf.cast(body(x, k), tf.float32))


@pytest.mark.parametrize("name", ["layers", "attention", "joined", "columns", "mask", "outer"])
@pytest.mark.parametrize("where", ["branch", "loop", "map"])
@pytest.mark.filterwarnings("ignore::tf_pfor.FallbackWarning")
def test_inside_control_flow(name, where):
    one = scalar(BODIES[name][0])

    def branch(x, k):
        return tf.cond(k > 2, lambda: one(x, k), lambda: 0.0)

    def loop(x, k):
        r, step = one(x, k), tf.constant(0)
        return tf.while_loop(lambda i, t: i < k, lambda i, t: (i + 1, t + r), [step, 0.0])[1]

    def nested(x, k):
        return tf.reduce_sum(tf_pfor.vectorized_map(lambda r: one(r, k), tf.stack([x, -x])))

    body = {"branch": branch, "loop": loop, "map": nested}[where]
    found = tf_pfor.vectorized_map(lambda e: body(*e), (X, K))
    np.testing.assert_allclose(found, [body(x, k) for x, k in zip(X, K)], rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("jit", [False, True])
def test_nothing_comes_back_from_the_padding(jit):
    """Divided by what is zero there, or its logarithm: with a finite gradient of what is shared."""
    x, b = tf.abs(X) + 1.0, tf.abs(X[:, 0]) + 1.0

    def one(row):
        x, k, b = row
        outer = b[None, :1] / x[:k, None, 0] + tf.math.log(x[None, :k, 1]) / b[0]
        return tf.reduce_sum(outer) + tf.reduce_sum(b / x[:k])

    @tf.function(jit_compile=jit)
    def run():
        with tf.GradientTape() as tape:
            tape.watch([x, b])
            y = tf_pfor.vectorized_map(one, (x, K, b))
        return y, *tape.gradient(y, [x, b])

    with tf.GradientTape() as tape:
        tape.watch([x, b])
        y = tf.stack([one(row) for row in zip(tf.unstack(x), K, tf.unstack(b))])
    for found, wanted in zip(run(), (y, *tape.gradient(y, [x, b]))):
        np.testing.assert_allclose(tf.convert_to_tensor(found), wanted, rtol=1e-3, atol=1e-4)


def test_a_slice_that_reaches_out_is_an_error_as_in_a_row():
    with pytest.raises(tf.errors.InvalidArgumentError, match=r"test_rules.py:\d+.*reaches out"):
        tf_pfor.vectorized_map(lambda e: tf.slice(e[0], [e[1], 0], [e[1], D]), (X, K))


BEYOND = {
    "range down": lambda i: tf.range(i - 2),
    "range to what is before": lambda i: tf.range(5, i),
    "range of floats": lambda i: tf.range(0.0, tf.cast(i, tf.float32) - 2.0),
    "segments": lambda i: tf.math.segment_sum(tf.ones([3]), tf.stack([2 - i, 3, 4])),
    "reshaped": lambda i: tf.reshape(tf.range(2 * i), [3]),
    "reshaped to its own": lambda i: tf.reshape(tf.range(i), [i // 2, 2]),
    "reshaped with a rest": lambda i: tf.reshape(tf.range(i + 1), [-1, 2]),
    "multiples": lambda i: tf.tile(tf.ones([2]), [i - 1]),
}


@pytest.mark.parametrize("name", sorted(BEYOND))
def test_what_a_row_refuses_is_an_error(name):
    with pytest.raises(tf.errors.InvalidArgumentError, match=r"test_rules.py:\d+"):
        tf_pfor.pfor(BEYOND[name], 4)


PRODUCTS = {
    "transpose_a": lambda z: tf.matmul(z, z, transpose_a=True),
    "transpose_b": lambda z: tf.matmul(z, z, transpose_b=True),
    "adjoint_a": lambda z: tf.matmul(z, z, adjoint_a=True),
    "adjoint_b": lambda z: tf.matmul(z, z, adjoint_b=True),
    "by a shared matrix": lambda z: tf.matmul(z, COMPLEX[0], adjoint_b=True),
    "by a shared one turned": lambda z: tf.matmul(z, COMPLEX[0], transpose_b=True),
    "of a batch": lambda z: tf.matmul(z[None], z[None], transpose_b=True)[0],
    "by a vector": lambda z: tf.linalg.matvec(z, z[:, 0], adjoint_a=True),
}
COMPLEX = tf.complex(X, tf.sin(3.0 * X))


@pytest.mark.parametrize("name", PRODUCTS)
def test_products_of_complex_numbers(name):
    """A product may transpose, or transpose and conjugate."""
    z = tf.RaggedTensor.from_tensor(COMPLEX, lengths=K)
    body = PRODUCTS[name]
    with tf.GradientTape() as tape:
        tape.watch(z.flat_values)
        found = strict_map(body, z)
        total = tf.reduce_sum(tf.abs(getattr(found, "flat_values", found)))
    slope = tape.gradient(total, z.flat_values)
    with tf.GradientTape() as tape:
        tape.watch(z.flat_values)
        rows = [body(row) for row in z]
        total = tf.add_n([tf.reduce_sum(tf.abs(row)) for row in rows])
    assert_rows(found, rows, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(slope, tape.gradient(total, z.flat_values), rtol=1e-3, atol=1e-4)


UNKNOWN = {
    "columns": lambda x, k: x[:, :k] + tf.sin(x[:, :k]),
    "joined": lambda x, k: tf.concat([x[:, :k], x[:, :k] * 2.0], 0),
    "stacked": lambda x, k: tf.stack([x[:, :k], x[:, :k] * 2.0], 0),
    "two cuts": lambda x, k: x[:2, :k] * x[1:3, :k],
    "product": lambda x, k: tf.matmul(x[:, :k], x[:, :k], transpose_b=True),
    "softmax": lambda x, k: tf.nn.softmax(x[:, :k]),
    "transposed": lambda x, k: tf.transpose(x[:, :k]),
    "transposed in front": lambda x, k: tf.transpose(x[:k]),
    "padded by the row": lambda x, k: tf.pad(x[:k], [[0, 0], [k, 0]]),
    "repeated": lambda x, k: tf.tile(x[:k], tf.stack([k + 1, 1])),
    "taken": lambda x, k: tf.slice(x[:, :k], tf.stack([0, 0]), tf.stack([2, k // 2])),
}


# Whether sizes in front agree is not known.
LOOPED_WHERE_UNKNOWN = ("columns", "joined", "stacked", "two cuts")


@pytest.mark.filterwarnings("ignore::tf_pfor.FallbackWarning")
@pytest.mark.parametrize("name", sorted(UNKNOWN))
def test_sizes_that_are_not_known_in_front(name):
    """The rows share them, as numbers that are known when it runs."""
    specs = [tf.TensorSpec([None, None, None]), tf.TensorSpec([None], tf.int32)]
    body, x, k = UNKNOWN[name], tf.transpose(X, [0, 2, 1]), K
    fallback = "loop" if name in LOOPED_WHERE_UNKNOWN else "error"

    @tf.function(input_signature=specs)
    def run(x, k):
        return tf_pfor.vectorized_map(lambda e: body(*e), (x, k), fallback=fallback)

    rows = [body(row, size) for row, size in zip(x, k)]
    assert_rows(run(x, k), rows, rtol=1e-4, atol=1e-5)
