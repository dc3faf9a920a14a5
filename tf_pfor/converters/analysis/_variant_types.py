"""The kinds of the body's variants: lists or optionals, and their content.

TensorFlow does not tell the kind of a variant that was taken out of another variant. The kind
follows from the ops that make and use the variant.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple, TypeVar

import numpy as np
import tensorflow as tf

from tf_pfor import _tf
from tf_pfor._tf._evaluation import evaluated
from tf_pfor.core.call import Call
from tf_pfor.core.values import as_tensor_shape


class Branch(NamedTuple):
    """Branch ``number`` of a conditional of ``total`` branches."""

    number: int
    total: int


Path = tuple[tuple[int | Branch | None, int], ...]
"""From a variant to one in it: ITEM for an item of a list; (a, k) for component k of an optional,
of its alternative a: conditionals return one for each branch. What is read in a branch was made in
the same branch of the conditional that returned it; None if the alternative is not known."""

Calls = tuple[tf.Operation, ...]
"""The ops that call the function that a tensor is in, from the outermost in; where some are not
known, the innermost ones that are."""

Kind = tuple[tuple[tf.DType, ...], ...] | tf.DType
"""The dtypes of the components of an optional, for each alternative; or the dtype of the items of a
list."""

ITEM = (None, -1)
_SAME = frozenset(["AddN", "Identity", "TensorListConcatLists", "TensorListResize", "ZerosLike"])
_PUT = {"TensorListPushBack": 1, "TensorListSetItem": 2}  # which input is put into the list
_TAKEN = {"TensorListGetItem": 0, "TensorListPopBack": 1}  # which output is taken out of it


_T = TypeVar("_T")


class _Search:
    """Results found so far, and the conditionals whose results are being looked at.

    A search that comes back to such a conditional does not look at it again. A result is kept if
    the search came back only to conditionals that it has opened itself. The result must also be
    about a tensor of the body: a graph that is being made may tell more later.
    """

    def __init__(self) -> None:
        self._found: dict[Any, Any] = {}
        self._open: list[tf.Operation] = []
        self._came_back_to: float = math.inf  # the first of those

    def once(self, call: Call, key: tuple[Any, ...], find: Callable[[], _T]) -> _T:
        """The result of ``find``, now or before, about an output of the op ``key[1]``."""
        if key in self._found:
            return self._found[key]
        before, self._came_back_to = self._came_back_to, math.inf
        found = find()
        if self._came_back_to >= len(self._open):
            if key[1].graph in callers_of(call):
                self._found[key] = found
            self._came_back_to = math.inf
        self._came_back_to = min(before, self._came_back_to)
        return found

    def inside(self, op: tf.Operation, find: Callable[[], _T]) -> _T | None:
        """The result of ``find``, which looks into a conditional; None within itself."""
        if op in self._open:
            self._came_back_to = min(self._came_back_to, self._open.index(op))
            return None
        self._open.append(op)
        try:
            return find()
        finally:
            self._open.pop()


def _search(call: Call) -> _Search:
    return call.memo.setdefault("kinds of variants", _Search())


def _found_once(
    find: Callable[[Call, tf.Tensor], _T],
) -> Callable[[Call, tf.Tensor], _T]:
    """A function of a variant of the body, each result of which is found once."""

    @functools.wraps(find)
    def found(call: Call, tensor: tf.Tensor) -> _T:
        key = (find, tensor.op, tensor.value_index, calls_around(call, tensor.graph))
        return _search(call).once(call, key, lambda: find(call, tensor))

    return found


def kind_of(
    call: Call, tensor: tf.Tensor, path: Path = (), within: Calls | None = None
) -> Kind | None:
    """The kind of a variant, or of a variant in it; None if nobody was seen to use it.

    ``path`` leads to the variant that is asked for. The function around it is called ``within``, by
    default by the call that is being converted.
    """
    inside = calls_around(call, tensor.graph) if within is None else within
    key = ("kind", tensor.op, tensor.value_index, path, inside)
    return _search(call).once(call, key, lambda: _find_kind(call, tensor, path, inside))


def _find_kind(call: Call, tensor: tf.Tensor, path: Path, within: Calls) -> Kind | None:
    is_optional = False
    for is_sure in (True, False):
        for op, same, inside in _uses(call, tensor, path, within, is_sure=is_sure):
            found = _used_as(op, same)
            if op.type in _tf.BRANCHES and same.op is op:
                found = _by_branch(call, op, same.value_index, inside)
            if found is not None and not (is_optional and isinstance(found, tf.DType)):
                return found
            is_optional |= is_sure and op.type == "OptionalGetValue" and op.inputs[0] is same
    return None


@_found_once
def item_shape(call: Call, tensor: tf.Tensor) -> tf.TensorShape:
    """The static shape of what is put into a list of the body."""
    found: tf.TensorShape | None = None
    for op, same in uses(call, tensor, is_list=True):
        if op.type in _PUT and same.op is op:
            shape = op.inputs[_PUT[op.type]].shape
        elif op.type == "TensorListFromTensor":
            shape = op.inputs[0].shape[1:]
        else:
            continue
        found = shape if found is None else found.most_specific_compatible_shape(shape)
    return as_tensor_shape(None) if found is None else found


@_found_once
def declared_item(call: Call, tensor: tf.Tensor) -> tf.TensorShape:
    """The static shape of an item that a list of the body was made with; unknown if any may be.

    Those who make such lists agree: what TensorFlow makes for gradients is like what it is of.
    """
    for is_sure in (True, False):
        same = {id(t): t for _, t in uses(call, tensor, is_sure=is_sure, is_list=True)}
        known = [element[1] for t in same.values() if (element := _tf.list_element(t)) is not None]
        known = [shape for shape in known if shape.is_fully_defined()]
        if known:
            return known[0] if all(shape == known[0] for shape in known) else as_tensor_shape(None)
    return as_tensor_shape(None)


def kept_constant(call: Call, tensor: tf.Tensor) -> np.ndarray | None:
    """The constant that all items of a list, or all optionals, are from which ``tensor`` is read.

    TensorFlow's gradients of loops and branches keep axes so, for the gradient of an op.
    """
    while tensor.op.type == "Identity":
        tensor = tensor.op.inputs[0]
    if tensor.op.type == "InvertPermutation":
        order = kept_constant(call, tensor.op.inputs[0])
        return None if order is None else np.argsort(order)
    within = calls_around(call, tensor.graph)
    key = ("kept", tensor.op, tensor.value_index, within)
    if tensor.op.type == "OptionalGetValue":
        return _search(call).once(call, key, lambda: _find_kept_as(call, tensor, within))
    if tensor.op.type != "TensorListPopBack" or not tensor.value_index:
        return None
    return _search(call).once(call, key, lambda: _find_kept(call, tensor.op.inputs[0]))


def _find_kept(call: Call, handle: tf.Tensor) -> np.ndarray | None:
    found = list[np.ndarray | None]()
    for op, same in uses(call, handle, is_list=True):
        if op.type in _PUT and same.op is op:
            found.append(_constant(op.inputs[_PUT[op.type]]))
        elif op.type == "TensorListFromTensor":
            return None
    return same_constant(found)


def _find_kept_as(call: Call, tensor: tf.Tensor, within: Calls) -> np.ndarray | None:
    """The constant that is put into an optional as the component that is read as ``tensor``."""
    path: Path = ((branch_of(tensor.graph, within), tensor.value_index),)
    ends = list[tf.Tensor]()
    for _ in _uses(call, tensor.op.inputs[0], path, within, ends=ends):
        pass
    return same_constant([_constant(t) for t in ends if t.op.type != "OptionalGetValue"])


def _constant(tensor: tf.Tensor) -> np.ndarray | None:
    known = _tf.static_value(tensor)
    return evaluated(tensor) if known is None else known


def same_constant(found: Sequence[np.ndarray | None]) -> np.ndarray | None:
    """The constant that all of some are; None if one is not known."""
    first = found[0] if found else None
    if first is None or any(x is None or not np.array_equal(x, first) for x in found):
        return None
    return first


def item_at(call: Call) -> tf.TensorShape:
    """``declared_item`` of the list that an op of the body is about; unknown for other ops."""
    about = (*call.op.inputs[:1], *call.op.outputs[:1])
    is_list = call.op_type == "AddN" or call.op_type.startswith("TensorList")
    tensor = next((t for t in about if is_list and t.dtype == tf.variant), None)
    if tensor is None or kind_of(call, tensor) == tf.variant:
        return as_tensor_shape(None)
    return declared_item(call, tensor)


def _of_branches(call: Call, op: tf.Operation, k: int, within: Calls) -> list[Kind | None] | None:
    """The kind of output ``k`` of each branch; None where it is being looked at."""
    ends = [graph.outputs[k] for graph in functions_of_branches(op)]
    inside = (*within, op)
    return _search(call).inside(op, lambda: [kind_of(call, t, (), inside) for t in ends])


def uses(
    call: Call, tensor: tf.Tensor, *, is_sure: bool = False, is_list: bool = False
) -> Iterator[tuple[tf.Operation, tf.Tensor]]:
    """The ops that make or read a variant, and their tensor of it.

    With ``is_sure`` ops that may be about another value are left out. The value read from an
    optional may have been put there as any of its alternatives; a function may be called elsewhere.
    With ``is_list`` the variant is a list. If a conditional returns it, the results of all
    branches are lists.
    """
    within = calls_around(call, tensor.graph)
    for op, same, _ in _uses(call, tensor, (), within, is_sure=is_sure, is_list=is_list):
        yield op, same


def _uses(
    call: Call,
    tensor: tf.Tensor,
    path: Path,
    within: Calls,
    *,
    is_sure: bool = False,
    is_list: bool = False,
    ends: list[tf.Tensor] | None = None,
) -> Iterator[tuple[tf.Operation, tf.Tensor, Calls]]:
    """``uses``, each with the calls of the function that it is in.

    ``ends`` gets what else stands at ``path``, that is no variant.
    """
    callers = callers_of(call)
    todo, seen = [(tensor, path, within)], set[Any]()
    for tensor, path, within in todo:  # grows
        key = (tensor.op, tensor.value_index, path, within)
        if key in seen:
            continue
        seen.add(key)
        if tensor.dtype != tf.variant:
            if ends is not None and not path:
                ends.append(tensor)
            continue
        for op in (tensor.op, *_tf.consumers(tensor)):
            if not path:
                yield op, tensor, within
            if not (is_sure and op is tensor.op and op.type == "OptionalGetValue"):
                todo += [(*x, within) for x in _related(op, tensor, path, within)]
            inside = _across(call, op, tensor, path, within, is_list)
            todo += [(*x, within if x[0].graph is op.graph else (*within, op)) for x in inside]
        around = within[-1:] or callers.get(tensor.graph, ())
        for given, inner in getattr(tensor.graph, "captures", ()):
            if inner is tensor and hasattr(given, "op"):
                is_caller = bool(within) and within[-1].graph is given.graph
                outer = within[:-1] if is_caller else calls_around(call, given.graph)
                todo.append((given, path, outer))
        if not (is_sure and len(around) > 1):  # the others may be called with other lists
            for op in around:
                outside = _outside(call, op, tensor, path, within[:-1], is_list)
                todo += [(*x, within[:-1]) for x in outside]


def calls_around(call: Call, graph: tf.Graph) -> Calls:
    """The calls that lead to a function of the body, as it is being converted."""
    known, walker = list[tuple[Any, tf.Operation | None]](), call.walker
    while walker is not None:
        known.append((walker.graph, walker.entered_by))
        walker = None if walker.is_root else walker.parent
    callers, found = callers_of(call), list[tf.Operation]()
    graphs = [g for g, _ in known]
    while graph not in graphs:
        around = callers.get(graph, ())
        if len(around) != 1:
            return tuple(found)
        found.insert(0, around[0])
        graph = around[0].graph
    ops = [op for _, op in known[graphs.index(graph) :] if op is not None]
    return (*reversed(ops), *found)


def callers_of(call: Call) -> dict[Any, list[tf.Operation]]:
    """The graphs of the body, each with the ops that call it: none call the outermost."""
    key = "callers of functions"
    if key not in call.memo:
        walker = call.walker
        while walker.parent is not None and not walker.is_root:
            walker = walker.parent
        found: dict[Any, list[tf.Operation]] = {call.op.graph: []}
        if walker.graph is not None:
            found[walker.graph] = []
        graphs = list(found)
        for graph in graphs:  # grows
            for op in graph.get_operations():
                for inner in dict.fromkeys(_tf.functions_of(op)):
                    if inner not in found:
                        graphs.append(inner)
                    found.setdefault(inner, []).append(op)
        call.memo[key] = found
    return call.memo[key]


def _used_as(op: tf.Operation, tensor: tf.Tensor) -> Kind | None:
    is_made = tensor.op is op
    if op.type == "OptionalNone":
        return ((),)
    if op.type == "OptionalFromValue" and is_made:
        return (tuple(t.dtype for t in op.inputs),)
    is_item = op.type in _TAKEN and is_made and tensor.value_index == _TAKEN[op.type]
    is_list = is_made or op.inputs[0] is tensor
    if is_list and not is_item and "element_dtype" in _tf.attr_map(op):
        return tf.as_dtype(op.get_attr("element_dtype"))
    return None


def _by_branch(call: Call, op: tf.Operation, k: int, within: Calls) -> Kind | None:
    """The kind of output ``k`` of a conditional; an optional has the kinds of all branches."""
    found: list[tuple[tf.DType, ...]] = []
    for kind in _of_branches(call, op, k, within) or [None]:
        if isinstance(kind, tf.DType):
            return kind
        if kind is None:
            return None
        found += kind
    return tuple(found)


def _counts(call: Call, op: tf.Operation, k: int, within: Calls) -> list[int]:
    """The number of alternatives that each branch of a conditional returns as output ``k``."""
    kinds = _of_branches(call, op, k, within) or ()
    return [len(kind) if isinstance(kind, tuple) else 1 for kind in kinds]


def _related(
    op: tf.Operation, tensor: tf.Tensor, path: Path, within: Calls
) -> Iterator[tuple[tf.Tensor, Path]]:
    """The variants in which ``op`` has what stands at ``path`` in ``tensor``."""
    if op.type in _SAME:
        yield from ((t, path) for t in (*op.inputs, *op.outputs))
    elif op.type in _PUT or op.type in _TAKEN:
        is_put = op.type in _PUT
        item = op.inputs[_PUT[op.type]] if is_put else op.outputs[_TAKEN[op.type]]
        in_list = (ITEM, *path) if item is tensor else path
        yield from ((t, in_list) for t in (op.inputs[0], *op.outputs) if t is not item)
        if in_list and in_list[0] == ITEM:
            yield item, in_list[1:]
    elif op.type in ("OptionalFromValue", "OptionalGetValue"):
        is_made = op.type == "OptionalFromValue"
        parts, whole = list(op.inputs), op.outputs[0]
        if not is_made:
            parts, whole = list(op.outputs), op.inputs[0]
        own = 0 if is_made else branch_of(op.graph, within)
        if tensor is not whole:
            yield from ((whole, ((own, k), *path)) for k, t in enumerate(parts) if t is tensor)
        elif path and path[0] != ITEM:
            first = path[0][0]
            if first in (own, None) or (is_made and isinstance(first, Branch)):
                yield from ((t, path[1:]) for k, t in enumerate(parts) if path[0][1] == k)


def branch_of(graph: tf.Graph, within: Calls) -> Branch | None:
    """The innermost branch that a function is or is called in."""
    for op in reversed(within):
        if op.type in _tf.BRANCHES:
            functions = functions_of_branches(op)
            is_known = functions.count(graph) == 1
            return Branch(functions.index(graph), len(functions)) if is_known else None
        graph = op.graph
    return None


def functions_of_branches(op: tf.Operation) -> list[Any]:
    """The functions of a conditional, in the order of their numbers."""
    functions = _tf.functions_of(op)
    if "Case" in op.type:
        return functions
    names = [op.get_attr(name).name for name in ("else_branch", "then_branch")]
    return [_tf.function_graph(op.graph, name) for name in names]


def _across(
    call: Call, op: tf.Operation, tensor: tf.Tensor, path: Path, within: Calls, is_list: bool
) -> Iterator[tuple[tf.Tensor, Path]]:
    """The tensors that ``tensor`` is inside of the functions of ``op``."""
    is_cond, is_loop = op.type in _tf.BRANCHES, "While" in op.type
    functions = functions_of_branches(op) if is_cond else _tf.functions_of(op)
    inputs, outputs = list(op.inputs)[int(is_cond) :], list(op.outputs)
    for b, graph in enumerate(functions):
        ins = [i for i, t in enumerate(inputs) if t is tensor]
        outs = [i for i, t in enumerate(outputs) if t is tensor]
        if is_loop:
            ins = outs = ins + outs
            yield from ((ends[i], path) for i in ins for ends in (inputs, outputs))
        if len(graph.inputs) == len(inputs):
            yield from ((graph.inputs[i], path) for i in ins)
        if len(graph.outputs) < len(outputs) or (is_loop and len(graph.outputs) == 1):
            continue
        for i in outs:
            if is_cond and not (path or is_list):  # it returns other alternatives than its branches
                continue
            if not (is_cond and path) or path[0] == ITEM or path[0][0] is None:
                yield graph.outputs[i], path
                continue
            if isinstance(path[0][0], Branch):
                if path[0][0].total != len(functions) or path[0][0].number == b:
                    yield graph.outputs[i], ((None, path[0][1]), *path[1:])
                continue
            counts = _counts(call, op, i, within)
            first = path[0][0] - sum(counts[:b])
            if counts and 0 <= first < counts[b]:
                yield graph.outputs[i], ((first, path[0][1]), *path[1:])


def _outside(
    call: Call, op: tf.Operation, tensor: tf.Tensor, path: Path, within: Calls, is_list: bool
) -> Iterator[tuple[tf.Tensor, Path]]:
    """The tensors that ``tensor`` is outside of its function, which ``op`` calls."""
    graph = tensor.graph
    is_cond = op.type in _tf.BRANCHES
    inputs, outputs = list(op.inputs)[int(is_cond) :], list(op.outputs)
    if len(graph.inputs) == len(inputs):
        yield from ((inputs[i], path) for i, t in enumerate(graph.inputs) if t is tensor)
    if "While" in op.type and len(graph.outputs) != len(outputs):
        return
    for i, t in enumerate(graph.outputs[: len(outputs)]):
        if t is not tensor:
            continue
        if is_cond and not (path or is_list):  # it returns other alternatives than its branches
            continue
        first = path[0][0] if path else None
        if not is_cond or first is None or isinstance(first, Branch):
            yield outputs[i], path
            continue
        before = 0
        for branch, count in zip(functions_of_branches(op), _counts(call, op, i, within)):
            if branch is graph and first < count:  # others would come back ever larger
                yield outputs[i], ((first + before, path[0][1]), *path[1:])
            before += count
