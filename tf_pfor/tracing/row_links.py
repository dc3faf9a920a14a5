"""Rows as derivatives see them: a body may ask for a gradient by a tensor outside of the map.

An example is ``tf.gradients(loss, w)`` in a body, where ``loss`` is a row of ``losses`` that were
computed from ``w`` outside. It goes from the row to ``losses``, and on through the outer graph. The
same holds for a tape that is still recording around the map. A row is a placeholder of the body's
graph, which no derivative would leave. Here the row is linked with the tensor that it is a row of.
"""

from __future__ import annotations

import functools
import types
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import tensorflow as tf

from tf_pfor import _tf
from tf_pfor._tf._custom_gradients import has_gradient

_MOST = 10_000  # objects that are looked at in search of a tape


def may_be_needed(fn: Callable[..., Any], outside: Sequence[tf.Tensor | None]) -> bool:
    """Whether a derivative that is taken in a body may lead to what its arguments are rows of.

    Args:
      fn: the function of one iteration. It can ask a tape only if it refers to one.
      outside: the tensors whose rows its arguments are.
    """
    if not any(t is not None and has_gradient(t) for t in outside):
        return False
    return _in_session_graph() or (_tf.may_record_gradients() and _refers_to_a_tape(fn))


def linked(row: tf.Tensor, whole: tf.Tensor | None, index: tf.Tensor) -> tf.Tensor:
    """A row of the body whose derivatives go on to the tensor that it is a row of.

    Args:
      row: the placeholder of the body.
      whole: the tensor outside, of which ``row`` is row ``index``; None if there is none to link.
      index: int32 scalar, the iteration number.
    """
    if whole is None or not has_gradient(whole):
        return row
    if _in_session_graph():  # tf.gradients looks at the ops of the graphs
        return tf.gather(whole, index)

    def backward(upstream: tf.Tensor) -> list[Any]:
        return [tf.scatter_nd(index[None, None], upstream[None], tf.shape(whole))]

    _tf.record.record_operation_backprop_only("PforRow", [row], [whole], backward)
    return row


def _refers_to_a_tape(fn: Callable[..., Any]) -> bool:
    """Whether a tape is among what a function refers to: closures, globals, attributes, items."""
    todo: list[Any] = [fn]
    seen: dict[int, Any] = {}
    while todo and len(seen) < _MOST:
        x = todo.pop()
        if isinstance(x, tf.GradientTape):
            return True
        if id(x) in seen:
            continue
        seen[id(x)] = x
        if isinstance(x, types.FunctionType):
            todo += [c.cell_contents for c in x.__closure__ or () if not _is_empty(c)]
            todo += [x.__globals__.get(name) for name in x.__code__.co_names]
            todo += x.__defaults__ or ()
        elif isinstance(x, types.MethodType):
            todo += [x.__func__, x.__self__]
        elif isinstance(x, functools.partial):
            todo += [x.func, *x.args, *x.keywords.values()]
        elif isinstance(x, Mapping):
            todo += x.values()
        elif isinstance(x, (list, tuple)):
            todo += x
        elif not isinstance(x, (type, types.ModuleType, tf.Tensor, tf.Variable)):
            todo += getattr(x, "__dict__", {}).values()
    return False


def _is_empty(cell: types.CellType) -> bool:
    try:
        return cell.cell_contents is None
    except ValueError:
        return True


def _in_session_graph() -> bool:
    """Whether the graph around the body is one of TensorFlow 1, which a session runs."""
    graph: tf.Graph = tf.compat.v1.get_default_graph()
    while getattr(graph, "outer_graph", None) is not None:
        graph = graph.outer_graph
    with graph.as_default():
        in_function = tf.inside_function()
    return not (in_function or tf.compat.v1.executing_eagerly_outside_functions())
