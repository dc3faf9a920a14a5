"""Records the eager ops of one program, and runs them when a value is asked for."""

from __future__ import annotations

import contextlib
import threading
import weakref
from collections.abc import Callable, Sequence
from typing import Any, Final

import tensorflow as tf

from tf_pfor._tf import _eager_ops
from tf_pfor._tf._eager_ops import PASSED, EagerTensor
from tf_pfor._tf._stacks import caller
from tf_pfor.recording.compiled import nothing_was_written, one_by_one, with_line
from tf_pfor.recording.following import CUT, EAGERLY, ByValue, Recording, value_of
from tf_pfor.recording.forms import opened
from tf_pfor.recording.gradients import follow_op
from tf_pfor.recording.kinds import OpType, op_type_of
from tf_pfor.recording.lazy_tensors import KeepsLazy, Lazy
from tf_pfor.recording.nodes import Kind
from tf_pfor.recording.operands import without_numpy
from tf_pfor.recording.tensors import show_ragged
from tf_pfor.recording.traces import Step, Traces

SHORT: Final = 128  # calls of a trace that is not cut at its first line
LONG: Final = 2000  # calls of the longest trace
_SIMPLE = frozenset([bool, str, bytes, type(None), tf.DType])
_NUMBERS = 10_000  # numbers that are kept as tensors


class Program(Recording, KeepsLazy):
    """Records the calls of a thread in the order in which they are made.

    Attributes:
      jit: whether XLA compiles what was recorded.
    """

    def __init__(self, traces: Traces, *, jit: bool) -> None:
        super().__init__(traces)
        show_ragged()
        self.jit = jit
        self._lock = threading.RLock()
        self._thread = _eager_ops.thread_state()
        self._devices = {"", None, _eager_ops.only_device()}  # choices that change nothing
        self._late: Exception | None = None  # an error that another thread has met
        self._begin()

    def _begin(self) -> None:
        """Begins a new trace."""
        self._step: Step | None = None
        self._inputs = []
        self._known = {}
        self._made: list[weakref.ref[Lazy]] = []
        self._marks: dict[str, set[str]] = {}
        self._handles: dict[int, bool] = {}  # of variables, and whether the trace writes them

    # -----------------------------------------------------------------------
    # What a thread catches
    # -----------------------------------------------------------------------

    def op(self, op_type: str, given: tuple[Any, ...]) -> Any:
        """Records an op."""
        facts = op_type_of(op_type)
        thread = self._thread
        if facts is None or thread.device_name not in self._devices or thread.op_callbacks:
            return self._run(op_type, given)
        known, count = self._known, facts.count
        key: list[Any] = [op_type]
        if len(given) > count:
            key.append(given[count:])
        items: list[Any] = []
        lazy: dict[int, Lazy] = {}
        for x in facts.opened(given, key) if facts.has_lists else given[:count]:
            cls = type(x)
            if cls is Lazy:
                if x.program is self:
                    key.append(x.place)
                    items.append(x)
                    continue
                made = x.tensor(op_type)
                lazy[id(made)], x = x, made
                cls = EagerTensor
            if cls is EagerTensor:
                place = known.get(id(x))
                key.append(_form(x, items) if place is None else place)
            elif cls is float or cls is int:
                key.append(cls)
            elif cls in _SIMPLE:
                key.append((cls, x))
            elif (cls is list or cls is tuple) and _is_plain(x):
                key.append(repr(x))
            else:
                return self._other(facts, given)
            items.append(x)
        with self._lock:
            if known is not self._known:  # another thread has run the trace
                following = None
            else:
                following = self._following(facts, given, tuple(key), items)
                if type(following) is Step:
                    if not _eager_ops.is_taped():
                        return self._go(following, items)
                    sources = [lazy.get(id(x), x) for x in items if isinstance(x, tf.Tensor)]
                    if not _eager_ops.has_tangent(sources):
                        return self._taped(following, items, lazy)
                    following = EAGERLY  # a forward accumulator follows an input
        if type(following) is EagerTensor:
            return following
        if following is PASSED:
            return self._run_now(op_type, given)
        if following is EAGERLY:
            return self._run(op_type, given)
        if following is not None:
            self.cut("an op that may fail, after a write" if following is CUT else "a long trace")
        return self.op(op_type, given)

    def function(
        self, called: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        """Records the second call of a ``tf.function``; the first one traces it."""
        if not tf.executing_eagerly() or tf.config.functions_run_eagerly():
            return PASSED
        name = getattr(called, "__name__", "a function")
        try:
            found = self._function(called, name, args, kwargs)
        except Exception:  # TensorFlow says what is wrong with the arguments
            found = None
        if found is not None:
            _eager_ops.meet(found[0].captured, writes=False)
            return self._unit(*found)
        self.cut(name)
        return PASSED

    def _function(
        self, called: Callable[..., Any], name: str, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[Kind, list[Any]] | None:
        """The kind and the tensors of a call of a ``tf.function``; None if it is not recorded."""
        leaves: list[Any] = []
        key = "function", called, opened((args, kwargs), leaves, [])
        if _eager_ops.is_taped():  # its gradient is a function, which TensorFlow makes
            return None
        before = self.kinds.get(key)
        if before is None:
            others = [x for x in leaves if not isinstance(x, tf.Tensor)]
            self.kinds[key] = others, True  # their ids stay theirs
        if before is None or not before[-1]:
            return None
        with contextlib.suppress(Exception):  # it has an effect, returns no tensors, or fails
            kind, tensors, _ = self.kind_of_unit(called, name, called, args, kwargs)
            if kind.may_share and kind.results:
                return kind, tensors
        self.kinds[key] = *before[:-1], False
        return None

    def custom_gradient(self, name: str, outputs: Sequence[Any]) -> None:
        """Tapes hear of it from TensorFlow."""

    def accessed(self, variable: tf.Variable) -> None:
        """Tapes hear of it from TensorFlow."""

    def meets(self, handles: Sequence[int], *, writes: bool) -> None:
        """Runs what was recorded before another thread uses variables that it uses, too."""
        found = [self._handles[k] for k in handles if k in self._handles]
        if any(is_written or writes for is_written in found):
            try:
                self.cut("a variable that another thread uses")
            except Exception as error:  # it belongs to this program, not to the other thread
                self._late = error

    def tape(self, tape: object, method: str) -> None:
        """Tapes of this thread see recorded values."""

    def runs(self, name: str, inputs: Sequence[Any]) -> Sequence[Any]:
        """Runs what was recorded, so that what runs by its name finds all values."""
        self.cut(name)
        return _values(inputs, name)

    # -----------------------------------------------------------------------
    # Calls
    # -----------------------------------------------------------------------

    def _other(self, facts: OpType, given: tuple[Any, ...]) -> Any:
        """Records an op with inputs that are arrays, variables or lists with tensors."""
        try:
            inputs, lengths = self.inputs(facts, given)
        except Exception:  # the op itself has the error that users know
            return self._run(facts.name, given)
        inputs = list(map(without_numpy, inputs))
        known = (*_SIMPLE, Lazy, EagerTensor, int, float)
        if any(type(x) not in known for x in inputs):  # tensors of graphs, for example
            return self._run(facts.name, given)
        supply = iter(inputs)
        packed = [next(supply) if n < 0 else [next(supply) for _ in range(n)] for n in lengths]
        return self.op(facts.name, (*packed, *given[len(lengths) :]))

    def _following(
        self, facts: OpType, given: tuple[Any, ...], key: tuple[Any, ...], items: list[Any]
    ) -> Any:
        """The call of an op after those before, or what else becomes of it.

        ``key`` is equal for calls of one form. ``items`` are the inputs with lists opened.
        """
        step = self._step or self._first(facts.name)
        if step.depth >= SHORT and self._is_end(step.depth, facts.name):
            return LONG
        try:
            following = step.following.get(key)
        except TypeError:  # an attribute is a list
            key = (key[0], repr(key[1]), *key[2:])
            following = step.following.get(key)
        if following is None:
            following = self.found(step, facts, given, items)
            step.following[key] = following
        if type(following) is ByValue:
            values = tuple([value_of(items[k]) for k in following.places])
            by_value = following
            following = by_value.steps.get(values)
            if following is None:
                following = by_value.steps[values] = self.after(step, by_value.kinds, items)
        return following

    def _is_end(self, depth: int, op_type: str) -> bool:
        """Whether a trace ends before an op, so that loops without a barrier have equal traces.

        It ends where a line comes again: of its first call, or of its call number SHORT.
        """
        if depth >= LONG:
            return True
        if depth > SHORT and op_type not in self._marks:
            return False
        line = caller()
        if line in self._marks.get(op_type, ()):
            return True
        if depth == SHORT:
            self._marks.setdefault(op_type, set()).add(line)
        return False

    def _first(self, name: str) -> Step:
        """The root of the tree of traces, for a trace that begins with an op."""
        line = caller()
        self._marks[name] = {line}
        self._step = self.traces.root(line)
        self.kinds = self.traces.kinds
        return self._step

    def _go(self, step: Step, items: list[Any]) -> Any:
        """Adds a call to the trace, and makes its results."""
        kind = step.kind
        assert kind is not None
        inputs = self._inputs
        for k, dtype in step.takes:
            x = items[k]
            if dtype is None:
                self._known[id(x)] = self.traces.inputs[len(inputs)]
                if x.dtype == tf.resource:
                    self._handles.setdefault(x._id, False)
            else:
                x = items[k] = self._number(x, dtype)
            inputs.append(x)
        self._step = step
        if kind.writes:
            self._handles |= {
                x._id: True for x in items if type(x) is EagerTensor and x.dtype == tf.resource
            }
        if kind.captured:
            self._handles = {x._id: False for x in kind.captured} | self._handles
        if step.is_single:
            made = Lazy(self, step.places[0], step.results[0])
            self._made.append(weakref.ref(made))
            return made
        results = [Lazy(self, place, r) for place, r in zip(step.places, step.results)]
        self._made += map(weakref.ref, results)
        return kind.pack(results)

    def _taped(self, step: Step, items: list[Any], lazy: dict[int, Lazy]) -> Any:
        """Adds a call to the trace, and shows it to the tapes of this thread."""
        packed = self._go(step, items)
        kind = step.kind
        assert kind is not None
        results = [x for x in (ref() for ref in self._made[step.first :]) if x is not None]
        varying = [lazy.get(id(x), x) for x in (items[k] for k in step.varying)]
        if results:
            follow_op(kind, varying, results, self._gradient)
        return packed

    def _number(self, x: float, dtype: tf.DType) -> tf.Tensor:
        """A Python number as a tensor."""
        numbers = self.traces.numbers
        key = x, dtype
        made = numbers.get(key) if x else None  # 0.0 and -0.0 are equal keys
        if made is None:
            made = tf.constant(x, dtype)
            if len(numbers) >= _NUMBERS:
                numbers.clear()
            numbers[key] = made
        return made

    def _unit(self, kind: Kind, tensors: list[Any]) -> Any:
        """Records the call of a function of tensors."""
        with self._lock:
            step = self._step or self._first(kind.name)
            if step.depth >= LONG:
                self.cut("a long trace")
                return self._unit(kind, tensors)
            items: list[Any] = []
            key: list[Any] = [kind]
            for x in tensors:
                if type(x) is Lazy and x.program is not self:
                    x = x.tensor(kind.name)
                place = x.place if type(x) is Lazy else self._known.get(id(x))
                key.append(_form(x, items) if place is None else place)
                items.append(x)
            following = step.following.get(tuple(key))
            if following is None:
                following = self.after(step, kind, items)
                step.following[tuple(key)] = following
            if following is CUT:
                self.cut("a function that may fail, after a write")
                return self._unit(kind, tensors)
            return self._go(following, items)

    def _gradient(self, kind: Kind, wanted: tuple[bool, ...], *args: Sequence[Any]) -> list[Any]:
        """The gradients of the inputs of an op.

        ``args`` are the inputs, the results, and the gradients of the results.
        """
        assert kind.gradient is not None
        if _eager_ops.catcher() is not self or not tf.executing_eagerly():
            return kind.gradient(wanted, *_values(args, kind.name, Lazy.followed))
        given, results, slopes = args
        # For derivatives of it, and where a graph keeps IndexedSlices that eager ops make dense.
        if _eager_ops.is_taped() or any(isinstance(dy, tf.IndexedSlices) for dy in slopes):
            return kind.gradient(wanted, *args)
        pattern = wanted, tuple(dy is None for dy in slopes)
        if pattern not in kind.gradients:
            kind.gradients[pattern] = _connected(kind.gradient, wanted), {}
        fn, units = kind.gradients[pattern]
        unit = units.get(None) if _are_alike(results, slopes) else None
        if unit is not None:
            made = self._unit(unit, [*given, *results, *[dy for dy in slopes if dy is not None]])
        else:
            try:
                name = f"the gradient of {kind.name}"
                unit, tensors, _ = self.kind_of_unit(fn, name, fn, args, {}, is_plain=True)
            except Exception:  # eager ops find it, or have the error that users know
                return kind.gradient(wanted, *args)
            if unit.results is None:
                return kind.gradient(wanted, *args)
            if _are_alike(results, slopes):
                units[None] = unit
            made = self._unit(unit, tensors)
        return [made.get(k) for k in range(len(wanted))]

    # -----------------------------------------------------------------------
    # Runs
    # -----------------------------------------------------------------------

    def _run(self, op_type: str, given: tuple[Any, ...]) -> Any:
        """Runs an op that is not recorded, after what was recorded before it."""
        self.cut(op_type)
        return self._run_now(op_type, given)

    def _run_now(self, op_type: str, given: tuple[Any, ...]) -> Any:
        return _eager_ops.run_taped(op_type, _values(given, op_type), given)

    def wait(self) -> None:
        """Waits until no thread runs what was recorded here."""
        with self._lock:
            pass

    def cut(self, reason: str) -> None:
        """Runs what was recorded, as far as somebody wants it."""
        with self._lock:
            if self._late is not None:
                late, self._late = self._late, None
                raise late
            step, inputs, made = self._step, self._inputs, self._made
            if step is None:
                return
            alive = [x for x in (ref() for ref in made) if x is not None]
            for x in alive:  # before the next trace begins: its places are of this one
                x.runs_in = self
                x.program = None
            self._begin()
            if not step.depth:
                return
            line = caller()
            self.traces.cuts[line, reason] += 1
            self.traces.counts["recorded"] += step.depth
            if not alive and not step.must_run:
                return
            with contextlib.ExitStack() as stack:
                if not tf.executing_eagerly():
                    stack.enter_context(tf.init_scope())
                if _eager_ops.thread_state().device_name not in self._devices:
                    stack.enter_context(tf.device(None))  # another thread has chosen one
                try:
                    self._execute(step, alive, inputs, line)
                except BaseException as error:
                    for x in alive:
                        if x.made is None and x.error is None:
                            x.error = _lasting(error)
                        x.runs_in = None
                    raise

    def _execute(self, step: Step, alive: list[Lazy], inputs: list[tf.Tensor], line: str) -> None:
        wanted = [x.place.number for x in alive]
        compiled = self.traces.function(step, wanted, line, jit=self.jit)
        if compiled is None:
            return self._one_by_one(step, alive, inputs)
        try:
            made = compiled.run(inputs)
        except Exception as error:
            if compiled.is_jit:  # XLA has no kernel of an op
                self.traces.counts["not by XLA"] += 1
                compiled.leave_xla()
                return self._execute(step, alive, inputs, line)
            if nothing_was_written(step.path(), error):
                return self._one_by_one(step, alive, inputs)
            lasting = with_line(error, "One of the ops", f"{step.path()[0].line} or later")
            for x in alive:
                x.error, x.runs_in = lasting, None
            raise lasting from error
        finally:
            self.traces.time(compiled)
        for x in alive:
            x.made, x.runs_in = made[x.place.number], None
        return None

    def _one_by_one(self, step: Step, alive: list[Lazy], inputs: list[tf.Tensor]) -> None:
        results: list[tf.Tensor] = []
        failed: Exception | None = None
        try:
            with _eager_ops.caught(None):
                one_by_one(step.path(), inputs, results)
        except Exception as error:
            failed = error
            raise
        finally:
            for x in alive:
                k = x.place.number
                x.made = results[k] if k < len(results) else None
                x.error, x.runs_in = failed, None


def _connected(
    gradient: Callable[..., list[Any]], wanted: tuple[bool, ...]
) -> Callable[..., dict[int, Any]]:
    """A function of the gradients that are not None, by the numbers of their inputs."""

    def connected(*args: Sequence[Any]) -> dict[int, Any]:
        return {k: x for k, x in enumerate(gradient(wanted, *args)) if x is not None}

    return connected


def _are_alike(results: Sequence[Any], slopes: Sequence[Any]) -> bool:
    """Whether gradients are tensors of the forms of the results."""
    return all(
        dy is None or (type(dy) is Lazy and dy.result.form == x.result.form)
        for x, dy in zip(results, slopes)
    )


def _form(x: tf.Tensor, items: Sequence[Any]) -> Any:
    """The form of a tensor that no call has read; or its number among the items of this call."""
    for k, other in enumerate(items):
        if other is x:
            return "again", k
    return _eager_ops.form_of_input(x)


def _lasting(error: BaseException) -> Exception:
    """The error for values of a trace that has failed, or that somebody has interrupted."""
    if isinstance(error, Exception):
        return error
    return RuntimeError(f"Recorded ops did not run to the end: {error!r}")


def _is_plain(x: Sequence[Any]) -> bool:
    """Whether a list holds numbers and texts only."""
    return all(
        type(item) in (int, float, bool, str) or (type(item) in (list, tuple) and _is_plain(item))
        for item in x
    )


def _values(
    nest: Sequence[Any], asked: str, value: Callable[[Lazy, str], tf.Tensor] = Lazy.tensor
) -> Any:
    """A list or tuple with eager tensors in place of lazy ones."""
    made: list[Any] = []
    for x in nest:
        if type(x) is Lazy:
            made.append(value(x, asked))
        else:
            made.append(_values(x, asked, value) if type(x) in (list, tuple) else x)
    return tuple(made) if isinstance(nest, tuple) else made
