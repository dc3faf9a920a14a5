"""Functions of ``tf.function``, AutoGraph, and Python functions that a graph calls."""

from __future__ import annotations

import dataclasses
import functools
import inspect
import traceback
import types
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import tensorflow as tf
from tensorflow.python.autograph.core import ag_ctx as _ag_ctx
from tensorflow.python.autograph.core import converter as _ag_converter
from tensorflow.python.autograph.impl import api as _ag_api
from tensorflow.python.eager import context as _context
from tensorflow.python.eager.polymorphic_function import atomic_function as _atomic
from tensorflow.python.eager.polymorphic_function import concrete_function as _concrete
from tensorflow.python.eager.polymorphic_function import polymorphic_function as _polymorphic
from tensorflow.python.ops import control_flow_util_v2 as _control_flow
from tensorflow.python.ops import script_ops
from tensorflow.python.util import tf_decorator as _tf_decorator

from tf_pfor import _tf
from tf_pfor._tf import _stacks

PolymorphicFunction: Any = _polymorphic.Function  # the class of what tf.function returns


def autographed(function: Callable[..., Any]) -> Any:
    """``function`` with Python control flow on tensors converted, as tf.function does.

    Also where the caller is not converted itself, as our own entry points are not. The lines that
    AutoGraph lists in an error are the user's: none of this package.
    """
    _, original = _tf_decorator.unwrap(function)
    own = _ag_converter.ConversionOptions(
        recursive=True, user_requested=True, optional_features=None
    )

    def handled(*args: object, **kwargs: object) -> Any:
        try:
            return _ag_api.converted_call(original, args, kwargs, options=own)
        except Exception as why:
            metadata = getattr(why, "ag_error_metadata", None)
            if (
                metadata is None
            ):  # AutoGraph converted it with the code around, and lists frames later
                raise why.with_traceback(_without_own(why.__traceback__)) from None
            frames = metadata.translated_stack
            metadata.translated_stack = tuple(x for x in frames if not _tf.is_own(x.filename))
            raise metadata.to_exception(why) from None

    converted = _tf_decorator.make_decorator(original, handled)
    converted = _tf_decorator.rewrap(function, original, converted)
    options = _ag_converter.ConversionOptions(recursive=True)

    def call(*args: object, **kwargs: object) -> Any:
        with _ag_ctx.ControlStatusCtx(status=_ag_ctx.Status.ENABLED, options=options):
            return converted(*args, **kwargs)

    # Converted code that calls it would convert ``handled``, and find the source of ``function``.
    return _ag_api.autograph_artifact(call)


def _without_own(trace: Any) -> Any:
    """A traceback without the frames of this package."""
    if trace is None:
        return None
    behind, frame = _without_own(trace.tb_next), trace.tb_frame
    if _tf.is_own(frame.f_code.co_filename):
        return behind
    return types.TracebackType(behind, frame, trace.tb_lasti, trace.tb_lineno)


def as_called_here(function: Callable[..., Any]) -> Any:
    """``function`` with AutoGraph on or off as it is now, wherever it is called."""
    now = _ag_ctx.control_status_ctx()

    def call(*args: object, **kwargs: object) -> Any:
        with _ag_ctx.ControlStatusCtx(status=now.status, options=now.options):
            return function(*args, **kwargs)

    return call


def treated_as_here(function: Callable[..., Any]) -> Callable[..., Any]:
    """``function``, converted if AutoGraph would convert it in a call that stands here."""
    is_on = _ag_ctx.control_status_ctx().status == _ag_ctx.Status.ENABLED
    return autographed(function) if is_on else function


def never_converted(function: Callable[..., Any]) -> Any:
    """``function``, which AutoGraph leaves as it is. What it calls may still be converted."""
    return _ag_api.autograph_artifact(function)


def leave_to_python(module: Mapping[str, Any]) -> None:
    """AutoGraph converts no function that a module has in ``__all__``, nor methods of its classes.

    Else a function of the user's that calls one is converted together with its source, which takes
    seconds. The user's functions that it calls are still converted: by ``autographed``.

    Args:
      module: the names of the module, as ``vars`` gives them.
    """
    for public in (module[name] for name in module["__all__"]):
        if isinstance(public, type):
            methods = [getattr(f, "__func__", f) for f in vars(public).values()]
            for method in filter(inspect.isfunction, methods):
                never_converted(method)
            if "__call__" in vars(public):  # AutoGraph asks the object, and not its method
                never_converted(public)
        elif inspect.isfunction(public):
            never_converted(public)


@dataclasses.dataclass(frozen=True, slots=True)
class UserFrame:
    """A call of user code.

    Attributes:
      name: the name of the function; "" if it is not known.
      line: ``file:line``.
      is_converted: whether AutoGraph has converted the function.
    """

    name: str
    line: str
    is_converted: bool


def user_frame_of(error: Exception) -> UserFrame | None:
    """The innermost call of user code that an error comes from; None if it is not known."""
    metadata = getattr(error, "ag_error_metadata", None)
    if metadata is not None:  # the innermost is the first
        known = [
            UserFrame(f.function_name or "", f"{f.filename}:{f.lineno}", f.is_converted)
            for f in metadata.translated_stack
        ]
    else:
        known = []
        for f in reversed(traceback.extract_tb(error.__traceback__)):
            line = _stacks.written_at(made := f"{f.filename}:{f.lineno}")
            known.append(UserFrame(f.name if line == made else "", line, line != made))
    return next((f for f in known if not _tf.is_library(f.line.rpartition(":")[0])), None)


_OF_SLICES = frozenset(
    ["DynamicStitch", "ParallelDynamicStitch", "ScatterNd", "SegmentSum", "UnsortedSegmentSum"]
)


def returned(x: tf.Tensor) -> tf.Tensor:
    """A result of a function, whose tangent is a tensor in forward mode.

    TensorFlow finds slices for these ops, and fails if a function returns what they make.
    """
    if not tf.is_symbolic_tensor(x) or not (x.dtype.is_floating or x.dtype.is_complex):
        return x
    made = x.op
    while made.type == "Identity":
        made = made.inputs[0].op
    return tf.reshape(x, tf.shape(x)) if made.type in _OF_SLICES else x


def is_of_gradients(error: Exception) -> bool:
    """Whether TensorFlow raised an error, which no gradient function did, as it made gradients."""
    frames = traceback.extract_tb(error.__traceback__)
    names = [frame.name for frame in frames]
    last = frames[-1].filename
    return "_GradientsHelper" in names and _tf.is_machinery(last) and not _tf.is_own(last)


def call_flat(
    concrete: Any, inputs: Sequence[tf.Tensor], captured: Sequence[tf.Tensor], is_compiled: bool
) -> Any:
    """Calls a concrete function with tensors, and with other ones than it captured.

    If XLA compiles the function, a tape takes the gradients of its conditionals for XLA.
    """
    with _polymorphic.OptionalXlaContext(is_compiled and _tf.may_record_gradients()):
        return concrete._call_flat(inputs, captured)


@functools.lru_cache(4096)  # no other function gets the name
def op_types(name: str) -> frozenset[str]:
    """The types of the ops that run by a name: of an op, or of a function and those it calls."""
    context, todo, found = _context.context(), [name], set[str]()
    for one in todo:  # grows
        if one in found:
            continue
        found.add(one)
        if _tf.schema(one) is None and context.has_function(one):
            for node in context.get_function_def(one).node_def:
                todo += [node.op, *_tf.function_names(node.attr)]
    return frozenset(found)


def name_apart(source: tf.Graph, target: tf.Graph, attrs: Mapping[str, _tf.AttrValue]) -> None:
    """Gives a copied branch or loop functions of its own.

    TensorFlow names what a gradient makes of a branch after the branch. Of copies that share one it
    would make two functions of one name, which it refuses.

    Args:
      source: the graph of the original.
      target: the graph of the copy, which knows the functions afterwards.
      attrs: the attributes of the copy by name, which are changed.
    """
    for value in attrs.values():
        for function in (value.func, *value.list.func):
            if function.name:
                function.name = _apart(source, target, function.name)


def _apart(source: tf.Graph, target: tf.Graph, name: str) -> str:
    """The name of a copy of a function, which the target knows afterwards."""
    found = _tf.find_function(source, name)
    if not isinstance(found, _atomic.AtomicFunction):
        return name
    definition = type(found.cached_definition)()
    definition.CopyFrom(found.cached_definition)
    definition.signature.name = f"{name}_{_tf.ops.uid()}"
    for node in definition.node_def:
        if node.op in (*_tf.BRANCHES, *_tf.LOOPS):
            name_apart(source, target, node.attr)
        _tf.add_functions(source, target, node.attr)
    made = _atomic.from_function_def(definition, found.function_type)
    names = {x for node in definition.node_def for x in _tf.function_names(node.attr)}
    made._children = [f for x in sorted(names) if (f := _tf.find_function(target, x)) is not None]
    made._cached_graph = found._cached_graph
    target._add_function(made)
    return str(definition.signature.name)


def is_gradient(op: tf.Operation) -> bool:
    """Whether an op is the gradient of a ``tf.py_function``: it asks what that left behind."""
    if op.type != "EagerPyFunc":
        return False
    registry = script_ops._py_funcs
    function = registry._funcs.get(op.get_attr("token").decode())
    return bool(getattr(function, "_is_grad_func", False))


def signature_of(function: Any) -> tuple[tuple[Any, ...] | None, dict[str, Any]]:
    """Positional and named arguments that a function is made for; (None, {}) if it is for any.

    They come from a concrete function, or from the ``input_signature`` of a ``tf.function``.
    """
    if isinstance(function, _concrete.ConcreteFunction):
        found: Any = function.structured_input_signature
        return tuple(found[0]), dict(found[1])
    if type(function) is PolymorphicFunction and function.input_signature is not None:
        return tuple(function.input_signature), {}
    return None, {}


def tell_of_variables(op: tf.Operation) -> None:
    """Tells the functions of a copied loop or branch which variables they are given.

    A gradient makes TensorFlow build the graphs of these functions anew. It then knows no dtype of
    a variable that a loop is given. A branch in the loop that does not read the variable needs
    zeros for it, and they would be an error.
    """
    if not any(t.dtype == tf.resource for t in op.inputs):
        return
    for name, place, given in _function_places(op):
        if getattr(op, place, None) is None:
            # In a loop a trip may change shapes.
            shapes = [t.shape for t in (op.outputs if op.type in _tf.LOOPS else given)]
            graph = _control_flow.get_func_graph(op, shapes, name)
            for outside, inside in zip(given, graph.inputs):
                if outside.dtype == tf.resource:
                    _tf.copy_handle_data(outside, inside)
            for inner in graph.get_operations():
                tell_of_variables(inner)
            setattr(op, place, graph)


def _function_places(op: tf.Operation) -> list[tuple[str, str, list[tf.Tensor]]]:
    """The names of an op's functions, where TensorFlow keeps their graphs, and their inputs."""
    inputs = list(op.inputs)
    if op.type in _tf.LOOPS:
        names = [op.get_attr(name).name for name in ("cond", "body")]
        return [(name, p, inputs) for name, p in zip(names, ("_cond_graph", "_body_graph"))]
    if op.type not in _tf.BRANCHES:
        return []
    if "Case" in op.type:
        names = [f.name for f in op.get_attr("branches")]
        places = [f"_branch_graph_{i}" for i in range(len(names))]
    else:
        names = [op.get_attr(name).name for name in ("then_branch", "else_branch")]
        places = ["_true_graph", "_false_graph"]
    return [(name, place, inputs[1:]) for name, place in zip(names, places)]
