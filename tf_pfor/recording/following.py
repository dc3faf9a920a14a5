"""Decides what a call of an op becomes that a trace has not seen at this place."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import tensorflow as tf

from tf_pfor._tf import _eager_ops
from tf_pfor._tf._eager_ops import PASSED, EagerTensor
from tf_pfor._tf._stacks import caller
from tf_pfor.core.accesses import ASSIGNMENTS
from tf_pfor.core.nests import Nest
from tf_pfor.recording.calls import Calls
from tf_pfor.recording.forms import FOLLOWED, form_of
from tf_pfor.recording.kinds import SMALL, KindsOfOp, OpType
from tf_pfor.recording.lazy_tensors import Lazy
from tf_pfor.recording.nodes import Kind
from tf_pfor.recording.traces import Place, Step, Traces

EAGERLY: Final = object()
"""A call that is not recorded: what was recorded runs, and then the op."""

CUT: Final = object()
"""A call before which the trace ends."""

_READS = frozenset(["ReadVariableOp", "ResourceGather", "ResourceGatherNd"])
_WRITES = ("ResourceApply", "ResourceSparseApply", "ResourceScatter", "RngReadAndSkip")
_NEVER = ("Dataset", "PyFunc", "Iterator", "Collective", "Placeholder", "TensorList")
_ALONE = (
    "Random",
    "TruncatedNormal",
    "ParameterizedTruncatedNormal",
    "Multinomial",
    "VarHandleOp",
)
_HANDLES = frozenset([tf.resource, tf.variant, tf.string])
_ATTRIBUTES = (bool, int, float, str, bytes, tf.DType, tf.TensorShape, type(None))


class ByValue:
    """Calls of an op that are told apart by the values of some inputs, which decide on shapes.

    Attributes:
      kinds: the kinds of the op.
      places: the numbers of the inputs.
      steps: the calls, by values.
    """

    __slots__ = ("kinds", "places", "steps")

    def __init__(self, kinds: KindsOfOp) -> None:
        self.kinds = kinds
        self.places = kinds.places
        self.steps: dict[Any, Any] = {}


class Recording(Calls):
    """A program that is being recorded.

    Attributes:
      traces: the traces of all programs.
    """

    fixes_handles = False
    _inputs: list[tf.Tensor]  # of the trace
    _known: dict[int, Place]  # by the ids of tensors

    def __init__(self, traces: Traces) -> None:
        super().__init__(traces.kinds)
        self.traces = traces

    def found(self, step: Step, facts: OpType, given: tuple[Any, ...], items: list[Any]) -> Any:
        """Decides on a call: a Step, ByValue, a known tensor, PASSED, EAGERLY or CUT."""
        tensors = [x for x in items if isinstance(x, tf.Tensor)]
        attrs = given[len(facts.lists) :]
        way = _way(facts, tensors, attrs)
        if way is not None:
            return way
        if facts.name == "Shape":
            dtype = dict(zip(attrs[::2], attrs[1::2])).get("out_type", tf.int32)
            sizes: Nest = tensors[0].shape.as_list()
            return tf.constant(sizes, dtype)
        lengths = [len(x) if is_list else -1 for x, is_list in zip(given, facts.lists)]
        try:
            inputs = _numbers_as_tensors(facts, lengths, items)
        except Exception:  # a number that its dtype does not hold
            inputs = None
        if inputs is None:
            return EAGERLY
        forms = [
            _eager_ops.form_of_input(x)
            if isinstance(x, tf.Tensor) and x.dtype == tf.resource
            else (form_of(x), type(x) is Lazy)
            for x in inputs
        ]
        try:
            # An exponent is a constant: XLA has a faster way for 2, and few programs change it.
            held = [1] if facts.name == "Pow" and type(items[1]) in (int, float) else []
            kinds = self.kinds_of_op(facts, inputs, lengths, attrs, tuple(forms), held)
        except Exception:  # the op itself has the error that users know
            return EAGERLY
        return ByValue(kinds) if kinds.places else self.after(step, kinds, items)

    def after(self, before: Step, kinds: KindsOfOp | Kind, items: list[Any]) -> Any:
        """The call of an op or a function after others; or EAGERLY, or CUT."""
        if isinstance(kinds, Kind):
            kind, varying = kinds, list(range(len(items)))
        else:
            varying = kinds.varying
            try:
                inputs = _numbers_as_tensors(kinds.op_type, kinds.lengths, items)
                kind = kinds.of(inputs or items)
            except Exception:
                return EAGERLY
        if kind.results is None or any(spec.dtype in _HANDLES for spec in kind.results):
            return EAGERLY
        # A function captures variables by itself, so TensorFlow cannot order it among writes.
        if before.writes and (kind.may_fail or kind.captured):
            return CUT
        if kind.writes and before.reads_variables:
            return CUT
        reads: list[int] = []
        takes: list[tuple[int, tf.DType | None]] = []
        new: dict[int, int] = {}
        for at, k in enumerate(varying):
            x = items[k]
            is_tensor = isinstance(x, tf.Tensor)
            place = x.place if type(x) is Lazy else self._known.get(id(x))
            number = new.get(id(x)) if place is None else place.number
            if number is None or not is_tensor:
                number = ~(len(self._inputs) + len(takes))
                takes.append((k, None if is_tensor else kind.inputs[at].dtype))
                if is_tensor:
                    new[id(x)] = number
            reads.append(number)
        return self.traces.step(before, kind, reads, varying, takes, caller())


def _way(facts: OpType, tensors: Sequence[tf.Tensor], attrs: Sequence[Any]) -> object:
    """PASSED or EAGERLY for an op that is not recorded; None for others."""
    handles = [x for x in tensors if x.dtype in _HANDLES]
    is_stateful = facts.is_stateful or facts.is_read
    if not is_stateful and not handles and all(map(_is_small, tensors)):
        return PASSED
    if facts.name.startswith(_ALONE) and not any(type(x) is Lazy for x in tensors):
        return PASSED  # it has its own order, and reads nothing that is recorded
    is_other = not _is_access(facts.name, handles) if is_stateful else bool(handles)
    if is_other or any(word in facts.name for word in _NEVER):
        return EAGERLY
    return None if all(map(_is_attribute, attrs[1::2])) else EAGERLY


def value_of(x: Nest) -> Any:
    """The value of an input as a key."""
    if type(x) is EagerTensor:
        return _eager_ops.form_of_input(x), x.numpy().tobytes()
    return type(x), x


def _is_access(op_type: str, handles: Sequence[tf.Tensor]) -> bool:
    """Whether an op reads or writes one variable, and nothing else."""
    is_one = op_type in ASSIGNMENTS or op_type in _READS or op_type.startswith(_WRITES)
    return is_one and bool(handles) and all(x.dtype == tf.resource for x in handles)


def _is_small(x: tf.Tensor) -> bool:
    """Whether a tensor is known, and may be a shape, an index or a counter."""
    return (
        type(x) is not Lazy
        and x.dtype.as_datatype_enum not in FOLLOWED
        and (x.shape.num_elements() or 0) <= SMALL
    )


def _is_attribute(x: object) -> bool:
    if isinstance(x, (list, tuple)):
        return all(map(_is_attribute, x))
    return isinstance(x, _ATTRIBUTES)


def _numbers_as_tensors(
    facts: OpType, lengths: Sequence[int], items: Sequence[Any]
) -> list[Any] | None:
    """The inputs with numbers as tensors; None where their dtype is not known."""
    supply = iter(items)
    pairs = [
        (argument, next(supply))
        for argument, length in enumerate(lengths)
        for _ in range(1 if length < 0 else length)
    ]
    attrs = facts.type_attrs
    found: list[Any] = []
    for argument, x in pairs:
        if type(x) not in (int, float):
            if type(x) is bool and attrs[argument]:
                return None  # its dtype is bool only if no other input has another one
            found.append(x)
        elif facts.are_alone[argument] or not attrs[argument]:
            if type(x) is float:
                return None
            found.append(tf.constant(x))
        else:
            same = [y for k, y in pairs if attrs[k] == attrs[argument] and isinstance(y, tf.Tensor)]
            if not same or (type(x) is float and not same[0].dtype.is_floating):
                return None
            found.append(tf.constant(x, same[0].dtype))
    return found
