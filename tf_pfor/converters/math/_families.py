"""Makers of one-line rules: a table of op types on the left, the algebra here.

Each maker takes a table: op type -> attributes. The op's meaning may depend on these attributes,
but the move leaves them valid, so they are kept. ``table("Abs Neg")`` makes one without attributes.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import tensorflow as tf

from tf_pfor.converters.math._broadcast import MAX_GROUPS, MAX_RANK, broadcast, regroup
from tf_pfor.converters.math._broadcast import same_shape as all_of_one_shape
from tf_pfor.core.call import Call
from tf_pfor.core.errors import CannotVectorize
from tf_pfor.core.registry import ALWAYS, ANY, ConverterFn, Outcome, RegisterPFor
from tf_pfor.core.shapes import fold, leading, unfold
from tf_pfor.core.values import Value, folded_form

Table = Mapping[str, tuple[str, ...]]
Outputs = list[Value] | None


def _register(
    table: Table,
    function: ConverterFn,
    family: str,
    stacked: Any = ANY,
    outcome: Outcome = Outcome.VECTORIZED,
    note: str = "",
) -> None:
    # inspect.stack() would read the sources of all modules around it
    caller = sys._getframe(2)  # pyright: ignore[reportPrivateUsage]
    where = f"{caller.f_code.co_filename}:{caller.f_lineno}"
    for op_type, attrs in table.items():
        RegisterPFor(op_type, stacked, attrs=attrs, family=family, outcome=outcome, note=note)(
            function, where
        )


# ---------------------------------------------------------------------------
# Elementwise
# ---------------------------------------------------------------------------


def elementwise(table: Table, max_groups: int = MAX_GROUPS, max_rank: int = MAX_RANK) -> None:
    """Broadcasting ops: align ranks, never tile. [n, b] op [a, b] -> [n, 1, b] op [a, b]."""
    _register(table, lambda call, *_: broadcast(call, max_groups, max_rank), "elementwise")


def same_shape(table: Table) -> None:
    """Kernels that do not broadcast (gradient kernels, AddN): all inputs stacked, or folded."""
    _register(table, lambda call, *_: all_of_one_shape(call), "same_shape")


# ---------------------------------------------------------------------------
# Axes
# ---------------------------------------------------------------------------


def reduction(table: Table) -> None:
    """Reductions by a constant or invariant axis input: shift the axes by one."""
    _register(table, _reduction, "reduction")


def _reduction(call: Call, *values: Value) -> Any:
    x, axis = values
    if axis.is_stacked:
        raise CannotVectorize("the reduction axes differ between iterations")
    name_x, name_axis = call.inputs
    inner = _inner_axes(call, x, name_axis)
    form = folded_form(x)
    if form is not None and inner is not None and (inner >= form.axes).all():
        moved = (inner - form.axes + 1).astype(inner.dtype)  # beyond the folded axes
        tensor = call.rebuild(**{name_x: form.tensor, name_axis: moved})
        return unfold(call, tensor, x, form.axes)
    return call.rebuild(**{name_x: x.tensor, name_axis: shifted_axes(call, x, name_axis)})


def _inner_axes(call: Call, x: Value, name: str) -> np.ndarray | None:
    """The axis input ``name`` without negative axes, if it and the rank of ``x`` are known."""
    found = call.maybe_constant(name)
    if found is None or x.inner_rank is None:
        return None
    return np.where(found < 0, found + x.inner_rank, found).astype(found.dtype)


def shifted_axes(call: Call, x: Value, name: str) -> Any:
    """The axis input ``name`` (scalar or vector) moved past the loop axis of ``x``.

    Where the rank of ``x`` is unknown, negative axes stay: they count from the end.
    """
    inner = _inner_axes(call, x, name)
    if inner is not None:
        return (inner + 1).astype(inner.dtype)
    found = call.maybe_constant(name)
    if found is not None:
        return np.where(found < 0, found, found + 1).astype(found.dtype)
    axis = call.value(name)
    zero = call.emit.constant(0, axis.dtype)
    is_positive = call.emit("GreaterEqual", axis.tensor, zero)
    return call.emit("AddV2", axis.tensor, call.emit("Cast", is_positive, DstT=axis.dtype))


def along(
    table: Table, x: str, axis: str = "", unless: Callable[[Call], Outputs] | None = None
) -> None:
    """Ops along some axes of their rows: these axes move by one, those before may stay folded.

    Args:
      table: the op types.
      x: the input with these axes, a tensor or several.
      axis: the input or the attribute that names them; the last one if it is empty.
      unless: another way; its result is None where it has none.
    """

    def convert(call: Call, *_: Value) -> Any:
        if unless is not None and (found := unless(call)) is not None:
            return found
        given = call.inputs[x]
        values = given if isinstance(given, list) else [given]
        if axis in call.inputs:
            inner = _inner_axes(call, values[0], axis)
        else:
            rank = call.require_rank(values[0])
            inner = np.asarray(call.attr(axis) if axis else -1) % rank
        free = 0 if inner is None else int(np.min(inner, initial=values[0].inner_rank or 0))
        form = leading(call, values, free)
        changed: dict[str, Any] = {x: form.tensors if values is given else form.tensors[0]}
        if inner is None:
            changed[axis] = shifted_axes(call, values[0], axis)
        elif axis:
            moved = (inner + 1 - form.skip).astype(inner.dtype)
            changed[axis] = moved if axis in call.inputs else int(moved)
        made = call.rebuild(**changed)
        tensors = made if isinstance(made, list) else [made]
        return [form.result(t, call.output_shape(i)) for i, t in enumerate(tensors)]

    _register(table, convert, "along", stacked=(x,))


# ---------------------------------------------------------------------------
# Kernels with batch dimensions
# ---------------------------------------------------------------------------


def native_batch(table: Table) -> None:
    """The kernel takes any leading batch dimensions: all inputs stacked, nothing else."""
    _register(
        table,
        lambda call, *_: call.rebuild(
            **regroup(call, [call.stacked(v) for v in call.flat_inputs()])
        ),
        "native_batch",
    )


def fold_batch(
    table: Table,
    inputs: str | tuple[str, ...],
    unless: Callable[[Call, Value], Value | None] | None = None,
) -> None:
    """The kernel has one batch dimension: the loop is merged into the batch of ``inputs``.

    [n, b, ...] -> [n*b, ...] -> kernel -> [n*b, ...] -> [n, b, ...]. The other inputs must be
    invariant.

    Args:
      table: the op types.
      inputs: the names of the inputs with a batch.
      unless: another way for the first input; None where it has none.
    """
    names = (inputs,) if isinstance(inputs, str) else inputs

    def convert(call: Call, *_: Value) -> Any:
        if unless is not None and (found := unless(call, call.value(names[0]))) is not None:
            return found
        values = {name: call.value(name) for name in names}
        like = next(v for v in values.values() if v.is_stacked)
        made = call.rebuild(**{k: fold(call, v) for k, v in values.items()})
        outputs = made if isinstance(made, list) else [made]
        return [
            unfold(call, t, like, inner_shape=call.output_shape(i)) for i, t in enumerate(outputs)
        ]

    _register(table, convert, "fold_batch", stacked=names)


def flatten(table: Table) -> None:
    """Elementwise kernels that refuse some ranks: flatten all, run, restore the shape."""

    def convert(call: Call, *_: Value) -> Any:
        values = call.flat_inputs()
        tensors = [call.stacked(v) for v in values]
        shape = call.emit.shape_of(tensors[0])
        flat = [call.emit("Reshape", t, np.asarray([-1], np.int32)) for t in tensors]
        made = call.rebuild(**regroup(call, flat))
        outputs = made if isinstance(made, list) else [made]
        return [call.emit("Reshape", t, shape) for t in outputs]

    _register(table, convert, "flatten")


# ---------------------------------------------------------------------------
# Shapes, state, loops
# ---------------------------------------------------------------------------


def prepend_shape(table: Table, shape: str) -> None:
    """A shape input gets n in front, also when nothing is stacked (random ops)."""

    def convert(call: Call, *_: Value) -> Any:
        value = call.value(shape)
        for name, given in call.values().items():
            if given.is_stacked:
                raise CannotVectorize(f"'{name}' differs between iterations")
        return call.rebuild(**{shape: with_n(call, value, shape)})

    _register(table, convert, "prepend_shape", stacked=ALWAYS)


def with_n(call: Call, value: Value, name: str) -> tf.Tensor:
    """The shape vector [n] + ``value``, of the same dtype."""
    found = call.maybe_constant(name)
    n = call.loop.static_length
    if found is not None and n is not None:
        return call.emit.constant(np.concatenate([[n], found]).astype(found.dtype))
    return behind_n(call, value.tensor)


def behind_n(call: Call, shape: tf.Tensor) -> tf.Tensor:
    """The shape vector [n] + ``shape``, of the same dtype."""
    head = call.emit.shape_vector([call.loop.length])
    if shape.dtype != tf.int32:
        head = call.emit("Cast", head, DstT=shape.dtype)
    return call.emit("ConcatV2", [head, shape], 0)


def shape_query(table: Table, answer: Callable[..., Any]) -> None:
    """Shape, Rank, Size: loop-invariant, a constant when static."""
    _register(table, answer, "shape_query")


def run_once(table: Table) -> None:
    """Stateful, but the same for all iterations: emitted once, as it is."""

    def convert(call: Call, *_: Value) -> Any:
        made = call.rebuild()
        return [Value.unstacked(t) for t in (made if isinstance(made, list) else [made])]

    _register(table, convert, "run_once", stacked=())


def loop_on_purpose(table: Table, reason: str) -> None:
    """A sequential loop that somebody decided on: the op's meaning is sequential or per row."""

    def convert(call: Call, *_: Value) -> Any:
        return call.loop_over_rows()

    _register(table, convert, "loop_on_purpose", outcome=Outcome.LOOPED, note=reason)


def table(names: str, *attrs: str) -> dict[str, tuple[str, ...]]:
    """A table of op types that share their attributes."""
    return {name: attrs for name in names.split()}
