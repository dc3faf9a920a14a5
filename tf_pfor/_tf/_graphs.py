"""Function graphs that are cheap to build: most of the time to trace goes into creating ops.

TensorFlow's functions check again what their callers know, and build a NodeDef of which nothing is
kept. ``add_op`` and ``capture`` do the same with the necessary calls only, in graphs and situations
where these are enough. Elsewhere they call TensorFlow's functions.
"""

from __future__ import annotations

import contextlib
import functools
import re
from collections.abc import Callable, Generator, Sequence
from typing import Any

import tensorflow as tf

from tf_pfor import _tf
from tf_pfor._tf import AttrValue, FuncGraph, _patience, _stacks

# What is made each time that it is asked for, also of the same tensor.
_OWN = ("DeepCopy", "Identity", "IdentityN", "PlaceholderWithDefault")
_SMALL = 1024  # bytes of a constant of which there is one
_NAME = re.compile(r"^[A-Za-z0-9.][A-Za-z0-9_.\\/>-]*$")


def add_op(
    graph: tf.Graph, op_type: str, inputs: list[tf.Tensor], attrs: dict[str, Any], name: str | None
) -> tf.Operation:
    """Adds one op to a graph; a function graph captures the inputs that come from outside.

    Args:
      graph: the graph.
      op_type: the OpDef name.
      inputs: the flat list of input tensors.
      attrs: AttrValue protos by name.
      name: made unique, taken as it is if it ends with "/"; the op type when None.

    Raises:
      ValueError: if TensorFlow's shape function refuses the inputs.
    """
    inputs = _safe_inputs(graph, op_type, inputs)
    if not (_creates_plainly(type(graph)) and _is_plain(graph)):
        return graph._create_op_internal(op_type, list(inputs), name=name, attrs=attrs)
    inputs = [capture(graph, t) for t in inputs]
    try:
        return _add(graph, op_type, inputs, attrs, name)
    except ValueError:
        if not _tf.in_trial(graph):
            raise
    # A trial knows more sizes than the body does. For them a branch that no row takes may be an
    # error, as x[-1] behind a test of the size.
    return _add(graph, op_type, [_of_unknown_sizes(graph, t) for t in inputs], attrs, name)


def _of_unknown_sizes(graph: tf.Graph, tensor: tf.Tensor) -> tf.Tensor:
    if (
        not tensor.shape.rank
        or tensor.dtype in (tf.resource, tf.variant)
        or tensor.op.type == "Const"
    ):
        return tensor
    shape = tf.TensorShape([None] * tensor.shape.rank)
    attrs = {
        "dtype": _tf.attr_value("type", tensor.dtype),
        "shape": _tf.attr_value("shape", shape),
    }
    return _add(graph, "PlaceholderWithDefault", [tensor], attrs, None).outputs[0]


def create_op(
    graph: tf.Graph,
    op_type: str,
    inputs: list[tf.Tensor],
    attrs: dict[str, AttrValue],
    name: str | None = None,
) -> tf.Operation:
    """Adds one op to ``graph`` and records it on the tapes that watch.

    Args:
      graph: the graph; a FuncGraph captures inputs from outside by itself.
      op_type: the OpDef name.
      inputs: the flat list of input tensors.
      attrs: AttrValue protos, inferred ones (T, N ...) included; defaults may be left out.
      name: the op's name, made unique; the op type when None.
    """
    op = add_op(graph, op_type, inputs, attrs, name)
    if op_type in (*_tf.BRANCHES, *_tf.LOOPS):
        lower(op)
    if _tf.execute.must_record_gradient():
        known = _tf.schema(op_type)
        flat: list[Any] = []
        if "_gradient_op_type" in attrs:
            op_type = attrs["_gradient_op_type"].s.decode()
            flat = [_tf.COLLECTIVE, attrs[_tf.COLLECTIVE].s] if _tf.COLLECTIVE in attrs else []
        elif known is not None:
            for key in known.attr_types:
                flat += [key, op.get_attr(key)]
        _tf.execute.record_gradient(op_type, tuple(op.inputs), tuple(flat), list(op.outputs))
    return op


def capture(graph: tf.Graph, tensor: tf.Tensor) -> tf.Tensor:
    """``tensor`` as a function graph sees it: a placeholder if it comes from outside."""
    is_eager = isinstance(tensor, tf.__internal__.EagerTensor)
    if not is_eager and tensor.graph is graph:
        return tensor
    is_usual = not _captures_plainly(type(graph))
    as_usual = graph.capture if is_usual else functools.partial(FuncGraph.capture, graph)
    if is_eager and tensor.dtype not in (tf.resource, tf.variant):
        with graph.as_default():  # where TensorFlow makes a constant of a small one
            return as_usual(tensor)
    if is_usual or not _is_plain(graph) or getattr(tensor, "is_packed", False):
        return as_usual(tensor)
    known = graph._function_captures
    if id(tensor) in known.by_val_internal:
        return as_usual(tensor)
    if not is_eager:
        graph._validate_in_scope(tensor)
    spec = tf.TensorSpec(tensor.shape, tensor.dtype)
    with graph.control_dependencies(None):
        inside = placeholder(graph, spec, "capture" if is_eager else tensor.op.name)
    _tf.copy_handle_data(tensor, inside)
    known.add_or_replace(
        key=id(tensor), external=tensor, internal=inside, tracetype=spec, is_by_ref=False
    )
    graph.inputs.append(inside)
    inside._record_tape(tensor)
    return inside


def placeholder(graph: tf.Graph, spec: tf.TensorSpec, name: str) -> tf.Tensor:
    """A placeholder in ``graph``."""
    attrs = {
        "dtype": AttrValue(type=spec.dtype.as_datatype_enum),
        "shape": AttrValue(shape=spec.shape.as_proto()),
    }
    return add_op(graph, "Placeholder", [], attrs, name).outputs[0]


class QuickGraph(FuncGraph):
    """A FuncGraph that never becomes a function of the runtime's: ops are created cheaply."""

    def as_default(self) -> Any:
        """Free where it is the default graph already, as it is for each op that is created."""
        is_here = not tf.executing_eagerly() and tf.compat.v1.get_default_graph() is self
        return contextlib.nullcontext(self) if is_here else super().as_default()

    def capture(
        self, tensor: tf.Tensor, name: str | None = None, shape: object = None
    ) -> tf.Tensor:
        return capture(self, tensor)

    def _create_op_internal(self, *args: Any, **kwargs: Any) -> tf.Operation:
        return _create(self, None, *args, **kwargs)


Once = dict[Any, tuple[tf.Operation, Any]]
"""Ops by ``key_of``, with their inputs, whose ids are in the keys."""


@contextlib.contextmanager
def quickly(graph: Any, once: Once) -> Generator[None]:
    """In the block, TensorFlow's own functions add ops to a function graph as ``add_op`` does.

    Args:
      graph: the graph. The graph of a body is traced, so it stays as it is.
      once: the ops that are made once; more are added.
    """
    kind, is_begun = type(graph), isinstance(graph._create_op_internal, functools.partial)
    if is_begun or kind is BodyGraph or not _creates_plainly(kind):
        yield
        return
    graph._create_op_internal = functools.partial(_create, graph, once)
    try:
        yield
    finally:
        del graph._create_op_internal


def _create(
    graph: tf.Graph,
    once: Once | None,
    op_type: str,
    inputs: Any,
    dtypes: object = None,
    input_types: Any = None,
    name: str | None = None,
    attrs: Any = None,
    op_def: object = None,
    compute_device: bool = True,
) -> tf.Operation:
    """``FuncGraph._create_op_internal``, cheaply where the situation is plain."""
    attrs, inputs = attrs or {}, _safe_inputs(graph, op_type, inputs)
    if not (compute_device and _is_plain(graph)) or any(t._is_ref_dtype for t in input_types or ()):
        return FuncGraph._create_op_internal(
            graph, op_type, inputs, dtypes, input_types, name, attrs, op_def, compute_device
        )

    def make() -> tf.Operation:
        return _add(graph, op_type, [capture(graph, t) for t in inputs], attrs, name)

    return make() if once is None else shared(once, graph, op_type, inputs, attrs, make)


def shared(
    once: Once,
    graph: tf.Graph,
    op_type: str,
    inputs: Sequence[tf.Tensor],
    attrs: dict[str, Any],
    make: Callable[[], tf.Operation],
) -> tf.Operation:
    """The op that ``make`` makes, or an earlier one with the same inputs and attributes.

    Constants are shared, and integers and masks that a stateless op makes.
    """
    key = _key_of(graph, op_type, inputs, attrs)
    if key in once:
        return once[key][0]
    made = make()
    if key is not None and _may_share(made):
        once[key] = (made, inputs)
    return made


def _key_of(
    graph: tf.Graph, op_type: str, inputs: Sequence[tf.Tensor], attrs: dict[str, Any]
) -> Any:
    """A key that ops with equal results share; None if each op must make its result."""
    schema = _tf.schema(op_type)
    if schema is None or schema.is_stateful or op_type in _OWN:
        return None
    if not inputs and (op_type != "Const" or attrs["value"].ByteSize() > _SMALL):
        return None
    if graph._control_dependencies_stack or graph._device_function_stack:
        return None
    return (op_type, *map(id, inputs), *((k, v.SerializeToString()) for k, v in attrs.items()))


def _may_share(op: tf.Operation) -> bool:
    """Whether all readers may share the result of one op: integers, masks and constants."""
    is_index = [t.dtype.is_integer or t.dtype.is_bool for t in op.outputs]
    return op.type == "Const" or (bool(is_index) and all(is_index))


class BodyGraph(QuickGraph):
    """A graph that the user's function is traced into."""

    def _create_op_internal(self, *args: object, **kwargs: object) -> tf.Operation:
        _patience.working("tracing", _stacks.user_line)
        made: Any = super()._create_op_internal(*args, **kwargs)
        if not hasattr(made, "_tf_pfor_stack"):  # TensorFlow's function has created it
            made._tf_pfor_stack = _stacks.here(1)
        if made.type == "LookupTableFindV2":
            _tell_shape_of_found(made)
        return made


def _tell_shape_of_found(find: tf.Operation) -> None:
    """Sets the shape of what a mutable table finds: TensorFlow tells it of fixed tables only."""
    (table, keys, default), (found,) = find.inputs, find.outputs
    is_open = found.shape.rank is None and default.shape.rank == 0
    if is_open and _finds_one_for_each_key(_as_given(table), keys.dtype, default.dtype):
        found.set_shape(keys.shape)


def _as_given(tensor: tf.Tensor) -> tf.Tensor:
    """A tensor as it was before graphs captured it."""
    graph = getattr(tensor, "graph", None)
    given = next((a for a, b in getattr(graph, "captures", ()) if b is tensor), None)
    return tensor if given is None else _as_given(given)


def _finds_one_for_each_key(table: tf.Tensor, key: tf.DType, value: tf.DType) -> bool:
    """Whether keys of a table are scalars, by a trial; some tables have vectors as keys."""
    if not isinstance(table, tf.__internal__.EagerTensor):
        return False
    with tf.init_scope():
        try:
            found = tf.raw_ops.LookupTableFindV2(
                table_handle=table, keys=tf.zeros([1], key), default_value=tf.zeros([], value)
            )
        except tf.errors.OpError:  # also of a key that means an empty place
            return False
    return found.shape == [1]


_ROWS = "_tf_pfor_rows"


def mark_rows(tensor: tf.Tensor) -> None:
    """Says of a slice ``values[start:end]`` that the rows of all iterations are all of the values.

    The rows of one iteration end where the rows of the next iteration begin.
    """
    tensor.op._set_attr(_ROWS, AttrValue(b=True))


def are_rows(op: tf.Operation) -> bool:
    """Whether ``mark_rows`` was called for the result of an op."""
    return op.type == "StridedSlice" and _ROWS in op.node_def.attr


@functools.cache
def _creates_plainly(graph_type: type) -> bool:
    """Whether graphs of a type create ops as function graphs do."""
    own = getattr(graph_type, "_create_op_internal", None)
    return own is FuncGraph._create_op_internal or issubclass(graph_type, QuickGraph)


@functools.cache
def _captures_plainly(graph_type: type) -> bool:
    """Whether graphs of a type capture as function graphs do: branches and loops have a way."""
    own = getattr(graph_type, "capture", None)
    helper = getattr(graph_type, "_capture_helper", None)
    usual = own is FuncGraph.capture and helper is FuncGraph._capture_helper
    return usual or issubclass(graph_type, QuickGraph)


def _is_plain(graph: tf.Graph) -> bool:
    """Whether nothing in force in a function graph changes the ops that are created."""
    return not (
        graph._attr_scope_map
        or graph._op_to_kernel_label_map
        or graph._gradient_function_map
        or graph._gradient_override_map
        or graph._colocation_stack
        or graph._container
        or graph.capture_by_value
        or graph._control_flow_context is not None
    )


def _safe_inputs(graph: tf.Graph, op_type: str, inputs: list[tf.Tensor]) -> list[tf.Tensor]:
    """The inputs of an op, in a form with which TensorFlow does not fail."""
    if op_type == "AddN":
        return _in_safe_order(inputs)
    return _of_dense_gradient(graph, inputs) if op_type == "GatherV2" else inputs


def _of_dense_gradient(graph: tf.Graph, inputs: list[tf.Tensor]) -> list[tf.Tensor]:
    """The inputs of a gather; a reshape stands between it and the TanhGrad that it gathers from.

    The gradient of a gather is an IndexedSlices. TensorFlow's gradient of TanhGrad multiplies that
    by a Python number, which is a TypeError. The gradient of a reshape is dense.
    """
    made = inputs[0]
    while getattr(made, "op", None) is not None and made.op.type == "Identity":
        made = made.op.inputs[0]
    if getattr(made, "op", None) is None or made.op.type != "TanhGrad":
        return inputs
    with graph.as_default():
        return [tf.reshape(inputs[0], tf.shape(inputs[0])), *inputs[1:]]


def _in_safe_order(inputs: list[tf.Tensor]) -> list[tf.Tensor]:
    """The inputs of an AddN, in an order for which its shape function does not throw.

    The shape function of AddN throws in C++ if several lists are known to hold something, and
    nothing is known of the last. A lock is kept then, and the process never ends. So the list that
    is best known comes last. The first list stays first: under XLA it says where the sum ends
    (``padded``).
    """
    if inputs[0].dtype != tf.variant:
        return inputs
    return [inputs[0], *sorted(inputs[1:], key=_how_known)]


def _how_known(handle: tf.Tensor) -> int:
    """0 where nothing is known of what a list holds; 1 where shapes inferred again do not tell."""
    if _tf.list_element(handle) is None:
        return 0
    if isinstance(handle, tf.__internal__.EagerTensor):
        return 2
    while handle.op.type == "Identity":
        handle = handle.op.inputs[0]
    schema = _tf.schema(handle.op.type)
    return 1 if schema is None or "func" in schema.attr_types.values() else 2


def _add(
    graph: tf.Graph, op_type: str, inputs: list[tf.Tensor], attrs: dict[str, Any], name: str | None
) -> tf.Operation:
    """Adds one op whose inputs are of the graph."""
    name = name or op_type
    name = name[:-1] if name[-1] == "/" else str(graph.unique_name(name))
    if not _NAME.match(name):
        raise ValueError(f"'{name}' is not a valid name of an op (pattern {_NAME.pattern}).")
    given = inputs
    if _has_lists(op_type):
        given = _tf.ops._reconstruct_sequence_inputs(
            _tf.op_def_registry.get(op_type), inputs, attrs
        )
    controls = graph._control_dependencies_for_inputs({t.op for t in inputs})
    with graph._c_graph.get() as c_graph:
        made = _tf.c_api.TF_NewOperation(c_graph, op_type, name)
    for tensor in given:
        if isinstance(tensor, list):
            _tf.c_api.TF_AddInputList(made, [t._as_tf_output() for t in tensor])
        else:
            _tf.c_api.TF_AddInput(made, tensor._as_tf_output())
    for before in controls:
        _tf.c_api.TF_AddControlInput(made, before._c_op)
    for key, value in attrs.items():
        _tf.c_api.TF_SetAttrValueProto(made, key, value.SerializeToString())
    try:
        finished = _tf.c_api.TF_FinishOperation(made)
    except tf.errors.InvalidArgumentError as why:
        raise ValueError(why.message) from None
    is_of_body = isinstance(graph, BodyGraph)
    stack = _stacks.here(2) if is_of_body else _stacks.of_emitted()
    _tf.c_api.TF_SetOpStackTrace(finished, stack)
    operation = _tf.ops.Operation(finished, _tf.ops.SymbolicTensor)
    operation._init(graph)
    if is_of_body:
        operation._tf_pfor_stack = stack  # for the ops that it becomes
        operation._tf_pfor_line = _stacks.line()
    graph._record_op_seen_by_control_dependencies(operation)
    graph._apply_device_functions(operation)
    operation._colocation_code_locations = {}
    operation._original_op = graph._default_original_op
    return operation


@functools.cache
def _has_lists(op_type: str) -> bool:
    """Whether an input of the op is a list of tensors. Functions called as ops have none."""
    known = _tf.op_def_registry.get(op_type)
    return known is not None and any(a.number_attr or a.type_list_attr for a in known.input_arg)


def call_row_loop(
    rows: Any, one: Any, stacked: Sequence[bool], inputs: Sequence[tf.Tensor]
) -> list[tf.Tensor]:
    """Calls a loop over rows, and says on the op that it is one, for a loop around it.

    Args:
      rows: the function that runs all rows.
      one: the function that runs one.
      stacked: for each input whether it has rows.
      inputs: the inputs.
    """
    graph = tf.compat.v1.get_default_graph()
    protos = {
        "Tin": _tf.attr_value("list(type)", [t.dtype for t in inputs]),
        "Tout": _tf.attr_value("list(type)", [t.dtype for t in rows.graph.outputs]),
        "f": AttrValue(),
        "_tf_pfor_one": AttrValue(),
        "_tf_pfor_rows": _tf.attr_value("string", "".join("01"[s] for s in stacked)),
    }
    holds_lists = any(t.dtype == tf.variant for t in (*inputs, *rows.graph.outputs))
    if holds_lists or not any(t.dtype.is_floating or t.dtype.is_complex for t in inputs):
        protos["_gradient_op_type"] = _tf.attr_value("string", _tf.BY_ROW)
    protos["f"].func.name = tf.compat.as_str(rows.name)
    protos["_tf_pfor_one"].func.name = tf.compat.as_str(one.name)
    # TensorFlow may share or move a call without state; a read of a variable keeps its place.
    reads = any(t.dtype == tf.resource for t in inputs)
    kind = "StatefulPartitionedCall" if reads else "PartitionedCall"
    return list(create_op(graph, kind, list(inputs), protos, "rows").outputs)


def depending_on_nothing(graph: tf.Graph) -> Any:
    """``control_dependencies(None)``, but in the same XLA context.

    An op outside of it would be an input of what XLA compiles, and no constant.
    """
    context = graph._control_flow_context
    while context is not None and not context.IsXLAContext():
        context = context.outer_context
    return graph.control_dependencies(None) if context is None else _inside(graph, context)


@contextlib.contextmanager
def _inside(graph: tf.Graph, context: object) -> Generator[None]:
    with graph.control_dependencies(None):  # puts back the context that it leaves
        graph._set_control_flow_context(context)
        yield


@contextlib.contextmanager
def unordered(op: tf.Operation) -> Generator[None]:
    """In the block, functions of a stateless op are built without TensorFlow's order of effects.

    It would look for effects that are not there, and add an Identity for each result.
    """
    graph = tf.compat.v1.get_default_graph()
    before = graph._add_control_dependencies
    graph._add_control_dependencies = before and not op.type.startswith("Stateless")
    try:
        yield
    finally:
        graph._add_control_dependencies = before


def lower(op: tf.Operation) -> None:
    """Makes branches or a loop run in the graph around them, as branches of ``tf.cond`` do.

    Otherwise all ops in there run on the device of ``op``, whether they have a kernel for it or
    not. Then they look for int32 tensors on a GPU in the wrong memory, which ends the process.
    """
    if not _tf.in_xla_context(op.graph):
        op._set_attr("_lower_using_switch_merge", _tf.attr_value("bool", True))


def by_device(
    on_cpu: Any, elsewhere: object, inputs: Sequence[tf.Tensor], shapes: Sequence[tf.TensorShape]
) -> list[tf.Tensor]:
    """Calls one of two functions of the current graph: the first where the op runs on a CPU.

    XLA takes the second.

    Args:
      on_cpu: a concrete function.
      elsewhere: another one, with the same inputs and outputs.
      inputs: the inputs of both.
      shapes: the shapes of the outputs.
    """
    made = tf.raw_ops.StatelessCase(
        branch_index=tf.raw_ops.DeviceIndex(device_names=["CPU"]),
        input=list(inputs),
        Tout=[t.dtype for t in on_cpu.outputs],
        branches=[on_cpu, elsewhere],
        output_shapes=list(shapes),
    )
    lower(made[0].op)
    return list(made)


def keep_from_folding(op: tf.Operation) -> None:
    """Makes no constant of an op without inputs, and of what reads it.

    A list of variants that is a constant cannot be copied to a GPU ("GPU copy from non-DMA variant
    tensor"). TensorFlow folds no op with this attribute; empty, it says nothing else.
    """
    op._set_attr("_scoped_allocator", _tf.attr_value("list(int)", []))


def keep_from_merging(graph: tf.Graph) -> None:
    """Keeps oneDNN from merging the gradients of a bias and of a filter, which sums in other order.

    It merges two ops only if they wait for the same ops. ``graph`` is the current one.
    """
    found = [op for op in graph.get_operations() if op.type == "BiasAddGrad"]
    if found:
        first = tf.no_op()
        for op in found:
            op._add_control_input(first)


# ---------------------------------------------------------------------------
# Tracing
# ---------------------------------------------------------------------------


def trace(
    name: str, function: Callable[..., Sequence[tf.Tensor]], specs: Sequence[tf.TensorSpec]
) -> BodyGraph:
    """Traces ``function`` of ``specs`` into a FuncGraph.

    With automatic control dependencies, as tf.function does, but without building a FunctionDef
    that nobody would run.
    """
    graph = BodyGraph(name)
    with graph.as_default(), _own_variables():
        given = [_input(graph, spec) for spec in specs]
        graph.inputs = list(given)
        with _ControlDependencies() as controls:
            results = function(*given)
        graph.outputs.extend(graph.capture(x) for x in results)
    graph.variables = graph._watched_variables
    graph.control_outputs.extend(_tf.by_creation(controls.ops_which_must_run))
    return graph


def _input(graph: tf.Graph, spec: tf.TensorSpec) -> tf.Tensor:
    """An input of a traced graph, with the handle data of its spec."""
    made = placeholder(graph, spec, spec.name or "arg")
    handle = spec.dtype._handle_data
    if handle is not None and handle.shape_inference.is_set:
        _tf.ops.handle_data_util.set_handle_data(made, handle.shape_inference)
    return made


@contextlib.contextmanager
def _own_variables() -> Generator[None]:
    """Variables of TensorFlow 1 (get_variable) are resources, as in a tf.function.

    The scope is the thread's. ``tf.map_fn`` and ``tf.scan`` leave a caching device in it when their
    function raises, and no ``tf.recompute_grad`` called eagerly works after that: it is put back.
    """
    scope = tf.compat.v1.get_variable_scope()
    before, caching_device = scope.use_resource, scope.caching_device
    scope.set_use_resource(True)
    try:
        yield
    finally:
        scope.set_use_resource(before)
        scope.set_caching_device(caching_device)


class _ControlDependencies(_tf.AutomaticControlDependencies):
    """Automatic control dependencies, at no cost for a graph without side effects."""

    def __exit__(self, *error: object) -> None:
        graph = self._graph
        if any(_has_effect(op.type) for op in graph.get_operations()):
            super().__exit__(*(error or (None, None, None)))
            return
        outer = getattr(graph, "outer_graph", None)
        graph._add_control_dependencies = getattr(outer, "_add_control_dependencies", False)
        graph.experimental_acd_manager = None


@functools.cache
def _has_effect(op_type: str) -> bool:
    """False for ops that need no order among themselves: stateless ones, and plain reads."""
    known = _tf.op_def_registry.get(op_type)
    if known is None:
        return True
    return known.is_stateful and op_type not in ("Placeholder", "ReadVariableOp", "VarHandleOp")
