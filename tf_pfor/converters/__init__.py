"""The converters: a room for each part of TensorFlow's API, in which a file is a topic.

Importing this package registers all of them: each room imports its files without an underscore,
which register. Converters may import `layouts`, `core` and `_tf`. They may import other rooms of
converters as tests/project/test_structure.py draws it. Only the top of the package imports them. A
converter that stands in no room does not belong here.
"""

from tf_pfor.converters import (
    arrays,
    control_flow,
    lists,
    math,
    nn,
    parsing,
    ragged,
    sparse,
    state,
    strings,
)

__all__ = [
    "arrays",
    "control_flow",
    "lists",
    "math",
    "nn",
    "parsing",
    "ragged",
    "sparse",
    "state",
    "strings",
]
