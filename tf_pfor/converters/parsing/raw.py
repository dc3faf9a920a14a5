"""Bytes that are numbers: ``tf.io.decode_raw``.

The kernel takes strings of one length. Where lengths differ per row, all bytes are joined, decoded
at once and cut again. The order of bytes is about single numbers, and no cut goes through a number.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import tensorflow as tf

from tf_pfor.converters.ragged._forms import row_sizes
from tf_pfor.core.call import Call
from tf_pfor.core.emit import Dim
from tf_pfor.core.registry import RegisterPFor
from tf_pfor.core.shapes import fold, inner_dims, product
from tf_pfor.core.values import Value
from tf_pfor.layouts.ragged import Ragged


@RegisterPFor("DecodePaddedRaw", ("input_bytes",), attrs=("out_type", "little_endian"))
def decode_padded_raw(call: Call, input_bytes: Value, fixed_length: Value) -> Any:
    """One length, to which strings are cut or padded: any shape of strings."""
    return call.rebuild(input_bytes=input_bytes.tensor)


@RegisterPFor("DecodeRaw", ("bytes",), attrs=("out_type", "little_endian"))
def decode_raw(call: Call, bytes: Value) -> Any:
    """[n, ...] strings -> [n, ..., numbers], as many as the strings of a row have."""
    rank = call.require_rank(bytes)
    shape = call.output_shape()
    if shape is not None and None not in shape:  # by set_shape
        return _of_one_length(call, bytes, shape)
    call.require_packed()
    lead = inner_dims(call, bytes)
    flat = fold(call, bytes, rank)
    width = call.output_dtype().size
    with call.emit.as_default():
        lengths = tf.strings.length(flat)
        text = f"the length of a string is no multiple of {width}, the size of a number. They are"
        is_right = tf.equal(lengths % width, 0)
        checked = call.after_check(is_right, text, [lengths], lengths)
        own = checked // width
        if rank:
            own = _equal_in_rows(call, own, lead)
        with tf.control_dependencies([own]):
            numbers = call.rebuild(bytes=tf.strings.reduce_join(flat))
        return Ragged.packed(numbers, [*lead, row_sizes(call, own)])


def _equal_in_rows(call: Call, counts: tf.Tensor, lead: list[Dim]) -> tf.Tensor:
    """[n * k] -> [n]: the numbers of each string, which must be as many in all of a row."""
    grid = call.emit.shape_vector([call.loop.length, product(call, lead)])
    each = tf.reshape(counts, grid)
    largest = tf.reduce_max(tf.pad(each, [[0, 0], [0, 1]]), 1)
    text = "the strings of an iteration differ in length. The numbers of values are"
    return call.after_check(tf.equal(each, largest[:, None]), text, [each], largest)


def _of_one_length(call: Call, bytes: Value, shape: Any) -> Any:
    """The length that the body says is checked by the strings.

    Of no strings the kernel makes no numbers, however many one would be: a Reshape tells. Before it
    a check of the shape would be optimized away, since the Reshape says what that must be.
    """
    with call.emit.as_default():
        lengths = tf.strings.length(bytes.tensor)
        size = shape[-1] * call.output_dtype().size
        text = f"the body says that a string has {size} bytes. The lengths are"
        right = tf.equal(lengths, size)
        made = call.rebuild(bytes=call.after_check(right, text, [lengths], bytes.tensor))
        lead = tf.shape(bytes.tensor)[:1]
        return tf.reshape(made, tf.concat([lead, np.asarray(shape, np.int32)], 0))
