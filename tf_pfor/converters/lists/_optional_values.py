"""Optionals, which conditionals keep for their gradients, and the lists that they are kept in.

Different branches keep different values under one name. So a stacked optional is a list of
optionals, one for each branch. ``ListRows.lengths`` says in which of them a row is
(``optional.py``).
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from tf_pfor import _tf
from tf_pfor._tf import _graphs
from tf_pfor._tf._custom_gradients import attached
from tf_pfor.core.call import Call
from tf_pfor.core.emit import Emitter, emitter
from tf_pfor.core.stacked_lists import ListRows, StackedList
from tf_pfor.core.values import Value

SCALAR = np.zeros([0], np.int32)


def tell(handle: tf.Tensor, dtype: tf.DType, shape: Any) -> None:
    """Tells TensorFlow the items of a list: their shape, -1 for an unknown size or rank."""
    _tf.copy_handle_data(_told(dtype, shape if isinstance(shape, int) else tuple(shape)), handle)


@functools.lru_cache(256)
def _told(dtype: tf.DType, shape: tuple[int, ...] | int) -> tf.Tensor:
    """A list that holds such items, in a new graph."""
    with tf.Graph().as_default():
        shape_vector = np.asarray(shape, np.int32)
        return Emitter()("EmptyTensorList", shape_vector, np.int32(0), element_dtype=dtype)


def kept_types(dtypes: Sequence[tf.DType]) -> list[tf.DType]:
    """The dtypes in which optionals keep components of these dtypes.

    Higher derivatives add gradients of optionals. TensorFlow's kernel does not add bools.
    """
    return [tf.uint8 if d == tf.bool else d for d in dtypes]


def as_kept(tensor: tf.Tensor) -> tf.Tensor:
    """A component as optionals keep it, in the current graph."""
    return tf.cast(tensor, tf.uint8) if tensor.dtype == tf.bool else tensor


def as_read(tensor: tf.Tensor, dtype: tf.DType) -> tf.Tensor:
    """A component that was kept, in its own dtype, in the current graph."""
    return tf.cast(tensor, dtype) if dtype == tf.bool else tensor


def list_of(handles: Sequence[tf.Tensor], before: tf.Tensor | None = None) -> tf.Tensor:
    """A list of variants, in the current graph, behind the items of the list ``before``."""
    made, emit = before, emitter()
    if made is None:
        made = emit("EmptyTensorList", SCALAR, np.int32(-1), element_dtype=tf.variant)
        _graphs.keep_from_folding(made.op)
    for handle in handles:
        made = emit("TensorListPushBack", made, handle)
    return made


def item_at(handle: tf.Tensor, index: object) -> tf.Tensor:
    """A variant in a list of variants, in the current graph."""
    return emitter()("TensorListGetItem", handle, index, SCALAR, element_dtype=tf.variant)


def one_of(handle: tf.Tensor, index: tf.Tensor) -> tf.Tensor:
    """One optional of a list of several, in the current graph.

    TensorFlow's gradient leaves the other optionals unset, which is no gradient of an optional.
    """
    # TensorFlow's gradients of functions expect both in this graph.
    handle, index = tf.identity(handle), tf.identity(index)

    def gradient(given: Sequence[tf.Tensor], upstream: tf.Tensor) -> list[tf.Tensor | None]:
        zeros = tf.raw_ops.ZerosLike(x=given[0])
        made = tf.raw_ops.TensorListSetItem(input_handle=zeros, index=given[1], item=upstream)
        return [made, None]

    return attached(lambda *of: [item_at(*of)], [handle, index], gradient)[0]


def joined(first: tf.Tensor, second: tf.Tensor) -> tf.Tensor:
    """Two lists of optionals one after the other, in the current graph.

    Not with TensorListConcatLists, which has no gradient.
    """
    count = tf.raw_ops.TensorListLength(input_handle=second)

    def push(i: tf.Tensor, made: tf.Tensor) -> Any:
        item = one_of(second, i)
        return i + 1, tf.raw_ops.TensorListPushBack(input_handle=made, tensor=item)

    return tf.while_loop(lambda i, _: i < count, push, (tf.constant(0), first))[1]


def first_with_value(handle: tf.Tensor) -> tf.Tensor:
    """int32 []: which of a list of optionals has a value, the first one, in the current graph."""
    last = tf.raw_ops.TensorListLength(input_handle=handle) - 1

    def is_empty(i: tf.Tensor) -> tf.Tensor:
        return tf.logical_not(tf.raw_ops.OptionalHasValue(optional=item_at(handle, i)))

    return tf.while_loop(lambda i: (i < last) & is_empty(i), lambda i: [i + 1], [0])[0]


def of_all_rows(call: Call, optional: tf.Tensor) -> Value:
    """One Optional that all rows are in."""
    size = call.emit.shape_vector([call.loop.length])
    first = call.emit("Fill", size, np.int32(0))
    with call.emit.graph.as_default():
        handle = list_of([optional])
    return StackedList.of(handle, ListRows(call.loop.length, lengths=first, is_even=True))
