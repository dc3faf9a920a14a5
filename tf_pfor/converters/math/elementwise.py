"""Elementwise ops: unary, broadcasting, gradient kernels that do not broadcast, identities."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import tensorflow as tf

from tf_pfor import _tf
from tf_pfor.converters.lists._row_packs import zeros_of
from tf_pfor.converters.lists._unpacked_optionals import opened_value
from tf_pfor.converters.math._broadcast import absorbed, broadcast, of_one_shape, scaled
from tf_pfor.converters.math._broadcast import same_shape as same_shape_of_all
from tf_pfor.converters.math._families import elementwise, same_shape, table
from tf_pfor.core.call import Call
from tf_pfor.core.errors import CannotVectorize
from tf_pfor.core.facts import ELEMENTWISE, SAME_SHAPE, table_of
from tf_pfor.core.registry import ALWAYS, ANY, Outcome, RegisterPFor
from tf_pfor.core.shapes import fold, inner_dims, unfold
from tf_pfor.core.stacked_lists import StackedList
from tf_pfor.core.values import Cell, Unstacked, Value, is_static, size_of
from tf_pfor.layouts.csr_rows import CsrRows

elementwise(table_of(ELEMENTWISE))
elementwise(table("SelectV2"), max_groups=8, max_rank=8)
same_shape(table_of(SAME_SHAPE))


@RegisterPFor("Minimum", ANY)
def minimum(call: Call, x: Value, y: Value) -> Any:
    """min(x, y); of numbers min(x, max(x, z)) is x, as sizes of counts and splits are written."""
    found = absorbed(call, x, y)
    return broadcast(call) if found is None else found


@RegisterPFor("SigmoidGrad TanhGrad", ANY)
def gradient_by_result(call: Call, y: Value, dy: Value) -> Any:
    """dy * y (1 - y), or dy * (1 - y^2): the slope of an invariant y is not repeated."""
    if y.is_stacked or y.dtype.is_complex:
        return same_shape_of_all(call)
    emit, one = call.emit, call.emit.constant(1, y.dtype)
    if call.op_type == "TanhGrad":
        return scaled(call, dy, emit("Sub", one, emit("Square", y.tensor)))
    return scaled(call, dy, emit("Mul", y.tensor, emit("Sub", one, y.tensor)))


@RegisterPFor("ReluGrad", ANY)
def relu_grad(call: Call, gradients: Value, features: Value) -> Any:
    """gradients * (features > 0): an invariant mask is not repeated.

    Only where kernels multiply too, for infinity times zero: XLA and small floats select.
    """
    multiplies = features.dtype in (tf.float32, tf.float64)
    if features.is_stacked or not multiplies or _tf.in_xla_context(call.emit.graph):
        return same_shape_of_all(call)
    emit = call.emit
    mask = emit("ReluGrad", emit("OnesLike", features.tensor), features.tensor)
    return scaled(call, gradients, mask)


@RegisterPFor("Betainc ClipByValue", ANY)
def scalars_or_one_shape(call: Call, *_: Value) -> Any:
    """The kernel takes scalars and tensors of one shape: what it would broadcast is repeated."""
    values = call.flat_inputs()
    operands = of_one_shape(call, values)
    if operands[0].shape.rank == 0 and call.op_type == "ClipByValue":  # t has the result's shape
        operands[0] = call.stacked(values[0])
    return call.rebuild(**dict(zip(call.inputs, operands)))


@RegisterPFor("Equal NotEqual", ANY, attrs=("incompatible_shape_error",))
def equal(call: Call, *values: Value) -> Any:
    """Like the others; shapes that turn out not to fit are an error, never one False for all."""
    if call.output_shape() == () and any(v.inner_shape != () for v in values):
        raise CannotVectorize("its inputs have shapes that do not fit: the result is one scalar")
    return broadcast(call, incompatible_shape_error=True)


@RegisterPFor("Select", ANY)
def select(call: Call, condition: Value, t: Value, e: Value) -> Any:
    """One choice for all of t, one for each of its rows, or one for each element."""
    rank = max(call.require_rank(t, "input 't'"), call.require_rank(e, "input 'e'"))
    choices = call.require_rank(condition, "input 'condition'")
    if t.inner_shape != e.inner_shape or not is_static(t.inner_shape):
        return _strict_select(call, axes=int(choices == 1 and rank > 1))
    ones = [1] * (rank - choices)
    parts = inner_dims(call, condition)  # a scalar, or a vector over axis 0 of t
    if condition.is_stacked:
        parts = [call.loop.length, *parts]
    chosen = call.emit.reshape(condition.any_form, [*parts, *ones])  # [n, d, 1 ...]
    return call.emit("SelectV2", chosen, t.tensor, e.tensor)


def _strict_select(call: Call, axes: int) -> Any:
    """By the kernel that refuses different shapes: SelectV2 would broadcast them.

    With a choice for each row of t the loop joins these rows (``axes`` is 1).
    """
    folded = [fold(call, v, axes) for v in call.flat_inputs()]
    t = call.flat_inputs()[1]
    if not t.is_stacked:
        t = Value.stacked(call.stacked(t)).with_inner_shape(t.inner_shape)
    return unfold(call, call.emit("Select", *folded), t, axes)


# Identities ---------------------------------------------------------------------------------------


@RegisterPFor("Identity", ANY)
@RegisterPFor("PlaceholderWithDefault", ANY, attrs=("shape",))
def identity(call: Call, input: Value) -> Any:
    """Passes its input through: no op, unless who reads it waits for something (an Assert, say)."""
    if "_gradient_op_type" in call.attrs:
        raise CannotVectorize("it has a gradient of its own (gradient_override_map)")
    is_tensor = input.is_tensor
    is_handle = input.dtype in (tf.resource, tf.variant)
    if not is_tensor or is_handle or input.constant is not None or not call.waits:
        return input
    made = call.emit("Identity", input.tensor)
    return Value.stacked(made) if input.is_stacked else Value.unstacked(made)


@RegisterPFor("StopGradient", ANY)
def stop_gradient(call: Call, input: Value) -> Any:
    """Elementwise; a list is the same list, with the rows that it had."""
    if input.dtype != tf.variant:
        return broadcast(call)
    return dataclasses.replace(input, cell=Cell(call.rebuild()))


@RegisterPFor("Conj", ANY, family="elementwise")
def conjugate(call: Call, input: Value) -> Any:
    """Elementwise; of a batch of sparse matrices, each."""
    if input.dtype != tf.variant:
        return broadcast(call)
    if not isinstance(input, CsrRows):
        raise CannotVectorize("a loop made the sparse matrix (CSR) of each row")
    return CsrRows.of(call.rebuild())


@RegisterPFor("DeepCopy GuaranteeConst", ALWAYS)
def unguarded_identity(call: Call, x: Value) -> Any:
    """Passes its input through; what varies with the loop is not a constant."""
    return x


@RegisterPFor("CheckNumerics CheckNumericsV2", ALWAYS, attrs=("message",))
def check_numerics(call: Call, tensor: Value) -> Any:
    """Checks the elements of all iterations at once; an invariant tensor once."""
    if not tensor.is_stacked:
        return Value.unstacked(call.rebuild())
    return broadcast(call)


@RegisterPFor("EnsureShape", ANY, attrs=("shape",))
def ensure_shape(call: Call, input: Value) -> Any:
    """[n] + shape; no op where the trace knows that the shape is right."""
    shape = tf.TensorShape(call.attr("shape"))
    if shape.rank is None:
        return input
    if input.inner_shape is not None and tf.TensorShape(input.inner_shape).is_subtype_of(shape):
        return input
    made = input.tensor
    length = call.loop.static_length
    if input.is_stacked and (length == 0 or (length is None and input.inner_shape is None)):
        made = _shape_of_none(call, made, [0, *(0 if d is None else d for d in shape.as_list())])
    return call.rebuild(input=made, shape=[length, *shape.as_list()])


def _shape_of_none(call: Call, x: tf.Tensor, shape: list[int]) -> tf.Tensor:
    """``x`` with this shape where it has no rows: a loop that never ran knows no inner shape."""
    emit, target = call.emit, call.emit.shape_vector(shape)
    if call.loop.static_length is None:
        is_empty = emit("Equal", call.loop.length_tensor, np.int32(0))
        target = emit("SelectV2", is_empty, target, emit.shape_of(x))
    return emit("Reshape", x, target)


@RegisterPFor("ZerosLike", ANY)
def zeros_like(call: Call, x: Value) -> Any:
    """Loop-invariant where the inner shape is static."""
    if isinstance(x, StackedList):
        return opened_value(call, []) or zeros_of(call, x)
    return _filled(call, x, 0)


@RegisterPFor("ZerosLike", (), outcome=Outcome.KEPT)
def invariant_zeros(call: Call, x: Value) -> Any:
    """Kept unchanged; not made if its conditional leaves the optional open."""
    return opened_value(call, []) or Value.unstacked(call.rebuild())


@RegisterPFor("OnesLike", ANY)
def ones_like(call: Call, x: Value) -> Any:
    """Loop-invariant where the inner shape is static."""
    return _filled(call, x, 1)


def _filled(call: Call, x: Value, fill: int) -> Any:
    shape, dtype = x.inner_shape, x.dtype
    if dtype in (tf.string, tf.variant, tf.resource) or not is_static(shape):
        return call.rebuild()
    array = np.full(shape, fill, dtype.as_numpy_dtype)
    if size_of(shape) <= 1024:
        return Unstacked.deferred(
            lambda: call.emit.constant(array, dtype),
            shape,
            dtype,
            known=array,
        )
    scalar = call.emit.constant(fill, dtype)
    return Value.unstacked(call.emit("Fill", np.asarray(shape, np.int32), scalar))


# Other shapes -------------------------------------------------------------------------------------


@RegisterPFor("Bitcast", ANY)
def bitcast(call: Call, input: Value) -> Any:
    """The last inner axis comes or goes with the size of the dtype; the loop stays in front."""
    return call.rebuild()


@RegisterPFor("ToBool", ANY)
def to_bool(call: Call, input: Value) -> Any:
    """A scalar: whether it is not 0 or ""; any other tensor: whether it has elements."""
    rank = call.require_rank(input)
    emit = call.emit
    if rank == 0:
        nothing = "" if input.dtype == tf.string else 0
        return emit("NotEqual", input.tensor, emit.constant(nothing, input.dtype))
    if not is_static(input.inner_shape):
        raise CannotVectorize("the shape of its input is not known before running")
    return Value.unstacked(emit.constant(size_of(input.inner_shape) > 0))
