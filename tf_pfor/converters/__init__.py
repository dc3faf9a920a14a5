"""The converters: a room for each part of TensorFlow's API, in which a file is a topic.

Importing this package registers all of them: each room imports its files without an underscore,
which register. Converters may import `layouts`, `core` and `_tf`. They may import other rooms of
converters as tests/project/test_structure.py draws it. Only the top of the package imports them. A
converter that stands in no room does not belong here.
"""

from tf_pfor.converters import arrays as arrays
from tf_pfor.converters import control_flow as control_flow
from tf_pfor.converters import lists as lists
from tf_pfor.converters import math as math
from tf_pfor.converters import nn as nn
from tf_pfor.converters import parsing as parsing
from tf_pfor.converters import ragged as ragged
from tf_pfor.converters import sparse as sparse
from tf_pfor.converters import state as state
from tf_pfor.converters import strings as strings
