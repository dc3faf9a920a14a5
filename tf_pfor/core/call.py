"""Call: the view of one op of the body that a converter gets."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from tf_pfor import _tf
from tf_pfor._tf._devices import why_not_compiled
from tf_pfor._tf._evaluation import evaluated
from tf_pfor.core.conversion import Conversion, Inputs
from tf_pfor.core.emit import Emitter
from tf_pfor.core.errors import CannotVectorize
from tf_pfor.core.loop import Loop
from tf_pfor.core.registry import Outcome
from tf_pfor.core.report import Recorder
from tf_pfor.core.settings import Settings
from tf_pfor.core.values import Shape, Stacked, Value, dims


class Call:
    """One op of the body with its inputs as they are in the vectorized graph. Never mutated.

    Attributes:
      op: the op of the body (its outputs' static shapes are what the user's function sees).
      op_type: the OpDef name.
      inputs: Values by OpDef input name; a list of Values for a list input.
      loop: the loop being removed.
      emit: ``emit("OpType", *inputs, **attrs)`` adds an op to the vectorized graph.
      read: the names of the attributes that a rule has read (``matching.check_attrs``).
    """

    __slots__ = ("_attrs", "_schema", "_walker", "emit", "inputs", "loop", "op", "op_type", "read")

    def __init__(self, op: tf.Operation, inputs: Inputs, walker: Conversion):
        self.op = op
        self.op_type: str = op.type
        self._schema = _tf.schema(op.type)
        self.inputs = inputs
        self.emit: Emitter = walker.emit
        self.loop: Loop = walker.loop
        self._walker = walker
        self._attrs: Any = None
        self.read: set[str] = set()

    # What the op is -------------------------------------------------------

    @property
    def schema(self) -> _tf.Schema:
        """The names and types of its inputs and attributes, from the OpDef."""
        assert self._schema is not None
        return self._schema

    @property
    def attrs(self) -> Any:
        """AttrValue protos by name, as in the NodeDef."""
        if self._attrs is None:
            self._attrs = _tf.attr_map(self.op)
        return self._attrs

    def attr(self, name: str) -> Any:
        """The attribute ``name`` as a Python value, its default if the node does not set it."""
        kind = self.schema.attr_types[name]
        self.read.add(name)
        if name in self.attrs:
            return _tf.python_value(kind, self.attrs[name])
        return _tf.python_value(kind, self.schema.attr_defaults[name])

    def output_shape(self, index: int = 0) -> Shape:
        """The static shape of an output as the user's function sees it."""
        return dims(self.op.outputs[index])

    def output_dtype(self, index: int = 0) -> tf.DType:
        """The dtype of an output."""
        return self.op.outputs[index].dtype

    def value(self, name: str) -> Value:
        """The value of input ``name``, which must be one and no list."""
        found = self.inputs[name]
        assert isinstance(found, Value)
        return found

    def values(self) -> dict[str, Value]:
        """The values of all inputs by name, none of which may be a list."""
        return {name: self.value(name) for name in self.inputs}

    def flat_inputs(self) -> list[Value]:
        """All inputs, lists flattened."""
        out: list[Value] = []
        for value in self.inputs.values():
            out += value if isinstance(value, list) else [value]
        return out

    def constant(self, name: str) -> np.ndarray:
        """The value of input ``name``, which must be known before running.

        Raises:
          CannotVectorize: if it is not.
        """
        found = self.maybe_constant(name)
        value = self.inputs[name]
        if found is None and isinstance(value, Value) and not value.is_stacked:
            found = self._evaluated(self.tensor_of(name))
        if found is None:
            raise CannotVectorize(f"input '{name}' is not a constant")
        return found

    def _evaluated(self, tensor: tf.Tensor) -> np.ndarray | None:
        place = ("evaluated", tensor.op, tensor.value_index)
        if place not in self.memo:
            self.memo[place] = evaluated(tensor)
        return self.memo[place]

    def maybe_constant(self, name: str) -> np.ndarray | None:
        """The value of input ``name`` if it is known before running, else None."""
        value = self.inputs[name]
        assert isinstance(value, Value)
        if value.constant is not None:
            return value.constant
        if value.is_stacked:
            return None
        tensor = self.tensor_of(name)
        found = _tf.static_value(tensor)
        found = self._walker.bounds.constant(tensor) if found is None else found
        if found is None and tensor.dtype.is_integer:  # more may be known of shapes than was
            found = _tf.static_value(value.tensor)
        return found

    def tensor_of(self, name: str) -> tf.Tensor:
        """The tensor of the body that input ``name`` is, which must be one and no list."""
        position = [a.name for a in self.schema.inputs].index(name)
        values = list(self.inputs.values())[:position]
        return self.op.inputs[sum(len(v) if isinstance(v, list) else 1 for v in values)]

    def value_of(self, tensor: tf.Tensor) -> Value | None:
        """The value of a tensor of the body, None if it was not converted (or is not needed)."""
        return self._walker.value_of(tensor)

    def converted(self, tensors: Sequence[tf.Tensor]) -> list[Value]:
        """The values of other tensors of the body, converted now: none may depend on this op."""
        return self._walker.convert(tensors)

    def is_only_read_by(self, op_types: Sequence[str]) -> bool:
        """Whether one op, of these types, is all that reads the output of this op."""
        (output,) = self.op.outputs
        readers = output.consumers()
        is_free = not (self.op.control_inputs or self._walker.is_asked(output))
        return is_free and len(readers) == 1 and readers[0].type in op_types

    @property
    def uses_packed(self) -> bool:
        """Whether the packed form of rows, whose size is known only when it runs, may be used.

        In the body of another map its size would differ between the iterations of that.
        """
        graph = self.emit.graph
        return not (_tf.in_xla_context(graph) or _tf.in_body(graph))

    def require_packed(self, what: str = "entries of their own number") -> None:
        """Refuses an op where the packed form may not be used: ``what`` says what would need it."""
        if not self.uses_packed:
            raise CannotVectorize(f"{what}, {self.where_padded}")

    @property
    def where_padded(self) -> str:
        """Words for the place, for an op that cannot use the packed form of rows there."""
        return "under jit_compile" if _tf.in_xla_context(self.emit.graph) else "in a map of a map"

    def is_asked(self, tensor: tf.Tensor) -> bool:
        """Whether a tensor of the body is one of its results."""
        return self._walker.is_asked(tensor)

    def require_rank(self, value: Value, what: str = "the input") -> int:
        """The inner rank of ``value``; CannotVectorize if it is unknown."""
        if value.inner_rank is None:
            raise CannotVectorize(f"the rank of {what} is unknown")
        return value.inner_rank

    # Making results -------------------------------------------------------

    def rebuild(self, **changes: Any) -> Any:
        """Emits the op again with some inputs and attributes changed, all others kept.

        Args:
          **changes: by OpDef name: tensors (a list for a list input; numpy arrays and lists of
            ints become constants) or attribute values. Inputs that are not named are taken as
            they are stored.

        Returns:
          The output tensor, or a list of them if the op has not exactly one.

        Raises:
          CannotVectorize: if XLA compiles the result, and cannot compile the op.
        """
        schema = self.schema
        self._check_compiled()
        self.read.update(schema.attr_types)
        flat: list[tf.Tensor] = []
        protos: dict[str, Any] = {k: v for k, v in self.attrs.items() if k in schema.attr_types}
        for arg in schema.inputs:
            given = changes.pop(arg.name, None)
            if given is None:
                value = self.inputs[arg.name]
                given = [v.tensor for v in value] if isinstance(value, list) else value.tensor
            if arg.is_list:
                tensors = [self.emit.as_tensor(t) for t in given]
                flat += tensors
                if arg.number_attr:
                    protos[arg.number_attr] = _tf.attr_value("int", len(tensors))
            else:
                tensor = self.emit.as_tensor(given)
                flat.append(tensor)
                if arg.type_attr:
                    protos[arg.type_attr] = self.emit.type_attr(tensor.dtype)
        for key, value in changes.items():
            protos[key] = _tf.attr_value(schema.attr_types[key], value)
        _tf.add_functions(self.op.graph, self.emit.graph, protos)
        outputs = self.emit.create(self.op_type, flat, protos, self.op.name).outputs
        return outputs[0] if len(outputs) == 1 else list(outputs)

    def _check_compiled(self) -> None:
        """Refuses what XLA has no kernel for, unless it may know the result without one."""
        given = (v if isinstance(v, list) else [v] for v in self.inputs.values())
        varies = self.schema.is_stateful or any(v.is_stacked for each in given for v in each)
        if varies and _tf.in_xla_context(self.emit.graph) and (why := why_not_compiled(self.op)):
            raise CannotVectorize(why)

    def stacked(self, value: Value) -> tf.Tensor:
        """``value`` with the loop on axis 0, repeated if it is invariant."""
        return self._walker.tile(value).tensor

    def check(self, is_right: tf.Tensor, text: str, shown: Sequence[Any]) -> tf.Operation:
        """The op of a check in all iterations, whose error names the op and the line."""
        what = "TensorArray" if self.op_type.startswith("TensorList") else self.op_type
        text = f"{what} ({_tf.user_line(self.op) or 'line unknown'}): {text}, for each iteration:"
        return self.emit.check(is_right, text, shown)

    def after_check(
        self,
        is_right: tf.Tensor,
        text: str,
        shown: Sequence[Any],
        tensor: tf.Tensor,
        *,
        by_row: bool = False,
    ) -> Any:
        """``tensor`` after a ``check``. XLA drops checks, so it gets none.

        Args:
          is_right: bool of any shape.
          text: the fault.
          shown: the numbers that the error shows.
          tensor: the tensor that must not be read if the check fails.
          by_row: whether ``is_right`` is [n, ...]. Iterations that stand in for others do not
            count then.
        """
        emit, real = self.emit, self.loop.real
        if _tf.in_xla_context(emit.graph):
            return tensor
        if by_row and real is not None:
            axes = [1] * ((is_right.shape.rank or 1) - 1)
            real = emit.reshape(real, [self.loop.length, *axes]) if axes else real
            is_right = emit("LogicalOr", is_right, emit("LogicalNot", real))
        with emit.graph.as_default(), tf.control_dependencies([self.check(is_right, text, shown)]):
            return tf.identity(tensor)

    def again(self, op: tf.Operation, inputs: Inputs) -> Call:
        """A call of another op of the body, or of one emitted before, in the same walker."""
        call = Call(op, inputs, self._walker)
        if op is self.op:
            call.read = self.read
        return call

    def convert_function(
        self,
        name: str,
        args: Sequence[Value],
        *,
        loop: Loop | None = None,
        outputs: int | None = None,
    ) -> list[Value]:
        """Converts the function ``name`` of the body, inline, applied to ``args``.

        Args:
          name: the function's name in the body's graph.
          args: the function's inputs.
          loop: the loop to convert for; this call's own when None.
          outputs: the number of its outputs that are wanted (TensorFlow appends some to a
            function's graph when the function is differentiated); all when None.
        """
        return self._walker.convert_function(self.op, name, args, loop=loop, outputs=outputs)

    @property
    def settings(self) -> Settings:
        """The settings that the caller of the public function chose."""
        return self._walker.settings

    @property
    def walker(self) -> Conversion:
        """The conversion of the body that has this op."""
        return self._walker

    def is_for(self, test: Callable[[Any], bool]) -> bool:
        """Whether ``test`` holds for the graph that is made, also in a trial."""
        walker: Conversion | None = self._walker
        while walker is not None:
            if test(walker.emit.graph):
                return True
            walker = walker.parent
        return False

    @property
    def waits(self) -> bool:
        """Whether the op follows others by its control inputs, and not as a function's result."""
        is_result = any(t is self.op.outputs[0] for t in getattr(self.op.graph, "outputs", ()))
        return not is_result and bool(self._walker.done(self.op.control_inputs))

    @property
    def memo(self) -> dict[Any, Any]:
        """Results that all walkers of a conversion share, by keys that the user of a key makes."""
        return self._walker.memo

    def enter(self, loop: Loop, emit: Emitter, *, is_trial: bool = False) -> Conversion:
        """A walker for a function of the body that gets a graph of its own.

        Args:
          loop: its iterations.
          emit: the emitter of its graph.
          is_trial: the result is thrown away: nothing is recorded but failures.
        """
        return self._walker.enter(loop, emit, Recorder() if is_trial else None)

    def note(self, text: str) -> None:
        """Says how the op was vectorized, for reports."""
        self._walker.recorder.note(self.op, text)

    def fail(self, trial: Conversion) -> None:
        """Reports what failed in a trial conversion."""
        self._walker.recorder.entries += [
            e for e in trial.recorder.entries if e[1] is Outcome.REJECTED
        ]

    def with_custom_gradient(self, values: Sequence[Value]) -> list[Value]:
        """The values, with the gradient that is registered for this very op, if there is one."""
        if not _tf.has_own_gradient(self.op):
            return list(values)
        return self._walker.custom_gradient(self.op, values)

    @property
    def is_row_loop(self) -> bool:
        """Whether the op is the fallback loop of a map inside this one."""
        return _tf.is_row_loop(self.op)

    def loop_again(self, values: Sequence[Value]) -> list[Value]:
        """The fallback loop of a map inside this one, over the rows of both."""
        return self._walker.loop_again(self.op, values)

    def loop_over_rows(self) -> list[Value]:
        """Runs the op in a sequential loop over its stacked inputs (``fallback``)."""
        self.read.update(self.schema.attr_types)
        return self._walker.loop_over_rows(self.op, self.inputs)

    def loop_in_order(self) -> list[Value]:
        """Runs a stateful op once for each iteration, one after the other."""
        self.read.update(self.schema.attr_types)
        return self._walker.loop_over_rows(self.op, self.inputs, in_order=True)

    def like(self, tensor: tf.Tensor, layout: type[Value] = Stacked) -> Value:
        """A Value of this layout, with the inner shape of output 0."""
        value = Value.stacked(tensor) if layout is Stacked else Value.unstacked(tensor)
        return value.with_inner_shape(self.output_shape())
