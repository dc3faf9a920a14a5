"""Optionals that are not made: their content stands beside.

A map in the body of another map must know all shapes. So it cannot put the rows of each branch
into a separate optional. A conditional may keep tensors for a gradient that another conditional
makes. Then all rows have these tensors: a row that takes the branch stands in for each row that
does not (``cond._padded``). A list in which loops keep them is one list for each of the tensors
(``_unpacked_lists``).
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from tf_pfor import _tf
from tf_pfor.converters.analysis._loop_graphs import source
from tf_pfor.converters.analysis._variant_types import (
    callers_of,
    functions_of_branches,
    item_shape,
    kind_of,
)
from tf_pfor.converters.lists._list_rows import lengths_of, own_rows
from tf_pfor.converters.lists._lists import stack_list
from tf_pfor.converters.lists._optional_values import tell
from tf_pfor.core.call import Call
from tf_pfor.core.emit import Dim
from tf_pfor.core.errors import CannotVectorize
from tf_pfor.core.stacked_lists import Kept, ListRows, OpenOptional, StackedList
from tf_pfor.core.values import Cell, Shape, Value, as_shape, dims, is_static, known_dims
from tf_pfor.layouts.padded_lists import equally_long, padded_stack
from tf_pfor.layouts.ragged import is_ragged


@dataclasses.dataclass(frozen=True, slots=True)
class Listed:
    """The dtype and static shape of a list's items: it stands in ``Kept`` for a shape."""

    dtype: tf.DType
    shape: Shape


Opened = Mapping[int, Sequence[Sequence[Kept]]]
"""For an output of a conditional the contents that each branch may keep there."""


def opened_by(call: Call, branches: Sequence[Any]) -> Opened:
    """The outputs of a conditional of these graphs that are such optionals."""
    found: dict[int, list[list[Kept]]] = {}
    for k, output in enumerate(call.op.outputs):
        if output.dtype != tf.variant:
            continue
        kept = [_kept(call, graph.outputs[k]) for graph in branches]
        known = [alternatives for alternatives in kept if alternatives is not None]
        if len(known) == len(kept) and any(map(any, known)) and _is_only_opened(call, output):
            whole = {_outline(each): each for each in _union(itertools.chain(*known))}
            found[k] = [[whole[_outline(each)] for each in branch] for branch in known]
    return found


def _union(many: Iterable[Kept]) -> list[Kept]:
    """All contents that may be kept; optionals in the same place hold either's content."""
    found: dict[Kept, Kept] = {}
    for kept in many:
        key = _outline(kept)
        if key in found:
            kept = tuple(
                (dtype, tuple(_union([*one, *other])) if inner is _OPTIONAL else one)
                for (dtype, inner), (_, one), (_, other) in zip(key, found[key], kept)
            )
        found[key] = kept
    return list(found.values())


def _outline(kept: Kept) -> Kept:
    """The same content, without the content of optionals in it."""
    return tuple(
        (dtype, _OPTIONAL if dtype == tf.variant and not isinstance(inner, Listed) else inner)
        for dtype, inner in kept
    )


def left_open(call: Call, graphs: Sequence[tf.Graph], unread: Container[int]) -> Opened:
    """The optionals that branches do not make, where shapes are static."""
    is_static = call.is_for(_tf.in_body) or call.is_for(_tf.in_xla_context)
    opened = opened_by(call, graphs) if is_static else {}
    opened = {k: each for k, each in opened.items() if k not in unread}
    for k in opened:
        for graph in graphs:
            call.memo["opened", source(graph.outputs[k]).op] = True
    return opened


_MAKES = ("OptionalFromValue", "OptionalNone")
_HANDLES = (tf.resource, tf.string, tf.variant)
_OPTIONAL = ("optional",)
_PASS = ("Identity", "TensorListPopBack", "TensorListPushBack")


def _kept(call: Call, tensor: tf.Tensor) -> list[Kept] | None:
    """The contents that a branch may keep in an optional; None if they are not static."""
    op, k = source(tensor).op, source(tensor).value_index
    if op.type in _MAKES:
        parts = [_part(call, t) for t in op.inputs]
        return None if None in parts else [tuple(p for p in parts if p is not None)]
    if op.type == "ZerosLike" and isinstance(kind_of(call, op.outputs[0]), tuple):
        return [()]  # zeros stand for tensors that are not held
    found: list[Kept] = []
    for graph in functions_of_branches(op) if op.type in _tf.BRANCHES else [None]:
        kept = None if graph is None else _kept(call, graph.outputs[k])
        if kept is None:
            return None
        found += kept
    return _union(found)


def _part(call: Call, tensor: tf.Tensor) -> tuple[tf.DType, Any] | None:
    """The dtype and shape of a component of an optional; for an optional or a list its content."""
    if tensor.dtype == tf.variant:
        kind = kind_of(call, tensor)
        if isinstance(kind, tf.DType):
            shape = as_shape(item_shape(call, tensor))
            is_plain = is_static(shape) and kind not in _HANDLES
            return (tf.variant, Listed(kind, shape)) if is_plain else None
        kept = _kept(call, tensor)
        return None if kept is None else (tf.variant, tuple(kept))
    is_plain = tensor.shape.is_fully_defined() and tensor.dtype not in _HANDLES
    return (tensor.dtype, dims(tensor)) if is_plain else None


def _is_only_opened(call: Call, tensor: tf.Tensor) -> bool:
    """Whether all that happens to an optional is that conditionals read its values.

    Loops may keep it in a list until then.
    """
    callers = callers_of(call)
    todo, seen = [(tensor, False)], set[int]()
    for t, is_list in todo:  # grows
        if id(t) in seen:
            continue
        seen.add(id(t))
        places = [i for i, output in enumerate(t.graph.outputs) if output is t]
        if places:
            around = callers.get(t.graph, [])
            if not around:
                return False
            for op in around:
                if places[-1] >= len(op.outputs) or (is_list and op.type in _tf.BRANCHES):
                    return False
                todo += [(op.outputs[i], is_list) for i in places]
                todo += [(t.graph.inputs[i], is_list) for i in places if op.type in _tf.LOOPS]
        for op in _tf.consumers(t):
            if op.type in ("OptionalFromValue", "OptionalGetValue"):
                todo += [
                    (out, False)
                    for out in op.outputs
                    if out.dtype == tf.variant and not isinstance(kind_of(call, out), tf.DType)
                ]
                continue
            is_item = op.type == "TensorListPushBack" and op.inputs[1] is t
            if op.type in _PASS and not (is_item and is_list):
                todo += [(out, is_list or is_item) for out in op.outputs[:1]]
                todo += [(out, False) for out in op.outputs[1:]]
            elif op.type in (*_tf.BRANCHES, *_tf.CALLS, *_tf.LOOPS):
                todo += [(inside, is_list) for inside in _inside(op, t)]
            else:
                return False
    return True


def _inside(op: tf.Operation, tensor: tf.Tensor) -> list[tf.Tensor]:
    """The tensors that ``tensor`` is in the functions of a conditional, a loop or a call."""
    given = list(op.inputs)[int(op.type in _tf.BRANCHES) :]
    places = [i for i, other in enumerate(given) if other is tensor]
    return [graph.inputs[i] for graph in _tf.functions_of(op) for i in places]


def opened_value(call: Call, components: Sequence[Value]) -> Value | None:
    """The result of an op that shall not make an optional of ``components``; None of others."""
    if ("opened", call.op) not in call.memo:
        return None
    if any(map(is_ragged, components)):
        raise CannotVectorize("a branch keeps rows of different shapes, in a map of a map")
    kept = [
        stack_list(call, v)
        if v.dtype == tf.variant
        else Value.stacked(call.stacked(v)).with_inner_shape(v.inner_shape)
        for v in components
    ]
    return beside(call, [kept])


def alternatives(value: Value) -> Sequence[Sequence[Value]]:
    """The values that each branch would put into an optional that is not made; else none."""
    return value.alternatives if isinstance(value, OpenOptional) else ()


def is_opened(value: Value) -> bool:
    """Whether a value is an optional that is not made."""
    return bool(alternatives(value))


def tensors_of(call: Call, value: Value, wanted: Sequence[Kept]) -> list[tf.Tensor]:
    """The tensors beside an optional that is not made; zeros for tensors that it never holds."""
    found = list[tf.Tensor]()
    held = {_outline(kept_in(values)): values for values in alternatives(value)}
    if not held or not set(held) <= set(map(_outline, wanted)):
        raise CannotVectorize(_UNKNOWN)
    for kept in wanted:
        if _outline(kept) not in held:
            found += [zeros(call, *part) for part in flat([kept])]
            continue
        for (_, inner), v in zip(kept, held[_outline(kept)]):
            if isinstance(inner, Listed):
                v = own_rows(call, v)
                found += [v.tensor, lengths_of(call, v)]
            else:
                found += tensors_of(call, v, inner) if is_opened(v) else [v.tensor]
    return found


_UNKNOWN = "what a conditional keeps in a map of a map is not known to be static"


def flat(contents: Sequence[Kept]) -> list[tuple[tf.DType, Any]]:
    """Dtypes and shapes of ``tensors_of``: of a list the list, and where it ends in each row."""
    found: list[tuple[tf.DType, Any]] = []
    for dtype, inner in (part for kept in contents for part in kept):
        if isinstance(inner, Listed):
            found += [(dtype, inner), (tf.int32, ())]
        else:
            found += flat(inner) if dtype == tf.variant else [(dtype, inner)]
    return found


def from_tensors(call: Call, tensors: Iterator[tf.Tensor], contents: Sequence[Kept]) -> Value:
    """The optional of which these are the ``tensors_of``."""

    def value(dtype: tf.DType, inner: Any) -> Value:
        if isinstance(inner, Listed):
            handle, lengths, n = next(tensors), next(tensors), call.loop.static_length
            tell(handle, inner.dtype, [-1 if n is None else n, *(inner.shape or ())])
            return StackedList.of(handle, ListRows(call.loop.length, lengths=lengths))
        if dtype == tf.variant:
            return from_tensors(call, tensors, inner)
        return Value.stacked(next(tensors)).with_inner_shape(inner)

    return beside(call, [[value(*part) for part in kept] for kept in contents])


def zeros(call: Call, dtype: tf.DType, shape: Sequence[Dim]) -> tf.Tensor:
    """[n] + shape; an empty list of such."""
    if isinstance(shape, Listed):
        item = call.emit.shape_vector([call.loop.length, *known_dims(shape.shape)])
        return call.emit("EmptyTensorList", item, np.int32(-1), element_dtype=shape.dtype)
    full = call.emit.shape_vector([call.loop.length, *shape])
    return call.emit("Fill", full, np.zeros((), dtype.as_numpy_dtype))


def kept_in(values: Sequence[Value]) -> Kept:
    """Dtypes and shapes of the tensors beside."""
    return tuple((v.dtype, _inner(v)) for v in values)


def _inner(value: Value) -> Any:
    if is_opened(value):
        return tuple(map(kept_in, alternatives(value)))
    if value.dtype != tf.variant:
        return value.inner_shape
    known = _tf.list_element(value.tensor)
    if known is None or not known[1].rank:
        raise CannotVectorize(_UNKNOWN)
    return Listed(known[0], as_shape(known[1][1:]))


def as_opened(
    call: Call, opened: Opened, made: Sequence[tf.Tensor], masks: Sequence[tf.Tensor] = ()
) -> dict[int, Value]:
    """The optionals, by output.

    Args:
      call: the conditional.
      opened: the result of ``opened_by``.
      made: the tensors beside: [n, ...], branch by branch and output by output.
      masks: bool [n], the rows that take each branch, if there are several.
    """
    supply = iter(made)
    found: dict[int, dict[Kept, list[tf.Tensor]]] = {k: {} for k in opened}
    for b in range(max(map(len, opened.values()), default=0)):
        for k, branches in opened.items():
            alike = found[k]  # who reads one of them knows dtypes and shapes only
            for kept in branches[b]:
                tensors = [next(supply) for _ in flat([kept])]
                if kept in alike:
                    both = zip(flat([kept]), tensors, alike[kept])
                    tensors = [_chosen(call, masks[b], *each) for each in both]
                alike[kept] = tensors
    return {
        k: from_tensors(call, iter([t for tensors in alike.values() for t in tensors]), list(alike))
        for k, alike in found.items()
    }


def _chosen(
    call: Call, mask: tf.Tensor, part: tuple[tf.DType, Any], new: tf.Tensor, old: tf.Tensor
) -> tf.Tensor:
    """One of ``flat``: ``new`` in the rows of the mask, ``old`` in the others."""
    emit, (_, inner) = call.emit, part
    if not isinstance(inner, Listed):
        return emit("Select", mask, new, old)
    shape = known_dims(inner.shape)
    item = emit.shape_vector([call.loop.length, *shape])
    lists = [padded_stack(emit, handle, item, inner.dtype) for handle in (new, old)]
    rows = emit("Reshape", mask, np.array([-1] + [1] * len(shape), np.int32))
    both = emit("SelectV2", rows, *equally_long(emit, lists))
    return emit("TensorListFromTensor", both, item)


def beside(call: Call, values: Sequence[Sequence[Value]]) -> Value:
    """An optional that is not made, of the values that each branch would put into it."""
    rows = ListRows(call.loop.length)
    return OpenOptional(Cell(None, _not_made), (), tf.variant, rows, values)


def _not_made() -> tf.Tensor:
    raise CannotVectorize("what a conditional keeps in a map of a map is not just read")


def opened_values(call: Call, opened: Sequence[Sequence[Value]]) -> list[Value]:
    """The values that an OptionalGetValue reads."""
    found = [each for each in opened if _may_be(each, call.op)]
    if len(found) != 1:
        raise CannotVectorize("what a conditional keeps in a map of a map is read in other shapes")
    return list(found[0])


def _may_be(values: Sequence[Value], read: tf.Operation) -> bool:
    """Whether an OptionalGetValue may read these values, by the ops that use them."""
    return len(values) == len(read.outputs) and all(
        v.dtype == o.dtype
        and (_is_used_as(v, o) if v.dtype == tf.variant else v.inner_shape == dims(o))
        for v, o in zip(values, read.outputs)
    )


def _is_used_as(value: Value, tensor: tf.Tensor) -> bool:
    """Whether all that is done with ``tensor``, a variant, can be done with ``value``."""
    todo = [tensor]
    for t in todo:  # grows
        for op in _tf.consumers(t):
            if op.type == "OptionalGetValue":
                if not any(_may_be(each, op) for each in alternatives(value)):
                    return False
            elif op.type == "TensorListPopBack":
                inner = () if is_opened(value) else _inner(value)
                if not isinstance(inner, Listed) or inner != _popped(op, inner):
                    return False
                todo.append(op.outputs[0])
            elif op.type == "Identity":
                todo.append(op.outputs[0])
            elif op.type in (*_tf.BRANCHES, *_tf.CALLS, *_tf.LOOPS):
                todo += _inside(op, t)
    return True


def _popped(op: tf.Operation, like: Listed) -> Listed:
    shape = op.outputs[1].shape
    known = as_shape(shape) if shape.is_fully_defined() else like.shape
    return Listed(op.outputs[1].dtype, known)
