"""Lookup tables: finds and inserts of all iterations at once (StringLookup, IntegerLookup ...)."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from tf_pfor.converters.math._families import run_once, table
from tf_pfor.converters.state._state import once
from tf_pfor.core.call import Call
from tf_pfor.core.errors import CannotVectorize
from tf_pfor.core.registry import ALWAYS, RegisterPFor
from tf_pfor.core.shapes import fold, unfold
from tf_pfor.core.values import Value

run_once(table("LookupTableExportV2 LookupTableSizeV2"))


@RegisterPFor("LookupTableFindV2", ALWAYS)
def find(call: Call, table_handle: Value, keys: Value, default_value: Value) -> Any:
    """One find, of keys [n * b, ...]: some tables take vectors only."""
    if default_value.is_stacked:
        raise CannotVectorize("'default_value' differs between iterations")
    if not keys.is_stacked:
        return Value.unstacked(call.rebuild())
    if not keys.inner_rank:
        return call.rebuild()
    made = call.rebuild(keys=fold(call, keys))
    shape = call.output_shape()
    if shape is not None:
        made.set_shape([None, *shape[1:]])
        return unfold(call, made, keys)
    with call.emit.graph.as_default():  # [n, b] and what a value has
        full = tf.concat([tf.shape(keys.tensor)[:2], tf.shape(made)[1:]], 0)
    return call.emit("Reshape", made, full)


@RegisterPFor("LookupTableInsertV2", ALWAYS)
def insert(call: Call, table_handle: Value, keys: Value, values: Value) -> None:
    """One insert, in the order of the iterations: of equal keys the last one stays."""
    if keys.is_stacked or values.is_stacked:
        call.rebuild(keys=_flat(call, keys, keys), values=_flat(call, values, keys))
    else:
        once(call, lambda: call.rebuild())


@RegisterPFor("LookupTableRemoveV2", ALWAYS)
def remove(call: Call, table_handle: Value, keys: Value) -> None:
    """One removal of the keys of all iterations."""
    if keys.is_stacked:
        call.rebuild(keys=_flat(call, keys, keys))
    else:
        once(call, lambda: call.rebuild())


def _flat(call: Call, value: Value, keys: Value) -> tf.Tensor:
    """[n, b, ...] -> [n * b, ...], where there are several keys in each iteration."""
    return fold(call, value) if keys.inner_rank else call.stacked(value)
