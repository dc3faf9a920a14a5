"""A Tree-LSTM over random binary trees, one tree at a time.

The model is the TreeLSTM of Agarwal (2019), with the cell of Tai et al. (2015). The leaves are
embedded, then the nodes are computed from the leaves to the root, each from the states of its
two children. It is written for ONE tree: a while loop over the inner nodes in bottom-up order. The
loop reads the children's states from a TensorArray and writes the node's. Trees differ in size and
form; ``tf_pfor.vectorized_map`` runs all of them at once.

``python -m examples.tree_lstm`` maps the model over random trees and compares states of the roots
and gradients with a Python loop over the trees. The paper has up to 100 leaves and a state of 128;
the defaults here are small enough to finish in seconds.
"""

from __future__ import annotations

import os
from typing import NamedTuple

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import numpy as np
import tensorflow as tf

import tf_pfor
from examples.compare import compare


class Weights(NamedTuple):
    """Gates side by side: input, output, candidate, and a forget gate for each child."""

    leaf: tf.Variable  # [inputs, 3 * state]
    node: tf.Variable  # [2 * state, 5 * state]
    bias: tf.Variable  # [5 * state]


class Trees(NamedTuple):
    """Some trees. Nodes of a tree are numbered: its leaves first, then bottom-up to the root."""

    leaves: tf.Tensor  # [count, most, inputs], what stands at the leaves
    children: tf.Tensor  # [count, most - 1, 2], the two children of each inner node
    sizes: tf.Tensor  # [count], number of leaves


def make_weights(inputs: int, state: int, seed: int = 0) -> Weights:
    """Random weights that keep the size of what they multiply."""
    rng = np.random.default_rng(seed)
    leaf = rng.normal(size=[inputs, 3 * state]) / np.sqrt(inputs)
    node = rng.normal(size=[2 * state, 5 * state]) / np.sqrt(2 * state)
    bias = rng.normal(size=[5 * state]) * 0.1
    return Weights(*[tf.Variable(w, dtype=tf.float32) for w in (leaf, node, bias)])


def make_trees(count: int, most: int, inputs: int, seed: int = 1) -> Trees:
    """Random bracketings of 2 ... ``most`` leaves."""
    rng = np.random.default_rng(seed)
    leaves = rng.normal(size=[count, most, inputs])
    sizes = rng.integers(2, most + 1, count)
    children = np.zeros([count, most - 1, 2], np.int32)
    for tree, size in enumerate(sizes):
        roots = list(range(size))
        for inner in range(size - 1):
            at = rng.integers(len(roots) - 1)
            children[tree, inner] = roots[at : at + 2]
            roots[at : at + 2] = [size + inner]
    return Trees(
        tf.constant(leaves, tf.float32), tf.constant(children), tf.constant(sizes, tf.int32)
    )


def tree_lstm_of_one(weights: Weights, tree: Trees) -> tf.Tensor:
    """The state [state] of the root of one tree (a row of ``Trees``)."""
    state = weights.bias.shape[0] // 5
    most = tree.leaves.shape[0]
    gates = tf.linalg.matmul(tree.leaves, weights.leaf) + weights.bias[: 3 * state]
    i, o, g = tf.split(gates, 3, 1)  # [most, state] each
    c = tf.sigmoid(i) * tf.tanh(g)
    h = tf.sigmoid(o) * tf.tanh(c)
    # Leaf k is node k; what lies between the leaves and the end is for the inner nodes.
    rows = tf.concat([tf.concat([h, c], 1), tf.zeros([most - 1, 2 * state])], 0)
    nodes = tf.TensorArray(
        tf.float32, 2 * most - 1, element_shape=[2 * state], clear_after_read=False
    ).unstack(rows)

    def step(k: tf.Tensor, nodes: tf.TensorArray) -> tuple[tf.Tensor, tf.TensorArray]:
        left = nodes.read(tree.children[k, 0])
        right = nodes.read(tree.children[k, 1])
        (h_left, c_left), (h_right, c_right) = tf.split(left, 2), tf.split(right, 2)
        both = tf.concat([h_left, h_right], 0)
        gates = tf.linalg.matvec(weights.node, both, transpose_a=True) + weights.bias
        i, o, g, f_left, f_right = tf.split(gates, 5)
        c = tf.sigmoid(i) * tf.tanh(g)
        c += tf.sigmoid(f_left + 1.0) * c_left + tf.sigmoid(f_right + 1.0) * c_right
        h = tf.sigmoid(o) * tf.tanh(c)
        return k + 1, nodes.write(tree.sizes + k, tf.concat([h, c], 0))

    _, nodes = tf.while_loop(lambda k, _: k < tree.sizes - 1, step, (0, nodes))
    return nodes.read(2 * tree.sizes - 2)[:state]


def mapped(weights: Weights, trees: Trees) -> tf.Tensor:
    """The states of all roots [count, state], at once."""
    return tf_pfor.vectorized_map(
        lambda tree: tree_lstm_of_one(weights, tree), trees, fallback_to_while_loop=False
    )


one_tree = tf.function(tree_lstm_of_one)


def looped(weights: Weights, trees: Trees) -> tf.Tensor:
    """The same, one tree after the other."""
    rows = [Trees(*[x[i] for x in trees]) for i in range(trees.sizes.shape[0])]
    return tf.stack([one_tree(weights, tree) for tree in rows])


def main(count: int = 8, most: int = 10, inputs: int = 16, state: int = 16) -> float:
    """Runs the example; returns the largest difference to a loop over the trees."""
    weights = make_weights(inputs, state)
    trees = make_trees(count, most, inputs)
    print(f"Tree-LSTM, {inputs} inputs, state {state}, over {count} trees with leaves")
    print(f"  {trees.sizes.numpy().tolist()}")
    return compare(mapped, looped, weights, trees)


if __name__ == "__main__":
    main()
