"""Gradients that the walker does not see: asked for after it has finished.

A loop over rows, and a ``tf.custom_gradient`` of the body, are emitted with a gradient of their
own. When it is asked for, the gradient of one iteration is traced, and vectorized like any body.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Generator, Hashable, Sequence
from typing import Any

import tensorflow as tf

from tf_pfor import _tf
from tf_pfor._tf._custom_gradients import attached, has_gradient, traced
from tf_pfor.core.conversion import Conversion
from tf_pfor.core.errors import NotVectorizableError
from tf_pfor.core.facts import is_linear
from tf_pfor.core.regions import reached
from tf_pfor.core.report import refusal, warn_of_loops
from tf_pfor.core.values import Layout, Value

_OWN = "_tf_pfor_own_constant"


@contextlib.contextmanager
def own_constants() -> Generator[None]:
    """Marks the constants made by a function that is differentiated, under XLA.

    Nobody else can ask for their gradients, so a loop of blocks makes them again. With XLA,
    TensorFlow cannot compile forward mode of a loop that captures a constant.
    """
    graph = tf.compat.v1.get_default_graph()
    before = len(graph.get_operations()) if _tf.in_xla_context(graph) else None
    yield
    if before is not None:
        for op in graph.get_operations()[before:]:
            if op.type == "Const":
                op._set_attr(_OWN, _tf.attr_value("bool", True))


def is_own_constant(tensor: tf.Tensor) -> bool:
    """Whether ``own_constants`` marked it."""
    return _OWN in _tf.attr_map(tensor.op)


class Continued(dict[Any, Any]):
    """A dict that shows the items of another one, each as ``see(item)`` once it is asked for."""

    def __init__(self, first: dict[Any, Any], see: Callable[..., Any]):
        super().__init__()
        self._first, self._see = first, see
        self._hidden: set[Any] = set()

    def __contains__(self, key: Hashable) -> bool:
        return dict.__contains__(self, key) or (key in self._first and key not in self._hidden)

    def __delitem__(self, key: Hashable) -> None:
        self._hidden.add(key)
        self.pop(key, None)

    def __missing__(self, key: Hashable) -> Any:
        self[key] = item = self._see(self._first[key])
        return item

    def get(self, key: Hashable, default: object = None) -> Any:  # noqa: D102
        return self[key] if key in self else default  # noqa: SIM401 (get knows no __missing__)

    def setdefault(self, key: Hashable, default: object = None) -> Any:  # noqa: D102
        if key not in self:
            self[key] = default
        return self[key]


def convert_later(walker: Conversion, graph: tf.Graph, args: Sequence[Value]) -> list[Value]:
    """Converts the function graph of a gradient in the current graph, whichever that is.

    Args:
      walker: a walker made by ``later()``, whose body the graph may refer to.
      graph: a function graph of one iteration.
      args: its inputs; what it captures of the body is converted on demand.

    Raises:
      NotVectorizableError: if something cannot be converted.
    """
    child = walker.enter(walker.loop, walker.emit)
    child.has_caller = False
    captures = {id(inside): outside for outside, inside in graph.captures}
    explicit = [t for t in graph.inputs if id(t) not in captures]
    for placeholder, value in zip(explicit, args, strict=True):
        child.bind(placeholder, value)
    roots = [*(t.op for t in graph.outputs), *graph.control_outputs]
    needed = reached(roots)
    try:
        for inside in graph.inputs:
            if id(inside) in captures and inside.op in needed:
                child.bind(inside, _value_of(walker, captures[id(inside)]))
        return child.convert(graph.outputs, _tf.must_run(graph))
    except walker.Failed:
        raise refusal(child.recorder) from None
    finally:
        if walker.settings.warn:
            warn_of_loops(child.recorder)


def _value_of(walker: Conversion, tensor: tf.Tensor) -> Value:
    """The value, in the current graph, of a tensor that a gradient function refers to."""
    graph = getattr(tensor, "graph", None)
    around: Conversion | None = walker
    inside: list[Conversion] = []
    while around is not None and graph is not None:
        if around.graph is graph:
            value = around.convert([tensor])[0]
            for inner in reversed(inside):  # branches and loops have rows of their own
                value = inner.loop.take(value) if inner.is_region else value
            return value
        inside.append(around)
        around = around.parent
    return Value.unstacked(_tf.captured(tensor))


# ---------------------------------------------------------------------------
# tf.custom_gradient
# ---------------------------------------------------------------------------


class CustomGradient:
    """An IdentityN of the body whose gradient is a function registered by tf.custom_gradient.

    Its inputs are the results of the user's function, and what the gradient is with respect to:
    arguments and variables. Only the results are read by others.
    """

    def __init__(self, op: tf.Operation, values: Sequence[Value], walker: Conversion):
        self.op = op
        self.walker = walker
        graph = walker.emit.graph
        self.is_padded = _tf.in_xla_context(graph) or _tf.in_body(graph)
        outputs = {(t.op, t.value_index) for t in getattr(op.graph, "outputs", ())}
        self.floats = [i for i, t in enumerate(op.outputs) if has_gradient(t)]
        self.results = [
            i
            for i in self.floats
            if op.outputs[i].consumers() or (op, op.outputs[i].value_index) in outputs
        ]
        self.values = list(values)
        # A gradient that reaches an invariant result is the sum over the iterations. If the
        # function is not linear, each iteration's share must pass through it alone.
        self.is_shared = not any(values[i].is_stacked for i in self.results) and self._is_linear()
        if not self.is_shared:
            for i in self.results:
                self.values[i] = values[i] if _has_sizes(values[i]) else walker.tile(values[i])

    def emit(self) -> list[Value]:
        """The values, with the gradient attached to the results."""
        if not self.results:
            return self.values
        tensors = [self._tensor(self.values[i]) for i in self.floats]
        with self.walker.emit.as_default():
            given = dict(zip(self.floats, [_tf.captured(t) for t in tensors]))
            results = [given[i] for i in self.results]
            made = attached(
                lambda *_: results,
                [*given.values()],
                lambda _, *upstream: self._gradient(upstream),
            )
        out = list(self.values)
        for i, tensor in zip(self.results, made):
            old = self.values[i]
            if _has_sizes(old):
                out[i] = self._like(old, tensor)
                continue
            new = Value.stacked(tensor) if old.is_stacked else Value.unstacked(tensor)
            out[i] = new.with_inner_shape(old.inner_shape)
        return out

    def _gradient(self, upstream: Sequence[tf.Tensor]) -> list[tf.Tensor | None]:
        """Gradients with respect to the float inputs, from the gradients of the results."""
        graph, connected = traced(self.op, self.results)
        later = self.walker.later()
        make = Value.unstacked if self.is_shared else Value.stacked
        args = [
            self._like(self._seen(later, i), _tf.captured(t), is_clean=False)
            if _has_sizes(self.values[i])
            else make(_tf.captured(t))
            for i, t in zip(self.results, upstream)
        ]
        made = iter(convert_later(later, graph, args))
        return [self._gathered(later, next(made), i) if connected[i] else None for i in self.floats]

    def _tensor(self, value: Value) -> tf.Tensor:
        """The tensor of a value; padded rows where nobody may know how many elements there are."""
        rows: Any = value
        return rows.in_rows if self.is_padded and _has_sizes(value) else value.tensor

    def _like(self, value: Any, tensor: tf.Tensor, *, is_clean: bool = True) -> Any:
        """Rows of the sizes of others; there are zeros in their padding if it is clean."""
        if self.is_padded:
            return value.of_rows(tensor, is_clean=is_clean)
        return value.with_elements(tensor)

    def _seen(self, later: Conversion, i: int) -> Any:
        """Input ``i`` in the current graph."""
        return _value_of(later, self.op.inputs[i])

    def _gathered(self, later: Conversion, gradient: Any, i: int) -> tf.Tensor:
        """The gradient in the layout of value ``i``: summed over the iterations that share it."""
        loop, value = later.loop, self.values[i]
        if _has_sizes(value):
            is_alike = _has_sizes(gradient) and (self.is_padded or loop.real is None)
            if not is_alike or (self.is_padded and not gradient.fits(self._seen(later, i))):
                raise NotVectorizableError(
                    f"The gradient of a tf.custom_gradient ({_tf.user_line(self.op)}) has another "
                    "shape than its argument, whose shape differs between iterations. Give it the "
                    "shape of the argument, for instance by tf.zeros_like(x) + gradient."
                )
            made = self._tensor(gradient)
            if self.is_padded:
                return loop.only_real(made)
            own = _tf.captured(value.tensor)
            # Both are packed, in one order; the gradient may have merged more axes.
            return made if made.shape.rank == own.shape.rank else tf.reshape(made, tf.shape(own))
        if not (value.is_stacked or gradient.is_stacked):
            if self.is_shared:
                return gradient.tensor
            count = loop.length if loop.real is None else tf.math.count_nonzero(loop.real)
            return gradient.tensor * tf.cast(count, gradient.dtype)
        each = loop.only_real(later.tile(gradient).tensor)
        return each if value.is_stacked else tf.reduce_sum(each, 0)

    def _is_linear(self) -> bool:
        """Whether the gradient is linear in the upstream one and the same in all iterations."""
        if not self.results:
            return True
        try:
            graph, _ = traced(self.op, self.results)
            captures = {id(inside): outside for outside, inside in graph.captures}
            needed = reached([*(t.op for t in graph.outputs), *graph.control_outputs])
            if graph.control_outputs or not is_linear(graph, needed, len(self.results)):
                return False
            later = self.walker.later()
            return not any(
                _value_of(later, captures[id(t)]).is_stacked
                for t in graph.inputs
                if id(t) in captures and t.op in needed
            )
        except (LookupError, self.walker.Failed):
            return False


def _has_sizes(value: Value) -> bool:
    """Whether the shape of a value differs between the rows."""
    return value.layout is Layout.RAGGED
