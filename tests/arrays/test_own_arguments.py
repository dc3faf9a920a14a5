"""Paddings, multiples, shapes, diagonals and axes that are numbers of the row."""

import numpy as np
import pytest
import tensorflow as tf

from tests.comparisons import mapped, strict_map
from tests.ways import errors_of, table_of

N, T, D = 4, 4, 5
X = tf.random.stateless_normal([N, T, D], [1, 2])
K = tf.constant([2, 3, 0, 1])
LINES = tf.RaggedTensor.from_row_lengths(tf.random.stateless_normal([10], [1, 3]), [3, 4, 2, 1])
SHARED = tf.random.stateless_normal([2, 3], [1, 4])
VALUE = tf.random.stateless_normal([N], [1, 5])


def square(x, k):
    return x[: k + 1, : k + 1]


# name -> (body of the parts of a row, the rows)
BODIES = {
    "behind": (lambda x, k: tf.pad(x, [[0, k], [0, 0]]), (X, K)),
    "around": (lambda x, k: tf.pad(x, [[k, 1], [1, k]]), (X, K)),
    "around, with a value": (lambda x, k: tf.pad(x, [[k, 1], [0, 0]], constant_values=3.0), (X, K)),
    "around, with its value": (
        lambda x, k: tf.pad(x, [[k, 1], [0, k]], constant_values=tf.reduce_max(x)), (X, K)),
    "shared, around": (lambda x, k: tf.pad(SHARED * x[0, 0], [[k, k], [0, 0]]), (X, K)),
    "line with a value": (lambda x: tf.pad(x, [[1, 1]], constant_values=2.0), LINES),
    "line by its number": (lambda x, k: tf.pad(x, [[k, 1]], constant_values=2.0), (LINES, K)),
    "up to one size": (lambda x: tf.pad(x, [[0, 5 - tf.size(x)]], constant_values=-1.0), LINES),
    "squares up to one size": (lambda x, k: tf.pad(square(x, k), [[0, 4 - k], [0, 4 - k]]), (X, K)),
    "square by its number": (lambda x, k: tf.pad(square(x, k), [[0, k], [1, k]]), (X, K)),
    "mirrored": (lambda x, k: tf.pad(x, [[k, 0], [0, 1]], "REFLECT"), (X, K)),
    "mirrored, also the edge": (lambda x, k: tf.pad(x, [[0, 1], [k, k]], "SYMMETRIC"), (X, K)),
    "tiles": (lambda x, k: tf.tile(x, [k, k]), (X, K)),
    "tiles along one axis": (lambda x, k: tf.tile(x, [1, k]), (X, K)),
    "tiles, some as often": (lambda x, k: tf.tile(x, [k, 2]), (X, K)),
    "tiles of a shared tensor": (lambda x, k: tf.tile(SHARED, [k, 1]) * x[0, 0], (X, K)),
    "tiles of a line": (lambda x, k: tf.tile(x, [k]), (LINES, K)),
    "tiles of a square": (lambda x, k: tf.tile(square(x, k), [1, k]), (X, K)),
    "spread": (lambda x, k: tf.broadcast_to(x[0], [k, D]), (X, K)),
    "spread in the middle": (lambda x, k: tf.broadcast_to(x[:, None], [T, k, D]), (X, K)),
    "diagonals": (lambda x, k: tf.linalg.diag_part(x, k=k - 1), (X, K)),
    "a diagonal of squares": (lambda x, k: tf.linalg.diag_part(square(x, k + 1), k=1), (X, K)),
    "slices of two axes": (lambda x, k: tf.slice(x[: k + 1, : k + 1], [k, 0], [1, k]), (X, K)),
    "the rest of cut rows": (lambda x, k: tf.slice(x[: k + 1], [k // 2, 1], [-1, 3]), (X, K)),
    "the first of cut rows": (lambda x, k: tf.slice(x[: k + 1], [0, 0], [1, -1]), (X, K)),
    "set diagonals": (lambda x, k: tf.linalg.set_diag(x[: k + 1], x[0, : k + 1]), (X, K)),
    "set diagonals above": (
        lambda x, k: tf.linalg.set_diag(square(x, k + 1), x[0, : k + 1], k=1), (X, K)),
    "main diagonals": (lambda x, k: tf.linalg.diag_part(x[: k + 1, : 4 - k]), (X, K)),
    "on a diagonal": (
        lambda x, k: tf.linalg.diag(x[0], k=1 - k, padding_value=2.0) * x[0, 0], (X, K)),
    "one hot in front": (lambda x, k: tf.one_hot(tf.range(k), k, axis=0) * x[0, 0], (X, K)),
    "one hot of cut rows in front": (
        lambda x, k: tf.one_hot(tf.argmax(x[:k], 1), D, axis=0) * x[0, 0], (X, K)),
    "sorted by a product": (lambda x, k: tf.linalg.matvec(
        tf.one_hot(tf.argsort(x[0, :k]), tf.size(x[0, :k]), dtype=x.dtype), x[0, :k]), (X, K)),
    "resized to its own size, times the row": (
        lambda x, k: tf.transpose(x[: k + 1]) @ tf.cast(tf.image.resize(
            x[None, ..., None], [tf.shape(x[: k + 1])[0], 3])[0, ..., 0], x.dtype), (X, K)),
    "bands": (lambda x, k: tf.linalg.band_part(x, k, k - 1), (X, K)),
    "bands, if right": (
        lambda x, k: tf.cond(
            k < 3, lambda: tf.linalg.band_part(x, 2 * k, 0), lambda: x), (X, K)),
    "bands of cut rows": (lambda x, k: tf.linalg.band_part(x[: k + 1], 1, 0), (X, K)),
    "sums along its axis": (lambda x, k: tf.reduce_sum(x, axis=k % 2), (X, K)),
    "means along its axis": (lambda x, k: tf.reduce_mean(x, k % 2, keepdims=True), (X, K)),
    "sums so far": (lambda x, k: tf.cumsum(x, axis=-1 - k % 2, reverse=True), (X, K)),
    "sums so far of three axes": (
        lambda x, k: tf.cumsum(x[:, :, None] * [1.0, 2.0], axis=k % 3), (X, K)),
    "largest along its axis": (lambda x, k: tf.reduce_max(x[:, :, None], axis=k % 3), (X, K)),
    "places of the largest": (lambda x, k: tf.argmax(x, axis=k % 2), (X, K)),
}  # fmt: skip
# Not in a map: an inner map loops over them, and has no results of unknown rank that differ.
OF_UNKNOWN_RANK = [
    "diagonals", "largest along its axis", "on a diagonal", "sums along its axis",
]  # fmt: skip
SPREAD = {
    "of one size": lambda x, k: tf.broadcast_to(x[0, :4], [2, k]),
    "of a shared tensor": lambda x, k: tf.broadcast_to(SHARED[0], [2, k - 1]) * x[0, 0],
    "of a cut row": lambda x, k: tf.broadcast_to(x[0, : 6 - k], [2, k - 2]),
}
test_table_of_spread_rows = table_of(
    {
        **{name: (body, (X, tf.constant([4, 4, 4, 4]))) for name, body in SPREAD.items()},
        "of a cut row of one element": (SPREAD["of a cut row"], (X, tf.constant([4, 5, 4, 5]))),
        "if right": (
            lambda x, k: tf.cond(
                k > 3, lambda: SPREAD["of one size"](x, k), lambda: tf.zeros([2, 4])),
            (X, tf.constant([4, 3, 4, 1]))),
        "if a cut row is right": (
            lambda x, k: tf.cond(
                k > 3, lambda: tf.reduce_sum(SPREAD["of a cut row"](x, k)), lambda: 0.0),
            (X, tf.constant([4, 3, 5, 2]))),
    },
    ways=["eager", "unknown n", "no rows", "around", "inside"], looped=["inside"],
    # An operand may not be broadcast in some rows only.
    but={"inside": ["of a cut row of one element", "if a cut row is right"]},
)  # fmt: skip
test_rows_spread_to_a_wrong_size = errors_of(
    SPREAD, X, tf.constant([4, 3, 4, 4]), match=r"test_own_arguments.py:\d+"
)
SITES = ["eager", "unknown n", "one row", "no rows", "chunks", "in a map"]
test_table_of_arguments = table_of(
    BODIES, ways=[*SITES, "around", "inside"],
    only={"inside": [name for name, (_, rows) in BODIES.items() if isinstance(rows, tuple)]},
    but={"in a map": OF_UNKNOWN_RANK}, looped=["in a map", "inside"],
    tolerance=(1e-4, 1e-5), slopes=(1e-3, 1e-4), by=(SHARED,),
)  # fmt: skip

BEYOND = {
    "paddings": lambda x, k: tf.pad(x, [[k - 1, k], [0, k]]),
    "multiples": lambda x, k: tf.tile(x, [k - 1, k]),
    "a shape": lambda x, k: tf.broadcast_to(x[:1], [k - 1, D]),
    "a slice": lambda x, k: tf.slice(x[:k], [0, k], [k, 3]),
    "the first": lambda x, k: tf.slice(x[:k], [0, 0], [1, -1]),
    "a diagonal": lambda x, k: tf.linalg.diag_part(x, k=2 * k),
    "a diagonal that is too long": lambda x, k: tf.linalg.set_diag(square(x, k), x[0, : k + 2]),
    "a band": lambda x, k: tf.linalg.band_part(x, 2 * k, 0),
    "a band above": lambda x, k: tf.linalg.band_part(x, 0, 2 * k),
    "a band of cut rows": lambda x, k: tf.linalg.band_part(x[: k + 1], 2, 0),
    "an axis": lambda x, k: tf.reduce_sum(x, axis=k),
    "mirrored": lambda x, k: tf.pad(x, [[2 * k, 0], [0, 1]], "REFLECT"),
}
test_what_a_row_refuses_is_an_error = errors_of(BEYOND, X, K, match=r"test_own_arguments.py:\d+")

SHARED_BY_ALL = {
    "a number": lambda k: tf.broadcast_to(7, [k]),
    "a row": lambda k: tf.broadcast_to([[0, 5]], [k, 2]),
    "a matrix": lambda k: tf.broadcast_to(tf.constant([[0, 1], [2, 3]]), tf.stack([k, 2, 2])),
    "tiled": lambda k: tf.tile([[0, 5]], [k, 1]),
    "paddings": lambda k: tf.stack([[0, k], [0, 0]]),
}
NUMBERS = tf.RaggedTensor.from_row_lengths(tf.range(9) % 3, [1, 5, 3])
EYE = tf.eye(2)[None]
MATRICES = (tf.reshape(tf.range(1.0, 25.0), [4, 3, 2]), K)
WORDS = tf.constant([["a", "b"], ["c", "d"], ["e", "f"], ["g", "h"]])
test_table_of_others = table_of(
    {
        **{name: (body, K) for name, body in SHARED_BY_ALL.items()},
        **{
            f"{name}, of several numbers": (lambda ks, f=f: strict_map(f, ks), NUMBERS)
            for name, f in SHARED_BY_ALL.items()
        },
        # Spectra of as many matrices as the row says.
        "eigenvalues": (lambda x, k: tf.linalg.eigvalsh(x[:k, :1, None] * EYE), MATRICES),
        "singular values": (
            lambda x, k: tf.linalg.svd(x[:k, :1, None] * EYE, compute_uv=False), MATRICES),
        "ranks": (lambda x, k: tf.linalg.matrix_rank(x[:k, :1, None] * EYE), MATRICES),
        "texts": (lambda x, k: tf.pad(x, [[k, 0]], constant_values="-"), (WORDS, K)),
    },
    ways=["eager"],
)  # fmt: skip


def test_operands_that_grow_in_some_rows_only():
    """The gradient of a sum adds up the same axes in all rows."""

    def axes(one, other):
        return tf.raw_ops.BroadcastGradientArgs(s0=one, s1=other).r0

    wide, narrow = tf.constant([[2, 3], [2, 3]]), tf.constant([[1, 3], [1, 3]])
    np.testing.assert_array_equal(mapped(axes, narrow, wide), [[0], [0]])
    with pytest.raises(tf.errors.InvalidArgumentError, match="broadcast in some iterations only"):
        mapped(axes, tf.constant([[1, 3], [2, 3]]), wide)


@pytest.mark.parametrize("axis", [-2, -1, 0, 1])
def test_axes_that_all_rows_share_but_nobody_knows(axis):
    """An input of the function around the map: known only when it runs."""

    def body(x, at):
        joined = tf.raw_ops.Concat(concat_dim=at, values=[x, -x])
        return tf.roll(x, 3, at), joined, tf.reverse(x, at[None]), tf.cumsum(x, at)

    @tf.function
    def run(at):
        return strict_map(lambda x: body(x, at), X)

    for found, *rows in zip(run(tf.constant(axis)), *(body(x, tf.constant(axis)) for x in X)):
        np.testing.assert_allclose(found, tf.stack(rows), 1e-6)
