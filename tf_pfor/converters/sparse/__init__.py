"""Converters of sparse and ragged tensors as ops of TensorFlow see them.

The tensors are parts (indices, values, splits), each with a layout. The number of entries may
differ per row. The room may import `converters/ragged` and below; text and control flow may import
it. Rules of variable-length rows for ops of dense tensors do not belong here: they are in
`converters/ragged`.
"""

from tf_pfor.converters.sparse import csr as csr
from tf_pfor.converters.sparse import ragged as ragged
from tf_pfor.converters.sparse import ragged_tensors as ragged_tensors
from tf_pfor.converters.sparse import row_counts as row_counts
from tf_pfor.converters.sparse import rows as rows
from tf_pfor.converters.sparse import segments as segments
from tf_pfor.converters.sparse import sets as sets
from tf_pfor.converters.sparse import sparse as sparse
