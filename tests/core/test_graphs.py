"""Graphs that are cheap to build hold what TensorFlow's own way puts into them."""

from __future__ import annotations

import contextlib

import numpy as np
import pytest
import tensorflow as tf

import tf_pfor
from tests.comparisons import gradient_of
from tf_pfor._tf import _graphs
from tf_pfor._tf._evaluation import evaluated

FuncGraph = _graphs.FuncGraph


def _plain(graph):
    return contextlib.nullcontext()


def _controlled(graph):
    return graph.control_dependencies([tf.constant(0.0)])


@contextlib.contextmanager
def _attributed(graph):
    value = tf.compat.v1.AttrValue(b=True)
    with graph._attr_scope({"_of_a_scope": value}):
        yield


@contextlib.contextmanager
def _overridden(graph):
    with graph.gradient_override_map({"Add": "Identity", "AddV2": "Identity", "Relu": "Identity"}):
        yield


SCOPES = {
    "plain": _plain,
    "controlled": _controlled,
    "device": lambda graph: tf.device("CPU:0"),
    "nested devices": lambda graph: tf.device("/job:localhost"),
    "name scope": lambda graph: tf.name_scope("outer"),
    "attributes": _attributed,
    "gradient override": _overridden,
    "colocated": lambda graph: tf.compat.v1.colocate_with(tf.constant(1.0)),
}


def _build(graph_type, scope, table, variable):
    """The same ops in a graph of either type."""
    graph = graph_type("g")
    with graph.as_default():
        x = tf.compat.v1.placeholder(tf.float32, [2, None], "x")
        with scope(graph):
            y = tf.nn.relu(x + table) * variable
            z = tf.concat([y, x], 0, name="joined")
            tf.split(z, 2)
            tf.raw_ops.Add(x=x, y=x, name="same")
            tf.raw_ops.Add(x=x, y=x, name="same")
            tf.TensorArray(tf.float32, 2).write(0, y[0]).read(0)
    return graph


@pytest.mark.parametrize("name", SCOPES)
def test_the_graph_is_tensorflow_s(name):
    table, variable = tf.random.normal([2, 200]), tf.Variable(2.0)
    ours = _build(_graphs.BodyGraph, SCOPES[name], table, variable)
    theirs = _build(FuncGraph, SCOPES[name], table, variable)
    assert len(ours.get_operations()) == len(theirs.get_operations())
    renamed = {}
    for a, b in zip(ours.get_operations(), theirs.get_operations()):
        captured = a.type == "Placeholder" and not a.name.endswith("x")
        renamed[a.name] = b.name
        x, y = a.node_def, b.node_def
        assert (a.type, a.device) == (b.type, b.device)
        assert [renamed[c.name] for c in a.control_inputs] == [c.name for c in b.control_inputs]
        assert [t.shape.as_list() if t.shape.rank is not None else None for t in a.outputs] == [
            t.shape.as_list() if t.shape.rank is not None else None for t in b.outputs
        ]
        assert [renamed[t.op.name] for t in a.inputs] == [t.op.name for t in b.inputs]
        if captured:  # TensorFlow names what it captures with a number of its own
            continue
        assert a.name == b.name
        assert dict(x.attr) == dict(y.attr)
    assert [o is p for (o, _), (p, _) in zip(ours.captures, theirs.captures)] == [True, True]
    assert [t.op.type for t in ours.inputs] == [t.op.type for t in theirs.inputs]


@pytest.mark.parametrize("graph_type", [FuncGraph, _graphs.BodyGraph])
def test_refused_shapes_and_names_are_value_errors(graph_type):
    with graph_type("g").as_default():
        with pytest.raises(ValueError, match="Dimensions must be equal, but are 2 and 3"):
            tf.matmul(tf.zeros([2, 2]), tf.zeros([3, 2]))
        with pytest.raises(ValueError, match="is not a valid"):
            tf.raw_ops.Add(x=1.0, y=2.0, name="not valid")


def test_tensors_out_of_scope_are_refused():
    leaked = []

    @tf.function
    def leak(x):
        leaked.append(x + 1)
        return x

    leak(tf.constant(1.0))
    with pytest.raises(TypeError, match="out of scope"):
        tf_pfor.vectorized_map(lambda x: x + leaked[0], tf.zeros([3]))


def test_handles_keep_what_is_known_of_them():
    variable = tf.Variable(tf.zeros([3, 4]))
    graph = _graphs.BodyGraph("g")
    with graph.as_default():
        inside = _graphs.capture(graph, variable.handle)
        read = tf.raw_ops.ReadVariableOp(resource=inside, dtype=tf.float32)
        assert _graphs.capture(graph, variable.handle) is inside
    assert read.shape == (3, 4)


def test_captures_are_watched():
    """A gradient flows through what a function graph captures, in a tape that began before."""

    @tf.function
    def slope(w, x):
        return gradient_of(
            lambda: tf_pfor.vectorized_map(lambda row: tf.tensordot(row, w, 1), x), w
        )

    x = tf.random.normal([4, 300])
    assert slope(tf.ones([300]), x).numpy() == pytest.approx(x.numpy().sum(0), rel=1e-5)


def test_numbers_of_an_op_that_stands_beside_one_that_is_left_out():
    graph = FuncGraph("body")
    with graph.as_default():
        x = tf.compat.v1.placeholder(tf.float32, [3])
        with graph.colocate_with(x.op):
            numbers = tf.range(tf.constant(3)) + 1
    np.testing.assert_array_equal(evaluated(numbers), [1, 2, 3])
