"""The inputs of a body in the vectorized graph: elements, and captured tensors."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence

import numpy as np
import tensorflow as tf

from tf_pfor import _tf
from tf_pfor._tf import _graphs
from tf_pfor._tf._custom_gradients import has_gradient
from tf_pfor.core.emit import Dim, Emitter
from tf_pfor.core.errors import ArgumentTypeError
from tf_pfor.core.late_gradients import is_own_constant
from tf_pfor.core.loop import Block, Loop
from tf_pfor.core.report import Recorder
from tf_pfor.core.settings import Settings
from tf_pfor.core.values import Cell, Stacked, Unstacked, Value, dims, size_of
from tf_pfor.tracing.trace import Body
from tf_pfor.walker.walker import Walker

_SMALL = 64  # elements of a constant that is made again where it is used


@dataclasses.dataclass(frozen=True, slots=True)
class Element:
    """One argument of the body.

    Attributes:
      tensor: None for the iteration number.
      is_mapped: axis 0 of ``tensor`` is the loop; otherwise every iteration sees all of it.
      is_link: it is the iteration number, for derivatives that leave the body (``row_links``).
    """

    tensor: tf.Tensor | None
    is_mapped: bool = True
    is_link: bool = False

    @property
    def whole(self) -> tf.Tensor | None:
        """The tensor that the argument is a row of, if it is one."""
        return self.tensor if self.is_mapped else None

    @property
    def spec(self) -> tf.TensorSpec:
        """The spec of the tensor that one iteration sees."""
        if self.tensor is None:
            return tf.TensorSpec([], tf.int32)
        shape = self.tensor.shape
        return tf.TensorSpec(shape[1:] if self.is_mapped else shape, self.tensor.dtype)


def with_unknown_number(elements: Sequence[Element]) -> tuple[list[Element], tf.Tensor]:
    """No rows of the same elements, and how many that are.

    Neither static shapes nor TensorFlow's constant folding know that it is 0.
    """
    n = tf.raw_ops.PlaceholderWithDefault(input=tf.constant(0), shape=[])
    return with_mapped(elements, [x[:n] for x in mapped(elements)]), n


def with_tensors(elements: Sequence[Element], supply: Iterator[tf.Tensor]) -> list[Element]:
    """The elements with other tensors in the places of all."""
    return [
        e if e.tensor is None else dataclasses.replace(e, tensor=next(supply)) for e in elements
    ]


def mapped(elements: Sequence[Element]) -> list[tf.Tensor]:
    """The tensors whose axis 0 is the loop."""
    return [e.tensor for e in elements if e.tensor is not None and e.is_mapped]


def with_mapped(elements: Sequence[Element], tensors: Sequence[tf.Tensor]) -> list[Element]:
    """The elements with other tensors whose axis 0 is the loop."""
    supply = iter(tensors)
    return [
        dataclasses.replace(e, tensor=next(supply)) if e.tensor is not None and e.is_mapped else e
        for e in elements
    ]


def stand_ins(elements: Sequence[Element], rows: int) -> list[Element]:
    """Placeholders for so many rows of the elements."""
    return [dataclasses.replace(e, tensor=_stand_in(e, rows)) for e in elements]


def _stand_in(element: Element, rows: int) -> tf.Tensor | None:
    tensor = element.tensor
    if tensor is None:
        return None
    shape = tensor.shape
    if element.is_mapped and shape.rank is not None:
        shape = [rows, *shape[1:]]
    return tf.compat.v1.placeholder(tensor.dtype, shape)


def bound_walker(
    body: Body,
    elements: Sequence[Element],
    n: Dim,
    settings: Settings,
    recorder: Recorder,
    block: Block | None = None,
) -> Walker:
    """A walker in the current graph that knows what the body's inputs are."""
    emit = Emitter()
    loop = Loop(n, emit, axes=body.axes, block=block)
    walker = Walker(loop, emit, settings, recorder)
    for placeholder, element in zip(body.placeholders, elements, strict=True):
        walker.bind(placeholder, _element_value(element, loop))
    for outside, inside in body.captures:
        walker.bind(inside, _captured(outside, emit))
    return walker


def _captured(outside: tf.Tensor, emit: Emitter) -> Value:
    """A tensor from outside the body; of a small constant the value may be known.

    Then it is made again where it is used. Others have gradients, that somebody may ask for. What
    is no tensor of a graph is captured where it is read: nobody else sees it as it is.
    """
    if not tf.is_symbolic_tensor(outside):
        return _captured_eagerly(outside, emit)
    is_small = is_constant(outside) and _is_small(outside)
    if not is_small or (has_gradient(outside) and not is_own_constant(outside)):
        return Value.unstacked(outside)
    return _known(_tf.static_value(outside), outside, emit)


def _is_small(tensor: tf.Tensor) -> bool:
    return size_of(dims(tensor)) <= _SMALL


def _captured_eagerly(outside: tf.Tensor, emit: Emitter) -> Value:
    """A tensor that no graph has an op for: nobody sees it as it is, but what captures it."""
    is_number = outside.dtype not in (tf.resource, tf.variant) and not has_gradient(outside)
    if is_number and _is_small(outside):
        known = _tf.static_value(outside)
        if known is not None:
            return _known(known, outside, emit)

    def capture(graph: tf.Graph) -> tf.Tensor:
        return _graphs.capture(graph, outside)

    cell = Cell(None, lambda: capture(emit.graph), capture)
    return Unstacked(cell, dims(outside), outside.dtype)


def _known(value: object, outside: tf.Tensor, emit: Emitter) -> Value:
    known = np.asarray(value, object if outside.dtype == tf.string else None)  # it may be bytes
    return Unstacked.deferred(
        lambda: emit.constant(known, outside.dtype), dims(outside), outside.dtype, known=known
    )


def is_constant(tensor: tf.Tensor) -> bool:
    """Whether a tensor is a constant of the outer graph, or of a function that it calls."""
    if not tf.is_symbolic_tensor(tensor):
        return False
    if tensor.op.type in _tf.CALLS and tensor.dtype.is_integer:
        return _tf.static_value(tensor) is not None
    return tensor.op.type == "Const"


def _element_value(element: Element, loop: Loop) -> Value:
    if element.tensor is None:
        if not loop.is_block:
            return loop.index_value()
        return Stacked.deferred(lambda: loop.numbers, (), tf.int32)
    if not element.is_mapped:
        return _captured(element.tensor, loop.emit)
    tensor = element.tensor
    is_symbolic = tf.is_symbolic_tensor(tensor)
    return Value.stacked(tensor if is_symbolic else _graphs.capture(loop.emit.graph, tensor))


def check_strings(body: Body, elements: Sequence[Element]) -> None:
    """XLA has no strings, and of some loops over them does not say so: it ends the process."""
    if not _tf.in_xla_context(tf.compat.v1.get_default_graph()):
        return
    inputs = [e.tensor for e in elements if e.tensor is not None]
    inputs += [t for t, _ in body.captures]
    for tensor in inputs:
        if tensor.dtype == tf.string and not is_constant(tensor):
            name = f"'{tensor.name}', " if tf.is_symbolic_tensor(tensor) else ""
            raise ArgumentTypeError(
                f"Under jit_compile the body reads {name}strings of shape {tensor.shape}, and "
                "XLA compiles numbers only. Make numbers of them before the compiled function, "
                "or leave jit_compile off."
            )
