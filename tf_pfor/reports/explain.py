"""``explain`` tells what becomes of each op of a body, without running anything."""

from __future__ import annotations

import contextlib
import dataclasses
import numbers
import re
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from tf_pfor import _tf
from tf_pfor.api import composites, maps
from tf_pfor.api.inputs import Element
from tf_pfor.api.options import Options
from tf_pfor.api.run import convert_body
from tf_pfor.api.vmap import Axes, elements_of
from tf_pfor.core import nests
from tf_pfor.core.axes import Axis, check_name
from tf_pfor.core.emit import Dim
from tf_pfor.core.errors import ArgumentError, NotVectorizableError
from tf_pfor.core.report import Recorder
from tf_pfor.core.settings import Fallback, OutShapes, Randomness, Settings, WhileStrategy
from tf_pfor.reports import body_graph
from tf_pfor.reports.report import Report, emitted_by, records
from tf_pfor.reports.source_lines import lines_of
from tf_pfor.reports.subjects import Subject, subject_of
from tf_pfor.tracing.trace import Body, trace
from tf_pfor.tracing.user_code import arguments_of, autographed


@tf.autograph.experimental.do_not_convert
def explain(
    fn: Any,
    *args: Any,
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
      in_axes: as for ``vmap``.
      axis_size: as for ``vmap``.
      axis_name: the name of the mapped axis for collectives (``psum`` ...) in ``fn``.
      fallback: as for ``vmap``. Ops that are refused are part of the report.
      randomness: as for ``vmap``.
      while_strategy: as for ``vmap``.
      out_shapes: as for ``vmap``.

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
        traced = traced_of(subject, _placeholder)
        return report_of(traced, subject.options.settings())


@dataclasses.dataclass(frozen=True, slots=True)
class Traced:
    """A body that was traced, and its elements.

    Attributes:
      name: the user's name of the function.
      body: the body.
      elements: the elements of its placeholders.
      n: the number of iterations.
      known_n: the same as an int, None if it is known only at run time.
    """

    name: str
    body: Body
    elements: Sequence[Element]
    n: Dim
    known_n: int | None


def traced_of(subject: Subject, make: Callable[[Any], Any]) -> Traced:
    """Traces what is to be explained; ``make`` makes a tensor of each leaf of the elements."""
    body_fn, elements, n = _elements(subject, make)
    known = n if isinstance(n, int) else _tf.static_value(n)
    size = None if known is None else int(known)
    axis = Axis(subject.axis_name, size)
    body = trace(composites.by_parts(body_fn), [e.spec for e in elements], axis=axis)
    return Traced(name_of(subject.fn), body, elements, n, size)


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


def name_of(fn: Any) -> str:
    """The user's name of a function; TensorFlow calls f ``__inference_f_123``, in bytes."""
    name = getattr(fn, "__qualname__", getattr(fn, "name", type(fn).__name__))
    name = name.decode() if isinstance(name, bytes) else str(name)
    return re.sub(r"^__inference_(.+)_\d+$", r"\1", name).split("<locals>.")[-1]


def _elements(
    subject: Subject, make: Callable[[Any], Any]
) -> tuple[Callable[..., Any], Sequence[Element], Dim]:
    """The body of flat tensors, its elements (``make`` of each leaf of the arguments), n."""
    fn, args = subject.fn, subject.args
    maps.check_callable(fn, "fn")
    if subject.in_axes != 0 or subject.axis_size is not None:
        given = _made(args, subject.in_axes, make)
        return elements_of(fn, given, {}, subject.in_axes, subject.axis_size)
    if not args:
        raise ArgumentError(
            "It needs what the function is called with: the number of iterations for a pfor body, "
            "or the elements for a function of one row."
        )
    if len(args) == 1 and _is_count(args[0]):
        n = maps.check_iters(args[0])
        return autographed(fn, "pfor"), [Element(None)], n
    rows = args[0] if len(args) == 1 else tuple(args)
    nests.check_rows(rows, "elems")
    nests.check_keys(rows, "elems")
    opened, cut = composites.opened(rows)
    structure, tensors = maps.check_elems(tf.nest.map_structure(make, nests.from_user(opened)))
    n, elements = maps.align(structure, tensors)
    converted = autographed(fn, "" if len(args) > 1 else "vectorized_map")

    def of_flat(*leaves: tf.Tensor) -> Any:
        with arguments_of(fn):
            row = cut(nests.to_user(maps.with_rows(structure, leaves)))
        return converted(*row) if len(args) > 1 else converted(row)

    return of_flat, elements, n


def _made(args: tuple[Any, ...], in_axes: Axes, make: Callable[[Any], Any]) -> tuple[Any, ...]:
    """The arguments, with ``make`` of the leaves that are mapped, and of all specs."""
    structure = nests.from_user(args)
    axes = tuple(in_axes) if isinstance(in_axes, list) else in_axes
    if isinstance(axes, tuple) and len(axes) != len(args):
        return args  # which is refused, with its own message
    supply = iter(nests.spread(axes, structure, "in_axes"))
    leaves: list[Any] = []
    for leaf in tf.nest.flatten(structure):
        is_mapped = any([next(supply) is not None for _ in nests.flatten(leaf)])
        leaves.append(make(leaf) if is_mapped or isinstance(leaf, tf.TypeSpec) else leaf)
    return tuple(nests.to_user(tf.nest.pack_sequence_as(structure, leaves)))


def _is_count(arg: Any) -> bool:
    if isinstance(arg, (numbers.Integral, float)):
        return True
    is_array = isinstance(arg, (tf.Tensor, tf.Variable, np.ndarray, tf.TensorSpec))
    return is_array and tf.TensorShape(arg.shape).rank == 0


def _placeholder(leaf: Any) -> Any:
    """A tensor of unknown value in place of a tensor: nothing depends on what is in it."""
    if isinstance(leaf, tf.TensorSpec):
        return tf.compat.v1.placeholder(leaf.dtype, leaf.shape)
    if isinstance(leaf, (tf.RaggedTensor, tf.SparseTensor)) or leaf is None:
        return leaf
    try:
        tensor = tf.convert_to_tensor(leaf)
    except (TypeError, ValueError):
        return leaf  # check_elems has the message
    if tensor.shape.rank == 0:
        return leaf  # so here
    return tf.compat.v1.placeholder(tensor.dtype, tensor.shape)
