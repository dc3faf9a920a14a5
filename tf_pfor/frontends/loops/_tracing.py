"""A function traced with its loops vectorized: each is looked at when it is asked for."""

from __future__ import annotations

import contextlib
import contextvars
from collections.abc import Callable, Generator
from typing import Any

import tensorflow as tf

from tf_pfor import _tf
from tf_pfor._tf import _graphs, _loops, _stacks
from tf_pfor._tf._all_ops import all_ops
from tf_pfor.core import nests
from tf_pfor.core.nests import Nest
from tf_pfor.core.report import Recorder
from tf_pfor.frontends.drop_in import observed_drop_in
from tf_pfor.frontends.loops import _vectorized
from tf_pfor.frontends.loops._independence import Analysis, Dependent, source
from tf_pfor.frontends.loops._report import LoopRecord
from tf_pfor.tracing.user_code import autographed

_no_autograph = tf.autograph.experimental.do_not_convert
_under_xla: contextvars.ContextVar[bool] = contextvars.ContextVar("tf_pfor_xla", default=False)
_ENTRY_POINTS = {"vectorized_map": "tf.vectorized_map"}  # as users know them


class Tracer:
    """Vectorizes the loops that a function asks for, also in functions that it calls.

    Args:
      heard: told what happened to each op of the loops that are vectorized, if anybody asks.

    Attributes:
      records: the outcome of each loop.
      is_used: whether it has seen a whole trace of a function, without an error.
    """

    def __init__(self, heard: Recorder | None = None) -> None:
        self._heard = heard
        self.records: list[LoopRecord] = []
        self.is_used = False
        self._functions: dict[int, tuple[Any, Any]] = {}  # id -> the function, the one traced here

    @contextlib.contextmanager
    def active(self, *, jit_compile: bool) -> Generator[None]:
        """In the ``with`` block loops are looked at."""
        token = _under_xla.set(_under_xla.get() or jit_compile)
        try:
            hooks = _loops.Hooks(self._loop, self._call)
            with _loops.replaced(hooks), observed_drop_in(self._mapped):
                yield
        finally:
            _under_xla.reset(token)

    def note_others(self, graph: tf.Graph) -> None:
        """Records the loops of a traced graph that were in it before: in concrete functions."""
        known = {r.line for r in self.records}
        for op in all_ops(graph):
            if op.type not in _tf.LOOPS:
                continue
            line = _tf.user_line(op)
            if line not in known or not line:
                why = "it is in a function that was traced before (a concrete function, a model "
                self.records.append(LoopRecord("while", line, False, why + "that was loaded)"))

    def _mapped(self, entry_point: str) -> None:
        """Records a call of TensorFlow's own vectorizer, which tf_pfor has answered."""
        kind = _loops.kind_of_loop(_ENTRY_POINTS.get(entry_point, entry_point))
        self.records.append(LoopRecord(kind, _stacks.user_line(), True))

    # Functions ------------------------------------------------------------

    def _call(self, own: Callable[..., Any], function: Any, *args: Nest, **kwargs: Nest) -> Any:
        """A call of a ``tf.function``: of a copy of it, whose loops are looked at."""
        is_ours = type(function) is not _loops.PLAIN_FUNCTION
        copies = {id(made) for _, made in self._functions.values()}
        if is_ours or tf.executing_eagerly() or id(function) in copies:
            return own(function, *args, **kwargs)
        if id(function) not in self._functions:
            is_xla = _loops.is_compiled_by_xla(function)
            traced = with_tracer(function.python_function, self, is_xla)
            made = _loops.traced_apart(function, traced)
            self._functions[id(function)] = (function, made)
        return own(self._functions[id(function)][1], *args, **kwargs)

    # Loops ----------------------------------------------------------------

    def _loop(self, own: Callable[..., Any], *args: Nest, **kwargs: Nest) -> Any:
        """A while loop: vectorized, or as TensorFlow makes it."""
        kind, line = _loops.kind_of_loop(), _stacks.user_line()
        given = args[2] if len(args) > 2 else kwargs["loop_vars"]
        try:
            if kwargs.get("back_prop") is False:
                raise Dependent("back_prop is False")
            if not any(isinstance(x, tf.TensorArray) for x in tf.nest.flatten(given)):
                raise Dependent("it fills no TensorArray: nothing of each trip is kept")
            if _under_xla.get():
                _tf.mark_jit_compiled(tf.compat.v1.get_default_graph())
            made, line = _vectorized_loop(own, args, kwargs, recorder := Recorder())
        except Dependent as why:
            self.records.append(LoopRecord(kind, why.line or line, False, str(why)))
            return own(*args, **kwargs)
        self.records.append(LoopRecord(kind, line, True))
        if self._heard is not None:
            self._heard.extend(recorder)
        return made


def with_tracer(fn: Callable[..., Any], tracer: Tracer, jit_compile: bool) -> Callable[..., Any]:
    """``fn`` with Python control flow on tensors converted, and its loops vectorized."""
    converted = autographed(fn)

    def traced(*args: Nest, **kwargs: Nest) -> Any:
        with tracer.active(jit_compile=jit_compile):
            result = converted(*args, **kwargs)
        tracer.note_others(tf.compat.v1.get_default_graph())
        tracer.is_used = True
        return result

    return nests.named_as(_no_autograph(traced), fn)


def _vectorized_loop(
    own: Callable[..., Any], args: Nest, kwargs: dict[str, Any], recorder: Recorder
) -> tuple[Any, str]:
    """The results of a loop, vectorized, and its line.

    The loop is traced in a separate graph, which is inspected and then dropped.
    """
    kept: dict[str, Any] = {}

    def loop() -> list[tf.Tensor]:
        kept["result"] = own(*args, **{**kwargs, "return_same_structure": True})
        return [x if isinstance(x, tf.Tensor) else x.flow for x in nests.flatten(kept["result"])]

    trial = _graphs.trace("pfor_body", loop, [])
    op, outside = _found(trial)
    line = _tf.user_line(op)
    try:
        found = Analysis(op, outside)
        with _tf.FuncGraph("loops_trial").as_default():
            _vectorized.results(found, Recorder())  # nothing is emitted where it cannot be
        made = _vectorized.results(found, recorder)
    except Dependent as why:
        why.line = line
        raise
    except tf.errors.InvalidArgumentError as failed:  # a check that can be told to fail before
        raise Dependent(f"it would fail when it runs: {failed.message}", line) from None
    leaves: list[Any] = []
    for leaf in nests.flatten(kept["result"]):
        tensor = leaf if isinstance(leaf, tf.Tensor) else leaf.flow
        leaves.append(_like(leaf, *made[source(tensor).value_index]))
    same = kwargs.get("return_same_structure", True)
    return (nests.pack(kept["result"], leaves) if same or len(leaves) > 1 else leaves[0]), line


def _like(leaf: Nest, made: tf.Tensor, rows: tf.Tensor | None) -> Any:
    """A result in the place of a leaf of the loop's: a TensorArray, or a tensor of its shape."""
    if isinstance(leaf, tf.TensorArray):
        return _loops.with_flow(leaf, made, rows)
    made = tf.identity(made)
    made.set_shape(leaf.shape)
    return made


def _found(trial: tf.Graph) -> tuple[tf.Operation, Any]:
    """The loop of a graph that was traced to look at it, and what its inputs are outside.

    Where a tape watches, TensorFlow puts it into a function.
    """
    holders = [op for op in trial.get_operations() if _is_loop_or_holder(op)]
    if len(holders) != 1:
        raise Dependent("its variables are made by other loops or functions")
    holder = holders[0]
    captured = {id(inside): outer for outer, inside in trial.captures}

    def outside(tensor: tf.Tensor) -> tf.Tensor | None:
        tensor = source(tensor)
        if id(tensor) in captured:
            return captured[id(tensor)]
        known = _tf.static_value(tensor)
        return None if known is None else tf.constant(known, tensor.dtype)

    if holder.type in _tf.LOOPS:
        return holder, outside
    inner = _tf.functions_of(holder)[0]
    loops = [op for op in inner.get_operations() if op.type in _tf.LOOPS]
    places = {id(t): i for i, t in enumerate(inner.inputs)}
    if len(loops) != 1 or [source(t).op for t in inner.outputs] != [loops[0]] * len(inner.outputs):
        raise Dependent("its variables are made by other loops or functions")

    def outside_of_holder(tensor: tf.Tensor) -> tf.Tensor | None:
        place = places.get(id(source(tensor)))
        return outside(tensor if place is None else holder.inputs[place])

    return loops[0], outside_of_holder


def _is_loop_or_holder(op: tf.Operation) -> bool:
    if op.type in _tf.LOOPS:
        return True
    return op.type in _tf.CALLS and any(
        inner.type in _tf.LOOPS for g in _tf.functions_of(op) for inner in g.get_operations()
    )
