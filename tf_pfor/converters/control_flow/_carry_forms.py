"""Loop variables that a loop carries in another form than the body has them."""

from __future__ import annotations

import tensorflow as tf

from tf_pfor import _tf
from tf_pfor.converters.control_flow._accumulators import find_accumulator
from tf_pfor.converters.control_flow._carries import Plan
from tf_pfor.converters.control_flow._loop_variables import has_items
from tf_pfor.converters.lists._capacity import NO_BOUND, lacks_room
from tf_pfor.converters.lists._list_rows import dense
from tf_pfor.converters.lists._lists import stack_list, swap
from tf_pfor.core.call import Call
from tf_pfor.core.errors import Refused
from tf_pfor.core.values import Layout, Shape, Value, known_dims
from tf_pfor.layouts import row_major


def collect_factors(plan: Plan) -> None:
    """Collects factors of the products that trips add up: one product after the loop."""
    length = plan.call.loop.static_length
    for c in plan.carries:
        if (
            c.layout is not Layout.STACKED
            or c.repeats
            or plan.cond.graph.inputs[c.index].consumers()
        ):
            continue
        found = find_accumulator(plan.body.graph, c.index)
        if found is not None:
            layouts = plan.body.layouts(found.tensors, plan.as_seen(), length)
            found.settle(layouts, may_differ=plan.is_variant)
            c.factors, c.layout = found, Layout.STACKED_LIST


def store_by_row(plan: Plan, *, leaving: bool) -> None:
    """Stores by row the arrays and lists of which the body reads and writes single items.

    This is not for a loop that must have static shapes: a read is a gather from a list.

    Args:
      plan: the plan of the loop.
      leaving: whether rows leave the loop at different times, and take their tensors along. Then it
        pays also for arrays whose items are at the same place in all rows.
    """
    for c in plan.carries:
        arg, graph = plan.args[c.index], plan.body.graph
        if c.repeats or plan.cond.graph.inputs[c.index].consumers():
            continue
        if not has_items(c, arg, graph):
            continue
        places = row_major.accesses(graph, c.index)
        if places is None:
            continue
        if c.is_list or not leaving:
            length = plan.call.loop.static_length
            found = plan.body.layouts(places, plan.as_seen(), length)
            if all(layout is Layout.UNSTACKED for layout in found):
                continue
        item = _tf.list_element(graph.inputs[c.index]) if c.is_list else None
        c.layout = Layout.BY_ROW
        shape = None if item is None else tuple(item[1].as_list())
        plan.by_row[c.index] = _items_by_row(plan.call, arg, shape)


def require_room(plan: Plan) -> None:
    """The lists of XLA have a size: how many items a loop pushes at most must be known."""
    if not _tf.in_xla_context(plan.call.emit.graph):
        return
    for c in plan.carries:
        if c.repeats is None and lacks_room(plan.args[c.index], plan.body.graph, c.index):
            raise Refused(NO_BOUND)


def _items_by_row(call: Call, value: Value, item: Shape = None) -> Value:
    """A stacked array, or a list whose items have the static shape ``item``, with items by row."""
    if value.dtype != tf.variant:
        whole = Value.stacked(call.stacked(value)).with_inner_shape(value.inner_shape)
        return row_major.of_array(whole, call.loop, call.emit)
    value = stack_list(call, value)
    shape = call.emit.shape_vector([call.loop.length, *known_dims(item)])
    whole = swap(call, dense(call, value, shape, may_pad=False))  # [n, T, ...]
    count = call.emit("TensorListLength", value.tensor)
    return row_major.of_items(value, whole, count, call.loop, call.emit)
