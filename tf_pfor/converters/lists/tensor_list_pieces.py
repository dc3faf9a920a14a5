"""TensorLists of the pieces of one tensor: cut into pieces, and joined again."""

from __future__ import annotations

from typing import Any

import numpy as np
import tensorflow as tf

from tf_pfor import _tf
from tf_pfor.converters.lists._equal_lengths import UNEQUAL, of_one_length
from tf_pfor.converters.lists._list_rows import dense, from_zero, known_lengths, pick
from tf_pfor.converters.lists._lists import cast, list_rule, shape_input, size_of_rows, swap
from tf_pfor.core.call import Call
from tf_pfor.core.emit import Dim, Emitter
from tf_pfor.core.errors import CannotVectorize
from tf_pfor.core.shapes import product
from tf_pfor.core.stacked_lists import StackedList, known_rows
from tf_pfor.core.values import Value


@list_rule("TensorListSplit")
def split(call: Call, tensor: Value, element_shape: Value, lengths: Value) -> Any:
    """Pieces of equal length: [n, T*d, ...] -> [T, n, d, ...]; else T pieces [n, d_t, ...]."""
    emit = call.emit
    shape = shape_input(call, "element_shape")
    if lengths.is_stacked:
        raise CannotVectorize("the lengths of the pieces differ between iterations")
    known = call.maybe_constant("lengths")
    count = lengths.inner_shape[0] if lengths.inner_shape else None
    call.require_rank(tensor)
    whole = call.stacked(tensor)  # [n, S, ...]
    if known is not None and known.size and (known == known[0]).all():
        parts: list[Dim] = [call.loop.length, known.size, int(known[0])]
        parts += [emit.dim(whole, i) for i in range(2, whole.shape.rank)]
        pieces = swap(call, emit.reshape(whole, parts))  # [T, n, d, ...]
        return StackedList.of(emit("TensorListFromTensor", pieces, shape))
    if count is None:
        if _tf.in_xla_context(emit.graph):
            raise CannotVectorize("a tensor is split into a number of pieces that is not known")
        return StackedList.of(_cut(emit, whole, lengths.tensor, shape))
    made = emit("TensorListReserve", shape, np.int32(count), element_dtype=tensor.dtype)
    if count:
        split_dim = np.int32(1)
        pieces = emit("SplitV", whole, lengths.tensor, split_dim, num_split=count)
        for i, piece in enumerate(pieces if count > 1 else [pieces]):
            made = emit("TensorListSetItem", made, np.int32(i), piece)
    return StackedList.of(made)


def _cut(emit: Emitter, whole: tf.Tensor, lengths: tf.Tensor, shape: tf.Tensor) -> tf.Tensor:
    """The list of [n, d_t, ...], of as many pieces of [n, S, ...] as there are lengths d_t."""

    def step(t: tf.Tensor, made: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        item = whole[:, ends[t] - lengths[t] : ends[t]]
        return t + 1, tf.raw_ops.TensorListSetItem(input_handle=made, index=t, item=item)

    with emit.graph.as_default():
        count, ends = tf.size(lengths), tf.cumsum(lengths)
        made = emit("TensorListReserve", shape, count, element_dtype=whole.dtype)
        return tf.while_loop(lambda t, _: t < count, step, (0, made), maximum_iterations=count)[1]


@list_rule("TensorListConcat", attrs=("element_shape",))
def concat(call: Call, input_handle: Value) -> Any:
    """The rule of TensorListConcatV2, with the shape in an attribute."""
    found = call.attr("element_shape")
    shape: Any = np.int32(-1)
    if found.rank is not None:
        dims = [-1 if d is None else d for d in found.as_list()]
        shape = np.asarray(dims, np.int32)
    source = from_zero(call, input_handle)
    if shape.ndim:
        shape = call.emit.shape_vector([size_of_rows(call, source), *shape.tolist()])
    return _concatenated(call, source, call.emit.as_tensor(shape))


@list_rule("TensorListConcatV2")
def concat_v2(call: Call, input_handle: Value, element_shape: Value, leading_dims: Value) -> Any:
    """Elements [n, d, ...] of one size: [T, n, d, ...] -> [n, T*d, ...]; else pieces joined."""
    source = from_zero(call, input_handle)
    if leading_dims.is_stacked:
        raise CannotVectorize("the lengths of the pieces differ between iterations")
    shape = shape_input(call, "element_shape", size_of_rows(call, source), tf.int32)
    lengths = _tf.static_value(leading_dims.tensor)
    if lengths is None and leading_dims.inner_shape != (0,):
        if known_lengths(source) is not None:
            raise CannotVectorize("the lengths of the pieces are not known before running")
        return _of_any_lengths(call, source, shape, leading_dims.tensor)
    if lengths is None or not lengths.size:
        return _concatenated(call, source, shape)
    if shape.shape.rank == 0 or known_lengths(source) is not None:
        raise CannotVectorize("what is joined of pieces of given lengths has no known rank, or end")
    if (lengths == lengths[0]).all():
        return _concatenated(call, source, _with_length(call, shape, lengths[0]))
    return _of_lengths(call, source, shape, lengths)


def _of_lengths(call: Call, source: Value, shape: tf.Tensor, lengths: np.ndarray) -> list[Value]:
    """Pieces of these lengths one after the other; zeros where nobody has written one."""
    emit, dtype, handle = call.emit, call.output_dtype(), source.tensor
    with emit.graph.as_default():
        count = tf.raw_ops.TensorListLength(input_handle=handle)
        same = tf.debugging.assert_equal(count, len(lengths), "as many pieces as lengths")
        with tf.control_dependencies([] if same is None else [same]):
            handle = tf.identity(handle)
    _tf.copy_handle_data(source.tensor, handle)
    shapes = [_with_length(call, shape, d) for d in lengths]
    pieces = [
        emit("TensorListGetItem", handle, np.int32(t), each, element_dtype=dtype)
        for t, each in enumerate(shapes)
    ]  # [size, d_t, ...]
    joined = emit("ConcatV2", pieces, np.int32(1))  # [size, S, ...]
    made = Value.unstacked(emit.constant(lengths.astype(np.int64)))
    return [Value.stacked(pick(call, source, joined)), made]


def _of_any_lengths(
    call: Call, source: Value, shape: tf.Tensor, lengths: tf.Tensor | None = None
) -> list[Value]:
    """Pieces [size, d_t, ...] one after the other, turned one by one: [d_t, size, ...].

    Args:
      call: the call.
      source: the list.
      shape: int32 [3 or more], the shape of a piece, d_t apart.
      lengths: int64 [T], d_t of a piece that nobody has written; None if all are written.
    """
    emit, dtype, handle = call.emit, call.output_dtype(), source.tensor
    rank = shape.shape.num_elements()
    if shape.shape.rank == 0 or rank is None:
        raise CannotVectorize("the rank of a list's elements is unknown")
    if _tf.in_xla_context(emit.graph):
        raise CannotVectorize("the lengths of the pieces are not known before running")

    def step(t: tf.Tensor, made: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        each = shape
        if lengths is not None:
            each = tf.concat([shape[:1], tf.cast(lengths[t : t + 1], tf.int32), shape[2:]], 0)
        piece = tf.raw_ops.TensorListGetItem(
            input_handle=handle, index=t, element_shape=each, element_dtype=dtype
        )
        item = tf.transpose(piece, [1, 0, *range(2, rank)])
        return t + 1, tf.raw_ops.TensorListSetItem(input_handle=made, index=t, item=item)

    with emit.graph.as_default():
        turned = tf.concat([[-1], shape[:1], shape[2:]], 0)
        count = tf.raw_ops.TensorListLength(input_handle=handle)
        made = tf.raw_ops.TensorListReserve(
            element_shape=turned, num_elements=count, element_dtype=dtype
        )
        _, made = tf.while_loop(lambda t, _: t < count, step, (0, made), maximum_iterations=count)
        leading = np.zeros([0], np.int64) if lengths is None else lengths
        joined, found = tf.raw_ops.TensorListConcatV2(
            input_handle=made, element_shape=turned, leading_dims=leading, element_dtype=dtype
        )
        joined = tf.transpose(joined, [1, 0, *range(2, rank)])  # [size, S, ...]
    return [Value.stacked(pick(call, source, joined)), Value.unstacked(found)]


def _with_length(call: Call, shape: tf.Tensor, length: int) -> tf.Tensor:
    """int32 [size, d, ...], the shape of a piece, with this d."""
    known = _tf.static_value(shape)
    if known is not None:
        return call.emit.constant(np.asarray([known[0], length, *known[2:]], np.int32))
    with call.emit.graph.as_default():
        return tf.concat([shape[:1], [int(length)], shape[2:]], 0)


def _concatenated(call: Call, source: Value, shape: tf.Tensor) -> list[Value]:
    """The pieces one after the other, and their lengths (int64)."""
    emit = call.emit
    if known_lengths(source) is not None:
        if not known_rows(source).may_agree:
            raise CannotVectorize(UNEQUAL)
        source = of_one_length(call, source)
    pieces = _pieces(source.tensor)
    if pieces is not None and not _are_equal([p.shape for p in pieces]):
        joined = emit("ConcatV2", pieces, np.int32(1))  # [size, S, ...]
        sizes = [emit.dim(p, 1) for p in pieces]
        lengths = cast(call, emit.shape_vector(sizes), tf.int64)
        return [Value.stacked(pick(call, source, joined)), Value.unstacked(lengths)]
    known, declared = _tf.static_value(shape), _tf.list_element(source.tensor)
    told = declared is not None and declared[1].rank and declared[1][1] is not None
    is_open = known is not None and known.ndim and known[1] < 0 and not told
    if is_open and not _tf.in_xla_context(emit.graph):
        return _of_any_lengths(call, source, shape)
    whole = dense(call, source, shape, may_pad=False)  # [T, size, d, ...]
    if whole.shape.rank is None:
        raise CannotVectorize("the rank of a list's elements is unknown")
    rows = swap(call, pick(call, source, whole, axis=1))  # [n, T, d, ...]
    count, size = emit.dim(whole, 0), emit.dim(whole, 2)
    ends = [emit.dim(whole, i) for i in range(3, whole.shape.rank)]
    joined = emit.reshape(rows, [call.loop.length, product(call, [count, size]), *ends])
    each = cast(call, emit.as_tensor(size), tf.int64)
    lengths = emit("Fill", emit.shape_vector([count]), each)  # [T]
    return [Value.stacked(joined), Value.unstacked(lengths)]


def _pieces(handle: tf.Tensor) -> list[tf.Tensor] | None:
    """The elements of a list that was reserved and then written at constant indices, or None.

    Only such lists can hold elements of different first dimensions: TensorListStack refuses
    others when it runs.
    """
    found: dict[int, tf.Tensor] = {}
    while handle.op.type == "TensorListSetItem":
        index = tf.get_static_value(handle.op.inputs[1])
        if index is None:
            return None
        found.setdefault(int(index), handle.op.inputs[2])
        handle = handle.op.inputs[0]
    length = (
        tf.get_static_value(handle.op.inputs[1]) if handle.op.type == "TensorListReserve" else None
    )
    if not found or length is None or sorted(found) != list(range(int(length))):
        return None
    return [found[i] for i in range(int(length))]


def _are_equal(shapes: list[tf.TensorShape]) -> bool:
    """True when all [size, d, ...] are known to have the same d."""
    found = {s[1] if s.rank else None for s in shapes}
    return len(found) == 1 and None not in found
