"""tf.random.Generator: one skip for all iterations, each draws what the loop would have drawn.

A draw reads the counter and moves it on by a number that depends on the shape only. With all
draws of the body from one generator, the loop moves it on by their sum, the *stride*, in each
iteration: iteration i reads base + the strides of those before it + what the draws before it in the
body need. Strides may differ between iterations, of rows that differ in shape.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import tensorflow as tf

from tf_pfor.converters.math._families import table
from tf_pfor.converters.state import _philox as philox
from tf_pfor.core.accesses import SKIPS, Access, accesses
from tf_pfor.core.call import Call
from tf_pfor.core.errors import Refused
from tf_pfor.core.registry import ALWAYS, Outcome, RegisterPFor
from tf_pfor.core.values import Value

_BLOCKS = 256  # a skip by one moves the counter on by so many blocks


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class Draws:
    """All draws of the body from one generator.

    Attributes:
      base: int64 [3], its state before the loop.
      offsets: for each op, how far it stands from the start of an iteration: uint64 [], or [n]
        where that differs between iterations.
      starts: the distance of each iteration from the start of the loop: uint64 [n].
    """

    base: tf.Tensor
    offsets: dict[Any, tf.Tensor]
    starts: tf.Tensor


@RegisterPFor("RngReadAndSkip", ALWAYS)
def read_and_skip(call: Call, resource: Value, alg: Value, delta: Value) -> Any:
    """Counters base + i * stride; the same for all, and one skip, if they are to draw the same."""
    if call.settings.randomness == "same":
        return Value.unstacked(call.rebuild(delta=_if_any(call, delta)))
    found = _draws(call, alg)
    return _states(call, found, int(call.constant("alg")))


@RegisterPFor("RngSkip", ALWAYS)
def skip(call: Call, resource: Value, algorithm: Value, delta: Value) -> Any:
    """n skips: one, n times as far; or as far as one."""
    if call.settings.randomness == "same":
        call.rebuild(delta=_if_any(call, delta))
    else:
        _draws(call, algorithm)


def _if_any(call: Call, delta: Value) -> tf.Tensor:
    """The step by which one draw moves the state on; 0 if there is no iteration that draws."""
    count = call.emit.dim_math("Minimum", call.loop.length, 1)
    return call.emit(
        "Mul", delta.tensor, call.emit("Cast", call.emit.as_tensor(count), DstT=delta.dtype)
    )


def _draws(call: Call, alg: Value) -> Draws:
    """The draws from the generator of this call; emits the one skip for all of them."""
    handle = call.op.inputs[0]
    known = accesses(call.op.graph, call.memo)
    mine = [a for a in known.all if a.op is call.op]
    group = known.of(mine[0].handle)
    root = call.value_of(handle)
    assert root is not None
    if any(a.op.type not in SKIPS for a in group):
        other = next(a.op.type for a in group if a.op.type not in SKIPS)
        if len(group) == 1:
            raise Refused("the generator is used in a way that is not known")
        raise Refused(f"the body uses the state of the generator in {other} as well")
    marker = ("draws of", root.cell, tuple(a.op for a in group), call.walker)
    if marker in call.emit.memo:
        return call.emit.memo[marker]
    if not alg.is_stacked and call.maybe_constant(list(call.inputs)[1]) is None:
        raise Refused("the algorithm is not known before running")
    deltas = _deltas(call, known, group)
    found = _emit(call, root, group, deltas)
    call.emit.memo[marker] = found
    return found


def _deltas(call: Call, known: Any, group: list[Access]) -> list[tf.Tensor]:
    """The step by which each draw moves the state on: uint64 [], or [n] where it differs."""
    algorithms: set[Any] = set()
    for a in group:
        if known.is_before([x.op for x in group], a.op.inputs[2].op):
            raise Refused("how much is drawn depends on what was drawn before")
        algorithms.add(_static(call, a.op.inputs[1]))
    if len(algorithms) != 1:
        raise Refused("the body uses one generator with several algorithms")
    values = call.converted([a.op.inputs[2] for a in group])
    with call.emit.graph.as_default():
        return [tf.cast(v.tensor, tf.uint64) for v in values]


def _static(call: Call, tensor: tf.Tensor) -> int | None:
    value = call.value_of(tensor)
    if value is not None and value.constant is not None:
        return int(value.constant)
    found = tf.get_static_value(tensor)
    return None if found is None else int(found)


def _emit(call: Call, root: Value, group: list[Access], deltas: list[tf.Tensor]) -> Draws:
    with call.emit.graph.as_default():
        offsets: dict[Any, tf.Tensor] = {}
        stride = tf.constant(np.uint64(0))
        for a, delta in zip(group, deltas):
            offsets[a.op] = stride
            stride = stride + delta
        n = call.loop.length_tensor
        alg = np.int32(int(call.constant(list(call.inputs)[1])))
        if stride.shape.rank:
            ends = tf.cumsum(tf.cast(stride, tf.int64))
            total = tf.reduce_max(tf.concat([ends, [0]], 0))
            starts, total = tf.cast(ends, tf.uint64) - stride, tf.cast(total, tf.uint64)
        else:
            starts, total = tf.cast(tf.range(n), tf.uint64) * stride, stride * tf.cast(n, tf.uint64)
        base = call.emit("RngReadAndSkip", root.tensor, alg, total)
    return Draws(base, offsets, starts)


def _states(call: Call, found: Draws, alg: int) -> tf.Tensor:
    """int64 [n, 3]: what the op reads in each iteration."""
    if alg not in (1, 2):
        raise Refused("the algorithm is neither Philox nor ThreeFry")
    with call.emit.graph.as_default():
        n = call.loop.length_tensor
        step = found.starts + found.offsets[call.op]
        blocks = step * np.uint64(_BLOCKS)  # [n]
        base = tf.bitcast(found.base, tf.uint64)
        if alg == 1:
            counter = philox.skip(tf.broadcast_to(base[:2], [n, 2]), blocks)  # [n, 2]
        else:
            rest = tf.broadcast_to(base[1:2], [n, 1])
            counter = tf.concat([(base[0] + blocks)[:, None], rest], 1)
        tail = tf.broadcast_to(base[2:], [n, 1])
        made = tf.bitcast(tf.concat([counter, tail], 1), tf.int64)
        made.set_shape([call.loop.static_length, 3])
        return made


_ONE_BY_ONE = (
    "StatefulRandomBinomial StatefulStandardNormalV2 "
    "StatefulTruncatedNormal StatefulUniform StatefulUniformFullInt StatefulUniformInt"
)


def _one_by_one(call: Call, *_: Value) -> Any:
    """Draws and moves the state on, one iteration after the other; or once for all."""
    if call.settings.randomness != "same":
        return call.loop_in_order()
    if not call.loop.static_length:
        raise Refused("randomness is 'same', and there may be no iteration that draws")
    return Value.unstacked(call.rebuild())


for _name in table(_ONE_BY_ONE):
    RegisterPFor(
        _name,
        ALWAYS,
        family="loop_in_order",
        outcome=Outcome.LOOPED,
        note="draws and moves the state of the generator on, in order",
    )(_one_by_one)
