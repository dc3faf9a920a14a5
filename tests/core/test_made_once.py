"""Ops of rows and sizes are made once, and trials of regions stay small."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

import tf_pfor
from tf_pfor._tf import _graphs, _stacks
from tf_pfor.converters.control_flow import _subgraphs
from tf_pfor.core.emit import Emitter
from tf_pfor.fallback import uneven_regions


def _made(block):
    graph = _graphs.FuncGraph("g")
    with graph.as_default():
        x = tf.compat.v1.placeholder(tf.int32, [None], "x")
        own = type(graph)._create_op_internal
        with _graphs.quickly(graph, {}):
            first, second = block(x), block(x)
        assert graph._create_op_internal.__func__ is own
    return graph, first, second


@pytest.mark.parametrize(
    "block",
    [
        lambda x: tf.size(x) * 2,
        lambda x: tf.range(tf.shape(x)[0]),
        lambda x: x > 1,
        lambda x: tf.cast(tf.constant([1.0, 2.0]), tf.int64),
    ],
)
def test_integers_and_masks_are_one(block):
    graph, first, second = _made(block)
    assert first.op is second.op
    types = [op.type for op in graph.get_operations() if op.type != "Const"]
    assert len(types) == len({*types})


@pytest.mark.parametrize(
    "block",
    [
        tf.identity,
        lambda x: tf.cast(x, tf.float32),
        lambda x: tf.random.uniform([2], 0, 5, tf.int32, seed=1),
        lambda x: tf.raw_ops.EmptyTensorList(
            element_shape=np.zeros([0], np.int32), max_num_elements=-1, element_dtype=tf.int32
        ),
        lambda x: tf.compat.v1.placeholder(tf.int32, [2]),
    ],
)
def test_what_is_not_shared(block):
    _, first, second = _made(block)
    assert first.op is not second.op


def test_what_waits_is_its_own():
    def block(x):
        with tf.control_dependencies([tf.print("")]):
            return tf.size(x)

    _, first, second = _made(block)
    assert first.op is not second.op
    assert first.op.control_inputs != second.op.control_inputs


def test_of_a_device_is_its_own():
    places = iter(("CPU:0", "CPU:1"))

    def block(x):
        with tf.device(next(places)):
            return x + 1

    _, first, second = _made(block)
    assert [t.device.rpartition(":")[2] for t in (first, second)] == ["0", "1"]


def test_the_emitter_says_that_a_shared_op_was_emitted_again():
    with tf.Graph().as_default():
        emit = Emitter()
        x = tf.compat.v1.placeholder(tf.int32, [None])
        first = emit("AddV2", x, np.int32(1))
        mark = len(emit.operations)
        assert emit("AddV2", x, np.int32(1)) is first
        assert emit.operations[mark:] == [first.op]
        assert emit("AddV2", x, np.int32(2)) is not first


def _conditionals(depth):
    def branch(y, k):
        if not k:
            return y * 2.0
        return tf.cond(y[k % 3] > 0, lambda: tf.sin(branch(y, k - 1)), lambda: tf.cos(y) * k)

    return branch


def _looped(depth):
    branch = _conditionals(depth)
    step = lambda t, y: (t + 1, branch(y, depth))  # noqa: E731
    return lambda x: tf.while_loop(lambda t, _: t < 2, step, (0, x))[1]


def _conversions(monkeypatch, body, x):
    """The number of times that branches and bodies of loops are converted, trials included."""
    found = []
    entered = _subgraphs.Region._entered

    def counted(self, *args, **kwargs):
        found.append(kwargs["is_trial"])
        return entered(self, *args, **kwargs)

    monkeypatch.setattr(_subgraphs.Region, "_entered", counted)
    made = tf.function(lambda x: tf_pfor.vectorized_map(body, x)).get_concrete_function(x)
    monkeypatch.undo()
    return len(found), made(x)


def test_conversions_grow_as_the_depth_of_conditionals_in_a_loop(monkeypatch):
    x = tf.constant(np.random.default_rng(0).normal(size=[5, 3]))
    counts = []
    for depth in (3, 6):
        count, made = _conversions(monkeypatch, _looped(depth), x)
        counts.append(count)
        expected = tf.stack([_looped(depth)(row) for row in x])
        np.testing.assert_allclose(made, expected, rtol=1e-12)
    assert counts[1] <= 2 * counts[0]


def test_a_trial_builds_no_conditional(monkeypatch):
    """Conditionals are built once, in the graph that is kept."""
    built = []
    cond = tf.cond
    monkeypatch.setattr(tf, "cond", lambda *args: built.append(_in_trial()) or cond(*args))
    x = tf.ones([5, 3], tf.float64)
    run = tf.function(lambda x: tf_pfor.vectorized_map(_looped(3), x), autograph=False)
    run.get_concrete_function(x)
    assert len(built) > 3
    assert not any(built)


def _in_trial():
    return _subgraphs._tf.in_trial(tf.compat.v1.get_default_graph())


def test_what_is_asked_later_of_a_region_is_converted_in_the_trial_it_has(monkeypatch):
    begun = []
    begin = _subgraphs.Region._begin_trial

    def counted(self, *args):
        begun.append(self.graph.name)
        return begin(self, *args)

    monkeypatch.setattr(_subgraphs.Region, "_begin_trial", counted)

    def body(x):
        def step(t, y, a):
            return t + 1, y + x[t], a.write(t, y)

        array = tf.TensorArray(tf.float64, 3, element_shape=[])
        made = tf.while_loop(lambda t, *_: t < 3, step, (0, x[0], array))
        return made[2].stack()

    x = tf.constant(np.random.default_rng(0).normal(size=[5, 3]))
    made = tf.function(lambda x: tf_pfor.vectorized_map(body, x))(x)
    np.testing.assert_allclose(made, tf.stack([body(row) for row in x]), rtol=1e-12)
    # One for each choice of layouts of the body, and one of the condition.
    assert 0 < len(begun) <= 3


ROWS = tf.RaggedTensor.from_row_lengths(tf.reshape(tf.range(36.0), [12, 3]), [3, 5, 4])


def _graph_of(body, x):
    made = tf.function(lambda x: tf_pfor.vectorized_map(body, x, warn=False), autograph=False)
    return made.get_concrete_function(x).graph


def _means(count):
    def body(row):
        for k in range(count):
            row = tf.sin(row) * (0.9 + k) + tf.reduce_mean(row)
        return row

    return body


def test_the_counts_of_means_are_made_once_and_equal_ops_ask_for_shapes_once(monkeypatch):
    asked, infer = [], uneven_regions._inferred
    monkeypatch.setattr(uneven_regions, "_inferred", lambda *a: asked.append(a[0]) or infer(*a))
    types = [[op.type for op in _graph_of(_means(k), ROWS).get_operations()] for k in (3, 6)]
    assert types[0].count("Cast") == types[1].count("Cast")
    few = len(asked)
    _graph_of(_means(12), ROWS)
    assert len(asked) - few <= few


def test_branches_without_effects_get_no_copies_of_their_results():
    def body(x):
        return tf.cond(x[0] > 0, lambda: tf.sin(x), lambda: tf.exp(x))

    library = _graph_of(body, tf.ones([3, 4])).as_graph_def().library.function
    assert len(library) >= 2
    assert not [n.name for f in library for n in f.node_def if n.op == "Identity"]


def test_ops_have_the_stack_of_the_body_also_where_tensorflow_made_that(monkeypatch):
    def slope(x):
        with tf.GradientTape(persistent=True) as tape:
            tape.watch(x)
            with tf.GradientTape() as inner:
                inner.watch(x)
                y = tf.while_loop(lambda i, _: i < 3, lambda i, y: (i + 1, tf.sin(y) * x), (0, x))
            total = tf.reduce_sum(inner.gradient(y[1], x) ** 2)
        return tape.gradient(total, x)

    without, of_emitted = [], _stacks.of_emitted
    monkeypatch.setattr(
        _stacks, "of_emitted", lambda: without.append(_stacks._ORIGIN.get() is None) or of_emitted()
    )
    _graph_of(slope, tf.ones([3, 4]))
    assert len(without) > 50
    assert sum(without) < 10, (sum(without), len(without))
