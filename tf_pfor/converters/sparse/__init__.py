"""Converters of sparse and ragged tensors as ops of TensorFlow see them.

They are parts (indices, values, splits), which keep their own layouts, or are rows of their own
number of entries. It may import `converters/ragged` and below; text and control flow may import
it. What a row of its own shape does in ops of dense tensors does not belong here: that is
`converters/ragged`.
"""

from tf_pfor.converters.sparse import (
    counts,
    csr,
    ragged,
    ragged_tensors,
    row_counts,
    rows,
    segments,
    sets,
    sparse,
)

__all__ = [
    "counts",
    "csr",
    "ragged",
    "ragged_tensors",
    "row_counts",
    "rows",
    "segments",
    "sets",
    "sparse",
]
