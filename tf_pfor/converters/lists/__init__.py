"""Converters of TensorLists and Optionals: TensorArrays, kept tensors.

Lists of rows with lengths of their own, and lists and optionals that are kept in lists. It
may import `converters/analysis`, `layouts` and `core`; all other rooms of converters may
import it. How loops and branches carry lists belongs into `converters/control_flow`.
"""

from tf_pfor.converters.lists import (
    optional,
    tensor_list,
    tensor_list_items,
    tensor_list_pieces,
)

__all__ = [
    "optional",
    "tensor_list",
    "tensor_list_items",
    "tensor_list_pieces",
]
