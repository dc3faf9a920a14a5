"""``tf_pfor.optimize``: loops over independent trips become one pass over all of them."""

from tf_pfor.frontends.loops._function import OptimizedFunction, optimize
from tf_pfor.frontends.loops._report import LoopRecord, LoopReport

__all__ = ["LoopRecord", "LoopReport", "OptimizedFunction", "optimize"]
