"""Converters of TensorLists and Optionals: TensorArrays, kept tensors.

The room has lists whose length differs per row, and lists and optionals that are kept in lists. It
may import `converters/analysis`, `layouts` and `core`; all other rooms of converters may import it.
Code that carries lists through loops and branches belongs into `converters/control_flow`.
"""

from tf_pfor.converters.lists import optional as optional
from tf_pfor.converters.lists import tensor_list as tensor_list
from tf_pfor.converters.lists import tensor_list_items as tensor_list_items
from tf_pfor.converters.lists import tensor_list_pieces as tensor_list_pieces
