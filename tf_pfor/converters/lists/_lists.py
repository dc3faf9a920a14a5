"""Stacked TensorLists: their element shapes, their rows, and how an unstacked list becomes one.

The handle of a STACKED_LIST does not change; its elements are [n] + elem (elements that are lists
themselves are STACKED_LISTs). Where ``Value.rows`` is set, the elements hold more rows than the
loop at hand, or lists of different lengths: see ``ListRows``. docs/decisions/0005 has the reasons.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from tf_pfor import _tf
from tf_pfor.converters.lists._broadcast_lists import repeated
from tf_pfor.core.call import Call
from tf_pfor.core.emit import Dim, Emitter
from tf_pfor.core.errors import CannotVectorize
from tf_pfor.core.registry import REGISTRY, RegisterPFor, Stacked
from tf_pfor.core.shapes import transpose
from tf_pfor.core.stacked_lists import StackedList, known_rows, rows_of
from tf_pfor.core.values import Shape, Value, dims, is_static

FAMILY = "tensor_list"


_OF_ANY_ITEMS = (
    "OptionalFromValue",
    "TensorListElementShape",
    "TensorListGetItem",
    "TensorListLength",
    "TensorListPopBack",
    "TensorListPushBack",
    "TensorListResize",
    "TensorListSetItem",
    "TensorListStack",
)
"""Ops whose rules take lists of items whose shape differs between rows (``_ragged_items.py``)."""


def list_rule(
    op_type: str, stacked: Sequence[str] | Stacked = Stacked.ANY, attrs: Sequence[str] = ()
) -> Callable[[Any], Any]:
    """Registers a converter that also makes the stacked form of an unstacked list.

    It must work when no input is stacked: ``stack_list`` calls it on ops emitted before.
    """
    register = RegisterPFor(op_type, stacked, attrs=attrs, family=FAMILY)
    if op_type in _OF_ANY_ITEMS:
        return register

    def of_one_shape(rule: Callable[..., Any]) -> Any:
        @functools.wraps(rule)
        def checked(call: Call, *inputs: Value) -> Any:
            if any(known_rows(v).holds.items for v in call.flat_inputs()):
                raise CannotVectorize("the items of a list differ in shape between iterations")
            return rule(call, *inputs)

        return register(checked)

    return of_one_shape


# ---------------------------------------------------------------------------
# From unstacked to stacked
# ---------------------------------------------------------------------------


def stack_list(call: Call, value: Value) -> Value:
    """``value`` as a list of stacked elements.

    A list that was emitted unstacked is emitted again with stacked elements, op by op back to its
    origin. Elements that were never written stay unwritten, and nothing is copied at run time.
    (TensorFlow drops the unstacked ops if nobody else needs them.) The list is copied only where
    the chain ends in another op: an argument of a function or a result of a loop.
    """
    value = value.standard(call.emit)
    if isinstance(value, StackedList):
        return value
    if value.is_stacked:
        raise CannotVectorize(f"a list of layout '{value.layout.value}' was made by a loop")
    memo = call.emit.memo
    pending = [value.tensor]
    while pending:
        tensor = pending[-1]
        if _key(call, tensor) in memo:
            pending.pop()
            continue
        missing = [t for t in _sources(tensor) if _key(call, t) not in memo]
        if missing:
            pending += missing
            continue
        pending.pop()
        memo[_key(call, tensor)] = _made_again(call, tensor)
    return memo[_key(call, value.tensor)]


def _key(call: Call, tensor: tf.Tensor) -> Any:
    return ("list", call.loop, tensor.op, tensor.value_index)


def _list_rule(op: tf.Operation) -> Any:
    found = REGISTRY.rules(op.type)
    return found[0] if found and found[0].family == FAMILY else None


def _sources(tensor: tf.Tensor) -> list[tf.Tensor]:
    """The lists that the op that made this one works on."""
    if not _can_be_made_again(tensor.op):
        return []
    return [t for t in tensor.op.inputs if t.dtype == tf.variant]


# Ops whose rules know what rows their lists have.
_SAME_ROWS = ("AddN", "Identity", "ZerosLike")


def _can_be_made_again(op: tf.Operation) -> bool:
    """List ops, and ops that only pass lists on (Identity, Pack) or treat them alike (AddN)."""
    if _list_rule(op) is not None:
        return True
    schema = _tf.schema(op.type)
    if schema is None or schema.is_stateful or "func" in schema.attr_types.values():
        return False
    return any(t.dtype == tf.variant for t in op.inputs)


def _made_again(call: Call, tensor: tf.Tensor) -> Value:
    op = tensor.op
    if not _can_be_made_again(op):
        return repeated(call, tensor)
    values = [
        call.emit.memo[_key(call, t)] if t.dtype == tf.variant else Value.unstacked(t)
        for t in op.inputs
    ]
    schema = _tf.schema(op.type)
    assert schema is not None
    inputs: dict[str, Any] = dict(zip([a.name for a in schema.inputs], values))
    if any(a.is_list for a in schema.inputs):  # of these ops only those with one list input
        inputs = {schema.inputs[0].name: values}
    rule = REGISTRY.rules(op.type)[0] if op.type in _SAME_ROWS else _list_rule(op)
    again = call.again(op, inputs)
    made = again.rebuild() if rule is None else rule.function(again, *inputs.values())
    found = made[tensor.value_index] if isinstance(made, list) else made
    return found if isinstance(found, Value) else StackedList.of(found)


# ---------------------------------------------------------------------------
# Shapes
# ---------------------------------------------------------------------------


def size_of_rows(call: Call, value: Value) -> Dim:
    """The number of rows in the elements of a stacked list."""
    return call.loop.length if rows_of(value) is None else known_rows(value).size


def shape_input(
    call: Call,
    name: str,
    size: Dim | None = None,
    dtype: tf.DType | None = None,
    known: Shape = None,
) -> tf.Tensor:
    """The element shape input ``name`` with ``size`` (n when None) in front.

    Unknown shapes (-1), and shapes of lists of lists, do not change. A shape that is stored stacked
    (gradients keep shapes in lists) becomes ``known``, or unknown: the elements have one shape.

    Args:
      call: an op with the attribute ``element_dtype``.
      name: the input, a vector or a scalar -1.
      size: the rows of the elements.
      dtype: int32 or int64; the input's own when None.
      known: the static shape of the elements that the op reads.
    """
    value = call.inputs[name]
    assert isinstance(value, Value)
    if value.is_stacked:
        to = dtype or value.dtype
        if not is_static(known):
            return call.emit.constant(np.asarray(-1, to.as_numpy_dtype))
        front = call.loop.length if size is None else size
        return cast(call, call.emit.shape_vector([front, *known]), to)
    found = call.maybe_constant(name)
    to = dtype or value.dtype
    size = call.loop.length if size is None else size
    if call.attr("element_dtype") == tf.variant:
        return cast(call, value.tensor, to)
    if found is not None and found.ndim:
        found = np.asarray([size, *found]) if isinstance(size, int) else None
    if found is not None:
        return call.emit.constant(found.astype(to.as_numpy_dtype))
    return with_size(call, cast(call, value.tensor, to), size)


def with_size(call: Call, shape: tf.Tensor, size: Dim) -> tf.Tensor:
    """[size] + ``shape``; a scalar ``shape`` is -1, all unknown, and stays."""
    emit = call.emit
    head = cast(call, emit.shape_vector([size]), shape.dtype)
    if shape.shape.rank == 0:
        return shape
    if shape.shape.rank == 1:
        return emit("ConcatV2", [head, shape], np.int32(0))
    rank = _rank_vector(emit, shape)  # [0] or [1]
    head = emit("Slice", head, np.asarray([0], np.int32), rank)  # [] or [size]
    flat = emit("Reshape", shape, np.asarray([-1], np.int32))
    return _as_rank(emit, emit("ConcatV2", [head, flat], np.int32(0)), rank)


def without_size(call: Call, shape: tf.Tensor) -> tf.Tensor:
    """The inverse of ``with_size``."""
    emit = call.emit
    if shape.shape.rank == 0:
        return shape
    if shape.shape.rank == 1:
        return _part(emit, shape, 1, None)
    rank = _rank_vector(emit, shape)
    flat = emit("Reshape", shape, np.asarray([-1], np.int32))
    rest = emit("Slice", flat, rank, np.asarray([-1], np.int32))  # [-1], or without the size
    return _as_rank(emit, rest, rank)


def _rank_vector(emit: Emitter, shape: tf.Tensor) -> tf.Tensor:
    return emit("Shape", emit("Shape", shape))


def _as_rank(emit: Emitter, vector: tf.Tensor, rank: tf.Tensor) -> tf.Tensor:
    """``vector``, or its only entry as a scalar when ``rank`` is [0]."""
    parts = emit("Slice", emit("Shape", vector), np.asarray([0], np.int32), rank)
    return emit("Reshape", vector, parts)


def _part(emit: Emitter, tensor: tf.Tensor, begin: int, end: int | tf.Tensor | None) -> tf.Tensor:
    """tensor[begin:end]; a tensor ``end`` has shape [1]."""
    return emit(
        "StridedSlice",
        tensor,
        np.asarray([begin], np.int32),
        end if isinstance(end, tf.Tensor) else np.asarray([end or 0], np.int32),
        np.asarray([1], np.int32),
        end_mask=int(end is None),
    )


def declared_shape(call: Call, handle: tf.Tensor) -> tf.Tensor:
    """int32: the element shape that a list was made with; a constant where it is known."""
    found = _tf.list_element(handle)
    if found is not None and found[1].is_fully_defined():
        return call.emit.constant(np.asarray(found[1].as_list(), np.int32))
    return call.emit("TensorListElementShape", handle, shape_type=tf.int32)


def cast(call: Call, tensor: tf.Tensor, dtype: tf.DType) -> tf.Tensor:
    return tensor if tensor.dtype == dtype else call.emit("Cast", tensor, DstT=dtype)


def swap(call: Call, tensor: tf.Tensor) -> tf.Tensor:
    """[a, b, ...] -> [b, a, ...]: between lists, time in front, and values, the loop in front."""
    shape = dims(tensor)
    if shape is not None:
        return transpose(call, tensor, [1, 0, *range(2, len(shape))])
    emit = call.emit
    rest = emit("Range", np.int32(2), emit("Rank", tensor), np.int32(1))
    return emit("Transpose", tensor, emit("ConcatV2", [emit.as_tensor([1, 0]), rest], 0))


def updated(emit: Emitter, whole: tf.Tensor, at: tf.Tensor, items: tf.Tensor) -> tf.Tensor:
    """TensorScatterUpdate, also of items without elements, which that refuses.

    Args:
      emit: the emitter.
      whole: [T, size, ...], or [size, ...].
      at: int32 [n, 2] or [n, k, 2], or [n, 1].
      items: [n, ...] or [n, k, ...].
    """
    shape = dims(items)
    inner = None if shape is None else shape[at.shape.rank - 1 :]
    if inner is not None and 0 in inner:
        return whole
    if not is_static(inner):  # as many as there are, none if they are empty
        count = emit("Minimum", emit.as_tensor(emit.dim(at, 0)), emit("Size", items))
        at, items = (_part(emit, t, 0, emit.shape_vector([count])) for t in (at, items))
    return emit("TensorScatterUpdate", whole, at, items)


def set_length(emit: Emitter, handle: tf.Tensor, size: tf.Tensor | np.int32) -> tf.Tensor:
    """The list with another length, for rows of different lengths."""
    if _tf.in_xla_context(emit.graph):
        raise CannotVectorize(
            "under jit_compile, lists meet that may differ in length between rows, and XLA cannot "
            "change the length of a list: leave out jit_compile"
        )
    return emit("TensorListResize", handle, size)
