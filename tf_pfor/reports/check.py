"""``check``: where the vectorized version of a function first differs from a loop, op by op."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import tensorflow as tf

from tf_pfor import _tf
from tf_pfor.api.mapped_arguments import Axes
from tf_pfor.api.options import Options
from tf_pfor.core.axes import check_name
from tf_pfor.core.collectives import has_collective
from tf_pfor.core.errors import ArgumentError
from tf_pfor.core.nests import Nest
from tf_pfor.core.settings import Fallback, OutShapes, Randomness, WhileStrategy
from tf_pfor.reports.arguments import traced_of
from tf_pfor.reports.both_ways import Both, Difference
from tf_pfor.reports.explain import report_of
from tf_pfor.reports.report import Report
from tf_pfor.reports.subjects import Subject, subject_of


@dataclasses.dataclass(frozen=True, slots=True)
class CheckReport(Report):
    """The result of ``check``: the ``Report`` of ``explain``, and the first op that differs.

    Attributes:
      difference: the first op whose values differ, None if all are equal.
      rows: the number of iterations.
      compared: the number of tensors of the body that were compared.
      not_compared: the number of tensors that were not compared: random, unread, or inside a
        fallback loop.
    """

    difference: Difference | None = None
    rows: int = 0
    compared: int = 0
    not_compared: int = 0

    @property
    def is_equal(self) -> bool:
        """Whether no tensor differs, and some were compared if the body has any that differ."""
        return self.difference is None and (self.compared > 0 or not self.not_compared)

    def __str__(self) -> str:
        return self.verdict

    def _title(self) -> str:
        return f"{Report._title(self)}. {self.verdict}"  # super() of a class with slots fails

    @property
    def verdict(self) -> str:
        """Whether all is equal; else the first op and line that differ, and the values."""
        counts = f"{self.compared} tensors of the body compared over {self.rows} rows"
        if self.not_compared:
            counts += f" ({self.not_compared} could not be: random, looped or unread)"
        d = self.difference
        if d is None:
            verdict = "Equal" if self.is_equal else "Nothing was compared"
            return f"{verdict}: {counts}."
        if d.error:
            return (
                f"Failed: {d.op_type} '{d.op_name}' ({d.line or 'line unknown'}) is the first that "
                f"fails in the vectorized version, and not in the loop:\n  {d.error}\n{counts}."
            )
        size = "" if d.largest is None else f", by up to {d.largest:.3g}"
        return (
            f"Different: output {d.output} of {d.op_type} '{d.op_name}' "
            f"({d.line or 'line unknown'}) is the first that differs{size}; row {d.row}:\n"
            f"  loop:       {_shown(d.expected)}\n  vectorized: {_shown(d.found)}\n{counts}."
        )


@tf.autograph.experimental.do_not_convert
def check(
    fn: object,
    *args: Nest,
    rtol: float = 1e-4,
    atol: float = 1e-5,
    in_axes: Axes = 0,
    axis_size: int | None = None,
    axis_name: str | None = None,
    fallback: Fallback | None = None,
    randomness: Randomness | None = None,
    while_strategy: WhileStrategy = "auto",
    out_shapes: OutShapes | None = None,
) -> CheckReport:
    """Runs a function in a loop and vectorized, and finds the first op and line that differ.

    ``check`` compares every tensor that ``fn`` makes for one row with the same row of the
    vectorized tensor, also in functions that ``fn`` calls. Only the results of a conditional or of
    a while loop are compared. Variables and lookup tables are as before when ``check`` returns. A
    table that ``fn`` only removes keys from is not. Nothing is printed.

    Args:
      fn: the body of a ``pfor``, or a function of one row. Objects that map a function stand for
        it, with their options: a result of ``vmap`` or of ``tf_pfor.data.vectorize``, a
        ``tf_pfor.keras.Vectorized`` layer, a function of ``tf_pfor.optimize``.
      *args: for a ``pfor`` body the number of iterations. For a function of one row the elements,
        one for each argument of ``fn``: nests of tensors, [n, ...] each, with their data.
      rtol: the relative tolerance for floats.
      atol: the absolute tolerance for floats. It is multiplied by the largest value where that is
        above 1.
      in_axes: the axis to map over, for each element. An int is an axis; negative ints count from
        the end. None stands for an element that all rows share. A nest of these must be a prefix of
        the element's nest. One int or None stands for all elements. 0 also takes what
        ``vectorized_map`` and ``pfor`` take.
      axis_size: the number of rows, needed when no element is mapped.
      axis_name: the name of the mapped axis for collectives (``psum`` ...) in ``fn``.
      fallback: "loop", "error", or a set of op types that may run in a sequential loop. None
        follows ``tf_pfor.settings``.
      randomness: the behaviour of stateful random ops, generators and Keras' seeds. "different":
        each row draws other numbers. "same": all rows share one draw. "error": these ops are
        refused. None follows ``tf_pfor.settings``.
      while_strategy: the strategy for a while loop in which rows make different numbers of trips.
        "compact" computes only the rows that still go on. "mask" computes all rows and drops the
        results of finished ones. "auto" chooses by cost.
      out_shapes: the form of results whose shape may differ between rows: "ragged", "dense" or
        "padded" with zeros. None follows ``tf_pfor.settings``.

    Returns:
      The ``CheckReport``, a ``Report`` with the difference.

    Raises:
      ArgumentTypeError, ArgumentError: if an argument is wrong, inside a ``tf.function``, or if
        ``fn`` calls a collective, which a loop cannot run.
      NotVectorizableError: if an op has no converter and the fallback is off.

    >>> import tensorflow as tf
    >>> import tf_pfor
    >>> print(tf_pfor.check(lambda x: tf.nn.softmax(x * 2.), tf.ones([4, 3])))
    Equal: 2 tensors of the body compared over 4 rows.
    """
    if not tf.executing_eagerly():
        raise ArgumentError("check runs its function: call it outside of tf.function.")
    options = Options.of(fallback, randomness, while_strategy, out_shapes)
    given = Subject(fn, args, in_axes, axis_size, check_name(axis_name), options)
    subject = subject_of(fn, given) if args or axis_size is not None else None
    if args and not isinstance(subject, Subject):
        raise ArgumentError(f"check compares rows, and {fn!r} is no function of a row.")
    if subject is None or isinstance(subject, Report):
        raise ArgumentError(
            "check runs its function: it needs the elements, with their data, or the number of "
            "iterations for a pfor body."
        )
    traced, settings = traced_of(subject, _with_data), subject.options.settings()
    if has_collective(traced.body.graph):
        raise ArgumentError(
            "check compares with a loop over the rows, which cannot run collectives (psum ...). "
            "Check the code around them."
        )
    body, tolerance = traced.body, (rtol, atol)
    both = Both(body, traced.elements, traced.n, settings, tolerance, body.graph.variables)
    compared, total = len(both.chosen), both.total
    while (inner := both.inside()) is not None and inner.difference is not None:
        both = inner  # a call: what differs is in the function
    with _tf.FuncGraph("explain").as_default():
        report = report_of(traced, settings)
    fields = {f.name: getattr(report, f.name) for f in dataclasses.fields(report)}
    return CheckReport(
        **fields,
        difference=both.difference,
        rows=int(traced.n),
        compared=compared,
        not_compared=total - compared,
    )


def _with_data(leaf: Nest) -> Any:
    if isinstance(leaf, tf.TypeSpec):
        raise ArgumentError(f"check runs its function: it needs data, found {leaf!r}.")
    return leaf


def _shown(array: np.ndarray | None) -> str:
    known = np.asarray(array)
    text = np.array2string(known, threshold=8, edgeitems=3, precision=5)
    return f"{text} of shape {list(known.shape)}".replace("\n", " ")
