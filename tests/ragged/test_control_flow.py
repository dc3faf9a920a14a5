"""Branches and loops that read or return variable-length rows, against a loop over rows."""

import numpy as np
import pytest
import tensorflow as tf

import tf_pfor
from tests.comparisons import assert_rows, mapped, rows_of
from tests.ways import errors_of, table_of

N, T, D = 6, 5, 3
X = tf.constant(np.random.default_rng(0).normal(size=[N, T, D]))
LENGTHS, CHOICES = tf.constant([5, 0, 3, 1, 4, 2]), tf.constant([0, 1, 2, 0, 1, 2])
ZERO = tf.zeros([D], tf.float64)
EXACT = {"tolerance": (1e-7, 0.0), "slopes": (1e-7, 1e-12)}


def in_a_branch(x, k, c):
    y = x[:k]
    return tf.cond(c == 0, lambda: tf.reduce_sum(y, 0), lambda: tf.reduce_sum(tf.sin(y) * 2.0, 0))


def in_one_of_three(x, k, c):
    y = x[:k]
    one = tf.constant(1.0, tf.float64)
    return tf.switch_case(c, [lambda: tf.reduce_sum(y), lambda: tf.reduce_sum(y * y), lambda: one])


def two_of_one_size(x, k, c):
    y = x[:k]
    z = tf.cos(y)
    return tf.cond(c == 0, lambda: tf.reduce_sum(y * z, 0), lambda: tf.reduce_sum(y + z, 0))


def predicate_of_all(x, k, c):
    y = x[:k]
    return tf.cond(tf.size(X) > 3, lambda: tf.reduce_sum(y, 0), lambda: ZERO)


def early_return(x, k, c):
    if k == 0:
        return tf.constant(0.0, tf.float64)
    return tf.reduce_mean(x[:k])


def branch_in_branch(x, k, c):
    y = x[:k]

    def inner():
        return tf.cond(c == 1, lambda: tf.reduce_sum(y, 0), lambda: tf.reduce_sum(-y, 0))

    return tf.cond(k > 1, inner, lambda: ZERO)


def sum_in_a_loop(x, k, c):
    y, s = x[:k], ZERO
    for t in tf.range(c):
        s += tf.reduce_sum(y, 0) * tf.cast(t, tf.float64)
    return s


def element_in_a_loop(x, k, c):
    y, s = x[:k], ZERO
    for t in tf.range(tf.shape(y)[0]):
        s = 0.7 * s + 0.3 * y[t]
    return s


def until_a_bound(x, k, c):
    y, s, t = tf.sin(x[:k]), ZERO, 0
    while t < tf.shape(y)[0] and tf.reduce_sum(s) < 1.0:
        s += y[t] * tf.reduce_sum(y)
        t += 1
    return s


def gathered_in_a_loop(x, k, c):
    y, s = x[:k], ZERO
    for t in tf.range(c + 1):
        if t < k:
            s += tf.gather(y, t)
    return s


BODIES = {
    "in_a_branch": in_a_branch,
    "in_one_of_three": in_one_of_three,
    "two_of_one_size": two_of_one_size,
    "predicate_of_all": predicate_of_all,
    "early_return": early_return,
    "called": lambda x, k, c: tf.function(lambda a: tf.reduce_sum(a, 0))(x[:k]),
    "branch_in_branch": branch_in_branch,
    "sizes": lambda x, k, c: tf.cond(c == 0, lambda: tf.shape(x[:k])[0], lambda: -tf.size(x[:k])),
    "sum_in_a_loop": sum_in_a_loop,
    "element_in_a_loop": element_in_a_loop,
    "until_a_bound": until_a_bound,
    "gathered_in_a_loop": gathered_in_a_loop,
}
NUMBERS = tf.TensorSpec([None], tf.int32)
test_table_of_rows_from_outside = table_of(
    BODIES, X, LENGTHS, CHOICES,
    ways=["eager", "unknown sizes", "two maps", "no rows", "one row", "around", "compiled"],
    # Not compiled: a loop without a bound over the ragged axis, and a gather of it.
    but={"around": ["sizes"], "compiled": ["element_in_a_loop", "gathered_in_a_loop"]},
    specs=(tf.TensorSpec([None, None, D], tf.float64), NUMBERS, NUMBERS), **EXACT,
)  # fmt: skip

GIVEN = [[1.0, 2.0, 4.0], [3.0], [2.0, 2.0]]
SCANS = {
    "last of a scan": lambda x: tf.scan(lambda a, b: 0.7 * a + 0.3 * b, x)[-1],
    "sum of squares": lambda x: tf.foldl(lambda a, b: a + b * b, x),
}
test_table_of_scans = table_of(
    {
        f"{name}, {kind}": (body, tf.ragged.constant(GIVEN, row_splits_dtype=kind))
        for name, body in SCANS.items()
        for kind in ("int32", "int64")
    },
    ways=["eager"],
)

# Branches that return rows of different shapes

ONE_OR_MORE, SOME = tf.constant([5, 1, 3, 4, 2]), tf.constant([0, 1, 2, 5, 1])


def captured_from_outside(x, k, c):
    y = x[:k]
    z = tf.cond(c == 1, lambda: tf.sin(y), lambda: y * y)
    return z + y  # of the same sizes: packed


def by_an_if(x, k, c):
    if c == 1:
        y = x[:2]
    else:
        y = x
    return tf.nn.softmax(y, 0)


def case_of_two_axes(x, k, c):
    y = tf.case([(c == 0, lambda: x[:k, :2]), (c == 1, lambda: x[:2, : k + 1])], lambda: x)
    return tf.reduce_sum(y, 1), y


def one_for_all_rows(x, k, c):
    return tf.cond(tf.size(X) > 3, lambda: x[:k], lambda: x) @ tf.ones([D, 2], X.dtype)


def dense_beside(x, k, c):
    y, s = tf.cond(c == 1, lambda: (x[:k], tf.size(x)), lambda: (x[:1], tf.constant(3)))
    return tf.reduce_sum(y, 0), s


def rows_of_a_branch_in_a_branch(x, k, c):
    def inner():
        return tf.cond(c == 1, lambda: x[:k], lambda: x[:2])

    return tf.cond(k > 2, inner, lambda: x)


def of_static_shapes(x, k, c):
    return tf.cond(k > 2, lambda: x[:2], lambda: x[:3] * 2.0)


def words_or_others(text):
    words = tf.strings.split(text)
    return tf.cond(tf.size(words) > 1, lambda: words[1:], lambda: tf.constant(["x", "y"]))


RETURNED = {
    "of_static_shapes": of_static_shapes,
    "of_own_lengths": lambda x, k, c: tf.cond(c == 1, lambda: tf.sin(x[:k]), lambda: x[1:k]),
    "of_the_same_lengths": lambda x, k, c: tf.cond(c == 0, lambda: x[:k] * 2, lambda: x[:k] + 1),
    "captured_from_outside": captured_from_outside,
    "by_an_if": by_an_if,
    "one_of_three": lambda x, k, c: tf.switch_case(
        c, [lambda: x[:k], lambda: x[:1], lambda: tf.zeros([0, D], X.dtype)]),
    "case_of_two_axes": case_of_two_axes,
    "branch_in_branch": rows_of_a_branch_in_a_branch,
    "one_for_all_rows": one_for_all_rows,
    "dense_beside": dense_beside,
    "texts": (words_or_others, tf.constant(["a b c", "d", "", "e f", "g"])),
    "a map in a map": (
        lambda k, c: mapped(of_static_shapes, X[:2], k, c),
        (tf.reshape(ONE_OR_MORE[:4], [2, 2]), tf.reshape(SOME[:4], [2, 2]))),
}  # fmt: skip
test_table_of_returned_rows = table_of(
    RETURNED, X[:5], ONE_OR_MORE, SOME,
    ways=["eager", "unknown n, few rows", "around", "inside"],
    only={
        "unknown n, few rows": ["of_own_lengths", "by_an_if", "one_for_all_rows"],
        "around": ["of_static_shapes", "captured_from_outside", "case_of_two_axes"],
        # Gradients of variable-length slices that a branch makes in a loop over the rows.
        "inside": ["of_static_shapes", "captured_from_outside", "one_of_three"],
    },
    looped={"inside": RETURNED}, tolerance=(1e-6, 0.0),
    slopes=(1e-7, 1e-12),
)  # fmt: skip
test_refused_under_jit_compile = errors_of(
    {"of_static_shapes": of_static_shapes}, X[:5], ONE_OR_MORE, SOME, way="compiled",
    error=tf_pfor.NotVectorizableError, match="different shapes",
)  # fmt: skip


@pytest.mark.parametrize("cut", [0, 1])
def test_elements_of_an_unknown_size(cut):
    """Sizes that are unknown, but the same in all rows: ragged only where a branch changes them."""

    def body(x, k):
        return tf.cond(k > 2, lambda: x[cut:], lambda: x * 2.0)

    specs = [tf.TensorSpec([None, None, D], X.dtype), NUMBERS]
    found = tf.function(lambda *e: mapped(body, *e), input_signature=specs)(X, LENGTHS)
    assert isinstance(found, tf.RaggedTensor) == bool(cut)
    assert_rows(found, rows_of(body, X, LENGTHS), rtol=1e-7, atol=0)


def test_sizes_of_which_nothing_is_known():
    def body(k, a, b):
        return tf.cond(k > 2, lambda: tf.zeros([a]), lambda: tf.ones([b]))

    def run(a, b):
        return tf_pfor.vectorized_map(lambda k: body(k, a, b), ONE_OR_MORE)

    run = tf.function(run, input_signature=[tf.TensorSpec([], tf.int32)] * 2)
    np.testing.assert_array_equal(run(2, 2)[:, 0], [0, 1, 0, 0, 1])
    with pytest.raises(tf.errors.InvalidArgumentError, match="branches that rows choose between"):
        run(2, 3)


# Loop variables that grow or shrink, and end with a shape that differs between rows

PAIRS, TRIPS = (
    tf.constant(np.random.default_rng(0).normal(size=[4, 5, 2])),
    tf.constant([2, 0, 4, 2]),
)
_SHAPE, _NONE = tf.TensorShape, tf.zeros([0], tf.int32)


def _loop(k, body, start):
    shapes = (_SHAPE([]), _SHAPE([None, *start.shape[1:]]))
    return tf.while_loop(
        lambda t, _: t < k, lambda t, y: (t + 1, body(t, y)), (0, start), shape_invariants=shapes
    )[1]


def appended(x, k):
    return _loop(k, lambda t, y: tf.concat([y, y[-1:] * x[t : t + 1]], 0), x[:1])


def appended_by_autograph(x, k):
    y = tf.zeros([0], tf.float64)
    for t in tf.range(k):
        tf.autograph.experimental.set_loop_options(shape_invariants=[(y, _SHAPE([None]))])
        y = tf.concat([y, x[t, :1]], 0)
    return y


def smoothed(x, k):
    """The variable is ragged from the start, and of the same shape in all trips."""
    y = x[: k + 1]
    for _ in tf.range(3):
        y = tf.tanh(y) * 0.5 + tf.reduce_mean(y, 0)
    return y


def smoothed_for_a_while(x, k):
    y = x[: k + 1]
    for _ in tf.range(k):
        y = tf.tanh(y) * 0.5 + tf.reduce_mean(y, 0)
    return y


def sinkhorn(x, k):
    """A matrix whose size differs per row, until its columns sum to one."""
    p = tf.exp(tf.matmul(x[: k + 1], x[: k + 1], transpose_b=True))
    error = tf.constant(1.0, p.dtype)
    while error > 1e-3:
        p = p / tf.reduce_sum(p, 0, keepdims=True)
        p = p / tf.reduce_sum(p, 1, keepdims=True)
        error = tf.reduce_max(tf.abs(tf.reduce_sum(p, 0) - 1.0))
    return p


def pagerank(x, k):
    """Sizes that no trip changes, but of which that is not known before running."""
    n = k + 1
    links = tf.exp(tf.matmul(x[:n], x[:n], transpose_b=True))
    links = links / tf.reduce_sum(links, 0, keepdims=True)
    rank = tf.ones([n], x.dtype) / tf.cast(n, x.dtype)
    for _ in tf.range(4):
        rank = 0.85 * tf.linalg.matvec(links, rank) + 0.15 / tf.cast(n, x.dtype)
    return rank


def farthest_points(x, k):
    rows = x[: k + 1]
    distance = tf.reduce_sum((rows - rows[0]) ** 2, 1)
    found = tf.TensorArray(tf.int32, 3)
    for t in tf.range(3):
        i = tf.argmax(distance, output_type=tf.int32)
        found = found.write(t, i)
        distance = tf.minimum(distance, tf.reduce_sum((rows - rows[i]) ** 2, 1))
    return tf.gather(rows, found.stack())


def grown_in_a_branch(x, k):
    y = x[: k + 1]
    if k > 1:
        for i in tf.range(k):
            if i % 2 == 0:
                y = y * 0.5 + 1.0
            else:
                y = tf.sin(y)
    return y


def loop_in_a_loop(x, k):
    y = x[: k + 1]
    for i in tf.range(k):
        for _ in tf.range(i):
            y = y * 0.5 + tf.reduce_max(y)
    return tf.reduce_sum(y, 0)


def grown(x, k):
    """Each row begins with a length that differs, and grows by one in each trip."""
    y = x[: k + 1]
    for _ in tf.range(k):
        tf.autograph.experimental.set_loop_options(shape_invariants=[(y, _SHAPE([None, 2]))])
        y = tf.concat([y, y[:1] * 0.5], 0)
    return y


GROWN = {
    "appended": appended,
    # Nothing in it differs between rows, but how long it is.
    "counted": lambda x, k: _loop(k, lambda t, y: tf.concat([y, [t]], 0), _NONE),
    "cut": lambda x, k: _loop(k, lambda t, y: tf.sin(y[1:]), x),
    "appended_by_autograph": appended_by_autograph,
    "total": lambda x, k: tf.reduce_sum(appended(x, k) ** 2, 0),
    # A trip appends in some rows only.
    "appended_by_some": lambda x, k: _loop(
        5, lambda t, y: tf.cond(t < k, lambda: tf.concat([y, [t]], 0), lambda: y), _NONE),
}  # fmt: skip
CARRIED = {
    "smoothed": smoothed,
    "smoothed_for_a_while": smoothed_for_a_while,
    "sinkhorn": sinkhorn,
    "pagerank": pagerank,
    "farthest_points": farthest_points,
    "in_a_branch": grown_in_a_branch,
    "in_a_loop": loop_in_a_loop,
    "grown": grown,
    "total in a loop": lambda x, k: tf.reduce_sum(loop_in_a_loop(x, k)),
}
test_table_of_loop_variables = table_of(
    {**GROWN, **CARRIED}, PAIRS, TRIPS,
    ways=["eager", "unknown n, few rows", "around", "inside", "compact", "mask", "compiled"],
    only={
        "unknown n, few rows": ["appended", "counted"],
        "around": ["appended", "cut", *CARRIED],
        "inside": ["appended", "cut"],
        "compact": ["smoothed", "smoothed_for_a_while"],
        "mask": ["smoothed", "smoothed_for_a_while"],
        "compiled": ["total in a loop"],
    },
    looped=["inside"], **EXACT,
)  # fmt: skip
