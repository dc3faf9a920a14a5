"""Shapes and axes for converters: ints where sizes are known, tensors where they are not."""

from tf_pfor.core.shapes import (
    Lead,
    expand_to_rank,
    fold,
    inner_dims,
    leading,
    move_axis,
    product,
    product_static,
    rank_of,
    reshaped,
    stacked_dims,
    transpose,
    unfold,
)

__all__ = [
    "Lead",
    "expand_to_rank",
    "fold",
    "inner_dims",
    "leading",
    "move_axis",
    "product",
    "product_static",
    "rank_of",
    "reshaped",
    "stacked_dims",
    "transpose",
    "unfold",
]
