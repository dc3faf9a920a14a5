"""Gradients of loops whose trips read two inputs that are not known to have the same sizes.

A trip checks that the sizes of its rows fit. They follow from sizes that no trip changes, so that
lists keep what is made of both. Rows of one element are repeated.
"""

import numpy as np
import tensorflow as tf

import tf_pfor
from tests.comparisons import mapped
from tests.lists.test_rows_kept_by_trips import S, trips, twice
from tests.ways import errors_of, slopes_of, table_of

X = tf.ragged.constant([[0.5, -0.4, 0.3], [0.7], [0.2, 0.6], [], [0.9, -0.1], [0.1, 0.3]])
Y = tf.ragged.constant([[0.1, 0.8, -0.3], [0.6, 0.2, 0.4], [0.9], [], [0.3, 0.4], [0.2, -0.7]])
COUNTS = tf.constant([2, 1, 3, 1, 0, 2])
NO_TRIP = tf.ragged.constant([[0.1], [0.2], [0.9], [], [0.3, 0.4, 0.5], [0.5]])  # row 4 differs
EQUAL = tf.cos(3.0 * X)
WIDE, OTHER = X.to_tensor(), tf.random.stateless_normal([6, 4], [1, 2])
LENGTHS = tf.constant([3, 1, 2, 0, 2, 1])


def of_labels(x, y, k, t, s):
    """Labels, of which there are as many as logits: neither is repeated."""
    labels, logits = tf.cast(y > 0.3, tf.int32), tf.stack([x * s, x], 1)
    return s - 0.1 * S(tf.nn.sparse_softmax_cross_entropy_with_logits(labels, logits))


def product_before(x, y, k):
    """A variable that begins as a product of both stays of its sizes."""
    h, _ = tf.while_loop(
        lambda h, t: t < k, lambda h, t: (tf.sin(h) * x + y, t + 1), (x * y, 0),
        shape_invariants=(tf.TensorShape([None]), tf.TensorShape([])),
    )  # fmt: skip
    return S(h * h)


def of_slices(d, e, n):
    x, y = d[:n], e[: tf.maximum(n, 0)]
    return trips(lambda x, y, n, t, s: s + S(tf.tanh(x * s) - y))(x, y, n)


def sum_of_both(x, y, k):
    """A row of one element may become larger in its first trip."""
    for _ in tf.range(k):
        x += tf.tanh(x) * y
    return S(x)


def shape_before(x, y, k):
    """A shape that is read before the loop is one in trips of some rows."""
    shape = tf.shape(x)
    return trips(lambda x, y, k, t, s: s + S(tf.tanh(x * tf.fill(shape, s))))(x, y, k)


@tf.autograph.experimental.do_not_convert
def least_squares(t, y, n):
    """A jacobian through steps of which each takes one, until each row is done."""
    t, y = t[:n], y[:n]

    def steps(y):
        rest = lambda p: p[0] * tf.exp(-p[1] * t) - y  # noqa: E731

        def step(i, p, is_done):
            p -= 0.1 * tf.linalg.matvec(tf_pfor.jacrev(rest)(p), rest(p), transpose_a=True)
            return i + 1, p, tf.norm(p) < 0.9

        start = 0, tf.constant([1.0, 1.0]), False
        return tf.while_loop(lambda i, p, d: (i < 4) & ~d, step, start)[1]

    return tf_pfor.jacrev(steps)(y)


BODIES = {
    "difference": trips(lambda x, y, k, t, s: s + S(tf.tanh(x * s) - y)),
    "as many trips": trips(lambda x, y, k, t, s: s + S(tf.sin(x * s) * y), 3),
    "both kept": trips(lambda x, y, k, t, s: s + S(tf.sin((x * s - y) ** 2) * y)),
    "matrix": trips(lambda x, y, k, t, s: s + S(tf.sin(x[:, None] * s) * y[None])),
    "in a branch": trips(
        lambda x, y, k, t, s: tf.cond(s > 0.2, lambda: S(tf.tanh(x * s) - y), lambda: s + 0.1)
    ),
    "in an inner loop": trips(
        lambda x, y, k, t, s: twice(lambda v: S(tf.tanh(x * v) - y) * 0.1)(s)
    ),
    "product before": product_before,
    "labels": (trips(of_labels), (X, EQUAL, COUNTS)),
    "sizes differ without a trip": (
        trips(lambda x, y, k, t, s: s + S(tf.tanh(x * s) - y)), (X, NO_TRIP, COUNTS),
    ),
    "slices": (of_slices, (WIDE, OTHER, LENGTHS)),
    "shape before": shape_before,
    "one shape said": (
        lambda x, y, k: sum_of_both(x, tf.reshape(y, tf.shape(x)), k), (X, EQUAL, COUNTS),
    ),
    "jacobian": (least_squares, (OTHER, tf.sin(OTHER), LENGTHS)),
}  # fmt: skip
test_table_of_two_inputs = table_of(
    BODIES, X, Y, COUNTS,
    ways=["inside, vmap", "inside, few rows", "inside, two maps", "inside, around", "values"],
    only={
        "values": ["difference", "jacobian"],
        "inside, few rows": ["difference", "in a branch"],
        "inside, two maps": ["slices"],
        "inside, around": ["labels"],
    },
    but={"inside, vmap": ["jacobian"]}, tolerance=(1e-5, 1e-6), slopes=(1e-4, 1e-5),
)  # fmt: skip


def test_slopes_of_a_short_loop():
    """Each of two trips adds the product of both inputs, so the slope by one is twice the other."""

    def slope(x, y):
        with tf.GradientTape() as tape:
            tape.watch(x)
            total = tf.while_loop(lambda t, s: t < 2, lambda t, s: (t + 1, s + S(x * y)), (0, 0.0))
        return tape.gradient(total[1], x)

    found = mapped(slope, X, EQUAL)
    np.testing.assert_array_equal(found.row_lengths(), EQUAL.row_lengths())
    np.testing.assert_allclose(found.flat_values, 2.0 * EQUAL.flat_values, rtol=1e-6)


test_sizes_that_do_not_fit_in_a_trip = errors_of(
    {
        "difference": BODIES["difference"],
        "labels": trips(of_labels),
    },
    X, NO_TRIP, tf.ones_like(COUNTS),
    match="the sizes of two inputs along axis 0 differ in some iterations",
)  # fmt: skip


test_the_error_names_a_way_out = errors_of(
    {"sum of both": slopes_of(sum_of_both, None)}, X, EQUAL, COUNTS, way="vmap",
    match=r"Where y has the sizes of h, tf.reshape\(y, tf.shape\(h\)\) says so",
    error=tf_pfor.NotVectorizableError,
)  # fmt: skip
