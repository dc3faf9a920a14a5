"""Converters of conditionals, while loops and function calls.

Rows are partitioned or masked, loops carry what their graphs show to change, lists pass
through both. It may import all other rooms of converters; none of them may import it. What
lists are and how they are read belongs into `converters/lists`.
"""

from tf_pfor.converters.control_flow import calls as calls
from tf_pfor.converters.control_flow import cond as cond
from tf_pfor.converters.control_flow import while_compact as while_compact
from tf_pfor.converters.control_flow import while_loop as while_loop
from tf_pfor.converters.control_flow import while_mask as while_mask
