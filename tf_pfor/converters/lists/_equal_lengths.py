"""Lists whose rows may differ in length, where they must not."""

from __future__ import annotations

import dataclasses

import tensorflow as tf

from tf_pfor import _tf
from tf_pfor.converters.lists._list_lengths import declared_length
from tf_pfor.converters.lists._list_rows import known_lengths, longest, pick
from tf_pfor.converters.lists._lists import set_length
from tf_pfor.core.call import Call
from tf_pfor.core.errors import CannotVectorize
from tf_pfor.core.stacked_lists import StackedList, known_rows, list_with_rows, rows_of
from tf_pfor.core.values import Value

UNEQUAL = "the length of the list differs between iterations, so its stack would be ragged"


def of_one_length(call: Call, source: Value, known: int | None = None) -> Value:
    """A list whose rows all have one length, which is checked at run time, but not under XLA.

    Raises:
      CannotVectorize: if nothing says that the lengths are equal.
    """
    lengths = known_lengths(source)
    if lengths is None or rows_of(source) is None:
        return source
    rows = dataclasses.replace(known_rows(source), lengths=None)
    if known is not None and _tf.in_xla_context(call.emit.graph):  # what reads it cuts it
        return list_with_rows(source, rows)
    if known is None:
        known = declared_length(call, call.op.inputs[0])
    if known is None and not known_rows(source).may_agree:
        raise CannotVectorize(UNEQUAL)
    own = pick(call, source, lengths)
    length = longest(call, own) if known is None else call.emit.constant(known, tf.int32)
    with call.emit.graph.as_default():
        same = tf.debugging.assert_equal(own, length, UNEQUAL)
        with tf.control_dependencies([] if same is None else [same]):
            length = tf.identity(length)
    return StackedList.of(set_length(call.emit, source.tensor, length), rows)
