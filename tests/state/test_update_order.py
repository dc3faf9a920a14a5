"""Updates to which only the order of the loop gives a meaning: they end as a loop leaves them."""

import numpy as np
import pytest
import tensorflow as tf

import tf_pfor
from tests.comparisons import strict_map

NUMBER, TABLE = tf.Variable(0.0), tf.Variable(tf.zeros([3]))


@tf.function
def in_branches(x):
    if x > 0.0:
        NUMBER.assign(7.0)
    else:
        NUMBER.assign(-7.0)
    return x


@tf.function
def in_three_branches(x):
    if x < 0.0:
        NUMBER.assign(0.0)
    elif x > 3.0:
        NUMBER.assign(1.0)
    else:
        NUMBER.assign(2.0)
    return x


@tf.function
def in_trips(x):
    for i in tf.range(tf.cast(x, tf.int32)):
        NUMBER.assign(tf.cast(i, tf.float32))
    return x


@tf.function
def part_in_trips(x):
    i = 0.0
    while i < x:
        TABLE[0].assign(i)
        i += 1.0
    return i


@tf.function
def sum_or_reset(x):
    if x > 0.0:
        NUMBER.assign_add(x)
    else:
        NUMBER.assign(0.0)
    return x


def reset_and_sum(x):
    NUMBER.assign(0.0)
    NUMBER.assign_add(x)
    return NUMBER.read_value()


def sum_and_reset(x):
    NUMBER.assign_add(x)
    found = NUMBER.read_value()
    NUMBER.assign(0.0)
    return found


def counts(x):
    TABLE.assign(tf.zeros([3]))
    TABLE.scatter_add(tf.IndexedSlices(1.0, tf.cast(tf.abs(x), tf.int32) % 3))
    return TABLE.read_value()


_place = lambda x: tf.cast(tf.abs(x), tf.int32) % 2


def reset_and_element(x):
    TABLE.assign(tf.ones([3]))
    TABLE[_place(x)].assign(2.0)
    return x


def elements_side_by_side(x):
    TABLE.scatter_update(tf.IndexedSlices(1.0, _place(x)))
    TABLE.scatter_update(tf.IndexedSlices(2.0, _place(x) + 1))
    return x


@tf.function
def until(x):
    NUMBER.assign(0.0)
    while x > NUMBER:
        NUMBER.assign_add(1.0)
    return NUMBER.read_value()


@pytest.mark.filterwarnings("ignore::tf_pfor.FallbackWarning")
@pytest.mark.parametrize(
    "body",
    [
        in_branches, in_three_branches, in_trips, part_in_trips, sum_or_reset, reset_and_sum,
        sum_and_reset, counts, reset_and_element, elements_side_by_side, until,
    ],
    ids=lambda f: f.__name__ if hasattr(f, "__name__") else f.python_function.__name__,
)  # fmt: skip
@pytest.mark.parametrize("x", [[1.0, -1.0, 2.0, 5.0], [5.0, 2.0, -3.0], [4.0]])
def test_final_values(body, x):
    x, found = tf.constant(x), []
    for run in (lambda: tf.stack([body(a) for a in x]), lambda: tf_pfor.vectorized_map(body, x)):
        NUMBER.assign(0.0)
        TABLE.assign(tf.zeros([3]))
        found.append([np.asarray(t) for t in (run(), NUMBER, TABLE)])
    for expected, own in zip(*found):
        np.testing.assert_allclose(own, expected)


def test_one_value_in_a_branch_or_in_all_trips_is_vectorized():
    @tf.function
    def body(x):
        if x > 0.0:
            NUMBER.assign(1.0)
        for _ in tf.range(2):
            TABLE[1].assign(3.0)
        return x

    def of_fixed_elements(x):
        TABLE[0].assign(1.0)
        TABLE[2].assign(2.0)
        return x

    NUMBER.assign(0.0)
    TABLE.assign(tf.zeros([3]))
    strict_map(body, tf.constant([-1.0, 1.0, 0.5]))
    assert NUMBER.numpy() == 1.0
    strict_map(of_fixed_elements, tf.constant([-1.0, 1.0]))
    assert TABLE.numpy().tolist() == [1.0, 3.0, 2.0]


# -- Sums in branches, compiled: only the rows that take a branch count ---------------------------


def _clipped(n, _, __, r):
    with tf.GradientTape() as tape:
        tape.watch(r)
        value = tf.reduce_sum(r**3)
    slope = tape.gradient(value, r)
    return tf.cond(
        tf.norm(slope) > 1.0,
        lambda: (n.assign_add(1.0), slope / tf.norm(slope))[1],
        lambda: slope,
    )


SUMS_IN_BRANCHES = {
    "count": lambda n, _, k, r: tf.cond(
        tf.norm(r) > 1.2, lambda: (k.assign_add(1), r * 2.0)[1], lambda: r
    ),
    "clipped": _clipped,
    "both sides": lambda n, s, k, r: tf.cond(
        r[0] > 0.0,
        lambda: (n.assign_add(r[1]), s.assign_add(r), r * 3.0)[2],
        lambda: (k.assign_sub(tf.cast(r[1] * 10.0, tf.int32)), n.assign_sub(0.5), -r)[2],
    ),
    "branch in a branch": lambda n, _, k, r: tf.cond(
        r[0] > 0.0,
        lambda: tf.cond(
            r[1] > 0.0, lambda: (n.assign_add(r[2]), r)[1], lambda: (k.assign_add(2), -r)[1]
        ),
        lambda: r,
    ),
    "three": lambda n, s, k, r: tf.switch_case(
        tf.cast(tf.abs(r[0]) * 3.0, tf.int32),
        [
            lambda: (n.assign_add(1.0), r)[1],
            lambda: (s.assign_sub(r), r)[1],
            lambda: (k.assign_add(5), -r)[1],
        ],
    ),
    "of what other rows cannot": lambda n, _, __, r: tf.cond(
        r[0] > 0.0, lambda: (n.assign_add(tf.math.log(r[0])), r)[1], lambda: r
    ),
    "in trips": lambda n, _, __, r: tf.while_loop(
        lambda i, y: i < 3,
        lambda i, y: (i + 1, tf.cond(
            r[i] > 0.0, lambda: (n.assign_add(r[i]), y + r[i])[1], lambda: y)),
        [0, 0.0],
    )[1],
}  # fmt: skip
OF_NORMALS = tf.constant(np.random.default_rng(0).normal(size=[6, 3]), tf.float32)


@pytest.mark.parametrize("count", [6, 1, 0, None])
@pytest.mark.parametrize("name", SUMS_IN_BRANCHES)
def test_table_of_sums_in_branches(name, count):
    """Each of them was a sequential loop over the rows."""
    body, rows = SUMS_IN_BRANCHES[name], OF_NORMALS[:count]
    mine, theirs = (
        [tf.Variable(0.0), tf.Variable(tf.zeros([3])), tf.Variable(0)] for _ in range(2)
    )
    run = tf.function(lambda x: strict_map(lambda r: body(*mine, r), x), jit_compile=True)
    if count is None:
        run = run.get_concrete_function(tf.TensorSpec([None, 3]))
    found = run(rows)
    one = tf.function(lambda r: body(*theirs, r), autograph=False)
    for row, expected in zip(found, [one(r) for r in rows], strict=True):
        np.testing.assert_allclose(row, expected, rtol=1e-5)
    for variable, expected in zip(mine, theirs):
        np.testing.assert_allclose(variable, expected, rtol=1e-5, atol=1e-6)


def test_compiled_branch_that_reads_its_sum():
    """It stays a loop in order: a row sees the sums of the rows before it."""
    n = tf.Variable(0.0)
    body = lambda r: tf.cond(r > 0.0, lambda: (n.assign_add(r), r * n)[1], lambda: r)
    with pytest.warns(tf_pfor.FallbackWarning, match="changes state, taken by some rows only"):
        found = tf_pfor.vmap(body, jit_compile=True)(tf.constant([1.0, -1.0, 2.0]))
    np.testing.assert_allclose(found, [1.0, -1.0, 6.0])
    np.testing.assert_allclose(n, 3.0)
