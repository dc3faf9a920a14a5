"""TensorFlow's private symbols, and graphs that are cheap to build.

Here and in `frontends/drop_in.py` alone `tensorflow.python.*` is imported; the package itself
is what others call, as `_tf.schema(...)`. It imports nothing else of this repository. What
knows of rows, loops or values does not belong here.
"""

from __future__ import annotations

import contextlib
import contextvars
import dataclasses
import functools
import inspect
import os
from collections.abc import Generator, Iterable, Iterator, Sequence
from typing import Any, TypeAlias

import numpy as np
import tensorflow as tf
from tensorflow.core.framework import attr_value_pb2, full_type_pb2
from tensorflow.python.client import pywrap_tf_session as _session
from tensorflow.python.eager import backprop as _backprop
from tensorflow.python.eager import context as _context
from tensorflow.python.eager import execute
from tensorflow.python.eager import record as record
from tensorflow.python.eager.forwardprop_util import pack_tangents as pack_tangents
from tensorflow.python.framework import auto_control_deps as _auto_control_deps
from tensorflow.python.framework import function_def_to_graph as _function_def_to_graph
from tensorflow.python.framework import op_def_registry, ops
from tensorflow.python.ops import control_flow_v2_func_graphs as _control_flow_graphs

from tf_pfor._tf import _definitions

AttrValue: TypeAlias = attr_value_pb2.AttrValue
FuncGraph: Any = tf.__internal__.FuncGraph
AutomaticControlDependencies: Any = _auto_control_deps.AutomaticControlDependencies
c_api: Any = _session  # TF_NewOperation and the like
RECORDING_HOOKS = _backprop  # importing it installs what ``execute`` calls to record gradients
Operation = tf.Operation
COLLECTIVE = "_tf_pfor_collective"  # an attribute: what a collective does

# ---------------------------------------------------------------------------
# What the OpDef says
# ---------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True, slots=True)
class Arg:
    """One input of an op type: a tensor, or a list of tensors."""

    name: str
    type_attr: str
    number_attr: str
    type_list_attr: str
    dtype: tf.DType | None  # where the op fixes it

    @property
    def is_list(self) -> bool:
        return bool(self.number_attr or self.type_list_attr)


@dataclasses.dataclass(frozen=True, slots=True)
class Schema:
    """The parts of an OpDef that conversion needs."""

    op_type: str
    inputs: tuple[Arg, ...]
    attr_types: dict[str, str]
    attr_defaults: dict[str, AttrValue]
    inferred_attrs: frozenset[str]
    num_outputs: int  # -1 when an output is a list
    output_names: tuple[str, ...]
    is_stateful: bool


def op_types() -> list[str]:
    """All op types that this TensorFlow offers to Python."""
    return sorted(n for n in dir(tf.raw_ops) if n[0].isupper() and schema(n) is not None)


@functools.cache
def schema(op_type: str) -> Schema | None:
    """Returns the schema of ``op_type``, or None if this TensorFlow has no such op."""
    op_def = op_def_registry.get(op_type)
    if op_def is None:
        return None
    inputs = tuple(
        Arg(
            a.name,
            a.type_attr,
            a.number_attr,
            a.type_list_attr,
            tf.as_dtype(a.type) if a.type else None,
        )
        for a in op_def.input_arg
    )
    inferred: set[str] = set()
    for a in inputs:
        inferred.update(x for x in (a.type_attr, a.number_attr, a.type_list_attr) if x)
    lists = any(a.number_attr or a.type_list_attr for a in op_def.output_arg)
    return Schema(
        op_type=op_type,
        inputs=inputs,
        attr_types={a.name: a.type for a in op_def.attr},
        attr_defaults={a.name: a.default_value for a in op_def.attr if a.HasField("default_value")},
        inferred_attrs=frozenset(inferred),
        num_outputs=-1 if lists else len(op_def.output_arg),
        output_names=tuple(a.name for a in op_def.output_arg),
        is_stateful=op_def.is_stateful,
    )


# ---------------------------------------------------------------------------
# Attributes
# ---------------------------------------------------------------------------


def attr_value(kind: str, value: Any) -> AttrValue:
    """Packs ``value`` as an attribute of OpDef type ``kind`` ("int", "list(type)", ...)."""
    if isinstance(value, AttrValue):
        return value
    out = AttrValue()
    if kind.startswith("list("):
        out.list.SetInParent()
        for item in value:
            _pack_into_list(out.list, kind[5:-1], item)
        return out
    if kind == "int":
        out.i = int(value)
    elif kind == "bool":
        out.b = bool(value)
    elif kind == "float":
        out.f = float(value)
    elif kind == "string":
        out.s = tf.compat.as_bytes(value)
    elif kind == "type":
        out.type = tf.as_dtype(value).as_datatype_enum
    elif kind == "shape":
        out.shape.CopyFrom(tf.TensorShape(value).as_proto())
    elif kind == "tensor":
        out.tensor.CopyFrom(value if hasattr(value, "tensor_content") else tensor_proto(value))
    elif kind == "func":
        out.func.CopyFrom(value)
    else:
        raise TypeError(f"unknown attribute type {kind!r}")
    return out


def tensor_proto(value: Any, dtype: tf.DType | None = None) -> Any:
    """``tf.make_tensor_proto``, which checks and converts each number of an array."""
    is_plain = isinstance(value, np.ndarray) and value.dtype.isnative and value.size
    if not is_plain or value.dtype.kind not in "biufc":
        return tf.make_tensor_proto(value, dtype=dtype)
    made = AttrValue().tensor
    made.dtype = (dtype or tf.as_dtype(value.dtype)).as_datatype_enum
    made.tensor_shape.SetInParent()
    for size in value.shape:
        made.tensor_shape.dim.add().size = size
    made.tensor_content = value.tobytes()
    return made


def _pack_into_list(target: Any, kind: str, item: Any) -> None:
    if kind == "int":
        target.i.append(int(item))
    elif kind == "bool":
        target.b.append(bool(item))
    elif kind == "float":
        target.f.append(float(item))
    elif kind == "string":
        target.s.append(tf.compat.as_bytes(item))
    elif kind == "type":
        target.type.append(tf.as_dtype(item).as_datatype_enum)
    elif kind == "shape":
        target.shape.add().CopyFrom(tf.TensorShape(item).as_proto())
    elif kind == "func":
        target.func.add().CopyFrom(item)
    else:
        raise TypeError(f"unknown attribute type list({kind})")


def python_value(kind: str, value: AttrValue) -> Any:
    """The Python form of an AttrValue: the inverse of ``attr_value``."""
    if kind.startswith("list("):
        kind = kind[5:-1]
        items = value.list
        return {
            "int": lambda: list(items.i),
            "bool": lambda: list(items.b),
            "float": lambda: list(items.f),
            "string": lambda: [s.decode("utf-8", "surrogateescape") for s in items.s],
            "type": lambda: [tf.as_dtype(t) for t in items.type],
            "shape": lambda: [tf.TensorShape(s) for s in items.shape],
            "func": lambda: list(items.func),
            "tensor": lambda: list(items.tensor),
        }[kind]()
    if kind == "string":
        return value.s.decode("utf-8", "surrogateescape")
    if kind == "type":
        return tf.as_dtype(value.type)
    if kind == "shape":
        return tf.TensorShape(value.shape)
    return getattr(value, {"int": "i", "bool": "b", "float": "f"}.get(kind, kind))


# ---------------------------------------------------------------------------
# Tensors and ops
# ---------------------------------------------------------------------------


def captured(tensor: tf.Tensor, graph: Any = None) -> tf.Tensor:
    """``tensor`` as a function graph (the current one) sees it: captured if it comes from outside.

    If a gradient function closes over a tensor of an outer graph, gradients of higher order refer
    to a graph that is gone. A captured tensor is passed on from graph to graph. The gradient
    function of a branch captures only from its forward graph and the graph around that. So it gets
    the tensor as the forward graph sees it; other tensors are captured graph by graph.
    """
    graph = tf.compat.v1.get_default_graph() if graph is None else graph
    if getattr(tensor, "graph", None) is graph or not hasattr(graph, "capture"):
        return tensor
    if _is_in_gradient(graph):
        forward, outer = getattr(graph, "_forward_graph", None), graph.outer_graph
        tensor = as_captured_by(tensor, forward)
        if getattr(tensor, "graph", None) not in (forward, outer):
            with outer.as_default():  # where what reads it is made
                tensor = captured(tensor)
    return graph.capture(tensor)


def as_captured_by(tensor: tf.Tensor, graph: object) -> tf.Tensor:
    """The tensor that ``tensor`` is inside ``graph``, if that has captured it; else itself."""
    for outside, inside in getattr(graph, "captures", ()):
        if outside is tensor:
            return inside
    around = getattr(graph, "outer_graph", None)
    if around is None or getattr(tensor, "graph", None) in (graph, around):
        return tensor
    seen = as_captured_by(tensor, around)
    return tensor if seen is tensor else as_captured_by(seen, graph)


def depth_of(tensor: tf.Tensor) -> int:
    """The number of graphs that the graph of a tensor lies in; -1 for an eager one."""
    graph, found = getattr(tensor, "graph", None) if tf.is_symbolic_tensor(tensor) else None, -1
    while graph is not None:
        graph, found = getattr(graph, "outer_graph", None), found + 1
    return found


def _is_in_gradient(graph: object) -> bool:
    """Whether ``graph`` is, or is in, the gradient of a branch or of a loop's body."""
    while graph is not None and not hasattr(graph, "_forward_graph"):
        graph = getattr(graph, "outer_graph", None)
    return graph is not None


def copy_handle_data(source: tf.Tensor, target: tf.Tensor) -> None:
    """Copies what TensorFlow knows of a resource or variant handle (element shape, dtype)."""
    ops.handle_data_util.copy_handle_data(source, target)


def copy_handles(sources: Iterable[tf.Tensor], targets: Iterable[tf.Tensor]) -> None:
    """Copies what TensorFlow knows of those tensors, one of each for each, that are handles."""
    for source, target in zip(sources, targets):
        if target.dtype in (tf.resource, tf.variant):
            copy_handle_data(source, target)


def list_element(handle: tf.Tensor) -> tuple[tf.DType, tf.TensorShape] | None:
    """Dtype and static shape of the elements of a TensorList handle, None if not known."""
    data = ops.handle_data_util.get_handle_data(handle)
    if data is None or not data.is_set or len(data.shape_and_type) != 1:
        return None
    found = data.shape_and_type[0]
    if not found.dtype:  # branches differ
        return None
    if found.type.type_id == full_type_pb2.TFT_OPTIONAL:  # whose data describe a component
        return None
    return tf.as_dtype(found.dtype), tf.TensorShape(found.shape)


def attr_map(op: Operation) -> Any:
    """The NodeDef's attribute map of ``op`` (7 us: cache it)."""
    return op.node_def.attr


# ---------------------------------------------------------------------------
# Functions and gradients
# ---------------------------------------------------------------------------


def function_graph(graph: tf.Graph, name: str) -> Any:
    """The graph of the function ``name`` known to ``graph`` or to a graph around it.

    Raises:
      KeyError: if no such function is known.
    """
    found = find_function(graph, name)
    if found is None:
        raise KeyError(name)
    own = getattr(found, "graph", None)
    if own is not None and not _was_changed(own, found):
        return own
    definition = _definitions.with_calls(found.cached_definition, lambda x: find_function(graph, x))
    with graph.as_default():  # where the functions that it calls are looked for
        return _function_def_to_graph.function_def_to_graph(definition)


def _was_changed(graph: tf.Graph, found: Any) -> bool:
    """Whether a tape has changed calls in a graph since TensorFlow knows it as a function.

    Such a call also returns what a gradient needs. TensorFlow runs the function as it knows it, and
    may then choose another implementation, which draws other numbers.
    """
    calls = {
        op.name: name
        for op in _calls_in(graph)
        if (name := op.get_attr("f").name).startswith("__forward_")
    }
    if not calls:
        return False
    nodes = found.cached_definition.node_def
    return any(n.name in calls and n.attr["f"].func.name != calls[n.name] for n in nodes)


def _calls_in(graph: Any) -> Sequence[Operation]:
    """The calls of functions in a graph, which is searched again only when it has grown."""
    size, calls = getattr(graph, "_tf_pfor_calls", (-1, ()))
    if size != graph.version:
        calls = [op for op in graph.get_operations() if op.type in CALLS]
        graph._tf_pfor_calls = (graph.version, calls)
    return calls


def functions_of(op: Operation) -> list[Any]:
    """The graphs of the functions that are attributes of ``op``, or of its type in TensorFlow 1."""
    if schema(op.type) is None and find_function(op.graph, op.type) is not None:
        return [function_graph(op.graph, op.type)]
    if not _may_name_functions(op.type):
        return []
    return [function_graph(op.graph, name) for name in function_names(attr_map(op))]


@functools.lru_cache(4096)
def _may_name_functions(op_type: str) -> bool:
    """Whether an op has attributes that are functions; most have not, and reading them is slow."""
    known = schema(op_type)
    return known is None or bool({"func", "list(func)"} & {*known.attr_types.values()})


def find_function(graph: Any, name: str) -> Any:
    """The function object ``name`` in ``graph`` or a graph around it, else None."""
    while graph is not None:
        found = graph._get_function(name)
        if found is not None:
            return found
        graph = getattr(graph, "outer_graph", None)
    return None


def add_functions(source_graph: object, target_graph: Any, attrs: object) -> None:
    """Makes every function named by ``attrs`` in ``source_graph`` known to ``target_graph``."""
    todo = list(function_names(attrs))
    for name in todo:  # grows
        found = find_function(source_graph, name)
        if found is None or target_graph._get_function(name) is not None:
            continue
        target_graph._add_function_recursive(found)
        # TensorFlow does not follow calls of TensorFlow 1, whose op type is the name. It does not
        # follow what a gradient has made of branches in branches, either.
        for node in found.cached_definition.node_def:
            if schema(node.op) is None:
                todo.append(node.op)
            elif _may_name_functions(node.op):
                todo += function_names(node.attr)


def function_names(attrs: Any) -> Iterator[str]:
    """The names of the functions in a map of attributes."""
    for value in attrs.values():
        which = value.WhichOneof("value")
        if which == "func":
            yield value.func.name
        elif which == "list":
            yield from (f.name for f in value.list.func)


def registered_gradient(name: str) -> Any:
    """The gradient function registered under ``name`` (op type or custom gradient)."""
    return ops.gradient_registry.lookup(name)


def has_gradient_function(name: str) -> bool:
    """Whether a gradient is registered for op type ``name``."""
    return name in ops.gradient_registry.list()


def mark_jit_compiled(graph: Any) -> None:
    """Notes that ``graph`` is traced for jit_compile=True."""
    graph._tf_pfor_jit_compile = True


def gradient_name(op: Operation) -> str:
    """The name under which the gradient of this one op is registered; "" if it has none."""
    return attr_map(op)["_gradient_op_type"].s.decode() if has_own_gradient(op) else ""


def has_own_gradient(op: Operation) -> bool:
    """True for the ops that tf.custom_gradient makes."""
    return "_gradient_op_type" in attr_map(op)


BY_ROW = "TfPforLoopOverRows"  # the gradient of the op that is a loop over rows


def is_row_loop(op: Operation) -> bool:
    """True for what ``_graphs.call_row_loop`` made."""
    return "_tf_pfor_rows" in attr_map(op)


def row_loop(op: Operation) -> tuple[str, tuple[bool, ...]]:
    """The arguments of ``call_row_loop``: the function of one row, and which inputs have rows."""
    attrs = attr_map(op)
    rows = attrs["_tf_pfor_rows"].s.decode()
    return attrs["_tf_pfor_one"].func.name, tuple(x == "1" for x in rows)


def by_creation(operations: Iterable[Operation]) -> list[Operation]:
    """Operations of one graph in the order of their creation.

    TensorFlow keeps what must run, what an operation waits for, and what reads a tensor in sets
    that are ordered by addresses. What is emitted must not depend on these.
    """
    return sorted(operations, key=lambda op: op._id)


def must_run(graph: tf.Graph) -> list[Operation]:
    """The operations of a function's graph that run for their side effects, in order."""
    return by_creation(getattr(graph, "control_outputs", ()))


def consumers(tensor: tf.Tensor) -> list[Operation]:
    """The operations that read a tensor, in order."""
    return by_creation(tensor.consumers())


def control_outputs(op: Operation) -> list[Operation]:
    """The operations that wait for ``op``."""
    return op._control_outputs


def in_xla_context(graph: object) -> bool:
    """True when ``graph`` is traced for XLA (inside jit_compile as far as Python can see)."""
    while graph is not None:
        context = getattr(graph, "_control_flow_context", None)
        while context is not None:
            if context.IsXLAContext():
                return True
            context = context.outer_context
        if getattr(graph, "_tf_pfor_jit_compile", False):
            return True
        graph = getattr(graph, "outer_graph", None)
    return False


def owner(graph: tf.Graph) -> tf.Graph:
    """The graph of the function, or of the trial, that ``graph`` is a part of.

    A function may be traced in another one, which it outlives: that is not its owner.
    """
    while type(graph) is not FuncGraph and getattr(graph, "name", "") != TRIAL:
        outside = getattr(graph, "outer_graph", None)
        if outside is None or not outside.building_function:
            break
        graph = outside
    return graph


def is_loop_body(graph: tf.Graph) -> bool:
    """Whether ``graph`` is a trip of a tf.while_loop: its inputs are what the loop carries."""
    return isinstance(graph, _control_flow_graphs.WhileBodyFuncGraph)


def in_while(graph: tf.Graph | None) -> bool:
    """True in the body of a while loop that is being made, also in a branch of it."""
    while graph is not None:
        if is_loop_body(graph):
            return True
        graph = getattr(graph, "outer_graph", None)
    return False


def in_body(graph: tf.Graph) -> bool:
    """True when ``graph`` is traced as (part of) the body of a loop that is vectorized later."""
    return not _NOT_IN_BODY.get() and _is_in(graph, "pfor_body")


_NOT_IN_BODY = contextvars.ContextVar("tf_pfor_not_in_body", default=False)


@contextlib.contextmanager
def not_in_body() -> Generator[None]:
    """Ops that are made in the ``with`` block are not vectorized later."""
    token = _NOT_IN_BODY.set(True)
    try:
        yield
    finally:
        _NOT_IN_BODY.reset(token)


BRANCHES = ("Case", "If", "StatelessCase", "StatelessIf")
CALLS = ("PartitionedCall", "StatefulPartitionedCall")
LOOPS = ("StatelessWhile", "While")
PYTHON_OPS = ("EagerPyFunc", "PyFunc", "PyFuncStateless")
CONTAINERS = (*BRANCHES, *CALLS, *LOOPS)  # ops that run functions of the graph
TRIAL = "pfor_trial"  # the name of graphs that are thrown away, made to see layouts


def in_trial(graph: tf.Graph) -> bool:
    """True when ``graph`` is (part of) a trial."""
    return _is_in(graph, TRIAL)


def _is_in(graph: object, name: str) -> bool:
    while graph is not None:
        if getattr(graph, "name", "") == name:
            return True
        graph = getattr(graph, "outer_graph", None)
    return False


@functools.cache
def draws_randomly(op_type: str) -> bool:
    """True for TensorFlow's stateful randomness: ops with a graph seed and an op seed."""
    known = schema(op_type)
    if known is None or not known.is_stateful or any(x in op_type for x in ("Dataset", "Cudnn")):
        return False
    return {"seed", "seed2"} <= set(known.attr_types) or op_type == "NonDeterministicInts"


def may_record_gradients() -> bool:
    """Whether a tape of this thread may record what is made now."""
    return bool(execute.must_record_gradient())


def eager_state() -> tuple[Any, ...] | None:
    """The state of an eager trace: device and global seed. None while callbacks watch ops."""
    now = _context.context()
    return None if now.op_callbacks else (now.device_name, now._seed)


# ---------------------------------------------------------------------------
# Source lines
# ---------------------------------------------------------------------------

_TF_ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(ops.__file__))))
_OWN_ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
_LIBRARY_MARKS = (
    os.sep + "site-packages" + os.sep,
    os.sep + "dist-packages" + os.sep,
    "<frozen",
    "__autograph_generated_file",
    os.sep + "lib" + os.sep + "python3",
)


def user_line(op: Operation) -> str:
    """``file:line`` of the innermost frame in user code that made ``op``; "" if unknown."""
    try:
        return getattr(op, "_tf_pfor_line", "") or innermost(list(op.traceback or ()))
    except (AttributeError, ValueError):
        return ""


def innermost(frames: Sequence[Any]) -> str:
    """``file:line`` of the last of some frames that is in user code; "" if none is."""
    for frame in reversed(frames):
        if not is_library(frame.filename):
            return f"{frame.filename}:{frame.lineno}"
    return ""


def is_library(filename: str) -> bool:
    """Whether a file is no user code: of a library, of TensorFlow, of this package."""
    return is_machinery(filename) or any(mark in filename for mark in _LIBRARY_MARKS)


def is_machinery(filename: str) -> bool:
    """Whether a file is one of TensorFlow's or of this package."""
    return filename.startswith((_TF_ROOT, _OWN_ROOT))


def is_own(filename: str) -> bool:
    """Whether a file is one of this package's."""
    return filename.startswith(_OWN_ROOT)


def user_stack_level() -> int:
    """The ``stacklevel`` of a warning that its caller issues, so that it shows the user's line."""
    frame, level = inspect.currentframe(), 0
    while frame is not None:
        if not is_library(frame.f_code.co_filename):
            return level
        frame, level = frame.f_back, level + 1
    return 2


def is_zero(tensor: tf.Tensor) -> bool:
    """Whether all elements of a graph tensor are known to be zero."""
    while tensor.op.type == "Identity":
        tensor = tensor.op.inputs[0]
    known = static_value(tensor.op.inputs[1] if tensor.op.type == "Fill" else tensor)
    return tensor.op.type == "ZerosLike" or (known is not None and not np.any(known))


def static_value(tensor: tf.Tensor) -> np.ndarray | None:
    """The constant value of a graph tensor, or None if it is not known before running."""
    if tf.is_symbolic_tensor(tensor) and tensor.op.type == "ShapeN":  # TensorFlow's own looks away
        own, dtype = tensor.op.inputs[tensor.value_index].shape, tensor.dtype.as_numpy_dtype
        return np.asarray(own.as_list(), dtype) if own.is_fully_defined() else None
    if tensor.dtype == tf.string and tensor.shape.num_elements() == 0:
        return np.empty(tuple(tensor.shape), object)  # pyright: ignore[reportCallIssue, reportArgumentType]
    if tf.is_symbolic_tensor(tensor) and tensor.op.type == "Const":
        return _constant(tensor)
    found = tf.get_static_value(tensor)
    if found is None and tf.is_symbolic_tensor(tensor) and tensor.op.type in CALLS:
        return _returned_constant(tensor)
    return found


def _constant(tensor: Any) -> np.ndarray:
    """The value of a Const, which is unpacked once."""
    op = tensor.op
    if not hasattr(op, "_tf_pfor_value"):
        op._tf_pfor_value = tf.get_static_value(tensor)
    return op._tf_pfor_value.copy()


def _returned_constant(tensor: tf.Tensor) -> np.ndarray | None:
    """The value of a result of a function that returns a constant, such as its gradient reads."""
    op = tensor.op
    function = find_function(op.graph, attr_map(op)["f"].func.name)
    body = getattr(function, "graph", None)
    if body is None or tensor.value_index >= len(body.outputs):
        return None
    output = body.outputs[tensor.value_index]
    given = [outside for inside, outside in zip(body.inputs, op.inputs) if inside is output]
    return static_value(given[0] if given else output)
