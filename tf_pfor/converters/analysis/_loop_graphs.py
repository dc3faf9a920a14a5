"""Facts on the variables of a loop, from the graph of its body."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from tf_pfor import _tf
from tf_pfor.converters.analysis._safety import writes_op
from tf_pfor.core import ranges
from tf_pfor.core.values import all_known

# Ops that return the list they got, with other elements and the same length.
_SCATTER = "TensorListScatterIntoExistingList"
_SAME_LENGTH = ("Identity", _SCATTER, "TensorListSetItem")


# Ops that read what lists hold.
READS_OF_LISTS = ("TensorListGetItem", "TensorListPopBack")


def source(tensor: tf.Tensor) -> tf.Tensor:
    """The tensor behind any Identity ops without control inputs."""
    while tensor.op.type == "Identity" and not tensor.op.control_inputs:
        tensor = tensor.op.inputs[0]
    return tensor


def value_of(tensor: tf.Tensor) -> tf.Tensor:
    """The tensor behind any Identity ops, also after side effects."""
    while tensor.op.type == "Identity":
        tensor = tensor.op.inputs[0]
    return tensor


def is_read(tensor: tf.Tensor, is_result: Callable[[tf.Tensor], bool] | None = None) -> bool:
    """Whether somebody reads a tensor: an Identity that nobody reads does not.

    TensorFlow's gradient of a loop puts one behind each result. Where there are custom gradients
    every Identity counts, since these may ask later for what the forward pass leaves alone.
    ``is_result`` tells whether others want a tensor; None is for all outputs of its graph.
    """
    graph = tensor.graph
    if is_result(tensor) if is_result else any(t is tensor for t in graph.outputs):
        return True
    readers = tensor.consumers()
    if not all(op.type == "Identity" for op in readers):
        return True
    if any(is_read(op.outputs[0], is_result) or _tf.control_outputs(op) for op in readers):
        return True
    return bool(readers) and any(op.type == "IdentityN" for op in graph.get_operations())


def is_read_once(tensor: tf.Tensor) -> bool:
    """Whether one op reads a tensor of a function, or it is one output of that."""
    outputs = sum(t is tensor for t in tensor.graph.outputs)
    return outputs + len(tensor.consumers()) == 1


def pass_through(graph: tf.Graph) -> set[int]:
    """The variables that the body returns as it got them, also if after its side effects."""
    found: set[int] = set()
    for i, (given, output) in enumerate(zip(graph.inputs, graph.outputs)):
        if value_of(output) is given:
            found.add(i)
    return found


def keep_lengths(graph: tf.Graph, start: Sequence[tf.Tensor]) -> set[int]:
    """The lists that are as long after a trip as before, also where they change places.

    ``start`` has the variables before the first trip.
    """
    places = {id(t): i for i, t in enumerate(graph.inputs) if t.dtype == tf.variant}
    came = {i: places.get(id(list_before(graph.outputs[i]))) for i in places.values()}
    kept = set(places.values())
    before = None
    while kept != before:
        before = kept
        kept = {
            i for i in kept if came[i] == i or (came[i] in kept and _as_long(i, came[i], start))
        }
    return kept


def _as_long(i: int, k: int | None, start: Sequence[tf.Tensor]) -> bool:
    known = length_of(start[i])
    return known is not None and k is not None and known == length_of(start[k])


def length_of(tensor: tf.Tensor) -> int | None:
    """The number of items of a list that was just made, None if it is not known."""
    while tensor.op.type in _SAME_LENGTH and not _resizes(tensor.op):
        tensor = tensor.op.inputs[0]
    if tensor.op.type == _SCATTER:
        return _scattered_length(tensor.op)
    if tensor.op.type == "TensorListFromTensor":
        shape = tensor.op.inputs[0].shape
        return shape[0] if shape.rank else None
    if tensor.op.type == "TensorListReserve":
        known = _tf.static_value(tensor.op.inputs[1])
        return None if known is None else int(known)
    return None


def _scattered_length(op: tf.Operation) -> int | None:
    """The length of a list after a scatter into it, if the length before and places are known."""
    known, places = length_of(op.inputs[0]), _tf.static_value(op.inputs[2])
    if known is None or places is None:
        return None
    return max([known, *(int(i) + 1 for i in places)])


def grown_to(op: tf.Operation) -> int | None:
    """The length to which a TensorListScatterIntoExistingList is known to make its list longer."""
    known = _scattered_length(op)
    return None if known == length_of(op.inputs[0]) else known


def _resizes(op: tf.Operation) -> bool:
    if op.type == _SCATTER:
        return grown_to(op) is not None
    return op.type == "TensorListSetItem" and op.get_attr("resize_if_index_out_of_bounds")


def list_before(
    tensor: tf.Tensor, more: Sequence[str] = (), *, may_grow: bool = False
) -> tf.Tensor:
    """The list that this one was made from without a change of its length, or by ops of ``more``.

    With ``may_grow`` also by writes beyond its end. Conditionals and loops are looked into.

    A list of which rows are written at different places is taken apart and put together.
    """
    while True:
        op = tensor.op
        given = _list_before_functions(op, tensor.value_index, may_grow)
        if given is not None:
            tensor = given
            continue
        if op.type in (*_SAME_LENGTH, *more) and (may_grow or not _resizes(op)):
            tensor = op.inputs[0]
            continue
        if op.type == "TensorListResize" and op.inputs[1].op.type == "TensorListLength":
            whole, like = op.inputs[0], op.inputs[1].op.inputs[0]  # as long as another list
            if (before := list_before(whole, more)) is list_before(like, more):
                return before
        whole = op.inputs[0] if op.type == "TensorListFromTensor" else None
        while whole is not None and whole.op.type in ("Identity", "TensorScatterUpdate"):
            whole = whole.op.inputs[0]
        if whole is None or whole.op.type != "TensorListStack":
            return tensor
        tensor = whole.op.inputs[0]


def _list_before_functions(op: tf.Operation, k: int, may_grow: bool) -> tf.Tensor | None:
    """The list from which a call, all branches or each trip make output ``k``, as long."""
    is_loop = op.type in _tf.LOOPS
    if not is_loop and op.type not in (*_tf.BRANCHES, *_tf.CALLS):
        return None
    if is_loop:
        functions = [_tf.function_graph(op.graph, op.get_attr("body").name)]
    else:
        functions = _tf.functions_of(op)
    sources = {input_before(graph, k, may_grow=may_grow) for graph in functions}
    i = sources.pop() if len(sources) == 1 else None
    if i is None or (is_loop and i != k):
        return None
    return op.inputs[i + int(op.type in _tf.BRANCHES)]


def input_before(graph: tf.Graph, k: int, *, may_grow: bool = False) -> int | None:
    """The input of which a function makes output ``k``, a list, as long."""
    return place_of(graph, list_before(graph.outputs[k], may_grow=may_grow))


def input_passed(graph: tf.Graph, k: int) -> int | None:
    """The input that a function returns as output ``k``, as it got it."""
    return place_of(graph, source(graph.outputs[k]))


def pops_only(graph: tf.Graph, i: int) -> bool:
    """Whether all that happens to list ``i`` in a trip is that elements are popped."""
    tensor = graph.outputs[i]
    while tensor.op.type in ("Identity", "TensorListPopBack") and tensor.value_index == 0:
        tensor = tensor.op.inputs[0]
    return tensor is graph.inputs[i]


def pops(op: tf.Operation, given: tf.Tensor) -> bool:
    """Whether ``op`` pops the last element of the list ``given``."""
    return op.type == "TensorListPopBack" and source(op.inputs[0]) is given


def is_popped(graph: tf.Graph, i: int) -> bool:
    """Whether each trip pops elements of list ``i``, and nothing else happens to it."""
    return pops_only(graph, i) and any(pops(o, graph.inputs[i]) for o in graph.get_operations())


def is_pushed(graph: tf.Graph, i: int) -> bool:
    """Whether list ``i`` grows at its end only, by the same number for all rows of a trip."""
    return list_before(graph.outputs[i], ["TensorListPushBack"]) is graph.inputs[i]


def only_pushed(graph: tf.Graph, i: int) -> tf.Tensor | None:
    """The item that each trip pushes to list ``i``, if nothing else happens to the list."""
    given, tensor, pushed = graph.inputs[i], graph.outputs[i], None
    while tensor is not given:
        op = tensor.op
        if op.type == "TensorListPushBack" and pushed is None:
            pushed = op.inputs[1]
        elif op.type != "Identity":
            return None
        if not is_read_once(tensor):
            return None
        tensor = op.inputs[0]
    return pushed if is_read_once(given) else None


def pushes(graph: tf.Graph, i: int) -> int:
    """The number of elements that a trip adds to list ``i``, which ``is_pushed``."""
    tensor, count = graph.outputs[i], 0
    while tensor is not graph.inputs[i]:
        tensor = list_before(tensor)
        if tensor.op.type == "TensorListPushBack":
            tensor, count = tensor.op.inputs[0], count + 1
    return count


def effects(graph: tf.Graph) -> list[tf.Operation]:
    return [o for o in graph.get_operations() if writes_op(o)]


class Reach:
    """The inputs of a function graph that an op depends on.

    Args:
      graph: the function graph.
      controls: whether also through control inputs.
    """

    def __init__(self, graph: tf.Graph, *, controls: bool = True):
        self._controls = controls
        self._found: dict[Any, frozenset[int]] = {
            t.op: frozenset([i]) for i, t in enumerate(graph.inputs)
        }

    def inputs_of(self, op: tf.Operation) -> frozenset[int]:
        stack = [op]
        while stack:
            top = stack[-1]
            if top in self._found:
                stack.pop()
                continue
            needs = [t.op for t in top.inputs]
            needs += top.control_inputs if self._controls else ()
            todo = [o for o in needs if o not in self._found]
            if todo:
                stack += todo
                continue
            stack.pop()
            self._found[top] = frozenset().union(*(self._found[o] for o in needs))
        return self._found[op]


_SAME_FOR_ALL = frozenset(
    [
        "BroadcastArgs",
        "BroadcastGradientArgs",
        "OnesLike",
        "Rank",
        "Shape",
        "ShapeN",
        "Size",
        "TensorListElementShape",
        "TensorListLength",
        "ZerosLike",
    ]
)
"""Ops whose result may be the same for all rows where their inputs are not."""


def surely_stacked(graph: tf.Graph, given: Sequence[bool]) -> list[bool]:
    """The outputs of a function of which each row has its own; other outputs may have that too.

    ``given`` says whether each row has its own of an input.
    """
    found = {(t.op, t.value_index) for t, is_own in zip(graph.inputs, given) if is_own}
    for op in graph.get_operations():
        own = [(t.op, t.value_index) in found for t in op.inputs]
        schema = _tf.schema(op.type)
        if not any(own) or schema is None or op.type in _SAME_FOR_ALL:
            continue
        if op.type in (*_tf.CALLS, *_tf.BRANCHES):
            called, is_chosen = _tf.functions_of(op), op.type in _tf.BRANCHES
            ends = [surely_stacked(g, own[int(is_chosen) :]) for g in called]
            differ = [is_chosen and own[0] and _depends_on_branch(called, t) for t in op.outputs]
            own = [any(each) for each in zip(differ, *ends)]
        elif not schema.is_stateful and "func" not in schema.attr_types.values():
            own = [True] * len(op.outputs)
        else:
            continue
        found |= {(t.op, t.value_index) for t, is_own in zip(op.outputs, own) if is_own}
    return [(t.op, t.value_index) in found for t in graph.outputs]


def _depends_on_branch(branches: Sequence[tf.Graph], output: tf.Tensor) -> bool:
    """Whether an output of a conditional is another tensor in another branch; not for lists."""
    if output.dtype in (tf.resource, tf.variant):
        return False
    ends = [source(g.outputs[output.value_index]) for g in branches]
    if all(t.op.type == "Const" for t in ends):
        values = [np.asarray(_tf.static_value(t)) for t in ends]
        return not all(np.array_equal(values[0], x) for x in values[1:])
    places = {input_passed(g, output.value_index) for g in branches}
    return len(places) > 1 or None in places


def most_trips(
    cond: tf.Graph, body: tf.Graph, inputs: Sequence[tf.Tensor], start: dict[int, int]
) -> int | None:
    """The most trips that a loop makes, as far as its predicate tells: ``t < min(k, 100)``.

    ``start`` has the known values of its variables before the first trip. An input that no trip
    changes may have a bound.
    """
    passed = pass_through(body)
    fixed = {i: start[i] for i in passed if i in start}
    bounds = {i: _at_most(inputs[i], known_integer) for i in passed}

    def most(tensor: tf.Tensor) -> int | None:
        place = place_of(cond, tensor)
        found = _value(cond, tensor, fixed)
        return found if place is None or found is not None else bounds.get(place)

    def bound(predicate: tf.Tensor, given: _Given) -> int | None:
        """The same for a part of the predicate, in its graph or in a branch of a conditional."""
        predicate = _origin(predicate, given)
        op = predicate.op
        if op.type == "LogicalAnd":  # one of the two ends the loop
            return both(*(bound(t, given) for t in op.inputs))
        if op.type == "LogicalOr":
            return either(*(bound(t, given) for t in op.inputs))
        if op.type in ("If", "StatelessIf"):  # "and" and "or" of Python
            return either(*by_branch(op, predicate.value_index, given))
        if op.type not in (*_LESS, *_GREATER):
            return None
        less, more = op.inputs if op.type in _LESS else tuple(op.inputs)[::-1]
        counter = place_of(cond, _origin(less, given))
        limit = _at_most(_origin(more, given), most, given)
        step = None if counter is None else _step(body, counter, fixed)
        if not step or limit is None or counter not in start:
            return None
        last = limit - start[counter] - (op.type in ("Less", "Greater"))
        return max(0, last // step + 1)

    def by_branch(op: tf.Operation, i: int, given: _Given) -> Iterator[int | None]:
        chooses = _origin(op.inputs[0], given)
        for name in ("then_branch", "else_branch"):
            branch = _tf.function_graph(op.graph, op.get_attr(name).name)
            within = {**given, **{id(t): x for t, x in zip(branch.inputs, op.inputs[1:])}}
            result = branch.outputs[i]
            if name == "then_branch":
                yield both(bound(chooses, given), bound(result, within))
            else:  # taken where ``chooses`` is false: to return that is to end the loop
                yield 0 if _origin(result, within) is chooses else bound(result, within)

    def both(*parts: int | None) -> int | None:
        return min((x for x in parts if x is not None), default=None)

    def either(*parts: int | None) -> int | None:
        return max(parts) if all_known(parts) else None

    return bound(cond.outputs[0], {})


_Given = Mapping[int, tf.Tensor]  # what the conditional around a branch gave for its inputs, by id
_NOTHING: _Given = {}


_LESS = ("Less", "LessEqual")
_GREATER = ("Greater", "GreaterEqual")


def place_of(graph: tf.Graph, tensor: tf.Tensor) -> int | None:
    """The number of the input of the function that a tensor is."""
    tensor = source(tensor)
    return next((i for i, t in enumerate(graph.inputs) if t is tensor), None)


def _origin(tensor: tf.Tensor, given: _Given) -> tf.Tensor:
    """The origin of a tensor of a branch, through Identities and out of the branch."""
    tensor = source(tensor)
    while id(tensor) in given:
        tensor = source(given[id(tensor)])
    return tensor


def _at_most(
    tensor: tf.Tensor, known: Callable[[tf.Tensor], int | None], given: _Given = _NOTHING
) -> int | None:
    """An upper bound of an integer scalar, by what is ``known`` of others."""
    tensor = _origin(tensor, given)
    if tensor.op.type == "Minimum":
        found = [_at_most(t, known, given) for t in tensor.op.inputs]
        return min((x for x in found if x is not None), default=None)
    return known(tensor)


def _value(graph: tf.Graph, tensor: tf.Tensor, fixed: dict[int, int]) -> int | None:
    """The value of an integer scalar of the loop, a constant or what no trip changes."""
    place = place_of(graph, tensor)
    return known_integer(tensor) if place is None else fixed.get(place)


def _step(body: tf.Graph, i: int, fixed: dict[int, int]) -> int | None:
    """The positive constant that each trip adds to variable ``i``; None if there is none."""
    tensor = value_of(body.outputs[i])
    if tensor.op.type not in ("Add", "AddV2"):
        return None
    for given, other in (tensor.op.inputs, tuple(tensor.op.inputs)[::-1]):
        step = _value(body, other, fixed)
        if source(given) is body.inputs[i] and step is not None and step > 0:
            return step
    return None


def known_integer(tensor: tf.Tensor) -> int | None:
    """The value of an integer scalar of the body."""
    if not tensor.dtype.is_integer:
        return None
    known = tf.get_static_value(tensor)
    if known is None:
        known = ranges.Bounds().constant(tensor)  # a size of a static shape, say
    return None if known is None or known.ndim else int(known)


def is_only_popped(tensor: tf.Tensor) -> bool:
    """Whether all readers of a list of the body are loops that pop it."""
    if any(t is tensor for t in tensor.graph.outputs):
        return False
    for op in tensor.consumers():
        if op.type == "Identity" and is_only_popped(op.outputs[0]):
            continue
        if op.type in _tf.CALLS:
            inner = _tf.function_graph(op.graph, op.get_attr("f").name)
            places = [i for i, t in enumerate(op.inputs) if t is tensor]
            if not all(is_only_popped(inner.inputs[i]) for i in places):
                return False
            continue
        if op.type not in _tf.LOOPS:
            return False
        names = [op.get_attr(name).name for name in ("cond", "body")]
        cond, body = (_tf.function_graph(op.graph, name) for name in names)
        for i, t in enumerate(op.inputs):
            if t is not tensor:
                continue
            if not pops_only(body, i) or cond.inputs[i].consumers():
                return False
            later = op.outputs[i].consumers()
            if any(o.type != "Identity" or is_read(o.outputs[0]) for o in later):
                return False
    return True
