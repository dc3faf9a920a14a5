"""tf.TensorArray in bodies: every method, unrolled and in loops, with gradients in and out."""

import numpy as np
import pytest
import tensorflow as tf

import tf_pfor
from tests.cases import case, grid
from tests.comparisons import compare, gradient_of, mapped, of_unknown_n, strict_map
from tests.samples.lists.tensor_list import count, get, pop, push, put, stacked
from tests.ways import errors_of, table_of

RNG = np.random.default_rng(0)
X = RNG.normal(size=(3, 4, 2)).astype(np.float32)
PLACE = np.array([2, 0, 3], np.int32)


def check(body, *args, xla=False, **options):
    """The vectorized body against a Python loop, n known and unknown."""
    for n in (3, 1, 0):
        given = [tf.constant(a[:n]) for a in args]
        for spec_of in (tf.TensorSpec.from_tensor, of_unknown_n)[: 1 if xla else 2]:
            function = {"input_signature": [*map(spec_of, given)], "jit_compile": xla or None}
            compare(body, *given, function=function, rtol=1e-5, atol=1e-5, **options)


_row = lambda body, args, r: tf.function(body, autograph=True)(*[tf.constant(a[r]) for a in args])


def write_all(x, **options):
    ta = tf.TensorArray(tf.float32, size=4, **options)
    for t in range(4):
        ta = ta.write(t, x[t] * (t + 1.0))
    return ta


@case(check, X)
@pytest.mark.parametrize("xla", [False, True])
def test_write_read_stack_size(x):
    ta = write_all(x)
    return ta.stack(), ta.read(2), ta.size(), ta.identity().stack()


@case(check, X)
@pytest.mark.parametrize("shape", [[2], [None], None])
def test_element_shape(shape, x):
    ta = write_all(x, element_shape=shape, clear_after_read=False)
    return ta.stack(), ta.read(1)


@case(check, X, PLACE)
def test_gather_scatter_unstack(x, i):
    ta = tf.TensorArray(tf.float32, size=4).unstack(x)
    ta = ta.scatter([1, 0], x[2:])
    return ta.gather([3, 0, 0]), ta.read(i), ta.stack()


@case(check, X)
def test_concat_and_split_of_equal_pieces(x):
    ta = tf.TensorArray(tf.float32, size=2, element_shape=[2, 2]).split(x, [2, 2])
    return ta.concat(), ta.read(1)


@case(check, X)
def test_concat_and_split_of_unequal_pieces(x):
    ta = tf.TensorArray(tf.float32, size=2, infer_shape=False).split(x, [1, 3])
    tb = tf.TensorArray(tf.float32, size=2, infer_shape=False)
    tb = tb.write(0, ta.read(1)[:3]).write(1, x[:1])
    return tf.reshape(tb.concat(), [4, 2])


@case(check, X, PLACE)
def test_dynamic_size(x, i):
    ta = tf.TensorArray(tf.float32, size=0, dynamic_size=True, element_shape=[2])
    ta = ta.write(0, x[0]).write(2, x[1])
    late = ta.write(i, x[2])
    return ta.stack(), late.size(), late.read(i)


@case(check, X, PLACE)
@pytest.mark.parametrize("xla", [False, True])
def test_per_row_index(x, i):
    ta = write_all(x, element_shape=[2])
    ta = ta.write(i, -x[0])
    return ta.stack(), ta.read(3 - i)


@case(check, X, PLACE)
def test_per_row_size(x, i):
    ta = tf.TensorArray(tf.float32, size=i + 1, element_shape=[2])
    ta = ta.write(i, x[0]).write(0, x[1])
    return ta.read(i), ta.size()


@case(check, X, PLACE + 1)
def test_scatter_push_and_pop_of_lists_of_different_length(x, i):
    handle = tf.raw_ops.TensorListScatterV2(
        tensor=x[:2], indices=tf.stack([i, 0]), element_shape=[2], num_elements=-1
    )
    pushed = push(handle, 3.0 * x[0])
    popped, last = pop(pushed, [2])
    return last, get(popped, i, [2]), *map(count, (handle, pushed, popped))


def test_stack_of_lists_of_different_length_is_ragged():
    body = lambda x, i: tf.TensorArray(tf.float32, size=i, element_shape=[2]).stack()
    found = mapped(body, X, PLACE)
    np.testing.assert_array_equal(found.row_lengths(), PLACE)
    np.testing.assert_array_equal(found.flat_values, 0.0)


def test_an_invariant_list_stays_unstacked():
    table = tf.constant(RNG.normal(size=(4, 2)).astype(np.float32))
    shapes = []

    @tf.function(autograph=False)
    def run(i):
        ta = tf.TensorArray(tf.float32, size=4).unstack(table)
        out = strict_map(ta.read, i)
        graph = tf.compat.v1.get_default_graph()
        shapes.extend(o.outputs[0].shape for o in graph.get_operations() if "Stack" in o.type)
        return out

    np.testing.assert_allclose(run(tf.constant(PLACE)), table.numpy()[PLACE])
    assert [s.as_list()[1:] for s in shapes] == [[2]]


def written_at_one():
    """A list of four items, and it with a row of X written at place 1, for each row."""
    base = RNG.normal(size=(4, 2)).astype(np.float32)
    expected = np.stack([base] * 3)
    expected[:, 1] = X[:, 0]
    return tf.constant(base), expected


def test_a_captured_list_becomes_stacked():
    base, expected = written_at_one()

    @tf.function(autograph=False)
    def run(x):
        ta = tf.TensorArray(tf.float32, size=4).unstack(base)
        return strict_map(lambda row: ta.write(1, row).stack(), x)

    np.testing.assert_allclose(run(tf.constant(X[:, 0])), expected)


@pytest.mark.parametrize("known", [False, True])
def test_a_list_that_is_an_argument_becomes_stacked(known):
    """No op of the graph made it: it is copied."""
    shape = [2] if known else -1

    @tf.function(autograph=False)
    def outer(base, x):
        handle = tf.raw_ops.TensorListFromTensor(tensor=base, element_shape=shape)

        @tf.function(autograph=False)
        def inner(handle, x):
            return strict_map(lambda row: stacked(put(handle, 1, row), shape=[2]), x)

        return inner(handle, x)

    base, expected = written_at_one()
    np.testing.assert_allclose(outer(base, tf.constant(X[:, 0])), expected)


# Gradients --------------------------------------------------------------------------------------


def _loss(x, i):
    ta = tf.TensorArray(tf.float32, size=5)
    ta = ta.write(0, tf.ones([2]))  # invariant, then stacked
    for t in range(4):
        ta = ta.write(t + 1, tf.tanh(ta.read(t)) * x[t])
    item = ta.read(i)
    return tf.reduce_sum(tf.square(ta.stack())) + tf.reduce_sum(item * item * item)


_gradient = lambda x, i: gradient_of(lambda: _loss(x, i), x)
_second = lambda x, i: gradient_of(lambda: tf.reduce_sum(tf.square(_gradient(x, i))), x)


@grid(body=[_gradient, _second], xla=[False, True])
def test_gradients_inside(body, xla):
    check(body, X, PLACE, xla=xla)


@pytest.mark.parametrize("unknown", [False, True])
def test_gradients_outside(unknown):
    """First and second, with the tape around the vectorized map."""
    spec = tf.TensorSpec([None if unknown else 3, 4, 2])

    @tf.function(input_signature=[spec, tf.TensorSpec([None if unknown else 3], tf.int32)])
    def run(x, i):
        with tf.GradientTape() as second:
            second.watch(x)
            first = gradient_of(lambda: tf_pfor.vectorized_map(lambda a: _loss(*a), (x, i)), x)
            total = tf.reduce_sum(tf.square(first))
        return first, second.gradient(total, x)

    first, second = run(X, PLACE)
    for r in range(3):
        np.testing.assert_allclose(first[r], _row(_gradient, (X, PLACE), r), 1e-4, 1e-5)
        np.testing.assert_allclose(second[r], _row(_second, (X, PLACE), r), 1e-4, 1e-5)


def test_gradient_of_an_invariant_list_read_per_row():
    """Rows that read the same element add up."""

    @tf.function(autograph=False)
    def run(table, i):
        def reads():
            ta = tf.TensorArray(tf.float32, size=4).unstack(table)
            one = lambda k: ta.read(k) + tf.reduce_sum(ta.gather([k, k]))
            return tf_pfor.vectorized_map(one, i)

        return gradient_of(reads, table)

    found = run(tf.constant(X[0]), tf.constant([1, 1, 3]))
    np.testing.assert_allclose(found, [[0, 0], [10, 10], [0, 0], [5, 5]])


# ---------------------------------------------------------------------------
# A size of the row
# ---------------------------------------------------------------------------


def of_own_size(k):
    return tf.TensorArray(tf.float32, k, element_shape=[], clear_after_read=False)


def written_in_trips(x, k, j):
    step = lambda i, a: (i + 1, a.write(i, x[i]))  # noqa: E731
    return tf.while_loop(lambda i, _: i <= j, step, (0, of_own_size(k)))[1].stack()


OWN_SIZES = {
    "write": lambda x, k, j: of_own_size(k).write(2, x[0]).stack(),
    "write at own places": lambda x, k, j: of_own_size(k).write(j, x[0]).stack(),
    "write in trips": written_in_trips,
    "gather": lambda x, k, j: of_own_size(k).unstack(x[:k]).gather([0, 2]),
    "gather at own places": lambda x, k, j: of_own_size(k).unstack(x[:k]).gather([0, j]),
    "read": lambda x, k, j: of_own_size(k).unstack(x[:k]).read(2),
    "read at own places": lambda x, k, j: of_own_size(k).unstack(x[:k]).read(j),
}


def if_it_fits(body):
    def one(x, k, j):
        made = lambda: tf.reduce_sum(body(x, k, j))  # noqa: E731
        return tf.cond(k > j, made, lambda: tf.reduce_sum(x))

    return one


FOURS, TWOS = tf.constant(X[..., 0]), tf.constant([2, 2, 2])
TOO_SHORT = (FOURS, tf.constant([3, 2, 4]), TWOS)
test_table_of_own_sizes = table_of(
    {
        **{k: (body, (FOURS, tf.constant([3, 4, 3]), TWOS)) for k, body in OWN_SIZES.items()},
        **{f"{k}, if it fits": (if_it_fits(f), TOO_SHORT) for k, f in OWN_SIZES.items()},
    },
    ways=["eager", "unknown n", "around"],
)  # fmt: skip
test_items_behind_the_end_of_the_row = errors_of(
    OWN_SIZES,
    *TOO_SHORT,
    match=r"TensorArray .*test_tensor_array.py:\d+\): an item behind the end of a list is",
)
