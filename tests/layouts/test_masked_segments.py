"""Masked elements added up by segments, as gradients of lookups in joined tensors. No loop."""

import numpy as np
import tensorflow as tf

import tf_pfor
from tests.ways import errors_of, slopes_of, table_of

D = tf.float64


def joined(x):
    """Three parts, of which one does not depend on x."""
    return tf.concat([x, 2 * x[:2], tf.ones([3, 2], x.dtype)], 0)


def lookup(x, ids):
    return tf.reduce_sum(tf.gather(joined(x), ids) ** 3)


def joined_twice(x, ids):
    matrix = tf.concat([tf.concat([x, x**3], 0), 2 * x[:2], tf.ones([3, 2], x.dtype)], 0)
    return tf.reduce_sum(tf.gather(matrix, ids) ** 2) + tf.reduce_sum(
        tf.gather(matrix, ids[:2]) ** 3
    )


def in_a_loop(x, ids):
    def body(i, x):
        return i + 1, tf.sin(tf.gather(joined(x), ids[:4] - i % 2)) + x

    return tf.reduce_sum(
        tf.while_loop(lambda i, _: i < ids[4], body, (0, x), maximum_iterations=4)[1] ** 2
    )


def in_a_branch(x, ids):
    return tf.cond(ids[0] > 3, lambda: lookup(x, ids), lambda: tf.reduce_sum(x))


def in_a_loop_of_a_branch(x, ids):
    def body(i, x):
        y = tf.cond(
            tf.equal(ids[i], 3), lambda: x, lambda: tf.sin(tf.gather(joined(x), ids[:4])) + x
        )
        return i + 1, y

    return tf.reduce_sum(
        tf.while_loop(lambda i, _: i < ids[4], body, (0, x), maximum_iterations=4)[1] ** 2
    )


def vectors(x, ids):
    x = x[:, 0]
    return tf.reduce_sum(tf.gather(tf.concat([x, x**2], 0), ids) ** 2)


def of_long_ids(x, ids):
    return lookup(x, tf.cast(ids, tf.int64))


def matrix_of_ids(x, ids):
    return lookup(x, tf.reshape(tf.concat([ids, ids[:1]], 0), [2, 3]))


LOOKUPS = [
    lookup, joined_twice, in_a_loop, in_a_branch, in_a_loop_of_a_branch, vectors, of_long_ids,
    matrix_of_ids,
]  # fmt: skip


def data(n, count=5):
    rng = np.random.default_rng(n)
    ids = rng.integers(1, 5, size=[n, count]).astype(np.int32)
    return tf.constant(rng.normal(size=[n, 4, 2])), tf.constant(ids)


def gradient(fn):
    return slopes_of(fn, (0,))


def not_selected(x, ids):
    """A part of inf and NaN that no id names, and gradients around of it, do not matter."""
    matrix = tf.concat([x, tf.math.log(-tf.abs(x))], 0)
    return tf.reduce_sum(tf.gather(matrix, tf.minimum(ids, 3)) ** 2)


SECOND = {
    f"second of {fn.__name__}": gradient(gradient(fn))
    for fn in (*LOOKUPS, not_selected)
    if "in_a_loop" not in fn.__name__
}
SLOPES = {fn.__name__: gradient(fn) for fn in LOOKUPS}
FEW = "unknown sizes, few rows"
test_table_of_lookups = table_of(
    {**SLOPES, "no ids": (SLOPES["lookup"], data(3, 0)), **SECOND}, *data(6),
    ways=["function", "compiled", FEW, "eager", "around", "two maps"],
    only={
        "compiled": SLOPES,
        FEW: ["lookup", "joined_twice", "second of joined_twice"],
        "eager": ["lookup"],
        "around": ["lookup"],
        "two maps": ["lookup"],
    },
    specs=(tf.TensorSpec([None, None, 2], D), tf.TensorSpec([None, None], tf.int32)),
    tolerance=(1e-9, 1e-10),
)  # fmt: skip
test_second_gradients_in_loops = errors_of(
    {fn.__name__: gradient(gradient(fn)) for fn in (in_a_loop, in_a_loop_of_a_branch)},
    *data(6), way="function", error=tf_pfor.NotVectorizableError,
    match="from trip to trip|different shapes is kept",
)  # fmt: skip


def selected_by_hand(x, ids):
    ids = ids[:4]
    mask = ids > 2
    segments = tf.boolean_mask(ids, mask) - 1
    kept = tf.boolean_mask(x[:, 0], mask) - 1.0
    most = tf.math.unsorted_segment_max(tf.boolean_mask(x, mask), segments, 5)
    return tf.math.unsorted_segment_sum(kept, segments, 4), most[2:4]


def places_in_a_table(x, ids):
    """Places of a selection of a selection name slices of something else."""
    kept = tf.boolean_mask(ids, ids > 1)
    places = tf.squeeze(tf.where(kept > 2), axis=[1])
    found = tf.gather(tf.range(10.0, dtype=D) ** 2, places)
    return tf.math.unsorted_segment_sum(found, tf.gather(kept, places) % 3, 3)


def segments_by_place(x, ids):
    kept = tf.boolean_mask(ids, ids > 1)
    places = tf.squeeze(tf.where(kept > 2), axis=[1])
    return tf.math.unsorted_segment_sum(tf.cast(tf.gather(kept, places), D), places, 5)


def segments_of_as_many(x, ids):
    """Numbers name segments among those that are selected."""
    mask = ids > 1
    count = tf.size(tf.boolean_mask(ids, mask))
    made = tf.math.unsorted_segment_sum(
        tf.cast(tf.boolean_mask(ids, mask), D), tf.boolean_mask(ids, mask) * 0, count
    )
    return tf.reduce_sum(made * tf.cast(tf.range(count) + 1, D))


def looked_up_by_numbers(x, ids):
    kept = tf.boolean_mask(x[:, 0], ids[:4] > 1)
    found = tf.gather(kept, tf.boolean_mask(ids * 0, ids > 2))
    return tf.math.unsorted_segment_sum(found, tf.boolean_mask(ids, ids > 2) % 3, 3)


def by_a_matrix_of_places(x, ids):
    found = tf.gather(x[:, 0], tf.where(ids[:4] > 1))  # [k, 1]
    return tf.math.unsorted_segment_sum(found[:, 0], tf.boolean_mask(ids[:4], ids[:4] > 1), 5)


@tf.custom_gradient
def halved(x):
    return x * 1.0, lambda dy: dy * 0.5


def through_a_custom_gradient(x, ids):
    mask = ids[:4] > 1
    kept = halved(tf.boolean_mask(x[:, 0], mask))
    return tf.math.unsorted_segment_sum(kept, tf.boolean_mask(ids[:4], mask), 5)


def two_masks(x, ids):
    a, b = tf.boolean_mask(ids, ids > 2), tf.boolean_mask(ids, ids[::-1] > 2)
    return tf.math.unsorted_segment_sum(a, b, 5)


def between_two_selections(x, ids):
    """The second selects what the first was added up to, through an op with its own gradient."""
    mask = ids[:4] > 1
    first = tf.math.unsorted_segment_sum(
        tf.boolean_mask(x[:, 0], mask), tf.boolean_mask(ids[:4], mask), 5
    )
    kept = tf.boolean_mask(halved(first)[:4], mask)
    return tf.math.unsorted_segment_sum(kept, tf.boolean_mask(ids[:4], mask), 5)


def some_selected(x, ids):
    ids = tf.concat([ids[:, :4], tf.fill([6, 1], 4)], 1)
    return x, tf.where(tf.reduce_any(ids[:, :4] > 1, 1)[:, None], ids, 4)


# By the rules for ragged rows: a place among all slices is another number than among those that
# are selected.
OTHERS = [
    places_in_a_table, segments_by_place, segments_of_as_many, looked_up_by_numbers,
    by_a_matrix_of_places, through_a_custom_gradient, two_masks,
]  # fmt: skip
test_table_of_other_uses = table_of(
    [*OTHERS, selected_by_hand, between_two_selections], *some_selected(*data(6)),
    ways=["eager", "around"], only={"around": ["between_two_selections"]}, tolerance=(1e-9, 1e-12),
)  # fmt: skip


def test_a_report():
    report = tf_pfor.explain(lambda r: SLOPES["lookup"](*r), data(3))
    (row,) = [r for r in report.records if r.op_type == "Where"]
    assert (row.outcome.value, row.count) == ("vectorized", 2)
