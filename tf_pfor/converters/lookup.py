"""Lookup tables: finds and inserts of all iterations at once (StringLookup, IntegerLookup ...)."""

from __future__ import annotations

from typing import Any

from tf_pfor.accesses import changes_what_it_reads
from tf_pfor.call import Call
from tf_pfor.converters._families import run_once, table
from tf_pfor.converters._state import once
from tf_pfor.errors import CannotVectorize, Refused
from tf_pfor.registry import ALWAYS, RegisterPFor
from tf_pfor.values import Value

run_once(table("LookupTableExportV2 LookupTableSizeV2"))


@RegisterPFor("LookupTableFindV2", ALWAYS)
def find(call: Call, table_handle: Value, keys: Value, default_value: Value) -> Any:
    """One find: a table takes keys of any shape."""
    if default_value.is_stacked:
        raise CannotVectorize("'default_value' differs between iterations")
    made = call.rebuild()
    return made if keys.is_stacked else Value.unstacked(made)


@RegisterPFor("LookupTableInsertV2", ALWAYS)
def insert(call: Call, table_handle: Value, keys: Value, values: Value) -> None:
    """One insert, in the order of the iterations: of equal keys the last one stays."""
    if changes_what_it_reads(call.op, call.memo):
        raise Refused("what it inserts into a table depends on what that table holds")
    if keys.is_stacked or values.is_stacked:
        call.rebuild(keys=call.stacked(keys), values=call.stacked(values))
    else:
        once(call, lambda: call.rebuild())


@RegisterPFor("LookupTableRemoveV2", ALWAYS)
def remove(call: Call, table_handle: Value, keys: Value) -> None:
    """One removal of the keys of all iterations."""
    if changes_what_it_reads(call.op, call.memo):
        raise Refused("what it removes from a table depends on what that table holds")
    if keys.is_stacked:
        call.rebuild()
    else:
        once(call, lambda: call.rebuild())
