"""Numbers that a graph computes of constants, by ops or loops that no static analysis follows."""

from __future__ import annotations

import numpy as np
import tensorflow as tf

from tf_pfor import _tf

_MOST_OPS = 100
_MOST_NUMBERS = 32


def evaluated(tensor: tf.Tensor) -> np.ndarray | None:
    """A few integers, as an axis is, computed now where nothing but constants is read for them.

    ``tf.norm`` finds out in a ``tf.map_fn`` what axes are left, for example.
    """
    if not tensor.dtype.is_integer or (tensor.shape.num_elements() or 0) > _MOST_NUMBERS:
        return None
    ops = _made_of_constants(tensor) if tf.is_symbolic_tensor(tensor) else None
    if ops is None:
        return None
    graph: tf.Graph = tensor.graph
    part = graph.as_graph_def()
    nodes = [node for node in part.node if node.name in ops]
    del part.node[:]
    part.node.extend(nodes)
    for node in part.node:  # where a node stands may be said by one that is left out
        node.attr.pop("_class", None)
    with tf.init_scope():
        if not tf.executing_eagerly():
            return None
        run = tf.compat.v1.wrap_function(
            lambda: tf.graph_util.import_graph_def(part, return_elements=[tensor.name], name=""), []
        )
        try:
            found = run()[0].numpy()
        except tf.errors.OpError:  # it fails when it runs, and says so there
            return None
    return found if found.size <= _MOST_NUMBERS else None


def _made_of_constants(tensor: tf.Tensor) -> set[str] | None:
    """The names of the ops that make a tensor, None if one reads something else."""
    seen, ahead = {tensor.op}, [tensor.op]
    while ahead:
        op = ahead.pop()
        schema = _tf.op_def_registry.get(op.type)
        if schema is None or schema.is_stateful or op.type.startswith("Placeholder"):
            return None
        more = {*(t.op for t in op.inputs), *op.control_inputs} - seen
        seen |= more
        ahead += more
        if len(seen) > _MOST_OPS:
            return None
    return {op.name for op in seen}
