"""Softmax family, cross entropies and other losses: the rows of a batch are independent."""

from __future__ import annotations

from typing import Any

import numpy as np
import tensorflow as tf

from tf_pfor import _tf
from tf_pfor.converters.math._families import fold_batch, table
from tf_pfor.core.call import Call
from tf_pfor.core.errors import CannotVectorize
from tf_pfor.core.registry import RegisterPFor
from tf_pfor.core.shapes import fold, inner_dims, product, stacked_dims, transpose, unfold
from tf_pfor.core.values import Value, folded_form, is_static
from tf_pfor.layouts.ragged import Ragged, RowSizes
from tf_pfor.layouts.ragged_rules import ragged_rule


@RegisterPFor("LogSoftmax Softmax", ("logits",))
def over_last_axis(call: Call, logits: Value) -> Any:
    """Rows of the last axis, in the form in which they come."""
    rank = call.require_rank(logits)
    folded = folded_form(logits)
    if folded is not None and folded.axes < rank:
        return unfold(call, call.rebuild(logits=folded.tensor), logits, folded.axes)
    if rank < 5:  # oneDNN's softmax ends at some rank
        return call.rebuild(logits=logits.tensor)
    return unfold(call, call.rebuild(logits=fold(call, logits, rank - 1)), logits, rank - 1)


# ---------------------------------------------------------------------------
# Cross entropies: [b, c] -> [n*b, c]
# ---------------------------------------------------------------------------

fold_batch(table("SparseSoftmaxCrossEntropyWithLogits"), ("features", "labels"))


@RegisterPFor("SoftmaxCrossEntropyWithLogits", ("features", "labels"))
def softmax_cross_entropy(call: Call, features: Value, labels: Value) -> Any:
    """In the batch; where the two differ in shape, repeated first: the kernel broadcasts."""
    given = {"features": features, "labels": labels}
    if features.inner_shape != labels.inner_shape:
        shape = call.output_shape(1)
        if not is_static(shape):
            raise CannotVectorize("features and labels differ in shape, and it is not known how")
        target = call.emit.shape_vector([call.loop.length, *shape])
        given = {
            k: Value.stacked(call.emit("BroadcastTo", v.tensor, target)) for k, v in given.items()
        }
    made = call.rebuild(**{k: fold(call, v) for k, v in given.items()})
    like = given["features"]
    return [unfold(call, t, like, inner_shape=call.output_shape(i)) for i, t in enumerate(made)]


# ---------------------------------------------------------------------------
# Others
# ---------------------------------------------------------------------------


@RegisterPFor("L2Loss", ("t",))
def l2_loss(call: Call, t: Value) -> Any:
    """sum(t_i * t_i) / 2 over the inner axes."""
    rank, emit = call.require_rank(t), call.emit
    total = emit("Sum", emit("Square", t.tensor), np.arange(1, rank + 1, dtype=np.int32))
    return emit("Mul", total, emit.constant(0.5, t.dtype))


_CTC = ("inputs", "labels_indices", "labels_values", "sequence_length")


@RegisterPFor(
    "CTCLoss",
    _CTC,
    attrs="preprocess_collapse_repeated ctc_merge_repeated ignore_longer_outputs_than_inputs",
)
def ctc_loss(
    call: Call,
    inputs: Value,
    labels_indices: Value,
    labels_values: Value,
    sequence_length: Value,
) -> Any:
    """In the batch, which is axis 1: the labels' rows move by i*b."""
    emit = call.emit
    each = emit("Mul", call.loop.places, emit.as_tensor(inner_dims(call, inputs)[1]))  # [n]
    shift = emit.reshape(emit("Cast", each, DstT=tf.int64), [call.loop.length, 1, 1])
    shift = emit("Pad", shift, np.asarray([[0, 0], [0, 0], [0, 1]], np.int32))  # [n, 1, (shift, 0)]
    moved = emit("AddV2", labels_indices.tensor, shift)
    where = emit.reshape(moved, [product(call, stacked_dims(call, labels_values)), 2])
    return _ctc_of_all(call, inputs, where, fold(call, labels_values), sequence_length)


@ragged_rule("CTCLoss")
def ctc_loss_of_own_labels(
    call: Call,
    inputs: Value,
    labels_indices: Value,
    labels_values: Value,
    sequence_length: Value,
) -> Any:
    """The same, where the number of labels, or of frames, differs per row."""
    if not isinstance(labels_indices, Ragged) or not isinstance(labels_values, Ragged):
        raise CannotVectorize("the labels are as many in all rows")
    (count, *more), (_, *others) = labels_indices.sizes, labels_values.sizes
    if more or others or not isinstance(count, RowSizes):
        raise CannotVectorize("not the number of labels alone differs")
    if _tf.in_xla_context(call.emit.graph) or _tf.in_body(call.emit.graph):
        raise CannotVectorize(f"labels of the row, {call.where_padded}")
    lengths = call.stacked(sequence_length)
    x = inputs.in_rows if isinstance(inputs, Ragged) else call.stacked(inputs)
    if isinstance(inputs, Ragged):
        (frames, *others) = inputs.sizes
        if others or not isinstance(frames, RowSizes):
            raise CannotVectorize("not the number of frames alone differs")
        fits = tf.reduce_all(lengths <= frames.tensor[:, None])
        text = "CTCLoss: a sequence is longer than its logits in some iterations. Lengths, frames:"
        with tf.control_dependencies([tf.debugging.Assert(fits, [text, lengths, frames.tensor])]):
            x = tf.identity(x)
    batch = x.shape[2] or tf.shape(x)[2]
    shift = tf.cast(count.rows * batch, tf.int64)
    where = labels_indices.tensor + tf.stack([shift, tf.zeros_like(shift)], 1)
    dense = Value.stacked(x), Value.stacked(lengths)
    loss, back = _ctc_of_all(call, dense[0], where, labels_values.tensor, dense[1])
    if isinstance(inputs, Ragged):
        back = Ragged.from_padded(back, inputs.sizes, call.op.outputs[1])
    return [loss, back]


def _ctc_of_all(
    call: Call, inputs: Value, where: tf.Tensor, what: tf.Tensor, sequence_length: Value
) -> Any:
    """[n, t, b, c] -> [t, n*b, c], and back; ``what`` are labels of the places ``where``."""
    emit, n = call.emit, call.loop.length
    frames, batch, classes = inner_dims(call, inputs)
    rows = product(call, [n, batch])
    wide = emit.reshape(transpose(call, inputs.tensor, [1, 0, 2, 3]), [frames, rows, classes])
    length = fold(call, sequence_length)
    one_more = call.loop.static_length in (None, 0)
    if one_more:  # the kernel refuses an empty batch: one example behind, with one label
        wide = emit("Pad", wide, np.asarray([[0, 0], [0, 1], [0, 0]], np.int32))
        last = emit("Cast", emit.shape_vector([rows, 0]), DstT=tf.int64)
        where = emit("ConcatV2", [where, emit.reshape(last, [1, 2])], 0)
        what = emit("Pad", what, np.asarray([[0, 1]], np.int32))
        length = emit("ConcatV2", [length, emit.shape_vector([frames])], 0)
    loss, gradient = call.rebuild(
        inputs=wide, labels_indices=where, labels_values=what, sequence_length=length
    )
    if one_more:
        loss = emit("Slice", loss, np.asarray([0], np.int32), emit.shape_vector([rows]))
        target = emit.shape_vector([frames, rows, classes])
        gradient = emit("Slice", gradient, np.asarray([0, 0, 0], np.int32), target)
    back = transpose(call, emit.reshape(gradient, [frames, n, batch, classes]), [1, 0, 2, 3])
    return [unfold(call, loss, sequence_length, inner_shape=call.output_shape(0)), back]
