"""Lines of comma-separated values: each element by itself."""

from __future__ import annotations

from typing import Any

from tf_pfor.converters.parsing._batches import need_packed, same_for_all
from tf_pfor.converters.ragged._forms import from_packed
from tf_pfor.core.call import Call
from tf_pfor.core.registry import RegisterPFor
from tf_pfor.core.values import Value
from tf_pfor.layouts.ragged import Ragged
from tf_pfor.layouts.ragged_rules import ragged_rule


@RegisterPFor(
    "DecodeCSV",
    ("records",),
    attrs=("OUT_TYPE", "field_delim", "use_quote_delim", "na_value", "select_cols"),
)
def decode_csv(call: Call, records: Value, *_: object) -> Any:
    """Lines of any shape: each column has that shape."""
    return call.rebuild(records=records.tensor)


@ragged_rule("DecodeCSV")
def decode_csv_of_ragged(call: Call, records: Ragged, *_: object) -> Any:
    """The lines, as many as each row has."""
    same_for_all(call, "record_defaults")
    need_packed(call)
    made = call.rebuild(records=records.tensor)
    columns = made if isinstance(made, list) else [made]
    return [from_packed(call, x, records.sizes, k) for k, x in enumerate(columns)]
