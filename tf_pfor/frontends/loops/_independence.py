"""Whether the trips of a while loop are independent, and what each of its variables is.

A loop is vectorized if each trip reads only constants of the loop, counters, and slices of lists
that no trip writes. Of each list that the loop fills, a trip may write one slice that no other trip
writes. A variable that a trip overwrites without reading it has the value of the last trip. Any
other loop is kept.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from typing import Any

import tensorflow as tf

from tf_pfor import _tf
from tf_pfor._tf._all_ops import all_ops
from tf_pfor.core.accesses import READS

Outside = Callable[[tf.Tensor], tf.Tensor | None]
"""What an input of the loop is in the graph that the loop is to stand in; None if unknown."""

_COUNTS = (tf.int32, tf.int64)  # narrower integers wrap around; a range has no unsigned ones
_SLICE_OF_LIST = "TensorListSetItem"
# Stateful ops that mean the same when all trips run at once.
_HARMLESS = frozenset(
    [
        *READS,
        "Assert",
        "CheckNumerics",
        "CheckNumericsV2",
        "Placeholder",
        "VarHandleOp",
        "VariableShape",
    ]
)


class Dependent(Exception):  # noqa: N818  (a verdict, not an error)
    """Trips are not independent, or cannot be proven to be; says why, and in which line."""

    def __init__(self, why: str, line: str = ""):
        super().__init__(why)
        self.line = line


@dataclasses.dataclass(frozen=True, slots=True)
class Counter:
    """A variable that is ``start + step * t`` in trip t."""

    start: tf.Tensor
    step: int


@dataclasses.dataclass(frozen=True, slots=True)
class Written:
    """A list of which each trip writes one slice.

    Attributes:
      before: the list before the loop.
      index: the number of the slice, a tensor of the body.
      item: the item that is written, a tensor of the body.
      is_trip: the slice has the number of the trip.
      may_grow: a write beyond the end makes the list longer.
    """

    before: tf.Tensor
    index: tf.Tensor
    item: tf.Tensor
    is_trip: bool
    may_grow: bool


@dataclasses.dataclass(frozen=True, slots=True)
class Overwritten:
    """A variable that each trip overwrites and none reads: the last trip's value counts."""

    before: tf.Tensor
    value: tf.Tensor


@dataclasses.dataclass(frozen=True, slots=True)
class Bound:
    """A condition that ends the loop: ``start + step * t < limit`` must hold in trip t.

    Attributes:
      start: the start of the counter.
      step: the step of the counter, not 0.
      limit: the limit of the counter.
      is_inclusive: whether the limit itself still counts.
    """

    start: tf.Tensor
    step: int
    limit: tf.Tensor | int
    is_inclusive: bool


Variable = Counter | Written | Overwritten | None  # None: the same in all trips


def source(tensor: tf.Tensor) -> tf.Tensor:
    """The tensor behind any Identity ops."""
    while tensor.op.type == "Identity":
        tensor = tensor.op.inputs[0]
    return tensor


def static_int(tensor: tf.Tensor) -> int | None:
    """The value of an integer scalar, None if it is not known."""
    if not tensor.dtype.is_integer or tensor.shape.rank not in (0, None):
        return None
    known = _tf.static_value(tensor)
    return None if known is None or known.ndim else int(known)


class Analysis:
    """The variables of a loop and its bounds.

    Attributes:
      body: the graph of a trip.
      inputs: the variables before the first trip.
      variables: the kind of each variable.
      bounds: the bounds of the loop: all of them must hold for another trip.
    """

    def __init__(self, op: tf.Operation, outside: Outside):
        self.body = _tf.function_graph(op.graph, op.get_attr("body").name)
        self._cond = _tf.function_graph(op.graph, op.get_attr("cond").name)
        self._places = {id(t): i for i, t in enumerate(self.body.inputs)}
        _check_end(self._cond.outputs[0])
        _check_effects(self._cond, self.body)
        found = [outside(t) for t in op.inputs]
        self.inputs: list[tf.Tensor] = []
        for i, tensor in enumerate(found):
            if tensor is None:
                raise Dependent(f"what variable {i} of the loop is before it could not be found")
            self.inputs.append(tensor)
        self._fixed = {
            i for i, t in enumerate(self.body.outputs) if source(t) is self.body.inputs[i]
        }
        self.variables: list[Variable] = [self._variable(i) for i in range(len(self.inputs))]
        self._check_reads()
        self.bounds = list(self._bounds(self._cond.outputs[0]))
        if not self.bounds:
            raise Dependent("the number of trips is not a matter of a counter and a limit")

    def place(self, tensor: tf.Tensor) -> int | None:
        """The number of the variable that a tensor of the body is, as the trip got it."""
        return self._places.get(id(source(tensor)))

    def is_trip(self, tensor: tf.Tensor) -> bool:
        """Whether a tensor of the body is the number of the trip, 0, 1 ..."""
        found = self._affine(tensor)
        if found is None:
            return False
        counter, factor, offset = found
        start = static_int(counter.start)
        return start is not None and counter.step * factor == 1 and start * factor + offset == 0

    # What a variable is ---------------------------------------------------

    def _variable(self, i: int) -> Variable:
        if i in self._fixed:
            return None
        before, after = self.inputs[i], source(self.body.outputs[i])
        step = self._step(i, after)
        if step is not None:
            return Counter(before, step)
        if before.dtype == tf.variant:
            return self._written(i, after)
        if before.dtype == tf.resource:
            raise Dependent("a handle changes from trip to trip")
        return Overwritten(before, self.body.outputs[i])

    def _step(self, i: int, after: tf.Tensor) -> int | None:
        """The number that each trip adds to variable ``i``, if it is known and not 0."""
        if after.op.type not in ("Add", "AddV2", "Sub") or after.dtype not in _COUNTS:
            return None
        if after.shape.rank != 0:
            return None
        pairs = [(after.op.inputs[0], after.op.inputs[1])]
        if after.op.type != "Sub":
            pairs.append((after.op.inputs[1], after.op.inputs[0]))
        for given, other in pairs:
            if self.place(given) == i:
                step = self._known(other)
                if step:
                    return -step if after.op.type == "Sub" else step
        return None

    def _known(self, tensor: tf.Tensor) -> int | None:
        """An integer of the body that is known: a constant, or the same constant in all trips."""
        place = self.place(tensor)
        if place is None:
            return static_int(tensor)
        return static_int(self.inputs[place]) if place in self._fixed else None

    def _written(self, i: int, after: tf.Tensor) -> Written:
        op = after.op
        if op.type != _SLICE_OF_LIST:
            how = (
                "in some cases only, or otherwise than"
                if op.type in _tf.CONTAINERS
                else "another way"
            )
            raise Dependent(f"a trip writes a list{_at(op)} {how}, expected: one slice of it")
        handle, index, item = op.inputs
        if self.place(handle) != i:
            raise Dependent(f"a trip writes more than one slice of a list{_at(op)}")
        if item.dtype == tf.variant:
            raise Dependent(f"what is written{_at(op)} is a list or a ragged tensor")
        affine = self._affine(index)
        if affine is None or affine[0].step * affine[1] % 2**32 == 0:  # an index is an int32
            raise Dependent(
                f"the slice that is written{_at(op)} is not told by a counter of the loop, so "
                "that two trips might write the same one"
            )
        may_grow = bool(op.get_attr("resize_if_index_out_of_bounds"))
        return Written(self.inputs[i], index, item, self.is_trip(index), may_grow)

    def _affine(self, tensor: tf.Tensor) -> tuple[Counter, int, int] | None:
        """A tensor as ``factor * counter + offset``, or None."""
        tensor = source(tensor)
        place = self.place(tensor)
        if place is not None:
            step = self._step(place, source(self.body.outputs[place]))
            return None if step is None else (Counter(self.inputs[place], step), 1, 0)
        op = tensor.op
        if op.type == "Cast" and tensor.dtype in _COUNTS:
            return self._affine(op.inputs[0])
        if op.type not in ("Add", "AddV2", "Sub", "Mul") or not tensor.dtype.is_integer:
            return None
        for k in (0, 1):
            inner, other = self._affine(op.inputs[k]), self._known(op.inputs[1 - k])
            if inner is None or other is None:
                continue
            counter, factor, offset = inner
            if op.type == "Mul":
                return counter, factor * other, offset * other
            if op.type != "Sub":
                return counter, factor, offset + other
            return (
                (counter, factor, offset - other) if k == 0 else (counter, -factor, other - offset)
            )
        return None

    # What a trip reads ----------------------------------------------------

    def wanted(self) -> list[tf.Tensor]:
        """The tensors of the body that are needed of all trips."""
        found: list[tf.Tensor] = []
        for variable in self.variables:
            if isinstance(variable, Written):
                found += [variable.index, variable.item]
            elif isinstance(variable, Overwritten):
                found.append(variable.value)
        return found

    def effects(self) -> list[tf.Operation]:
        """The checks of the body, which are wanted even if nothing reads their results."""
        return [op for op in self.body.control_outputs if op.type not in READS]

    def _check_reads(self) -> None:
        """Refuses what a trip reads of another one."""
        for i in sorted(self._reached()):
            variable = self.variables[i]
            if isinstance(variable, Written):
                raise Dependent("a trip reads a list that others write")
            if isinstance(variable, Overwritten):
                name = source(self.body.outputs[i]).op
                raise Dependent(
                    f"a trip reads what the trip before it has left: {name.type}{_at(name)}"
                )

    def _reached(self) -> set[int]:
        """The variables on which something depends that is wanted; not their own places."""
        found: set[int] = set()
        stack = [*(t.op for t in self.wanted()), *self.effects()]
        seen: set[Any] = set()
        while stack:
            op = stack.pop()
            if op in seen:
                continue
            seen.add(op)
            for tensor in op.outputs:
                place = self._places.get(id(tensor))
                if place is not None:
                    found.add(place)
            stack += [*(t.op for t in op.inputs), *op.control_inputs]
        return found

    # How many trips -------------------------------------------------------

    def _bounds(self, predicate: tf.Tensor) -> Iterator[Bound]:
        op = source(predicate).op
        if op.type == "LogicalAnd":
            for tensor in op.inputs:
                yield from self._bounds(tensor)
            return
        if op.type not in ("Less", "LessEqual", "Greater", "GreaterEqual"):
            raise Dependent(f"its condition is more than a counter and a limit: {op.type}{_at(op)}")
        left, right = op.inputs
        is_less, is_inclusive = op.type.startswith("Less"), op.type.endswith("Equal")
        counter, limit = self._side(left), self._limit(right)
        if counter is None or limit is None:
            counter, limit, is_less = self._side(right), self._limit(left), not is_less
        if counter is None or limit is None:
            raise Dependent(f"its condition is more than a counter below a limit: {op.type}")
        if (counter.step > 0) != is_less:
            raise Dependent("its counter goes away from its limit")
        yield Bound(counter.start, counter.step, limit, is_inclusive)

    def _cond_place(self, tensor: tf.Tensor) -> int | None:
        tensor = source(tensor)
        return next((i for i, t in enumerate(self._cond.inputs) if t is tensor), None)

    def _side(self, tensor: tf.Tensor) -> Counter | None:
        place = self._cond_place(tensor)
        found = None if place is None else self.variables[place]
        return found if isinstance(found, Counter) else None

    def _limit(self, tensor: tf.Tensor) -> tf.Tensor | int | None:
        place = self._cond_place(tensor)
        if place is not None:
            return self.inputs[place] if place in self._fixed else None
        return static_int(tensor)


def _at(op: tf.Operation) -> str:
    line = _tf.user_line(op)
    return f" ({line})" if line else ""


def _check_end(predicate: tf.Tensor) -> None:
    """Refuses loops with a break or a return: a part of their condition is what trips say."""
    op = source(predicate).op
    if op.type == "LogicalAnd":
        for tensor in op.inputs:
            _check_end(tensor)
    elif op.type in ("If", "StatelessIf", "LogicalNot"):
        raise Dependent("it may end early (break, return, or a condition on what is computed)")


def _check_effects(*graphs: tf.Graph) -> None:
    """Refuses ops with side effects or of which the order counts."""
    for op in all_ops(*graphs):
        schema = _tf.schema(op.type)
        if schema is None:
            raise Dependent(f"{op.type}{_at(op)} is an op that this TensorFlow does not know")
        if schema.is_stateful and op.type not in _HARMLESS and op.type not in _tf.CONTAINERS:
            raise Dependent(
                f"{op.type}{_at(op)} has side effects or random numbers, which come in the order "
                "of the trips"
            )
