"""The converters, by topic. Importing this package registers all of them."""

from tf_pfor.converters import (
    elementwise,
    matmul,
    reductions,
    shape_ops,
)

__all__ = ["elementwise", "matmul", "reductions", "shape_ops"]
