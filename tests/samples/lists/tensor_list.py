"""Samples of tf_pfor/converters/lists/tensor_list.py: lists as a whole."""

import numpy as np
import tensorflow as tf

from tests.sample import drawn, fixed, ints, normal, sample

raw = tf.raw_ops


def listed(x, shape=None):
    """A list of the rows of x."""
    shape = x.shape[1:].as_list() if shape is None else shape
    return raw.TensorListFromTensor(tensor=x, element_shape=tf.constant(shape, tf.int32))


def stacked(handle, dtype=tf.float32, shape=-1):
    return raw.TensorListStack(input_handle=handle, element_shape=shape, element_dtype=dtype)


def reserved(length, shape=-1, dtype=tf.float32):
    shape = shape if tf.is_tensor(shape) else tf.constant(shape, tf.int32)
    return raw.TensorListReserve(element_shape=shape, num_elements=length, element_dtype=dtype)


def empty(shape=-1, dtype=tf.float32):
    shape = tf.constant(shape, tf.int32)
    return raw.EmptyTensorList(element_shape=shape, max_num_elements=-1, element_dtype=dtype)


def put(handle, i, x):
    return raw.TensorListSetItem(input_handle=handle, index=i, item=x)


def get(handle, i, shape=-1, dtype=tf.float32):
    shape = tf.constant(shape, tf.int32)
    return raw.TensorListGetItem(
        input_handle=handle, index=i, element_shape=shape, element_dtype=dtype
    )


def push(handle, x):
    return raw.TensorListPushBack(input_handle=handle, tensor=x)


def pop(handle, shape=-1, dtype=tf.float32):
    """The list without its last item, and the item."""
    shape = tf.constant(shape, tf.int32)
    return raw.TensorListPopBack(input_handle=handle, element_shape=shape, element_dtype=dtype)


def count(handle):
    return raw.TensorListLength(input_handle=handle)


def _reserve_of_length(length):
    return count(reserved(length, [2]))


def _reserve_and_read(length, x):
    return get(put(reserved(length, [2]), 1, x), 1)


def _empty(x, y):
    return stacked(push(push(empty([2]), x), y))


def _element_shape(x):
    return raw.TensorListElementShape(input_handle=listed(x), shape_type=tf.int32)


def _element_shape_unknown(x):
    shape = raw.TensorListElementShape(input_handle=put(reserved(2), 0, x), shape_type=tf.int64)
    return stacked(put(reserved(2, shape), 1, x), shape=[2])


def _element_shape_partly_known(x):
    shape = raw.TensorListElementShape(
        input_handle=put(reserved(2, [-1, 2]), 0, x), shape_type=tf.int32
    )
    return shape, stacked(put(put(reserved(2, shape), 1, x), 0, x))


def _scatter(x, i):
    made = raw.TensorListScatter(tensor=x, indices=i, element_shape=[2])
    return stacked(made, shape=[2])


def _scatter_v2(x, i):
    return stacked(raw.TensorListScatterV2(tensor=x, indices=i, element_shape=[2], num_elements=4))


def _scatter_into(x, y, i):
    return stacked(
        raw.TensorListScatterIntoExistingList(input_handle=listed(x), tensor=y, indices=i)
    )


def _gather(x, i):
    return raw.TensorListGather(
        input_handle=listed(x), indices=i, element_shape=[2], element_dtype=tf.float32
    )


def _split(lengths, shape):
    def fn(x):
        made = raw.TensorListSplit(
            tensor=x, element_shape=shape, lengths=tf.constant(lengths, tf.int64)
        )
        return get(made, 0), get(made, len(lengths) - 1, [lengths[-1], *x.shape[1:]])

    return fn


def _concat(x):
    return raw.TensorListConcat(
        input_handle=listed(x), element_dtype=tf.float32, element_shape=[None, 2]
    )


def _concat_v2(x):
    return raw.TensorListConcatV2(
        input_handle=listed(x), element_shape=[-1, 2], leading_dims=tf.constant([], tf.int64),
        element_dtype=tf.float32,
    )  # fmt: skip


def _concat_unequal(x, y):
    handle = put(put(reserved(2), 0, x), 1, y)
    return raw.TensorListConcatV2(
        input_handle=handle, element_shape=-1, leading_dims=tf.constant([], tf.int64),
        element_dtype=tf.float32,
    )  # fmt: skip


def _concat_lists(x, y):
    return stacked(
        raw.TensorListConcatLists(input_a=listed(x), input_b=listed(y), element_dtype=tf.float32)
    )


def _resize(x):
    return stacked(raw.TensorListResize(input_handle=listed(x), size=4), shape=[2])


def _resize_per_row(x, size):
    made = raw.TensorListResize(input_handle=listed(x), size=size)
    return get(made, 0), count(made)


def _push_back_batch(x, y):
    handles = tf.stack([empty([2]), push(empty([2]), tf.ones([2]))])
    handles = raw.TensorListPushBackBatch(input_handles=handles, tensor=x)
    handles = raw.TensorListPushBackBatch(input_handles=handles, tensor=y)
    return stacked(handles[1], shape=[2])


PLACES = drawn((2,), lambda rng: rng.permutation(3)[:2].astype("int32"))

SAMPLES = [
    sample("EmptyTensorList", _empty, normal(2), normal(2), xla=False),  # its length must be given
    sample("TensorListReserve", _reserve_and_read, fixed(np.int32(3)), normal(2)),
    # A length that is not a constant does not compile.
    sample("TensorListReserve", _reserve_of_length, ints(low=1), label="length", xla=False),
    sample("TensorListReserve", _reserve_and_read, ints(low=2), normal(2), label="read", xla=False),
    sample("TensorListFromTensor", lambda x: get(listed(x), 1), normal(3, 2)),
    sample("TensorListFromTensor", lambda x: get(listed(x, []), 1), normal(3), label="scalars"),
    sample("TensorListFromTensor", lambda x: get(listed(x), 1, dtype=tf.string),
        drawn((3, 1), lambda rng: rng.choice([b"a", b"bc"], (3, 1))), label="string", xla=False),
    sample("TensorListStack", lambda x: stacked(listed(x)), normal(3, 2)),
    sample("TensorListStack", lambda x: stacked(put(reserved(2, [2]), 1, x)), normal(2),
        label="unset"),
    # XLA has no such kernel: also below.
    sample("TensorListScatter", _scatter, normal(2, 2), fixed(np.int32([2, 0])), xla=False),
    sample("TensorListScatterV2", _scatter_v2, normal(2, 2), PLACES, xla=False),
    sample(
        "TensorListScatterIntoExistingList", _scatter_into, normal(3, 2), normal(2, 2), PLACES,
        # Five ops check the places. TensorFlow's gradient passes the indices as a shape, and fails.
        xla=False, max_ops=18, grad=False,
    ),
    # TensorFlow's gradient of a repeated index is wrong: none is repeated here.
    sample("TensorListGather", _gather, normal(3, 2), PLACES, xla=False),
    sample("TensorListSplit", _split([2, 2], [2, 3]), normal(4, 3), xla=False),
    sample("TensorListSplit", _split([1, 3], [-1, 3]), normal(4, 3), label="unequal", xla=False),
    sample("TensorListSplit", _split([4], [4]), normal(4), label="one", xla=False),
    sample("TensorListConcat", _concat, normal(3, 4, 2), max_ops=16),
    sample("TensorListConcatV2", _concat_v2, normal(3, 4, 2), max_ops=16),
    sample("TensorListConcatV2", _concat_unequal, normal(3, 2), normal(1, 2), label="unequal",
        xla=False),
    sample("TensorListConcatLists", _concat_lists, normal(2, 2), normal(3, 2), xla=False,
           grad=False),
    sample("TensorListLength", lambda x: count(listed(x)), normal(3, 2)),
    sample("TensorListResize", _resize, normal(3, 2), xla=False),
    sample("TensorListResize", _resize_per_row, normal(3, 2), ints(low=1), label="per_row",
           xla=False),
    sample("TensorListElementShape", _element_shape, normal(3, 2)),
    sample("TensorListElementShape", _element_shape_unknown, normal(2), label="unknown",
           max_ops=30),
    sample("TensorListElementShape", _element_shape_partly_known, normal(3, 2), label="partly",
           max_ops=16,           xla=False),
    sample("TensorListPushBackBatch", _push_back_batch, normal(2, 2), normal(2, 2), grad=False,
           xla=False, max_ops=20),
]  # fmt: skip
