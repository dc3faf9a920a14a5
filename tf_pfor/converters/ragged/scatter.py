"""Sums by segments, counts and scatters, where rows have different numbers of entries.

The entries of all rows are scattered at once, to places that say the row as well. Entries of
padding go to no place, or to a row behind the last one.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from tf_pfor import _tf
from tf_pfor.converters.ragged._forms import (
    from_padded,
    known_sizes,
    of_elements,
    of_equal_room,
    padded,
    row_ids,
    row_sizes,
)
from tf_pfor.converters.ragged.shapes import target_sizes
from tf_pfor.core.call import Call
from tf_pfor.core.errors import CannotVectorize
from tf_pfor.core.values import Value
from tf_pfor.layouts.packing import mask_of, pad
from tf_pfor.layouts.ragged import Ragged, RowSize, RowSizes, same_sizes, shape_value
from tf_pfor.layouts.ragged_parts import packed_to
from tf_pfor.layouts.ragged_rules import ragged_rule, source
from tf_pfor.layouts.row_sizes import as_number, at_rows, is_one, row_counts


def _entries(
    call: Call, values: Sequence[Value], rank: int, *, may_be_wide: bool = False
) -> tuple[list[tf.Tensor], tf.Tensor, Any]:
    """Values whose first ``rank`` inner axes are the entries, one entry after the other.

    Args:
      call: the call.
      values: some are ragged.
      rank: the number of axes of the entries.
      may_be_wide: whether the shape of entries may differ per row: they are padded.

    Returns:
      The tensors [total, ...]; int32 [total], the row of each entry; bool [total], true for
      entries and false for padding, None if there is no padding.
    """
    found = list(values)
    ragged = [v for v in found if isinstance(v, Ragged)]
    if not ragged:
        wide = [call.stacked(v) for v in found]
        shape = tf.shape(wide[0])[: rank + 1]
        return [packed_to(w, rank) for w in wide], _row_numbers(shape), None
    if any(v.n_leading > rank for v in ragged) and not may_be_wide:
        raise CannotVectorize("what is scattered differs in shape")
    first = next((v for v in ragged if any(a < rank for a in v.ragged_axes)), ragged[0])
    for axis in range(rank):
        sizes = [v.size_at(axis) for v in found]
        if any(not same_sizes([s], sizes[:1]) for s in sizes):
            first = _checked(call, first, sizes, axis)
    of_entries = all(isinstance(v, Ragged) and v.n_leading == rank for v in found)
    if call.uses_packed and of_entries:
        return [v.tensor for v in found], row_ids(first.sizes), None
    wide = [v.in_rows if isinstance(v, Ragged) else call.stacked(v) for v in found]
    own = list(first.sizes[:rank])
    while own and not isinstance(own[-1], RowSizes):
        own.pop()
    wide = of_equal_room(wide, own)
    shape = tf.shape(wide[0])[: rank + 1]
    flat, rows = [packed_to(w, rank) for w in wide], _row_numbers(shape)
    if not own:
        return flat, rows, None
    mask = mask_of(own, [shape[i + 1] for i in range(len(own))])
    mask = tf.reshape(mask, tf.concat([tf.shape(mask), [1] * (rank - len(own))], 0))
    return flat, rows, tf.reshape(tf.broadcast_to(mask, shape), [-1])


def _row_numbers(shape: Any) -> tf.Tensor:
    """int32 [total]: of which row each element of a tensor [n, ...] of this shape is."""
    return tf.repeat(tf.range(shape[0]), tf.reduce_prod(shape[1:]))


def _checked(call: Call, first: Ragged, sizes: list[Any], axis: int) -> Ragged:
    """``first``, after a check that all values have as many entries along an axis."""
    if None in sizes or _tf.in_xla_context(call.emit.graph):
        raise CannotVectorize("the sizes of what is scattered are not known to agree")
    own = first.sizes[axis] if axis < first.n_leading else None
    if not isinstance(own, RowSizes):
        raise CannotVectorize("the sizes of what is scattered are not known to agree")
    others = [*map(as_number, sizes)]
    right = tf.reduce_all(tf.stack([tf.equal(own.tensor, other) for other in others]), 0)
    text = "the values and the places of what is scattered differ in number. The sizes are"
    checked = call.after_check(right, text, others, own.tensor)
    checked.set_shape(own.tensor.shape)
    new = RowSizes.of(checked, own.most)
    sizes_now = [*first.sizes[:axis], new, *first.sizes[axis + 1 :]]
    return Ragged.packed(first.tensor, sizes_now, first.origin)


_SEGMENTS = "UnsortedSegmentMax UnsortedSegmentMin UnsortedSegmentProd UnsortedSegmentSum"


@ragged_rule(_SEGMENTS, of_shapes=True, is_source=True)
def unsorted_segments(call: Call, data: Value, segment_ids: Value, num_segments: Value) -> Any:
    """The segments of all rows follow each other."""
    if segment_ids.rank < 1:
        raise CannotVectorize("one segment for all")
    if num_segments.is_stacked:
        return _own_number(call, data, segment_ids, own_counts(call, num_segments, "segments"))
    rank = segment_ids.rank
    (values, ids), rows, mask = _entries(call, [data, segment_ids], rank, may_be_wide=True)
    count = tf.cast(num_segments.tensor, ids.dtype)
    real = ids < count if mask is None else (ids < count) | ~mask
    if not _tf.in_xla_context(call.emit.graph):
        text = "a segment id is not below the number of segments in some iterations"
        ids = call.after_check(real, text, [ids], ids)
    places = _places_in_rows(ids, count, rows, mask)
    n = call.loop.length
    total = tf.cast(tf.cast(n, ids.dtype) * count, num_segments.dtype)
    made = _of_rows(call, call.rebuild(data=values, segment_ids=places, num_segments=total), count)
    if not isinstance(data, Ragged):
        return made
    return from_padded(made.tensor, [call.emit.dim(made.tensor, 1), *data.sizes[rank:]])


@ragged_rule("SegmentMax SegmentMean SegmentMin SegmentProd SegmentSum", is_source=True)
def segments(call: Call, data: Value, segment_ids: Value) -> Any:
    """Segments, in each row as many as its last id says: the ids of all rows follow each other."""
    ids, rows, values = kept_entries(call, segment_ids, data, 1, may_be_wide=True)
    ids = call.after_check(ids >= 0, "a segment id is negative. They are", [ids], ids)
    ids, n = tf.cast(ids, tf.int32), call.loop.length
    counts = tf.maximum(tf.math.unsorted_segment_max(ids, rows, n) + 1, 0)
    sizes = row_sizes(call, counts)
    made = call.rebuild(data=values, segment_ids=ids + tf.gather(sizes.starts, rows))
    return _of_own_number(made, sizes, data, 1)


def _of_own_number(made: tf.Tensor, sizes: RowSizes, data: Value, rank: int) -> Value:
    """[total, ...] as segments of each row, as many as ``sizes`` says, and as wide as ``data``."""
    tail = data.sizes[rank:] if isinstance(data, Ragged) else ()
    if not tail:
        return Ragged.packed(made, [sizes])
    return from_padded(pad(made, [sizes]), [sizes, *tail])


def own_counts(call: Call, number: Value, what: str) -> RowSizes:
    """Numbers of the rows as sizes, which must not be negative."""
    if isinstance(number, RowSize) and not number.size.is_number:
        return number.size
    counts = tf.cast(number.tensor, tf.int32)
    text = f"the number of {what} is negative in some iterations. They are"
    counts = call.after_check(counts >= 0, text, [counts], counts)
    return row_sizes(call, counts)


def _own_number(call: Call, data: Value, segment_ids: Value, sizes: RowSizes) -> Value:
    """Segments, in each row as many as the row says."""
    rank = segment_ids.rank
    ids, rows, values = kept_entries(call, segment_ids, data, rank, may_be_wide=True)
    count = tf.cast(tf.gather(sizes.tensor, rows), ids.dtype)
    text = "a segment id is not below the number of segments in some iterations"
    ids = call.after_check(ids < count, text, [ids], ids)
    places = tf.where(ids >= 0, ids + tf.cast(tf.gather(sizes.starts, rows), ids.dtype), -1)
    total = tf.cast(tf.reduce_sum(sizes.tensor), call.op.inputs[2].dtype)
    made = call.rebuild(data=values, segment_ids=places, num_segments=total)
    return _of_own_number(made, sizes, data, rank)


@source("DenseBincount")
def own_bins(call: Call, input: Value, size: Value, weights: Value) -> Any:
    """Counts of each number, in bins whose number differs per row."""
    if input.rank != 1 or not call.uses_packed:
        raise CannotVectorize("the number of bins, and so the shape, may differ")
    if not isinstance(weights, Ragged) and None in (weights.inner_shape or [None]):
        raise CannotVectorize("the shape of the weights is unknown")
    is_plain = not isinstance(weights, Ragged) and 0 in (weights.inner_shape or ())
    sizes = own_counts(call, size, "bins")
    numbers, rows, each = kept_entries(call, input, input if is_plain else weights, 1)
    text = "a number is negative in some iterations"
    numbers = call.after_check(numbers >= 0, text, [numbers], numbers)
    at = tf.cast(numbers, tf.int64)
    is_kept = at < tf.cast(tf.gather(sizes.tensor, rows), tf.int64)
    places = tf.where(is_kept, at + tf.cast(tf.gather(sizes.starts, rows), tf.int64), -1)
    total, dtype = tf.reduce_sum(sizes.tensor), call.output_dtype()
    ones = tf.ones(tf.shape(rows), dtype)
    if call.attr("binary_output"):
        found = tf.math.unsorted_segment_max(ones, places, total)
        return Ragged.packed(tf.maximum(found, 0), [sizes])
    made = tf.math.unsorted_segment_sum(ones if is_plain else each, places, total)
    return Ragged.packed(made, [sizes])


@ragged_rule("HistogramFixedWidth")
def histogram(call: Call, values: Value, value_range: Value, nbins: Value) -> Any:
    """The number of elements in each bin: by the kernel's arithmetic, which is in float64."""
    if nbins.is_stacked or isinstance(value_range, Ragged):
        raise CannotVectorize("the number of bins, and so the shape, may differ")
    (x,), rows, mask = _entries(call, [values], values.rank)
    limits: Any = value_range.tensor
    is_range = limits[..., 0] < limits[..., 1]
    limits = call.after_check(is_range, "the range is empty. It is", [limits], limits)
    each: Any = tf.gather(limits, rows) if value_range.is_stacked else limits
    low, high, wide = each[..., 0], each[..., 1], tf.float64
    bins = tf.cast(nbins.tensor, wide)
    above = tf.cast(tf.maximum(x, low) - low, wide) / (tf.cast(high - low, wide) / bins)
    at = tf.cast(tf.minimum(above, bins - 1), tf.int32)
    is_real = at >= 0 if mask is None else (at >= 0) | ~mask
    at = call.after_check(is_real, "an element is not a number", [x], at)
    count = tf.cast(nbins.tensor, tf.int32)
    places = _places_in_rows(at, count, rows, mask)
    ones = tf.ones(tf.shape(at), call.output_dtype())
    made = tf.math.unsorted_segment_sum(ones, places, call.loop.length * count)
    return _of_rows(call, made, count)


def _places_in_rows(
    ids: tf.Tensor, count: tf.Tensor, rows: tf.Tensor, mask: tf.Tensor | None
) -> tf.Tensor:
    """The places of entries if each row has ``count`` places; -1, which is nowhere, otherwise."""
    is_kept = (ids >= 0) & (ids < count)
    if mask is not None:
        is_kept &= mask
    return tf.where(is_kept, tf.cast(rows, ids.dtype) * count + ids, -1)


def _of_rows(call: Call, made: tf.Tensor, count: tf.Tensor) -> Value:
    """[n * count, ...] -> [n, count, ...]."""
    shape = tf.shape(made)
    known = tf.get_static_value(count)
    rows = tf.reshape(made, tf.concat([[call.loop.length, tf.cast(count, tf.int32)], shape[1:]], 0))
    rows.set_shape(
        [call.loop.static_length, None if known is None else int(known), *made.shape[1:]]
    )
    return Value.stacked(rows)


@ragged_rule("DenseBincount", of_shapes=True)
def dense_bincount(call: Call, input: Value, size: Value, weights: Value) -> Any:
    """Counts of each number; a number that is too large is left out."""
    if isinstance(size, RowSize):
        return own_bins(call, input, size, weights)
    if _is_size(call, input, weights):
        assert isinstance(input, Ragged)
        return shape_value(call.emit, input.sizes, call.output_dtype())
    bins = size.tensor if not size.is_stacked else None
    if bins is None:
        known = call.walker.bounds.constant(call.op.inputs[1])
        if known is None:
            return own_bins(call, input, size, weights)
        bins = tf.constant(known)
    if not isinstance(input, Ragged) or input.rank != 1:
        raise CannotVectorize("counts of a matrix")
    weighted = isinstance(weights, Ragged) or not is_one(_count_or_one(weights))
    if not weighted and call.uses_packed:
        return _counted(call, input, bins)
    given = [input, weights] if weighted else [input]
    (numbers, *others), rows, mask = _entries(call, given, 1)
    bins = tf.cast(bins, numbers.dtype)
    if not _tf.in_xla_context(call.emit.graph):
        right = numbers >= 0 if mask is None else (numbers >= 0) | ~mask
        text = "a number is negative in some iterations"
        numbers = call.after_check(right, text, [numbers], numbers)
    places = _places_in_rows(numbers, bins, rows, mask)
    dtype = call.output_dtype()
    each = others[0] if others else tf.ones(tf.shape(numbers), dtype)
    n = call.loop.length
    total = tf.cast(n, numbers.dtype) * bins
    if call.attr("binary_output"):
        found = tf.math.unsorted_segment_max(tf.ones(tf.shape(numbers), dtype), places, total)
        return _of_rows(call, tf.maximum(found, 0), bins)
    return _of_rows(call, tf.math.unsorted_segment_sum(each, places, total), bins)


def _counted(call: Call, input: Ragged, bins: tf.Tensor) -> Value:
    """The kernel for variable-length rows, which takes their splits."""
    numbers, (size,) = input.tensor, input.sizes
    assert isinstance(size, RowSizes)
    text = "a number is negative in some iterations"
    numbers = call.after_check(numbers >= 0, text, [numbers], numbers)
    end = tf.shape(numbers)
    made = tf.raw_ops.RaggedBincount(
        splits=tf.cast(tf.concat([size.starts, end], 0), tf.int64),
        values=numbers,
        size=tf.cast(bins, numbers.dtype),
        weights=tf.zeros([0], call.output_dtype()),
        binary_output=call.attr("binary_output"),
    )
    known = tf.get_static_value(bins)
    made.set_shape([call.loop.static_length, None if known is None else int(known)])
    return Value.stacked(made)


def _is_size(call: Call, input: Value, weights: Value) -> bool:
    """Whether nothing but zeros is counted, in one bin: that is how many there are."""
    bins, numbers = call.walker.bounds, call.op.inputs[0]
    if bins.constant(call.op.inputs[1]) != 1 or numbers.shape.rank != 1:
        return False
    found = bins.of(numbers)
    if found is None or found.low.any() or found.high.any() or not found.high.size:
        return False
    is_plain = not call.attr("binary_output") and weights.inner_shape == (0,)
    return is_plain and isinstance(input, Ragged)


def _count_or_one(weights: Value) -> Any:
    """1 for weights that have no elements, which means none."""
    shape = weights.inner_shape
    if shape is not None and 0 in shape:
        return 1
    raise CannotVectorize("weights of another number than there are numbers")


@ragged_rule("ScatterNd", of_shapes=True, is_source=True)
def scatter_nd(call: Call, indices: Value, updates: Value, shape: Value) -> Any:
    """Into a tensor of one shape, or of ragged ones."""
    if shape.is_stacked:
        sizes = target_sizes(call, shape, 2)
        at, rows, values = _entries_at(call, indices, updates)
        count = _indexed(at)
        if any(isinstance(s, RowSizes) for s in sizes[count:]):
            raise CannotVectorize("the shape of what is scattered differs between iterations")
        place = _packed_places(call, at, rows, sizes[:count])
        total = tf.cast(tf.reduce_sum(_counts_of(call, sizes[:count])), at.dtype)
        rest = [tf.cast(s, at.dtype) for s in sizes[count:]]
        made = tf.scatter_nd(place[:, None], values, tf.stack([total + 1, *rest]))[:-1]
        return of_elements(call, made, sizes)
    if not isinstance(indices, Ragged):
        raise CannotVectorize("the values, of one number, differ in shape")
    n = call.loop.length
    full = tf.concat([[tf.cast(n + 1, shape.dtype)], shape.tensor], 0)
    places, values = _places(call, indices, updates)
    made = tf.scatter_nd(places, values, full)
    return call.like(made[:n])


def kept_entries(
    call: Call, places: Value, values: Value, rank: int, *, may_be_wide: bool = False
) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
    """Without padding: places [total, ...], of which row each is, and values [total, ...]."""
    call.require_packed("places in rows of different shapes")
    if isinstance(places, Ragged) and places.n_leading > rank:
        raise CannotVectorize("how many axes are indexed differs between iterations")
    (at, flat), rows, mask = _entries(call, [places, values], rank, may_be_wide=may_be_wide)
    if mask is None:
        return at, rows, flat
    at, rows, flat = (tf.boolean_mask(t, mask) for t in (at, rows, flat))
    return at, rows, flat


def _entries_at(
    call: Call, indices: Value, updates: Value
) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
    """The same of indices [..., axes], and of what is scattered, which must have one shape."""
    return kept_entries(call, indices, updates, indices.rank - 1)


def _indexed(at: tf.Tensor) -> int:
    """The number of axes that are indexed."""
    count = at.shape[-1]
    if count is None:
        raise CannotVectorize("how many axes are indexed is not known")
    return count


def _counts_of(call: Call, sizes: Sequence[Any]) -> tf.Tensor:
    """int32 [n]: how many elements the axes of these sizes have in each row."""
    n = call.loop.length
    return tf.broadcast_to(row_counts(sizes), tf.stack([n]))


def _packed_places(call: Call, at: tf.Tensor, rows: tf.Tensor, sizes: Sequence[Any]) -> tf.Tensor:
    """[total]: where in the packed form elements are, whose indices [total, axes] are checked.

    Args:
      call: the call.
      at: indices.
      rows: the row of each entry.
      sizes: the sizes of the rows, along the axes that are indexed.
    """
    dtype, place = at.dtype, tf.zeros([], at.dtype)
    limits = [at_rows(size, rows, dtype) for size in sizes]
    columns = tf.unstack(at, num=len(sizes), axis=1)
    inside = [(x >= 0) & (x < limit) for x, limit in zip(columns, limits)]
    for x, limit in zip(columns, limits):
        place = place * limit + x
    text = "an index is out of bounds in some iterations. The shapes are"
    shapes = [*map(as_number, sizes)]
    place = call.after_check(tf.stack(inside), text, shapes, place)
    starts = tf.cumsum(_counts_of(call, sizes), exclusive=True)
    return place + tf.gather(tf.cast(starts, dtype), rows)


_SCATTERS = (
    "TensorScatterAdd TensorScatterMax TensorScatterMin TensorScatterSub TensorScatterUpdate"
)


@ragged_rule(_SCATTERS)
def tensor_scatter(call: Call, tensor: Value, indices: Value, updates: Value) -> Any:
    """Into a tensor that is there already: of one shape, or packed rows."""
    if isinstance(tensor, Ragged):
        at, rows, values = _entries_at(call, indices, updates)
        count = tensor.n_leading
        if _indexed(at) < count:
            raise CannotVectorize("some of the axes that differ are not indexed")
        place = _packed_places(call, at[:, :count], rows, tensor.sizes)
        places = tf.concat([place[:, None], at[:, count:]], 1)
        made = call.rebuild(tensor=tensor.tensor, indices=places, updates=values)
        return Ragged.packed(made, tensor.sizes)
    n = call.loop.length
    whole = call.stacked(tensor)
    more = tf.pad(whole, [[0, 1], *[[0, 0]] * tensor.rank])
    places, values = _places(call, indices, updates)
    made = call.rebuild(tensor=more, indices=places, updates=values)
    return call.like(made[:n])


@ragged_rule("SparseToDense", of_shapes=True, is_source=True)
def sparse_to_dense(
    call: Call,
    sparse_indices: Value,
    output_shape: Value,
    sparse_values: Value,
    default_value: Value,
) -> Any:
    """Elements of a sparse tensor, among a default that all rows share."""
    if default_value.is_stacked or [v.rank for v in (sparse_indices, sparse_values)] != [2, 1]:
        raise CannotVectorize("the default differs between iterations")
    if output_shape.is_stacked:
        return _sparse_into_rows(call, sparse_indices, output_shape, sparse_values)
    if not isinstance(sparse_values, Ragged):
        raise CannotVectorize("the values have one shape in all iterations")
    n = call.loop.length
    shape = output_shape.tensor
    places, values = _places(call, sparse_indices, sparse_values)
    if call.uses_packed:  # in order: the kernel sees what is wrong with them
        full = tf.concat([[tf.cast(n, shape.dtype)], shape], 0)
        changes = {"sparse_indices": places, "output_shape": full, "sparse_values": values}
        return call.like(call.rebuild(**changes))
    full = tf.concat([[tf.cast(n + 1, shape.dtype)], shape], 0)
    made = tf.tensor_scatter_nd_update(tf.fill(full, default_value.tensor), places, values)
    return call.like(made[:n])


def _sparse_into_rows(call: Call, indices: Value, shape: Value, values: Value) -> Value:
    """Scatters into ragged rows: at the places that the elements have in the packed form."""
    sizes = target_sizes(call, shape, 1)
    at, rows, flat = _entries_at(call, indices, values)
    place = _packed_places(call, at, rows, sizes)
    total = tf.cast(tf.reduce_sum(_counts_of(call, sizes)), at.dtype)
    made = call.rebuild(sparse_indices=place[:, None], output_shape=total[None], sparse_values=flat)
    return of_elements(call, made, sizes)


def _places(call: Call, indices: Value, updates: Value) -> tuple[tf.Tensor, tf.Tensor]:
    """Indices with the row in front, and the values; padding is in a row behind the last one."""
    rank = indices.rank - 1
    if not isinstance(indices, Ragged) or indices.n_leading > rank:
        raise CannotVectorize("how many axes are indexed differs between iterations")
    (at, values), rows, mask = _entries(call, [indices, updates], rank)
    if mask is not None:
        n = call.loop.length
        rows = tf.where(mask, rows, n)
        at = tf.where(mask[:, None], at, tf.zeros_like(at))
    return tf.concat([tf.cast(rows, at.dtype)[:, None], at], 1), values


@ragged_rule("GatherNd")
def gather_nd(call: Call, params: Value, indices: Value) -> Any:
    """Elements at ragged indices, or of ragged rows, which must have them."""
    call.require_packed("places that differ in number, or in their bounds")
    if not isinstance(indices, Ragged):
        assert isinstance(params, Ragged)
        at = call.stacked(indices)
        at = _inside(call, params, at, tf.range(tf.shape(at)[0]))
        return Value.stacked(tf.gather_nd(params.in_rows, at, 1))
    if indices.n_leading > indices.rank - 1:
        raise CannotVectorize("how many axes are indexed differs between iterations")
    at, rows = indices.tensor, row_ids(indices.sizes)
    if isinstance(params, Ragged):
        at = _inside(call, params, at, rows)
    if params.is_stacked:
        rank = at.shape.rank
        assert rank is not None
        rows = tf.reshape(tf.cast(rows, at.dtype), [-1, *[1] * (rank - 1)])
        rows = tf.broadcast_to(rows, tf.concat([tf.shape(at)[:-1], [1]], 0))
        at = tf.concat([rows, at], -1)
    made = tf.gather_nd(padded(call, params, params.rank), at)
    return Ragged.packed(made, indices.sizes)


def _inside(call: Call, params: Ragged, at: tf.Tensor, rows: tf.Tensor) -> tf.Tensor:
    """Places [k, ..., axes] in ragged rows, after a check that row ``rows[k]`` has them."""
    rank, axes = at.shape.rank, at.shape[-1]
    if rank is None or axes is None or axes < params.n_leading:
        raise CannotVectorize("some of the axes that differ are not indexed")
    shapes = tf.cast(tf.gather(params.shape_tensor()[:, :axes], rows), at.dtype)
    room = tf.reshape(shapes, tf.stack([-1, *[1] * (rank - 2), axes]))
    text = "an index is out of bounds in some iterations. The shapes of rows are"
    return call.after_check((at >= 0) & (at < room), text, [shapes], at)


@ragged_rule("DynamicStitch ParallelDynamicStitch", of_shapes=True)
def stitch(call: Call, indices: list[Value], data: list[Value]) -> Any:
    """A shape with some sizes replaced, as gradients of reductions make it; or rows, put together.

    An inner map puts the rows together so that have taken the branches of a conditional.
    """
    if any(isinstance(v, Ragged) for v in indices):
        return _stitched_rows(call, indices, data)
    found: dict[int, Any] = {}
    for at, sizes in zip(indices, data):
        if at.constant is None:
            raise CannotVectorize("which sizes are replaced is not known")
        found.update(zip([int(i) for i in at.constant.reshape([-1])], known_sizes(sizes)))
    if sorted(found) != list(range(len(found))):
        raise CannotVectorize("some sizes are left out")
    return shape_value(call.emit, [found[i] for i in range(len(found))], call.output_dtype())


def _stitched_rows(call: Call, indices: list[Value], data: list[Value]) -> Value:
    """Entries at places that follow each other in each row; a later one replaces an earlier one."""
    if any(v.rank != 1 for v in indices):
        raise CannotVectorize("places along several axes, whose number differs")
    parts = [kept_entries(call, at, values, 1) for at, values in zip(indices, data)]
    at, rows, values = (tf.concat(each, 0) for each in zip(*parts))
    n = call.loop.length
    counts = tf.maximum(tf.math.unsorted_segment_max(at, rows, n), -1) + 1
    at = call.after_check(at >= 0, "a place is negative in some iterations", [at], at)
    known = (call.output_shape() or (None,))[0]
    if known is not None:
        text = f"not {known} elements are put together in some iterations. Their numbers are"
        at = call.after_check(tf.equal(counts, known), text, [counts], at)
    sizes = row_sizes(call, counts)
    made = tf.dynamic_stitch([at + tf.gather(sizes.starts, rows)], [values])
    if known is None:
        return Ragged.packed(made, [sizes])
    return _of_rows(call, made, tf.constant(known))
