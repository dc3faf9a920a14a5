"""Lists of lists whose rows differ in length: what gradients of loops pop.

A loop around a loop keeps, for its gradient, a list of the lists that the inner one has left; a
loop under two tapes one of the lists that it carried. The gradient pops each row's own last one,
which are different lists for different rows: all of them are made one tensor, and each row reads
its own.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import tensorflow as tf

from tf_pfor import _tf
from tf_pfor.call import Call
from tf_pfor.converters._list_rows import dense, known_lengths, own_rows, pick, row_ids
from tf_pfor.converters._lists import (
    declared_shape,
    size_of_rows,
    stack_list,
    swap,
    with_size,
    without_size,
)
from tf_pfor.converters._loop_graphs import is_only_popped, pops
from tf_pfor.emit import Emitter
from tf_pfor.errors import CannotVectorize
from tf_pfor.values import Cell, ListRows, Value

_SAME = frozenset(["AddN", "Identity", "TensorListResize", "ZerosLike"])
_ITEM = {"TensorListPushBack": 1, "TensorListSetItem": 2}  # which input is put into the list
_TAKEN = {"TensorListGetItem": 0, "TensorListPopBack": 1}  # which output is taken out of it


def element_dtype(
    handle: tf.Tensor, around: tf.Operation | None = None, *, depth: int = 0
) -> tf.DType | None:
    """The dtype of the elements of a list, as those say who make or use it.

    TensorFlow does not tell it of a list that was taken out of a list of lists.

    Args:
      handle: the list.
      around: the loop whose body ``handle`` is in, where that is known.
      depth: 0 for a list of elements, 1 for a list of lists of elements, and so on.
    """
    callers = {} if around is None else {handle.graph: around}
    seen: set[Any] = set()
    todo = [(handle, depth)]
    while todo:
        tensor, depth = todo.pop()
        key = (tensor.op, tensor.value_index, depth)
        if key in seen or tensor.dtype != tf.variant:
            continue
        seen.add(key)
        for op in (tensor.op, *tensor.consumers()):
            is_list = tensor.op is op or op.inputs[0] is tensor
            if not depth and is_list and "element_dtype" in _tf.attr_map(op):
                found = tf.as_dtype(op.get_attr("element_dtype"))
                if found != tf.variant:
                    return found
            todo += _related(op, tensor, depth)
            todo += [(t, depth) for t in _across(op, tensor, callers)]
    return None


def _related(op: tf.Operation, tensor: tf.Tensor, depth: int) -> list[tuple[tf.Tensor, int]]:
    """The lists that hold the same elements as ``tensor``, which ``op`` reads or makes."""
    if op.type in _SAME:
        return [(t, depth) for t in (*op.inputs, *op.outputs)]
    if op.type in _ITEM:
        item = op.inputs[_ITEM[op.type]]
        top = depth + 1 if item is tensor else depth
        return [(op.inputs[0], top), (op.outputs[0], top), *([(item, top - 1)] if top else [])]
    if op.type in _TAKEN:
        item = op.outputs[_TAKEN[op.type]]
        top = depth + 1 if item is tensor else depth
        lists = [(op.inputs[0], top), *([(op.outputs[0], top)] if len(op.outputs) > 1 else [])]
        return [*lists, *([(item, top - 1)] if top else [])]
    return []


def _across(op: tf.Operation, tensor: tf.Tensor, callers: dict[Any, Any]) -> list[tf.Tensor]:
    """What ``tensor`` is inside the loops of ``op``, or outside of the one it is in."""
    graph = tensor.graph
    found = [outside for outside, inside in getattr(graph, "captures", ()) if inside is tensor]
    found = [t for t in found if hasattr(t, "op")]
    if graph in callers:
        loop = callers[graph]
        at = [i for i, t in enumerate(graph.inputs) if t is tensor]
        at += [i for i, t in enumerate(graph.outputs) if t is tensor]
        found += [t for i in at for t in (loop.inputs[i], loop.outputs[i])]
    if "While" not in op.type:
        return found
    at = [i for i, t in enumerate(op.inputs) if t is tensor]
    at += [i for i, t in enumerate(op.outputs) if t is tensor]
    for body in _bodies(op):
        callers[body] = op
        for i in at:
            found += [body.inputs[i], body.outputs[i], op.inputs[i], op.outputs[i]]
    return found


def _bodies(op: tf.Operation) -> list[Any]:
    """The body of a loop."""
    return [
        g for g in _tf.functions_of(op) if "While" in op.type and len(g.outputs) == len(op.outputs)
    ]


class Whole:
    """All elements of all lists of a list.

    Attributes:
      handle: the list of lists.
      lengths: int32 [T], of the lists.
      items: [T, J, size, ...], zeros behind the end of a list; None if ``dtype`` is None: nobody
        was seen to read them.
    """

    def __init__(self, emit: Emitter, handle: tf.Tensor, dtype: tf.DType | None):
        self.handle = handle
        if _tf.in_xla_context(emit.graph):
            raise CannotVectorize(
                "under jit_compile, lists of lists differ in length between iterations"
            )
        raw = tf.raw_ops
        with emit.graph.as_default():
            count = raw.TensorListLength(input_handle=handle)

            def each(dtype: tf.DType, read: Any, least: int) -> tf.Tensor:
                """``read`` of all lists: [T, ...], of ``least`` axes if there is no list."""

                def step(t: tf.Tensor, out: tf.TensorArray) -> Any:
                    return t + 1, out.write(t, read(_list_at(handle, t)))

                start = tf.TensorArray(dtype, count, infer_shape=False)
                made = tf.while_loop(lambda t, _: t < count, step, (tf.constant(0), start))[1]
                return tf.cond(count > 0, made.stack, lambda: tf.zeros([0] * least, dtype))

            def stacked(inner: tf.Tensor) -> tf.Tensor:
                shape = raw.TensorListElementShape(input_handle=inner, shape_type=tf.int32)
                whole = raw.TensorListResize(input_handle=inner, size=most)
                return raw.TensorListStack(
                    input_handle=whole, element_shape=shape, element_dtype=dtype
                )

            self.lengths = each(tf.int32, lambda inner: raw.TensorListLength(input_handle=inner), 1)
            self.lengths.set_shape([None])
            most = tf.reduce_max(tf.concat([self.lengths, [0]], 0))
            self.items = None if dtype is None else each(dtype, stacked, 3)

    def read(self, call: Call, source: Value, index: tf.Tensor) -> Value:
        """The list at place t_i of row i (int32 [n])."""
        raw = tf.raw_ops
        with call.emit.graph.as_default():
            rows = ListRows(call.loop.length, lengths=tf.gather(self.lengths, index))
            if self.items is None:  # whoever reads an element gets an error from the kernel
                first = _list_at(self.handle, index[0])
                shape = raw.TensorListElementShape(input_handle=first, shape_type=tf.int32)
                longest = tf.reduce_max(self.lengths)
                made = raw.TensorListReserve(
                    element_shape=shape, num_elements=longest, element_dtype=tf.string
                )
                return Value.stacked_list(made, rows)
            items = tf.convert_to_tensor(self.items)  # [T, J, size, ...]
            perm = tf.concat([[0, 2, 1], tf.range(3, tf.rank(items))], 0)
            at = tf.stack([index, row_ids(call, source)], 1)  # [n, 2]
            items = swap(call, tf.gather_nd(tf.transpose(items, perm), at))  # [J, n, ...]
            made = raw.TensorListFromTensor(tensor=items, element_shape=tf.shape(items)[1:])
        return Value.stacked_list(made, rows)


def _list_at(handle: tf.Tensor, index: tf.Tensor) -> tf.Tensor:
    return tf.raw_ops.TensorListGetItem(
        input_handle=handle,
        index=index,
        element_shape=np.zeros([0], np.int32),
        element_dtype=tf.variant,
    )


def popped_elements(call: Call, graph: Any, position: int, handle: tf.Tensor) -> Cell | None:
    """All elements of a list that a loop only pops, made before the loop; None if not known.

    Args:
      call: the loop.
      graph: of its body.
      position: of the list among the body's inputs.
      handle: the stacked list.
    """
    known, emit = _tf.list_element(handle), call.emit
    if known is None or not known[1].is_fully_defined():
        return None
    dtype, shape = known[0], np.asarray(known[1].as_list(), np.int32)
    if dtype != tf.variant:
        return Cell(None, lambda: emit("TensorListStack", handle, shape, element_dtype=dtype))
    given = graph.inputs[position]
    popped = next(o for o in graph.get_operations() if pops(o, given)).outputs[1]
    found = element_dtype(popped, call.op) or element_dtype(handle, depth=1)
    make: Any = lambda: Whole(emit, handle, found)  # noqa: E731
    return Cell(None, make)


def read_list(call: Call, source: Value, index: tf.Tensor) -> Value:
    """The list that a row pops, for an op whose output 1 it is: at place t_i (int32 [n])."""
    emit = call.emit
    if emit.is_trial:  # only the layout is asked for
        handle = emit("Placeholder", dtype=tf.variant, shape=[])
        return Value.stacked_list(handle, ListRows(call.loop.length, lengths=index))
    dtype = element_dtype(call.op.outputs[1])
    return Whole(emit, source.tensor, dtype).read(call, source, index)


def _are_only_popped(call: Call) -> bool:
    """Whether the body does nothing with the lists of a list of lists but pop their elements."""
    key = "lists of lists are only popped"
    if key not in call.memo:
        walker = call.walker
        while walker.parent is not None:
            walker = walker.parent
        todo, taken = [walker.graph], list[tf.Tensor]()
        for graph in todo:  # grows
            for op in graph.get_operations():
                todo += _tf.functions_of(op)
                if op.type in _TAKEN and op.get_attr("element_dtype") == tf.variant:
                    taken.append(op.outputs[_TAKEN[op.type]])
        call.memo[key] = all(is_only_popped(t) for t in taken)
    return call.memo[key]


def _ends_together(call: Call, item: Value, lengths: tf.Tensor) -> Value:
    """The active rows' lists, as long as the longest: own elements at the end, where pops begin.

    What is before them is not read: a loop pops from each row's list what was pushed to it.
    """
    emit = call.emit
    own = pick(call, item, lengths)  # [k]
    rows = swap(call, dense(call, item))  # [k, J, ...]
    with emit.graph.as_default():
        longest = tf.shape(rows)[1]
        at = tf.range(longest) - (longest - own)[:, None]
        moved = tf.gather(rows, tf.maximum(at, 0), batch_dims=1)
    items = swap(call, moved)
    made = emit("TensorListFromTensor", items, emit("Slice", emit("Shape", items),
                np.asarray([1], np.int32), np.asarray([-1], np.int32)))  # fmt: skip
    return Value.stacked_list(made)


def as_item(call: Call, target: Value, value: Value) -> tf.Tensor:
    """The handle of a list that is put into ``target``, a list of lists: it must have its rows.

    There is no room for the lengths of a list whose rows differ in length. It is moved so that it
    can be popped; where the body does more with such lists it is an error when it runs.
    """
    item, emit = stack_list(call, value), call.emit
    if emit.is_trial:
        return item.tensor
    lengths = known_lengths(item)
    if lengths is not None and _are_only_popped(call):
        item = _ends_together(call, item, lengths)
    elif lengths is not None:
        with emit.graph.as_default():
            same = tf.debugging.assert_equal(
                pick(call, item, lengths),
                tf.raw_ops.TensorListLength(input_handle=item.tensor),
                "Lists of different lengths are kept by a loop, for a gradient of higher order.",
            )
            with tf.control_dependencies([same]):
                item = Value.stacked_list(tf.identity(item.tensor), item.rows)
    has_all = item.rows is not None and item.rows.ids is not None
    if target.rows is None or target.rows.ids is None:
        return own_rows(call, item).tensor
    if has_all:
        return item.tensor
    size = size_of_rows(call, target)
    shape = with_size(call, without_size(call, declared_shape(call, item.tensor)), size)
    with emit.graph.as_default():
        rows = swap(call, dense(call, item))  # [k, J, ...]
        numbers = tf.range(1, tf.shape(rows)[0] + 1)
        if call.loop.real is not None:  # others stand in for one of these
            numbers = tf.where(call.loop.real, numbers, 0)
        at = tf.scatter_nd(tf.expand_dims(target.rows.ids, 1), numbers, [size])  # 0: no such row
        nothing = tf.zeros(tf.concat([[1], tf.shape(rows)[1:]], 0), rows.dtype)
        spread = tf.gather(tf.concat([nothing, rows], 0), at)  # [size, J, ...]
        return emit("TensorListFromTensor", swap(call, spread), shape)
