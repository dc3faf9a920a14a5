"""The walker: turns the ops of a body into ops that run all iterations at once.

The walker follows Agarwal and Ganichev (2019), with one difference: it *pulls*. It starts from the
tensors that are asked for, and goes depth-first over inputs and control inputs. So ops that nobody
needs are never converted, and custom gradients can ask for more later.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Sequence
from typing import Any

import tensorflow as tf

from tf_pfor import _tf
from tf_pfor._tf import _stacks
from tf_pfor.core import ranges, regions
from tf_pfor.core.conversion import Cut, Failed, Inputs
from tf_pfor.core.emit import Emitter
from tf_pfor.core.errors import CannotVectorize
from tf_pfor.core.late_gradients import Continued, CustomGradient
from tf_pfor.core.loop import Loop
from tf_pfor.core.report import Recorder
from tf_pfor.core.settings import Settings
from tf_pfor.core.stacked_lists import StackedList
from tf_pfor.core.values import Results, Unstacked, Value, dims
from tf_pfor.fallback import nested_maps, ordered_updates
from tf_pfor.walker import by_loop, contracts
from tf_pfor.walker.checked import rejected
from tf_pfor.walker.lowerings import lowered


class Walker:
    """Converts tensors of one body graph, on demand and once each."""

    Failed = Failed
    has_caller = False  # whether it converts a function, whose call could be looped instead
    is_root = False  # whether it converts the body of a map in the body of another one
    inner_map: Any = None  # what the op that is being converted is part of

    def __init__(
        self,
        loop: Loop,
        emit: Emitter,
        settings: Settings,
        recorder: Recorder,
    ):
        self.loop = loop
        self.emit = emit
        self.settings = settings
        self.recorder = recorder
        self._values: dict[Any, Value] = {}
        self.bounds = ranges.of_rows(self.value_of)
        self._done: dict[Any, list[tf.Operation]] = {}  # op -> what it became
        self._failed: set[Any] = set()
        self._tiled: dict[int, tuple[Value, Value]] = {}
        self.memo: dict[Any, Any] = {}  # of this walker and of the functions that it enters
        self.early: dict[Cut, Value] = {}  # in functions that ops of the graph call
        self.graph: tf.Graph | None = None  # the body's graph, once an op of it was converted
        self._inner: dict[tf.Operation, list[tf.Operation]] = {}  # op -> those inside its loop
        self._asked: tuple[tf.Tensor, ...] = ()
        self._roots: tuple[tf.Operation, ...] = ()
        self.first: Walker = self  # the walker that this one continues
        self.parent: Walker | None = None  # the walker of the body that this function is in
        self.is_region = False  # whether it has a loop of its own: of a branch or a while loop
        self.entered_by: tf.Operation | None = None  # what calls the function that it converts
        self._inside: frozenset[str] = frozenset()  # the functions being inlined

    # The two entries ------------------------------------------------------

    def bind(self, tensor: tf.Tensor, value: Value) -> None:
        """Says what a tensor of the body (a placeholder) is in the vectorized graph."""
        self.hold(tensor, value, is_given=True)
        self._done.setdefault(tensor.op, [])

    def take_over(self, cut: Cut, value: Value) -> None:
        """Says what a cut has become: of this graph, or of a function that is called in it."""
        if cut.calls:
            self.early[cut] = value
        else:
            self.bind(cut.tensor, value)

    def convert(
        self, tensors: Sequence[tf.Tensor], operations: Iterable[tf.Operation] = ()
    ) -> list[Value]:
        """Converts tensors, and operations that are wanted for their side effects.

        Raises:
          Failed: if something they need could not be converted; ``recorder`` has the reasons.
        """
        self._reopen(tensors)
        self.expect(tensors)
        self._roots = (*self._roots, *operations)
        with self.emit.at_work():
            self.visit([*(t.op for t in tensors), *operations])
        self._check_told(tensors)
        if self.failed(operations):
            raise Failed
        return [self._values[_key(t)] for t in tensors]

    def expect(self, tensors: Sequence[tf.Tensor]) -> None:
        """Says what will be asked for, some now and some later."""
        self._asked = (*self._asked, *tensors)
        self._roots = (*self._roots, *(t.op for t in tensors))

    def value_of(self, tensor: tf.Tensor) -> Value | None:
        """The value of a tensor of the body; None if it was not converted."""
        return self._values.get(_key(tensor))

    def outside(self, tensor: tf.Tensor) -> tf.Tensor | None:
        """The tensor around a function that an input of the function is, whatever trip it is."""
        op, graph = self.entered_by, tensor.graph
        if self.parent is None or op is None or op.type not in _tf.CONTAINERS:
            return None
        given = list(op.inputs)[int(op.type in _tf.BRANCHES) :]
        place = next((i for i, t in enumerate(graph.inputs) if t is tensor), len(given))
        if op.type in _tf.LOOPS:
            if len(graph.outputs) != len(graph.inputs):  # the condition
                return None
            after = graph.outputs[place]
            while after.op.type == "Identity":
                after = after.op.inputs[0]
            if after is not tensor:
                return None
        return given[place] if place < len(given) else None

    def is_asked(self, tensor: tf.Tensor) -> bool:
        """Whether a tensor of the body is a result that was asked for."""
        return any(_key(t) == _key(tensor) for t in self._asked)

    def is_done(self, op: tf.Operation) -> bool:
        """Whether an op was looked at, with whatever end."""
        return op in self._done

    def failed(self, operations: Iterable[tf.Operation]) -> bool:
        """Whether one of some operations could not be converted."""
        return any(op in self._failed for op in operations)

    def wanted(self) -> set[tf.Operation]:
        """The ops that what was asked of this walker needs."""
        return regions.reached(self._roots)

    def group(self, operation: tf.Operation) -> tf.Operation:
        """One operation that runs after all that a converted operation became."""
        return tf.group(*self._done[operation])

    def convert_function(
        self,
        op: tf.Operation,
        name: str,
        args: Sequence[Value],
        *,
        loop: Loop | None = None,
        outputs: int | None = None,
    ) -> list[Value]:
        """Converts the function ``name``, which ``op`` calls, inline, applied to ``args``.

        That is its (first) outputs, and its side effects.
        """
        if name in self._inside:
            raise CannotVectorize(f"the function '{name}' calls itself")
        body = _tf.function_graph(op.graph, name)
        if len(body.inputs) != len(args):
            raise CannotVectorize(f"'{name}' has {len(body.inputs)} inputs, not {len(args)}")
        child = self.enter(loop or self.loop, self.emit)
        child.entered_by, child.graph, child._inside = op, body, self._inside | {name}
        for placeholder, value in zip(body.inputs, args, strict=True):
            child.bind(placeholder, value)
        for cut, value in self.early.items():
            if cut.is_in(op, body):
                child.take_over(cut.inside, value)
        ordered_updates.check_returned(body, body.outputs[:outputs], child)
        return child.convert(body.outputs[:outputs], _tf.must_run(body))

    def enter(self, loop: Loop, emit: Emitter, recorder: Recorder | None = None) -> Walker:
        """A walker for a function of the body that gets a graph of its own (branch, loop)."""
        child = Walker(loop, emit, self.settings, recorder or self.recorder)
        child.memo = self.memo
        child.parent, child.has_caller, child.inner_map = self, True, self.inner_map
        child.is_region = loop is not self.loop
        return child

    def later(self, recorder: Recorder | None = None) -> Walker:
        """A walker that continues this one in the current graph, for gradients asked for later.

        It reads what this one has converted, and keeps to itself what it converts.
        """
        child = Walker(self.loop, self.emit, self.settings, recorder or Recorder())
        graph = tf.compat.v1.get_default_graph()
        is_here = graph is self.emit.graph
        if not is_here:
            child.emit = Emitter(graph)
            child.loop = self.loop.seen_from(child.emit)
        child.parent = self.parent and self.parent.later(child.recorder)
        child.first = self.first
        child.is_region, child.entered_by = self.is_region, self.entered_by
        child.graph = self.graph
        home = self.emit.graph
        see = (lambda v: v) if is_here else (lambda v: v.seen_from(graph, home))
        child._values = Continued(self._values, see)
        child._done = Continued(self._done, (lambda made: made) if is_here else (lambda _: []))
        child._failed = set(self._failed)
        child._inner = dict(self._inner)
        return child

    def done(self, operations: Iterable[tf.Operation]) -> list[tf.Operation]:
        """The operations that converted operations became."""
        return [made for o in operations for made in self._done[o]]

    # Walking --------------------------------------------------------------

    def _reopen(self, tensors: Iterable[tf.Tensor]) -> bool:
        """Whether a region has to be converted once more: it kept one of these to itself."""
        hidden = [t.op for t in tensors if t.op in self._inner and _key(t) not in self._values]
        for op in hidden:
            for inner in self._inner.get(op, ()):
                del self._done[inner], self._inner[inner]
        return bool(hidden)

    def visit(self, roots: list[tf.Operation]) -> None:
        """Converts operations, after all that they need."""
        stack = list(reversed(roots))
        reopened: set[tf.Operation] = set()  # once for each, else it could go on forever
        while stack:
            op = stack[-1]
            if op in self._done:
                stack.pop()
                continue
            read = ordered_updates.read_by(op, self)
            needs = (*[t.op for t in read], *_tf.by_creation(op.control_inputs))
            todo = [o for o in needs if o not in self._done]
            if todo:
                stack += todo
                continue
            if op not in reopened and self._reopen(read):
                reopened.add(op)
                continue
            stack.pop()
            nested_maps.convert_op(op, self)

    def convert_op(self, op: tf.Operation) -> None:
        """Converts one op, all that it needs being converted."""
        self.graph = op.graph
        token, begun = _stacks.begin(op), self.recorder.begin(self.emit.graph)
        try:
            self._check_told(ordered_updates.read_by(op, self))
            with self._placed(op) if op.control_inputs or op.device else contextlib.nullcontext():
                results, made = self._results(op)
        except Failed as why:
            self._failed.update([op, *why.args])
            self._done.update({o: [] for o in why.args if o not in self._done})
            self._done[op] = []
            return
        finally:
            self.recorder.end(op, self.emit.graph, begun)
            _stacks.end(token)
        self._done[op] = made
        for tensor, value in zip(op.outputs, results):
            if value is not None:
                self.hold(tensor, value)

    def hold(self, tensor: tf.Tensor, value: Value, *, is_given: bool = False) -> None:
        """Keeps what a tensor has become; in tests, its layout's contract is checked."""
        if contracts.ARE_CHECKED:
            graph = None if is_given else self.emit.graph
            place = contracts.Place(graph, self.loop.static_length)
            contracts.check(value, place, f"'{tensor.name}'")
        self._values[_key(tensor)] = value

    @contextlib.contextmanager
    def _placed(self, op: tf.Operation) -> Any:
        """Mirrors the op's control inputs and device."""
        with contextlib.ExitStack() as scopes:
            before = [o for c in op.control_inputs for o in self._done[c]]
            if before:
                scopes.enter_context(self.emit.graph.control_dependencies(before))
            if op.device:
                scopes.enter_context(self.emit.graph.device(op.device))
            yield

    def _results(self, op: tf.Operation) -> tuple[Results, list[tf.Operation]]:
        read = ordered_updates.read_by(op, self)
        if any(o in self._failed for o in (*[t.op for t in read], *op.control_inputs)):
            raise Failed
        schema = _tf.schema(op.type)
        if schema is None:
            return self._legacy_call(op)
        made = by_loop.in_order(op, self)
        if made is not None:
            return made
        values = [self._values.get(_key(t)) or _unread(t) for t in op.inputs]
        return lowered(op, schema, values, self)

    def _check_told(self, tensors: Iterable[tf.Tensor]) -> None:
        """Rejects what a loop over rows kept to itself, and may not run again."""
        for op in (t.op for t in tensors if _key(t) not in self._values):
            if op in self._failed:
                raise Failed
            why = "a gradient reads its result, which its sequential loop did not keep"
            raise rejected(op, self, f"{why}; another run may give another result")

    def _legacy_call(self, op: tf.Operation) -> tuple[list[Value], list[tf.Operation]]:
        """An op whose type is the name of a function of the graph: a call of TensorFlow 1."""
        if _tf.find_function(op.graph, op.type) is None:
            raise rejected(op, self, "its op type is not known to this TensorFlow")
        before = len(self.emit.graph.get_operations())
        args = [self._values[_key(t)] for t in op.inputs]
        results = self.convert_function(op, op.type, args)
        return results, self.emit.graph.get_operations()[before:]

    def became(self, operations: Iterable[tf.Operation], made: list[tf.Operation]) -> None:
        """Says what operations that were converted together became."""
        self._done.update(dict.fromkeys(operations, made))

    def loop_together(
        self,
        first: tf.Operation,
        ops: list[tf.Operation],
        reason: str,
        uneven: Any = (),
        cause: tf.Operation | None = None,
    ) -> Results:
        """Runs several ops in one sequential loop (arguments as of ``Conversion``)."""
        return by_loop.together(first, ops, self, reason, uneven, cause)

    def hide(self, ops: Sequence[tf.Operation], hidden: list[tf.Operation]) -> None:
        """Ops that became a region: if what nobody reads is asked for, it is converted anew."""
        self._inner.update((op, hidden) for op in hidden)

    def loop_over_rows(self, op: tf.Operation, inputs: Inputs, **options: bool) -> list[Value]:
        """Runs one op in a sequential loop, for a converter."""
        return by_loop.alone(op, inputs, self, **options)

    def loop_again(self, op: tf.Operation, values: Sequence[Value]) -> list[Value]:
        """Runs a fallback loop of the body, and this one around it, as one loop."""
        return by_loop.again(op, values, self)

    def custom_gradient(self, op: tf.Operation, values: Sequence[Value]) -> list[Value]:
        """``values``, with the gradient of one iteration that is registered for ``op``."""
        return CustomGradient(op, values, self).emit()

    # Tiling ---------------------------------------------------------------

    def tile(self, value: Value) -> Value:
        """Stacks an invariant value by repeating it, once for all who ask."""
        value = value.standard(self.emit)
        if isinstance(value, StackedList):
            raise CannotVectorize("it has no converter for lists of stacked elements")
        if value.is_stacked:
            return value
        found = self._tiled.get(id(value))
        if found is not None:
            return found[1]
        tensor = value.tensor
        if tensor.dtype in (tf.resource, tf.variant):
            raise CannotVectorize(f"a loop-invariant {tensor.dtype.name} cannot be repeated")
        tiled = Value.stacked(self.emit.repeated(tensor, self.loop.length))
        self._tiled[id(value)] = (value, tiled)
        return tiled


def _unread(tensor: tf.Tensor) -> Value:
    """In place of an input that was not converted: the updates that it belongs to have made it."""

    def make() -> tf.Tensor:
        raise AssertionError(tensor.name)

    return Unstacked.deferred(make, dims(tensor), tensor.dtype)


def _key(tensor: tf.Tensor) -> Any:
    return (tensor.op, tensor.value_index)
