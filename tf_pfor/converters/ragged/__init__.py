"""Rules for rows of different shapes: what each kind of op does with an axis that differs.

They read and make `layouts/ragged.py: Ragged`. It may import `converters/arrays` and below; nobody
but `parsing`, `sparse` and control flow may import it. An op that has no rule here runs row by
row, its result is ragged again. What TensorFlow calls ragged in the body, ops on values and
splits, does not belong here: that is `converters/sparse`.
"""

from tf_pfor.converters.ragged import (
    blocks,
    convolutions,
    elementwise,
    gather,
    image,
    linalg,
    lists,
    moves,
    numbers,
    padding,
    products,
    reductions,
    scatter,
    sets,
    shapes,
    sized_slices,
    slices,
    suppression,
)

__all__ = [
    "blocks",
    "convolutions",
    "elementwise",
    "gather",
    "image",
    "linalg",
    "lists",
    "moves",
    "numbers",
    "padding",
    "products",
    "reductions",
    "scatter",
    "sets",
    "shapes",
    "sized_slices",
    "slices",
    "suppression",
]
