"""Converters of ops that move elements: shapes, slices, gathers, sorts.

`_indexing` tells where an index comes from and reads by it. It may import `converters/math`
and below; `converters/sparse` and control flow may import it. What computes with the elements
belongs into `converters/math`.
"""

from tf_pfor.converters.arrays import (
    blocks,
    diagonals,
    gather_scatter,
    joining,
    padding,
    segment,
    shape_ops,
    slicing,
    sorting,
    xla_moves,
    xla_slices,
)

__all__ = [
    "blocks",
    "diagonals",
    "gather_scatter",
    "joining",
    "padding",
    "segment",
    "shape_ops",
    "slicing",
    "sorting",
    "xla_moves",
    "xla_slices",
]
