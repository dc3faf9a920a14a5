"""Protocol buffers: the kernels take texts of any shape, fields are as long as the longest.

What a row decodes to is as long as its own longest: it is a ragged row of what all give.
"""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from tf_pfor.converters.math._families import native_batch, table
from tf_pfor.converters.ragged._forms import row_sizes
from tf_pfor.core.call import Call
from tf_pfor.core.errors import CannotVectorize
from tf_pfor.core.values import Value, is_static
from tf_pfor.layouts.ragged import Ragged, same_sizes
from tf_pfor.layouts.ragged_rules import ragged_rule, source

_ENCODED = ("field_names", "message_type", "descriptor_source")

native_batch(table("EncodeProto", *_ENCODED))


@source("DecodeProtoV2")
def decode(call: Call, bytes: Value) -> Any:
    """One decoding of all texts: a field of a row has as many places as it fills, one at least."""
    call.require_packed()
    inner = bytes.inner_shape
    if not is_static(inner):
        raise CannotVectorize("the shape of its texts is not known before running")
    sizes, *fields = call.rebuild()
    made: list[Value] = [Value.stacked(sizes)]
    for k, (field, output) in enumerate(zip(fields, call.op.outputs[1:])):
        filled = sizes[..., k]  # of one text
        axes = list(range(1, len(inner) + 1))
        longest = tf.maximum(tf.reduce_max(filled, axes), 1) if axes else tf.maximum(filled, 1)
        made.append(Ragged.from_padded(field, [*inner, row_sizes(call, longest)], output))
    return made


@ragged_rule("EncodeProto")
def encode(call: Call, sizes: Value, values: list[Value]) -> Any:
    """Variable-length fields: the padding behind the end of a row is not encoded."""
    if isinstance(sizes, Ragged):
        for value in values:
            if not isinstance(value, Ragged) or not same_sizes(value.sizes[:1], sizes.sizes[:1]):
                raise CannotVectorize("how many messages there are is not known to agree")
    fields = [v.in_rows if isinstance(v, Ragged) else call.stacked(v) for v in values]
    many = sizes.in_rows if isinstance(sizes, Ragged) else call.stacked(sizes)
    made = call.rebuild(sizes=many, values=fields)
    if isinstance(sizes, Ragged):
        return Ragged.from_padded(made, sizes.sizes[:1], call.op.outputs[0])
    return call.like(made)
