"""Eager ops of a thread, caught where TensorFlow's Python hands them to its runtime.

All generated wrappers of ops end in one symbol, calls of functions in another. Both are replaced
while a thread catches; for other threads the replacements only pass on what they get.
"""

from __future__ import annotations

import contextlib
import functools
import threading
from collections.abc import Callable, Generator, Sequence
from typing import Any, Protocol, TypeAlias

import tensorflow as tf
from tensorflow.core.protobuf import config_pb2
from tensorflow.python import pywrap_tfe
from tensorflow.python.eager import backprop as _backprop
from tensorflow.python.eager import context as _context
from tensorflow.python.eager import core as _core
from tensorflow.python.eager import execute as _execute
from tensorflow.python.eager import forwardprop as _forwardprop
from tensorflow.python.eager import record as _record
from tensorflow.python.eager import tape as _tape
from tensorflow.python.eager.polymorphic_function import concrete_function as _concrete
from tensorflow.python.eager.polymorphic_function import polymorphic_function as _polymorphic
from tensorflow.python.framework import op_def_library, op_def_registry
from tensorflow.python.framework import ops as _ops
from tensorflow.python.types.core import Value as Value

is_taped = _record.could_possibly_record
"""Whether this thread has a tape or a forward accumulator."""

Function: TypeAlias = Callable[..., Any]

RAW_ERRORS = (_core._NotOkStatusException, _core._FallbackException)
"""Errors of the runtime that the wrappers of ops make readable, or answer by another way to run."""

PASSED = object()
"""A catcher's answer where TensorFlow shall run the op."""


class Catcher(Protocol):
    """An object that sees the eager ops of a thread before they run."""

    def op(self, op_type: str, given: tuple[Any, ...]) -> Any:
        """The results of an op, or PASSED; ``given``: its inputs, then names and attributes."""

    def function(
        self, called: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        """The results of a ``tf.function`` or of a concrete function, or PASSED."""

    def custom_gradient(self, name: str, outputs: Sequence[Any]) -> None:
        """Hears that tensors have a gradient that the user has defined."""

    def accessed(self, variable: tf.Variable) -> None:
        """Hears that a variable is read."""

    def runs(self, name: str, inputs: Sequence[Any]) -> Sequence[Any]:
        """Hears what is run by its name; returns the inputs that TensorFlow shall get."""
        ...

    def meets(self, handles: Sequence[int], *, writes: bool) -> None:
        """Hears that another thread uses variables; ``handles``: the ids of their handles."""

    def tape(self, tape: object, method: str) -> None:
        """Hears that a method of a tape or a forward accumulator is called; "" where it begins."""


_LOCAL = threading.local()
_LOCK = threading.Lock()
_users = 0
_catchers: list[Catcher] = []  # of all threads
_FAST = pywrap_tfe.TFE_Py_FastPathExecute
_SLOW = _execute.execute
_CANCELLABLE = _execute.execute_with_cancellation
_RECORD = _record.record_operation
_ACCESSED = _tape.variable_accessed
_CALL = _polymorphic.Function.__call__
EagerTensor = _ops.EagerTensor
_RESOURCE = tf.resource.as_datatype_enum
_READS = frozenset(["ReadVariableOp", "ResourceGather", "ResourceGatherNd", "VarIsInitializedOp"])
_Cache: Any = _context._EagerTensorCache
_CALL_CONCRETE = _concrete.ConcreteFunction.__call__
_KEPT = _Cache.put
_SIZES = pywrap_tfe.TFE_Py_TensorShapeSlice
_TAPE, _ACCUMULATOR = _backprop.GradientTape, _forwardprop.ForwardAccumulator
_OF_TAPES: list[tuple[Any, str]] = [
    (_TAPE, "_push_tape"),
    (_TAPE, "watch"),
    (_TAPE, "watched_variables"),
    (_TAPE, "stop_recording"),
    (_TAPE, "reset"),
    (_TAPE, "gradient"),
    (_TAPE, "jacobian"),
    (_TAPE, "batch_jacobian"),
    (_ACCUMULATOR, "_watch"),
    (_ACCUMULATOR, "jvp"),
]
_SYMBOLS: list[tuple[Any, str]] = [
    (pywrap_tfe, "TFE_Py_FastPathExecute"),
    (_execute, "execute"),
    (_execute, "execute_with_cancellation"),
    (_record, "record_operation"),
    (_tape, "variable_accessed"),
    (_polymorphic.Function, "__call__"),
    (_concrete.ConcreteFunction, "__call__"),
    (_Cache, "put"),
    (pywrap_tfe, "TFE_Py_TensorShapeSlice"),
    *_OF_TAPES,
]
_THEIRS = [
    _FAST,
    _SLOW,
    _CANCELLABLE,
    _RECORD,
    _ACCESSED,
    _CALL,
    _CALL_CONCRETE,
    _KEPT,
    _SIZES,
    *[getattr(*method) for method in _OF_TAPES],
]


def catcher() -> Catcher | None:
    """The catcher of this thread."""
    return getattr(_LOCAL, "catcher", None)


@contextlib.contextmanager
def caught(by: Catcher | None) -> Generator[None]:
    """``by`` sees the eager ops of this thread in the block; None: TensorFlow runs all of them."""
    global _users
    before, outer = catcher(), getattr(_LOCAL, "outer", None)
    with _LOCK:
        _users += 1
        if _users == 1:
            _replace(_OURS)
        if by is not None:
            _catchers.append(by)
    _LOCAL.catcher, _LOCAL.outer = by, by or outer
    try:
        yield
    finally:
        _LOCAL.catcher, _LOCAL.outer = before, outer
        with _LOCK:
            if by is not None:
                _catchers.remove(by)
            _users -= 1
            if not _users:
                _replace(_THEIRS)


def is_idle() -> bool:
    """Whether all symbols are TensorFlow's: no thread catches ops."""
    return all(getattr(*symbol) is theirs for symbol, theirs in zip(_SYMBOLS, _THEIRS))


def run(op_type: str, given: tuple[Any, ...]) -> list[tf.Tensor]:
    """The results of an op, eagerly or in the current graph.

    Args:
      op_type: its type.
      given: its inputs, then names and values of its attributes, as its wrapper passes them.
    """
    if tf.executing_eagerly():
        try:
            made = _FAST(_context.context(), op_type, None, *given)
        except _core._NotOkStatusException as error:
            raise _core._status_to_exception(error) from None
        except _core._FallbackException:  # an input is of a type that only a graph converts
            return tf.function(lambda: run(op_type, given), autograph=False)()
    else:
        inputs = [a.name for a in op_def_registry.get(op_type).input_arg]
        attrs = given[len(inputs) :]
        named = dict(zip(inputs, given)) | dict(zip(attrs[::2], attrs[1::2]))
        made = op_def_library.apply_op(op_type, **named)
        _record_in_graph(op_type, tf.nest.flatten(made))
    if isinstance(made, tf.Operation) or made is None:
        return []
    return list(made) if isinstance(made, (list, tuple)) else [made]


def run_as_given(op_type: str, given: tuple[Any, ...]) -> Any:
    """The results of an op as its wrapper gets them, with TensorFlow's own errors."""
    by = catcher()
    _LOCAL.catcher = None
    try:
        return _FAST(_context.context(), op_type, None, *given)
    finally:
        _LOCAL.catcher = by


def run_taped(op_type: str, values: tuple[Any, ...], given: tuple[Any, ...]) -> Any:
    """The results of an op, which tapes take for one of the tensors that were given.

    Args:
      op_type: its type.
      values: inputs and attributes, with values for recorded tensors.
      given: the same with recorded tensors.
    """
    args = list(op_def_registry.get(op_type).input_arg)
    tensors = [x for x in tf.nest.flatten(list(given[: len(args)])) if isinstance(x, tf.Tensor)]
    if not _record.could_possibly_record() or all(isinstance(x, EagerTensor) for x in tensors):
        return run_as_given(op_type, values)
    made = run_as_given(op_type, values)  # no tape follows the values, but PyFunc asks for tapes
    if made is None or isinstance(made, tf.Operation):
        return made
    lists = [bool(arg.number_attr or arg.type_list_attr) for arg in args]
    opened = [list(x) if is_list else [x] for x, is_list in zip(given, lists)]
    inferred: dict[str, Any] = {}
    for arg, items in zip(args, opened):
        for x in items:
            if arg.type_attr and isinstance(x, tf.Tensor):
                inferred[arg.type_attr] = x.dtype.as_datatype_enum
    inputs: list[Any] = []
    for arg, items in zip(args, opened):
        dtype = arg.type or inferred.get(arg.type_attr)
        tensors = [x if isinstance(x, tf.Tensor) else tf.constant(x, dtype) for x in items]
        inputs += tensors
        if arg.type_attr and tensors:
            inferred[arg.type_attr] = tensors[0].dtype.as_datatype_enum
        if arg.number_attr:
            inferred[arg.number_attr] = len(tensors)
        if arg.type_list_attr:
            inferred[arg.type_list_attr] = [x.dtype.as_datatype_enum for x in tensors]
    attrs = dict(zip(given[len(args) :: 2], given[len(args) + 1 :: 2])) | inferred
    flat = tuple(x for pair in attrs.items() for x in pair)
    _execute.record_gradient(op_type, inputs, flat, tf.nest.flatten(made))
    return made


def attributes_of(op: tf.Operation) -> tuple[Any, ...]:
    """Names and values of all attributes of an op in a graph, as gradient functions read them."""
    return tuple(x for attr in op.op_def.attr for x in (attr.name, op.get_attr(attr.name)))


def gradient_of_op(
    op_type: str,
    attrs: tuple[Any, ...],
    inputs: Sequence[tf.Tensor],
    outputs: Sequence[tf.Tensor],
    slopes: Sequence[Any],
    unwanted: tuple[int, ...],
) -> list[Any]:
    """The gradients of the inputs of an op, by the function that TensorFlow has registered for it.

    Args:
      op_type: the type of the op.
      attrs: names and values of all its attributes.
      inputs: its inputs.
      outputs: its results.
      slopes: the gradients of its results.
      unwanted: the numbers of the inputs whose gradients nobody asks for.
    """
    count = len(inputs)
    found = _backprop._gradient_function(
        op_type, attrs, count, list(inputs), list(outputs), list(slopes), unwanted, ""
    )
    return list(found) if isinstance(found, (list, tuple)) else [found]


def run_function(
    name: str, inputs: list[tf.Tensor], count: int, *, is_small: bool
) -> list[tf.Tensor]:
    """The results of a traced function, by its ops as they were traced.

    TensorFlow's graph optimizer may reorder arithmetic. Without it, results are as of eager ops.

    Args:
      name: the name of the function in the runtime.
      inputs: eager tensors, with those that the function has captured.
      count: the number of results.
      is_small: whether one thread runs all ops, which takes less time if each takes little.
    """
    attrs = _IN_ONE_THREAD if is_small else _AS_TRACED
    return list(_SLOW(name, count, inputs, attrs, _context.context()))


def _as_traced(executor: str) -> tuple[Any, ...]:
    config = config_pb2.ConfigProto()
    config.graph_options.rewrite_options.disable_meta_optimizer = True
    return "executor_type", executor, "config_proto", config.SerializeToString()


_AS_TRACED = _as_traced("")
_IN_ONE_THREAD = _as_traced("SINGLE_THREADED_EXECUTOR")


@functools.cache
def only_device() -> str:
    """The device of all tensors, where there is only one; else ""."""
    is_only = len(tf.config.list_logical_devices()) == 1
    return tf.constant(0).device if is_only else ""


def constant_of(x: Value) -> Any:
    """A constant in the current graph for an eager tensor; other things, and handles, stay."""
    if isinstance(x, EagerTensor) and x.dtype not in (tf.resource, tf.variant):
        return tf.constant(x.numpy())
    return x


def is_plain() -> bool:
    """Whether operators promote no dtypes, as they do with TensorFlow's behavior of NumPy."""
    return not (_ops.is_auto_dtype_conversion_enabled() or _ops.is_numpy_style_type_promotion())


def thread_state() -> Any:
    """The state of this thread in TensorFlow; ``device_name`` is the device that is chosen."""
    return _context.context()._thread_local_data


def form_of_input(x: tf.Tensor) -> Any:
    """The form of an eager tensor; of a handle the form of what it refers to."""
    enum = x._datatype_enum()
    if enum != _RESOURCE:
        return enum, x._shape_tuple()
    data = x._handle_data
    return enum, b"" if data is None else data.SerializeToString()


def link(deferred: tf.Tensor, value: tf.Tensor) -> None:
    """Tells the tapes of this thread that a value belongs to a tensor they may follow."""
    _RECORD("Identity", [value], [deferred], lambda dy: [dy])


def _record_in_graph(op_type: str, made: list[Any]) -> None:
    """Shows an op of a graph to the tapes in the graph, as its wrapper does."""
    if not _execute.must_record_gradient() or not isinstance(made[0], tf.Tensor):
        return
    op = made[0].op
    _execute.record_gradient(op_type, op.inputs, attributes_of(op), op.outputs)


def form_of_tensor(x: tf.Tensor) -> Any:
    """The number of the dtype, and the sizes; None where a size is not known."""
    if isinstance(x, EagerTensor):
        return x._datatype_enum(), x._shape_tuple()
    sizes = None if x.shape.rank is None else tuple(x.shape)
    return x.dtype.as_datatype_enum, sizes


def watch(variable: tf.Variable) -> None:
    """Tells the tapes of this thread that a variable is read."""
    _ACCESSED(variable)


def with_gradient(
    name: str,
    run: Function,
    inputs: Sequence[tf.Tensor],
    sparse: Callable[[tf.Tensor], list[Any]],
) -> tf.Tensor:
    """The tensor ``run(*inputs)``. Tapes of this thread take ``sparse`` as its gradient.

    ``tf.custom_gradient`` does the same, but a forward accumulator refuses IndexedSlices from it.

    Args:
      name: a name of the op for errors.
      run: a function of tensors.
      inputs: its inputs.
      sparse: a function of the gradient of the result to the gradients of the inputs, which may be
        IndexedSlices.
    """
    given = list(inputs)
    if not _record.could_possibly_record():
        return run(*given)

    def dense(dy: tf.Tensor) -> list[tf.Tensor]:
        dy = tf.reshape(dy, tf.shape(dy))  # the transpose of a gather becomes dense there
        return [tf.convert_to_tensor(x) for x in sparse(dy)]

    with _record.stop_recording():
        made = run(*given)
    show_tapes(name, [made], given, sparse)
    _record.record_operation_forwardprop_only(name, [made], given, dense, None)
    return made


def are_watched(tensors: Sequence[tf.Tensor]) -> bool:
    """Whether a tape of this thread follows one of the tensors."""
    return _record.should_record_backprop(list(tensors))


def is_watched(x: tf.Tensor) -> bool:
    """Whether a tape of this thread follows a tensor."""
    return are_watched([x])


def has_tangent(tensors: Sequence[tf.Tensor]) -> bool:
    """Whether a forward accumulator of this thread follows one of the tensors."""
    return bool(pywrap_tfe.TFE_Py_PackJVPs(list(tensors))[1])


def new_id() -> int:
    """A number by which tapes know a tensor."""
    return _ops.uid()


def show_tapes(
    name: str, outputs: Sequence[tf.Tensor], inputs: Sequence[tf.Tensor], gradient: Function
) -> None:
    """Tells the tapes of this thread of an op.

    Args:
      name: a name of the op for errors.
      outputs: its results.
      inputs: its inputs.
      gradient: a function of the gradients of the outputs to the gradients of the inputs.
    """
    _record.record_operation_backprop_only(name, list(outputs), list(inputs), gradient)


def _replace(functions: Sequence[Function]) -> None:
    for (owner, name), function in zip(_SYMBOLS, functions):
        setattr(owner, name, function)


def meet(inputs: Sequence[Any], *, writes: bool) -> None:
    """Tells the catchers of other threads which variables this thread uses next.

    Args:
      inputs: the inputs of an op or of a function, with the handles that it captures.
      writes: whether it may write them.
    """
    by, outer = catcher(), getattr(_LOCAL, "outer", None)
    if by is not outer or (len(_catchers) == 1 and by is not None):
        return  # the catcher runs what it has recorded, or there is no other one
    handles: list[int] = []
    for x in inputs:
        if isinstance(x, (list, tuple)):
            handles += [y._id for y in x if _is_handle(y)]
        else:
            handle: Value = getattr(x, "_handle", None) if isinstance(x, tf.Variable) else x
            handles += [handle._id] if _is_handle(handle) else []
    if handles:
        for other in [c for c in _catchers if c is not by]:
            other.meets(handles, writes=writes)


def _is_handle(x: Value) -> bool:
    return type(x) is EagerTensor and x._datatype_enum() == _RESOURCE


def _fast(context: object, op_type: str, name: str | None, *given: object) -> Any:
    by = catcher()
    if by is None or len(_catchers) > 1:
        meet(given, writes=op_type not in _READS)
    if by is not None:
        found = by.op(op_type, given)
        if found is not PASSED:
            return found
    return _FAST(context, op_type, name, *given)


def _by_name(run: Function) -> Function:
    """A function that runs ops by their names, which asks the catcher for the inputs."""

    def named(
        op_name: bytes | str,
        num_outputs: int,
        inputs: Sequence[Any],
        *args: object,
        **kwargs: object,
    ) -> Any:
        by = catcher()
        if by is None or len(_catchers) > 1:
            meet(inputs, writes=True)
        if by is None:
            return run(op_name, num_outputs, inputs, *args, **kwargs)
        inputs = by.runs(tf.compat.as_str(op_name), inputs)
        _LOCAL.catcher = None  # what the op runs in Python runs as it is
        try:
            return run(op_name, num_outputs, inputs, *args, **kwargs)
        finally:
            _LOCAL.catcher = by

    return named


_slow, _slow_or_cancelled = _by_name(_SLOW), _by_name(_CANCELLABLE)


def _recorded(name: str, outputs: Sequence[Any], *args: object, **kwargs: object) -> Any:
    if (by := catcher()) is not None:
        by.custom_gradient(name, outputs)
    return _RECORD(name, outputs, *args, **kwargs)


def _accessed(variable: tf.Variable) -> Any:
    if (by := catcher()) is not None:
        by.accessed(variable)
    return _ACCESSED(variable)


def _called(self: Callable[..., Any], *args: object, **kwargs: object) -> Any:
    if (by := catcher()) is not None:
        found = by.function(self, args, kwargs)
        if found is not PASSED:
            return found
    return _CALL(self, *args, **kwargs)


def _called_concrete(self: Callable[..., Any], *args: object, **kwargs: object) -> Any:
    if (by := catcher()) is not None:
        found = by.function(self, args, kwargs)
        if found is not PASSED:
            return found
    return _CALL_CONCRETE(self, *args, **kwargs)


def _kept(self: object, key: object, value: object) -> None:
    """Keeps zeros that gradients ask for, unless they are recorded: others would get them."""
    if isinstance(value, EagerTensor):
        _KEPT(self, key, value)


def _sizes(tensors: Sequence[tf.Tensor], axis: int) -> Any:
    """The sizes of tensors along an axis, of which some may be recorded."""
    if all(isinstance(x, EagerTensor) for x in tensors):
        return _SIZES(tensors, axis)
    return tf.constant([x.shape.as_list()[axis] or 0 for x in tensors], tf.int32)


def _of_tape(name: str, run: Function) -> Function:
    """A method of tapes that tells the catcher of this thread, also while that traces a cell."""
    method = "" if name in ("_push_tape", "_watch") else name

    @functools.wraps(run)
    def called(self: Value, *args: object, **kwargs: object) -> Any:
        begins = not method and (name == "_watch" or self._tape is None)
        if (by := getattr(_LOCAL, "outer", None)) is not None and (method or begins):
            by.tape(self, method)
        return run(self, *args, **kwargs)

    return called


_OURS: list[Function] = [
    _fast,
    _slow,
    _slow_or_cancelled,
    _recorded,
    _accessed,
    _called,
    _called_concrete,
    _kept,
    _sizes,
    *[_of_tape(name, run) for (_, name), run in zip(_OF_TAPES, _THEIRS[-len(_OF_TAPES) :])],
]
for _function in _OURS:
    setattr(_function, "autograph_info__", {})  # noqa: B010  # AutoGraph leaves them as they are
