"""What no converter takes: one op, or a region of ops, in a sequential loop (DESIGN 11).

The engine is ``MapDefun``, a C++ kernel that runs a function on each row, where it can be used
(CPU, not XLA), else ``tf.while_loop``. Which of them runs is decided when the graph runs: a
``DeviceIndex`` op selects a branch of a ``StatelessCase``; XLA compiles only the second one.
Neither is differentiated: the gradient of one row is traced and vectorized like any body.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import tensorflow as tf

from tf_pfor import _tf
from tf_pfor.errors import CannotVectorize
from tf_pfor.gradients import convert_later, has_gradient
from tf_pfor.loop import Loop
from tf_pfor.values import Layout, Shape, Value, dims, is_static

if TYPE_CHECKING:
    from tf_pfor.call import Inputs
    from tf_pfor.convert import Walker


def why_not(op: tf.Operation, may_loop: bool) -> str:
    """Why ``op`` must not run in a sequential loop; "" if it may."""
    schema = _tf.schema(op.type)
    assert schema is not None
    if schema.is_stateful:
        return "it is stateful, and a stateful op cannot run in the fallback loop yet"
    if not may_loop:
        return "the fallback loop is off"
    return ""


def loop_op(op: tf.Operation, inputs: Inputs, walker: Walker) -> list[Value]:
    """Runs one op in a sequential loop over its stacked inputs."""
    values: list[Value] = []
    for value in inputs.values():
        values += value if isinstance(value, list) else [value]
    known = {_key(t): v for t, v in zip(op.inputs, values)}
    region = Region.of([op])
    return loop_region(region, [known[_key(t)] for t in region.inputs], walker)


def loop_in_order(op: tf.Operation, inputs: Inputs, walker: Walker) -> list[Value]:
    """Runs one op, most likely stateful, once for each iteration, one after the other."""
    values: list[Value] = []
    for value in inputs.values():
        values += value if isinstance(value, list) else [value]
    known = {_key(t): v for t, v in zip(op.inputs, values)}
    region = Region.of([op])
    chosen = [known[_key(t)] for t in region.inputs]
    for value in chosen:
        if value.layout not in (Layout.STACKED, Layout.UNSTACKED):
            raise CannotVectorize(f"an input of layout '{value.layout.value}' has no rows")
    tensors = [v.tensor for v in chosen]

    @tf.custom_gradient
    def run(*given: tf.Tensor) -> Any:
        made = _in_order(region, given, [v.is_stacked for v in chosen], walker.loop)

        def gradient(*_: tf.Tensor) -> Any:
            check = tf.debugging.Assert(
                False,
                [
                    f"{op.type} ({_tf.user_line(op) or 'line unknown'}) runs once for each "
                    "iteration, and the gradient of that is not supported. Use tf.stop_gradient "
                    "on its result, or move it out of the body."
                ],
            )
            with tf.control_dependencies([check] if check is not None else []):
                return [tf.zeros_like(t) if has_gradient(t) else None for t in given]

        return tuple(made), gradient

    if any(has_gradient(t) for t in tensors) and any(has_gradient(t) for t in op.outputs):
        made = _emitting(walker, lambda: run(*tensors))
    else:
        stacked = [v.is_stacked for v in chosen]
        made = _emitting(walker, lambda: _in_order(region, tensors, stacked, walker.loop))
    return [Value.stacked(t).with_inner_shape(dims(old)) for t, old in zip(made, op.outputs)]


def _in_order(
    region: Region, tensors: Sequence[tf.Tensor], stacked: Sequence[bool], loop: Loop
) -> list[tf.Tensor]:
    """All rows by tf.while_loop; a row starts when the one before it has ended."""
    n = loop.length
    outputs = region.outputs
    arrays = [tf.TensorArray(t.dtype, n, element_shape=t.shape, infer_shape=False) for t in outputs]

    def step(i: tf.Tensor, *arrays: Any) -> Any:
        graph = tf.compat.v1.get_default_graph()
        rows = [tf.gather(t, i) if s else t for t, s in zip(tensors, stacked)]
        before = len(graph.get_operations())
        with tf.control_dependencies([i]):
            made = region.copy(*rows)
        with tf.control_dependencies(graph.get_operations()[before:]):
            after = i + 1
        return (after, *[a.write(i, t) for a, t in zip(arrays, made)])

    _, *arrays = tf.while_loop(
        lambda i, *_: i < n, step, (tf.constant(0), *arrays), parallel_iterations=1
    )
    made = [_stack(a, t, n) for a, t in zip(arrays, outputs)]
    for t, output in zip(made, outputs):
        inner = dims(output)
        t.set_shape(None if inner is None else (loop.static_length, *inner))
    return made


# ---------------------------------------------------------------------------
# Regions
# ---------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True, slots=True)
class Region:
    """Ops of the body that run together, once for each row.

    Attributes:
      ops: the ops, each after those it needs.
      inputs: the tensors of the body that they read and do not make.
      outputs: the tensors that others read.
    """

    ops: tuple[tf.Operation, ...]
    inputs: tuple[tf.Tensor, ...]
    outputs: tuple[tf.Tensor, ...]

    @classmethod
    def of(cls, ops: Sequence[tf.Operation]) -> Region:
        """The region of ``ops``, all of whose outputs are wanted."""
        inside = set(ops)
        inputs = {_key(t): t for op in ops for t in op.inputs if t.op not in inside}
        outputs = tuple(t for op in ops for t in op.outputs)
        return cls(tuple(ops), tuple(inputs.values()), outputs)

    def copy(self, *inputs: tf.Tensor) -> list[tf.Tensor]:
        """Emits the ops in the current graph on ``inputs``; returns the outputs."""
        graph = tf.compat.v1.get_default_graph()
        new: dict[Any, tf.Tensor] = {_key(t): x for t, x in zip(self.inputs, inputs)}
        for op in self.ops:
            schema = _tf.schema(op.type)
            assert schema is not None
            protos = {k: v for k, v in _tf.attr_map(op).items() if k in schema.attr_types}
            _tf.add_functions(op.graph, graph, protos)
            given = [new[_key(t)] for t in op.inputs]
            made = _tf.create_op(graph, op.type, given, protos, op.name)
            for old, copied in zip(op.outputs, made.outputs):
                new[_key(old)] = copied
        return [new[_key(t)] for t in self.outputs]


def loop_region(region: Region, values: Sequence[Value], walker: Walker) -> list[Value]:
    """Runs a region in a sequential loop over the stacked ones of its inputs."""
    for value in values:
        if value.layout not in (Layout.STACKED, Layout.UNSTACKED):
            raise CannotVectorize(f"an input of layout '{value.layout.value}' has no rows")
    stacked = tuple(v.is_stacked for v in values)
    tensors = [v.tensor for v in values]
    if not any(stacked):
        made = _emitting(walker, lambda: region.copy(*tensors))
        return [Value.unstacked(t) for t in made]
    rows = RowLoop(region, stacked, walker)
    made = _emitting(walker, lambda: rows.differentiable(*tensors))
    return [Value.stacked(t).with_inner_shape(dims(old)) for t, old in zip(made, region.outputs)]


def _emitting(walker: Walker, make: Callable[[], Any]) -> Any:
    """Calls ``make`` with the walker's graph as the current one, and tells its emitter."""
    graph = walker.emit.graph
    before = len(graph.get_operations())
    with graph.as_default():
        made = make()
    walker.emit.operations += graph.get_operations()[before:]
    return made


def _key(tensor: tf.Tensor) -> Any:
    return (tensor.op, tensor.value_index)


# ---------------------------------------------------------------------------
# The loop over rows
# ---------------------------------------------------------------------------


class RowLoop:
    """A region of the body, run once for each row."""

    def __init__(self, region: Region, stacked: tuple[bool, ...], walker: Walker):
        self.region = region
        self.stacked = stacked
        self.loop: Loop = walker.loop
        self._walker = walker

    def differentiable(self, *tensors: tf.Tensor) -> list[tf.Tensor]:
        """The stacked outputs of the region; their gradient is vectorized, not looped."""
        tensors = tuple(_tf.captured(t) for t in tensors)
        wrt = [i for i, t in enumerate(tensors) if has_gradient(t)]
        if not wrt or not any(has_gradient(t) for t in self.region.outputs):
            return self(*tensors)

        @tf.custom_gradient
        def run(*given: tf.Tensor) -> Any:
            full = list(tensors)
            for i, x in zip(wrt, given):
                full[i] = x

            def gradient(*upstream: tf.Tensor) -> list[tf.Tensor | None]:
                return self._gradient(full, wrt, upstream)

            return tuple(self(*full)), gradient

        made = run(*[tensors[i] for i in wrt])
        return list(made)

    def __call__(self, *tensors: tf.Tensor) -> list[tf.Tensor]:
        """The stacked outputs of the region."""
        specs = [tf.TensorSpec(t.shape, t.dtype) for t in tensors]
        graph = tf.compat.v1.get_default_graph()
        while_loop = self._traced(self._while_loop, specs, tensors)
        n = self.loop.static_length
        shapes_known = all(is_static(dims(t)) for t in self.region.outputs)
        use_kernel = (shapes_known or n) and not _tf.in_xla_context(graph)
        if not use_kernel:
            made = self._while_loop(*tensors)
        else:
            kernel = self._traced(self._kernel, specs, tensors)
            made = tf.raw_ops.StatelessCase(
                branch_index=tf.raw_ops.DeviceIndex(device_names=["CPU"]),
                input=list(tensors),
                Tout=[t.dtype for t in self.region.outputs],
                branches=[kernel, while_loop],
                output_shapes=[self._full(dims(t)) for t in self.region.outputs],
            )
        for tensor, output in zip(made, self.region.outputs):
            tensor.set_shape(self._full(dims(output)))
        return list(made)

    def _full(self, inner: Shape) -> tf.TensorShape:
        return tf.TensorShape(None if inner is None else (self.loop.static_length, *inner))  # pyright: ignore[reportArgumentType]

    def _traced(self, function: Any, specs: Sequence[Any], like: Sequence[tf.Tensor]) -> Any:
        """``function`` as a function of the current graph."""

        def run(*args: tf.Tensor) -> list[tf.Tensor]:
            for outside, inside in zip(like, args):
                if inside.dtype in (tf.resource, tf.variant):
                    _tf.copy_handle_data(outside, inside)
            return function(*args)

        concrete = tf.function(run, autograph=False).get_concrete_function(*specs)
        concrete.add_to_graph(tf.compat.v1.get_default_graph())
        return concrete

    def _kernel(self, *tensors: tf.Tensor) -> list[tf.Tensor]:
        """All rows by MapDefun."""
        mapped = [t for t, s in zip(tensors, self.stacked) if s]
        shared = [t for t, s in zip(tensors, self.stacked) if not s]

        def one(*args: tf.Tensor) -> list[tf.Tensor]:
            rows, rest = iter(args[: len(mapped)]), iter(args[len(mapped) :])
            return self.region.copy(*[next(rows) if s else next(rest) for s in self.stacked])

        specs = [tf.TensorSpec(t.shape[1:], t.dtype) for t in mapped]
        specs += [tf.TensorSpec(t.shape, t.dtype) for t in shared]
        return tf.raw_ops.MapDefun(
            arguments=mapped,
            captured_inputs=shared,
            output_types=[t.dtype for t in self.region.outputs],
            output_shapes=[t.shape for t in self.region.outputs],
            f=self._traced(one, specs, [*mapped, *shared]),
        )

    def _while_loop(self, *tensors: tf.Tensor) -> list[tf.Tensor]:
        """All rows by tf.while_loop."""
        n = self.loop.static_length
        if n is None:
            n = tf.shape(next(t for t, s in zip(tensors, self.stacked) if s))[0]
        outputs = self.region.outputs
        arrays = [
            tf.TensorArray(t.dtype, n, element_shape=t.shape, infer_shape=False) for t in outputs
        ]

        def step(i: tf.Tensor, *arrays: Any) -> Any:
            rows = [tf.gather(t, i) if s else t for t, s in zip(tensors, self.stacked)]
            made = self.region.copy(*rows)
            return (i + 1, *[a.write(i, t) for a, t in zip(arrays, made)])

        _, *arrays = tf.while_loop(
            lambda i, *_: i < n, step, (tf.constant(0), *arrays), maximum_iterations=n
        )
        return [_stack(a, t, n) for a, t in zip(arrays, outputs)]

    def _gradient(
        self, tensors: Sequence[tf.Tensor], wrt: Sequence[int], upstream: Sequence[tf.Tensor]
    ) -> list[tf.Tensor | None]:
        """Gradients with respect to some inputs: traced for one row, then vectorized."""
        tensors = [_tf.captured(t) for t in tensors]
        graph, present = self._traced_gradient(tensors, wrt)
        values = [
            Value.stacked(t) if s else Value.unstacked(t) for t, s in zip(tensors, self.stacked)
        ]
        values += [Value.stacked(t) for t in upstream]
        later = self._walker.later()
        # The op itself was allowed to loop, so what is in its gradient may loop too.
        later.settings = dataclasses.replace(later.settings, fallback="loop")
        made = iter(later.tile(v).tensor for v in convert_later(later, graph, values))
        results: list[tf.Tensor | None] = []
        for i, is_present in zip(wrt, present):
            if not is_present:
                results.append(None)
                continue
            gradient = next(made)
            results.append(gradient if self.stacked[i] else tf.reduce_sum(gradient, 0))
        return results

    def _traced_gradient(
        self, tensors: Sequence[tf.Tensor], wrt: Sequence[int]
    ) -> tuple[Any, list[bool]]:
        """The graph of the gradient of one row, and which gradients there are."""
        specs = [tf.TensorSpec(t.shape, t.dtype) for t in self.region.inputs]
        specs += [tf.TensorSpec(t.shape, t.dtype) for t in self.region.outputs]
        present: list[bool] = []

        def run(*args: tf.Tensor) -> list[tf.Tensor]:
            for outside, inside in zip(tensors, args):
                if inside.dtype in (tf.resource, tf.variant):
                    _tf.copy_handle_data(outside, inside)
            inputs, upstream = args[: len(tensors)], args[len(tensors) :]
            outputs = self.region.copy(*inputs)
            chosen = [k for k, t in enumerate(outputs) if has_gradient(t)]
            found = tf.gradients(
                [outputs[k] for k in chosen],
                [inputs[i] for i in wrt],
                [upstream[k] for k in chosen],
            )
            present.extend(g is not None for g in found)
            return [tf.convert_to_tensor(g) for g in found if g is not None]

        return _tf.trace("fallback_gradient", run, specs), present


def _stack(array: tf.TensorArray, like: tf.Tensor, n: Any) -> tf.Tensor:
    """The rows of ``array`` as one tensor; without rows, unknown dimensions are 0."""
    shape = dims(like)
    if is_static(shape) or shape is None:
        return array.stack()
    if isinstance(n, int):
        filler: Any = 0 if n == 0 else -1
        element_shape = tf.constant([filler if d is None else d for d in shape], tf.int32)
    else:
        filler = tf.where(tf.equal(n, 0), 0, -1)
        element_shape = tf.stack([filler if d is None else d for d in shape])
    return tf.raw_ops.TensorListStack(
        input_handle=array.flow, element_shape=element_shape, element_dtype=like.dtype
    )
