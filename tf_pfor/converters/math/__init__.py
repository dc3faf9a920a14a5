"""Converters of arithmetic: elementwise, reductions, products, algebra.

`_families` has the makers of one-line rules, which all rooms of converters use. It may import
`converters/lists` and below (sums of lists are sums); the rooms beside and above may import
it. What only moves elements belongs into `converters/arrays`.
"""

from tf_pfor.converters.math import (
    elementwise,
    fft,
    linalg,
    matmul,
    reductions,
    sums,
    xla_products,
    xla_reductions,
)

__all__ = [
    "elementwise",
    "fft",
    "linalg",
    "matmul",
    "reductions",
    "sums",
    "xla_products",
    "xla_reductions",
]
