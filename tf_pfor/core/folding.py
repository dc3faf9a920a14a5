"""Small integers of the body, such as shapes, computed while the body is converted."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import tensorflow as tf

from tf_pfor import _tf
from tf_pfor.core.emit import Emitter
from tf_pfor.core.values import Value

_MOST = 64  # elements of an input


def folded(op: tf.Operation, values: Sequence[Value]) -> np.ndarray | None:
    """The output of an op all of whose inputs are small constants; None for any other op.

    TensorFlow's static shapes end at the border of a function. An axis that a caller passes to
    the gradient of a ``tf.gather`` is known here, since functions are converted inline.
    """
    arrays = [value.constant for value in values]
    if any(array is None or array.size > _MOST or array.dtype == object for array in arrays):
        return None
    with tf.Graph().as_default() as graph:
        emit = Emitter(graph)
        inputs = [emit.constant(a, t.dtype) for a, t in zip(arrays, op.inputs, strict=True)]
        made = emit.create(op.type, inputs, _tf.attr_map(op))
        return _tf.static_value(made.outputs[0])
