"""Converters of sparse and ragged tensors as ops of TensorFlow see them.

The tensors are parts (indices, values, splits), each with a layout. The number of entries may
differ per row. The room may import `converters/ragged` and below; text and control flow may import
it. Rules of variable-length rows for ops of dense tensors do not belong here: they are in
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
