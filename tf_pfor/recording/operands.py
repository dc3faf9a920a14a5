"""Operands: NumPy values, numbers and lists as tensors of the dtype that eager ops give them."""

from __future__ import annotations

from typing import Any

import numpy as np
import tensorflow as tf

from tf_pfor.core import nests
from tf_pfor.core.nests import Nest
from tf_pfor.recording.kinds import SMALL, OpType

_NUMPY = (np.ndarray, np.generic)
_NUMBERS = (bool, int, float, complex)


class Operands:
    """The inputs of a call that are no tensors.

    An eager op gives a NumPy value the dtype of a tensor that has the same attribute for its dtype.
    The tensor may come before the value or after it. Without such a tensor the first value decides.
    """

    def __init__(self, op_type: OpType, given: tuple[Any, ...]) -> None:
        self._op_type = op_type
        self._given = given[: op_type.count]
        self._known: dict[str, tf.DType] = {}  # by attribute, from inputs before

    def read(self, k: int, x: tf.Tensor) -> None:
        """Hears of a tensor or a variable among the inputs number k."""
        if attr := self._op_type.type_attrs[k]:
            self._known.setdefault(attr, x.dtype)

    def made(self, k: int, x: Nest) -> Any:
        """A tensor or a small NumPy array in place of ``x``, or ``x`` where its dtype is sure.

        Args:
          k: the number of the input.
          x: the input, or an item of it where that is a list.

        Raises:
          TypeError: the value does not have the dtype that the op needs. Eager ops say the same.
        """
        if isinstance(x, tf.Variable) or hasattr(x, "__tf_tensor__"):
            found = tf.convert_to_tensor(x)
            self.read(k, found)
            return found
        leaves = nests.flatten(x) if isinstance(x, (list, tuple)) else [x]
        if any(isinstance(item, tf.Tensor) for item in leaves):
            found = _as(tf.stack(x), self._dtype(k))
            self.read(k, found)
            return found
        is_numpy = any(isinstance(item, _NUMPY) for item in leaves)
        if not is_numpy and not (self._may_differ(k) and type(leaves[0]) in _NUMBERS):
            return x
        found = tf.constant(x, self._dtype(k))
        self.read(k, found)
        size = found.shape.num_elements() or 0
        return found if size > SMALL or found.dtype == tf.string else found.numpy()

    def _may_differ(self, k: int) -> bool:
        """Whether a number among the inputs number k gets its dtype from a later input."""
        facts = self._op_type
        return not facts.are_alone[k] and not any(
            attr == facts.type_attrs[k] and isinstance(x, tf.Tensor)
            for attr, x in zip(facts.type_attrs[:k], self._given)
        )

    def _dtype(self, k: int) -> tf.DType | None:
        """The dtype of a value among the inputs number k; None: the value decides."""
        facts = self._op_type
        attr = facts.type_attrs[k]
        if facts.dtypes[k] is not None or not attr:
            return facts.dtypes[k]
        if attr not in self._known:
            for x, other, is_list in zip(self._given, facts.type_attrs, facts.lists):
                for item in x if is_list else (x,):
                    if other == attr and isinstance(item, (tf.Tensor, tf.Variable)):
                        return item.dtype
        return self._known.get(attr)


def without_numpy(x: object) -> Any:
    """A NumPy value as a tensor of its dtype; other things stay."""
    found: Nest = x
    return tf.constant(found) if isinstance(x, _NUMPY) else x


def _as(x: tf.Tensor, dtype: tf.DType | None) -> tf.Tensor:
    """A tensor as another dtype, where that is as wide a kind of number."""
    if dtype is None or dtype == x.dtype:
        return x
    given, asked = _rank(x.dtype), _rank(dtype)
    return tf.cast(x, dtype) if given and asked and given <= asked else x


def _rank(dtype: tf.DType) -> int:
    """A number for a kind of dtypes, larger where it is wider; 0 for dtypes of no numbers."""
    return 3 * dtype.is_complex + 2 * dtype.is_floating + dtype.is_integer
