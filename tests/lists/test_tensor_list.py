"""Stacked lists below the level of ops: rows of a subset, masks, lengths, what is emitted."""

import dataclasses

import numpy as np
import pytest
import tensorflow as tf

import tf_pfor
from tests.cases import case, grid
from tests.comparisons import compare, mapped, needed_ops, pairwise, strict_map
from tests.samples.lists.tensor_list import (
    count,
    empty,
    get,
    listed,
    pop,
    push,
    put,
    raw,
    reserved,
    stacked,
)
from tf_pfor.converters.lists._list_rows import own_rows
from tf_pfor.core.call import Call
from tf_pfor.core.emit import Emitter
from tf_pfor.core.loop import Loop
from tf_pfor.core.report import Recorder
from tf_pfor.core.stacked_lists import ListRows, StackedList, rows_of
from tf_pfor.core.values import Value
from tf_pfor.walker.walker import Settings, Walker

RNG = np.random.default_rng(0)
BASE = RNG.normal(size=(4, 5, 2)).astype(np.float32)  # [T, size, d]


def run_rows(fn, x, ids, static=True, view=None):
    """Converts fn(handle, *x) for the rows ``ids`` of a stacked list of the elements BASE.

    Returns what fn returns, and the whole list fn leaves as its last result.
    """

    @tf.function(input_signature=[tf.TensorSpec([4, 5, 2]), tf.TensorSpec([None], tf.int32)])
    def outer(base, ids):
        if static:
            ids = tf.ensure_shape(ids, [len(IDS)])
        body = tf.__internal__.FuncGraph("body")
        with body.as_default():
            handle = tf.compat.v1.placeholder(tf.variant, [])
            inner = [tf.compat.v1.placeholder(a.dtype, a.shape[1:]) for a in x]
            outputs = fn(handle, *inner)
        emit = Emitter()
        whole = Loop(5, emit)
        loop = whole.subset(ids, emit)
        walker = Walker(loop, emit, Settings("error"), Recorder())
        value = StackedList.of(listed(base), ListRows(5, ids=ids))
        value = value if view is None else view(whole, value)
        walker.bind(handle, value)
        for placeholder, a in zip(inner, x):
            walker.bind(placeholder, Value.stacked(tf.constant(a)))
        found = walker.convert(outputs)
        last = stacked(found[-1].tensor, shape=[5, 2])
        return [v.tensor for v in found[:-1]], last

    results, last = outer(BASE, ids)
    return [r.numpy() for r in results], last.numpy()


IDS = np.array([4, 1, 3], np.int32)
NEW = RNG.normal(size=(3, 2)).astype(np.float32)
INDEX = np.array([2, 0, 3], np.int32)


@pytest.mark.parametrize("static", [True, False])
def test_reads_pick_the_active_rows(static):
    def fn(handle, i):
        some = raw.TensorListGather(
            input_handle=handle, indices=[3, 1], element_shape=[2], element_dtype=tf.float32
        )
        return get(handle, 1, [2]), get(handle, i, [2]), stacked(handle, shape=[2]), some, handle

    (one, per_row, whole, some), last = run_rows(fn, [INDEX], IDS, static)
    np.testing.assert_array_equal(one, BASE[1, IDS])
    np.testing.assert_array_equal(per_row, BASE[INDEX, IDS])
    np.testing.assert_array_equal(whole, BASE[:, IDS].transpose(1, 0, 2))
    np.testing.assert_array_equal(some, BASE[[3, 1]][:, IDS].transpose(1, 0, 2))
    np.testing.assert_array_equal(last, BASE)


@pytest.mark.parametrize("static", [True, False])
def test_writes_go_into_the_active_rows(static):
    def fn(handle, x, i):
        written = put(handle, 2, x)
        written = put(written, i, 2.0 * x)
        return get(written, 2, [2]), written

    (read,), last = run_rows(fn, [NEW, INDEX], IDS, static)
    expected = BASE.copy()
    expected[2, IDS] = NEW
    expected[INDEX, IDS] = 2 * NEW
    np.testing.assert_allclose(last, expected)
    np.testing.assert_allclose(read, expected[2, IDS])


def test_writes_go_into_the_rows_of_the_mask():
    mask = np.array([True, True, False, False, True])

    def fn(handle, x, i):
        written = put(handle, 2, x)
        written = put(written, i, 2.0 * x)
        return get(written, 2, [2]), written

    def view(_, value):
        rows = dataclasses.replace(rows_of(value), mask=tf.constant(mask))
        return StackedList.of(value.tensor, rows)

    _, last = run_rows(fn, [NEW, INDEX], IDS, view=view)
    expected = BASE.copy()
    on = mask[IDS]
    expected[2, IDS[on]] = NEW[on]
    expected[INDEX[on], IDS[on]] = 2 * NEW[on]
    np.testing.assert_allclose(last, expected)


def test_push_and_pop_of_some_rows_change_their_length():
    def fn(handle, x):
        pushed = push(handle, x)
        popped, last = pop(pushed, [2])
        return count(pushed), last, count(popped), get(popped, 3, [2]), popped

    (size, last, again, item), _ = run_rows(fn, [NEW], IDS)
    np.testing.assert_array_equal(size, [5, 5, 5])
    np.testing.assert_allclose(last, NEW)
    np.testing.assert_array_equal(again, [4, 4, 4])
    np.testing.assert_allclose(item, BASE[3, IDS])


def test_own_rows():
    ids = np.array([1, 2], np.int32)

    @tf.function(autograph=False)
    def run(base):
        emit = Emitter()
        loop = Loop(5, emit).subset(tf.constant(ids), emit)
        call = _call(Walker(loop, emit, Settings("error"), Recorder()), tf.no_op())
        part = own_rows(call, StackedList.of(listed(base), ListRows(5, tf.constant(ids))))
        return stacked(part.tensor, shape=[2, 2])

    np.testing.assert_array_equal(run(tf.constant(BASE)), BASE[:, ids])


_call = lambda walker, op: Call(op, {}, walker)


# What is emitted ----------------------------------------------------------------------------------


def op_types(body, *args):
    """The op types of the vectorized graph that its results need."""
    run = tf.function(lambda *given: mapped(body, *given), autograph=False)
    needed = needed_ops(run.get_concrete_function(*args).outputs)
    return sorted(op.type for op in needed if op.type.startswith(("TensorList", "Empty")))


def test_writes_at_invariant_indices_copy_nothing():
    def body(x):
        handle = reserved(3, [2])
        for t in range(3):
            handle = put(handle, t, x + float(t))
        return get(handle, 1, [2])

    found = op_types(body, tf.zeros([5, 2]))
    assert found == ["TensorListGetItem", "TensorListReserve", *["TensorListSetItem"] * 3]


def test_an_invariant_prefix_is_emitted_again_and_copies_nothing():
    def body(x):
        handle = put(reserved(3), 0, tf.ones([2]))  # unstacked so far, its element shape unknown
        handle = put(handle, 1, x)
        return get(handle, 1, [2])

    found = op_types(body, tf.zeros([5, 2]))
    assert found == ["TensorListGetItem", "TensorListReserve", *["TensorListSetItem"] * 2]


@case(compare, tf.constant([7.0, 8.0]), function={})
def test_a_long_invariant_prefix(x):
    """Longer than Python may recurse."""
    handle = empty([])
    for t in range(1200):
        handle = push(handle, float(t))
    return stacked(push(handle, x), shape=[])


def test_elements_that_were_never_written_stay_so():
    """TensorFlow takes the shape of one that is not there from the others."""
    run = lambda body: tf.function(lambda x: tf_pfor.vectorized_map(body, x), autograph=False)
    first = run(lambda x: get(put(put(reserved(3), 0, tf.ones([2])), 1, x), 2))
    np.testing.assert_array_equal(first(tf.ones([5, 2])), tf.zeros([5, 2]))


def test_handle_data_knows_the_stacked_elements():
    @tf.function(autograph=False)
    def run(x):
        return tf_pfor.vectorized_map(lambda r: get(put(reserved(2, [2]), 0, r), 0), x)

    graph = run.get_concrete_function(tf.TensorSpec([5, 2])).graph
    items = [o.outputs[0] for o in graph.get_operations() if o.type == "TensorListGetItem"]
    assert [t.shape.as_list() for t in items] == [[5, 2]]


def test_lists_of_a_loop_body_that_may_not_be_mixed_are_refused_by_name():
    def body(x):
        lists = put(reserved(2, [], tf.variant), 0, listed(x))
        return stacked(lists, tf.variant, tf.constant([], tf.int32))[0]

    top = lambda x: stacked(body(x), shape=[2])
    found = tf.function(lambda x: tf_pfor.vectorized_map(top, x), autograph=False)(
        tf.constant(BASE)
    )
    np.testing.assert_allclose(found, BASE)


K = tf.constant([2, 0, 4, 1])
ITEMS = tf.constant(np.random.default_rng(0).normal(size=[4, 2]).astype(np.float32))


def popped_and_pushed(k, x, reads):
    """A list of five items, of which k are popped; then three trips push."""
    made = raw.EmptyTensorList(element_shape=[2], max_num_elements=9, element_dtype=tf.float32)
    for t in range(5):
        made = push(made, x * (t + 1.0))

    def take(t, s, made):
        made, item = pop(made, [2])
        return t + 1, s + item, made

    def body(t, s, made):
        made = push(made, s)
        return t + 1, tf.tanh(s + x + (get(made, 0, [2]) if reads else 0.0)), made

    start = (0, tf.zeros([2]), made)
    _, s, made = tf.while_loop(lambda t, *_: t < k, take, start, maximum_iterations=4)
    _, s, made = tf.while_loop(lambda t, *_: t < 3, body, (0, s, made), maximum_iterations=4)
    return s, count(made), get(made, 0, [2])


@grid(compiled=[False, True], reads=[False, True])
def test_lists_that_rows_pop_and_trips_push_to(reads, compiled):
    @tf.function(jit_compile=compiled, autograph=False)
    def run():
        return strict_map(lambda row: popped_and_pushed(*row, reads), (K, ITEMS))

    if reads and compiled:  # XLA cannot make a list longer; those that nobody reads are set aside
        with pytest.raises(tf_pfor.NotVectorizableError, match="jit_compile"):
            run()
        return
    expected = [popped_and_pushed(k, x, reads) for k, x in zip(K, ITEMS)]
    pairwise(np.testing.assert_allclose, run(), zip(*expected), rtol=1e-5)


def test_arrays_of_no_items_do_not_grow_under_jit_compile():
    def one(k, x):
        array = tf.TensorArray(tf.float32, 0, dynamic_size=True, element_shape=[2])
        return tf.while_loop(
            lambda t, _: t < k + 1, lambda t, a: (t + 1, a.write(t, x)), (0, array)
        )[1].read(0)

    run = lambda k, x: tf_pfor.vectorized_map(lambda row: one(*row), (k, x))
    np.testing.assert_allclose(run(K, ITEMS), ITEMS)
    with pytest.raises(tf_pfor.NotVectorizableError, match="give it the size"):
        tf.function(run, jit_compile=True, autograph=False)(K, ITEMS)


@pytest.mark.parametrize("of_lists", [False, True])
def test_lists_that_were_made_eagerly(of_lists):
    """A loop pushes to a list that is no tensor of a graph."""
    items = push(empty([]), tf.constant(5.0))
    lists = push(empty([], tf.variant), items)

    def one(k, x):
        target, item = (lists, push(items, x)) if of_lists else (items, x)
        step = lambda t, made: (t + 1, push(made, item))
        return count(tf.while_loop(lambda t, _: t < k, step, (0, target))[1])

    for function in (mapped, tf.function(mapped, autograph=False)):
        np.testing.assert_array_equal(function(one, K, ITEMS[:, 0]), K + 1)
