"""Emitter: adds ops to the vectorized graph, one constant per value."""

from __future__ import annotations

import contextlib
import contextvars
import functools
import operator
from collections.abc import Callable, Generator, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from tf_pfor import _tf
from tf_pfor._tf import _graphs
from tf_pfor.core.ranges import Bounds
from tf_pfor.core.values import Value, dims, is_static

Dim = int | tf.Tensor
"""A dimension: an int when it is static, else a scalar int32 tensor."""

DIM_MATH: dict[str, Callable[[int, int], int]] = {
    "AddV2": operator.add,
    "FloorDiv": operator.floordiv,
    "FloorMod": operator.mod,
    "Maximum": max,
    "Minimum": min,
    "Mul": operator.mul,
    "Sub": operator.sub,
}


# Gradients of lists under XLA, registered in ``padded``: the place of each item is kept.
IN_PLACE = {
    "TensorListFromTensor": "TfPforListInPlace",
    "TensorListStack": "TfPforStackInPlace",
}

PLAIN = {
    tf.qint8: tf.int8,
    tf.quint8: tf.uint8,
    tf.qint16: tf.int16,
    tf.quint16: tf.uint16,
    tf.qint32: tf.int32,
}
"""Quantized numbers as plain ones: most kernels that only move elements do not take the former."""

_FOLDED = 64  # elements of an input of what is computed here
_SALT: contextvars.ContextVar[int] = contextvars.ContextVar("tf_pfor_salt", default=0)


@contextlib.contextmanager
def salted(salt: int) -> Generator[None]:
    """Emits a body once more: its seeded random ops get other seeds than before.

    Salts add up, so that each combination has other seeds.
    """
    token = _SALT.set(_SALT.get() + salt)
    try:
        yield
    finally:
        _SALT.reset(token)


def seeds(seed: int, seed2: int, draw: int = 0) -> dict[str, int]:
    """The seeds of draw number ``draw`` of an op: two ops of the same seeds draw the same numbers.

    Seeds of zero mean that TensorFlow picks some, other ones for each op.
    """
    if seed or seed2:
        seed2 = (seed2 + _SALT.get() * 0x9E3779B9 + draw * 0x7F4A7C15) % 2**31
    return {"seed": seed, "seed2": seed2}


_CURRENT = "_tf_pfor_emitter"  # an attribute of graphs: who is at work there


class Emitter:
    """Adds ops to one graph.

    It always emits into the graph that it was made for, also while another graph is being built. So
    a value that is made late is seen by all its readers.

    Attributes:
      graph: the graph.
      is_trial: nobody will run the graph: only layouts are asked for.
      once: ops that converters share.
    """

    def __init__(self, graph: tf.Graph | None = None):
        self.graph = tf.compat.v1.get_default_graph() if graph is None else graph
        self.is_trial = _tf.in_trial(self.graph)
        self.operations: list[tf.Operation] = []
        self._constants: dict[Any, tf.Tensor] = {}
        self._shapes: dict[int, tuple[tf.Tensor, tf.Tensor]] = {}
        self._types: dict[tf.DType, Any] = {}
        self.memo: dict[Any, Any] = {}  # what converters emit once; keys must keep ids alive
        self._reshaped: dict[Any, tuple[Any, tf.Tensor]] = {}
        self.once: _graphs.Once = {}

    @contextlib.contextmanager
    def at_work(self) -> Generator[None]:
        """In the block, TensorFlow's functions add ops cheaply here, and ``emitter`` finds this."""
        graph = self.graph
        is_first = not hasattr(graph, _CURRENT)
        if is_first:
            setattr(graph, _CURRENT, self)
        try:
            with _graphs.quickly(graph, self.once):
                yield
        finally:
            if is_first:
                delattr(graph, _CURRENT)

    @contextlib.contextmanager
    def as_default(self) -> Generator[None]:
        """Functions of TensorFlow that are called within it emit here."""
        before = len(self.graph.get_operations())
        with self.graph.as_default():
            yield
        self.operations += self.graph.get_operations()[before:]

    def __call__(self, op_type: str, *inputs: Any, name: str | None = None, **attrs: Any) -> Any:
        """Emits one op and returns its output: a tensor, or a list if it has not exactly one.

        Args:
          op_type: the OpDef name.
          *inputs: tensors in OpDef order; a list of tensors for a list input; numpy arrays,
            ints and lists of ints become int32 constants.
          name: a name for the op.
          **attrs: Python values or AttrValue protos; those that follow from the inputs (T, N
            ...) and defaults may be left out.
        """
        schema = _tf.schema(op_type)
        if schema is None:
            raise ValueError(f"this TensorFlow has no op {op_type}")
        flat: list[tf.Tensor] = []
        protos: dict[str, Any] = {}
        for arg, given in zip(schema.inputs, inputs, strict=True):
            if arg.is_list:
                tensors = [self.as_tensor(t) for t in given]
                flat += tensors
                if arg.number_attr:
                    protos[arg.number_attr] = _tf.attr_value("int", len(tensors))
                    if arg.type_attr and tensors:
                        protos[arg.type_attr] = self.type_attr(tensors[0].dtype)
                else:
                    protos[arg.type_list_attr] = _tf.attr_value(
                        "list(type)", [t.dtype for t in tensors]
                    )
            else:
                tensor = self.as_tensor(given)
                flat.append(tensor)
                if arg.type_attr:
                    protos[arg.type_attr] = self.type_attr(tensor.dtype)
        for key, value in attrs.items():
            protos[key] = _tf.attr_value(schema.attr_types[key], value)
        mark = len(self.operations)
        make = functools.partial(self.create, op_type, flat, protos, name)
        parts = (self.once, self.graph, op_type, flat, protos)
        operation = make() if name else _graphs.shared(*parts, make)
        if len(self.operations) == mark:  # an earlier op
            self.operations.append(operation)
        outputs = operation.outputs
        return outputs[0] if len(outputs) == 1 else list(outputs)

    def create(
        self, op_type: str, flat: list[tf.Tensor], protos: dict[str, Any], name: str | None = None
    ) -> tf.Operation:
        """Emits one op from flat inputs and complete attributes."""
        if _SALT.get() and _tf.draws_randomly(op_type) and "seed2" in protos:
            changed = seeds(*(protos[k].i if k in protos else 0 for k in ("seed", "seed2")))
            protos = {**protos, "seed2": _tf.attr_value("int", changed["seed2"])}
        if op_type in IN_PLACE and _tf.in_xla_context(self.graph):
            own = _tf.attr_value("string", IN_PLACE[op_type])
            protos = {**protos, "_gradient_op_type": own}
        operation = _graphs.create_op(self.graph, op_type, flat, protos, name)
        self.operations.append(operation)
        return operation

    def identities(
        self, tensors: Sequence[tf.Tensor], gradient: str, **numbers: int
    ) -> list[tf.Tensor]:
        """The same tensors by an IdentityN whose gradient is registered as ``gradient``.

        Args:
          tensors: the tensors that are passed on, and tensors that the gradient needs besides.
          gradient: the name of the gradient function, in place of IdentityN's.
          **numbers: attributes for it.
        """
        protos = {
            "T": _tf.attr_value("list(type)", [t.dtype for t in tensors]),
            "_gradient_op_type": _tf.attr_value("string", gradient),
            **{k: _tf.attr_value("int", v) for k, v in numbers.items()},
        }
        return list(self.create("IdentityN", list(tensors), protos).outputs)

    def as_tensor(self, given: object) -> tf.Tensor:
        """Tensors as they are; arrays and ints as constants."""
        if isinstance(given, tf.Tensor):
            return given
        if isinstance(given, (np.ndarray, np.generic)):
            return self.constant(given)
        return self.constant(np.asarray(given, np.int32))

    def constant(self, value: Any, dtype: tf.DType | None = None) -> tf.Tensor:
        """A constant; asking twice for the same value gives the same tensor."""
        array = np.asarray(value, dtype=None if dtype is None else dtype.as_numpy_dtype)
        key = None
        if array.dtype != object and array.nbytes <= 1024:
            key = (array.dtype, array.shape, array.tobytes())
            if key in self._constants:
                return self._constants[key]
        proto = _tf.tensor_proto(array, dtype)
        with _graphs.depending_on_nothing(self.graph):
            tensor = self.create(
                "Const",
                [],
                {
                    "value": _tf.attr_value("tensor", proto),
                    "dtype": self.type_attr(tf.as_dtype(proto.dtype)),
                },
            ).outputs[0]
        if key is not None:
            self._constants[key] = tensor
        return tensor

    def stand_in(self, dtype: tf.DType, shape: Any, like: tf.Tensor | None = None) -> tf.Tensor:
        """A placeholder for a trial; the handle data of ``like`` are kept."""
        with _graphs.depending_on_nothing(self.graph):
            made = _graphs.placeholder(self.graph, tf.TensorSpec(shape, dtype), "stand_in")
        if like is not None and dtype in (tf.resource, tf.variant):
            _tf.copy_handle_data(like, made)
        return made

    def type_attr(self, dtype: tf.DType) -> Any:
        """The AttrValue of a dtype, one for each."""
        found = self._types.get(dtype)
        if found is None:
            found = self._types[dtype] = _tf.attr_value("type", dtype)
        return found

    # Shapes ---------------------------------------------------------------

    def shape_of(self, tensor: tf.Tensor) -> tf.Tensor:
        """int32 shape vector of ``tensor``: a constant when static, else one Shape op."""
        shape = dims(tensor)
        if is_static(shape):
            return self.constant(np.asarray(shape, np.int32))
        found = self._shapes.get(id(tensor))
        if found is None:
            found = self._shapes[id(tensor)] = (tensor, self("Shape", tensor))
        return found[1]

    def dim(self, tensor: tf.Tensor, axis: int) -> Dim:
        """Size of ``tensor`` along ``axis``: an int when static, else a scalar int32 tensor."""
        shape = dims(tensor)
        known = None if shape is None else shape[axis]
        if known is not None:
            return known
        end = np.asarray([axis + 1 if axis != -1 else 2**31 - 1], np.int32)
        return self(
            "StridedSlice",
            self.shape_of(tensor),
            np.asarray([axis], np.int32),
            end,
            np.asarray([1], np.int32),
            shrink_axis_mask=1,
        )

    def dim_math(self, op_type: str, a: Dim, b: Dim) -> Dim:
        """Arithmetic of dimensions: in Python when both are static, else one op."""
        if isinstance(a, int) and isinstance(b, int):
            return DIM_MATH[op_type](a, b)
        return self(op_type, self.as_tensor(a), self.as_tensor(b))

    def shape_vector(self, parts: Sequence[Dim]) -> tf.Tensor:
        """int32 vector of dimensions, a constant when all are static."""
        if all(not isinstance(p, tf.Tensor) for p in parts):
            return self.constant(np.asarray(parts, np.int32).reshape([-1]))
        return self("Pack", [self.as_tensor(p) for p in parts], axis=0)

    def repeated(self, tensor: tf.Tensor, length: Dim) -> tf.Tensor:
        """[length, ...]: ``tensor`` so often."""
        if tensor.dtype in PLAIN:
            plain = self("Bitcast", tensor, type=PLAIN[tensor.dtype])
            return self("Bitcast", self.repeated(plain, length), type=tensor.dtype)
        shape = dims(tensor)
        if is_static(shape):
            target = self.shape_vector([length, *shape])
        else:
            target = self("ConcatV2", [self.shape_vector([length]), self.shape_of(tensor)], 0)
        made = self("BroadcastTo", tensor, target)
        if shape is not None:
            made.set_shape((length if isinstance(length, int) else None, *shape))
        return made

    def check(self, is_right: tf.Tensor, text: str, shown: Sequence[Any]) -> tf.Operation:
        """An op that fails unless all of ``is_right`` hold; its error has the text and numbers."""
        rank, given = is_right.shape.rank, [x for x in shown if isinstance(x, tf.Tensor)]
        if rank is None or len(given) < len(shown) or any(x.dtype != tf.int32 for x in given):
            with self.graph.as_default():  # a conditional leaves other numbers on their device
                return tf.debugging.Assert(tf.reduce_all(is_right), [text, *shown], 20)
        holds = self("All", is_right, [*range(rank)]) if rank else is_right
        data = [self.constant(np.asarray(text, object)), *given]
        protos = {
            "T": _tf.attr_value("list(type)", [t.dtype for t in data]),
            "summarize": _tf.attr_value("int", 20),
        }
        return self.create("Assert", [holds, *data], protos)

    def reshape(self, tensor: tf.Tensor, parts: Sequence[Dim]) -> tf.Tensor:
        """Reshapes to dimensions of which some may be tensors; nothing when they are equal."""
        unknown = [i for i, p in enumerate(parts) if isinstance(p, tf.Tensor)]
        if not unknown and dims(tensor) == tuple(parts):
            return tensor
        if len(unknown) == 1 and all(p != 0 for i, p in enumerate(parts) if i != unknown[0]):
            same = tuple(None if i == unknown[0] else p for i, p in enumerate(parts))
            if dims(tensor) == same:
                return tensor
            parts = [-1 if i == unknown[0] else p for i, p in enumerate(parts)]
        return self._reshape(tensor, parts)

    def _reshape(self, tensor: tf.Tensor, parts: Sequence[Dim]) -> tf.Tensor:
        """One Reshape of a tensor to a shape, whoever asks."""
        key = (id(tensor), *(id(p) if isinstance(p, tf.Tensor) else (int(p),) for p in parts))
        found = self._reshaped.get(key)
        if found is None:
            made = self("Reshape", tensor, self.shape_vector(parts))
            found = self._reshaped[key] = ((tensor, *parts), made)
        return found[1]

    def reshape_to(self, tensor: tf.Tensor, shape: Sequence[int | None]) -> tf.Tensor:
        """Reshapes to a static shape with at most one unknown dimension, which is inferred.

        If one dimension is unknown, the caller makes sure that no other is 0. Or the unknown one
        must be the same as in ``tensor``.
        """
        if dims(tensor) == tuple(shape) and shape.count(None) <= 1:
            return tensor
        if None in shape and 0 in shape:
            found = dims(tensor)
            if found is not None and found.count(None) == 1:
                unknown = self.dim(tensor, found.index(None))
                return self.reshape(tensor, [unknown if d is None else d for d in shape])
        return self._reshape(tensor, [-1 if d is None else d for d in shape])


def emitter() -> Emitter:
    """The emitter that is at work in the current graph; a new one if there is none."""
    graph = tf.compat.v1.get_default_graph()
    return getattr(graph, _CURRENT, None) or Emitter(graph)


def folded(op: tf.Operation, values: Sequence[Value]) -> np.ndarray | None:
    """The output of an op all of whose inputs are small constants; None for any other op.

    TensorFlow's static shapes end at the border of a function. An axis that a caller passes to
    the gradient of a ``tf.gather`` is known here, since functions are converted inline.
    """
    arrays = [value.constant for value in values]
    if any(array is None or array.size > _FOLDED or array.dtype == object for array in arrays):
        return None
    if op.type == "InvertPermutation":
        (array,) = arrays
        assert array is not None
        is_right = np.array_equal(np.sort(array), np.arange(array.size))
        return np.argsort(array).astype(array.dtype) if is_right else None
    with tf.Graph().as_default() as graph:
        emit = Emitter(graph)
        inputs = [emit.constant(a, t.dtype) for a, t in zip(arrays, op.inputs, strict=True)]
        try:
            made = emit.create(op.type, inputs, _tf.attr_map(op))
            found = _tf.static_value(made.outputs[0])
            return Bounds().constant(made.outputs[0]) if found is None else found
        except (ValueError, tf.errors.OpError):  # it fails when it runs, and says so there
            return None
