"""Tensors whose values are not made yet: they behave as eager tensors, and wait where they must."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from typing import Any, NoReturn

import numpy as np
import tensorflow as tf

from tf_pfor._tf import _eager_ops
from tf_pfor._tf._types import RAGGED
from tf_pfor.core.nests import Nest


class Deferred(tf.Tensor, _eager_ops.Value):  # pyright: ignore[reportUntypedBaseClass]
    """A tensor with a known dtype and shape, whose value is made when somebody asks for it."""

    _number: int | None = None

    def as_input(self) -> tuple[Any, Any]:
        """Its form (dtype and sizes), and a name that is equal for values known to be equal."""
        raise NotImplementedError

    def tensor(self, asked: str) -> tf.Tensor:
        """The value as an eager tensor; ``asked``: the name of what asks for it."""
        raise NotImplementedError

    @property
    def dtype(self) -> tf.DType:
        """The dtype."""
        raise NotImplementedError

    @property
    def shape(self) -> tf.TensorShape:
        """The static shape."""
        raise NotImplementedError

    @property
    def ndim(self) -> int | None:
        """The number of axes."""
        return self.shape.rank

    @property
    def device(self) -> str:
        """No device is known before the op runs."""
        return ""

    @property
    def op(self) -> NoReturn:
        """Recorded values are in no graph."""
        raise AttributeError("A recorded tensor has no op in a graph.")

    @property
    def graph(self) -> NoReturn:
        """Recorded values are in no graph."""
        raise AttributeError("A recorded tensor is in no graph.")

    def get_shape(self) -> tf.TensorShape:
        """The static shape."""
        return self.shape

    def _shape_as_list(self) -> list[int | None]:
        return self.shape.as_list()

    def _rank(self) -> int | None:
        return self.shape.rank

    def _num_elements(self) -> int | None:
        return self.shape.num_elements()

    def _check_dtype(self, dtype: tf.DType | None) -> None:
        if dtype is not None and not tf.as_dtype(dtype).is_compatible_with(self.dtype):
            raise ValueError(
                f"Tensor conversion requested dtype {tf.as_dtype(dtype).name} for a tensor with "
                f"dtype {self.dtype.name}, and shape {self.shape}."
            )

    @property
    def _datatype_enum(self) -> Callable[[], int]:
        return lambda: self.dtype.as_datatype_enum

    @property
    def _id(self) -> int:
        if self._number is None:
            self._number = _eager_ops.new_id()
        return self._number

    # -----------------------------------------------------------------------
    # Values
    # -----------------------------------------------------------------------

    def numpy(self) -> Any:
        """The value as a NumPy array: what was recorded so far runs now."""
        return self.tensor("numpy").numpy()

    def _numpy(self) -> Any:
        return self.numpy()

    def __array__(self, dtype: Nest = None, copy: bool | None = None) -> Any:
        found = self.tensor("a NumPy array").numpy()
        return np.array(found if dtype is None else found.astype(dtype))

    def __bool__(self) -> bool:
        return bool(self.tensor("bool"))

    def __int__(self) -> int:
        return int(self.tensor("int"))

    def __float__(self) -> float:
        return float(self.tensor("float"))

    def __complex__(self) -> complex:
        return complex(self.tensor("complex"))

    def __index__(self) -> int:
        return self.tensor("an index").__index__()

    def __round__(self, digits: int | None = None) -> Any:
        found: Nest = self.tensor("round").numpy()
        return round(found, digits)

    def __len__(self) -> int:
        if not self.shape.rank:
            raise TypeError("Scalar tensor has no `len()`")
        return int(self.shape[0] or 0)

    def __iter__(self) -> Iterator[Any]:
        if not self.shape.rank:
            raise TypeError("Cannot iterate over a scalar tensor.")
        return (self[i] for i in range(len(self)))

    def __reduce__(self) -> Any:
        return tf.constant, (self.numpy(),)

    def __copy__(self) -> Deferred:
        return self

    def __deepcopy__(self, memo: object) -> Deferred:
        return self


@functools.cache
def show_ragged() -> None:
    """Lets RaggedTensors find the values of recorded tensors, in scopes and after them.

    TensorFlow asks whether their parts are EagerTensors, which recorded tensors are not.
    """
    for name in ("__repr__", "numpy", "to_list"):
        setattr(RAGGED, name, _with_values(getattr(RAGGED, name)))


def _with_values(method: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """A method of RaggedTensors that reads values in place of recorded tensors."""

    @functools.wraps(method)
    def found(self: tf.RaggedTensor) -> Any:
        parts = tf.nest.flatten(self, expand_composites=True)
        if not any(isinstance(x, Deferred) for x in parts):
            return method(self)
        name = method.__name__.strip("_")
        made = [x.tensor(name) if isinstance(x, Deferred) else x for x in parts]
        return method(tf.nest.pack_sequence_as(self, made, expand_composites=True))

    return found
