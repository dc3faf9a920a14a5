"""The ops of a graph, and of the functions that they call."""

from __future__ import annotations

from collections.abc import Iterator

import tensorflow as tf

from tf_pfor import _tf


def all_ops(*graphs: tf.Graph) -> Iterator[tf.Operation]:
    """The ops of graphs and of all functions that they call, directly or not, each once."""
    todo, seen = list(graphs), set[int]()
    while todo:
        graph = todo.pop()
        if id(graph) in seen:
            continue
        seen.add(id(graph))
        for op in graph.get_operations():
            yield op
            todo += _tf.functions_of(op)
