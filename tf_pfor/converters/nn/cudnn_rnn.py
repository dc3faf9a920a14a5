"""cuDNN's recurrent layers, which Keras' LSTM and GRU are on GPUs: n times as large a batch.

The memory that the forward op reserves for its gradient is for one batch only, and cuDNN's backward
pass writes to it. So where a gradient is taken for each row, the forward op runs again, for the
batch of all rows. Gradients of the weights are sums over a batch; an op that reads them for each
row runs in a loop.
"""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from tf_pfor.converters.nn._channels import from_axis, into_axis, is_read, unread
from tf_pfor.core.call import Call
from tf_pfor.core.errors import CannotVectorize
from tf_pfor.core.registry import ALWAYS, RegisterPFor
from tf_pfor.core.values import Value, is_static

_ATTRS = ("rnn_mode", "input_mode", "direction", "dropout", "seed", "seed2")
_BATCHED = ("input", "input_h", "input_c", "sequence_lengths")
_STATES = ("output", "output_h", "output_c")
_PARAMS_GRADIENT = 3


def _batch_axis(call: Call, name: str) -> int:
    """The batch axis of a row's ``name``."""
    time_major = not call.op_type.endswith("V3") or call.attr("time_major")
    return 1 if time_major and name != "sequence_lengths" else 0


def _check(call: Call) -> None:
    params = call.value("params")
    if params.is_stacked:
        raise CannotVectorize("the weights differ between iterations")


def _check_dropout(call: Call) -> None:
    if call.attr("dropout"):
        raise CannotVectorize("each row draws a dropout of its own, in the order of the loop")


def _joined(call: Call, names: tuple[str, ...]) -> dict[str, tf.Tensor]:
    """The inputs ``names`` that have a batch axis, with the rows in the batch."""
    inputs = {k: call.value(k) for k in names if k in call.inputs}
    return {k: into_axis(call, v, _batch_axis(call, k)) for k, v in inputs.items()}


def _apart(call: Call, made: tf.Tensor, index: int, name: str) -> Value:
    """A result with the rows in the batch, row by row."""
    shape = call.output_shape(index)
    if not is_static(shape):
        raise CannotVectorize("the shapes of a row are unknown")
    return Value.stacked(from_axis(call, made, list(shape), _batch_axis(call, name)))


def _is_for_gradients(op: tf.Operation) -> bool:
    """Whether this is a gradient that ``cudnn_rnn_gradient`` takes for all rows at once."""
    if op.type == "ZerosLike":  # TensorFlow makes one for each output, and reads none
        return True
    return op.type.startswith("CudnnRNNBackprop") and not is_read(op.outputs[_PARAMS_GRADIENT])


@RegisterPFor("CudnnRNN CudnnRNNV2", ALWAYS, attrs=(*_ATTRS, "is_training"))
@RegisterPFor("CudnnRNNV3", ALWAYS, attrs=(*_ATTRS, "is_training", "num_proj", "time_major"))
def cudnn_rnn(call: Call, *_: Value) -> Any:
    """One layer over the batch of all rows."""
    _check_dropout(call)
    if not any(v.is_stacked for v in call.flat_inputs()):
        return [Value.unstacked(t) for t in call.rebuild()]
    _check(call)
    kept = call.op.outputs[len(_STATES) :]
    if any(is_read(t) and not all(map(_is_for_gradients, t.consumers())) for t in kept):
        raise CannotVectorize("a gradient reads what it keeps for each row")
    made = call.rebuild(**_joined(call, _BATCHED))
    rows = [_apart(call, made[i], i, name) for i, name in enumerate(_STATES)]
    return [*rows, *[unread(call, i + len(rows)) for i in range(len(kept))]]


@RegisterPFor("CudnnRNNBackprop CudnnRNNBackpropV2", ALWAYS, attrs=_ATTRS)
@RegisterPFor("CudnnRNNBackpropV3", ALWAYS, attrs=(*_ATTRS, "num_proj", "time_major"))
def cudnn_rnn_gradient(call: Call, *_: Value) -> Any:
    """The gradients of inputs and states, after another forward pass over the batch of all rows."""
    _check_dropout(call)
    if not any(v.is_stacked for v in call.flat_inputs()):
        space = call.value("reserve_space")
        made = call.rebuild(reserve_space=call.emit("DeepCopy", space.tensor))
        return [Value.unstacked(t) for t in made]
    _check(call)
    if is_read(call.op.outputs[_PARAMS_GRADIENT]):
        raise CannotVectorize("the gradient of the weights is a sum over a batch")
    batch = _joined(call, _BATCHED)
    given = [batch.get(k, v.tensor) for k, v in call.values().items() if k in (*_BATCHED, "params")]
    protos = {k: v for k, v in call.attrs.items() if not k.startswith("_")}
    forward = call.emit(call.op_type.replace("Backprop", ""), *given, **protos, is_training=True)
    kept = dict(zip((*_STATES, "reserve_space", "host_reserved"), forward))
    upstream = _joined(call, tuple(f"{name}_backprop" for name in _STATES))
    made = call.rebuild(**batch, **kept, **upstream)
    names = [name for name in _BATCHED if name != "sequence_lengths"]
    rows = [_apart(call, made[i], i, name) for i, name in enumerate(names)]
    return [*rows, unread(call, _PARAMS_GRADIENT)]
