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
from tf_pfor.core.conversion import MAPS, Conversion
from tf_pfor.core.emit import Dim, Emitter
from tf_pfor.core.errors import CannotVectorize, NotVectorizableError
from tf_pfor.core.loop import Loop
from tf_pfor.core.registry import Outcome
from tf_pfor.core.report import Recorder
from tf_pfor.core.settings import Settings
from tf_pfor.core.stacked_lists import StackedList
from tf_pfor.core.values import Value
from tf_pfor.fallback.uneven_regions import has_effects
from tf_pfor.layouts.ragged import Ragged, RowSize
from tf_pfor.layouts.row_sizes import RowSizes, Size

# Attributes of the graph of the outer body: its inner maps, and the ops of attempts that failed.
_LEFT = "_tf_pfor_left"


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class InnerMap:
    """A map that was converted into the body of another one.

    Attributes:
      inputs: the meaning of each placeholder of its body. A tensor of the outer body has the map on
        axis 0. All iterations see a tuple (tensor,). None stands for the iteration numbers.
      outputs: pairs (tensor of its body, the stacked tensor that it became).
      waits: the ops of its body that must run.
      operations: the ops of the outer body that it became.
      n: the number of iterations.
      settings: the settings that its caller chose.
      has_effects: whether its body changes state.
    """

    inputs: tuple[tuple[tf.Tensor, tf.Tensor | tuple[tf.Tensor] | None], ...]
    outputs: tuple[tuple[tf.Tensor, tf.Tensor], ...]
    waits: tuple[tf.Operation, ...]
    operations: frozenset[tf.Operation]
    n: Dim
    settings: Settings
    has_effects: bool

    @property
    def needs(self) -> list[tf.Tensor]:
        """The tensors of the outer body that it reads."""
        given = [g[0] if isinstance(g, tuple) else g for _, g in self.inputs]
        return [t for t in (*given, self.n) if isinstance(t, tf.Tensor)]


class Wanted(Exception):  # noqa: N818
    """Internal: an op that an inner map became cannot be vectorized: pairs are to be tried."""


def convert_body(
    body: object,
    elements: Sequence[Any],
    n: Dim,
    settings: Settings,
    recorder: Recorder,
    attempt: Callable[[Settings, Recorder], list[Any]],
) -> list[Any]:
    """The converted leaves of a body, kept as a map where a map of pairs would mean the same.

    Ops that an outer map could not convert again are avoided first, and allowed where that fails.
    ``body`` is a ``trace.Body``, with a ``run.Element`` for each placeholder. ``attempt`` converts
    it.
    """
    outer = tf.compat.v1.get_default_graph()
    if not _tf.in_body(outer) or not _may_be_pairs(body, n):
        return attempt(settings, recorder)
    is_simple = _is_simple(body, n)

    def kept(chosen: Settings, *, is_forgotten: bool = False) -> list[Any]:
        first, tried = len(outer.get_operations()), Recorder()
        try:
            made = attempt(chosen, tried)
        except NotVectorizableError:
            left = frozenset(outer.get_operations()[first:])
            setattr(outer, _LEFT, getattr(outer, _LEFT, frozenset()) | left)
            raise
        recorder.extend(tried)
        is_ragged = any(isinstance(x, tf.RaggedTensor) for x in made)  # pairs have other parts
        if is_forgotten or is_ragged:
            return made
        _remember(body, elements, made, n, settings, outer.get_operations()[first:])
        return made

    strict = dataclasses.replace(settings, fallback="error")
    with contextlib.suppress(NotVectorizableError):
        return kept(strict, is_forgotten=is_simple)
    with contextlib.suppress(NotVectorizableError), _tf.not_in_body():
        return kept(strict)
    return kept(settings)


def _may_be_pairs(body: Any, n: Dim) -> bool:
    """Whether pairs mean the same."""
    operations = body.graph.get_operations()
    if not body.outputs:
        return False
    has_operations = any(isinstance(x, tf.Operation) for x in body.leaves)
    if isinstance(n, int) and any(has_effects(o) or _tf.draws_randomly(o.type) for o in operations):
        return False
    return not (has_collective(body.graph) or has_operations)


def _is_simple(body: Any, n: Dim) -> bool:
    """Whether all ops can be converted twice if they can be once."""
    return isinstance(n, int) and not any(map(_tf.functions_of, body.graph.get_operations()))


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
    changes = any(has_effects(op) for op in body.graph.get_operations())
    inner = InnerMap(
        tuple(inputs), outputs, tuple(body.operations), own, of_outer(n), settings, changes
    )
    setattr(outer, MAPS, (*getattr(outer, MAPS, ()), inner))


def convert_op(op: tf.Operation, walker: Conversion) -> None:
    """Converts an op; if it is part of an inner map and has no converter, all of that map."""
    if op in getattr(op.graph, _LEFT, ()):  # nobody reads it, nor does it have an effect
        walker.became([op], [])
        return
    inner = _map_of(op, walker)
    if inner is None:
        walker.convert_op(op)
        return
    if _differs(inner, walker) and _is_joined(inner, op, walker):
        return  # rows of pairs have one shape, where rows of the outer map may differ
    walker.inner_map = inner
    try:
        walker.convert_op(op)
        return
    except Wanted:
        pass
    finally:
        walker.inner_map = None
    if not _is_joined(inner, op, walker):
        walker.convert_op(op)


def _differs(inner: InnerMap, walker: Conversion) -> bool:
    """Whether the outer iterations have different numbers of inner ones."""
    if not isinstance(inner.n, tf.Tensor) or not _is_at_hand(inner.n, walker):
        return False
    walker.visit([inner.n.op])
    value = walker.value_of(inner.n)
    return value is not None and value.is_stacked


def _is_at_hand(number: tf.Tensor, walker: Conversion) -> bool:
    """Whether a number is known but for ops that tell a size; others may be under way."""
    if walker.value_of(number) is not None:
        return True
    op = number.op
    tells = op.type in _SIZES or (op.type == "StridedSlice" and number.shape.rank == 0)
    return tells and all(_is_at_hand(t, walker) for t in op.inputs)


_SIZES = ("Cast", "Const", "Shape", "Size")


def _is_joined(inner: InnerMap, op: tf.Operation, walker: Conversion) -> bool:
    """Whether an inner map became one over pairs, which is tried once."""
    if not walker.memo[MAPS, inner]:
        return False
    walker.memo[MAPS, inner] = made = _joined(inner, walker)
    if made:
        why = "a map in a map: one over all pairs of iterations"
        walker.recorder.add(op, Outcome.VECTORIZED, why)
    return made


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
    for inner in getattr(op.graph, MAPS, ()):
        if op in inner.operations:
            key = (MAPS, inner)
            if key not in walker.memo:
                walker.memo[key] = _is_closed(inner) and _is_apart(inner)
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


def _is_apart(inner: InnerMap) -> bool:
    """Whether nothing else of the outer body uses the state that the inner map changes."""
    if not inner.has_effects:
        return True
    handles = [t for t in inner.needs if t.dtype == tf.resource]
    return not any(op not in inner.operations for t in handles for op in t.consumers())


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
    pairs = _pairs_of(inner, walker)
    loop = outer.subset(pairs.rows, emit)
    child = walker.enter(loop.inside(emit), emit, recorder)  # lists that it makes hold all rows
    child.settings = dataclasses.replace(inner.settings, fallback="error")
    child.memo, child.inner_map, child.is_root = {}, None, True
    for placeholder, given in inner.inputs:
        if given is None:
            value = Value.stacked(pairs.numbers)
        elif isinstance(given, tuple):
            value = loop.take(_value(walker, given[0]))
            if isinstance(value, StackedList):
                raise CannotVectorize("a map in a map reads a list of the outer one")
        else:
            value = pairs.split(_value(walker, given), loop)
        child.bind(placeholder, value)
    made = child.convert([t for t, _ in inner.outputs], inner.waits)
    values = [v if isinstance(v, Ragged) else child.tile(v) for v in made]
    with emit.graph.as_default():
        joined = [pairs.joined(v) for v in values]
    return joined, child.done(inner.waits)


def _value(walker: Conversion, tensor: tf.Tensor) -> Value:
    value = walker.value_of(tensor)
    if value is None:
        raise walker.Failed
    return value


# ---------------------------------------------------------------------------
# Pairs
# ---------------------------------------------------------------------------


def _pairs_of(inner: InnerMap, walker: Conversion) -> _Pairs | _UnevenPairs:
    """The pairs of iterations of a map and of the one around it."""
    if not isinstance(inner.n, tf.Tensor):
        return _Pairs(walker, [walker.loop.length, inner.n])
    n = _value(walker, inner.n)
    if not n.is_stacked:
        return _Pairs(walker, [walker.loop.length, n.tensor])
    if _tf.in_xla_context(walker.emit.graph):
        raise CannotVectorize("an inner map over rows of different shapes, under jit_compile")
    mapped = [_value(walker, g) for _, g in inner.inputs if isinstance(g, tf.Tensor)]
    own = [v.sizes[0] for v in mapped if isinstance(v, Ragged) and isinstance(v.sizes[0], RowSizes)]
    if own:
        return _UnevenPairs(walker.emit, own[0])
    size = n.size if isinstance(n, RowSize) else None
    return _UnevenPairs(
        walker.emit, size or RowSizes.of(walker.emit("Cast", n.tensor, DstT=tf.int32))
    )


@dataclasses.dataclass(frozen=True, slots=True)
class _Pairs:
    """The pairs, where all outer iterations have equally many inner ones.

    Attributes:
      walker: the walker that converts the outer map.
      lengths: the numbers of outer and of inner iterations.
    """

    walker: Conversion
    lengths: list[Dim]

    @property
    def rows(self) -> tf.Tensor:
        """int32 [pairs]: the outer iteration of each pair."""
        emit = self.walker.emit
        return self._repeated(Loop(self.lengths[0], emit).index, axis=1)

    @property
    def numbers(self) -> tf.Tensor:
        """int32 [pairs]: the inner iteration of each pair."""
        emit = self.walker.emit
        return self._repeated(Loop(self.lengths[1], emit).index, axis=0)

    def _repeated(self, x: tf.Tensor, axis: int) -> tf.Tensor:
        """[m, ...] -> [n * m, ...] for each of n outer iterations, or each row m times (axis 1)."""
        emit, inner = self.walker.emit, self._inner(x)
        wide = emit("ExpandDims", x, np.int32(axis))
        wide = emit("BroadcastTo", wide, emit.shape_vector([*self.lengths, *inner]))
        return emit.reshape(wide, [emit.dim_math("Mul", *self.lengths), *inner])

    def _inner(self, x: tf.Tensor, skip: int = 1) -> list[Dim]:
        if x.shape.rank is None:
            raise CannotVectorize("the rank of what a map in a map reads or returns is unknown")
        return [self.walker.emit.dim(x, k) for k in range(skip, x.shape.rank)]

    def split(self, value: Value, loop: Loop) -> Value:
        """A value that the inner map maps over, as the pairs see it."""
        if not value.is_stacked:
            return Value.stacked(self._repeated(value.tensor, axis=0))
        if isinstance(value, Ragged):
            return _split(value, loop)
        x, emit = value.tensor, self.walker.emit
        both = [emit.dim_math("Mul", *self.lengths), *self._inner(x, 2)]
        return Value.stacked(emit.reshape(x, both))

    def joined(self, value: Value) -> Value:
        """A result of the pairs, [n * m, ...], as the result of the inner map in all outer rows."""
        if isinstance(value, Ragged):
            own = [_of_outer(s, lambda t: tf.reshape(t, self.lengths)) for s in value.sizes]
            return Ragged.packed(value.tensor, [self.lengths[1], *own], value.origin)
        x = value.tensor
        return Value.stacked(self.walker.emit.reshape(x, [*self.lengths, *self._inner(x)]))


@dataclasses.dataclass(frozen=True, slots=True)
class _UnevenPairs:
    """The pairs, where outer iterations have different numbers of inner ones.

    They lie as the entries of packed rows do: pairs of the first outer iteration come first.

    Attributes:
      emit: adds ops to the outer map.
      size: the number of inner iterations of each outer iteration.
    """

    emit: Emitter
    size: RowSizes

    @property
    def rows(self) -> tf.Tensor:
        """int32 [pairs]: the outer iteration of each pair."""
        return self.size.rows

    @property
    def numbers(self) -> tf.Tensor:
        """int32 [pairs]: the inner iteration of each pair."""
        with self.emit.graph.as_default():
            return tf.range(tf.size(self.rows)) - tf.gather(self.size.starts, self.rows)

    def split(self, value: Value, loop: Loop) -> Value:
        """A value that the inner map maps over, as the pairs see it."""
        own = value.sizes[0] if isinstance(value, Ragged) else None
        if not isinstance(value, Ragged) or not isinstance(own, RowSizes):
            raise CannotVectorize("an inner map reads rows that are not known to be as many")
        if own is self.size:
            return _split(value, loop)
        counts = [own.tensor, self.size.tensor]
        text = "The elements of a map in a map differ in the size of axis 0. The sizes are"
        check = tf.debugging.Assert(
            tf.reduce_all(tf.equal(counts[0], counts[1])), [text, *counts], 20
        )
        with tf.control_dependencies([check]):
            return _split(value.with_elements(tf.identity(value.tensor)), loop)

    def joined(self, value: Value) -> Value:
        """A result of the pairs as the result of the inner map in all outer rows."""
        own: list[Size] = []
        if isinstance(value, Ragged):
            kind: Any = tf.RaggedTensor
            ragged, splits = kind.from_row_splits, self.size.splits
            own = [_of_outer(s, lambda t: ragged(t, splits, validate=False)) for s in value.sizes]
        return Ragged.packed(value.tensor, [self.size, *own], getattr(value, "origin", None))


def _split(value: Ragged, loop: Loop) -> Value:
    """Rows without their first axis, one for each of its items: the packed form is the same."""
    tensor, rest = value.tensor, value.sizes[1:]
    if not any(isinstance(s, RowSizes) for s in rest):
        with loop.emit.graph.as_default():
            made = tf.reshape(tensor, tf.stack([-1, *rest, *tf.unstack(tf.shape(tensor)[1:])]))
        known = [s if isinstance(s, int) else None for s in rest]
        made.set_shape([None, *known, *tensor.shape[1:]])
        return Value.stacked(made)
    sizes = [s.select(loop) if isinstance(s, RowSizes) else s for s in rest]
    return Ragged.packed(tensor, sizes, value.origin)


def _of_outer(size: Size, by_row: Any) -> Size:
    """The sizes of outer rows, from the sizes of pairs, which are equal in each outer row."""
    if not isinstance(size, RowSizes):
        return size
    each = by_row(size.tensor)
    largest = tf.reduce_max(each, 1)
    found = tf.maximum(largest, 0)  # no pairs at all
    text = (
        "The results of a map in a map differ in shape between the iterations of the inner map, "
        "and the body expects one shape. Pad the results, or reduce them."
    )
    smallest = tf.reduce_min(each, 1)
    same = tf.reduce_all(tf.equal(smallest, largest) | tf.less(largest, 0))
    with tf.control_dependencies([tf.debugging.Assert(same, [text])]):
        return RowSizes.of(tf.identity(found), size.most)
