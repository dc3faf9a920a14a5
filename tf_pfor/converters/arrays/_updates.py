"""Updates of some places of an array.

An update of a loop variable by the rows that make a trip leaves the other rows as they are. No
select of whole arrays is needed: in the other rows the update writes the old items again.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tensorflow as tf

from tf_pfor import _tf
from tf_pfor.core.call import Call
from tf_pfor.core.emit import Emitter
from tf_pfor.core.values import Stacked, Value
from tf_pfor.layouts.row_reads import has_policy

_GRADIENT = "TfPforUpdateOfRows"


def updated(
    call: Call,
    x: Value,
    places: tf.Tensor,
    new: tf.Tensor,
    write: Callable[[tf.Tensor, tf.Tensor], tf.Tensor],
) -> Any:
    """``x`` after an update of the items at ``places``.

    Args:
      call: the op.
      x: the array.
      places: [n, ..., m], the number of the row and then a place in it.
      new: [n, ...], what is written there, or added.
      write: makes the op of a tensor of all rows and of what is written.
    """
    emit, mask = call.emit, call.loop.mask
    source = x.source if isinstance(x, Stacked) else None
    if mask is None or source is None or source.variable is None or has_policy(call):
        return write(call.stacked(x), new)
    whole = source.whole.get()
    if call.op_type.endswith(("Add", "Sub")):
        made = write(whole, emit("Select", mask, new, emit("ZerosLike", new)))
    else:
        made = write(whole, emit("Select", mask, new, emit("GatherNd", whole, places)))
        is_update = not call.op_type.endswith(("Max", "Min"))
        if is_update and _tf.may_record_gradients() and not _tf.in_body(emit.graph):
            made = emit.identities([made, whole, new, places, mask], _GRADIENT)[0]
    # A row that stands in for another may round otherwise: it reads all of what it wrote itself.
    own = lambda: write(call.stacked(x), new)  # noqa: E731
    return call.loop.updatable(made, x.inner_shape, source.variable, own)


@tf.RegisterGradient(_GRADIENT)
def _gradient(op: tf.Operation, upstream: tf.Tensor, *_: object) -> list[tf.Tensor | None]:
    """Zero at the places where rows of the mask have written: the rest is the old array's.

    The gradient of the gather that reads the old items would be an array as large as all rows.
    """
    places, mask = op.inputs[3:]
    here, emit = tf.gather_nd(upstream, places), Emitter()
    zeros = tf.zeros_like(here)
    old = tf.tensor_scatter_nd_update(upstream, places, emit("Select", mask, zeros, here))
    return [None, old, emit("Select", mask, here, zeros), None, None]
