"""Elementwise ops on rows of different shapes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from tf_pfor import _tf
from tf_pfor.converters.analysis._safety import makes_infinite
from tf_pfor.converters.math._broadcast import absorbed, regroup
from tf_pfor.converters.ragged._forms import (
    aligned,
    all_packed,
    broadcast_size,
    equal_size,
    from_padded,
    padded,
    repeated,
    row_ids,
    row_sizes,
    size_when_run,
    takes_packed,
    unified,
    with_room,
)
from tf_pfor.core.call import Call
from tf_pfor.core.errors import CannotVectorize
from tf_pfor.core.facts import (
    AT_INFINITY,
    AT_LARGE,
    AT_ZERO,
    CHEAP,
    NOWHERE,
    REDUCTION,
    SOMEWHERE,
    Where,
    facts_of,
)
from tf_pfor.core.shapes import expand_to_rank
from tf_pfor.core.values import Value
from tf_pfor.layouts import cpu_kernels
from tf_pfor.layouts.packing import largest
from tf_pfor.layouts.ragged import Ragged, RowSize, RowSizes, same_sizes
from tf_pfor.layouts.ragged_rules import family_rule, ragged_rule
from tf_pfor.layouts.row_sizes import as_number, dim, is_one


@family_rule("elementwise")
@ragged_rule("Add AddV2 OnesLike ReluGrad SigmoidGrad TanhGrad ZerosLike")
def elementwise(call: Call, *inputs: Value) -> Any:
    """Packed where sizes are shared, or of one element; else padded."""
    return _broadcast(call, inputs)


def _broadcast(call: Call, inputs: Sequence[Value], **attrs: object) -> Any:
    """The same, with some attributes changed."""
    if not any(isinstance(v, Ragged) for v in inputs):
        raise CannotVectorize("numbers of one shape")
    rank = max(v.rank for v in inputs)
    inputs = tuple(unified(call, inputs, rank))
    leading = max(rank - v.rank + v.n_leading for v in inputs if isinstance(v, Ragged))
    sizes = [_common_size(inputs, i, rank) for i in range(leading)]
    if not any(isinstance(s, RowSizes) for s in sizes):
        raise CannotVectorize("the sizes of an input are not known")
    while not isinstance(sizes[-1], RowSizes):
        sizes.pop()
    names, facts = list(call.inputs), facts_of(call.op_type)
    is_of_anything = facts.slope is NOWHERE and facts.cost in CHEAP and not facts.may_fail
    if is_of_anything and len(inputs) == 1 and not takes_packed(call, *inputs):
        (x,) = inputs  # no gradient comes back from what is zero, whatever is in the padding
        assert isinstance(x, Ragged)
        return from_padded(call.rebuild(**{names[0]: x.in_any_rows}), sizes)
    worst = AT_ZERO if len(inputs) == 1 else SOMEWHERE  # zeros may meet elements of another input
    slope, value = _outside(call, inputs)
    if slope < worst and not facts.may_fail and _stay_padded(call, inputs, sizes):
        made, is_tame = _in_padding(call, inputs, slope, value, **attrs)
        return from_padded(made, sizes, is_tame=is_tame)
    if call.uses_packed and all(s is not None for s in sizes):
        may_repeat = _repeats_packed(call, inputs, sizes)
        operands = [aligned(call, v, sizes, rank, may_repeat=may_repeat) for v in inputs]
        if all(t is not None for t in operands):
            return Ragged.packed(call.rebuild(**dict(zip(names, operands)), **attrs), sizes)
    if facts.slope >= worst or facts.may_fail:  # else zero times infinite is a gradient
        inputs = tuple(repeated(v) for v in inputs)
    operands = [padded(call, v, rank) for v in inputs]
    made = call.rebuild(**dict(zip(names, operands)), **attrs)
    sizes = [dim(made, i + 1) if s is None else s for i, s in enumerate(sizes)]
    return from_padded(made, sizes)


def _outside(call: Call, inputs: Sequence[Value]) -> tuple[Where, Where]:
    """The operands for which a slope, and a value, are infinite; numbers that scale rows count."""
    facts = facts_of(call.op_type)
    by = next((v.constant for v in inputs if v.constant is not None), None)
    if call.op_type not in ("Mul", "RealDiv") or by is None or call.output_dtype().is_integer:
        return facts.slope, facts.value
    if call.op_type == "RealDiv":
        if inputs[1].constant is None or not np.all(by):
            return facts.slope, facts.value
        with np.errstate(over="ignore"):
            by = 1 / by
    if not np.all(np.isfinite(by)):
        return facts.slope, facts.value
    return NOWHERE, AT_INFINITY if np.all(np.abs(by) <= 1) else AT_LARGE


def _stay_padded(call: Call, inputs: Sequence[Value], sizes: Sequence[Any]) -> bool:
    """Whether rows stay padded, since numbers along several axes that differ are dear to pack.

    So it is for scores of attention, which a product leaves padded. Vectors are packed as a whole.
    """
    several = sum(isinstance(s, RowSizes) for s in sizes) > 1 and None not in sizes
    are_numbers = len(sizes) == max(v.rank for v in inputs)
    return several and are_numbers and call.uses_packed and not takes_packed(call, *inputs)


def _repeats_packed(call: Call, inputs: Sequence[Value], sizes: Sequence[Any]) -> bool:
    """Whether packed vectors are repeated along axes that differ, as in x[:, None] - x[None].

    Padding would cost the square of the largest size for each row. Kernels that repeat pieces of
    memory run on CPUs; numbers stay padded, for scores of attention (``_stay_padded``).
    """
    are_packed = all(takes_packed(call, v) for v in inputs if isinstance(v, Ragged))
    return are_packed and len(sizes) < max(v.rank for v in inputs) and cpu_kernels.may_run()


def _in_padding(
    call: Call, inputs: Sequence[Value], slope: Where, value: Where, **attrs: object
) -> tuple[tf.Tensor, bool]:
    """The op on padded rows, with anything in the padding where no gradient can see that.

    Args:
      call: the call.
      inputs: the operands.
      slope: the operands for which its slope is infinite.
      value: the operands for which its value is infinite.
      **attrs: attributes that change.

    Returns:
      The padded result, and whether all in its padding is finite.
    """
    rank = max(v.rank for v in inputs)
    rows = [v for v in inputs if isinstance(v, Ragged)]
    is_calm = all(v.loose is None or v.is_tame for v in rows)
    is_any = slope is NOWHERE or (is_calm and slope <= AT_LARGE)

    def operand(v: Value) -> tf.Tensor:
        if not isinstance(v, Ragged):
            return padded(call, v, rank)
        x = v.in_any_rows if is_any else v.in_masked_rows
        return expand_to_rank(call, Value.stacked(x), rank)

    made = call.rebuild(**dict(zip(call.inputs, map(operand, inputs))), **attrs)
    others = [v for v in inputs if not isinstance(v, Ragged)]
    are_finite = all(v.constant is not None and _is_finite(v.constant) for v in others)
    stays_finite = value <= AT_INFINITY and not makes_infinite(call.op)
    return made, (is_calm or not is_any) and are_finite and stays_finite


def _is_finite(number: np.ndarray) -> bool:
    return number.dtype == object or bool(np.all(np.isfinite(number)))


def _common_size(values: Sequence[Value], axis: int, rank: int) -> Any:
    """The size of an axis of the result; None if no row differs, and only the result tells it."""
    places = [(v, axis - rank + v.rank) for v in values]
    sizes = [v.size_at(i) for v, i in places]
    larger = [place for place, size in zip(places, sizes) if not is_one(size)]
    if len(larger) == 1:
        return size_when_run(*larger[0])
    is_alike = not any(isinstance(size, RowSizes) for size in sizes)
    is_known = all(isinstance(size, int) for size in sizes)
    return None if is_alike and not is_known else broadcast_size(sizes, axis)


@ragged_rule("Equal NotEqual")
def equal(call: Call, x: Value, y: Value) -> Any:
    """Elementwise. Shapes that do not fit make one False of a row where all of it is reduced.

    Else they are an error.
    """
    rank = max(x.rank, y.rank)
    pairs = [[v.size_at(i - rank + v.rank) for v in (x, y)] for i in range(rank)]
    if not call.attr("incompatible_shape_error"):
        ints = [pair for pair in pairs if all(isinstance(s, int) for s in pair)]
        if any(1 != a != b != 1 for a, b in ints):
            text = "its inputs have shapes that do not fit: the result is one scalar"
            raise CannotVectorize(text)
        fits = all(is_one(a) or is_one(b) or same_sizes([a], [b]) for a, b in pairs)
        is_plain = x.rank == y.rank and x.dtype != tf.string and call.uses_packed
        if is_plain and not fits and _is_reduced(call, call.op.outputs[0]):
            return _equal_rows(call, x, y, rank)
    return _broadcast(call, (x, y), incompatible_shape_error=True)


def _is_reduced(call: Call, tensor: tf.Tensor) -> bool:
    """Whether all that reads a tensor are reductions of all of it, whatever its rank is."""
    return not call.is_asked(tensor) and all(_reduces(call, o, tensor) for o in tensor.consumers())


def _reduces(call: Call, op: tf.Operation, tensor: tf.Tensor) -> bool:
    if op.type == "Rank":  # for the axes
        return all(reader.type == "Range" for reader in op.outputs[0].consumers())
    if op.type in ("Cast", "Identity", "LogicalNot"):
        return _is_reduced(call, op.outputs[0])
    if facts_of(op.type).family != REDUCTION or op.get_attr("keep_dims"):
        return False
    axes, known = op.inputs[1].op, _tf.static_value(op.inputs[1])
    if known is not None:
        return tensor.shape.rank is not None and known.size == tensor.shape.rank
    is_range = axes.type == "Range" and axes.inputs[1].op.type == "Rank"
    return is_range and axes.inputs[1].op.inputs[0] is tensor


def _equal_rows(call: Call, x: Value, y: Value, rank: int) -> Value:
    """Elements that are equal, of rows that fit; of the others one, which says that they do not."""
    sizes = [[size_when_run(v, i) for i in range(rank)] for v in (x, y)]
    numbers = [[*map(as_number, each)] for each in sizes]
    rows = [v.in_rows if isinstance(v, Ragged) else call.stacked(v) for v in (x, y)]
    fits = tf.ones(tf.stack([call.loop.length]), tf.bool)
    for a, b in zip(*numbers):
        fits = fits & (tf.equal(a, b) | tf.equal(a, 1) | tf.equal(b, 1))
    common: list[Any] = []
    for axis, (a, b) in enumerate(zip(*numbers)):
        own = tf.where(fits, tf.where(tf.equal(a, 1), b, a), 1)
        common.append(row_sizes(call, own))
        places = tf.range(largest(common[-1]))[None]
        for k, size in enumerate((a, b)):
            last = tf.zeros_like(own) + tf.maximum(size - 1, 0)
            at = tf.minimum(places, last[:, None])  # one element is repeated
            rows[k] = tf.gather(with_room(rows[k], axis + 1, 1), at, axis=axis + 1, batch_dims=1)
    made = call.rebuild(x=rows[0], y=rows[1], incompatible_shape_error=True)
    fits = tf.reshape(fits, [-1, *[1] * rank])
    return from_padded(tf.where(fits, made, call.op_type == "NotEqual"), common)


@ragged_rule("SelectV2", of_shapes=True)
def select(call: Call, condition: Value, t: Value, e: Value) -> Any:
    """Elementwise; a shape that is chosen as a whole, of which no size is -1, is that shape."""
    known = condition.constant
    if known is not None and (known.all() or not known.any()):
        chosen = t if known.all() else e
        if chosen.inner_shape == call.output_shape():
            return chosen
    return elementwise(call, condition, t, e)


@ragged_rule("Minimum Mul", of_shapes=True)
def elements_or_sizes(call: Call, x: Value, y: Value) -> Any:
    """Elementwise; a size times one, min(size, size) or min(size, max(size, z)), is that size."""
    if isinstance(x, Ragged) or isinstance(y, Ragged):
        return elementwise(call, x, y)
    found: Value | None = None
    if call.op_type == "Minimum":
        is_same = isinstance(x, RowSize) and isinstance(y, RowSize) and x.size is y.size
        found = x if is_same else absorbed(call, x, y)
    if call.op_type == "Mul":
        found = next((a for a, b in ((x, y), (y, x)) if _is_number_one(b)), None)
    if not isinstance(found, RowSize):
        raise CannotVectorize("numbers of one shape")
    return found


def _is_number_one(value: Value) -> bool:
    return value.constant is not None and value.constant.ndim == 0 and value.constant == 1


@family_rule("same_shape")
@ragged_rule("AddN Betainc ClipByValue Select")
def same_shape(call: Call, *inputs: Value) -> Any:
    """Kernels that do not broadcast: inputs are of the same sizes, or scalars if they may be."""
    flat = call.flat_inputs()
    rank = max(v.rank for v in flat)
    is_scalar = [call.op_type in _OF_SCALARS and not v.rank for v in flat]
    shaped = [v for v, alone in zip(flat, is_scalar) if not alone]
    if not any(isinstance(v, Ragged) for v in shaped):
        raise CannotVectorize("numbers of one shape")
    is_of_limits = call.op_type == "ClipByValue" and is_scalar[0]
    if is_of_limits or any(v.rank != rank for v in shaped):
        raise CannotVectorize("its inputs are of different rank")
    tensors, sizes, is_packed = _of_one_form(call, shaped, rank)
    left, rows = iter(tensors), sizes if is_packed else []
    full = [
        _of_all_elements(call, v, tensors[0], rows) if alone else next(left)
        for v, alone in zip(flat, is_scalar)
    ]
    made = call.rebuild(**regroup(call, full))
    if not sizes:
        return made
    return Ragged.packed(made, sizes) if is_packed else from_padded(made, sizes)


_OF_SCALARS = ("Betainc", "ClipByValue", "Select")  # a scalar is for all elements


def _of_one_form(
    call: Call, values: Sequence[Value], rank: int
) -> tuple[list[Any], list[Any], bool]:
    """Tensors of the same sizes; these, none if all rows have one shape; and if they are packed.

    Where an input has one shape in all rows, the rows of the others must have it too.
    """
    dense = next((call.stacked(v) for v in values if not isinstance(v, Ragged)), None)
    if dense is not None:
        return (
            [_like(call, v, dense) if isinstance(v, Ragged) else call.stacked(v) for v in values],
            [],
            False,
        )
    values = unified(call, values, rank, broadcasts=False)
    leading = max(v.n_leading for v in values if isinstance(v, Ragged))
    sizes = [equal_size(values, i) for i in range(leading)]
    if call.uses_packed:
        tensors = [aligned(call, v, sizes, rank) for v in values]
        if all(t is not None for t in tensors):
            return tensors, sizes, True
    return [padded(call, v, rank) for v in values], sizes, False


def _of_all_elements(call: Call, scalar: Value, like: tf.Tensor, sizes: Sequence[Any]) -> tf.Tensor:
    """A scalar of each row for each of its elements; one that rows share as it is.

    Args:
      call: the call.
      scalar: a value of inner rank 0.
      like: a tensor of the form of the result.
      sizes: the sizes of its packed axes; none where it is not packed.
    """
    x = scalar.standard(call.emit).tensor
    if not scalar.is_stacked:
        return x
    x = tf.gather(x, row_ids(sizes)) if sizes else x
    return tf.broadcast_to(tf.reshape(x, [-1, *[1] * (like.shape.rank - 1)]), tf.shape(like))


@ragged_rule("Identity StopGradient", of_shapes="Identity")
def identity(call: Call, value: Ragged) -> Any:
    """The value; no gradient goes through a StopGradient."""
    if call.op_type == "Identity":
        return value
    if call.uses_packed:
        return Ragged.packed(tf.stop_gradient(value.tensor), value.sizes)
    return from_padded(tf.stop_gradient(value.in_rows), value.sizes, is_clean=True)


@ragged_rule("BiasAdd")
def bias_add(call: Call, value: Value, bias: Value) -> Any:
    """A vector added to the last axis, which is the same in all rows."""
    if call.attr("data_format") != "NHWC" or not isinstance(value, Ragged):
        raise CannotVectorize("the channels are not the last axis")
    rank, sizes = value.rank, value.sizes
    if isinstance(bias, Ragged) or len(sizes) == rank:
        raise CannotVectorize("the channels differ between iterations")
    if takes_packed(call, value):
        operand = aligned(call, bias, sizes, rank)
        if operand is not None:
            return Ragged.packed(value.tensor + operand, sizes)
    return from_padded(value.in_any_rows + padded(call, bias, rank), sizes)


@ragged_rule("Bitcast CheckNumerics CheckNumericsV2 HSVToRGB RGBToHSV")
def of_elements(call: Call, x: Ragged) -> Any:
    """Kernels that keep the sizes, of elements or of the pixels behind them: packed."""
    is_bitcast = call.op_type == "Bitcast"
    takes_last = call.output_dtype().size > x.dtype.size if is_bitcast else True
    if takes_last and "Numerics" not in call.op_type and x.n_leading == x.rank:
        raise CannotVectorize("the size of the last axis differs between iterations")
    (name, *_) = call.inputs
    if call.uses_packed:
        return Ragged.packed(call.rebuild(**{name: x.tensor}), x.sizes)
    return from_padded(call.rebuild(**{name: x.in_rows}), x.sizes)


@ragged_rule("DecodeCSV DecodePaddedRaw RegexFullMatch RegexReplace")
def of_texts(call: Call, x: Value, *others: Any) -> Any:
    """Kernels of texts alone: packed. Patterns, lengths and defaults are the same in all rows."""
    shared = [v for other in others for v in (other if isinstance(other, list) else [other])]
    if not isinstance(x, Ragged) or any(v.is_stacked for v in shared) or not call.uses_packed:
        raise CannotVectorize("what is beside the texts differs between iterations")
    made = call.rebuild(**{next(iter(call.inputs)): x.tensor})
    return all_packed(made, x.sizes)


@ragged_rule("EnsureShape")
def ensure_shape(call: Call, value: Ragged) -> Any:
    """Dense, after a check, where all of the shape is known."""
    known = call.attr("shape").merge_with(call.op.outputs[0].shape)
    return _of_shape(call, value, known.as_list()) if known.is_fully_defined() else value


def _like(call: Call, value: Ragged, like: tf.Tensor) -> tf.Tensor:
    """Dense rows, after a check that each has the shape of a row of ``like``."""
    known = like.shape[1:]
    if known.is_fully_defined():
        return _of_shape(call, value, known.as_list())
    dense = value.standard(call.emit).tensor
    shape, whole = tf.shape(dense), tf.shape(like)
    text = "the sizes of two inputs differ in some iterations. They are"
    fits = tf.equal(shape[0], 0) | tf.reduce_all(tf.equal(shape, whole))
    whole = call.after_check(fits, text, [shape, whole], whole)
    made = tf.reshape(dense, whole)  # of no rows, nobody knows how large one would be
    return tf.ensure_shape(made, [call.loop.static_length, *known])


def _of_shape(call: Call, value: Ragged, known: Any) -> tf.Tensor:
    """Dense rows, after a check that each has this shape."""
    dense = value.standard(call.emit).tensor
    shape = tf.shape(dense)  # if there are no rows, nobody knows how large one would be
    inner = tf.where(shape[0] > 0, shape[1:], known)
    made = tf.reshape(dense, tf.concat([shape[:1], inner], 0))
    return tf.ensure_shape(made, [call.loop.static_length, *known])


@ragged_rule("IdentityN")
def identity_n(call: Call, input: list[Value]) -> Any:
    """The same, with the gradient of a tf.custom_gradient if they come from one."""
    return call.with_custom_gradient(input)
