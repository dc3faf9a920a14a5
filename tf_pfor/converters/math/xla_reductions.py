"""XLA's own reductions and sorts, whose functions combine or compare scalars.

They exist only under ``tf.function(jit_compile=True)``: TensorFlow has no other kernels for them.
A start value that differs between iterations has no op of XLA: it must be a scalar.
"""

from __future__ import annotations

from typing import Any

from tf_pfor.converters.math._families import shifted_axes
from tf_pfor.converters.math._xla import in_front, of_shape, require_invariant, windows
from tf_pfor.core.call import Call
from tf_pfor.core.errors import CannotVectorize
from tf_pfor.core.registry import RegisterPFor
from tf_pfor.core.values import Value, all_known, is_static


@RegisterPFor("XlaReduce", ("input",), attrs=("dimensions_to_reduce", "reducer"))
@RegisterPFor("XlaVariadicReduce", ("input",), attrs=("N", "dimensions_to_reduce", "reducer"))
@RegisterPFor("XlaVariadicReduceV2", ("inputs",), attrs=("T", "dimensions_to_reduce", "reducer"))
def xla_reduce(call: Call, *inputs: Value) -> Any:
    """The same axes behind the loop."""
    axes = call.attr("dimensions_to_reduce")
    made = call.rebuild(dimensions_to_reduce=[axis + 1 for axis in axes])
    shape = call.flat_inputs()[0].inner_shape
    if shape is not None:
        shape = tuple(size for axis, size in enumerate(shape) if axis not in axes)
    outputs = made if isinstance(made, list) else [made]
    return [of_shape(call, t, shape) for t in outputs]


@RegisterPFor("XlaReduceWindow", ("input",), attrs=("computation",))
def xla_reduce_window(call: Call, input: Value, *others: Value) -> Any:
    """Windows of size one along the loop."""
    ones = ("window_dimensions", "window_strides", "base_dilations", "window_dilations")
    require_invariant(call, *ones, "padding")
    changes = {name: in_front(call, name, 1) for name in ones}
    made = call.rebuild(**changes, padding=in_front(call, "padding", 0))
    found = [call.maybe_constant(name) for name in ones]
    padding = call.maybe_constant("padding")
    if not is_static(input.inner_shape) or padding is None or not all_known(found):
        return made
    window, stride, dilation, between = (a.tolist() for a in found)
    numbers = zip(input.inner_shape, window, stride, padding.tolist(), dilation, between)
    return of_shape(call, made, tuple(windows(*each) for each in numbers))


@RegisterPFor("XlaSelectAndScatter", ("operand", "source"), attrs=("select", "scatter"))
def xla_select_and_scatter(call: Call, *inputs: Value) -> Any:
    """Windows of size one along the loop."""
    ones = ("window_dimensions", "window_strides")
    changes = {name: in_front(call, name, 1) for name in ones}
    made = call.rebuild(**changes, padding=in_front(call, "padding", 0))
    return of_shape(call, made, inputs[0].inner_shape)


# ---------------------------------------------------------------------------
# Sorts
# ---------------------------------------------------------------------------


@RegisterPFor("XlaKeyValueSort", ("keys", "values"))
@RegisterPFor("XlaSort", ("input",))
def xla_sort(call: Call, *inputs: Value) -> Any:
    """Sorts along the last axis, which is behind the loop."""
    _require_axes(call)
    return call.rebuild()


@RegisterPFor("XlaVariadicSort", ("inputs",), attrs=("T", "comparator", "is_stable"))
def xla_variadic_sort(call: Call, inputs: list[Value], dimension: Value) -> Any:
    """The same axis behind the loop."""
    _require_axes(call)
    return call.rebuild(dimension=shifted_axes(call, inputs[0], "dimension"))


def _require_axes(call: Call) -> None:
    if call.require_rank(call.flat_inputs()[0]) == 0:
        raise CannotVectorize("a scalar is sorted: the only axis would be the loop's")
