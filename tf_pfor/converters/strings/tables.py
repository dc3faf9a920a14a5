"""Lookup tables with rows of different shapes: the keys of all rows at once."""

from __future__ import annotations

from typing import Any

from tf_pfor.core.call import Call
from tf_pfor.core.errors import CannotVectorize
from tf_pfor.core.values import Value
from tf_pfor.layouts.ragged import Ragged, same_sizes
from tf_pfor.layouts.ragged_rules import ragged_rule


@ragged_rule("LookupTableFindV2")
def find(call: Call, table_handle: Value, keys: Value, default_value: Value) -> Any:
    """One find of the keys of all rows."""
    if default_value.is_stacked or not isinstance(keys, Ragged) or not call.uses_packed:
        raise CannotVectorize("'default_value' differs between iterations")
    made = call.rebuild(keys=keys.tensor)
    if made.shape.rank is None:  # the default has the shape of a value
        if keys.tensor.shape.rank != 1:
            raise CannotVectorize("whether its keys are vectors is not known")
        made.set_shape(keys.tensor.shape.concatenate(default_value.inner_shape))
    return Ragged.packed(made, keys.sizes)


@ragged_rule("LookupTableInsertV2")
def insert(call: Call, table_handle: Value, keys: Value, values: Value) -> None:
    """One insert, in the order of the iterations: of equal keys the last one stays."""
    if not isinstance(keys, Ragged) or not isinstance(values, Ragged) or not call.uses_packed:
        raise CannotVectorize("the keys, or the values, are as many in all iterations")
    if not same_sizes(keys.sizes, values.sizes):
        raise CannotVectorize("the keys and the values are not known to be of one number")
    call.rebuild(keys=keys.tensor, values=values.tensor)


@ragged_rule("LookupTableRemoveV2")
def remove(call: Call, table_handle: Value, keys: Value) -> None:
    """One removal of the keys of all iterations."""
    call.require_packed("the keys")
    call.rebuild(keys=keys.tensor)
