"""Lines of comma-separated values: each element by itself."""

from __future__ import annotations

from typing import Any

from tf_pfor.core.call import Call
from tf_pfor.core.registry import RegisterPFor
from tf_pfor.core.values import Value


@RegisterPFor(
    "DecodeCSV",
    ("records",),
    attrs=("OUT_TYPE", "field_delim", "use_quote_delim", "na_value", "select_cols"),
)
def decode_csv(call: Call, records: Value, *_: object) -> Any:
    """Lines of any shape: each column has that shape."""
    return call.rebuild(records=records.tensor)
