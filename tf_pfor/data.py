"""tf.data: functions of one element that run on whole batches (docs/data.md)."""

from tf_pfor.frontends.data import (
    BatchOptions,
    Failure,
    RowOptions,
    explain,
    filter_map_and_batch,
    find_failure,
    map_and_batch,
    vectorize,
)

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
