"""Converters of ops that move elements: shapes, slices, gathers, sorts.

`_indexing` tells where an index comes from and reads by it. It may import `converters/math`
and below; `converters/sparse` and control flow may import it. What computes with the elements
belongs into `converters/math`.
"""

from tf_pfor.converters.arrays import blocks as blocks
from tf_pfor.converters.arrays import diagonals as diagonals
from tf_pfor.converters.arrays import gather_scatter as gather_scatter
from tf_pfor.converters.arrays import joining as joining
from tf_pfor.converters.arrays import padding as padding
from tf_pfor.converters.arrays import segment as segment
from tf_pfor.converters.arrays import shape_ops as shape_ops
from tf_pfor.converters.arrays import slicing as slicing
from tf_pfor.converters.arrays import sorting as sorting
from tf_pfor.converters.arrays import xla_moves as xla_moves
from tf_pfor.converters.arrays import xla_slices as xla_slices
