"""Elementwise families: the folded form, and kernels that end at some number of axes."""

import numpy as np
import pytest
import tensorflow as tf

import tf_pfor
from tests.comparisons import strict_map


def emitted(fn, *specs):
    """Op types that the vectorized graph of ``fn`` has, in order, constants not counted."""
    mapped = tf.function(lambda *a: tf_pfor.vectorized_map(lambda t: fn(*t), a), autograph=False)
    ops = mapped.get_concrete_function(*[tf.TensorSpec(s) for s in specs]).graph.get_operations()
    return [o.type for o in ops if o.type not in ("Const", "Placeholder", "Identity", "NoOp")]


def check(fn, *arrays, specs=None):
    """Vectorized values equal the values of a Python loop."""
    signature = [tf.TensorSpec(s) for s in specs or [a.shape for a in arrays]]
    mapped = tf.function(
        lambda *a: strict_map(lambda t: fn(*t), a),
        input_signature=signature,
        autograph=False,
    )
    expected = np.stack([fn(*[tf.constant(x) for x in row]).numpy() for row in zip(*arrays)])
    np.testing.assert_allclose(mapped(*map(tf.constant, arrays)).numpy(), expected, 1e-5, 1e-5)


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


@pytest.mark.parametrize(
    "other",
    [
        lambda y, x: y + BIAS,  # invariant, of lower rank
        lambda y, x: y + BIAS[None],  # a one where the folded axis is
        lambda y, x: y + arange(2, 1),  # invariant, reaches the folded axis
        lambda y, x: y + arange(3, 2, 5),  # the result has a higher rank
        lambda y, x: y * x[0, 0],  # a stacked scalar
        lambda y, x: y + tf.reduce_sum(x, 1, keepdims=True),  # stacked, not folded
        lambda y, x: y + tf.matmul(x[:1], W),  # folded over another n * d
        lambda y, x: y * dense(x * 2.0),  # both folded
        lambda y, x: tf.where(y > 0, y, x[:, :1]),
    ],
)
@pytest.mark.parametrize("spec", [[3, 2, 4], [None, 2, 4], [None, None, 4]])
def test_folded_operand_with(other, spec):
    check(lambda x: other(dense(x), x), arange(3, 2, 4), specs=[spec])


@pytest.mark.parametrize("n", [1, 3])
@pytest.mark.parametrize("known", [True, False])
def test_more_groups_than_the_kernel_takes(n, known):
    x, y = arange(n, 2, 1, 2, 1, 2), arange(1, 2, 1, 3, 1)
    check(lambda row: row * y, x, specs=[[n if known else None, *x.shape[1:]]])


def test_unknown_rank_with_an_invariant_scalar():
    mapped = tf.function(
        lambda x: tf_pfor.vectorized_map(lambda r: tf.exp(r) * 2.0, x), autograph=False
    ).get_concrete_function(tf.TensorSpec(None))
    x = tf.constant(arange(3, 2))
    np.testing.assert_allclose(mapped(x).numpy(), np.exp(x) * 2, 1e-5)


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
