"""Elementwise families: the folded form, and kernels that end at some number of axes."""

import numpy as np
import pytest
import tensorflow as tf

import tf_pfor
from tests.ways import table_of


def emitted(fn, *specs):
    """Op types that the vectorized graph of ``fn`` has, in order, constants not counted."""
    mapped = tf.function(lambda *a: tf_pfor.vectorized_map(lambda t: fn(*t), a), autograph=False)
    ops = mapped.get_concrete_function(*[tf.TensorSpec(s) for s in specs]).graph.get_operations()
    return [o.type for o in ops if o.type not in ("Const", "Placeholder", "Identity", "NoOp")]


def arange(*shape):
    return np.linspace(-1, 1, int(np.prod(shape)), dtype=np.float32).reshape(shape)


W = arange(4, 5)
BIAS = arange(5)


def dense(x):
    return tf.nn.relu(tf.nn.bias_add(tf.matmul(x, W), BIAS))


def test_no_reshape_between_matmul_bias_and_activation():
    found = emitted(dense, [3, 2, 4])
    at = found.index("MatMul")
    assert found[at : at + 3] == ["MatMul", "BiasAdd", "Relu"]


def test_reduction_beyond_the_folded_axes_stays_folded():
    found = emitted(lambda x: tf.reduce_mean(dense(x), -1), [3, 2, 4])
    at = found.index("Relu")
    assert found[at + 1] == "Mean"


OPERANDS = {
    "of lower rank": lambda y, x: y + BIAS,
    "a one where the folded axis is": lambda y, x: y + BIAS[None],
    "that reaches the folded axis": lambda y, x: y + arange(2, 1),
    "of a higher rank": lambda y, x: y + arange(3, 2, 5),
    "stacked scalar": lambda y, x: y * x[0, 0],
    "stacked, not folded": lambda y, x: y + tf.reduce_sum(x, 1, keepdims=True),
    "folded over another n * d": lambda y, x: y + tf.matmul(x[:1], W),
    "both folded": lambda y, x: y * dense(x * 2.0),
    "chosen": lambda y, x: tf.where(y > 0, y, x[:, :1]),
}
GROUPS = tf.constant(arange(1, 2, 1, 3, 1))  # more of them than the kernel takes
CASES = {name: lambda x, f=f: f(dense(x), x) for name, f in OPERANDS.items()}
ROWS = tf.constant(arange(3, 2, 4))
test_table_of_operands = table_of(
    {**CASES, "groups": (lambda row: row * GROUPS, tf.constant(arange(3, 2, 1, 2, 1, 2)))}, ROWS,
    ways=["function", "unknown n", "one row", "unknown n, one row"],
    only={"one row": ["groups"], "unknown n, one row": ["groups"]}, tolerance=(1e-5, 1e-5),
)  # fmt: skip
test_table_of_unknown_sizes = table_of(
    CASES, ROWS, ways=["unknown sizes"], specs=(tf.TensorSpec([None, None, 4]),),
    tolerance=(1e-5, 1e-5),
)  # fmt: skip
test_table_of_unknown_ranks = table_of(
    {"by a scalar": lambda r: tf.exp(r) * 2.0}, tf.constant(arange(3, 2)), ways=["unknown"],
    specs=(tf.TensorSpec(None),),
)  # fmt: skip


@pytest.mark.parametrize("n", [1, 3])
def test_grappler_does_not_take_the_rows_for_a_bias(n):
    """In plain TensorFlow ``a @ b + x`` loses an axis of ones of x that a @ b does not have."""
    a, b, x = tf.ones([2, 3]), tf.ones([3, 4]), tf.ones([n, 1, 4])
    for spec in (x.shape, [None, 1, 4]):

        @tf.function(
            input_signature=[tf.TensorSpec([2, 3]), tf.TensorSpec([3, 4]), tf.TensorSpec(spec)]
        )
        def run(a, b, x):
            return tf_pfor.vectorized_map(lambda r: tf.matmul(a, b) + r, x)

        np.testing.assert_array_equal(run(a, b, x), np.full([n, 2, 4], 4.0))


def test_operands_are_repeated_where_that_costs_least():
    """Six groups of axes; to join the first two would write 380 elements."""
    y = arange(4, 1, 2, 1, 2)
    mapped = tf.function(tf_pfor.vmap(lambda row: row * y), autograph=False)
    graph = mapped.get_concrete_function(tf.TensorSpec([3, 1, 5, 1, 5, 1])).graph
    wide = [op.outputs[0] for op in graph.get_operations() if op.type == "BroadcastTo"]
    assert sum(t.shape.num_elements() for t in wide) == 230
