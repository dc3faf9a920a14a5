"""All trips of a loop at once: its variables after the loop."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from tf_pfor import _tf
from tf_pfor.api.inputs import Element, bound_walker
from tf_pfor.core.emit import Dim
from tf_pfor.core.errors import PforError
from tf_pfor.core.report import Recorder, refusal
from tf_pfor.core.settings import Settings
from tf_pfor.core.values import Value, dims
from tf_pfor.fallback import nested_maps
from tf_pfor.frontends.loops._independence import (
    Analysis,
    Bound,
    Counter,
    Dependent,
    Overwritten,
    Written,
    source,
    static_int,
)
from tf_pfor.layouts.ragged import Ragged
from tf_pfor.tracing.trace import Body
from tf_pfor.walker.walker import Failed, Walker

_SETTINGS = Settings("error", warn=False)
_NO_LOOP = "; the fallback loop is off"


Result = tuple[tf.Tensor, tf.Tensor | None]
"""A variable after the loop; of a list that is the rows of a tensor, that tensor, else None."""


def results(found: Analysis, recorder: Recorder) -> list[Result]:
    """The variables of a loop after it, computed in the current graph.

    Raises:
      Dependent: if an op of the body has no rule, or results have no common shape.
    """
    n, exact = _trips(found.bounds)
    if isinstance(n, int) and n == 0:
        raise Dependent("it makes no trips")
    wanted = found.wanted()
    values = _converted(found, wanted, n, exact, recorder)
    supply = iter(values)
    made: list[Result] = []
    for before, variable in zip(found.inputs, found.variables, strict=True):
        if isinstance(variable, Counter):
            made.append((variable.start + tf.cast(n, before.dtype) * variable.step, None))
        elif isinstance(variable, Written):
            made.append(_list(variable, next(supply), next(supply), n, exact))
        elif isinstance(variable, Overwritten):
            made.append((_last(variable.before, next(supply)), None))
        else:
            made.append((before, None))
    return made


# ---------------------------------------------------------------------------
# How many trips
# ---------------------------------------------------------------------------


def _trips(bounds: Sequence[Bound]) -> tuple[Dim, list[tf.Tensor]]:
    """The number of trips, and tensors that are known to be that number."""
    counts: list[Any] = []
    plain: list[tf.Tensor] = []
    seen: list[tuple[Any, ...]] = []
    for bound in bounds:
        start, limit = static_int(bound.start), bound.limit
        if isinstance(limit, tf.Tensor):
            known = static_int(limit)
            limit = limit if known is None else known
        key = (
            start,
            bound.step,
            limit if isinstance(limit, int) else id(limit),
            bound.is_inclusive,
        )
        if start is not None and key in seen:
            continue
        seen.append(key)
        counts.append(_count(bound, start, limit))
        if (
            start == 0
            and bound.step == 1
            and not bound.is_inclusive
            and isinstance(limit, tf.Tensor)
        ):
            plain.append(limit)
    if all(isinstance(c, int) for c in counts):
        return min(counts), []
    least = counts[0]
    for count in counts[1:]:
        least = tf.minimum(least, count)
    return least, plain if len(counts) == 1 else []


def _count(bound: Bound, start: int | None, limit: tf.Tensor | int) -> Any:
    """The number of trips that one condition allows: an int, or an int32 scalar."""
    step = bound.step
    more = (1 if step > 0 else -1) * bound.is_inclusive
    if start is not None and isinstance(limit, int):
        return max(0, -((limit + more - start) // -step))
    first = bound.start if start is None else start
    if start == 0 and step == 1 and not more:
        return tf.maximum(tf.cast(limit, tf.int32), 0)
    width = tf.cast(limit, tf.int64) + more - tf.cast(first, tf.int64)
    return tf.cast(tf.maximum(-(width // -step), 0), tf.int32)


# ---------------------------------------------------------------------------
# The body
# ---------------------------------------------------------------------------


def _converted(
    found: Analysis, wanted: list[tf.Tensor], n: Dim, exact: list[tf.Tensor], recorder: Recorder
) -> list[tf.Tensor]:
    """Tensors of the body, [n, ...] each."""
    places: list[tf.Tensor] = []
    elements: list[Element] = []
    for tensor, before, variable in zip(found.body.inputs, found.inputs, found.variables):
        if isinstance(variable, Counter):
            places.append(tensor)
            elements.append(_numbers(variable, n))
        elif variable is None:
            places.append(tensor)
            elements.append(Element(before, is_mapped=False))
    slices = _slices(found, n, exact)
    body = Body(
        graph=found.body,
        placeholders=tuple(places),
        captures=(),
        structure=list(wanted),
        leaves=tuple(wanted),
        operations=tuple(found.effects()),
        axes=frozenset(),
    )

    def attempt(settings: Settings, recorder: Recorder) -> list[Any]:
        walker = bound_walker(body, elements, n, settings, recorder)
        for tensor, rows in slices:
            walker.bind(tensor, Value.stacked(rows))
        try:
            return [_rows(walker, x) for x in walker.convert(wanted, body.operations)]
        except Failed:
            raise refusal(recorder) from None

    try:
        return nested_maps.convert_body(body, elements, n, _SETTINGS, recorder, attempt)
    except PforError as why:
        lines = [line.strip(" -") for line in str(why).splitlines() if line.strip()]
        failures = [f.removesuffix(_NO_LOOP) for f in getattr(why, "failures", ())]
        raise Dependent(f"it cannot be vectorized: {'; '.join(failures) or lines[0]}") from None


def _numbers(counter: Counter, n: Dim) -> Element:
    """A counter in all trips."""
    dtype = counter.start.dtype
    if static_int(counter.start) == 0 and counter.step == 1 and dtype == tf.int32:
        return Element(None)
    trips = tf.range(tf.cast(n, dtype))
    return Element(counter.start + trips * counter.step)


def _rows(walker: Walker, value: Value) -> tf.Tensor:
    if isinstance(value, Ragged) and not value.is_full:
        raise Dependent("what it writes may have another shape in each trip")
    return walker.tile(value).tensor


def _slices(found: Analysis, n: Dim, exact: list[tf.Tensor]) -> list[tuple[tf.Tensor, tf.Tensor]]:
    """Reads of the slices of lists: pairs (tensor of the body, its rows)."""
    made: list[tuple[tf.Tensor, tf.Tensor]] = []
    for op in found.body.get_operations():
        if op.type != "TensorListGetItem":
            continue
        place = found.place(op.inputs[0])
        if place is None or found.variables[place] is not None:
            continue
        stacked = source(found.inputs[place])
        if not tf.is_symbolic_tensor(stacked) or stacked.op.type != "TensorListFromTensor":
            raise Dependent("it reads a list of which the items may have different shapes")
        rows = stacked.op.inputs[0]
        if rows.dtype in (tf.variant, tf.resource):
            raise Dependent("it goes through ragged or sparse tensors, or through handles")
        if found.is_trip(op.inputs[1]):
            made.append((op.outputs[0], _first(rows, n, exact)))
    return made


def _first(rows: tf.Tensor, n: Dim, exact: list[tf.Tensor]) -> tf.Tensor:
    """The first n rows, of which there must be as many."""
    known = (dims(rows) or (None,))[0]
    if isinstance(n, int) and known is not None:
        if known < n:
            raise Dependent(f"it reads {n} slices of a list that has {known}")
        return rows if known == n else rows[:n]
    if any(_is_size(t, rows) for t in exact):
        return rows
    check = tf.debugging.assert_less_equal(
        n, tf.shape(rows)[0], "A loop reads beyond the end of what it goes through."
    )
    with tf.control_dependencies([check] if check is not None else []):
        return tf.identity(rows[:n])


def _is_size(number: tf.Tensor, rows: tf.Tensor) -> bool:
    """Whether a number is ``tf.shape(rows)[0]``."""
    number = source(number)
    if not tf.is_symbolic_tensor(number) or number.op.type != "StridedSlice":
        return False
    shape, begin = number.op.inputs[0].op, _tf.static_value(number.op.inputs[1])
    is_first = begin is not None and begin.size == 1 and int(begin.ravel()[0]) == 0
    is_scalar = number.op.get_attr("shrink_axis_mask") == 1 and not number.op.get_attr("begin_mask")
    return is_scalar and is_first and shape.type == "Shape" and shape.inputs[0] is rows


# ---------------------------------------------------------------------------
# What is left after the loop
# ---------------------------------------------------------------------------


def _list(
    written: Written, index: tf.Tensor, items: tf.Tensor, n: Dim, exact: list[tf.Tensor]
) -> Result:
    """The list with all slices written."""
    before = written.before
    origin, shape = source(before), _shape_of(_tf.list_element(before), items)
    if written.is_trip and tf.is_symbolic_tensor(origin) and origin.op.type == "TensorListReserve":
        size = origin.op.inputs[1]
        known = static_int(size)
        is_all = known == n if isinstance(n, int) else any(t is source(size) for t in exact)
        if is_all:
            return tf.raw_ops.TensorListFromTensor(tensor=items, element_shape=shape), items
    if _tf.in_xla_context(tf.compat.v1.get_default_graph()):
        raise Dependent(
            "it may make fewer trips than the list that it writes has slices, which XLA cannot do"
        )
    indices = tf.cast(index, tf.int32)
    checks = [tf.debugging.assert_non_negative(indices, "A loop writes before a list.")]
    if not written.may_grow:
        length = tf.raw_ops.TensorListLength(input_handle=before)
        checks.append(
            tf.debugging.assert_less(indices, length, "A loop writes beyond the end of a list.")
        )
    with tf.control_dependencies([c for c in checks if c is not None]):
        scattered = tf.raw_ops.TensorListScatterIntoExistingList(
            input_handle=before, tensor=items, indices=tf.identity(indices)
        )
        return scattered, None


def _shape_of(known: tuple[tf.DType, tf.TensorShape] | None, items: tf.Tensor) -> tf.Tensor:
    """The shape of a list's elements, as far as it is known; -1 for what is not."""
    nothing: Any = None
    shape = tf.TensorShape(nothing) if known is None else known[1]
    if items.shape.rank is not None:
        if not shape.is_compatible_with(items.shape[1:]):
            raise Dependent(f"it writes items of shape {items.shape[1:]} to a list of {shape}")
        shape = shape.merge_with(items.shape[1:])
    if shape.rank is None:
        return tf.constant(-1, tf.int32)
    return tf.constant([-1 if k is None else k for k in shape], tf.int32)


def _last(before: tf.Tensor, rows: tf.Tensor) -> tf.Tensor:
    """The value of the last trip; what it was before where there are no trips."""
    if before.shape.rank is None or not before.shape.is_compatible_with(rows.shape[1:]):
        raise Dependent("a variable has another shape after the loop than before it")
    return tf.concat([before[None], rows[-1:]], 0)[-1]
