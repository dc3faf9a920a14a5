"""``explain`` tells what becomes of each op of a body, without running anything."""

from __future__ import annotations

import contextlib

import tensorflow as tf

from tf_pfor import _tf
from tf_pfor.api.bodies import convert_body
from tf_pfor.api.mapped_arguments import Axes
from tf_pfor.api.options import Options
from tf_pfor.core.axes import check_name
from tf_pfor.core.errors import NotVectorizableError
from tf_pfor.core.nests import Nest
from tf_pfor.core.report import Recorder
from tf_pfor.core.settings import Fallback, OutShapes, Randomness, Settings, WhileStrategy
from tf_pfor.reports import body_graph
from tf_pfor.reports.arguments import Traced, placeholder_like, traced_of
from tf_pfor.reports.op_records import emitted_by, records
from tf_pfor.reports.report import Report
from tf_pfor.reports.source_lines import lines_of
from tf_pfor.reports.subjects import Subject, subject_of


@tf.autograph.experimental.do_not_convert
def explain(
    fn: object,
    *args: Nest,
    in_axes: Axes = 0,
    axis_size: int | None = None,
    axis_name: str | None = None,
    fallback: Fallback | None = None,
    randomness: Randomness | None = None,
    while_strategy: WhileStrategy = "auto",
    out_shapes: OutShapes | None = None,
) -> Report:
    """The outcome of each op of a function when it is vectorized. Nothing is run or printed.

    ``print(report)`` shows a table, and a notebook shows the user's code line by line.

    Args:
      fn: the body of a ``pfor``, or a function of one row. It may be a ``tf.function``, or a
        concrete function, such as a signature of a SavedModel that takes one example. Objects that
        map a function stand for it, with their options: a result of ``vmap`` or of
        ``tf_pfor.data.vectorize``, a ``tf_pfor.keras.Vectorized`` layer, a function of
        ``tf_pfor.optimize``. A path leads to a SavedModel.
      *args: for a ``pfor`` body the number of iterations, an int or a scalar integer tensor. For a
        function of one row the elements, one for each argument of ``fn``. An element is a nest of
        tensors, [n, ...] each, or of ``tf.TensorSpec``s where there is no data yet. A concrete
        function and a ``tf.function`` with an ``input_signature`` need none: their signature
        describes one example, for an unknown number of rows. A function of named inputs, such as a
        signature, takes a dict of elements. A result of ``vmap`` that was called, and a layer that
        was built, need none either.
      in_axes: the axis to map over, for each element. An int is an axis; negative ints count from
        the end. None stands for an element that all rows share. A nest of these must be a prefix of
        the element's nest. One int or None stands for all elements. 0 also takes what
        ``vectorized_map`` and ``pfor`` take.
      axis_size: the number of rows, needed when no element is mapped.
      axis_name: the name of the mapped axis for collectives (``psum`` ...) in ``fn``.
      fallback: "loop", "error", or a set of op types that may run in a sequential loop. None
        follows ``tf_pfor.settings``. Ops that are refused are part of the report.
      randomness: the behaviour of stateful random ops, generators and Keras' seeds. "different":
        each row draws other numbers. "same": all rows share one draw. "error": these ops are
        refused. None follows ``tf_pfor.settings``.
      while_strategy: the strategy for a while loop in which rows make different numbers of trips.
        "compact" computes only the rows that still go on. "mask" computes all rows and drops the
        results of finished ones. "auto" chooses by cost.
      out_shapes: the form of results whose shape may differ between rows: "ragged", "dense" or
        "padded" with zeros. None follows ``tf_pfor.settings``.

    Returns:
      The ``Report``. It is of all rows at once, also where a map has a ``chunk_size``.

    Raises:
      ArgumentTypeError, ArgumentError: if an argument is wrong.

    >>> import tensorflow as tf
    >>> import tf_pfor
    >>> w = tf.ones([3, 2])
    >>> report = tf_pfor.explain(lambda x: tf.nn.relu(tf.linalg.matvec(w, x)), tf.ones([8, 2]))
    >>> report.n, report.totals["looped"], report.totals["rejected"]
    (8, 0, 0)
    """
    options = Options.of(fallback, randomness, while_strategy, out_shapes)
    given = Subject(fn, args, in_axes, axis_size, check_name(axis_name), options)
    subject = subject_of(fn, given)
    if isinstance(subject, Report):
        return subject
    scratch = _tf.FuncGraph("explain")
    with scratch.as_default():
        traced = traced_of(subject, placeholder_like)
        return report_of(traced, subject.options.settings())


def report_of(traced: Traced, settings: Settings) -> Report:
    """Converts a body in the current graph, which is thrown away."""
    graph, recorder = tf.compat.v1.get_default_graph(), Recorder()
    before = len(graph.get_operations())
    with contextlib.suppress(NotVectorizableError):  # what was rejected is in the records
        convert_body(traced.body, traced.elements, traced.n, settings, recorder)
    emitted = [op.type for op in graph.get_operations()[before:]]
    return Report(
        name=traced.name,
        n=traced.known_n,
        records=tuple(records(recorder)),
        body_ops=sum(op.type != "Const" for op, _, _ in recorder.entries),
        body_constants=sum(op.type == "Const" for op, _, _ in recorder.entries),
        emitted_ops=sum(t not in ("Const", "Placeholder") for t in emitted),
        emitted_constants=emitted.count("Const"),
        emitted=tuple(emitted_by(recorder)),
        lines=lines_of(recorder, traced.known_n),
        graphs=body_graph.graphs(traced.body, recorder),
    )
