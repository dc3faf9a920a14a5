"""Values of a scope of ``lazy``: results of ops that run when somebody asks for a value."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import tensorflow as tf

from tf_pfor._tf import _eager_ops
from tf_pfor.core.nests import Nest
from tf_pfor.recording.tensors import Deferred
from tf_pfor.recording.traces import Place, Result


class KeepsLazy:
    """A recorder that takes lazy values as they are, and that they belong to."""

    def op(self, op_type: str, given: tuple[Any, ...]) -> Any:
        """Records an op."""

    def cut(self, reason: str) -> None:
        """Runs what was recorded."""

    def wait(self) -> None:
        """Waits until what was recorded has run."""


class Lazy(Deferred):
    """A result of a recorded op.

    Attributes:
      program: the recorder of the op; None when the op runs, or has run.
      runs_in: the recorder that runs the op now.
      error: the error of the trace, if that has failed before the op.
    """

    runs_in: KeepsLazy | None = None
    made: tf.Tensor | None = None
    error: Exception | None = None
    _handle_data = None  # no recorded value is a handle, or is on several devices
    is_packed = False

    def __init__(self, program: KeepsLazy, place: Place, result: Result) -> None:
        self.program: KeepsLazy | None = program
        self.place = place
        self.result = result

    @property
    def dtype(self) -> tf.DType:
        """The dtype."""
        return self.result.dtype

    @property
    def shape(self) -> tf.TensorShape:
        """The static shape."""
        return self.result.shape

    def as_input(self) -> tuple[Any, Any]:
        """Its form, and its id: no other value is known to be equal."""
        return self.result.form, id(self)

    @property
    def name(self) -> str:
        """Eager tensors have no name, either."""
        return self.tensor("name").name

    @property
    def device(self) -> str:
        """The device where the value is."""
        return _eager_ops.only_device() or self.tensor("device").device

    def set_shape(self, shape: tf.TensorShape) -> None:
        """Checks what the caller knows: the whole shape is known already."""
        if not self.result.shape.is_compatible_with(shape):
            raise ValueError(
                f"Tensor's shape {self.result.shape} is not compatible with supplied shape {shape}."
            )

    def _shape_tuple(self) -> tuple[int | None, ...]:
        return self.result.sizes

    def tensor(self, asked: str) -> tf.Tensor:
        """The value as an eager tensor; the first who asks runs what was recorded."""
        if self.made is None:
            if (program := self.program) is not None:
                program.cut(asked)
            if (program := self.runs_in) is not None:
                program.wait()
        if self.made is None:
            assert self.error is not None
            raise self.error
        return self.made

    def followed(self, asked: str) -> tf.Tensor:
        """The value, which tapes of this thread follow if they follow the recorded one."""
        made = self.tensor(asked)
        if self._number is not None and _eager_ops.is_taped():
            _eager_ops.link(self, made)
        return made

    def __tf_tensor__(self, dtype: tf.DType | None = None, name: str | None = None) -> tf.Tensor:
        self._check_dtype(dtype)
        if tf.executing_eagerly() and isinstance(_eager_ops.catcher(), KeepsLazy):
            return self
        return self.followed("code that is not recorded")

    def __str__(self) -> str:
        return str(self.tensor("str"))

    def __repr__(self) -> str:
        return repr(self.tensor("repr"))

    def __format__(self, spec: str) -> str:
        return format(self.tensor("format"), spec)

    def __dlpack__(self, **options: object) -> Any:
        return getattr(self.tensor("DLPack"), "__dlpack__")(**options)  # noqa: B009

    def __dlpack_device__(self) -> Any:
        return getattr(self.tensor("DLPack"), "__dlpack_device__")()  # noqa: B009

    def __getattr__(self, name: str) -> Any:
        if (
            name in ("op", "graph")
            or name.startswith("__")
            or not hasattr(_eager_ops.EagerTensor, name)
        ):
            raise AttributeError(f"A tensor has no attribute {name!r}.")
        return getattr(self.tensor(name), name)


@functools.lru_cache(maxsize=10_000)
def _slice_of(*whole: Nest) -> tuple[Any, ...]:
    """The inputs and attributes of a StridedSlice; ``whole``: types and values of an index.

    TensorFlow makes three tensors for each slice. An index is often used again.
    """
    begin, end, strides = [], [], []
    masks = dict.fromkeys(("begin", "end", "ellipsis", "new_axis", "shrink_axis"), 0)
    for k, (kind, item) in enumerate(zip(whole[::2], whole[1::2])):
        first, last, step = 0, 0, 1
        if kind is int:
            first, last = item, item + 1
            masks["shrink_axis"] |= 1 << k
        elif kind is slice:
            first, last, step = item
            masks["begin"] |= (first is None) << k
            masks["end"] |= (last is None) << k
            step = 1 if step is None else step
        else:
            masks["new_axis" if item is None else "ellipsis"] |= 1 << k
        begin.append(first or 0)
        end.append(last or 0)
        strides.append(step)
    attrs = [x for name, mask in masks.items() for x in (f"{name}_mask", mask)]
    with tf.init_scope():  # the index may be used in a graph first
        return tf.constant(begin), tf.constant(end), tf.constant(strides), *attrs


def _item(self: Lazy, index: Nest) -> Any:
    """A slice, recorded at once if the index has plain numbers only."""
    program = _eager_ops.catcher()
    usual = tf.Tensor.__getitem__
    is_usual = usual is _USUAL_ITEM and tf.executing_eagerly()
    if isinstance(program, KeepsLazy) and is_usual:
        whole: list[Any] = []
        for item in index if type(index) is tuple else (index,):
            if type(item) is int and abs(item) < _INT32:
                whole += int, item
            elif type(item) is slice:
                parts = item.start, item.stop, item.step
                if not all(x is None or (type(x) is int and abs(x) < _INT32) for x in parts):
                    return usual(self, index)
                whole += slice, parts
            elif item is None or item is Ellipsis:
                whole += type(item), item
            else:
                return usual(self, index)
        if whole:
            try:
                return program.op("StridedSlice", (self, *_slice_of(*whole)))
            except _eager_ops.RAW_ERRORS:
                pass  # the usual way makes the error that users know
    return usual(self, index)


_INT32 = 2**31 - 1
_USUAL_ITEM = tf.Tensor.__getitem__
setattr(Lazy, "__getitem__", _item)  # noqa: B010  # a type checker knows that of tf.Tensor
_FLOATS = frozenset([tf.float32, tf.float64])


def _operator(name: str, op_type: str, *, swapped: bool = False) -> Callable[[Lazy, object], Any]:
    """An operator that records its op at once, where TensorFlow would convert nothing."""

    def operator(self: Lazy, other: object) -> Any:
        program = _eager_ops.catcher()
        if isinstance(program, KeepsLazy) and _eager_ops.is_plain():
            cls, dtype = type(other), self.result.dtype
            is_tensor = cls is Lazy or cls is _eager_ops.EagerTensor
            if dtype in _FLOATS and (
                getattr(other, "dtype", None) is dtype if is_tensor else cls in (float, int)
            ):
                try:
                    return program.op(op_type, (other, self) if swapped else (self, other))
                except _eager_ops.RAW_ERRORS:
                    pass  # the usual way makes the error that users know
        return getattr(tf.Tensor, name)(self, other)

    operator.__name__ = name
    return operator


_ARITHMETIC = {"add": "AddV2", "sub": "Sub", "mul": "Mul", "truediv": "RealDiv", "pow": "Pow"}
_COMPARISONS = {"lt": "Less", "le": "LessEqual", "gt": "Greater", "ge": "GreaterEqual"}
for _name, _op_type in (_ARITHMETIC | _COMPARISONS).items():
    setattr(Lazy, f"__{_name}__", _operator(f"__{_name}__", _op_type))
for _name, _op_type in _ARITHMETIC.items():
    setattr(Lazy, f"__r{_name}__", _operator(f"__r{_name}__", _op_type, swapped=True))
