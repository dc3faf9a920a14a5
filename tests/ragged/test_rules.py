"""Ops on rows of different shapes, vectorized: values, results and gradients against a loop."""

import numpy as np
import pytest
import tensorflow as tf

import tf_pfor
from tests.comparisons import assert_close, mapped, value_and_gradient
from tests.ways import errors_of, table_of

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


# name -> body of a row [T, D] and its length
BODIES = {
    "square": lambda x, k: x[:k] ** 2,
    "last ones": lambda x, k: tf.tanh(x[T - k:]),
    "between": lambda x, k: x[k // 2 : k] * 3.0,
    "strided": lambda x, k: x[:k:2] + 1.0,
    "columns": lambda x, k: tf.exp(x[:, : k // 2]),
    "crop": lambda x, k: x[:k, : k // 2] * 2.0,
    "of a shared tensor": lambda x, k: X[0][k // 2 : k] * x[0],
    "by a vector": lambda x, k: x[:k] * V + 1.0,
    "by a row's vector": lambda x, k: x[:k] * x[0] - x[0, 0],
    "two slices": lambda x, k: x[:k] * X[1][:k],
    "by numbers": lambda x, k: x[:k] * tf.cast(tf.range(k), tf.float32)[:, None],
    "one or more": lambda x, k: x[:k] * X[1][: 1 + (k - 1) * (k % 2)],
    "joined with others":
        lambda x, k: tf.concat([x[:k], tf.cast(tf.range(k), tf.float32)[:, None]], 1),
    "compared": lambda x, k: tf.where(x[:k] > 0, x[:k], -1.0),
    "cast": lambda x, k: tf.cast(x[:k] > 0, tf.float64),
    "sum": lambda x, k: tf.reduce_sum(x[:k] @ W),
    "sum of axis 0": lambda x, k: tf.reduce_sum(tf.sin(x[:k]), 0),
    "sum of axis 1": lambda x, k: tf.reduce_sum(tf.sin(x[:k]), 1),
    "kept": lambda x, k: tf.reduce_sum(x[:k], 0, keepdims=True),
    "mean": mean_pooled,
    "max": lambda x, k: tf.reduce_max(x[:k] * 2.0, 0),
    "min": lambda x, k: tf.reduce_min(x[:k] * 2.0),
    "all": lambda x, k: tf.reduce_all(x[:k] < 1.0, 0),
    "product": lambda x, k: tf.reduce_prod(x[:k], 0),
    "layers": lambda x, k: tf.nn.relu(x[:k] @ W + 0.5) @ tf.transpose(W),
    "matmul by row": lambda x, k: tf.matmul(x[:k], tf.ones([D, 2]) * x[0, 0]),
    "gram": lambda x, k: tf.matmul(x[:k], x[:k], transpose_a=True),
    "outer": lambda x, k: tf.matmul(x[:k], x[:k], transpose_b=True),
    "attention": attention,
    "einsum": lambda x, k: tf.einsum("td,dm->tm", x[:k], W),
    "einsum over rows": lambda x, k: tf.einsum("td,te->de", x[:k], tf.sin(x[:k])),
    "normalized": normalized,
    "softmax": lambda x, k: tf.nn.softmax(x[:k], 0),
    "softmax of columns": lambda x, k: tf.nn.log_softmax(x[:k]),
    "cumsum": lambda x, k: tf.cumsum(x[:k]),
    "reverse cumsum": lambda x, k: tf.cumsum(x[:k], reverse=True, exclusive=True),
    "argmax": lambda x, k: tf.argmax(x[:k] * 1.0),
    "shape": lambda x, k: tf.shape(x[:k] * 1.0),
    "number": lambda x, k: tf.cast(tf.shape(x[:k] * 1.0)[0], tf.float32) * x[0],
    "size": lambda x, k: tf.size(x[:k]),
    "flat": lambda x, k: tf.reshape(x[:k], [-1]),
    "reshaped": lambda x, k: tf.reshape(x[:k], [-1, D, 1]) * 2.0,
    "reshaped by shape": lambda x, k: tf.reshape(x[:k], [tf.shape(x[:k])[0], D, 1]),
    "expanded": lambda x, k: x[:k][None, :, None] * 2.0,
    "squeezed": lambda x, k: tf.squeeze(tf.expand_dims(x[:k], 0), 0) * 2.0,
    "transposed": lambda x, k: tf.transpose(x[:k]) * 2.0,
    "convolved": lambda x, k: tf.nn.conv1d(x[:k][None], KERNEL, 1, "SAME")[0],
    "convolved, valid": lambda x, k: tf.nn.conv1d(x[:k + 2][None], KERNEL, 1, "VALID")[0],
    "gathered by a size": lambda x, k: tf.gather(TABLE, tf.size(x[:k]) // D) * x[0, 0],
    "column by a size": lambda x, k: tf.gather(X[0], tf.shape(x[:k])[:1] % T) * x[0],
    "embedded": lambda x, k: tf.gather(TABLE, tf.range(k)) * x[0, 0],
    "gathered": lambda x, k: tf.gather(tf.sin(x[:k]), [0, 0]),
    "first": lambda x, k: (x[:k] * 2.0)[0],
    "last": lambda x, k: (x[:k] * 2.0)[-1],
    "all but the first": lambda x, k: (x[:k] * 2.0)[1:],
    "differences": lambda x, k: tf.cumsum(x[:k])[1:] * 2.0,
    "last column": lambda x, k: x[:k][:, -1] * 2.0,
    "reversed": lambda x, k: (x[:k] * 2.0)[::-1],
    "joined": lambda x, k: tf.concat([x[:k], x[:2], x[:k] * 2.0], 0),
    "joined columns": lambda x, k: tf.concat([x[:k], tf.sin(x[:k])], 1),
    "mask": lambda x, k: tf.boolean_mask(x[:, 0], x[:, 0] > 0) * 2.0,
    "one hot": lambda x, k: tf.one_hot(tf.range(T)[:k], 4) * x[0, 0],
    "cross entropy":
        lambda x, k: tf.nn.sparse_softmax_cross_entropy_with_logits(tf.range(T)[:k] % D, x[:k]),
    "soft cross entropy":
        lambda x, k: tf.nn.softmax_cross_entropy_with_logits(tf.nn.softmax(x[:k]), x[:k] * 2.0),
    "cross entropy of its classes":
        lambda x, k: tf.nn.sparse_softmax_cross_entropy_with_logits(k // 2, 3.0 * x[:k, 0]),
    "soft cross entropy of its classes":
        lambda x, k: tf.nn.softmax_cross_entropy_with_logits(tf.one_hot(k // 2, k), x[:k, 0]),
    "pointers": lambda x, k: tf.nn.sparse_softmax_cross_entropy_with_logits(
        tf.range(T)[:k] // 2, tf.matmul(x[:k], x[:k], transpose_b=True)),
    "split": lambda x, k: tf.split(x[:k], [1, 2], -1)[1] * 2.0,
    "unstacked": lambda x, k: tf.unstack(x[:k], axis=1)[1] * 2.0,
    "stacked": lambda x, k: tf.stack([x[:k], tf.sin(x[:k])], 1),
    "stacked in front": lambda x, k: tf.stack([x[:k], tf.sin(x[:k])]),
    "sorted": lambda x, k: tf.sort(x[:k, 0] * 2.0),
    "sorted down": lambda x, k: tf.sort(x[:k, 0] * 2.0, direction="DESCENDING"),
    "median": lambda x, k: tf.sort(x[:k, 0])[k // 2],
    "largest two": lambda x, k: tf.math.top_k(x[: k + 1, 0], 2)[0],
    "largest columns": lambda x, k: tf.math.top_k(x[:k], 2)[0],
    "repeated": lambda x, k: tf.repeat(x[0], k),
    "tiled": lambda x, k: tf.tile(x[:2], [k, 1]) * 2.0,
    "tensordot": lambda x, k: tf.tensordot(x[:k], W, 1),
    "tensordot of rank 3": lambda x, k: tf.tensordot(x[:k][:, None], W, [[2], [0]]),
    "padded": lambda x, k: tf.pad(x[:k], [[1, 2], [0, 0]]),
    "padded to one size": lambda x, k: tf.pad(x[:k], [[0, T - k], [0, 0]]),
    "standard deviation": lambda x, k: tf.math.reduce_std(x[:k], 0),
    "logsumexp": lambda x, k: tf.reduce_logsumexp(x[:k], 0),
    "segments": lambda x, k: tf.math.segment_max(x, tf.minimum(tf.range(T), k - 1)),
    "window": lambda x, k: x[k // 3 : k // 3 + 2] * 2.0,
    "sized slice": lambda x, k: tf.slice(x, [T - k, 0], [k, D]) * 2.0,
    "rest of a slice": lambda x, k: tf.slice(x, [k // 2, 0], [-1, D]) * 2.0,
    "noise": lambda x, k: x[:k] + tf.random.stateless_normal(tf.shape(x[:k]), [1, 2]),
    "jacobian": lambda x, k: tf_pfor.jacrev(lambda a: tf.reduce_sum(tf.sin(a @ W), 0))(x[:k]),
    "ones like": lambda x, k: tf.ones_like(x[:k]),
    "called": tf.function(lambda x, k: tf.tanh(x[:k]) @ W),
    "summed by segments":
        lambda x, k: tf.math.unsorted_segment_sum(x[:k], PLACES[:k] % 2, 2) * x[0, 0],
    "largest by segments":
        lambda x, k: tf.math.unsorted_segment_max(x[:k, 0], PLACES[:k] % 3 - 1, 2),
    "degrees":
        lambda x, k: tf.math.unsorted_segment_sum(tf.ones([k]), tf.range(k) % 2, tf.shape(x)[1]),
    "counted": lambda x, k: tf.math.bincount(tf.range(k) % 3, minlength=4, maxlength=4),
    "kernel of pairs": lambda x, k: tf.exp(-tf.reduce_sum((x[:k, None] - x[None, :k]) ** 2, -1)),
    "pairs of two cuts": lambda x, k: tf.where(x[:k, None] > x[None, k // 2 :], x[:k, None], 0.5),
    "messages": lambda x, k: tf.reduce_sum(tf.nn.relu(x[:k, None] @ W - x[None, :k] @ W), 1),
    "triples": lambda x, k: tf.reduce_sum(
        tf.sin((x[:k, None] * x[None, :k])[:, :, None] + x[:k]), [1, 2]),
    "weighed": lambda x, k: tf.math.bincount(
            tf.range(k) % 3, weights=tf.stop_gradient(x[:k, 0]), minlength=4, maxlength=4),
    "scattered": lambda x, k: tf.scatter_nd(PLACES[:k, None] % 3, x[:k], [4, D]),
    "into a tensor":
        lambda x, k: tf.tensor_scatter_nd_add(x[:4], PLACES[:k, None] % 3, x[:k] * 2.0),
    "gathered places":
        lambda x, k: tf.gather_nd(x, tf.stack([tf.range(k), tf.range(k) % D], 1)) * 2.0,
    "distinct": lambda x, k: tf.unique(tf.range(T) // k)[0],
    "distinct of ragged": lambda x, k: tf.unique(tf.range(k) % 2)[1],
    "counts of distinct": lambda x, k: tf.unique_with_counts(tf.range(k) // 2)[2],
    "group means": group_means,
    "rolled": lambda x, k: tf.roll(x[:k], 1, 0) * 2.0,
    "rolled by its own": lambda x, k: tf.roll(x[:k, 0], k // 2 + 1, 0) * 2.0,
    "each twice": lambda x, k: tf.repeat(x[:k], 2, 0) * 2.0,
    "tiled rows": lambda x, k: tf.tile(x[:k], [2, 1]) * 2.0,
    "top of own number": lambda x, k: tf.math.top_k(x[:, 0], k)[0] * 2.0,
    "steps between": lambda x, k: x[:k][1:] - x[:k][:-1],
    "pairs": lambda x, k: tf.reduce_sum((x[:k, None] - x[None, :k]) ** 2, -1),
    "cast sizes": lambda x, k: x[:k] / tf.cast(tf.shape(x[:k], tf.int64)[0], tf.float32),
    "reversed by its axis": lambda x, k: tf.reverse(x[:k], [0]) * 2.0,
    "reversed both ways": lambda x, k: tf.reverse(x[:k, : k // 2 + 1], [0, 1]) * 2.0,
    "reversed columns": lambda x, k: tf.reverse(x[:k], [1]) * 2.0,
    "equal to one of others":
        lambda x, k: tf.reduce_any(PLACES[:k, None] == PLACES[None, : k // 2 + 1] + 1, 1),
    "not equal": lambda x, k: tf.cast(PLACES[:k] != k // 2, tf.float32) * x[:k, 0],
    "identity": lambda x, k: tf.eye(k) * x[0, 0],
    "kernel": kernel,
    "cholesky": lambda x, k: tf.linalg.cholesky(kernel(x, k)),
    "inverse": lambda x, k: tf.linalg.inv(kernel(x, k)),
    "log determinant": lambda x, k: tf.linalg.logdet(kernel(x, k)),
    "solved": lambda x, k: tf.linalg.solve(kernel(x, k), x[:k]),
    "solved by a triangle":
        lambda x, k: tf.linalg.triangular_solve(tf.linalg.cholesky(kernel(x, k)), x[:k]),
    "least squares": lambda x, k: tf.linalg.lstsq(x[:k, :2], x[:k, 2:], l2_regularizer=0.5),
    "many small ones":
        lambda x, k: tf.linalg.solve(x[:k, :, None] * x[:k, None] + tf.eye(D), x[:k, :, None]),
    "band": lambda x, k: tf.linalg.band_part(x[:k] @ tf.transpose(x[:k]), -1, 0),
    "causal attention": lambda x, k: causal(x[:k]),
    "diagonal": lambda x, k: tf.linalg.diag_part(kernel(x, k)) * 2.0,
    "set diagonal": lambda x, k: tf.linalg.set_diag(kernel(x, k), x[:k, 0]) * 2.0,
    "transforms": lambda x, k: tf.abs(tf.signal.rfft(x[:k])),
    "spectrogram": lambda x, k: tf.abs(tf.signal.stft(tf.reshape(x, [-1])[: k + 7], 6, 2)),
    "mapped items": lambda x, k: tf.map_fn(lambda r: tf.reduce_sum(r * r), x[:k]),
    "scanned items": lambda x, k: tf.scan(lambda a, r: a * 0.5 + r, x[:k], V),
    "folded items": lambda x, k: tf.foldl(lambda a, r: a * 0.5 + r, x[:k], V),
    "written items": written,
    "parts": lambda x, k: tf.dynamic_partition(x, tf.cast(x[:, 0] > 0, tf.int32), 2)[1],
    "segments of own number":
        lambda x, k: tf.math.unsorted_segment_sum(x, tf.range(T) % (k + 1), k + 1),
    "numbered": lambda x, k: x[:k, 0] * tf.cast(tf.range(tf.size(x[:k, 0])), tf.float32),
}  # fmt: skip
# Bodies of which a row without elements fails, or gives what is not a number.
NOT_OF_EMPTY_ROWS = {
    "one or more", "mean", "argmax", "convolved", "convolved, valid", "gathered", "first", "last",
    "sorted", "sorted down", "median", "largest two", "standard deviation", "logsumexp", "segments",
    "distinct", "mapped items", "scanned items", "folded items", "cross entropy of its classes",
    "pointers",
}  # fmt: skip
OF_EMPTY_ROWS = {k: body for k, body in BODIES.items() if k not in NOT_OF_EMPTY_ROWS}
LOOPED = ("jacobian", "soft cross entropy")  # what is made of shapes that differ
# Under XLA the padded form alone; results must have one shape.
UNDER_XLA = [
    "sum", "sum of axis 0", "kept", "mean", "max", "min", "all", "product", "gram",
    "einsum over rows", "argmax", "number", "summed by segments", "largest by segments",
    "scattered", "into a tensor", "cross entropy of its classes",
]  # fmt: skip
LOOPING = ["unknown n", "one row", "no rows", "around", "inside"]
TOLERANCES = {"tolerance": (1e-4, 1e-5), "slopes": (1e-3, 1e-4), "eager": True, "by": (W, V)}

test_table_of_rules = table_of(
    BODIES, X, K, ways=["eager", *LOOPING, "compiled", "compiled around"],
    only={"compiled": UNDER_XLA, "compiled around": UNDER_XLA},
    looped={"eager": LOOPED, **dict.fromkeys(LOOPING, BODIES)},
    specs=(tf.TensorSpec([None, None, D]), tf.TensorSpec([None], tf.int32)), **TOLERANCES,
)  # fmt: skip
test_table_of_empty_rows = table_of(
    OF_EMPTY_ROWS, X, WITH_EMPTY, ways=["eager", "around"], looped=["eager", "around"], **TOLERANCES
)


def inside_of(where, body):
    """A branch, a loop or a map in the body."""

    def one(x, k):
        return tf.reduce_sum(tf.cast(body(x, k), tf.float32))

    def loop(x, k):
        r, step = one(x, k), tf.constant(0)
        return tf.while_loop(lambda i, t: i < k, lambda i, t: (i + 1, t + r), [step, 0.0])[1]

    return {
        "branch": lambda x, k: tf.cond(k > 2, lambda: one(x, k), lambda: 0.0),
        "loop": loop,
        "map": lambda x, k: tf.reduce_sum(
            tf_pfor.vectorized_map(lambda r: one(r, k), tf.stack([x, -x]), warn=False)
        ),
    }[where]


test_table_of_control_flow = table_of(
    {
        f"{name} in a {where}": inside_of(where, BODIES[name])
        for name in ("layers", "attention", "joined", "columns", "mask", "outer")
        for where in ("branch", "loop", "map")
    },
    X, K, ways=["eager"], looped=["eager"], tolerance=(1e-3, 1e-4), eager=True,
)  # fmt: skip

# The map fails where a row fails, with the line.
test_errors = errors_of(
    {
        "sizes that do not fit": (
            lambda x, k: x[:k] * X[1][: k - 1], (X, K), r"test_rules.py:\d+.*differ in some"),
        "a slice that reaches out": (
            lambda x, k: tf.slice(x, [k, 0], [k, D]), (X, K), r"test_rules.py:\d+.*reaches out"),
        "range down": lambda i: tf.range(i - 2),
        "range to what is before": lambda i: tf.range(5, i),
        "range of floats": lambda i: tf.range(0.0, tf.cast(i, tf.float32) - 2.0),
        "segments": lambda i: tf.math.segment_sum(tf.ones([3]), tf.stack([2 - i, 3, 4])),
        "reshaped": lambda i: tf.reshape(tf.range(2 * i), [3]),
        "reshaped to its own": lambda i: tf.reshape(tf.range(i), [i // 2, 2]),
        "reshaped with a rest": lambda i: tf.reshape(tf.range(i + 1), [-1, 2]),
        "multiples": lambda i: tf.tile(tf.ones([2]), [i - 1]),
        "label that is no class": lambda i: tf.nn.sparse_softmax_cross_entropy_with_logits(
            2, tf.ones([4])[: i + 1]),
    },
    tf.range(4), match=r"test_rules.py:\d+",
)  # fmt: skip


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


@pytest.mark.parametrize("jit", [False, True])
def test_nothing_comes_back_from_the_padding(jit):
    """Divided by what is zero there, or its logarithm: with a finite gradient of what is shared."""
    x, b = tf.abs(X) + 1.0, tf.abs(X[:, 0]) + 1.0

    def one(x, k, b):
        outer = b[None, :1] / x[:k, None, 0] + tf.math.log(x[None, :k, 1]) / b[0]
        return tf.reduce_sum(outer) + tf.reduce_sum(b / x[:k])

    @tf.function(jit_compile=jit)
    def run():
        return value_and_gradient(lambda: mapped(one, x, K, b), [x, b])

    rows = lambda: tf.stack([one(*row) for row in zip(tf.unstack(x), K, tf.unstack(b))])  # noqa: E731
    assert_close(run(), value_and_gradient(rows, [x, b]), rtol=1e-3, atol=1e-4)


def of_complex(product):
    """A product may transpose, or transpose and conjugate."""

    def body(real, imaginary):
        made = product(tf.complex(real, imaginary))
        return tf.math.real(made), tf.math.imag(made)

    return body


COMPLEX = tf.complex(X[0], tf.sin(3.0 * X[0]))
PRODUCTS = {
    "transpose_a": lambda z: tf.matmul(z, z, transpose_a=True),
    "transpose_b": lambda z: tf.matmul(z, z, transpose_b=True),
    "adjoint_a": lambda z: tf.matmul(z, z, adjoint_a=True),
    "adjoint_b": lambda z: tf.matmul(z, z, adjoint_b=True),
    "by a shared matrix": lambda z: tf.matmul(z, COMPLEX, adjoint_b=True),
    "by a shared one turned": lambda z: tf.matmul(z, COMPLEX, transpose_b=True),
    "of a batch": lambda z: tf.matmul(z[None], z[None], transpose_b=True)[0],
    "by a vector": lambda z: tf.linalg.matvec(z, z[:, 0], adjoint_a=True),
    "adjoint": lambda z: tf.linalg.adjoint(z),
    "adjoint of a square": lambda z: tf.linalg.adjoint(tf.matmul(z, z, transpose_b=True)),
    "conjugate behind": lambda z: tf.transpose(z[..., None], [0, 2, 1], conjugate=True),
}
test_table_of_complex_products = table_of(
    {name: of_complex(product) for name, product in PRODUCTS.items()},
    *(tf.RaggedTensor.from_tensor(x, lengths=K) for x in (X, tf.sin(3.0 * X))),
    ways=["eager", "around"], tolerance=(1e-4, 1e-5), slopes=(1e-3, 1e-4),
)  # fmt: skip

# Sizes that are not known in front; the rows share them, as numbers that are known when it runs.
test_table_of_unknown_sizes = table_of(
    {
        "columns": lambda x, k: x[:, :k] + tf.sin(x[:, :k]),
        "joined": lambda x, k: tf.concat([x[:, :k], x[:, :k] * 2.0], 0),
        "stacked": lambda x, k: tf.stack([x[:, :k], x[:, :k] * 2.0], 0),
        "joined along what differs": lambda x, k: tf.concat([x[:, :k], x[:, 1 : k + 1]], 1),
        "added": lambda x, k: tf.add_n([x[:, :k], x[:, :k] * 2.0]),
        "two cuts": lambda x, k: x[:2, :k] * x[1:3, :k],
        "product": lambda x, k: tf.matmul(x[:, :k], x[:, :k], transpose_b=True),
        "softmax": lambda x, k: tf.nn.softmax(x[:, :k]),
        "transposed": lambda x, k: tf.transpose(x[:, :k]),
        "transposed in front": lambda x, k: tf.transpose(x[:k]),
        "padded by the row": lambda x, k: tf.pad(x[:k], [[0, 0], [k, 0]]),
        "repeated": lambda x, k: tf.tile(x[:k], tf.stack([k + 1, 1])),
        "taken": lambda x, k: tf.slice(x[:, :k], tf.stack([0, 0]), tf.stack([2, k // 2])),
        "by one row": lambda x, k: x[:, :k] * x[:1, :k] - x[0, :k],
        "by a column": lambda x, k: x[:, :k] < x[:, :1],
        "masks": lambda x, k: tf.sequence_mask(tf.cast(x[:, 0] > 0, tf.int32) * k),
        "elements repeated": lambda x, k: tf.repeat(x[0], tf.cast(x[0] > 0, tf.int32) * k),
    },
    tf.transpose(X, [0, 2, 1]), K, ways=["unknown sizes"], tolerance=(1e-4, 1e-5),
)  # fmt: skip

# Rows of one length, cut from longer ones: the matrix has that length, which is known.
test_table_of_lengths_that_are_known = table_of(
    {
        "by a matrix": lambda x, k: tf.matmul(x[:, :k], W[:2]),
        "turned": lambda x, k: tf.matmul(W[:2], x[:, :k], transpose_a=True, transpose_b=True),
    },
    X, tf.fill([len(X)], 2), ways=["eager, few rows", "function, few rows", "around"],
)  # fmt: skip
