"""Labels and other integers of variable-length rows: equality, means, the largest."""

import numpy as np
import pytest
import tensorflow as tf

import tf_pfor
from tests.ways import errors_of, table_of

LENGTHS = [2, 0, 4, 1]
SITES = [
    "eager, few rows",
    "function, few rows",
    "unknown n, few rows",
    "vmap",
    "in a map",
    "each twice",
]


def rows(values, lengths=LENGTHS):
    return tf.RaggedTensor.from_row_lengths(tf.convert_to_tensor(values), lengths)


_RANDOM = np.random.default_rng(0)
LABELS = rows(_RANDOM.integers(0, 2, [7]))
OTHERS = rows(_RANDOM.integers(0, 2, [7]))
ONE_EACH = rows(_RANDOM.integers(0, 2, [4]), [1, 1, 1, 1])
SCORES = rows(_RANDOM.normal(size=[7, 3]).astype(np.float32))
WIDE, OF_WIDE = rows(_RANDOM.integers(0, 2, [7, 3])), rows(_RANDOM.integers(0, 2, [7, 1]))
TEXTS, OTHER_TEXTS = rows(list("abcabca")), rows(list("abbabcb"))


def accuracy(scores, labels):
    return tf.math.reduce_mean(tf.cast(tf.argmax(scores, 1) == labels, tf.float32))


def loss(scores, labels):
    return tf.reduce_sum(tf.where(labels != tf.ones_like(labels), scores[:, 0], 0.0) ** 2)


def guarded(a, b):
    """Only rows of one size are compared."""
    return tf.cond(
        tf.size(a) == tf.size(b), lambda: tf.reduce_sum(tf.cast(a == b, tf.int32)), lambda: -1
    )


# What is reduced at once may be of rows that do not fit: as they are, twice as long, or shorter.
UNEVEN = rows([1, 0, 1, 1, 1, 0, 0, 1], [2, 3, 2, 1])
EVEN = rows([1, 0, 1, 1, 0, 0, 1], [2, 1, 4, 0])
OF_WHOLE_ROWS = {
    "all": lambda a, b: tf.reduce_all(a == b),
    "any": lambda a, b: tf.reduce_any(a != b),
    "not": lambda a, b: tf.reduce_all(tf.logical_not(a == b)),
    "counted": lambda a, b: tf.reduce_sum(tf.cast(a == b, tf.int32)),
    "errors": lambda a, b: tf.reduce_sum(tf.cast(a != b, tf.float32)),
    "rate": lambda a, b: tf.reduce_mean(tf.cast(a == b, tf.float32)),
}
DENSE = tf.constant(_RANDOM.integers(0, 2, [4, 5]))
OWN = tf.constant([1, 0, 3, 1])
EQUAL = {
    "equal": (lambda a, b: a == b, (LABELS, OTHERS)),
    "not equal": (lambda a, b: a != b, (LABELS, OTHERS)),
    "cut alike": (
        lambda a, k: tf.reduce_sum(tf.cast(a[:k] == a[::-1][:k], tf.int32)),
        (DENSE, OWN),
    ),
    "one of each": (lambda a, b: a == b, (LABELS, ONE_EACH)),
    "rows of vectors": (lambda a, b: a == b, (WIDE, WIDE + 0)),
    "by a column": (lambda a, b: a != b, (WIDE, OF_WIDE)),
    "texts": (lambda a, b: a == b, (TEXTS, OTHER_TEXTS)),
    "pairs": (lambda a, b: a[:, None] == b[None], (LABELS, OTHERS)),
    **{f"{k} of rows": (body, (EVEN, UNEVEN)) for k, body in OF_WHOLE_ROWS.items()},
    "all of a slice": (lambda a, k: tf.reduce_all(a[:k] == a[-2:]), (DENSE, OWN)),
    "all of matrices": (
        lambda a, k: tf.reduce_all(a[:k, None] == tf.stack([a[:2], a[3:]], 1)),
        (DENSE, OWN),
    ),
    "accuracy": (accuracy, (SCORES[2:], LABELS[2:])),
    "a loss": (loss, (SCORES, LABELS)),
    "sizes asked for": (guarded, (LABELS, rows(_RANDOM.integers(0, 2, [8]), [2, 3, 2, 1]))),
}
test_table_of_equal_labels = table_of(
    EQUAL, ways=[*SITES, "compiled", "around", "inside"],
    only={"compiled": ["cut alike"], "around": ["a loss"], "inside": ["a loss"]},
    but={"each twice": [f"{k} of rows" for k in OF_WHOLE_ROWS]},  # == of stacked rows is an error
    eager=True,  # the kernel's one False is no row of unknown length, for tf.function
)  # fmt: skip

test_errors_of_equal_labels = errors_of(
    {
        "equal": lambda a, b: a == b,
        "not equal": lambda a, b: a != b,
        "kept": lambda a, b: tf.reduce_all(a == b, 0, keepdims=True),
        "two readers": lambda a, b: (tf.reduce_all(a == b), tf.cast(a == b, tf.int32)),
    },
    EVEN, UNEVEN,
    match=r"test_labels.py:\d+\): the sizes .* one False, and != one True. Reduce it by",
)  # fmt: skip


def test_what_never_fits_is_one_false_of_each_row():
    body = lambda a: tf.ensure_shape(tf.stack([a, a], 1) == tf.stack([a, a, a], 1), [])  # noqa: E731
    with pytest.warns(tf_pfor.FallbackWarning, match="shapes that do not fit"):
        found = tf_pfor.vectorized_map(body, LABELS)
    np.testing.assert_array_equal(found, [False] * 4)


INTEGERS = [tf.int8, tf.int16, tf.int32, tf.int64, tf.uint8, tf.uint16, tf.uint32, tf.uint64]
_FEW = [[-3, -4], [], [7, -8, -2, 0], [-5]]


def integers(dtype, cells=()):
    """Rows of the largest numbers, whose sums overflow, of others, and an empty one."""
    few = [[abs(x) if dtype.is_unsigned else x for x in row] for row in _FEW]
    made = [*few, [dtype.max] * 3, [dtype.max] * 5, [dtype.min] * 3, [1] * 300]
    flat = np.array([x for row in made for x in row], dtype.as_numpy_dtype)
    flat = np.broadcast_to(flat.reshape([-1, *[1] * len(cells)]), [len(flat), *cells])
    return rows(flat, [len(row) for row in made])


CROP = tf.constant([[3, 2], [0, 1], [4, 4], [2, 0]])
PIXELS = tf.constant(_RANDOM.integers(0, 256, [4, 4, 4, 3]), tf.uint8)
MEANS = {
    **{f"{t.name}": (tf.reduce_mean, integers(t)) for t in INTEGERS},
    **{
        f"{t.name}, axes {axes}": (
            lambda x, axes=axes: tf.reduce_mean(x, axes, keepdims=True), integers(t, [2, 3]))
        for t in (tf.int8, tf.int64, tf.uint64)
        for axes in ([0], [0, 1], [0, 2], [0, 1, 2], [1])
    },
    **{
        f"pixels, axes {axes}": (
            lambda x, s, axes=axes: tf.reduce_mean(x[: s[0], : s[1]], axes), (PIXELS, CROP))
        for axes in ([0], [1], [0, 1], [0, 1, 2], [2])
    },
    "floats": (lambda x: tf.reduce_mean(tf.pad(x, [[0, 1], [0, 0]]), [0, 1]), SCORES),
    "complex": (tf.reduce_mean, rows(tf.complex([1.0, 2, 3, 4, 5, 6, 7], [2.0, 1, 5, 3, 2, 1, 7]))),
}  # fmt: skip
OF_ONE_SHAPE = [f"pixels, axes {axes}" for axes in ([0, 1], [0, 1, 2])]
test_table_of_means = table_of(
    MEANS, ways=[*SITES, "compiled", "around", "inside"],
    only={"compiled": OF_ONE_SHAPE, "around": ["floats"], "inside": ["floats"]},
)  # fmt: skip


WITH_NUMBERS = {
    "its length": lambda x: tf.concat([x[1:], [tf.size(x, x.dtype)]], 0),
    "both ends": lambda x: tf.concat([[tf.size(x, x.dtype)], x, [7]], 0),
    "its shape": lambda x: tf.concat([tf.shape(x, x.dtype), x], 0),
    "its sum": lambda x: tf.concat([tf.shape(x, x.dtype), [tf.reduce_sum(x)]], 0),
    "its places": lambda x: tf.concat([x, tf.range(tf.size(x, x.dtype)), tf.shape(x, x.dtype)], 0),
}
test_table_of_numbers_beside_rows = table_of(
    WITH_NUMBERS, LABELS, ways=["eager, few rows", "function, few rows", "in a map"]
)


IN_TOP = {
    "targets": (
        lambda s, t: tf.math.in_top_k(t, s, 2),
        (SCORES, rows(tf.constant([0, 2, 3, 1, -1, 2, 0])))),
    "own classes": (
        lambda s, t: tf.math.in_top_k(t, tf.stack([s[:, 0], -s[:, 0]]), 1),
        (SCORES, tf.constant([[0, 1], [0, 0], [3, 4], [0, -1]]))),
    "own targets and classes": (
        lambda s, t: tf.math.in_top_k(t, tf.cos(tf.cast(t, tf.float32))[:, None] * s[:, 0], 2),
        (rows(SCORES.flat_values, [3, 2, 2, 0]), rows([0, 1, 2, 1, 0, 1, 2]))),
    "infinite": (
        lambda s: tf.math.in_top_k([0], s[None], 1),
        rows(tf.constant([1.0, -np.inf, -3e38, -3e38, np.nan, 1.0, -3e38]), [2, 0, 3, 2])),
}  # fmt: skip
test_table_of_in_top_k = table_of(
    IN_TOP, ways=["eager, few rows", "function, few rows", "in a map"]
)


REVERSED = {
    "all": lambda x, k: tf.reverse_sequence(x[None], [tf.shape(x)[0]], 1)[0] * x,
    "some": lambda x, k: tf.reverse_sequence(x[None], k[None], 1)[0] * x,
    "batches": lambda x, k: tf.reverse_sequence(x, tf.ones_like(x[:, 0], tf.int32) * 2, 1) * x,
    "batches behind": lambda x, k: tf.reverse_sequence(x, [k, 0, k], 0, 1) * x,
    "own batches": lambda x, k: tf.reverse_sequence(x, tf.range(tf.shape(x)[0]) % 4, 1) * x,
}  # fmt: skip
test_table_of_reversed_sequences = table_of(
    REVERSED, SCORES, OWN,
    ways=["eager, few rows", "function, few rows", "in a map", "around", "inside"],
    looped={"in a map": ["batches"]},  # of tf.fill, which loops
)  # fmt: skip
test_errors_of_reversed_sequences = errors_of(
    {"some": REVERSED["some"], "batches behind": REVERSED["batches behind"]},
    SCORES, OWN + 1, match="more is reversed than there is",
)  # fmt: skip


def test_reasons_in_a_map_of_a_map_do_not_speak_of_jit_compile():
    pixels, sizes = tf.range(24, dtype=tf.float32), tf.constant([2, 3, 1])

    def inner(x, k):
        shuffled = tf.random.experimental.stateless_shuffle(x[:k], [1, 2])
        return tf.reduce_sum(tf.reshape(x[:k], [-1])), tf.reduce_sum(shuffled)

    def outer(shift):
        return tf_pfor.vectorized_map(lambda row: inner(*row), (CUBE + shift, sizes))

    CUBE = tf.reshape(pixels, [3, 4, 2])
    with pytest.warns(tf_pfor.FallbackWarning) as found:
        tf_pfor.vectorized_map(outer, tf.range(2.0))
    texts = [str(w.message) for w in found]
    assert any("in a map of a map" in text for text in texts)
    assert not any("jit_compile" in text for text in texts)
