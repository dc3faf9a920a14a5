"""A map in the body of another one as one map over the pairs of their iterations.

The inner map is converted first, when the outer body is traced, and its ops again by the outer one.
Of most ops that is the best there is: what all iterations of one map share is computed once. What
an inner map partitions by values cannot be partitioned again, though: then the inner body itself is
converted, for all pairs at once.
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from tf_pfor import _tf
from tf_pfor._tf import _graphs
from tf_pfor.core.collectives import has_collective
from tf_pfor.core.conversion import Conversion
from tf_pfor.core.emit import Dim
from tf_pfor.core.errors import CannotVectorize, NotVectorizableError
from tf_pfor.core.loop import Loop
from tf_pfor.core.registry import Outcome
from tf_pfor.core.report import Recorder
from tf_pfor.core.settings import Settings
from tf_pfor.core.stacked_lists import StackedList
from tf_pfor.core.values import Value
from tf_pfor.fallback.uneven_regions import has_effects

# Attributes of the graph of the outer body: its inner maps, and the ops of attempts that failed.
_MAPS = "_tf_pfor_maps"
_LEFT = "_tf_pfor_left"


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class InnerMap:
    """A map that was converted into the body of another one.

    Attributes:
      inputs: for each placeholder of its body what it stands for: a tensor of the outer body whose
        axis 0 is the map, a pair (tensor,) that all iterations see, or None for their numbers.
      outputs: pairs (tensor of its body, the stacked tensor that it became).
      waits: the ops of its body that must run.
      operations: the ops of the outer body that it became.
      n: how many iterations it has.
      settings: what its caller chose.
    """

    inputs: tuple[tuple[tf.Tensor, tf.Tensor | tuple[tf.Tensor] | None], ...]
    outputs: tuple[tuple[tf.Tensor, tf.Tensor], ...]
    waits: tuple[tf.Operation, ...]
    operations: frozenset[tf.Operation]
    n: Dim
    settings: Settings

    @property
    def needs(self) -> list[tf.Tensor]:
        """The tensors of the outer body that it reads."""
        given = [g[0] if isinstance(g, tuple) else g for _, g in self.inputs]
        return [t for t in (*given, self.n) if isinstance(t, tf.Tensor)]


class Wanted(Exception):  # noqa: N818
    """Internal: an op that an inner map became cannot be vectorized: pairs are to be tried."""


def convert_body(
    body: Any,
    elements: Sequence[Any],
    n: Dim,
    settings: Settings,
    recorder: Recorder,
    attempt: Callable[[Settings, Recorder], list[Any]],
) -> list[Any]:
    """What the leaves of a body become, which is kept where pairs would mean the same.

    What an outer map could not convert again is avoided first, and allowed where that fails.

    Args:
      body: the body (a ``trace.Body``).
      elements: what its placeholders are (each a ``run.Element``).
      n: how many iterations.
      settings: what the caller chose.
      recorder: told what happened to each op.
      attempt: converts the body.
    """
    outer = tf.compat.v1.get_default_graph()
    if not _tf.in_body(outer) or not _may_be_pairs(body):
        return attempt(settings, recorder)

    def kept(chosen: Settings) -> list[Any]:
        first, tried = len(outer.get_operations()), Recorder()
        try:
            made = attempt(chosen, tried)
        except NotVectorizableError:
            left = frozenset(outer.get_operations()[first:])
            setattr(outer, _LEFT, getattr(outer, _LEFT, frozenset()) | left)
            raise
        recorder.extend(tried)
        if any(isinstance(x, tf.RaggedTensor) for x in made):  # of which pairs would be other parts
            return made
        _remember(body, elements, made, n, settings, outer.get_operations()[first:])
        return made

    strict = dataclasses.replace(settings, fallback="error")
    with contextlib.suppress(NotVectorizableError):
        return kept(strict)
    with contextlib.suppress(NotVectorizableError), _tf.not_in_body():
        return kept(strict)
    return kept(settings)


def _may_be_pairs(body: Any) -> bool:
    """Whether pairs mean the same, and more than ops that can all be converted twice."""
    operations = body.graph.get_operations()
    if not body.outputs or not any(_tf.functions_of(op) for op in operations):
        return False
    if has_collective(body.graph) or any(isinstance(x, tf.Operation) for x in body.leaves):
        return False
    return not any(has_effects(op) or _tf.draws_randomly(op.type) for op in operations)


def _remember(
    body: Any,
    elements: Sequence[Any],
    made: Sequence[Any],
    n: Dim,
    settings: Settings,
    operations: Sequence[tf.Operation],
) -> None:
    """Keeps a map that became ``operations`` of the body of another one."""
    outer = tf.compat.v1.get_default_graph()

    def of_outer(tensor: Any) -> Any:
        is_own = not isinstance(tensor, tf.Tensor) or getattr(tensor, "graph", None) is outer
        return tensor if is_own else _graphs.capture(outer, tensor)

    inputs: list[tuple[tf.Tensor, Any]] = []
    for placeholder, element in zip(body.placeholders, elements, strict=True):
        given = of_outer(element.tensor)
        inputs.append((placeholder, given if element.is_mapped else (given,)))
    inputs += [(inside, (of_outer(outside),)) for outside, inside in body.captures]
    outputs = tuple((t, x) for t, x in zip(body.leaves, made) if isinstance(t, tf.Tensor))
    own = frozenset(op for op in operations if op.type != "Placeholder")
    inner = InnerMap(tuple(inputs), outputs, tuple(body.operations), own, of_outer(n), settings)
    setattr(outer, _MAPS, (*getattr(outer, _MAPS, ()), inner))


def convert_op(op: tf.Operation, walker: Conversion) -> None:
    """Converts an op; if it is part of an inner map and has no converter, all of that map."""
    if op in getattr(op.graph, _LEFT, ()):  # nobody reads it, nor does it have an effect
        walker.became([op], [])
        return
    inner = _map_of(op, walker)
    if inner is None:
        walker.convert_op(op)
        return
    walker.inner_map = inner
    try:
        walker.convert_op(op)
        return
    except Wanted:
        pass
    finally:
        walker.inner_map = None
    if _joined(inner, walker):
        why = "a map in a map: one over all pairs of iterations"
        walker.recorder.add(op, Outcome.VECTORIZED, why)
    else:
        walker.memo[_MAPS, inner] = False
        walker.convert_op(op)


def check(walker: Conversion) -> None:
    """Called where an op has no converter.

    Raises:
      Wanted: if it is part of an inner map, or in a function that is.
    """
    if walker.inner_map is not None:
        raise Wanted


def _map_of(op: tf.Operation, walker: Conversion) -> InnerMap | None:
    """The inner map that an op is part of, if pairs may be tried in its place."""
    if walker.inner_map is not None:
        return None
    for inner in getattr(op.graph, _MAPS, ()):
        if op in inner.operations:
            key = (_MAPS, inner)
            if key not in walker.memo:
                walker.memo[key] = _is_closed(inner)
            return inner if walker.memo[key] else None
    return None


def _is_closed(inner: InnerMap) -> bool:
    """Whether the outer body reads its results only, not what a gradient in it would."""
    results = {(t.op, t.value_index) for _, t in inner.outputs}
    asked = {(t.op, t.value_index) for t in getattr(inner.outputs[0][1].graph, "outputs", ())}
    for op in inner.operations:
        for t in op.outputs:
            key = (op, t.value_index)
            is_read = key in asked or any(o not in inner.operations for o in t.consumers())
            if is_read and key not in results:
                return False
    return True


def _joined(inner: InnerMap, walker: Conversion) -> bool:
    """Whether an inner map became one over pairs; if not, nobody reads what was emitted."""
    recorder = Recorder()
    try:
        walker.visit([t.op for t in inner.needs])
        values, made = _convert(inner, walker, recorder)
    except (CannotVectorize, walker.Failed):
        return False
    walker.recorder.extend(recorder)
    for (_, tensor), value in zip(inner.outputs, values):
        if tensor.op in inner.operations:
            walker.bind(tensor, value)
    walker.became(inner.operations, made)
    return True


def _convert(
    inner: InnerMap, walker: Conversion, recorder: Recorder
) -> tuple[list[Value], list[tf.Operation]]:
    """Its results, and what must run became."""
    outer, emit = walker.loop, walker.emit
    n = inner.n
    if isinstance(n, tf.Tensor):
        n = _unstacked(_value(walker, n))
    lengths = [outer.length, n]
    rows = _repeated(walker, Loop(outer.length, emit).index, lengths, axis=1)
    loop = outer.subset(rows, emit)
    child = walker.enter(loop.inside(emit), emit, recorder)  # lists that it makes hold all rows
    child.settings = dataclasses.replace(inner.settings, fallback="error")
    child.memo, child.inner_map, child.is_root = {}, None, True
    for placeholder, given in inner.inputs:
        if given is None:
            value = Value.stacked(_repeated(walker, Loop(n, emit).index, lengths, axis=0))
        elif isinstance(given, tuple):
            value = loop.take(_value(walker, given[0]))
            if isinstance(value, StackedList):
                raise CannotVectorize("a map in a map reads a list of the outer one")
        else:
            value = _of_pairs(walker, _value(walker, given), lengths)
        child.bind(placeholder, value)
    made = child.convert([t for t, _ in inner.outputs], inner.waits)
    return [_of_both(walker, child.tile(v), lengths) for v in made], child.done(inner.waits)


def _value(walker: Conversion, tensor: tf.Tensor) -> Value:
    value = walker.value_of(tensor)
    if value is None:
        raise walker.Failed
    return value


def _unstacked(value: Value) -> tf.Tensor:
    if value.is_stacked:
        raise CannotVectorize("the inner map has another number of iterations in each outer one")
    return value.tensor


def _repeated(walker: Conversion, x: tf.Tensor, lengths: list[Dim], axis: int) -> tf.Tensor:
    """[m, ...] -> [n * m, ...] for each of n outer iterations, or each row m times (axis 1)."""
    emit, inner = walker.emit, _inner(walker, x)
    wide = emit("ExpandDims", x, np.int32(axis))
    wide = emit("BroadcastTo", wide, emit.shape_vector([*lengths, *inner]))
    return emit.reshape(wide, [emit.dim_math("Mul", *lengths), *inner])


def _inner(walker: Conversion, x: tf.Tensor, skip: int = 1) -> list[Dim]:
    if x.shape.rank is None:
        raise CannotVectorize("the rank of what a map in a map reads or returns is unknown")
    return [walker.emit.dim(x, k) for k in range(skip, x.shape.rank)]


def _of_pairs(walker: Conversion, value: Value, lengths: list[Dim]) -> Value:
    """What is mapped over by the inner map, as the pairs see it."""
    if not value.is_stacked:
        return Value.stacked(_repeated(walker, value.tensor, lengths, axis=0))
    x = value.tensor
    both = [walker.emit.dim_math("Mul", *lengths), *_inner(walker, x, 2)]
    return Value.stacked(walker.emit.reshape(x, both))


def _of_both(walker: Conversion, value: Value, lengths: list[Dim]) -> Value:
    """A result of the pairs, [n * m, ...], as the stacked result of the inner map."""
    x = value.tensor
    return Value.stacked(walker.emit.reshape(x, [*lengths, *_inner(walker, x)]))
