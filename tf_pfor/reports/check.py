"""``check``: where the vectorized version of a function first differs from a loop, op by op."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from tf_pfor import _tf
from tf_pfor.api.inputs import Element, bound_walker
from tf_pfor.api.mapped_arguments import Axes
from tf_pfor.api.options import Options
from tf_pfor.core.axes import check_name
from tf_pfor.core.collectives import has_collective
from tf_pfor.core.conversion import Failed
from tf_pfor.core.emit import Dim
from tf_pfor.core.errors import ArgumentError
from tf_pfor.core.nests import Nest
from tf_pfor.core.regions import Region, key
from tf_pfor.core.report import Recorder, refusal
from tf_pfor.core.settings import Fallback, OutShapes, Randomness, Settings, WhileStrategy
from tf_pfor.reports.explain import report_of, traced_of
from tf_pfor.reports.report import Report
from tf_pfor.reports.saved_state import saved
from tf_pfor.reports.subjects import Subject, subject_of
from tf_pfor.tracing.trace import Body

_HANDLES = (tf.resource, tf.variant)


@dataclasses.dataclass(frozen=True, slots=True)
class Difference:
    """The first op of a body whose values differ, or that fails only when vectorized.

    Attributes:
      op_type: the OpDef name.
      op_name: the op's name in the body.
      line: ``file:line`` of the user's code, "" if unknown.
      output: the number of the op's output.
      row: the first iteration that differs; 0 if the op fails.
      expected: that row in the loop; None if the op fails.
      found: that row in the vectorized version; None if the op fails.
      largest: the largest absolute difference over all rows; None if it is no number.
      error: TensorFlow's message if the vectorized version fails, else "".
    """

    op_type: str
    op_name: str
    line: str
    output: int
    row: int
    expected: np.ndarray | None
    found: np.ndarray | None
    largest: float | None
    error: str = ""


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
        """True when no difference was found."""
        return self.difference is None

    def __str__(self) -> str:
        return self.verdict

    def _title(self) -> str:
        return f"{super()._title()}. {self.verdict}"

    @property
    def verdict(self) -> str:
        """Whether all is equal; else the first op and line that differ, and the values."""
        counts = f"{self.compared} tensors of the body compared over {self.rows} rows"
        if self.not_compared:
            counts += f" ({self.not_compared} could not be: random, looped or unread)"
        d = self.difference
        if d is None:
            return f"Equal: {counts}."
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
    both = _Both(body, traced.elements, traced.n, settings, tolerance, body.graph.variables)
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


class _Both:
    """A body that was run in a loop and vectorized."""

    def __init__(
        self,
        body: Body,
        elements: Sequence[Element],
        n: Dim,
        settings: Settings,
        tolerance: tuple[float, float],
        variables: Sequence[tf.Variable],
    ):
        self.variables = tuple(variables)  # the graph knows them as long as others do
        self.body, self.elements, self.n = body, elements, n
        self.settings, self.tolerance = settings, tolerance
        order = _in_order([*(t.op for t in body.outputs), *body.operations])
        restore = saved(body, self.variables)

        def restored(run: Callable[[], Any]) -> Any:
            try:
                return run()
            finally:
                restore()

        self.total = sum(len(o.outputs) for o in order if o.type not in ("Const", "Placeholder"))
        made = _Vectorized(body, order, elements, n, settings)
        self.chosen, found, failed = made.chosen, [], ""
        try:
            found = restored(made.run)
        except tf.errors.OpError as why:
            failed = str(why.message)
        self.expected: list[list[np.ndarray]] = restored(
            lambda: _looped(body, order, self.chosen, elements, int(n))
        )
        if failed:
            self.wrong, self.difference = None, made.first_that_fails(restored, failed)
        else:
            self.wrong, self.difference = _first(self.chosen, self.expected, found, *tolerance)

    def inside(self) -> _Both | None:
        """The function whose call differs, run on the arguments of the call; None if none is."""
        op = None if self.wrong is None else self.wrong.op
        if op is None or op.type not in _tf.CALLS or _tf.is_row_loop(op):
            return None
        (graph,) = _tf.functions_of(op)
        placeholders: list[tf.Tensor] = []
        elements: list[Element] = []
        captures: list[tuple[tf.Tensor, tf.Tensor]] = []
        for given, inner in zip(op.inputs, graph.inputs, strict=True):
            found = self._of_rows(given)
            if found is None:
                return None
            if found.is_mapped:
                placeholders.append(inner)
                elements.append(found)
            else:
                captures.append((found.tensor, inner))  # type: ignore[arg-type]
        body = Body(
            graph,
            tuple(placeholders),
            tuple(captures),
            list(graph.outputs),
            tuple(graph.outputs),
            (),
            frozenset(),
        )
        return _Both(body, elements, self.n, self.settings, self.tolerance, self.variables)

    def _of_rows(self, tensor: tf.Tensor) -> Element | None:
        """The values of a tensor of the body in each row, by the loop; None if not known."""
        for i, chosen in enumerate(self.chosen):
            if chosen is tensor or key(chosen) == key(tensor):
                return Element(tf.stack([row[i] for row in self.expected]))
        for placeholder, element in zip(self.body.placeholders, self.elements):
            if key(placeholder) == key(tensor):
                return Element(tf.range(self.n)) if element.tensor is None else element
        for outside, inside in self.body.captures:
            if key(inside) == key(tensor):
                return Element(outside, is_mapped=False)
        known = _tf.static_value(tensor)
        return None if known is None else Element(tf.constant(known), is_mapped=False)


def _in_order(roots: Sequence[tf.Operation]) -> list[tf.Operation]:
    """The ops that the roots need, each after those it needs."""
    done: dict[tf.Operation, None] = {}
    stack = list(reversed(roots))
    while stack:
        op = stack[-1]
        todo = [o for o in (*(t.op for t in op.inputs), *op.control_inputs) if o not in done]
        stack += todo
        if not todo:
            done[stack.pop()] = None
    return list(done)


def _with_inner(op: tf.Operation) -> Iterator[tf.Operation]:
    """The op, and all in the functions that it calls."""
    yield op
    for graph in _tf.functions_of(op):
        for inner in graph.get_operations():
            yield from _with_inner(inner)


def _comparable(order: Sequence[tf.Operation], read: set[Any]) -> Iterator[tf.Tensor]:
    """The tensors that are read and that each loop makes equal: no random numbers behind them."""
    random: set[tf.Operation] = set()
    for op in order:
        draws = any(_tf.draws_randomly(o.type) for o in _with_inner(op))
        if draws or any(t.op in random for t in op.inputs):
            random.add(op)
        if op in random or op.type in ("Const", "Placeholder", "StringFormat"):
            continue
        yield from (t for t in op.outputs if t.dtype not in _HANDLES and key(t) in read)


class _Vectorized:
    """A body as one function for all rows, of all the tensors that can be compared.

    Attributes:
      chosen: these tensors, in the order of the body.
    """

    def __init__(
        self,
        body: Body,
        order: Sequence[tf.Operation],
        elements: Sequence[Element],
        n: Dim,
        settings: Settings,
    ):
        self._body, self._order, self._elements = body, order, elements
        self._n, self._settings = n, settings
        self._read = {key(t) for t in (*body.outputs, *(x for op in order for x in op.inputs))}
        self.chosen: list[tf.Tensor] = []
        self._all = self._function(None)

    def run(self) -> list[np.ndarray]:
        """The values for all rows."""
        return [t.numpy() for t in self._all()]

    def first_that_fails(self, restored: Callable[[Any], Any], error: str) -> Difference:
        """The first tensor that cannot be computed, where all of them cannot."""

        def fails(count: int) -> bool:
            try:
                restored(self._function(count))
            except tf.errors.OpError:
                return True
            return False

        op, output = self._body.operations[0] if self._body.operations else None, 0
        good, bad = 0, len(self.chosen)  # with so many tensors it does not fail, and fails
        while bad - good > 1:
            middle = (good + bad) // 2
            good, bad = (good, middle) if fails(middle) else (middle, bad)
        if op is None or fails(bad):
            op, output = self.chosen[bad - 1].op, self.chosen[bad - 1].value_index
        why = error.strip().split("\n\n")[-1].split("\n\t [[")[0].strip()
        return Difference(op.type, op.name, _tf.user_line(op), output, 0, None, None, None, why)

    def _function(self, count: int | None) -> Callable[[], list[tf.Tensor]]:
        """A function of the first ``count`` tensors; of all, which makes the list, if None."""

        def build(*tensors: tf.Tensor) -> list[tf.Tensor]:
            recorder, supply = Recorder(), iter(tensors)
            inner = [
                e if e.tensor is None else dataclasses.replace(e, tensor=next(supply))
                for e in self._elements
            ]
            walker = bound_walker(self._body, inner, self._n, self._settings, recorder)
            try:
                if count is not None:
                    return [walker.tile(v).tensor for v in walker.convert(self.chosen[:count])]
                walker.convert(self._body.outputs, self._body.operations)
            except Failed:
                raise refusal(recorder) from None
            made: list[tf.Tensor] = []
            for tensor in _comparable(self._order, self._read):
                value = walker.value_of(tensor)
                if value is not None and value.is_tensor:
                    self.chosen.append(tensor)
                    made.append(walker.tile(value).tensor)
            return made

        given = [e.tensor for e in self._elements if e.tensor is not None]
        concrete = tf.function(build, autograph=False).get_concrete_function(*given)
        return lambda: concrete(*given)


def _looped(
    body: Body,
    order: Sequence[tf.Operation],
    chosen: Sequence[tf.Tensor],
    elements: Sequence[Element],
    n: int,
) -> list[list[np.ndarray]]:
    """The values of the tensors in each row, one row after the other."""
    inputs = [*body.placeholders, *(inside for _, inside in body.captures)]
    known = {t.op for t in inputs}
    region = Region(tuple(op for op in order if op not in known), tuple(inputs), tuple(chosen))
    captured = [outside for outside, _ in body.captures]
    one = tf.function(lambda *rows: region.copy(*rows, *captured), autograph=False)
    results: list[list[np.ndarray]] = []
    for i in range(n):
        rows = [
            tf.constant(i) if e.tensor is None else e.tensor[i] if e.is_mapped else e.tensor
            for e in elements
        ]
        results.append([t.numpy() for t in one(*rows)])
    return results


def _first(
    chosen: Sequence[tf.Tensor],
    expected: Sequence[Sequence[np.ndarray]],
    found: Sequence[np.ndarray],
    rtol: float,
    atol: float,
) -> tuple[tf.Tensor | None, Difference | None]:
    for i, (tensor, whole) in enumerate(zip(chosen, found)):
        pairs = [(_array(row[i]), _array(whole[k])) for k, row in enumerate(expected)]
        wrong = [k for k, (a, b) in enumerate(pairs) if not is_close(a, b, rtol, atol)]
        if wrong:
            a, b = pairs[wrong[0]]
            op = tensor.op
            return tensor, Difference(
                op.type,
                op.name,
                _tf.user_line(op),
                tensor.value_index,
                wrong[0],
                a,
                b,
                _largest(pairs),
            )
    return None, None


def _array(x: object) -> np.ndarray:
    """NumPy has the strings of a scalar as bytes, or makes bytes of them."""
    return np.asarray(x, object if isinstance(x, bytes) else None)


def is_close(a: np.ndarray, b: np.ndarray, rtol: float = 1e-4, atol: float = 1e-5) -> bool:
    """Whether ``b`` is ``a`` up to rounding; integers, bools and text exactly.

    Args:
      a: the right values.
      b: an array of the same dtype.
      rtol: the relative tolerance, not less than 8 units of the last place.
      atol: the absolute tolerance, multiplied by the largest value where that is above 1.
    """
    if np.shape(a) != np.shape(b):
        return False
    if not tf.as_dtype(a.dtype).is_floating and not tf.as_dtype(a.dtype).is_complex:
        return bool(np.all(a == b))
    eps = 8 * np.finfo(a.dtype).eps if a.dtype.kind in "fc" else 2.0**-4  # bfloat16
    wide = np.complex128 if np.iscomplexobj(a) else np.float64
    a, b = a.astype(wide), b.astype(wide)
    finite = np.abs(a[np.isfinite(a)])
    scale = max(1.0, float(finite.max())) if finite.size else 1.0
    return np.allclose(b, a, max(rtol, float(eps)), max(atol, float(eps)) * scale, equal_nan=True)


def _largest(pairs: Sequence[tuple[np.ndarray, np.ndarray]]) -> float | None:
    sizes = [
        float(np.max(np.abs(b.astype(np.complex128) - a.astype(np.complex128))))
        for a, b in pairs
        if a.shape == b.shape and a.size and a.dtype != object
    ]
    return max(sizes) if sizes else None


def _shown(array: np.ndarray | None) -> str:
    known = np.asarray(array)
    text = np.array2string(known, threshold=8, edgeitems=3, precision=5)
    return f"{text} of shape {list(known.shape)}".replace("\n", " ")
