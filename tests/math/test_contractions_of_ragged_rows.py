"""Products and einsums of variable-length rows: by what all share, and of two sources."""

import numpy as np
import tensorflow as tf

import tf_pfor
from tests.comparisons import gradient_of, value_and_gradient
from tests.ways import errors_of, table_of

LENGTHS = [3, 1, 4]
X = tf.RaggedTensor.from_row_lengths(tf.random.stateless_normal([8, 3], [1, 2]), LENGTHS)
W = tf.random.stateless_normal([3, 2], [3, 4])
WS = tf.stack([W, W * 2.0, W - 1.0])
THREE = tf.constant([3, 3, 3])
RNG = np.random.default_rng(0)


def rows(*inner, lengths=(3, 1, 4, 2)):
    values = tf.constant(RNG.normal(size=[sum(lengths), *inner]))
    return tf.RaggedTensor.from_row_lengths(values, lengths)


def einsum(equation):
    return lambda *row: tf.einsum(equation, *row)


# The width of a part is known in each row when it runs.
OF_PARTS = {
    "part by shared": (lambda x, k: x[:, :k] @ W, (X, THREE)),
    "part by own": (lambda x, k, w: x[:, :k] @ w, (X, THREE, WS)),
    "shared by part": (lambda x, k: tf.matmul(W, x[:, :k], True, True), (X, THREE)),
    "own by part": (lambda x, k, w: tf.matmul(w, x[:, :k], True, True), (X, THREE, WS)),
}
# As many in each row, which is checked.
OF_TWO_SOURCES = {
    "ij,ik->jk": (rows(3), rows(2)),
    "i,ij->j": (rows(), rows(3)),
    "ij,ik,i->kj": (rows(3), rows(2), rows()),
    "ijk,ik->ij": (rows(2, 3), rows(3)),
    "i,i->i": (rows(), rows()),
    "...i,...i->...": (rows(3), rows(3)),
}
test_table_of_parts = table_of(
    OF_PARTS, ways=["eager", "around", "no rows"],
    only={"no rows": ["part by shared", "part by own"]}, by=(W,), tolerance=(1e-5, 0.0),
    slopes=(1e-4, 1e-5),
)  # fmt: skip
test_table_of_products = table_of(
    {
        **{equation: (einsum(equation), given) for equation, given in OF_TWO_SOURCES.items()},
        "batches of matrices": (tf.matmul, (rows(2, 3), rows(3, 2))),
    },
    ways=["eager", "around"], tolerance=(1e-12, 1e-15), slopes=(1e-9, 1e-15),
)  # fmt: skip
test_errors = errors_of(
    {
        **{
            name: (body, (x, tf.constant([3, 2, 3]), *others))
            for name, (body, (x, _, *others)) in OF_PARTS.items()
        },
        "rows of other lengths": (einsum("i,i->"), (rows(), rows(lengths=[3, 2, 3, 2]))),
    },
    match="differ in some iterations",
)

SQUARE = tf.random.stateless_normal([3, 4], [1, 3])
ELLIPSES = {
    "layer": lambda r: tf.einsum("...i,ij->...j", r, SQUARE),
    "norms": lambda r: tf.einsum("...i,...i->...", r, r),
    "in front": lambda r: tf.einsum("i...,j...->ij...", r, SQUARE[:3, :3]),
    "batch of products": lambda r: tf.einsum("...ij,...kj->...ik", r[None], r[None] * 2.0),
    "spread": lambda r: tf.einsum("...i,...j->...ij", r, r[:, :1]),
}
AROUND = [f"unknown n, around{few}" for few in ("", ", one row", ", no rows")]
test_table_of_ellipses = table_of(
    {name: lambda x, k, f=f: f(x[:k]) for name, f in ELLIPSES.items()},
    tf.random.stateless_normal([4, 5, 3], [1, 2]), tf.constant([2, 5, 1, 3]),
    ways=["unknown n, few rows", *AROUND], tolerance=(1e-4, 1e-5), slopes=(1e-4, 1e-4),
)  # fmt: skip


def test_gradients_of_a_force():
    """The gradient of a Slice, behind a concatenation, has a width that no one knows before."""
    z = tf.RaggedTensor.from_row_lengths(tf.constant([0, 1, 2, 3, 1, 2, 0, 1]), LENGTHS)
    table = tf.Variable(tf.random.stateless_normal([4, 5], [3, 4]))
    w = tf.Variable(tf.random.stateless_normal([10, 1], [5, 6]))

    def loss(x, z):
        def energy():
            h = tf.gather(table, z)
            a = tf.nn.softmax(-tf.reduce_sum((x[:, None] - x[None]) ** 2, -1))
            return tf.reduce_sum(tf.tanh(tf.concat([h, a @ h], -1) @ w))

        value, force = value_and_gradient(energy, x)
        return value + tf.reduce_sum(force**2)

    found, losses = tf_pfor.per_example_gradients(loss, [table, w], X, z)  # a warning if it loops
    for i in range(3):
        np.testing.assert_allclose(losses[i], loss(X[i], z[i]), rtol=1e-4)
        wanted = gradient_of(lambda i=i: loss(X[i], z[i]), [table, w])
        for got, want in zip(found, wanted, strict=True):
            np.testing.assert_allclose(got[i], tf.convert_to_tensor(want), rtol=1e-3, atol=1e-4)
