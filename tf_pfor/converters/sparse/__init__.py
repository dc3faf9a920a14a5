"""Converters of sparse and ragged tensors as ops of TensorFlow see them.

They are parts (indices, values, splits), which keep their own layouts. It may import
`converters/arrays` and below; nobody but control flow may import it. Values whose sizes
differ between rows are a layout and belong into `layouts`.
"""

from tf_pfor.converters.sparse import counts, ragged, sparse

__all__ = [
    "counts",
    "ragged",
    "sparse",
]
