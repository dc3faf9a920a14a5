"""Traced bodies become ops for all rows at once, and their results what the caller wants."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from tf_pfor import _tf
from tf_pfor.api.inputs import Element, bound_walker
from tf_pfor.core.emit import Dim
from tf_pfor.core.errors import ArgumentError, NotVectorizableError
from tf_pfor.core.loop import Block
from tf_pfor.core.report import Recorder, refusal
from tf_pfor.core.settings import Settings
from tf_pfor.core.values import Value
from tf_pfor.fallback import nested_maps
from tf_pfor.layouts import quick
from tf_pfor.layouts.ragged import Ragged, RowShape
from tf_pfor.layouts.row_sizes import RowSizes
from tf_pfor.tracing.trace import Body
from tf_pfor.walker.walker import Failed, Walker


def convert_body(
    body: Body,
    elements: Sequence[Element],
    n: Dim,
    settings: Settings,
    recorder: Recorder,
    block: Block | None = None,
    invariant: frozenset[int] = frozenset(),
    shapes: frozenset[int] = frozenset(),
) -> list[Any]:
    """Converts a traced body in the current graph.

    Args:
      body: the body.
      elements: the elements of its placeholders.
      n: the number of iterations.
      settings: the settings that the caller chose.
      recorder: told what happened to each op.
      block: the place of the iterations among all; None when these are all.
      invariant: the leaves that must be loop-invariant and are returned unstacked.
      shapes: the leaves of which only the largest of all rows is wanted, which may be known without
        rows. They have one row then.

    Returns:
      For each leaf of the body's structure: a stacked tensor, an operation or None.

    Raises:
      NotVectorizableError: if ops cannot be converted; the message lists all of them.
    """

    def attempt(settings: Settings, recorder: Recorder) -> list[Any]:
        walker = bound_walker(body, elements, n, settings, recorder, block)
        try:
            values = iter(walker.convert(body.outputs, body.operations))
            return [
                _result(walker, next(values), i in invariant, i in shapes, i)
                if isinstance(leaf, tf.Tensor)
                else (walker.group(leaf) if isinstance(leaf, tf.Operation) else None)
                for i, leaf in enumerate(body.leaves)
            ]
        except Failed:
            raise refusal(recorder) from None
        except RecursionError:
            raise NotVectorizableError(
                "The body has so many loops, conditionals and ragged operations that wait for each "
                "other that Python's recursion limit ends the conversion. Take fewer derivatives "
                "of them in one map, or call the function for each row in a Python loop."
            ) from None

    if block is not None or invariant:
        return attempt(settings, recorder)
    return nested_maps.convert_body(body, elements, n, settings, recorder, attempt)


def _result(walker: Walker, value: Value, is_invariant: bool, is_shape: bool, position: int) -> Any:
    """A result as it leaves: stacked, or unstacked where the caller asked for that."""
    if is_shape:
        return _shape_of(walker, value)
    if not is_invariant:
        return _tensor_of(walker, value)
    if value.is_stacked:
        raise ArgumentError(
            f"out_axes is None for output {position} (in the order of tf.nest.flatten), which "
            "depends on the mapped arguments. Give it an axis."
        )
    return value.tensor


def _shape_of(walker: Walker, value: Value) -> tf.Tensor:
    """Shapes, in one row where it is known without rows which is the largest."""
    if isinstance(value, RowShape):
        with walker.emit.as_default():
            found = [quick.largest(s.tensor) if isinstance(s, RowSizes) else s for s in value.sizes]
            return tf.stack([[tf.cast(s, value.dtype) for s in found]])
    if value.is_stacked:
        return _tensor_of(walker, value)
    return walker.emit("ExpandDims", value.tensor, np.int32(0))


def _tensor_of(walker: Walker, value: Value) -> Any:
    """A stacked result; one whose shape differs between iterations as the caller wants it."""
    chosen = walker.settings.out_shapes
    if isinstance(value, Ragged):
        if chosen != "padded" and _tf.in_xla_context(walker.emit.graph):
            raise NotVectorizableError(
                f"{value.name} is a result whose shape may differ between iterations, which XLA "
                "does not know. Reduce it, say its shape with tf.ensure_shape, choose "
                'out_shapes="padded", or leave out jit_compile.'
            )
        with walker.emit.graph.as_default():
            if chosen == "padded":
                return value.trimmed()
            if chosen == "parts" or (chosen == "ragged" and not value.is_full):
                return value.ragged_tensor()
    return walker.tile(value).tensor
