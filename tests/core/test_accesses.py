"""Accesses to variables: which ops write which variable, and what must run in order."""

import tensorflow as tf

from tf_pfor.core.accesses import Accesses, handle_key, may_repeat
from tf_pfor.fallback.ordered_updates import groups
from tf_pfor.fallback.uneven_regions import has_effects

X = tf.TensorSpec([], tf.float32)


def traced(fn):
    return tf.function(fn).get_concrete_function(X).graph


def test_a_function_writes_only_one_of_its_variables():
    read, written = tf.Variable(1.0), tf.Variable(2.0)

    @tf.function
    def step(x):
        written.assign(read * x)
        return x + read

    graph = traced(lambda x: step(x) + read)
    (call,) = [op for op in graph.get_operations() if op.type.endswith("PartitionedCall")]
    handles = {v is read: handle_key(graph.capture(v.handle)) for v in (read, written)}
    writes = {a.handle: a.writes for a in Accesses(graph).all if a.op is call}
    assert writes == {handles[True]: False, handles[False]: True}


def test_a_loop_over_rows_has_no_effects():
    """It asks for its device, which TensorFlow calls stateful."""
    graph = traced(lambda x: x * tf.cast(tf.raw_ops.DeviceIndex(device_names=["CPU"]), x.dtype))
    (op,) = [op for op in graph.get_operations() if op.type == "DeviceIndex"]
    assert may_repeat(op)
    assert not has_effects(op)


def test_a_variable_that_is_only_read_does_not_run_in_order():
    a, b, weight = tf.Variable(1.0), tf.Variable(2.0), tf.Variable(3.0)

    @tf.function
    def weighted(value):
        return weight * value

    def step(x):
        a.assign(0.5 * a + x * b + weighted(a))
        b.assign(b + a)
        return x * weight

    graph = traced(step)
    (group,) = groups(Accesses(graph), frozenset())
    assert group.handles == {handle_key(graph.capture(v.handle)) for v in (a, b)}
