"""Masked elements added up by segments, as gradients of lookups in joined tensors. No loop."""

import numpy as np
import pytest
import tensorflow as tf

import tf_pfor
from tests.comparisons import compare, gradient_of, mapped

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


def gradient(fn):
    def one(x, ids):
        return tf.convert_to_tensor(gradient_of(lambda: fn(x, ids), x))

    return one


def second(fn):
    return gradient(lambda x, ids: tf.sin(gradient(fn)(x, ids)))


def data(n, count=5):
    rng = np.random.default_rng(n)
    ids = rng.integers(1, 5, size=[n, count]).astype(np.int32)
    return tf.constant(rng.normal(size=[n, 4, 2])), tf.constant(ids)


def one_by_one(fn, x, ids):
    alone = tf.function(fn, autograph=False)
    return np.stack([alone(*row) for row in zip(x, ids)]) if len(x) else np.zeros([0, 4, 2])


def check(fn, x, ids, **options):
    compare(fn, x, ids, function=options, atol=1e-10)


@pytest.mark.parametrize("fn", LOOKUPS)
def test_gradients_of_lookups(fn):
    check(gradient(fn), *data(6))


@pytest.mark.parametrize("fn", LOOKUPS)
def test_second_gradients_of_lookups(fn):
    if "in_a_loop" not in fn.__name__:
        check(second(fn), *data(6))
        return
    why = "from trip to trip|different shapes is kept"
    with pytest.raises(tf_pfor.NotVectorizableError, match=why):
        check(second(fn), *data(6))


@pytest.mark.parametrize("fn", LOOKUPS)
def test_gradients_of_lookups_compiled(fn):
    check(gradient(fn), *data(3), jit_compile=True)


@pytest.mark.parametrize("n", [0, 1])
def test_few_rows(n):
    check(second(joined_twice), *data(n))


def test_no_ids():
    check(gradient(lookup), *data(3, 0))


def test_unknown_sizes():
    specs = [tf.TensorSpec([None, None, 2], D), tf.TensorSpec([None, None], tf.int32)]
    for fn in (gradient(lookup), gradient(joined_twice)):
        check(fn, *data(5), input_signature=specs)


def test_eagerly():
    compare(gradient(lookup), *data(3), atol=0)


def test_tape_around():
    x, ids = data(3)
    with tf.GradientTape() as tape:
        tape.watch(x)
        y = mapped(lambda *r: tf.sin(gradient(lookup)(*r)), x, ids)
    expected = one_by_one(second(lookup), x, ids)
    np.testing.assert_allclose(tape.gradient(y, x), expected, rtol=1e-9, atol=1e-10)


def test_two_maps():
    pairs = [tf.reshape(t, [2, 3, *t.shape[1:]]) for t in data(6)]
    compare(gradient(lookup), *pairs, maps=2, atol=1e-10)


def test_numbers_that_are_not_selected_do_not_matter():
    """A part of inf and NaN that no id names, and gradients around of it."""
    x, ids = data(4)

    def one(x, ids):
        matrix = tf.concat([x, tf.math.log(-tf.abs(x))], 0)
        return tf.reduce_sum(tf.gather(matrix, tf.minimum(ids, 3)) ** 2)

    check(second(one), x, ids)


def test_selected_by_hand():
    def one(x, ids):
        ids = ids[:4]
        mask = ids > 2
        segments = tf.boolean_mask(ids, mask) - 1
        kept = tf.boolean_mask(x[:, 0], mask) - 1.0
        most = tf.math.unsorted_segment_max(tf.boolean_mask(x, mask), segments, 5)
        return tf.math.unsorted_segment_sum(kept, segments, 4), most[2:4]

    compare(one, *data(6), atol=0)


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


OTHERS = [
    places_in_a_table, segments_by_place, segments_of_as_many, looked_up_by_numbers,
    by_a_matrix_of_places, through_a_custom_gradient, two_masks,
]  # fmt: skip


@pytest.mark.parametrize("fn", OTHERS)
def test_other_uses(fn):
    """A place among all slices is another number than among those that are selected.

    By the rules for ragged rows.
    """
    x, ids = data(6)
    ids = tf.concat([ids[:, :4], tf.fill([6, 1], 4)], 1)
    ids = tf.where(tf.reduce_any(ids[:, :4] > 1, 1)[:, None], ids, 4)
    compare(fn, x, ids, atol=0)


def test_custom_gradients_between_two_selections():
    """The second selects what the first was added up to, through an op with its own gradient."""
    x, ids = data(3)

    def one(x, ids):
        mask = ids[:4] > 1
        first = tf.math.unsorted_segment_sum(
            tf.boolean_mask(x[:, 0], mask), tf.boolean_mask(ids[:4], mask), 5
        )
        kept = tf.boolean_mask(halved(first)[:4], mask)
        return tf.math.unsorted_segment_sum(kept, tf.boolean_mask(ids[:4], mask), 5)

    found = gradient_of(lambda: mapped(one, x, ids), x)

    def by_tape(x, ids):
        return gradient_of(lambda: one(x, ids), x)

    expected = np.stack([by_tape(*row) for row in zip(x, ids)])
    np.testing.assert_allclose(found, expected, rtol=1e-9)


def test_a_report():
    report = tf_pfor.explain(lambda r: gradient(lookup)(*r), data(3))
    (row,) = [r for r in report.records if r.op_type == "Where"]
    assert (row.outcome.value, row.count) == ("vectorized", 2)
