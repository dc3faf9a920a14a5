"""Lists that conditionals return, of which each row chooses the branch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import tensorflow as tf

from tf_pfor import _tf
from tf_pfor.call import Call
from tf_pfor.converters._kinds import item_shape, kind_of
from tf_pfor.converters._loop_graphs import length_of, source
from tf_pfor.converters._optionals import one_source
from tf_pfor.converters._regions import Region, as_layout
from tf_pfor.errors import CannotVectorize, Refused
from tf_pfor.values import Layout, Value

Element = tuple[tf.DType, tuple[int, ...], int | None]
"""Dtype and static shape of the items of a list, and how many they are, None if unknown."""


def lists_of_branches(
    call: Call, regions: Sequence[Region], optionals: Mapping[int, Any]
) -> tuple[dict[int, int], dict[int, Element]]:
    """The outputs that are lists: those that every branch makes of one argument, and others.

    Branches that write into one list do so one after the other, each in its own rows. Lists that
    branches make by themselves must be equally long; their items are put together.
    """
    threads: dict[int, int] = {}
    made: dict[int, Element] = {}
    for k, output in enumerate(call.op.outputs):
        if output.dtype != tf.variant or k in optionals:
            continue
        thread = one_source(regions, k)
        if thread is not None:
            threads[k] = thread
            continue
        known = [_element(call, region.graph.outputs[k]) for region in regions]
        first = known[0]
        if first is None or first[0] == tf.variant or not first[1].is_fully_defined():
            if _is_for_gradients(regions, k) and _in_xla(call):
                raise Refused(
                    "under jit_compile, a branch has a loop of which a gradient is asked, which "
                    "XLA cannot do for one row either: put the condition into that of the loop, or "
                    "leave out jit_compile"
                )
            raise CannotVectorize(
                "branches that rows choose between make lists of items of unknown shape"
            )
        if any(other is None or other != first for other in known):
            raise CannotVectorize("branches that rows choose between make lists of other items")
        lengths = {length_of(region.graph.outputs[k]) for region in regions}
        if len(lengths - {None}) > 1:
            raise CannotVectorize("branches that rows choose between make lists of other lengths")
        length = next(iter(lengths)) if len(lengths) == 1 else None
        made[k] = (first[0], tuple(first[1].as_list()), length)
    return threads, made


def _is_for_gradients(regions: Sequence[Region], k: int) -> bool:
    """Whether one branch only makes output ``k``, for a gradient."""
    return any(source(r.graph.outputs[k]).op.type == "FakeParam" for r in regions)


def _in_xla(call: Call) -> bool:
    """Whether the map is for XLA, also in a trial."""
    walker = call.walker
    while walker is not None:
        if _tf.in_xla_context(walker.emit.graph):
            return True
        walker = walker.parent
    return False


def _element(call: Call, made: tf.Tensor) -> tuple[tf.DType, tf.TensorShape] | None:
    """Dtype and static shape of the items of a list that a branch makes, None if not known."""
    known = _tf.list_element(made)
    if known is not None and known[1].is_fully_defined():
        return known
    kind = kind_of(call, made)
    return (kind, item_shape(call, made)) if isinstance(kind, tf.DType) else known


def unset_outputs(
    call: Call, regions: Sequence[Region], args: list[Value], layouts: Sequence[Layout]
) -> list[tf.Tensor]:
    """Of each output zeros, or the list that all branches write into."""
    made: list[tf.Tensor] = []
    for k, (output, layout) in enumerate(zip(call.op.outputs, layouts)):
        source = one_source(regions, k)
        if output.dtype == tf.variant and source is not None:
            made.append(as_layout(call, args[source], layout).tensor)
            continue
        if output.dtype == tf.variant or not output.shape.is_fully_defined():
            raise CannotVectorize(
                "under jit_compile, a conditional that has a loop, or is in one and of an unknown "
                "number of rows, returns a list, or what has no static shape"
            )
        lead = [call.loop.length] * (layout is Layout.STACKED)
        made.append(tf.zeros([*lead, *output.shape], output.dtype))
    return made
