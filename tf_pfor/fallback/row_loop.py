"""Ops that no converter takes: one op, or a region of ops, in a sequential loop.

The engine is ``MapDefun``, a C++ kernel that runs a function on each row, where it can be used
(CPU, not XLA), else ``tf.while_loop``. Which of them runs is decided when the graph runs: a
``DeviceIndex`` op selects a branch of a ``StatelessCase``; XLA compiles only the second one.
Neither is differentiated: the gradient of one row is traced and vectorized like any body.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Sequence
from typing import Any, NoReturn

import tensorflow as tf

from tf_pfor import _tf
from tf_pfor._tf import _graphs
from tf_pfor._tf._custom_gradients import attached, has_gradient
from tf_pfor._tf._functions import is_of_gradients, never_converted
from tf_pfor.core.conversion import Conversion, Inputs
from tf_pfor.core.emit import PLAIN
from tf_pfor.core.errors import CannotVectorize, NotVectorizableError
from tf_pfor.core.late_gradients import convert_later
from tf_pfor.core.loop import Loop
from tf_pfor.core.regions import Region, handed_on, key
from tf_pfor.core.values import Shape, Value, as_tensor_shape, dims, is_static
from tf_pfor.fallback import ragged_rows
from tf_pfor.fallback.refusals import OTHER_HANDLES, check_kernels, check_region
from tf_pfor.layouts.ragged import differ_in_shape, is_ragged
from tf_pfor.layouts.row_shapes import (
    array_of_rows,
    like_the_first,
    of_known_shape,
    padded,
    stacked_rows,
)


def loop_op(
    op: tf.Operation, inputs: Inputs, walker: Conversion, *, in_order: bool = False
) -> list[Value]:
    """Runs one op in a sequential loop over its stacked inputs; a stateful one in order.

    Another one runs ``in_order`` if that is asked for, once for each iteration.
    """
    values: list[Value] = []
    for value in inputs.values():
        values += value if isinstance(value, list) else [value]
    known = {key(t): v for t, v in zip(op.inputs, values)}
    handles = {i: handed_on(t) for i, t in enumerate(op.outputs) if t.dtype == tf.resource}
    region = Region.of([op], [t for i, t in enumerate(op.outputs) if handles.get(i) is None])
    has_ranks = any(t.shape.rank and not is_static(dims(t)) for t in region.outputs)
    if differ_in_shape(values) or (in_order and has_ranks):
        region = ragged_rows.may_differ(region)
    made = iter(
        loop_region(region, [known[key(t)] for t in region.inputs], walker, in_order=in_order)
    )
    sources = [handles.get(i) for i in range(len(op.outputs))]
    return [next(made) if source is None else known[key(source)] for source in sources]


def loop_region(
    region: Region, values: Sequence[Value], walker: Conversion, *, in_order: bool = False
) -> list[Value]:
    """Runs a region in a sequential loop over the stacked ones of its inputs."""
    in_order = in_order or region.is_stateful
    if not (region.outputs or in_order):  # nobody reads what it would make
        return []
    if any(is_ragged(v) for v in values):
        region, values = ragged_rows.cut(region, values, walker)
    _check_rows(values)
    is_xla = _tf.in_xla_context(walker.emit.graph)
    for tensor in region.outputs if in_order or is_xla else ():
        if tensor.dtype == tf.variant:
            where = f"{tensor.op.type} ({_tf.user_line(tensor.op) or 'line unknown'})"
            raise CannotVectorize(
                f"the list that {where} makes differs in each row, and is read outside of the loop "
                "over the rows: turn it into a tensor there, by TensorArray.stack() or concat()"
            )
    stacked = tuple(v.is_stacked for v in values)
    tensors = [v.tensor for v in values]
    if not any(stacked) and not in_order:
        if is_xla:
            check_kernels(region.ops)
        with walker.emit.as_default():
            made = region.copy(*tensors)
        return [Value.unstacked(t) for t in made]
    rows = RowLoop(region, stacked, walker, in_order=in_order)
    # Python code keeps a tape for the gradient of each row, which ``differentiable`` hands on.
    if region.uneven and (ragged_rows.differ(region) or not in_order):
        with walker.emit.as_default():
            python = next((op for op in region.ops if op.type == "EagerPyFunc"), None)
            if python is not None:
                why = _OF_PYTHON.format(_tf.user_line(python) or "line unknown")
                tensors = [_without_gradient(t, why) if has_gradient(t) else t for t in tensors]
            return ragged_rows.results(rows, tensors)
    # tf.while_loop's own gradient does not run updates of variables again.
    run = rows if in_order and region.has_variables else rows.differentiable
    with walker.emit.as_default():
        made = run(*tensors)
    return [Value.stacked(t).with_inner_shape(dims(old)) for t, old in zip(made, region.outputs)]


def _without_gradient(tensor: tf.Tensor, why: str) -> tf.Tensor:
    """An input of calls of Python, whose gradient TensorFlow cannot find in a loop."""

    def gradient(*_: tf.Tensor) -> NoReturn:
        raise NotVectorizableError(why)

    return attached(lambda x: [tf.identity(x)], [tensor], gradient)[0]


_OF_PYTHON = (
    "There is no gradient of a tf.py_function ({}) that returns rows of different shapes, taken "
    "outside of the map. Let Python return rows of one shape (padded), put a tf.custom_gradient "
    "around it, or write the function with TensorFlow's ops."
)


def _check_rows(values: Sequence[Value]) -> None:
    for value in values:
        if not value.is_tensor and not is_ragged(value):
            why = f"an input is a list of all rows ({value.layout.value}), which has no rows"
            raise CannotVectorize(why)
        if value.is_stacked and value.dtype == tf.resource:  # kernels take the first one
            raise CannotVectorize(OTHER_HANDLES)


def loop_again(call: tf.Operation, values: Sequence[Value], walker: Conversion) -> list[Value]:
    """A loop over m rows inside another loop, of n rows: one loop over the rows of both."""
    _check_rows(values)
    if differ_in_shape(values):
        raise CannotVectorize("the loop of an inner map reads rows of different shapes")
    one, inner = _tf.row_loop(call)
    try:
        region = Region.of_graph(_tf.function_graph(call.graph, one))
    except KeyError as why:
        raise CannotVectorize(f"the function of one row, '{one}', is not known") from why

    def run() -> list[tf.Tensor]:
        n = walker.loop.length
        m = next(_size(v) for v, s in zip(values, inner) if s)
        both = n * m
        tensors = [_of_both(v, s, m, both) for v, s in zip(values, inner)]
        around = walker.enter(Loop(both, walker.emit), walker.emit)
        stacked = tuple(s or v.is_stacked for v, s in zip(values, inner))
        made = RowLoop(region, stacked, around).differentiable(*tensors)
        return [tf.reshape(t, tf.concat([[n, m], tf.shape(t)[1:]], 0)) for t in made]

    with walker.emit.as_default():
        return [Value.stacked(t) for t in run()]


def _size(value: Value) -> Any:
    """m, the number of rows of an input of an inner loop."""
    axis = 1 if value.is_stacked else 0
    known = value.tensor.shape[axis]
    return tf.shape(value.tensor)[axis] if known is None else known


def _of_both(value: Value, is_row: bool, m: object, both: Any) -> tf.Tensor:
    """[n, m, ...], [n, ...] or [m, ...] -> [n * m, ...]; what no loop varies stays as it is."""
    tensor = value.tensor
    if not value.is_stacked and not is_row:
        return tensor
    inner = tensor.shape[2 if value.is_stacked and is_row else 1 :]
    if not (value.is_stacked and is_row):
        ids = tf.range(both)
        tensor = tf.gather(tensor, ids // m if value.is_stacked else ids % m)
    else:
        tensor = tf.reshape(tensor, tf.concat([[both], tf.shape(tensor)[2:]], 0))
    lead = tf.TensorShape([both if isinstance(both, int) else None])
    tensor.set_shape(lead.concatenate(inner))
    return tensor


_NO_GRADIENT = (
    "TensorFlow cannot differentiate a loop over rows as often as the tapes around it ask for "
    "({}). See the warning for what makes the map loop. Take the derivatives in the body, or "
    "vectorize these ops."
)

_ASSIGNED = (
    "A variable was assigned between a sequential loop over rows ({}) and its gradient. The "
    "gradient reads the variable again, and would be wrong. Take the gradient before you assign."
)


# ---------------------------------------------------------------------------
# The loop over rows
# ---------------------------------------------------------------------------


_TAKES_NO_EMPTY_TEXT = (
    *("DecodeAndCropJpeg", "DecodeBmp", "DecodeGif", "DecodeImage", "DecodeJpeg", "DecodePng"),
    *("DecodeWav", "DecodeWebP", "ParseTensor"),
)


class RowLoop:
    """A region of the body, run once for each row."""

    def __init__(
        self,
        region: Region,
        stacked: tuple[bool, ...],
        walker: Conversion,
        *,
        in_order: bool = False,
    ):
        check_region(region.ops, walker)
        self.region = region
        self.in_order = in_order
        self.stacked = stacked
        self.loop = walker.loop
        self._walker = walker
        self._gradients: dict[tuple[int, ...], tuple[Any, list[bool], tf.Graph]] = {}

    def differentiable(self, *tensors: tf.Tensor) -> list[tf.Tensor]:
        """The stacked outputs of the region; their gradient is vectorized, not looped."""
        tensors = tuple(_tf.captured(t) for t in tensors)
        variables = {
            i: d for i, t in enumerate(tensors) if (d := _dtype_of_variable(t)) is not None
        }
        wrt = [i for i, t in enumerate(tensors) if has_gradient(t) or i in variables]
        lists = {i: _tf.list_element(t) for i, t in enumerate(tensors) if _may_hold_floats(t)}
        if not any(has_gradient(t) for t in self.region.outputs) or not (wrt or lists):
            return self(*tensors)
        if any(self.stacked[i] or x is None or x[0] == tf.variant for i, x in lists.items()):
            return self(*tensors)  # its gradient is an error
        if lists:
            return self._on_tensors(lists, tensors)

        places = [i for i, t in enumerate(tensors) if t.dtype != tf.resource]

        def whole(given: Sequence[tf.Tensor]) -> list[tf.Tensor]:
            known = dict(zip(places, given))
            return [known.get(i, t) for i, t in enumerate(tensors)]

        def gradient(given: Sequence[tf.Tensor], *upstream: tf.Tensor) -> list[tf.Tensor | None]:
            checks = [
                _unchanged(tensors[i], before, self.region.ops[0])
                for i, before in zip(variables, given[len(places) :], strict=True)
            ]
            with tf.control_dependencies(checks):  # it reads the variables again
                upstream = tuple(tf.identity(t) for t in upstream) if checks else upstream
            found = dict(zip(wrt, self._gradient(whole(given), wrt, upstream)))
            return [found.get(i) for i in (*places, *variables)]

        # The gradient of a variable goes to a read of it, which the loop itself has no use for.
        reads = [
            tf.raw_ops.ReadVariableOp(resource=tensors[i], dtype=dtype)
            for i, dtype in variables.items()
        ]
        given = [*(tensors[i] for i in places), *reads]
        return attached(lambda *given: self(*whole(given)), given, gradient)

    def _on_tensors(self, lists: dict[int, Any], tensors: Sequence[tf.Tensor]) -> list[tf.Tensor]:
        """``differentiable``, the lists (dtype and shape by position) as tensors [T, ...]."""
        given = list(tensors)
        for i, (dtype, shape) in lists.items():
            known = shape.as_list() if shape.is_fully_defined() else -1
            given[i] = tf.raw_ops.TensorListStack(
                input_handle=tensors[i], element_shape=known, element_dtype=dtype
            )

        def run(*row: tf.Tensor) -> list[tf.Tensor]:
            inputs = list(row)
            _tf.copy_handles(given, row)
            for i in lists:
                shape = tf.shape(row[i])[1:]
                inputs[i] = tf.raw_ops.TensorListFromTensor(tensor=row[i], element_shape=shape)
            return self.region.copy(*inputs)

        graph = _graphs.trace("row_of_lists", run, self._row_specs(given))
        rows = RowLoop(Region.of_graph(graph), self.stacked, self._walker, in_order=self.in_order)
        return rows.differentiable(*given)

    def __call__(self, *tensors: tf.Tensor) -> list[tf.Tensor]:
        """The stacked outputs of the region; a trial has stand-ins and builds no loop."""
        emit, outputs = self._walker.emit, self.region.outputs
        if emit.is_trial and not any(t.dtype in (tf.resource, tf.variant) for t in outputs):
            return [emit.stand_in(t.dtype, self.full(dims(t))) for t in outputs]
        if self.in_order:
            made = self._while_loop(*tensors)
        else:
            one = self._traced(self._row, self._row_specs(tensors), tensors)
            rows = self._traced(self._chosen(one), _specs(tensors), tensors)
            made = _graphs.call_row_loop(rows, one, self.stacked, tensors)
        for tensor, output in zip(made, outputs):
            tensor.set_shape(self.full(dims(output)))
        return list(made)

    def _chosen(self, one: Callable[..., Any]) -> Any:
        """All rows by the engine that the place where the graph runs allows."""

        def run(*tensors: tf.Tensor) -> list[tf.Tensor]:
            shapes_known = all(is_static(dims(t)) for t in self.region.outputs)
            if self.region.needs_graph or not (shapes_known or self.loop.static_length):
                return self._while_loop(*tensors)
            specs, outputs = _specs(tensors), self.region.outputs
            kernel = self._traced(lambda *x: self._kernel(one, *x), specs, tensors)
            loop = self._traced(self._while_loop, specs, tensors)
            shapes = [self.full(dims(t)) for t in outputs]
            return _graphs.by_device(kernel, loop, tensors, shapes)

        return run

    def _row_specs(self, tensors: Sequence[tf.Tensor]) -> list[tf.TensorSpec]:
        """The specs of the tensors that one row sees."""
        return [
            tf.TensorSpec(t.shape[1:] if s else t.shape, t.dtype)
            for t, s in zip(tensors, self.stacked)
        ]

    def _row(self, *row: tf.Tensor) -> list[tf.Tensor]:
        """The results of one row; their shapes are checked where the body knows more than they."""
        made = self.region.copy(*row)
        return [of_known_shape(x, t) for x, t in zip(made, self.region.outputs)]

    def full(self, inner: Shape) -> tf.TensorShape:
        """[n, ...] of the shape of a row."""
        return as_tensor_shape(None if inner is None else (self.loop.static_length, *inner))

    def _traced(
        self, function: Callable[..., Any], specs: Sequence[Any], like: Sequence[tf.Tensor]
    ) -> Any:
        """``function`` as a function of the current graph."""

        def run(*args: tf.Tensor) -> list[tf.Tensor]:
            _tf.copy_handles(like, args)
            return function(*args)

        concrete = tf.function(run, autograph=False).get_concrete_function(*specs)
        concrete.add_to_graph(tf.compat.v1.get_default_graph())
        return concrete

    def _kernel(self, one: Callable[..., Any], *tensors: tf.Tensor) -> list[tf.Tensor]:
        """All rows by MapDefun."""

        def ordered(*args: tf.Tensor) -> list[tf.Tensor]:
            """``one`` with its arguments in the order of MapDefun: rows first."""
            rows, rest = iter(args[: len(mapped)]), iter(args[len(mapped) :])
            return one(*[next(rows) if s else next(rest) for s in self.stacked])

        mapped = [t for t, s in zip(tensors, self.stacked) if s]
        shared = [t for t, s in zip(tensors, self.stacked) if not s]
        specs = self._row_specs(tensors)
        specs = [x for x, s in zip(specs, self.stacked) if s] + [
            x for x, s in zip(specs, self.stacked) if not s
        ]
        f = one if all(self.stacked) else self._traced(ordered, specs, [*mapped, *shared])
        return tf.raw_ops.MapDefun(
            arguments=mapped,
            captured_inputs=shared,
            output_types=[t.dtype for t in self.region.outputs],
            output_shapes=[t.shape for t in self.region.outputs],
            f=f,
        )

    def _while_loop(self, *tensors: tf.Tensor) -> list[tf.Tensor]:
        """All rows by tf.while_loop, one after the other where the order counts."""
        outputs = self.region.outputs
        known = self.in_order or all(is_static(dims(t)) for t in outputs)
        handles = any(t.dtype == tf.variant and s for t, s in zip(tensors, self.stacked))
        arrays, trips, n = self.fill(outputs, tensors, is_known=known or handles)
        stacked = [stacked_rows(a, t, trips) for a, t in zip(arrays, outputs)]
        return stacked if trips is n else [t[:n] for t in stacked]

    def n_rows(self, tensors: Sequence[tf.Tensor]) -> Any:
        """The number of rows: an int, or an int32 scalar."""
        if self.loop.static_length is not None:
            return self.loop.static_length
        rows = [t for t, s in zip(tensors, self.stacked) if s]
        return tf.shape(rows[0])[0] if rows else self.loop.length_tensor

    def _checks_of_no_rows(self, n: Any) -> list[tf.Operation]:
        """A check that there are rows, if an op fails for the row that stands in for one."""
        for op in self.region.ops:
            if op.type in _TAKES_NO_EMPTY_TEXT:
                text = (
                    f"{op.type} ({_tf.user_line(op) or 'line unknown'}): there are no rows, and "
                    "the shape of its result is not known. Set it by tf.ensure_shape."
                )
                return [tf.debugging.Assert(tf.greater(n, 0), [text])]
        return []

    def fill(
        self,
        like: Sequence[Any],
        tensors: Sequence[tf.Tensor],
        results: Callable[[list[tf.Tensor]], list[tf.Tensor]] = list,
        *,
        is_known: bool,
    ) -> tuple[Sequence[tf.TensorArray], Any, Any]:
        """Writes what is made of each row into arrays.

        Args:
          like: tensors, or specs, like what is written.
          tensors: the inputs.
          results: gives the tensors to write, from the results of a row.
          is_known: whether an array knows the shape of a row also if there is none.

        Returns:
          TensorArrays, how many rows they have, and n.
        """
        n = trips = self.n_rows(tensors)
        if not is_known and (not isinstance(n, int) or n == 0):
            # Without rows nobody knows the shape of one: a row of zeros tells.
            with tf.control_dependencies(self._checks_of_no_rows(n)):
                trips = tf.maximum(n, 1)
            tensors = [padded(t, n) if s else t for t, s in zip(tensors, self.stacked)]
        arrays = [array_of_rows(t, trips) for t in like]
        # TensorFlow's loops have no kernels that hand quantized numbers on.
        moved = [tf.bitcast(t, PLAIN[t.dtype]) if t.dtype in PLAIN else t for t in tensors]
        dtypes = [t.dtype for t in tensors]

        def step(i: tf.Tensor, *arrays: tf.TensorArray) -> Any:
            graph = tf.compat.v1.get_default_graph()
            row = [tf.gather(t, i) if s else t for t, s in zip(moved, self.stacked)]
            row = [tf.bitcast(t, d) if d in PLAIN else t for t, d in zip(row, dtypes)]
            before = len(graph.get_operations())
            with tf.control_dependencies([i] if self.in_order else []):
                made = results(self._row(*row))
            with tf.control_dependencies(graph.get_operations()[before:] if self.in_order else []):
                following = i + 1
            outputs = self.region.outputs
            made[: len(outputs)] = map(like_the_first, arrays, [i] * len(outputs), made, outputs)
            return (following, *[a.write(i, t) for a, t in zip(arrays, made)])

        try:
            _, *arrays = tf.while_loop(
                lambda i, *_: i < trips,
                step,
                (tf.constant(0), *arrays),
                maximum_iterations=trips,
                parallel_iterations=1 if self.in_order else 10,
            )
        except Exception as error:
            if not is_of_gradients(error):
                raise
            raise NotVectorizableError(_NO_GRADIENT.format(" ".join(str(error).split()))) from error
        return arrays, trips, n

    def _gradient(
        self, tensors: Sequence[tf.Tensor], wrt: Sequence[int], upstream: Sequence[tf.Tensor]
    ) -> list[tf.Tensor | None]:
        """Gradients with respect to some inputs: traced for one row, then vectorized."""
        tensors = [_tf.captured(t) for t in tensors]
        graph, connected = self._traced_gradient(tensors, wrt)
        later = self._walker.later()
        if self.in_order:
            # Forward and backward of a row belong together (py_function keeps a tape between them).
            stacked = (*self.stacked, *[True] * len(upstream))
            whole = RowLoop(Region.of_graph(graph), stacked, later, in_order=True)
            made = iter(whole.differentiable(*tensors, *upstream))
        else:
            # The op itself was allowed to loop, so what is in its gradient may loop too.
            later.settings = dataclasses.replace(later.settings, fallback="loop")
            values = [
                Value.stacked(t) if s else Value.unstacked(t) for t, s in zip(tensors, self.stacked)
            ]
            values += [Value.stacked(t) for t in upstream]
            made = iter(later.tile(v).tensor for v in convert_later(later, graph, values))
        results: list[tf.Tensor | None] = []
        for i, is_connected in zip(wrt, connected):
            if not is_connected:
                results.append(None)
                continue
            gradient = later.loop.only_real(next(made))
            gradient = gradient if self.stacked[i] else tf.reduce_sum(gradient, 0)
            gradient = self._shaped(gradient, tensors, i)
            results.append(ragged_rows.of_first_order(gradient, self.region.bent_gradient))
        return results

    def _shaped(self, gradient: tf.Tensor, tensors: Sequence[tf.Tensor], i: int) -> tf.Tensor:
        """The gradient of input ``i``, which has its shape also where there are no rows.

        Sizes that are not known before running are 0 in a loop of no rows.
        """
        if self.loop.static_length or is_static(dims(self.region.inputs[i])):
            return gradient
        zeros = functools.partial(tf.zeros_like, tensors[i], gradient.dtype)
        return tf.cond(tf.equal(self.n_rows(tensors), 0), zeros, lambda: gradient)

    def _traced_gradient(
        self, tensors: Sequence[tf.Tensor], wrt: Sequence[int]
    ) -> tuple[Any, list[bool]]:
        """The graph of the gradient of one row, and which gradients there are.

        Several tapes ask for it. It is traced once: TensorFlow gives a branch one name each time
        that it makes its gradient, and refuses two functions of one name.
        """
        if tuple(wrt) in self._gradients:
            return self._gradients[tuple(wrt)][:2]
        specs = [tf.TensorSpec(t.shape, t.dtype) for t in self.region.inputs]
        specs += [tf.TensorSpec(t.shape, t.dtype) for t in self.region.outputs]
        connected: list[bool] = []

        def run(*args: tf.Tensor) -> list[tf.Tensor]:
            _tf.copy_handles(tensors, args)
            inputs, upstream = args[: len(tensors)], args[len(tensors) :]
            outputs = self.region.copy(*inputs)
            chosen = [k for k, t in enumerate(outputs) if has_gradient(t)]
            found = tf.gradients(
                [outputs[k] for k in chosen],
                [inputs[i] for i in wrt],
                [upstream[k] for k in chosen],
            )
            connected.extend(g is not None for g in found)
            return [tf.convert_to_tensor(g) for g in found if g is not None]

        graph = _graphs.trace("fallback_gradient", run, specs)
        if not any(map(tf.is_symbolic_tensor, (outside for outside, _ in graph.captures))):
            # The graph around it keeps the gradient functions of what is in it.
            around = _tf.owner(tf.compat.v1.get_default_graph())
            self._gradients[tuple(wrt)] = graph, connected, around
        return graph, connected


@tf.RegisterGradient(_tf.BY_ROW)
@never_converted
def _no_gradient(op: tf.Operation | None, *upstream: tf.Tensor) -> Any:
    """No gradients of a loop that reads no floats; other loops are ``differentiable``."""
    given = upstream if op is None else op.inputs  # a SavedModel traces it with the inputs
    if not any(t.dtype == tf.variant or has_gradient(t) or _dtype_of_variable(t) for t in given):
        return [None] * len(given)
    name = "rows" if op is None else op.outputs[0].op.name  # a tape gives an op without a name
    raise NotVectorizableError(
        f"'{name}' makes lists in a loop over rows, which has no gradient: see "
        "the warning for why, and keep the indices and lengths of lists the same in all rows."
    )


def _dtype_of_variable(tensor: tf.Tensor) -> tf.DType | None:
    """The dtype of a variable of floats, by its handle; None for all other tensors."""
    found = _tf.list_element(tensor) if tensor.dtype == tf.resource else None
    is_float = found is not None and (found[0].is_floating or found[0].is_complex)
    return found[0] if found is not None and is_float else None


def _unchanged(variable: tf.Tensor, before: tf.Tensor, first: tf.Operation) -> tf.Operation:
    """An error, when it runs, if a variable has another value than before (NaN is equal here)."""
    now = tf.raw_ops.ReadVariableOp(resource=variable, dtype=before.dtype)
    bits = [tf.bitcast(tf.stop_gradient(x), tf.uint8) for x in (before, now)]
    return tf.debugging.Assert(
        tf.reduce_all(tf.equal(*bits)), [_ASSIGNED.format(_tf.user_line(first) or first.type)]
    )


def _may_hold_floats(tensor: tf.Tensor) -> bool:
    """Whether a tensor may be a list that a gradient flows through."""
    if tensor.dtype != tf.variant:
        return False
    found = _tf.list_element(tensor)
    return found is None or found[0] == tf.variant or found[0].is_floating or found[0].is_complex


def _specs(tensors: Sequence[tf.Tensor]) -> list[tf.TensorSpec]:
    return [tf.TensorSpec(t.shape, t.dtype) for t in tensors]


by_kernel = ragged_rows.by_kernel  # for the walker, which asks what a loop over rows is
