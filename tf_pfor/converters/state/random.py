"""Stateful random ops: every iteration draws its own numbers (one draw of n times as many).

Stateless ops with an invariant seed need no converter: they are the same in every iteration.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import tensorflow as tf

from tf_pfor import _tf
from tf_pfor.converters.math._families import prepend_shape, table, with_n
from tf_pfor.core.call import Call
from tf_pfor.core.emit import Dim
from tf_pfor.core.errors import CannotVectorize
from tf_pfor.core.registry import ALWAYS, RegisterPFor
from tf_pfor.core.shapes import fold, inner_dims, product, transpose, unfold
from tf_pfor.core.values import Value
from tf_pfor.layouts.ragged import Ragged, RowSizes
from tf_pfor.layouts.ragged_rules import ragged_rule

SEEDS = ("seed", "seed2")

prepend_shape(
    table("RandomStandardNormal RandomUniform RandomUniformInt TruncatedNormal", *SEEDS), "shape"
)
prepend_shape(table("NonDeterministicInts"), "shape")


@RegisterPFor("RandomGamma", ALWAYS, attrs=SEEDS)
@RegisterPFor("RandomPoissonV2", ALWAYS, attrs=SEEDS)
def one_draw_for_each_parameter(call: Call, shape: Value, parameter: Value) -> Any:
    """Draws of shape + parameter's shape: the loop is in front of one of the two."""
    if shape.is_stacked:
        raise CannotVectorize("'shape' differs between iterations")
    if not parameter.is_stacked:
        return call.rebuild(shape=with_n(call, shape, "shape"))  # [n] + shape + [p]
    if parameter.inner_rank is None:
        raise CannotVectorize("the rank of the parameter is unknown")
    (count,) = shape.inner_shape or (None,)
    if count is None:
        raise CannotVectorize("the number of dimensions to draw is unknown")
    drawn = call.rebuild()  # shape + [n] + [p]
    rest = range(count + 1, count + 1 + parameter.inner_rank)
    return transpose(call, drawn, [count, *range(count), *rest])


@RegisterPFor("Multinomial", ALWAYS, attrs=SEEDS)
def multinomial(call: Call, logits: Value, num_samples: Value) -> Any:
    """Rows of logits are independent: [n*b, c]; invariant ones are drawn n times as often."""
    if num_samples.is_stacked:
        raise CannotVectorize("'num_samples' differs between iterations")
    if logits.is_stacked:
        return unfold(call, call.rebuild(logits=fold(call, logits)), logits)  # [n*b, s]
    count = call.maybe_constant("num_samples")
    samples: Dim = num_samples.tensor if count is None else int(count)
    n = call.loop.length
    drawn = call.rebuild(num_samples=product(call, [n, samples]))  # [b, n*s]
    rows = call.emit.reshape(drawn, [call.emit.dim(logits.tensor, 0), n, samples])
    return call.emit("Transpose", rows, np.asarray([1, 0, 2], np.int32))  # [n, b, s]


@RegisterPFor("ParameterizedTruncatedNormal", ALWAYS, attrs=SEEDS)
def parameterized_truncated_normal(
    call: Call, shape: Value, means: Value, stdevs: Value, minvals: Value, maxvals: Value
) -> Any:
    """The kernel's batch is axis 0 of the shape [b, ...]: draws [n*b, ...]."""
    parts = [int(d) for d in call.constant("shape")]
    n = call.loop.length
    names = ("means", "stdevs", "minvals", "maxvals")
    values = dict(zip(names, (means, stdevs, minvals, maxvals)))
    if any(call.require_rank(v, f"'{k}'") > 1 for k, v in values.items()):
        raise CannotVectorize("a parameter is neither a scalar nor a vector")
    batch = product(call, [n, parts[0]])
    full = call.emit.shape_vector([n, parts[0]])
    flat: dict[str, tf.Tensor] = {}
    for name, value in values.items():
        tensor = value.tensor
        if value.is_stacked and value.inner_rank == 0:
            tensor = call.emit.reshape(tensor, [n, 1])
        if value.is_stacked or value.inner_rank:  # [n, 1], [n, b] or [b]
            tensor = call.emit("BroadcastTo", tensor, full)
            tensor = call.emit.reshape(tensor, [batch])
        flat[name] = tensor
    drawn = call.rebuild(shape=call.emit.shape_vector([batch, *parts[1:]]), **flat)
    return call.emit.reshape(drawn, [n, *parts])


@RegisterPFor("RandomShuffle", ALWAYS, attrs=SEEDS)
def random_shuffle(call: Call, value: Value) -> Any:
    """Sorts random keys [n, k], float64 so that ties do not bias, and gathers in their order."""
    if call.require_rank(value) == 0:
        return value
    emit, n = call.emit, call.loop.length
    size = inner_dims(call, value)[0]
    seeds = {name: call.attr(name) for name in SEEDS}
    shape = emit.shape_vector([n, size])
    keys = emit("RandomUniform", shape, dtype=tf.float64, **seeds)
    _, order = emit("TopKV2", keys, size)  # [n, k]
    batch = 1 if value.is_stacked else 0
    return emit("GatherV2", value.tensor, order, np.int32(batch), batch_dims=batch)


@ragged_rule("RandomShuffle")
def shuffle_rows(call: Call, value: Ragged) -> Any:
    """Sorts the elements of each row by random keys: by the keys first, then by the rows."""
    size = value.sizes[0]
    if _tf.in_xla_context(call.emit.graph):
        raise CannotVectorize("a shuffle of rows of different shapes, under jit_compile")
    if len(value.sizes) != 1 or not isinstance(size, RowSizes):
        raise CannotVectorize("rows differ in shape along other axes than the first")
    seeds = {name: call.attr(name) for name in SEEDS}
    keys = call.emit("RandomUniform", tf.shape(value.tensor)[:1], dtype=tf.float64, **seeds)
    order = tf.argsort(keys)
    by_row = tf.argsort(tf.gather(size.rows, order), stable=True)
    return value.with_elements(tf.gather(value.tensor, tf.gather(order, by_row)))
