"""What a mask selects, where it is reduced or added up by segments in the end.

``tf.reduce_mean(tf.boolean_mask(x, mask))`` selects (``Where``) as many slices in each row as its
mask says; so does TensorFlow's gradient of a lookup in joined matrices, ``tf.gather(tf.concat(...),
ids)``. All slices are kept, beside a mask of those that count (``masked_selections``): the others
become zeros before they are added up, or get the segment -1, which ``UnsortedSegmentSum`` drops.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import tensorflow as tf

from tf_pfor import _tf
from tf_pfor._tf import _graphs
from tf_pfor.core import regions
from tf_pfor.core.call import Call
from tf_pfor.core.checked import checked
from tf_pfor.core.conversion import Conversion, Inputs
from tf_pfor.core.errors import CannotVectorize
from tf_pfor.core.regions import Region, key
from tf_pfor.core.registry import REGISTRY, Outcome
from tf_pfor.core.report import Recorder
from tf_pfor.core.values import Results, dims, is_static
from tf_pfor.fallback import uneven_regions
from tf_pfor.layouts.masked_selections import all_slices

_UNDER_XLA = (
    "under jit_compile a slice has one length: a window x[k:k + 3] must begin inside of the "
    "tensor, by tf.clip_by_value(k, 0, size - 3); for x[:k] mask the rest, by "
    "tf.where(tf.range(size) < k, x, 0); or leave out jit_compile"
)
# Ops whose results cannot be stacked, but may be padded.
SOURCES = ("StridedSlice", "TensorListStack", "Where")


def masked(
    op: tf.Operation,
    inputs: Inputs,
    walker: Conversion,
    reason: str,
    otherwise: Callable[[], Any] | None = None,
) -> tuple[Results | None, str]:
    """What one of the ``SOURCES`` becomes without a loop, or None; and why it needs one.

    Args:
      op: the source.
      inputs: its inputs.
      walker: what converts it.
      reason: why no rule takes it.
      otherwise: makes it where no mask can be beside it, of a ``PastEdge``.
    """
    try:
        return convert_selection(op, walker), reason
    except CannotVectorize as why:
        reason = f"{reason}; {why}" if op.type in REGISTRY else str(why)
    is_known = is_static(dims(op.outputs[0]))  # by tf.ensure_shape or set_shape
    if op.type == "StridedSlice" and not is_known and _tf.in_xla_context(walker.emit.graph):
        walker.recorder.add(op, Outcome.REJECTED, f"{reason}; {_UNDER_XLA}")
        raise walker.Failed
    if otherwise is None:
        return None, reason
    results = checked(Call(op, inputs, walker), None, otherwise())
    walker.recorder.add(op, Outcome.VECTORIZED, "checked when it runs: it is inside of the tensor")
    return results, reason


def convert_selection(first: tf.Operation, walker: Conversion) -> Results:
    """What one of the ``SOURCES`` and all that depends on its size become, without a loop.

    Args:
      first: the source, all that it reads being converted.
      walker: what converts it.

    Raises:
      CannotVectorize: if something else is done with what it selects.
    """
    members, uneven, _ = uneven_regions.spread(first, walker, in_loop=False)
    region = Region.read(regions.in_order(members), walker, uneven)
    stacked = {key(op.inputs[0]) for op in region.ops if op.type == "TensorListStack"}
    read = {key(t) for op in region.ops for t in op.inputs if op.type != "TensorListStack"}
    handles = [t for t in region.inputs if t.dtype in (tf.resource, tf.variant)]
    only_stacked = all(key(t) in stacked and key(t) not in read for t in handles)
    if region.uneven or region.is_stateful or not only_stacked:
        raise CannotVectorize("what it selects is a result, or is read with a list or a variable")
    if region.own_gradient is not None:
        raise CannotVectorize("what it selects, or how much, goes through a tf.custom_gradient")
    specs = [tf.TensorSpec(t.shape, t.dtype) for t in region.inputs]
    graph = _graphs.trace("all_slices", lambda *x: all_slices(region, uneven, x), specs)
    needs = [*(t.op for t in region.inputs), *region.waits_for]
    with uneven_regions.being_converted(members, walker):
        walker.visit(needs)
    if walker.failed(needs):
        raise walker.Failed
    if walker.is_done(first):  # with another one, which needs it
        return [walker.value_of(t) for t in first.outputs]
    mark = len(walker.emit.operations)
    child = walker.enter(walker.loop, walker.emit, Recorder())
    child.settings = dataclasses.replace(walker.settings, fallback="error")
    for placeholder, tensor in zip(graph.inputs, region.inputs, strict=True):
        value = walker.value_of(tensor)
        assert value is not None
        child.bind(placeholder, value)
    try:
        with walker.emit.graph.control_dependencies(walker.done(region.waits_for)):
            made = child.convert(graph.outputs)
    except walker.Failed:
        raise CannotVectorize("what is done with what it selects cannot be vectorized") from None
    new = [op for op in region.ops if not walker.is_done(op)]
    for tensor, value in zip(region.outputs, made):
        walker.bind(tensor, value)
    for op in new:
        walker.recorder.add(op, Outcome.VECTORIZED, "with a mask in place of what it selects")
    walker.became(new, walker.emit.operations[mark:])
    walker.hide(new, region.hidden(new))
    return [walker.value_of(t) for t in first.outputs]
