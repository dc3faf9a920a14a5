"""Finds the kinds of the calls that a thread makes: of ops, and of functions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from tf_pfor.core.nests import Nest
from tf_pfor.recording.forms import opened
from tf_pfor.recording.kinds import KindsOfOp, OpType, kind_of_unit
from tf_pfor.recording.nodes import Kind
from tf_pfor.recording.operands import Operands

_CONSTANTS = 1000  # integers that are kept as tensors


class Calls:
    """Finds kinds, for a recorder of examples and for a recorder of one program.

    Attributes:
      kinds: the kinds that were found before.
    """

    fixes_handles = True
    """Whether calls that use other variables are of other kinds."""

    def __init__(self, kinds: dict[Any, Any]) -> None:
        self.kinds = kinds
        self._constants: dict[Any, tf.Tensor] = {}

    def kinds_of_op(
        self,
        facts: OpType,
        inputs: list[Any],
        lengths: list[int],
        attrs: tuple[Any, ...],
        forms: tuple[Any, ...],
        held: Sequence[int] = (),
    ) -> KindsOfOp:
        """The kinds of calls of an op; ``forms`` is equal for inputs of one form.

        ``lengths`` is -1 for inputs that are no lists. ``held`` are the inputs that are constants.
        """
        key = (facts.name, hashable(attrs), *lengths, *held, *forms)
        kinds = self.kinds.get(key)
        if kinds is None:
            kinds = KindsOfOp(
                facts, inputs, lengths, attrs, fixes_handles=self.fixes_handles, held=held
            )
            self.kinds[key] = kinds
        return kinds

    def kind_of_unit(
        self,
        owner: object,
        name: str,
        fn: Callable[..., Any],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        *,
        is_plain: bool = False,
    ) -> tuple[Kind, list[Any], list[Any]]:
        """The kind of the call of a Python function, its tensors, and their names.

        ``owner`` is the function that the user called, by which kinds are told apart. ``is_plain``:
        ``fn`` is a function of this package, which is not traced for itself.
        """
        leaves: list[Any] = []
        names: list[Any] = []
        form = opened((args, kwargs) if kwargs else args, leaves, names)
        key = id(owner), form
        found = self.kinds.get(key)
        if found is None:
            others = [x for x in leaves if not isinstance(x, tf.Tensor)]
            kind = kind_of_unit(name, fn, args, kwargs, is_plain=is_plain)
            found = self.kinds[key] = kind, (owner, others)  # their ids stay theirs
        if len(names) < len(leaves):
            leaves = [x for x in leaves if isinstance(x, tf.Tensor)]
        return found[0], leaves, names

    def inputs(self, op_type: OpType, given: tuple[Any, ...]) -> tuple[list[Any], list[int]]:
        """The inputs of an op, with lists opened, and the lengths of the lists; -1 for others.

        Integers that no other input has the dtype of become tensors: an index may differ between
        calls that run together.
        """
        found: list[Any] = []
        lengths: list[int] = []
        operands: Operands | None = None
        for k, (given_x, is_list) in enumerate(zip(given, op_type.lists)):
            lengths.append(len(given_x) if is_list else -1)
            for x in given_x if is_list else (given_x,):
                if not isinstance(x, tf.Tensor):
                    if not op_type.is_sure(k, x, given):
                        operands = operands or Operands(op_type, given)
                        x = operands.made(k, x)
                    if op_type.are_alone[k] and not isinstance(x, (tf.Tensor, float)):
                        x = self._integers(x, op_type.dtypes[k])
                elif operands:
                    operands.read(k, x)
                found.append(x)
        return found, lengths

    def _integers(self, x: Nest, dtype: tf.DType | None) -> Any:
        """A tensor of integers that were given as Python's or NumPy's; other things stay."""
        array = np.asarray(x)
        if array.dtype.kind != "i":
            return x
        key = type(x), dtype, array.dtype, array.shape, array.tobytes()
        if key not in self._constants:
            if len(self._constants) >= _CONSTANTS:
                self._constants.clear()
            self._constants[key] = tf.constant(x, dtype)
        return self._constants[key]


def hashable(attrs: tuple[Any, ...]) -> Any:
    """Attributes as a key."""
    try:
        hash(attrs)
    except TypeError:
        return repr(attrs)
    return attrs
