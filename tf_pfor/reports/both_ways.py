"""A body that runs in a loop and vectorized, and the first of its tensors that differs."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from tf_pfor import _tf
from tf_pfor._tf._all_ops import all_ops
from tf_pfor.api.inputs import Element, bound_walker, with_tensors
from tf_pfor.core.conversion import Failed
from tf_pfor.core.emit import Dim
from tf_pfor.core.regions import Region, key
from tf_pfor.core.report import Recorder, refusal
from tf_pfor.core.settings import Settings
from tf_pfor.reports.saved_state import saved
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


class Both:
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

    def inside(self) -> Both | None:
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
        return Both(body, elements, self.n, self.settings, self.tolerance, self.variables)

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


def _comparable(order: Sequence[tf.Operation], read: set[Any]) -> Iterator[tf.Tensor]:
    """The tensors that are read and that each loop makes equal: no random numbers behind them."""
    random: set[tf.Operation] = set()
    for op in order:
        inner = all_ops(*_tf.functions_of(op))
        draws = any(_tf.draws_randomly(o.type) for o in (op, *inner))
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
            recorder, inner = Recorder(), with_tensors(self._elements, iter(tensors))
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
