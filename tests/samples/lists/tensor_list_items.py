"""Samples of tf_pfor/converters/lists/tensor_list_items.py: one element at a time."""

import tensorflow as tf

from tests.sample import ints, normal, sample
from tests.samples.lists.tensor_list import empty, get, listed, push, put, raw, reserved, stacked


def _pop(x):
    handle, last = raw.TensorListPopBack(
        input_handle=listed(x), element_shape=[2], element_dtype=tf.float32
    )
    return last, stacked(handle)


def _push(x, y):
    return stacked(push(listed(x), y))


def _push_twice(x, y):
    """The first pushed item may be invariant: the list is made again."""
    return stacked(push(push(push(empty(), x), y), x), shape=[2])


def _push_lists(x, y):
    inner = push(listed(x), y)
    outer = push(push(empty([], tf.variant), listed(x)), inner)
    _, last = raw.TensorListPopBack(input_handle=outer, element_shape=-1, element_dtype=tf.variant)
    return stacked(last, shape=[2])


def _set_list(x, y):
    outer = put(reserved(2, [], tf.variant), 0, listed(x))
    outer = put(outer, 1, put(get(outer, 0, [], tf.variant), 1, y))
    return stacked(get(outer, 1, [], tf.variant), shape=[2])


def _resizing(handle, i, x):
    return raw.TensorListSetItem(
        input_handle=handle, index=i, item=x, resize_if_index_out_of_bounds=True
    )


def _set_beyond(x):
    return stacked(_resizing(_resizing(reserved(0), 0, x), 2, 2.0 * x), shape=[2])


SAMPLES = [
    sample("TensorListGetItem", lambda x, i: get(listed(x), i, [2]), normal(3, 2), ints(high=3)),
    sample("TensorListGetItem", lambda x, i: get(put(reserved(3, [2]), 1, x), i), normal(2),
        ints(high=3), label="unset"),
    sample("TensorListSetItem", lambda x, i, y: stacked(put(listed(x), i, y)),
           normal(3, 2), ints(high=3), normal(2)),
    sample("TensorListSetItem", lambda x, y: stacked(put(put(reserved(2), 0, x), 1, y), shape=[2]),
           normal(2), normal(2), label="reserved"),
    sample("TensorListSetItem", lambda x, i: get(put(reserved(3), i, x), i, [2]), normal(2),
           ints(high=3), label="unset", xla=False),
    sample("TensorListSetItem", _set_list, normal(3, 2), normal(2), label="lists", xla=False,
           max_ops=18),
    sample("TensorListSetItem", _set_beyond, normal(2), label="beyond", xla=False, grad=False),
    sample("TensorListPushBack", _push, normal(3, 2), normal(2), xla=False),
    sample("TensorListPushBack", _push_twice, normal(2), normal(2), label="empty", xla=False),
    sample("TensorListPushBack", _push_lists, normal(3, 2), normal(2), label="lists", xla=False,
           max_ops=18),
    sample("TensorListPopBack", _pop, normal(3, 2), xla=False),
]  # fmt: skip
