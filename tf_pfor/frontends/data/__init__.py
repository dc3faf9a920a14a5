"""tf.data: functions of one element that run on whole batches (docs/data.md).

``Dataset.map(fn).batch(n)`` calls ``fn`` once for each element. Here the elements are batched
first, and a vectorized ``fn`` is mapped over the batches.
"""

from tf_pfor.frontends.data._explained import explain
from tf_pfor.frontends.data._failures import Failure, find_failure
from tf_pfor.frontends.data._options import BatchOptions, RowOptions
from tf_pfor.frontends.data._transformations import filter_map_and_batch, map_and_batch
from tf_pfor.frontends.data._vectorized import vectorize

__all__ = [
    "BatchOptions",
    "Failure",
    "RowOptions",
    "explain",
    "filter_map_and_batch",
    "find_failure",
    "map_and_batch",
    "vectorize",
]
