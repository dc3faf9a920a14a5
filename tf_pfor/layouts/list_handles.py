"""Ops that pass lists on without looking inside: vectors of lists are made and taken apart."""

from __future__ import annotations

from collections.abc import Sequence

import tensorflow as tf

from tf_pfor import _tf
from tf_pfor.core.stacked_lists import StackedList
from tf_pfor.core.values import Value


def only_passes_lists(op: tf.Operation, schema: _tf.Schema, values: Sequence[Value]) -> bool:
    """True for Pack, StridedSlice, Unpack ... of lists of stacked elements.

    They stay as they are: a list handle is a scalar for the user and for us.

    Args:
      op: the op of the body.
      schema: the schema of its op type.
      values: all its inputs.
    """
    lists = [v for v in values if isinstance(v, StackedList)]
    if not lists or schema.is_stateful or "func" in schema.attr_types.values():
        return False
    if op.type.startswith("TensorList") or any(t.dtype != tf.variant for t in op.outputs):
        return False
    if any(v.rows is not None for v in lists):
        return False
    for value in values:  # the other inputs say where, and are the same for all
        is_list = isinstance(value, StackedList)
        if is_list != (value.dtype == tf.variant) or (value.is_stacked and not is_list):
            return False
    ranks = [t.shape.rank for t in op.outputs] + [v.inner_rank for v in lists]
    return any(rank != 0 for rank in ranks)
