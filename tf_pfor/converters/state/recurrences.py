"""Read-modify-writes, ``v.assign(f(v, x_i))``: one update for each iteration, in order.

Only the ops between the reads and the assignment run one iteration after the other. All other ops
see the value that each iteration reads as a stacked tensor, and are vectorized.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from tf_pfor import _tf
from tf_pfor._tf import _graphs
from tf_pfor._tf._custom_gradients import attached
from tf_pfor.converters.state._state import variable_name
from tf_pfor.core import regions
from tf_pfor.core.accesses import READS, Accesses, Update, accesses
from tf_pfor.core.call import Call
from tf_pfor.core.errors import CannotVectorize, Refused
from tf_pfor.core.regions import Region
from tf_pfor.core.values import Value, as_tensor_shape, dims, is_static, known_dims
from tf_pfor.fallback import randomness, uneven_regions
from tf_pfor.fallback.ordered_updates import name_of_variable
from tf_pfor.fallback.ragged_rows import cut, flat, flat_spec, of_arrays
from tf_pfor.layouts.ragged import is_ragged
from tf_pfor.layouts.row_shapes import of_shape

_UNDER_XLA = (
    "the next value of {} is made of its own and of rows of different shapes, one row after the "
    "other; under jit_compile such rows must have one shape: pad them, and mask what is behind "
    "their ends (tf.where), or leave out jit_compile"
)


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class Scanned:
    """The result of a scan.

    Attributes:
      updates: the updates that were scanned together.
      rows: for each, the value [n, ...] that each iteration reads.
      starts: for each, the value before the loop.
      final: for each, the value after the last iteration.
      left: for those whose shape changes, the value that each iteration leaves.
    """

    updates: tuple[Update, ...]
    rows: list[Value]
    starts: list[tf.Tensor]
    final: list[tf.Tensor]
    left: dict[int, Value]

    def seen_by(self, call: Call) -> Value:
        """The value that a read sees: the value before its iteration, or after it."""
        for k, update in enumerate(self.updates):
            if call.op in update.reads:
                return self.rows[k]
            if call.op in update.later and k in self.left:
                return self.left[k]
            if call.op in update.later:
                with call.emit.as_default():
                    every = tf.concat([self.rows[k].tensor, self.final[k][None]], 0)
                    left = _like_read(tf.stop_gradient(every)[1:], self.starts[k])
                return Value.stacked(left)
        raise AssertionError(call.op.name)


def of(call: Call) -> Scanned | None:
    """The scan of the read-modify-write that a read or an assignment is part of, if there is one.

    Raises:
      Refused: if its iterations cannot be told apart, or done one after the other.
    """
    if randomness.moves_once(call.op, call.walker):
        return None
    known = accesses(call.op.graph, call.memo)
    updates = known.recurrence(call.op)
    if not updates:
        return None
    _check_aliases(call, known)
    at = ("scan", updates[0].assign, call.walker.first)
    if at not in call.memo:
        if call.op.type not in READS and updates[0].reads:
            raise Refused("the value that it assigns does not need the variable's own")
        call.memo[at] = _scan(call, known, updates)
    return call.memo[at]


def assigned_before(call: Call) -> Value | None:
    """The value of a read if the body has just assigned it, and assigns another value later."""
    known = accesses(call.op.graph, call.memo)
    found = known.read_again.get(call.op)
    if found is None:
        return None
    _check_aliases(call, known)
    (value,) = call.converted([found])
    if not (value.dtype.is_floating or value.dtype.is_complex):
        return value
    with call.emit.as_default():
        seen = _like_read(value.tensor, call.rebuild(), value.is_stacked)
    return Value.stacked(seen) if value.is_stacked else Value.unstacked(seen)


def is_overwritten(call: Call) -> bool:
    """Whether nobody sees what is assigned but reads before the next assignment."""
    known = accesses(call.op.graph, call.memo)
    if call.op in known.overwritten:
        _check_aliases(call, known)
    return call.op in known.overwritten


def _check_aliases(call: Call, known: Accesses) -> None:
    """Refuses a function that gets the same variable under two names."""
    handles = known.handles()
    seen: dict[int, Any] = {}
    for key, handle in handles.items():
        value = call.value_of(handle)
        if value is None:
            continue
        if seen.setdefault(id(value.tensor), key) != key:
            raise Refused("a function got the same variable twice and assigns to it")


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class _Scan:
    """Updates that are to be scanned together.

    Attributes:
      call: the read or the assignment that is converted first.
      updates: the updates.
      region: the ops between reads and assignments.
      states: for each of the first inputs of the region, which variable it is.
      starts: for each update, the value before the loop.
      outside: the other inputs of the region.
    """

    call: Call
    updates: tuple[Update, ...]
    region: Region
    states: list[int]
    starts: list[tf.Tensor]
    outside: list[Value]


def _scan(call: Call, known: Accesses, updates: tuple[Update, ...]) -> Scanned:
    region, states, outside = _region(call, known, updates)
    starts: list[tf.Tensor] = []
    for update in updates:
        read = update.seen[0]
        handle = call.value_of(read.inputs[0])
        assert handle is not None
        attrs = {"dtype": call.emit.type_attr(update.value.dtype)}
        attrs |= randomness.marks(read, call.walker)
        starts.append(call.emit.create("ReadVariableOp", [handle.tensor], attrs).outputs[0])
        starts[-1].set_shape(read.outputs[0].shape)
    if any(map(is_ragged, outside)):
        given = [*(Value.unstacked(starts[k]) for k in states), *outside]
        region, given = cut(region, given, call.walker)
        outside = given[len(states) :]
    scan = _Scan(call, updates, region, states, starts, outside)
    with call.emit.as_default():
        made = _closed(scan)
        call.note("one update after the other" + (", in closed form" if made else ", in a loop"))
        if made:
            row = Value.stacked(_like_read(made[0], starts[0]))
            found = Scanned(updates, [row], starts, [made[1]], {})
        else:
            found = _loop(scan)
    return found


def _region(
    call: Call, known: Accesses, updates: tuple[Update, ...]
) -> tuple[Region, list[int], list[Value]]:
    """The ops between reads and assignments, with the ops that make the lists that these read.

    Returns:
      The ops as a region; which variable each of its first inputs is; the values of the others.
    """
    reads = {r: k for k, u in enumerate(updates) for r in u.reads}
    ops, outside = known.between(*updates)
    values = call.converted(outside)
    if any(not (v.is_tensor or is_ragged(v)) for v in values):
        try:
            ops = regions.in_order({*ops, *uneven_regions.copies({*ops}, call.walker)})
        except CannotVectorize as why:
            raise Refused(f"{variable_name(call)} gets a value made of a list: {why}") from None
        inside = {*ops, *reads}
        new = [t for op in ops if op not in known.read_again for t in op.inputs]
        outside = list({regions.key(t): t for t in new if t.op not in inside}.values())
        values = call.converted(outside)
    if any(map(is_ragged, values)) and _tf.in_xla_context(call.emit.graph):
        raise Refused(_UNDER_XLA.format(variable_name(call)))
    inputs = (*(r.outputs[0] for r in reads), *outside)
    results = tuple(u.value for u in updates)
    region = Region(tuple(ops), inputs, results, same=known.read_again)
    return region, list(reads.values()), values


def _like_read(rows: tf.Tensor, start: tf.Tensor, is_stacked: bool = True) -> tf.Tensor:
    """``rows``, or one value for all, with the gradient of a read: none through the assignment."""
    if not (rows.dtype.is_floating or rows.dtype.is_complex):
        return rows

    def gradient(_: Sequence[tf.Tensor], upstream: tf.Tensor) -> list[tf.Tensor]:
        return [tf.reduce_sum(upstream, 0) if is_stacked else upstream]

    (read,) = attached(lambda _: [tf.identity(rows)], [start], gradient)
    return read


# ---------------------------------------------------------------------------
# One after the other
# ---------------------------------------------------------------------------


def _after(update: Update, now: tf.Tensor, value: tf.Tensor) -> tf.Tensor:
    """The variable after an update."""
    if update.assign.type == "AssignVariableOp":
        return value
    return now + value if update.assign.type == "AssignAddVariableOp" else now - value


def _fits(value: tf.Tensor, start: tf.Tensor, call: Call, update: Update) -> tf.Tensor:
    """A value that is assigned or added, after a check that it has the shape of the variable."""
    shape = start.shape
    if value.shape.is_subtype_of(shape):
        return value
    if not shape.is_fully_defined():
        return tf.ensure_shape(value, shape)
    name = name_of_variable(update.assign.inputs[0], call.walker).replace("'", "")
    line = _tf.user_line(update.assign) or "line unknown"
    made = of_shape(value, shape, f"{name} has ({update.assign.type}, {line})")
    made.set_shape(shape)
    return made


def _loop(scan: _Scan) -> Scanned:
    """A sequential loop over the iterations."""
    call, updates, starts = scan.call, scan.updates, scan.starts
    n, count = call.loop.length, len(starts)
    tensors = [v.tensor for v in scan.outside]
    reads = [u.seen[0].outputs[0] for u in updates]
    growing = [k for k in range(count) if _changes_shape(scan, k)]
    specs = [flat_spec(reads[k]) if k in growing else s for k, s in enumerate(starts)]
    for k in growing:
        rank = tf.TensorSpec([reads[k].shape.rank], tf.int32)
        specs += [rank, flat_spec(reads[k]), rank]
    arrays = [tf.TensorArray(s.dtype, n, element_shape=s.shape, infer_shape=False) for s in specs]

    def step(i: tf.Tensor, *carried: Any) -> Any:
        now, arrays = carried[:count], carried[count:]
        rows = [tf.gather(t, i) if v.is_stacked else t for t, v in zip(tensors, scan.outside)]
        made = scan.region.copy(*(now[k] for k in scan.states), *rows)
        made = [_fits(x, s, call, u) for x, s, u in zip(made, starts, updates)]
        new = [_after(u, x, y) for u, x, y in zip(updates, now, made)]
        told = [flat(x, reads[k]) if k in growing else x for k, x in enumerate(now)]
        for k in growing:
            told += [tf.shape(now[k]), flat(new[k], reads[k]), tf.shape(new[k])]
        return (i + 1, *new, *(a.write(i, x) for a, x in zip(arrays, told)))

    _, *carried = tf.while_loop(
        lambda i, *_: i < n,
        step,
        (tf.constant(0), *starts, *arrays),
        shape_invariants=(
            tf.TensorShape([]),
            *(s.shape for s in starts),
            *[tf.TensorShape([])] * len(arrays),
        ),
        maximum_iterations=n,
    )
    final, arrays = list(carried[:count]), carried[count:]
    rows, left, more = list[Value](), dict[int, Value](), iter(arrays[count:])
    for k, (array, start) in enumerate(zip(arrays, starts)):
        if k in growing:
            rows.append(_own_shapes(call, array, next(more), reads[k]))
            left[k] = _own_shapes(call, next(more), next(more), reads[k])
            continue
        stacked = array.stack()
        shape = None if start.shape.rank is None else [call.loop.static_length, *start.shape]
        stacked.set_shape(shape)
        rows.append(Value.stacked(_like_read(stacked, start)))
    return Scanned(updates, rows, starts, final, left)


def _own_shapes(
    call: Call, array: tf.TensorArray, shapes: tf.TensorArray, read: tf.Tensor
) -> Value:
    """The values of a variable whose shape changes, without a gradient."""
    found = shapes.stack()
    found.set_shape([call.loop.static_length, read.shape.rank])
    rows = of_arrays(array, found, read)
    return rows.with_elements(tf.stop_gradient(rows.tensor))


def _changes_shape(scan: _Scan, number: int) -> bool:
    """Whether a variable of unknown size may get another size by an update, like one that grows."""
    starts, outside = scan.starts, scan.outside
    shape = dims(starts[number])
    if scan.updates[number].assign.type != "AssignVariableOp" or shape is None or is_static(shape):
        return False
    known = (shape, *(v.inner_shape for v in outside))
    sizes = {d for s in known for d in s or () if d is not None}
    for size in (*_SOME_SIZES, *sorted(sizes)):
        sample = tuple(size if d is None else d for d in shape)
        specs = [
            tf.TensorSpec(sample if k == number else starts[k].shape, starts[k].dtype)
            for k in scan.states
        ]
        specs += [tf.TensorSpec(as_tensor_shape(v.inner_shape), v.dtype) for v in outside]
        try:
            graph = _graphs.trace("update_of_a_size", scan.region.copy, specs)
        except (TypeError, ValueError):
            continue
        if dims(graph.outputs[number]) == sample:
            return False
    return True


_SOME_SIZES = (6, 1)  # in place of one that is unknown


# ---------------------------------------------------------------------------
# Closed form: v * a + b_i
# ---------------------------------------------------------------------------


def _closed(scan: _Scan) -> tuple[tf.Tensor, tf.Tensor] | None:
    """The values that the rows read, [n, ...], and the last one; None without a closed form."""
    if len(scan.updates) != 1:
        return None
    kind, n = scan.updates[0].assign.type, scan.call.loop.length
    if kind == "AssignVariableOp":
        return _affine(scan)
    start, shape = scan.starts[0], dims(scan.starts[0])
    if scan.region.ops or len(scan.outside) != 1 or not is_static(shape):
        return None
    value = scan.outside[0]
    if value.inner_shape != shape or is_ragged(value):
        return None
    added = value.tensor if value.is_stacked else value.tensor[None]
    return _running_sums(start, tf.broadcast_to(added, [n, *shape]), kind == "AssignSubVariableOp")


def _running_sums(
    start: tf.Tensor, steps: tf.Tensor, is_less: bool = False
) -> tuple[tf.Tensor, tf.Tensor]:
    """The value before each step, [n, ...], and after the last one."""
    # XLA has no sums of other integers, which wrap around alike.
    dtype = tf.int64 if start.dtype.is_integer else start.dtype
    steps = tf.cast(steps, dtype)
    every = tf.concat([tf.cast(start, dtype)[None], -steps if is_less else steps], 0)
    every = tf.cast(tf.cumsum(every), start.dtype)
    return every[:-1], every[-1]


Linear = tuple[Any, tf.Tensor | None]
"""factor of the variable (a numpy scalar, None for zero), and what is added (None for zero)."""


def _affine(scan: _Scan) -> tuple[tf.Tensor, tf.Tensor] | None:
    """The scan of ``v * a + b_i`` with a constant a, None if the ops are not of that form."""
    (start,), region, outside = scan.starts, scan.region, scan.outside
    n = scan.call.loop.static_length
    shape = dims(start)
    if n is None or not is_static(shape) or len(region.ops) > 16 or start.dtype == tf.bool:
        return None
    if start.dtype in (tf.string, tf.resource, tf.variant):
        return None
    if not all(is_static(v.inner_shape) for v in outside):
        return None
    if any((v.inner_rank or 0) > len(shape) for v in outside):
        return None
    if any(o.type not in _FORMS and o not in region.same for o in region.ops) or n == 0:
        return None
    found = _linear(scan)
    if found is None:
        return None
    factor, added = found
    if factor is None or added is None:
        return None
    steps = tf.broadcast_to(added, [n, *shape])
    if factor == 1:
        return _running_sums(start, steps)
    if not start.dtype.is_integer and abs(factor) > 1:
        return None  # powers of the factor would overflow where the loop does not
    all_ = tf.concat([start[None], steps], 0)  # [n + 1, ...]
    power, width = np.asarray(factor, start.dtype.as_numpy_dtype), 1
    while width <= n:  # row i: the sum of the last 2 * width terms, weighted
        all_ = tf.concat([all_[:width], all_[width:] + power * all_[:-width]], 0)
        with np.errstate(all="ignore"):
            power, width = np.asarray(power * power), 2 * width
    return all_[:-1], all_[-1]


_FORMS = ("Add", "AddV2", "Identity", "Mul", "Sub")


def _linear(scan: _Scan) -> Linear | None:
    """The one output of a region as a linear function of the variable."""
    region, start, count = scan.region, scan.starts[0], len(scan.states)
    one = np.asarray(1, start.dtype.as_numpy_dtype)
    known: dict[Any, Linear] = {}
    constants: dict[Any, Any] = {}
    rank = len(start.shape)
    for i, tensor in enumerate(region.inputs):
        key = (tensor.op, tensor.value_index)
        if i < count:
            known[key] = (one, None)
            continue
        value = scan.outside[i - count]
        lead = [scan.call.loop.static_length if value.is_stacked else 1]
        inner = known_dims(value.inner_shape)
        shape = [*lead, *[1] * (rank - len(inner)), *inner]
        known[key] = (None, tf.reshape(value.tensor, shape))
        if not value.is_stacked:
            constants[key] = call_constant(value, tensor)
    for op in region.ops:
        if op in region.same:
            known[(op, 0)] = known[(region.same[op].op, region.same[op].value_index)]
            continue
        keys = [(t.op, t.value_index) for t in op.inputs]
        found = _step(op.type, [known[k] for k in keys], [constants.get(k) for k in keys])
        if found is None or op.outputs[0].dtype != start.dtype:
            return None
        known[(op, 0)] = found
    output = region.outputs[0]
    return known[(output.op, output.value_index)]


def call_constant(value: Value, tensor: tf.Tensor) -> Any:
    """The value of an invariant scalar that is known before running, else None."""
    found = value.constant if value.constant is not None else _tf.static_value(tensor)
    return None if found is None or np.size(found) != 1 else np.reshape(found, ())


def _step(kind: str, args: Sequence[Linear], constants: Sequence[Any]) -> Linear | None:
    if kind == "Identity":
        return args[0]
    (a, b), (c, d) = args
    if kind == "Mul":
        if constants[1] is not None:
            return _scaled(a, b, constants[1])
        if constants[0] is not None:
            return _scaled(c, d, constants[0])
        return (
            (None, b * d) if a is None and c is None and b is not None and d is not None else None
        )
    sign = -1 if kind == "Sub" else 1
    if c is not None:
        c = np.asarray(sign * c, c.dtype) if sign == 1 or c.dtype.kind != "u" else None
        if c is None:
            return None
    if d is not None and sign < 0:
        added = b - d if b is not None else None
        if added is None and d.dtype.is_unsigned:
            return None
        added = -d if added is None else added
    else:
        added = b if d is None else d if b is None else b + d
    factor = a if c is None else c if a is None else np.asarray(a + c, a.dtype)
    return factor, added


def _scaled(a: Any, b: tf.Tensor | None, constant: Any) -> Linear:
    scaled = None if a is None else np.asarray(a * constant, a.dtype)
    return scaled, None if b is None else b * tf.constant(constant, b.dtype)
