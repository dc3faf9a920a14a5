"""A gated graph neural network, written for one node of one graph.

The model is GatedGraphNN (Agarwal, 2019; Li et al., 2015) on random directed graphs. In each step a
node adds up the messages of its neighbours along their edges, with a transform for each kind of
edge. A GRU cell computes its new embedding from the sum and the old embedding. A node is a function
with a while loop over its true number of neighbours. A graph is a map over its nodes; a batch of
graphs is a map over graphs. Nodes have different numbers of neighbours.

``python -m examples.gated_graph_network`` compares embeddings and gradients with Python loops over
graphs and nodes. The paper has up to 100 nodes, 10 neighbours and embeddings of 64; the defaults
here are small enough to finish in seconds.
"""

from __future__ import annotations

import os
from typing import NamedTuple

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import numpy as np
import tensorflow as tf

import tf_pfor
from examples.compare import compare

STEPS = 2


class Weights(NamedTuple):
    """Transforms of messages, and a GRU cell."""

    edge: tf.Variable  # [kinds, width, width]
    gates: tf.Variable  # [2 * width, 2 * width]: reset and update
    candidate: tf.Variable  # [2 * width, width]


class Graphs(NamedTuple):
    """Some graphs of equally many nodes."""

    embeddings: tf.Tensor  # [count, nodes, width]
    neighbours: tf.Tensor  # [count, nodes, most], numbers of nodes
    kinds: tf.Tensor  # [count, nodes, most], the kind of each edge
    degrees: tf.Tensor  # [count, nodes], how many of the neighbours are real


def make_weights(kinds: int, width: int, seed: int = 0) -> Weights:
    """Random weights that keep the size of what they multiply."""
    rng = np.random.default_rng(seed)
    shapes = ([kinds, width, width], [2 * width, 2 * width], [2 * width, width])
    return Weights(
        *[tf.Variable(rng.normal(size=s) / np.sqrt(s[-2]), dtype=tf.float32) for s in shapes]
    )


def make_graphs(count: int, nodes: int, most: int, kinds: int, width: int, seed: int = 1) -> Graphs:
    """Random graphs whose nodes have 0 ... ``most`` neighbours."""
    rng = np.random.default_rng(seed)
    each = [count, nodes, most]
    return Graphs(
        tf.constant(rng.normal(size=[count, nodes, width]), tf.float32),
        tf.constant(rng.integers(0, nodes, each), tf.int32),
        tf.constant(rng.integers(0, kinds, each), tf.int32),
        tf.constant(rng.integers(0, most + 1, [count, nodes]), tf.int32),
    )


def new_embedding(
    weights: Weights,
    embeddings: tf.Tensor,
    own: tf.Tensor,
    neighbours: tf.Tensor,
    kinds: tf.Tensor,
    degree: tf.Tensor,
) -> tf.Tensor:
    """The new embedding of one node.

    Args:
      weights: the weights of the model.
      embeddings: [nodes, width], the embeddings of all nodes of the graph.
      own: [width], the embedding of this node.
      neighbours: [most], numbers of the nodes that send to this one.
      kinds: [most], the kinds of these edges.
      degree: scalar, how many of them are real.
    """

    def receive(k: tf.Tensor, total: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        sent = tf.gather(embeddings, neighbours[k])
        transform = tf.gather(weights.edge, kinds[k])
        return k + 1, total + tf.linalg.matvec(transform, sent, transpose_a=True)

    _, message = tf.while_loop(lambda k, _: k < degree, receive, (0, tf.zeros_like(own)))
    both = tf.concat([message, own], 0)
    gates = tf.sigmoid(tf.linalg.matvec(weights.gates, both, transpose_a=True))
    reset, update = tf.split(gates, 2)
    both = tf.concat([message, reset * own], 0)
    candidate = tf.tanh(tf.linalg.matvec(weights.candidate, both, transpose_a=True))
    return (1.0 - update) * own + update * candidate


def mapped(weights: Weights, graphs: Graphs) -> tf.Tensor:
    """The embeddings [count, nodes, width] after all steps: a map of maps."""

    def one_graph(graph: Graphs) -> tf.Tensor:
        x = graph.embeddings
        for _ in range(STEPS):
            x = tf_pfor.vectorized_map(
                lambda node, x=x: new_embedding(weights, x, *node),
                (x, graph.neighbours, graph.kinds, graph.degrees),
                fallback_to_while_loop=False,
            )
        return x

    return tf_pfor.vectorized_map(one_graph, graphs, fallback_to_while_loop=False)


one_node = tf.function(new_embedding)


def looped(weights: Weights, graphs: Graphs) -> tf.Tensor:
    """The same, one node after the other."""
    done: list[tf.Tensor] = []
    for g in range(graphs.embeddings.shape[0]):
        x = graphs.embeddings[g]
        nodes = list(zip(*[tf.unstack(part[g]) for part in graphs[1:]], strict=True))
        for _ in range(STEPS):
            x = tf.stack([one_node(weights, x, x[i], *n) for i, n in enumerate(nodes)])
        done.append(x)
    return tf.stack(done)


def main(count: int = 3, nodes: int = 6, most: int = 3, kinds: int = 2, width: int = 8) -> float:
    """Runs the example; returns the largest difference to a loop over the nodes."""
    weights = make_weights(kinds, width)
    graphs = make_graphs(count, nodes, most, kinds, width)
    print(
        f"Gated graph network, {STEPS} steps, width {width}, over {count} graphs of {nodes} nodes"
    )
    print(f"  neighbours of each node: {graphs.degrees.numpy().tolist()}")
    return compare(mapped, looped, weights, graphs)


if __name__ == "__main__":
    main()
