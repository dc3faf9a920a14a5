"""Numbers whose count differs per row: ranges, places of true elements, places in a sort."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from tf_pfor.converters.ragged._forms import (
    SET,
    coordinates,
    from_packed,
    from_padded,
    padded,
    parted,
    row_ids,
    row_sizes,
    row_starts,
)
from tf_pfor.converters.ragged.shapes import target_sizes
from tf_pfor.core.call import Call
from tf_pfor.core.errors import CannotVectorize
from tf_pfor.core.facts import highest
from tf_pfor.core.registry import ANY, RegisterPFor
from tf_pfor.core.values import Value, is_static
from tf_pfor.layouts import row_kernels
from tf_pfor.layouts.packing import masked
from tf_pfor.layouts.ragged import Ragged, RowSize, RowSizes
from tf_pfor.layouts.ragged_rules import ragged_rule, source
from tf_pfor.layouts.row_sizes import is_one, row_counts


@source("Range")
def row_range(call: Call, start: Value, limit: Value, delta: Value) -> Any:
    """Numbers up to a limit of the row."""
    call.require_packed("a range of unknown length")
    if isinstance(limit, RowSize) and _is(start, 0) and _is(delta, 1):
        return _counted(limit)
    a, b, d = (tf.convert_to_tensor(call.stacked(v)) for v in (start, limit, delta))
    is_right = tf.not_equal(d, 0) & tf.where(d > 0, a <= b, a >= b)
    text = "its step must lead from its start to its limit. Starts, limits and steps are"
    a = call.after_check(is_right, text, [a, b, d], a)
    if start.dtype.is_integer:
        step = tf.abs(d)
        length = tf.maximum((tf.abs(b - a) + step - 1) // step, 0)
    else:
        length = tf.math.ceil(tf.abs((b - a) / d))
    lengths = RowSizes.of(tf.cast(length, tf.int32))
    rows = row_ids([lengths])
    at = tf.range(tf.shape(rows)[0]) - tf.gather(row_starts([lengths]), rows)
    made = tf.gather(a, rows) + tf.cast(at, start.dtype) * tf.gather(d, rows)
    return Ragged.packed(made, [lengths])


def _is(value: Value, number: int) -> bool:
    return value.constant is not None and bool(value.constant == number)


def _counted(limit: RowSize) -> Value:
    """The places along an axis that differs: as many as that has, which nobody need check."""
    rows, starts = row_ids([limit.size]), row_starts([limit.size])
    made = tf.range(tf.shape(rows)[0]) - tf.gather(starts, rows)
    return Ragged.packed(tf.cast(made, limit.dtype), [limit.size])


@source("Where")
def where(call: Call, input: Value) -> Any:
    """The places of what is true, or not zero."""
    x = input.tensor
    axes = list(range(1, input.rank + 1))
    is_set = x if x.dtype == tf.bool else tf.not_equal(x, tf.zeros([], x.dtype))
    size = _numbers_set(call, input, is_set, axes)
    if not call.uses_packed:
        return _in_front(call, is_set, size)
    found = tf.where(is_set)
    places = found[:, 1:]
    size.shared.setdefault(SET, {})[places.ref()] = found
    return Ragged.packed(places, [size])


def _in_front(call: Call, is_set: tf.Tensor, counts: RowSizes) -> Value:
    """The places of what is true in [n, ...], padded to as many as a row has elements."""
    shape: Any = is_set.shape[1:]
    if not shape.is_fully_defined():
        raise CannotVectorize(f"how many may be true is not known, {call.where_padded}")
    count = shape.num_elements()
    flat = tf.reshape(is_set, [-1, count])
    places = tf.sort(tf.where(flat, tf.range(count), count))  # of what is true, then the rest
    columns: list[tf.Tensor] = []
    for size in reversed(shape):
        columns.insert(0, places % max(size, 1))
        places //= max(size, 1)
    return from_padded(tf.cast(tf.stack(columns, 2), tf.int64), [counts])


def _numbers_set(call: Call, input: Value, is_set: tf.Tensor, axes: list[int]) -> RowSizes:
    """The number of true elements in each row: the same object for all readers of one mask.

    ``tf.boolean_mask`` reshapes its mask each time.
    """
    tensor = call.op.inputs[0]
    while tensor.op.type in ("Identity", "Reshape") and tensor.op.inputs[0].shape.rank == 1:
        tensor = tensor.op.inputs[0]
    known = call.memo.setdefault(("numbers that are set", call.loop), {})
    key = (tensor.op, tensor.value_index)
    if key not in known:
        counts = tf.reduce_sum(tf.cast(is_set, tf.int32), axes)
        sizes = input.inner_shape
        most = int(np.prod(sizes)) if is_static(sizes) else None
        known[key] = row_sizes(call, counts, most)
    return known[key]


@ragged_rule("Where")
def where_of_ragged(call: Call, input: Value) -> Any:
    """The places of true elements in ragged rows."""
    if not isinstance(input, Ragged):
        raise CannotVectorize("it selects by the shape of a row")
    is_packed = call.uses_packed
    x = input.tensor if is_packed else input.in_rows
    is_set = x if x.dtype == tf.bool else tf.not_equal(x, tf.zeros([], x.dtype))
    if not is_packed:  # nothing is true in the padding
        axes = list(range(1, input.rank + 1))
        counts = tf.reduce_sum(tf.cast(is_set, tf.int32), axes)
        return _in_front(call, is_set, RowSizes.of(counts, is_set.shape[1:].num_elements()))
    found = tf.where(is_set)  # [m, 1 + rest], of the packed form
    rows, places = coordinates(input.sizes, found[:, 0])
    n = call.loop.length
    counts = tf.math.bincount(rows, minlength=n, maxlength=n, dtype=tf.int32)
    first = input.sizes[0]
    most = first.most if input.rank == 1 and isinstance(first, RowSizes) else None
    made = tf.concat([tf.stack(places, 1), found[:, 1:]], 1)
    return Ragged.packed(made, [row_sizes(call, counts, most)])


@ragged_rule("LowerBound UpperBound")
def search(call: Call, sorted_inputs: Value, values: Value) -> Any:
    """Places among one row of sorted numbers, [1, m], for values [1, k], of which either is own.

    Behind the numbers of a row stands the largest there is: no place lies beyond its length.
    """
    if not all(v.rank == 2 and is_one(v.size_at(0)) for v in (sorted_inputs, values)):
        raise CannotVectorize("several sequences in each row, of which one has variable lengths")
    if isinstance(values, Ragged) and not sorted_inputs.is_stacked and call.uses_packed:
        made = call.rebuild(values=tf.reshape(values.tensor, [1, -1]))
        return Ragged.packed(tf.reshape(made, [-1]), values.sizes)
    if not sorted_inputs.is_stacked:
        sorted_inputs = Value.stacked(call.stacked(sorted_inputs))
    if not values.is_stacked:
        values = Value.stacked(call.stacked(values))
    numbers, among = padded(call, values, 2), padded(call, sorted_inputs, 2)  # [n, 1, k or m]
    size = sorted_inputs.size_at(1)
    if isinstance(sorted_inputs, Ragged):
        dtype = among.dtype
        among = masked(among, sorted_inputs.sizes, highest(dtype))
    made = call.rebuild(sorted_inputs=tf.squeeze(among, 1), values=tf.squeeze(numbers, 1))
    if isinstance(size, RowSizes):
        made = tf.minimum(made, tf.cast(size.tensor, made.dtype)[:, None])
    made = tf.expand_dims(made, 1)
    return from_padded(made, values.sizes) if isinstance(values, Ragged) else made


@ragged_rule("InvertPermutation")
def invert_permutation(call: Call, x: Ragged) -> Any:
    """Permutations of all rows, one behind the other, are one permutation."""
    call.require_packed("permutations of different lengths")
    starts, counts = (
        tf.cast(tf.gather(t, row_ids(x.sizes)), x.dtype)
        for t in (row_starts(x.sizes), row_counts(x.sizes))
    )
    is_inside = (x.tensor >= 0) & (x.tensor < counts)
    moved = tf.where(is_inside, x.tensor + starts, -1)  # which the kernel refuses
    return Ragged.packed(call.rebuild(x=moved) - starts, x.sizes)


_DRAWS = "RandomStandardNormal RandomUniform RandomUniformInt TruncatedNormal"


@ragged_rule(_DRAWS, of_shapes=True, is_source=True)
def draw(call: Call, shape: Value, *limits: Value) -> Any:
    """One draw of as many numbers as the rows have."""
    sizes, leading, rest = _own_shape(call, shape)
    if any(v.is_stacked for v in limits):
        raise CannotVectorize("the shape and the range differ between iterations")
    total = tf.reduce_sum(row_counts(leading))
    return from_packed(call.rebuild(shape=tf.stack([total, *rest])), sizes)


_SEEDED = (
    "StatelessRandomNormalV2 StatelessRandomUniformFullIntV2 StatelessRandomUniformIntV2 "
    "StatelessRandomUniformV2 StatelessTruncatedNormalV2"
)


@ragged_rule(_SEEDED, of_shapes=True, is_source=True)
def seeded_draw(call: Call, shape: Value, *others: Value) -> Any:
    """One draw for the largest row: the same seed begins with the same numbers in each.

    Where the seed, or the range, differs, the kernel draws for all rows in parallel.
    """
    sizes, leading, rest = _own_shape(call, shape)
    if any(v.is_stacked for v in others):
        total = tf.reduce_sum(row_counts(leading))
        made = tf.reshape(_by_kernel(call, shape, others), tf.stack([total, *rest]))
        return from_packed(made, sizes)
    most = tf.reduce_max(tf.concat([row_counts(leading), [0]], 0))
    drawn = call.rebuild(shape=tf.stack([most, *rest]))
    rows, starts = row_ids(leading), row_starts(leading)
    made = tf.gather(drawn, tf.range(tf.shape(rows)[0]) - tf.gather(starts, rows))
    return from_packed(made, sizes)


def _by_kernel(call: Call, shape: Value, others: Sequence[Value]) -> tf.Tensor:
    """The numbers of all rows, one behind the other."""
    names, op = list(call.inputs)[1:], getattr(tf.raw_ops, call.op_type)
    types = {} if "minval" in names else {"dtype": call.output_dtype()}
    order = sorted(range(len(names)), key=lambda i: not others[i].is_stacked)
    tensors = [others[i].tensor for i in order]
    count = sum(v.is_stacked for v in others)

    def one(own: tf.Tensor, *given: tf.Tensor) -> list[tf.Tensor]:
        inputs = {names[i]: tensor for i, tensor in zip(order, given, strict=True)}
        return [tf.reshape(op(shape=own, **inputs, **types), [-1])]

    rows = [call.stacked(shape), *tensors[:count]]
    length, outputs = call.loop.static_length, call.op.outputs
    (made,) = row_kernels.all_rows(one, rows, tensors[count:], outputs, [(None,)], length)
    return made.tensor


def _own_shape(call: Call, shape: Value) -> tuple[list[Any], list[Any], list[Any]]:
    """The sizes; those up to the last one that differs, and those behind."""
    sizes = target_sizes(call, shape, 0)
    leading, rest = parted(sizes)
    if not leading or not call.uses_packed:
        raise CannotVectorize("the shape differs between iterations in a way that is not known")
    return sizes, leading, rest


@RegisterPFor("BroadcastArgs", ANY)
def broadcast_args(call: Call, s0: Value, s1: Value) -> Any:
    """A size of one gives way to the other shape's size; other sizes must agree, in each row."""
    counts = [(v.inner_shape or (None,))[0] for v in (s0, s1)]
    if counts[0] is None or counts[1] is None:
        raise CannotVectorize("the ranks of the shapes are not known before running")
    with call.emit.as_default():
        wide: list[Any] = []
        for value, count, other in zip((s0, s1), counts, counts[::-1]):
            assert count is not None
            missing = max(other or 0, count) - count
            wide.append(tf.pad(call.stacked(value), [[0, 0], [missing, 0]], constant_values=1))
        a, b = wide
        agree = tf.equal(a, b) | tf.equal(a, 1) | tf.equal(b, 1)
        text = "shapes cannot be broadcast. They are"
        made = call.after_check(agree, text, wide, tf.where(tf.equal(a, 1), b, a))
    return made
