"""``optimize``: a function whose loops over independent trips run all trips at once."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable
from typing import Any

from tf_pfor._tf import _functions, _loops
from tf_pfor.api.checks import check_callable
from tf_pfor.core.errors import ArgumentError, ArgumentTypeError
from tf_pfor.core.nests import Nest
from tf_pfor.core.registry import Outcome
from tf_pfor.core.report import Recorder
from tf_pfor.frontends.loops._report import LoopReport, in_order
from tf_pfor.frontends.loops._tracing import Tracer, with_tracer
from tf_pfor.reports.op_records import OpRecord, emitted_by, records
from tf_pfor.reports.report import Report
from tf_pfor.reports.source_lines import lines_of
from tf_pfor.reports.subjects import Subject, subject_of

_LOCK = threading.RLock()


class OptimizedFunction(_functions.PolymorphicFunction):
    """The result of ``optimize``: a ``tf.function``, and a report of its loops."""

    def __init__(self, fn: Callable[..., Any], options: dict[str, Any], tracer: Tracer):
        name = getattr(fn, "__name__", type(fn).__name__)
        traced = with_tracer(fn, tracer, bool(options.get("jit_compile")))
        super().__init__(traced, name, autograph=False, **options)
        self.__name__ = name
        self.__doc__ = getattr(fn, "__doc__", None)
        self._fn, self._options, self._tracer = fn, options, tracer
        self._methods = weakref.WeakKeyDictionary()

    @property
    def report(self) -> LoopReport:
        """The outcome of the loops; empty until the function was called, and so traced."""
        return LoopReport(self.__name__, in_order(self._tracer.records), self._tracer.is_used)

    def explain(self, *args: Nest, **kwargs: Nest) -> LoopReport:
        """Traces the function for some arguments, or specs of them, and returns the report."""
        self.get_concrete_function(*args, **kwargs)
        return self.report

    def outcome(self, recorder: Recorder, args: tuple[Nest, ...]) -> tuple[LoopReport, Any]:
        """The outcome of the loops, and the graph, of a new trace; it tells ``recorder`` of ops."""
        made = OptimizedFunction(self._fn, self._options, Tracer(recorder))
        graph = made.get_concrete_function(*args).graph
        return made.report, graph

    def __get__(self, instance: Any, owner: type[Any] | None = None) -> Any:
        """The function as a method."""
        if instance is None:
            return self
        with _LOCK:
            made = self._methods.get(instance)
            if made is None:
                method = self._fn.__get__(instance, owner)
                made = OptimizedFunction(method, self._options, self._tracer)
                self._methods[instance] = made
        return made


@subject_of.register
def _of_optimized(fn: OptimizedFunction, given: Subject) -> Report:
    """The ops of the loops that are vectorized, and the loops that are kept."""
    if given.in_axes != 0 or given.axis_size is not None or given.axis_name:
        raise ArgumentError(
            f"{fn!r} is no function of a row, and has no mapped axis: explain it with the "
            "arguments that it is called with, and without in_axes, axis_size and axis_name."
        )
    recorder = Recorder()
    loops, graph = fn.outcome(recorder, given.args)
    kept = [OpRecord(r.kind, 1, Outcome.LOOPED, r.reason, r.line, r.source) for r in loops.kept]
    types = [op.type for op in graph.get_operations()]
    constants = types.count("Const")
    ops = sum(op.type != "Const" for op, *_ in recorder.entries)
    return Report(
        name=loops.name,
        n=None,
        records=(*kept, *records(recorder)),
        body_ops=len(kept) + ops,
        body_constants=len(recorder.entries) - ops,
        emitted_ops=len(types) - constants - types.count("Placeholder"),
        emitted_constants=constants,
        emitted=tuple(emitted_by(recorder)),
        lines=lines_of(recorder, None),
    )


def optimize(fn: Callable[..., Any]) -> OptimizedFunction:
    """Makes a function whose loops over independent trips run all trips at once.

    ``optimize`` looks at the loops that AutoGraph makes of ``for`` and ``while``, at ``tf.map_fn``,
    and at ``tf.while_loop`` and functions that are built on it. It also looks into
    ``tf.function``s that ``fn`` calls. A loop is vectorized if each trip reads slice t of its
    inputs and writes one slice of TensorArrays that no other trip writes. The loop may carry
    nothing else but counters. Any other loop stays; ``report`` says why, and in which line it
    stands. ``tf.vectorized_map`` and the jacobians of ``tf.GradientTape`` use tf_pfor in the
    function. ``docs/loops.md`` has more; the idea is of Agarwal and Ganichev (2019).

    Args:
      fn: a Python function, a ``tf.function``, a method or a Keras model. It is traced anew, with
        its variables and captured tensors.

    Returns:
      A ``tf.function`` with the arguments of ``fn`` (and its ``input_signature``, ``jit_compile``
      and ``reduce_retracing``). Its attribute ``report`` is a ``LoopReport``.

    Raises:
      ArgumentTypeError: if ``fn`` cannot be traced anew: a concrete function, or a function of a
        model that was loaded.

    >>> import tensorflow as tf
    >>> import tf_pfor
    >>> def norms(rows):
    ...     out = tf.TensorArray(tf.float32, size=len(rows))
    ...     i = 0
    ...     for row in rows:
    ...         out = out.write(i, tf.norm(row))
    ...         i += 1
    ...     return out.stack()
    >>> fast = tf_pfor.optimize(norms)
    >>> fast(tf.constant([[3., 4.], [6., 8.]])).numpy().tolist()
    [5.0, 10.0]
    >>> len(fast.report.vectorized), len(fast.report.kept)
    (1, 0)
    """
    check_callable(fn, "fn")
    if isinstance(fn, OptimizedFunction):
        return fn
    if _loops.is_graph_only(fn):
        raise ArgumentTypeError(
            f"fn is {fn!r}: a graph without the Python code that it was made of. Expected: a "
            "Python function, a tf.function, a method or a Keras model. Optimize that, and make "
            "the concrete function or the SavedModel of the result."
        )
    options: dict[str, Any] = {}
    if type(fn) is _loops.PLAIN_FUNCTION:
        options, fn = _loops.options_of(fn), _loops.python_function(fn)
    return OptimizedFunction(fn, options, Tracer())
