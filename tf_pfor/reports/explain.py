"""``explain`` tells what becomes of each op of a body, without running anything."""

from __future__ import annotations

import contextlib
import re
import sys
from collections.abc import Callable
from typing import Any

import tensorflow as tf

from tf_pfor import _tf
from tf_pfor.api import composites, signature_elements
from tf_pfor.api.options import settings_of
from tf_pfor.api.run import convert_body
from tf_pfor.core.axes import Axis, check_name
from tf_pfor.core.errors import NotVectorizableError
from tf_pfor.core.nests import Nest
from tf_pfor.core.report import Recorder
from tf_pfor.reports import body_graph
from tf_pfor.reports.arguments import arguments, placeholder_like
from tf_pfor.reports.report import Report, emitted_by, records
from tf_pfor.tracing.trace import trace


@tf.autograph.experimental.do_not_convert
def explain(
    fn: Callable[..., Any],
    *args: Nest,
    fallback_to_while_loop: bool = True,
    while_strategy: str = "auto",
    axis_name: str | None = None,
) -> Report:
    """Prints the outcome of each op of ``fn`` when it is vectorized, and runs nothing.

    A notebook shows the returned report as a table; nothing is printed there.

    Args:
      fn: the body of a ``pfor``, or a function of one row. It may be a ``tf.function``, or a
        concrete function, such as a signature of a SavedModel that takes one example. A
        ``tf_pfor.keras.Vectorized`` layer stands for the function that it wraps.
      *args: for a ``pfor`` body the number of iterations, an int or a scalar integer tensor. For a
        function of one row the elements, one for each argument of ``fn``. An element is a nest of
        tensors, [n, ...] each, or of ``tf.TensorSpec``s where there is no data yet. A concrete
        function and a ``tf.function`` with an ``input_signature`` need none: their signature
        describes one example, for an unknown number of rows. A function of named inputs, such as a
        signature, takes a dict of elements.
      fallback_to_while_loop: whether ops without a converter may run in a sequential loop. Ops that
        are refused are part of the report.
      while_strategy: "auto", "compact" (a while loop computes the rows that still go on), or "mask"
        (it computes all rows).
      axis_name: the name of the mapped axis for collectives (``psum`` ...) in ``fn``.

    Returns:
      The ``Report``, which was printed.

    Raises:
      ArgumentTypeError, ArgumentError: if an argument is wrong.

    >>> import tensorflow as tf
    >>> import tf_pfor
    >>> w = tf.ones([3, 2])
    >>> report = tf_pfor.explain(lambda x: tf.nn.relu(tf.linalg.matvec(w, x)),
    ...                          tf.ones([8, 2]))  # doctest: +ELLIPSIS
    <lambda>, n = 8
    ...
    >>> report.totals["looped"], report.totals["rejected"]
    (0, 0)
    """
    report = describe(
        fn,
        *args,
        fallback_to_while_loop=fallback_to_while_loop,
        while_strategy=while_strategy,
        axis_name=axis_name,
    )
    return shown(report)


def shown(report: Report) -> Report:
    """Prints a report; not in a notebook, which shows what the last line of a cell returns."""
    shell = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    if type(shell).__name__ != "ZMQInteractiveShell":
        print(report)
    return report


def describe(
    fn: Callable[..., Any],
    *args: Nest,
    fallback_to_while_loop: bool = True,
    while_strategy: str = "auto",
    axis_name: str | None = None,
) -> Report:
    """``explain`` without printing."""
    fn = getattr(fn, "of_one_example", fn)  # what a layer of batches maps
    settings = settings_of(None, "different", while_strategy, may_loop=fallback_to_while_loop)
    name = _name_of(fn)
    fn, args = signature_elements.opened(fn, args)
    scratch = _tf.FuncGraph("explain")
    with scratch.as_default():
        body_fn, elements, n = arguments(fn, args, placeholder_like)
        known = n if isinstance(n, int) else _tf.static_value(n)
        axis = Axis(check_name(axis_name), None if known is None else int(known))
        body = trace(composites.by_parts(body_fn), [e.spec for e in elements], axis=axis)
        recorder = Recorder()
        before = len(scratch.get_operations())
        with contextlib.suppress(NotVectorizableError):  # what was rejected is in the records
            convert_body(body, elements, n, settings, recorder)
        emitted = [op.type for op in scratch.get_operations()[before:]]
    return Report(
        name=name,
        n=None if known is None else int(known),
        records=tuple(records(recorder)),
        body_ops=sum(op.type != "Const" for op, _, _ in recorder.entries),
        body_constants=sum(op.type == "Const" for op, _, _ in recorder.entries),
        emitted_ops=sum(t not in ("Const", "Placeholder") for t in emitted),
        emitted_constants=emitted.count("Const"),
        emitted=tuple(emitted_by(recorder)),
        graphs=body_graph.graphs(body, recorder),
    )


def _name_of(fn: object) -> str:
    """The user's name of a function; TensorFlow calls f ``__inference_f_123``, in bytes."""
    name = getattr(fn, "__qualname__", getattr(fn, "name", type(fn).__name__))
    name = name.decode() if isinstance(name, bytes) else str(name)
    return re.sub(r"^__inference_(.+)_\d+$", r"\1", name).split("<locals>.")[-1]
