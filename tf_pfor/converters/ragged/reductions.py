"""Reductions, softmax and sums so far over axes that differ between rows."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from tf_pfor import _tf
from tf_pfor.converters.math._axis_by_row import own_axis
from tf_pfor.converters.ragged._forms import (
    agreed,
    all_packed,
    behind,
    constant_axes,
    from_padded,
    of_room,
    over_axes,
    padded,
    row_ids,
    row_sizes,
    takes_packed,
    with_room,
)
from tf_pfor.converters.ragged._windows import Moved
from tf_pfor.core.call import Call
from tf_pfor.core.errors import CannotVectorize
from tf_pfor.core.facts import SCAN, facts_of, lowest, table_of
from tf_pfor.core.values import Value
from tf_pfor.layouts.packing import largest, mask_of, shared
from tf_pfor.layouts.ragged import Ragged, RowShape, RowSizes, Size, same_sizes, size_value
from tf_pfor.layouts.ragged_rules import family_rule, ragged_rule, rule_of, source
from tf_pfor.layouts.row_sizes import as_number, dim


@family_rule("reduction", of_shapes="Prod")
def reduction(call: Call, x: Any, axis: Value) -> Any:
    """Over axes that all rows share: packed. Over others: by segments, or with the identity."""
    if isinstance(axis, Ragged):
        return _of_what_was_broadcast(call, x)
    if isinstance(x, RowShape):
        return _product_of_sizes(call, x)
    keep = bool(call.attr("keep_dims"))
    axes = sorted(set(constant_axes(call, list(call.inputs)[1], x.rank)))
    if not axes:
        return x
    left = [1 if i in axes else s for i, s in enumerate(x.sizes) if keep or i not in axes]
    if behind(call, x, axes) is None:
        if call.op_type == "Sum" and _are_whole_rows(call, x, axes):
            return Value.stacked(_sum_of_rows(call, x, axes, keep=keep))
        if call.op_type == "Mean":
            return _mean(call, x, axes, left)
    return over_axes(call, x, axes, left=left)


def _of_what_was_broadcast(call: Call, x: Value) -> Value:
    """A gradient by what was broadcast: added up in the rows where one element was repeated."""
    axes, keep = call.op.inputs[1], bool(call.attr("keep_dims"))
    is_gradient = call.op_type == "Sum" and axes.op.type == "BroadcastGradientArgs"
    shape = call.value_of(axes.op.inputs[axes.value_index]) if is_gradient else None
    # Without the axes that were added up, rows of the same elements may differ in rank.
    if not isinstance(shape, RowShape) or not (keep or call.is_only_read_by(["Reshape"])):
        raise CannotVectorize("which axes are reduced differs between iterations")
    found = x.in_rows if isinstance(x, Ragged) else call.stacked(x)
    missing = x.rank - len(shape.sizes)
    target: list[Any] = [1] * missing + [*shape.sizes]
    text = "the gradient does not fit what was broadcast. Sizes"
    for axis, size in enumerate(target):
        own = x.size_at(axis)
        if same_sizes([size], [own]):
            continue
        total = tf.reduce_sum(found, axis + 1, keepdims=True)
        if isinstance(size, RowSizes):
            number = own.tensor if isinstance(own, RowSizes) else dim(found, axis + 1)
            is_one = tf.equal(size.tensor, 1)
            fits, sizes = is_one | tf.equal(size.tensor, number), [number, size.tensor]
            wide = call.after_check(fits, text, sizes, with_room(found, axis + 1, 1))
            is_one = tf.reshape(is_one, [-1, *[1] * x.rank])
            found = of_room(tf.where(is_one, total, wide), axis + 1, largest(size))
        elif isinstance(size, int) and size == 1:
            found = total
        else:
            raise CannotVectorize("the size of what was broadcast is not known")
    if missing and not keep:
        found, target = tf.squeeze(found, [*range(1, missing + 1)]), target[missing:]
    return from_padded(found, target)


def _product_of_sizes(call: Call, x: RowShape) -> Any:
    """The number of elements of some axes: the same object for the same sizes."""
    others = [s for s in x.sizes if not (isinstance(s, int) and s == 1)]
    is_known = all(isinstance(s, (int, RowSizes)) for s in others)
    if call.op_type != "Prod" or call.attr("keep_dims") or not is_known:
        raise CannotVectorize("numbers of one shape")
    ints = math.prod(s for s in others if isinstance(s, int))
    if len(others) == 1 or all(isinstance(s, int) for s in others):
        return size_value(call.emit, others[0] if len(others) == 1 else ints, x.dtype)
    parts = [s for s in others if isinstance(s, RowSizes)]
    bounds = [s.most for s in parts if s.most is not None]
    most = ints * math.prod(bounds) if len(bounds) == len(parts) else None
    return size_value(call.emit, RowSizes.following(parts, _Product(ints), most), x.dtype)


@dataclasses.dataclass(frozen=True, slots=True)
class _Product:
    """The rule for products of sizes and of a factor."""

    factor: int

    def on(self, sizes: Sequence[tf.Tensor]) -> Any:
        """int32 [n]: the product."""
        return math.prod(sizes, start=self.factor)


def _are_whole_rows(call: Call, x: Ragged, axes: list[int]) -> bool:
    """Whether all elements that lie together in the packed form are reduced, row by row."""
    return takes_packed(call, x) and set(range(x.n_leading)) <= {*axes}


def _sum_of_rows(call: Call, x: Ragged, axes: list[int], *, keep: bool) -> tf.Tensor:
    """[n, ...]: the sums of the packed form by rows, after those over other axes."""
    others = [a - x.n_leading + 1 for a in axes if a >= x.n_leading]
    tensor = x.tensor
    if others:
        tensor = tf.reduce_sum(tensor, others, keepdims=keep)
    made = tf.math.segment_sum(tensor, row_ids(x.sizes))  # up to the last row that is not empty
    n: Any = call.loop.length
    rank = made.shape.rank
    assert rank is not None
    missing = tf.maximum(n - tf.shape(made)[0], 0)
    made = tf.pad(made, [[0, missing], *[[0, 0]] * (rank - 1)])
    made.set_shape([call.loop.static_length, *tensor.shape[1:]])
    return made[(slice(None), *[None] * x.n_leading)] if keep else made


def _mean(call: Call, x: Ragged, axes: list[int], left: list[Size]) -> Any:
    """The sum divided by how many there are, with the numbers of TensorFlow's kernel.

    Of no elements that is not a number, or 0 if it is not floating point. Integers are added up in
    64 bits, which may overflow, and what is behind the point is cut off.
    """
    is_integer = x.dtype.is_integer and not x.dtype.is_quantized
    if not (x.dtype.is_floating or x.dtype.is_complex or is_integer):
        raise CannotVectorize(f"the mean of {x.dtype.name} of rows of different sizes")
    keep = bool(call.attr("keep_dims"))
    wide = (tf.uint64 if x.dtype == tf.uint64 else tf.int64) if is_integer else x.dtype
    if x.n_leading > 1 and _are_whole_rows(call, x, axes):
        x = x.with_elements(tf.cast(x.tensor, wide))
        total = _sum_of_rows(call, x, axes, keep=keep)
    else:
        rows = tf.cast(x.in_masked_rows, wide)
        total = tf.reduce_sum(rows, [a + 1 for a in axes], keepdims=keep)
    rank = total.shape.rank
    assert rank is not None
    counts = _counts(x, axes, rank - 1, wide)
    made = tf.truncatediv(total, counts) if is_integer else total / counts
    return from_padded(tf.cast(made, call.output_dtype()), left)


def _counts(x: Ragged, axes: list[int], rank: int, dtype: tf.DType) -> tf.Tensor:
    """The numbers of elements of a row that are reduced, [n, 1, ...] of that inner rank.

    They are what a sum is divided by: at least one, but for floating point.
    """
    sizes: list[Any] = []
    for a in axes:
        size = x.sizes[a] if a < x.n_leading else (x.inner_shape or ())[a]
        sizes.append(tf.shape(x.tensor)[a - x.n_leading + 1] if size is None else size)

    def make() -> tf.Tensor:
        count: Any = math.prod(as_number(s) for s in sizes)
        count = tf.cast(count if dtype.is_floating else tf.maximum(count, 1), dtype)
        return tf.reshape(count, [-1, *[1] * rank]) if count.shape.rank else count

    if not any(isinstance(s, RowSizes) for s in sizes):
        return make()
    return shared(sizes, ("counts", dtype, rank), make)


@ragged_rule("BiasAddGrad")
def bias_gradient(call: Call, out_backprop: Ragged) -> Any:
    """The sums over all axes but the last, of each row."""
    rank = out_backprop.rank
    if call.attr("data_format") != "NHWC" or out_backprop.n_leading == rank:
        raise CannotVectorize("the channels are not the last axis")
    axes = list(range(rank - 1))
    if takes_packed(call, out_backprop):
        return Value.stacked(_sum_of_rows(call, out_backprop, axes, keep=False))
    return Value.stacked(tf.reduce_sum(out_backprop.in_masked_rows, [a + 1 for a in axes]))


@ragged_rule("L2Loss")
def l2_loss(call: Call, t: Ragged) -> Any:
    """Half the sum of squares of each row."""
    axes = list(range(t.rank))
    if takes_packed(call, t):
        total = _sum_of_rows(call, t.with_elements(tf.square(t.tensor)), axes, keep=False)
    else:
        total = tf.reduce_sum(tf.square(t.in_masked_rows), [a + 1 for a in axes])
    return Value.stacked(total / 2)


@ragged_rule("LogSoftmax Softmax")
def softmax(call: Call, logits: Ragged) -> Any:
    """Over the last axis: packed where that is shared, else without the padding."""
    last = logits.rank - 1
    if last >= logits.n_leading:
        return over_axes(call, logits, [last], run=lambda x, _: _softmax(call, x))
    made = _softmax(call, _open(logits, lowest(logits.dtype)))
    is_tame = call.op_type == "Softmax"
    return from_padded(made, logits.sizes, is_tame=is_tame)


def _softmax(call: Call, x: tf.Tensor) -> tf.Tensor:
    """Over the last axis; oneDNN has no kernel for more than five axes."""
    rank = x.shape.rank
    if rank is None or rank <= 5:
        return call.rebuild(logits=x)
    made = call.rebuild(logits=tf.reshape(x, tf.stack([-1, dim(x, rank - 1)])))
    made = tf.reshape(made, tf.shape(x))
    made.set_shape(x.shape)
    return made


def _open(x: Ragged, low: float) -> tf.Tensor:
    """The padded form with ``low`` behind the end of the last axis, and finite elsewhere.

    That is zero in rows that are none, and of no elements.
    """
    size, loose = x.sizes[-1], x.in_any_rows
    assert isinstance(size, RowSizes)
    rank, room = x.rank, dim(loose, x.rank)
    own = mask_of([size], [room])  # [n, room]
    is_none = tf.equal(size.tensor, 0)[:, None]
    others = tf.where(own | is_none, tf.zeros([], x.dtype), tf.constant(low, x.dtype))
    others = others[(slice(None), *[tf.newaxis] * (rank - 1), slice(None))]
    if x.loose is None or x.is_tame:
        return loose + others
    mask = mask_of(x.sizes, [dim(loose, k + 1) for k in range(rank)])
    return tf.where(mask, loose, others)


@ragged_rule("SoftmaxCrossEntropyWithLogits SparseSoftmaxCrossEntropyWithLogits")
def cross_entropy(call: Call, features: Value, labels: Value) -> Any:
    """One loss for each element, packed where all have the same classes, else padded."""
    if not isinstance(features, Ragged):
        raise CannotVectorize("the logits have one shape in all iterations")
    is_sparse = call.op_type.startswith("Sparse")
    pair: list[Value] = [features, labels]
    for axis in range(1 if is_sparse else features.n_leading):
        pair = agreed(call, (pair[0], axis), (pair[1], axis))
    logits, targets = pair
    assert isinstance(logits, Ragged)
    shares_labels = is_sparse and not isinstance(logits.sizes[0], RowSizes)
    if not isinstance(targets, Ragged) and not shares_labels:
        raise CannotVectorize("the labels have one shape in all iterations")
    if logits.n_leading == 1 and call.uses_packed:
        made = call.rebuild(features=logits.tensor, labels=targets.tensor)
        return all_packed(made, logits.sizes)
    if logits.n_leading == 1:
        x = logits.in_rows
    elif is_sparse:
        x = with_room(_open(logits, lowest(logits.dtype)), 2, 1)
        targets = _of_its_classes(call, logits, targets)
    else:  # zero times infinity would be none
        x = _open(logits, logits.dtype.min / 2)
    y = padded(call, targets, targets.rank)
    shape = tf.shape(x)
    flat = [tf.reshape(t, tf.concat([[-1], tf.shape(t)[2:]], 0)) for t in (x, y)]
    loss, slope = call.rebuild(features=flat[0], labels=flat[1])
    loss = from_padded(tf.reshape(loss, shape[:2]), logits.sizes[:1], is_tame=True)
    return [loss, from_padded(tf.reshape(slope, shape), logits.sizes, is_tame=True)]


def _of_its_classes(call: Call, logits: Ragged, labels: Value) -> Value:
    """Labels after a check that each is a class of its row.

    XLA checks nothing. It gets -1 for other labels, and makes NaN of that.
    """
    at = labels.in_rows if isinstance(labels, Ragged) else call.stacked(labels)
    classes = logits.sizes[1]
    assert isinstance(classes, RowSizes)
    fits = (at >= 0) & (at < tf.cast(classes.tensor, at.dtype)[:, None])
    if isinstance(logits.sizes[0], RowSizes):
        fits |= tf.logical_not(mask_of(logits.sizes[:1], [dim(at, 1)]))
    if _tf.in_xla_context(call.emit.graph):
        at = tf.where(fits, at, -1)
    text = "a label is none of the classes of its row in some iterations. Labels and classes"
    at = call.after_check(fits, text, [at, classes.tensor], at)
    return labels.of_rows(at, is_clean=True) if isinstance(labels, Ragged) else Value.stacked(at)


@ragged_rule(table_of(SCAN), of_shapes="Cumsum")
def cumulative(call: Call, x: Any, axis: Value) -> Any:
    """Neutral elements in the padding change nothing, also in reverse.

    The cumulative sum of a shape of one axis is the shape.
    """
    if not isinstance(x, Ragged):
        is_size = isinstance(x, RowShape) and len(x.sizes) == 1 and call.op_type == "Cumsum"
        if not is_size or call.attr("exclusive"):
            raise CannotVectorize("numbers of one shape")
        return x
    return over_axes(call, x, constant_axes(call, "axis", x.rank))


@ragged_rule("ArgMax ArgMin")
def arg_max(call: Call, input: Ragged, dimension: Value) -> Any:
    """The first place of the largest element, which is no padding; a row must have one."""
    (at,) = constant_axes(call, "dimension", input.rank)
    size = input.size_at(at)
    left = [s for i, s in enumerate(input.sizes) if i != at]
    if not isinstance(size, RowSizes) or not call.uses_packed:
        return over_axes(call, input, [at], left=left)
    text = "it is of an axis of size 0 in some iterations. The sizes are"

    def run(x: tf.Tensor, axes: list[int]) -> tf.Tensor:
        x = call.after_check(size.tensor > 0, text, [size.tensor], x)
        x = with_room(x, axes[0], 1)  # if there are no rows
        return call.rebuild(input=x, dimension=np.int32(axes[0]))

    return over_axes(call, input, [at], left=left, run=run)


# ---------------------------------------------------------------------------
# Along an axis of the row
# ---------------------------------------------------------------------------


@source("All Any ArgMax ArgMin Cumprod Cumsum Max Mean Min Prod Sum")
def along_own_axis(call: Call, x: Any, axis: Value) -> Any:
    """The axis of each row moves to the front: then rows that differ in shape have one axis."""
    rank, name = x.rank, list(call.inputs)[1]
    dims = [x.size_at(k) for k in range(rank)]
    if not axis.is_stacked or None in dims:
        raise CannotVectorize("the axis differs between iterations, and sizes are unknown")
    own = own_axis(call, axis, rank)
    sizes = [tf.gather(tf.stack(dims), own)]
    sizes += [tf.where(k - 1 < own, dims[k - 1], dims[k]) for k in range(1, rank)]
    front = Moved(call, x, [row_sizes(call, s, _largest(dims)) for s in sizes], 0)
    of, at = front.of(own), front.places
    behind = [*[tf.where(k < of, at[k + 1], at[k]) for k in range(rank - 1)], at[-1]]
    turned = front.read([tf.where(tf.equal(of, k), at[0], behind[k]) for k in range(rank)])
    first = Value.unstacked(call.emit.constant(0, tf.int32), np.asarray(0, np.int32))
    inner, rule = call.again(call.op, {**call.inputs, name: first}), rule_of(call.op_type)
    assert rule is not None
    made = rule(inner, turned, first)
    keeps = "keep_dims" in call.attrs and call.attr("keep_dims")
    return _turned_back(call, made, own, dims) if keeps or _is_scan(call) else made


def _turned_back(call: Call, x: Value, own: tf.Tensor, dims: list[Any]) -> Value:
    """Moves the first axis of the padded rows to the place ``own``, which differs per row."""
    sizes: list[Any] = list(dims)
    if not _is_scan(call):  # it is kept, with one element
        sizes = [RowSizes.of(tf.where(tf.equal(own, k), 1, d)) for k, d in enumerate(dims)]
    back = Moved(call, x, sizes, 0)
    of, at = back.of(own), back.places
    first = tf.add_n([tf.where(tf.equal(of, k), place, 0) for k, place in enumerate(at)])
    others = [tf.where(k - 1 < of, at[k - 1], at[k]) for k in range(1, len(dims))]
    return back.read([first, *others])


def _is_scan(call: Call) -> bool:
    return facts_of(call.op_type).family == SCAN


def _largest(dims: list[Any]) -> int | None:
    return max(dims) if all(isinstance(d, int) for d in dims) else None
