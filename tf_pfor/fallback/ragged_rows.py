"""Loops over rows of different shapes: their inputs are cut, their results are ragged."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence
from typing import Any

import tensorflow as tf

from tf_pfor import _tf
from tf_pfor._tf import _graphs
from tf_pfor._tf._custom_gradients import attached
from tf_pfor.core.conversion import Conversion
from tf_pfor.core.errors import CannotVectorize, NotVectorizableError
from tf_pfor.core.regions import Region
from tf_pfor.core.values import Value, dims, is_static
from tf_pfor.layouts import row_kernels
from tf_pfor.layouts.ragged import Ragged, RowSizes, Size
from tf_pfor.layouts.ragged_rules import on_rows
from tf_pfor.layouts.row_shapes import row_of, stacked_rows


def may_differ(region: Region) -> Region:
    """The region, of which all results differ in shape whose shape is not known."""
    uneven = tuple(i for i, t in enumerate(region.outputs) if not is_static(dims(t)))
    return dataclasses.replace(region, uneven=uneven)


def cut(region: Region, values: Sequence[Value], walker: Conversion) -> tuple[Region, list[Value]]:
    """The region of inputs in padded form and their sizes, and these: it cuts the rows."""
    if _tf.in_xla_context(walker.emit.graph):
        raise CannotVectorize("under jit_compile its inputs must have the same shape in all rows")
    region = region if region.uneven else may_differ(region)
    flat: list[Value] = []
    specs: list[tf.TensorSpec] = []

    def take(value: Value, inner: Any) -> int:
        flat.append(value)
        specs.append(tf.TensorSpec(inner, value.dtype))
        return len(flat) - 1

    plan: list[tuple[int, list[Any]]] = []
    for value, tensor in zip(values, region.inputs):
        if not isinstance(value, Ragged):
            plan.append((take(value, tensor.shape), []))
            continue
        with walker.emit.graph.as_default():
            padded = Value.stacked(value.in_rows)
            sizes: list[Any] = []
            for size in value.sizes:
                if isinstance(size, int):
                    sizes.append(size)
                elif isinstance(size, tf.Tensor):
                    sizes.append([take(Value.unstacked(size), [])])
                else:
                    sizes.append([take(Value.stacked(size.tensor), [])])
        plan.append((take(padded, padded.inner_shape), sizes))

    def run(*given: tf.Tensor) -> list[tf.Tensor]:
        rows: list[tf.Tensor] = []
        for (at, sizes), tensor in zip(plan, region.inputs):
            row = given[at]
            _tf.copy_handles([tensor], [row])
            if sizes:
                row = row_of(row, [given[s[0]] if isinstance(s, list) else s for s in sizes])
                row.set_shape(tensor.shape)
            rows.append(row)
        return region.copy(*rows)

    graph = _graphs.trace("rows_of_their_own_shapes", run, specs)
    made = Region.of_graph(graph)
    for old, new in zip(region.outputs, made.outputs):
        new.set_shape(old.shape)
    return dataclasses.replace(made, uneven=region.uneven, like=region.outputs), flat


def differ(region: Region) -> list[int]:
    """The outputs of a region that become rows of different shapes."""
    outputs = region.outputs
    return [k for k in region.uneven if outputs[k].shape.rank and not is_static(dims(outputs[k]))]


def results(loop: Any, tensors: Sequence[tf.Tensor]) -> list[Value]:
    """The outputs of a ``RowLoop``, of which some have another shape in each row.

    Their elements lie one behind the other, beside their shapes.
    """
    if _tf.in_xla_context(tf.compat.v1.get_default_graph()):
        raise CannotVectorize("under jit_compile results must have the same shape in all rows")
    region = loop.region
    outputs, differing = region.outputs, differ(region)
    if not loop.in_order and may_run_by_kernel(region, tf.compat.v1.get_default_graph()):
        return _by_kernel(loop, tensors)
    rows = [flat_spec(t).shape[1:] if k in differing else t.shape for k, t in enumerate(outputs)]
    is_known = loop.in_order or all(shape.is_fully_defined() for shape in rows)
    specs = [flat_spec(t) if k in differing else t for k, t in enumerate(outputs)]
    specs += [tf.TensorSpec([outputs[k].shape.rank], tf.int32) for k in differing]

    def flattened(made: list[tf.Tensor]) -> list[tf.Tensor]:
        shapes = [tf.shape(made[k]) for k in differing]
        for k in differing:
            made[k] = flat(made[k], outputs[k])
        return [*made, *shapes]

    arrays, trips, n = loop.fill(specs, tensors, flattened, is_known=is_known)
    shapes = dict(zip(differing, arrays[len(outputs) :]))
    values: list[Value] = []
    for k, (array, output) in enumerate(zip(arrays, outputs)):
        if k in differing:
            found = shapes[k].stack()[:n]
            found.set_shape([loop.loop.static_length, output.shape.rank])
            values.append(of_arrays(array, found, region.like[k] if region.like else output))
            continue
        stacked = stacked_rows(array, output, trips)
        stacked = stacked if trips is n else stacked[:n]
        stacked.set_shape(loop.full(dims(output)))
        values.append(Value.stacked(stacked).with_inner_shape(dims(output)))
    return values


def of_first_order(gradient: tf.Tensor, own: tf.Operation | None) -> tf.Tensor:
    """A gradient that a loop took; its second gradient is an error if ``own`` is there.

    A second derivative would reach this tf.custom_gradient in parts, from the loop and from the
    loop of its gradient. The parts give the sum only where it is linear.
    """
    if own is None:
        return gradient

    def second(*_: object) -> Any:
        raise NotVectorizableError(
            f"tf.custom_gradient ({_tf.user_line(own) or 'line unknown'}) runs in a sequential "
            "loop over the rows, and has no second derivative there: its gradient may not be "
            "linear in what flows back"
        )

    (made,) = attached(lambda x: [tf.identity(x)], [gradient], second)
    made.set_shape(gradient.shape)
    return made


def by_kernel(
    op: tf.Operation, values: Iterable[Any], graph: tf.Graph, region: Region | None = None
) -> bool:
    """Whether a loop over rows is what one expects of an op, and runs in parallel: no warning.

    The loop runs the region, None for the op alone.
    """
    if not on_rows(op.type).is_row_kernel:
        return False
    if region is not None and region.uneven:
        return may_run_by_kernel(region, graph)
    return all(is_static(v.inner_shape) for v in values)


def may_run_by_kernel(region: Region, graph: tf.Graph) -> bool:
    """Whether a loop whose results may differ in shape may run by a kernel for all rows.

    That has no gradient, and runs on CPUs, as all that reads strings does.
    """
    given = [t.dtype for t in region.inputs if t.op.type != "Const"]
    if tf.string not in given or region.is_stateful:
        return False
    if any(d.is_floating or d.is_complex or d in (tf.resource, tf.variant) for d in given):
        return False
    if _tf.in_body(graph):
        return False
    for k, output in enumerate(region.outputs):
        shape = dims(output)
        if shape is None or output.dtype == tf.variant:
            return False
        if None in shape and k not in region.uneven:
            return False
    return True


def _by_kernel(loop: Any, tensors: Sequence[tf.Tensor]) -> list[Value]:
    """``results``, without a loop that the graph sees."""
    region, stacked = loop.region, loop.stacked
    order = sorted(range(len(tensors)), key=lambda i: not stacked[i])
    given = [tensors[i] for i in order]

    def one(*row: tf.Tensor) -> list[tf.Tensor]:
        inputs = dict(zip(order, row, strict=True))
        return region.copy(*[inputs[i] for i in range(len(row))])

    count, outputs = sum(stacked), region.outputs
    values = row_kernels.all_rows(
        one,
        given[:count],
        given[count:],
        outputs,
        [dims(t) for t in outputs],
        loop.loop.static_length,
    )
    likes = region.like or outputs
    return [
        dataclasses.replace(v, origin=like) if isinstance(v, Ragged) else v
        for v, like in zip(values, likes, strict=True)
    ]


def of_arrays(array: tf.TensorArray, shapes: tf.Tensor, output: tf.Tensor) -> Ragged:
    """Rows of different shapes (int32 [n, rank]), written to an array in the form of ``flat``."""
    count = _n_leading(output)
    sizes: list[Size] = [
        RowSizes.of(shapes[:, axis]) if size is None else int(size)
        for axis, size in enumerate(output.shape[:count])
    ]
    total = tf.reduce_sum(tf.reduce_prod(shapes[:, :count], 1))
    packed = array.concat()[:total]
    packed.set_shape([None, *output.shape[count:]])
    return Ragged.packed(packed, sizes, output)


def _n_leading(output: tf.Tensor) -> int:
    """The number of axes up to the last axis whose size is not known before running."""
    return max(i for i, size in enumerate(output.shape) if size is None) + 1


def flat(row: tf.Tensor, output: tf.Tensor) -> tf.Tensor:
    """A row with the axes merged up to the last one whose size is not known before running."""
    return tf.reshape(row, tf.concat([[-1], tf.shape(row)[_n_leading(output) :]], 0))


def flat_spec(output: tf.Tensor) -> tf.TensorSpec:
    """A row with these axes merged."""
    return tf.TensorSpec([None, *output.shape[_n_leading(output) :]], output.dtype)
