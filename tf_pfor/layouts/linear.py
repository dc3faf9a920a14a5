"""Integers of the body as sums: numbers that differ between rows by what is known before running.

``k + 3`` and ``k`` differ by 3, and ``k + (5 - k)`` is 5, whatever k is.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import tensorflow as tf

from tf_pfor import _tf
from tf_pfor._tf._strided_slices import MASKS
from tf_pfor.core.call import Call
from tf_pfor.core.conversion import Conversion
from tf_pfor.core.values import Shape, all_known

_MOST = 64  # elements of a tensor that is followed


@dataclasses.dataclass(frozen=True, slots=True)
class Form:
    """A sum of unknown integers and a constant.

    Attributes:
      terms: the unknown integers, each with its factor; terms with factor 0 are left out.
      constant: the constant that is added.
    """

    terms: frozenset[tuple[Any, int]]
    constant: int

    def plus(self, other: Form, times: int) -> Form:
        """This and ``times`` the other one."""
        counts = dict(self.terms)
        for name, count in other.terms:
            counts[name] = counts.get(name, 0) + times * count
        terms = frozenset((name, count) for name, count in counts.items() if count)
        return Form(terms, self.constant + times * other.constant)

    @property
    def known(self) -> int | None:
        """The number, if it is known."""
        return None if self.terms else self.constant

    @property
    def base(self) -> tf.Tensor | None:
        """The scalar tensor that the constant is added to; None for any other sum."""
        if len(self.terms) != 1:
            return None
        (((name, place), count),) = self.terms
        is_one = count == 1 and place == () and len(name) == 2
        return name[0].outputs[name[1]] if is_one else None


def forms_of(call: Call, tensor: tf.Tensor) -> np.ndarray | None:
    """``forms`` of a tensor that a call reads; equal ones inside and outside of a function."""
    return forms(tensor, _given(call.memo, call.walker, tensor.graph))


def _given(memo: dict[Any, Any], walker: Conversion | None, graph: tf.Graph) -> dict[Any, Any]:
    """The forms of the inputs of a function that the graph around it knows as well."""
    key = ("integers from outside", walker)
    if walker is not None and key not in memo:
        found = memo[key] = {}
        for tensor in getattr(graph, "inputs", ()):
            outer = walker.outside(tensor) if tensor.dtype in (tf.int32, tf.int64) else None
            if outer is not None:
                made = forms(outer, _given(memo, walker.parent, outer.graph))
                found.update({} if made is None else {(tensor.op, tensor.value_index): made})
    return memo.get(key, {})


def forms(tensor: tf.Tensor, known: dict[Any, Any] | None = None) -> np.ndarray | None:
    """The elements of an integer tensor of the body, of its shape; None if that is not known.

    Args:
      tensor: the tensor.
      known: the forms of other tensors, found on the way.
    """
    known, key = {} if known is None else known, (tensor.op, tensor.value_index)
    if key not in known:
        known[key] = _found(tensor, known)
    return known[key]


def _found(tensor: tf.Tensor, known: dict[Any, Any]) -> np.ndarray | None:
    shape = tensor.shape
    if tensor.dtype not in (tf.int16, tf.int32, tf.int64) or not shape.is_fully_defined():
        return None
    if shape.num_elements() > _MOST:
        return None
    made = _forms(tensor, known)
    if made is None or made.shape != tuple(shape):
        name = _name(tensor, known)
        made = np.empty(tuple(shape.as_list()), object)  # type: ignore[arg-type]
        for i in np.ndindex(*made.shape):
            made[i] = Form(frozenset([((name, i), 1)]), 0)
    return made


def _name(tensor: tf.Tensor, known: dict[Any, Any]) -> Any:
    """Equal for numbers that are made alike of the same ones."""
    op = tensor.op
    if op.type in _ALIKE and not op.control_inputs:
        parts: list[Any] = [forms(t, known) for t in op.inputs]
        if all(p is not None and all(map(_is_simple, p.flat)) for p in parts):
            return (op.type, tensor.dtype, *(tuple(p.flat) for p in parts))
    if op.type == "StridedSlice" and not op.control_inputs:
        vectors = [_tf.static_value(t) for t in op.inputs[1:]]
        if all_known(vectors):  # read twice it is the same
            whole = (op.inputs[0].op, op.inputs[0].value_index)
            masks = tuple(op.get_attr(name) for name in MASKS)
            return (op.type, whole, *(tuple(v.tolist()) for v in vectors), masks)
    return (op, tensor.value_index)


def _is_simple(form: Form) -> bool:
    """Whether the terms are tensors themselves: names of names would grow without end."""
    return all(len(name) == 2 or name[0] == "StridedSlice" for (name, _), _ in form.terms)


_ALIKE = ("FloorDiv", "FloorMod", "Maximum", "Minimum", "Mul", "TruncateDiv", "TruncateMod")


def _forms(tensor: tf.Tensor, found: dict[Any, Any]) -> np.ndarray | None:
    known = _tf.static_value(tensor)
    if known is not None:
        return _array([Form(frozenset(), int(x)) for x in known.reshape([-1])], known.shape)
    op, shape = tensor.op, tensor.shape.as_list()
    if op.type == "Cast" and op.inputs[0].dtype == tf.int32 and tensor.dtype == tf.int64:
        return forms(op.inputs[0], found)
    if op.type in ("ExpandDims", "Identity", "Reshape", "Squeeze"):
        made = forms(op.inputs[0], found)
        return None if made is None else made.reshape(shape)
    if op.type == "Pack":
        parts = [forms(t, found) for t in op.inputs]
        if not all_known(parts):
            return None
        return np.stack(parts, op.get_attr("axis"))
    if op.type == "ConcatV2":
        axis, parts = (
            _tf.static_value(op.inputs[-1]),
            [forms(t, found) for t in list(op.inputs)[:-1]],
        )
        if axis is None or not all_known(parts):
            return None
        return np.concatenate(parts, int(axis))
    if op.type in ("Add", "AddV2", "Sub"):
        left, right = (forms(t, found) for t in op.inputs)
        if left is None or right is None:
            return None
        times = -1 if op.type == "Sub" else 1
        both = np.broadcast(left, right)
        return _array([a.plus(b, times) for a, b in both], both.shape)
    return None


def _array(items: list[Form], shape: Shape) -> np.ndarray:
    made = np.empty(len(items), object)
    made[:] = items
    return made.reshape(shape)
