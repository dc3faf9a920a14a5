"""Conversion: the protocol by which other modules know the walker.

The walker (``convert``) converts the ops of one body graph, and imports all that can convert an op.
A module that needs other ops converted, or tells what several ops became together, knows the
walker by this protocol only.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Protocol

import tensorflow as tf

from tf_pfor.core import ranges
from tf_pfor.core.emit import Emitter
from tf_pfor.core.loop import Loop
from tf_pfor.core.report import Recorder
from tf_pfor.core.settings import Settings
from tf_pfor.core.values import Results, Value

Inputs = Mapping[str, "Value | list[Value]"]
"""The inputs of an op by OpDef name."""


class Failed(Exception):  # noqa: N818
    """Internal: an op, or one that it depends on, could not be converted; the recorder says why."""


MAPS = "_tf_pfor_maps"
"""The attribute of the graph of a body that has the maps in it, each with its ``operations``."""


def is_in_map(op: tf.Operation) -> bool:
    """Whether an op was made by a map in the body, which may become one map over pairs."""
    return any(op in inner.operations for inner in getattr(op.graph, MAPS, ()))


@dataclasses.dataclass(frozen=True, slots=True)
class Cut:
    """A tensor of a function that is made before a loop around it.

    Attributes:
      calls: the ops that call the function around it, each with its function, the outermost first.
      op: the op that makes it.
      index: the number of the output.
    """

    calls: tuple[tuple[tf.Operation, tf.Graph], ...]
    op: tf.Operation
    index: int = 0

    @property
    def tensor(self) -> tf.Tensor:
        """The tensor, of its function."""
        return self.op.outputs[self.index]

    @property
    def inside(self) -> Cut:
        """The same, seen from inside of the outermost call."""
        return dataclasses.replace(self, calls=self.calls[1:])

    def is_in(self, op: tf.Operation, function: tf.Graph) -> bool:
        """True for a tensor of the function, which ``op`` calls."""
        return bool(self.calls) and self.calls[0] == (op, function)

    def called_by(self, op: tf.Operation, function: tf.Graph) -> Cut:
        """The same, seen from outside of a call."""
        return dataclasses.replace(self, calls=((op, function), *self.calls))


class Conversion(Protocol):
    """The conversion of one graph (a body, or a function of it), each tensor once, on demand.

    Attributes:
      Failed: raised where something that is asked for could not be converted.
      loop: the iterations that are converted at once.
      emit: adds ops to the vectorized graph.
      settings: the settings that the caller chose.
      recorder: told what happened to each op.
      memo: results shared by this conversion and conversions that it enters.
      graph: the graph that is converted, once an op of it was.
      entered_by: the op that calls the function which is converted.
      has_caller: whether it converts a function, whose call could be looped instead.
      is_region: whether it has a loop of its own: of a branch or a while loop.
      is_root: whether it converts the body of a map in the body of another one.
      early: the values of cuts in functions that ops of the graph call, made before a loop.
      inner_map: the map in a map that the op at hand is part of, where one over pairs may be tried.
    """

    Failed: type[Failed]
    loop: Loop
    emit: Emitter
    settings: Settings
    recorder: Recorder
    memo: dict[Any, Any]
    graph: tf.Graph | None
    entered_by: tf.Operation | None
    has_caller: bool
    is_region: bool
    is_root: bool
    early: dict[Cut, Value]
    inner_map: Any

    @property
    def bounds(self) -> ranges.Bounds:
        """The known bounds of integers of the graph before it runs (``ranges``)."""
        ...

    @property
    def parent(self) -> Conversion | None:
        """The conversion of the graph that calls this function; None for a body."""
        ...

    @property
    def first(self) -> Conversion:
        """The conversion that this one continues for gradients asked for later; or itself."""
        ...

    # What was converted ---------------------------------------------------

    def value_of(self, tensor: tf.Tensor) -> Value | None:
        """The value of a tensor; None if it was not converted."""
        ...

    def outside(self, tensor: tf.Tensor) -> tf.Tensor | None:
        """The tensor around a function that an input of the function is, whatever trip it is."""
        ...

    def is_done(self, op: tf.Operation) -> bool:
        """Whether an op was looked at, with whatever end."""
        ...

    def failed(self, operations: Iterable[tf.Operation]) -> bool:
        """Whether one of some operations could not be converted."""
        ...

    def done(self, operations: Iterable[tf.Operation]) -> list[tf.Operation]:
        """The operations that converted operations became."""
        ...

    # What is to be converted ----------------------------------------------

    def is_asked(self, tensor: tf.Tensor) -> bool:
        """Whether a tensor is a result that was asked for."""
        ...

    def wanted(self) -> set[tf.Operation]:
        """The ops that the results which were asked for need."""
        ...

    def expect(self, tensors: Sequence[tf.Tensor]) -> None:
        """Says what will be asked for, some now and some later."""
        ...

    def convert(
        self, tensors: Sequence[tf.Tensor], operations: Iterable[tf.Operation] = ()
    ) -> list[Value]:
        """Converts tensors, and operations that are wanted for their side effects.

        Raises:
          Failed: if something they need could not be converted.
        """
        ...

    def visit(self, roots: list[tf.Operation]) -> None:
        """Converts operations, after all that they need; ``failed`` tells of those that cannot."""
        ...

    def convert_op(self, op: tf.Operation) -> None:
        """Converts one op, all that it needs being converted."""
        ...

    # Telling what tensors and operations became ---------------------------

    def bind(self, tensor: tf.Tensor, value: Value) -> None:
        """Says what a tensor has become."""
        ...

    def hold(self, tensor: tf.Tensor, value: Value) -> None:
        """Says what a result of an op has become; its op may become more."""
        ...

    def take_over(self, cut: Cut, value: Value) -> None:
        """Says what a cut has become: of this graph, or of a function that is called in it."""
        ...

    def became(self, operations: Iterable[tf.Operation], made: list[tf.Operation]) -> None:
        """Says what operations that were converted together have become."""
        ...

    def hide(self, ops: Sequence[tf.Operation], hidden: list[tf.Operation]) -> None:
        """Ops that were converted together, without telling what the ``hidden`` ones became.

        If one of them is asked for later, it is converted anew.
        """
        ...

    # Functions ------------------------------------------------------------

    def convert_function(
        self,
        op: tf.Operation,
        name: str,
        args: Sequence[Value],
        *,
        loop: Loop | None = None,
        outputs: int | None = None,
    ) -> list[Value]:
        """Converts the function ``name``, which ``op`` calls, inline, applied to ``args``."""
        ...

    def enter(self, loop: Loop, emit: Emitter, recorder: Recorder | None = None) -> Conversion:
        """The conversion of a function that gets a graph of its own (branch, loop)."""
        ...

    def later(self) -> Conversion:
        """A conversion that continues this one in the current graph, for gradients of it."""
        ...

    # Other ways to convert ------------------------------------------------

    def tile(self, value: Value) -> Value:
        """Stacks an invariant value by repeating it, once for all who ask."""
        ...

    def loop_over_rows(self, op: tf.Operation, inputs: Inputs, **options: bool) -> list[Value]:
        """Runs one op in a sequential loop over its stacked inputs."""
        ...

    def loop_again(self, op: tf.Operation, values: Sequence[Value]) -> list[Value]:
        """Runs a fallback loop of the body, and this one around it, as one loop."""
        ...

    def loop_together(
        self,
        first: tf.Operation,
        ops: list[tf.Operation],
        reason: str,
        uneven: object = (),
        cause: tf.Operation | None = None,
    ) -> Results:
        """Runs several ops in one sequential loop.

        Args:
          first: the op that is converted.
          ops: the ops.
          reason: why they loop.
          uneven: the keys of what differs in shape.
          cause: the op that the warning names; None for each op.
        """
        ...

    def custom_gradient(self, op: tf.Operation, values: Sequence[Value]) -> list[Value]:
        """``values``, with the gradient of one iteration that is registered for ``op``."""
        ...
