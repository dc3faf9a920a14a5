"""Products by large weights are made in blocks of columns, which biases and splits take as such."""

import numpy as np
import pytest
import tensorflow as tf

from tests.comparisons import all_ops, mapped
from tests.devices import of_cpus
from tests.ways import How, check, table_of
from tf_pfor.converters.math import _weights

pytestmark = pytest.mark.usefixtures("weights_are_large")
K = tf.constant([2, 0, 3, 1])
RNG = np.random.default_rng(0)
X = tf.constant(RNG.normal(size=[4, 4]), tf.float32)
W = tf.Variable(RNG.normal(size=[4, 8]) * 0.5, dtype=tf.float32)
BIAS = tf.Variable(RNG.normal(size=[8]) * 0.5, dtype=tf.float32)


def gates(z):
    """Gates of 8 columns, in blocks of 2."""
    i, f, g, o = tf.split(z, 4, -1)
    return tf.concat([tf.sigmoid(i) * tf.tanh(g), tf.sigmoid(o) + f], -1)


def unequal(z):
    a, b, c = tf.split(z, [4, 2, 2], -1)
    return tf.tanh(a) + tf.concat([b, c], -1)


def across(z):
    """A split at places where blocks do not meet."""
    a, b, c = tf.split(z, [3, 4, 1], -1)
    return tf.tanh(b) + tf.concat([a, c], -1)


def within(z):
    """Blocks are taken apart further."""
    a, b, c = tf.split(z, [1, 1, 6], -1)
    return tf.sin(a + b) * c[:, :4]


def whole(z):
    a, _ = tf.split(z, 2, -1)
    return tf.tanh(a) * tf.reduce_mean(z)


def on_rows(z):
    """The other axis."""
    a, b = tf.split(tf.concat([z, z], 0), 2, 0)
    return tf.tanh(a + b)[:, :4]


STEPS = [gates, unequal, across, within, whole, on_rows]
V = tf.Variable(RNG.normal(size=[3, 8]) * 0.5, dtype=tf.float32)
SUMS = {
    "add": lambda z: z + BIAS,
    "bias_add": lambda z: tf.nn.bias_add(z, BIAS),
    "bias_first": lambda z: BIAS + z,
    "of_the_body": lambda z: z + tf.reverse(BIAS, [0]),
    "scalar": lambda z: z + 2.0,
    "one_column": lambda z: z + tf.reduce_sum(BIAS)[None],
    "none": lambda z: z,
    "twice": lambda z: z + z,
    "product": lambda z: z[:, :3] @ V + z,
    "sine": lambda z: tf.sin(z) + z,
    "two_rows": lambda z: (z + tf.concat([z, z], 0))[:1],
}


def loop(step, add="add"):
    def one(k, x):
        def body(t, s):
            return t + 1, step(SUMS[add](s @ W))

        return tf.while_loop(lambda t, _: t < k, body, (0, x[None]))[1][0]

    return one


FEW = ["no rows", "one row", "one row, function around", "inside"]
test_table_of_loops = table_of(
    {
        **{step.__name__: loop(step) for step in STEPS},
        **{f"sum, {add}": loop(gates, add) for add in SUMS},
    },
    K, X, ways=["eager", "function, around", *FEW], only=dict.fromkeys(FEW, ["gates"]),
    by=(W, BIAS), tolerance=(1e-5, 1e-6),
)  # fmt: skip
test_table_of_second_gradients = table_of(
    {"gates": loop(gates)}, K, X, ways=["function, twice around"], by=(W, BIAS),
    slopes=(1e-4, 1e-5),
)  # fmt: skip


@pytest.mark.parametrize("step", [gates, unequal])
@pytest.mark.parametrize("add", ["add", "bias_add", "bias_first"])
@of_cpus
def test_nothing_joins_what_a_split_takes_apart(step, add):
    types = ops_in_trip(loop(step, add))
    assert not [t for t in types if t.startswith("Split")]
    assert types.count("ConcatV2") == (1 if step is gates else 2)  # the user's, and one of a


def ops_in_trip(one):
    run = tf.function(lambda: mapped(one, K, X), autograph=False)
    graph = run.get_concrete_function().graph
    return [op.type for op in all_ops(graph) if op.graph is not graph]


@of_cpus
def test_a_bias_is_taken_apart_before_the_loop():
    assert "SplitV" not in ops_in_trip(loop(gates))
    assert "SplitV" in ops_in_trip(loop(gates, "of_the_body"))


def test_small_weights_stay_whole(monkeypatch):
    monkeypatch.setattr(_weights, "LARGE", 1000)
    assert "Split" in ops_in_trip(loop(gates))
    check("function, around", loop(gates), (K, X), How(by=(W, BIAS)))
