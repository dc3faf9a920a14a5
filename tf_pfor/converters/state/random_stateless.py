"""Stateless random ops with a seed, key or counter for each iteration: the draws of a loop.

Uniform numbers are integer arithmetic on counters, bit for bit. Normal numbers are a logarithm and
a sine of uniform numbers, in the very steps of the kernel (``_normal``). Other ops reject some
numbers and draw again: they run in a parallel loop over the rows. Large draws run so, too: there
the kernel's loop is faster than ops that go through memory.

With an invariant seed the draw is the same in all iterations, and kept: no converter is needed.
"""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from tf_pfor import _tf
from tf_pfor._tf._shared import shared
from tf_pfor.converters.math._families import loop_on_purpose, run_once, table
from tf_pfor.converters.state import _normal
from tf_pfor.converters.state import _philox as philox
from tf_pfor.core.call import Call
from tf_pfor.core.errors import CannotVectorize
from tf_pfor.core.registry import RegisterPFor
from tf_pfor.core.values import Value, is_static, size_of

run_once(table("StatelessRandomGetAlg"))
loop_on_purpose(
    {
        **table(
            "StatelessParameterizedTruncatedNormal StatelessRandomBinomial "
            "StatelessRandomGammaV2 StatelessRandomGammaV3 StatelessRandomPoisson "
            "StatelessShuffle StatelessTruncatedNormal StatelessTruncatedNormalV2"
        ),
        **table("SobolSample"),
    },
    philox.KERNEL,
)
loop_on_purpose(
    table(
        "StatelessRandomNormal StatelessRandomNormalV2 "
        "StatelessRandomUniform StatelessRandomUniformFullInt StatelessRandomUniformFullIntV2 "
        "StatelessRandomUniformInt StatelessRandomUniformIntV2 StatelessRandomUniformV2"
    ),
    "more than the seed differs between iterations",
)
loop_on_purpose(
    table("StatelessRandomGetKeyCounter StatelessRandomGetKeyCounterAlg"),
    "under jit_compile the numbers are those of XLA's own algorithm, as without the map",
)


@RegisterPFor("StatelessRandomGetKeyCounter", ("seed",))
def get_key_counter(call: Call, seed: Value) -> Any:
    """Seeds [n, 2] to keys [n, 1] and counters [n, 2]: one round of Philox."""
    _check_device(call)
    with call.emit.graph.as_default():
        return list(philox.scramble(seed.tensor))


@RegisterPFor("StatelessRandomGetKeyCounterAlg", ("seed",))
def get_key_counter_alg(call: Call, seed: Value) -> Any:
    """Seeds [n, 2] to keys [n, 1] and counters [n, 2]; the algorithm is the same for all."""
    _check_device(call)
    with call.emit.graph.as_default():
        key, counter = philox.scramble(seed.tensor)
        return [Value.stacked(key), Value.stacked(counter), Value.unstacked(tf.constant(1))]


@RegisterPFor("StatelessRandomNormal", ("seed",))
@RegisterPFor("StatelessRandomUniform", ("seed",))
@RegisterPFor("StatelessRandomUniformFullInt", ("seed",))
def uniform_of_seed(call: Call, shape: Value, seed: Value) -> Any:
    """Counters of the seeds, hashed."""
    count = _check(call, shape)
    with call.emit.graph.as_default():
        key, counter = philox.scramble(seed.tensor)
        return _finish(call, _draw(call, key, counter, count))


@RegisterPFor("StatelessRandomUniformInt", ("seed",))
def uniform_int_of_seed(call: Call, shape: Value, seed: Value, minval: Value, maxval: Value) -> Any:
    """Counters of the seeds, hashed, modulo the range."""
    count = _check(call, shape)
    with call.emit.graph.as_default():
        key, counter = philox.scramble(seed.tensor)
        return _finish(call, _in_range(call, _draw(call, key, counter, count), minval, maxval))


def _v2(call: Call, shape: Value, key: Value, counter: Value, alg: Value, *bounds: Value) -> Any:
    """Counters, hashed; integers modulo the range."""
    count = _check(call, shape)
    _check_algorithm(call)
    width = counter.inner_shape
    if width is None or len(width) != 1 or width[0] is None or width[0] < 2:
        raise CannotVectorize("the size of the counter is unknown")
    with call.emit.graph.as_default():
        keys = key.tensor if key.is_stacked else key.tensor[None]
        counters = counter.tensor if counter.is_stacked else counter.tensor[None]
        made = _draw(call, keys, counters[:, :2], count)
        return _finish(call, _in_range(call, made, *bounds) if bounds else made)


for _pattern in (("key",), ("counter",), ("counter", "key")):
    RegisterPFor("StatelessRandomNormalV2", _pattern)(_v2)
    RegisterPFor("StatelessRandomUniformFullIntV2", _pattern)(_v2)
    RegisterPFor("StatelessRandomUniformIntV2", _pattern)(_v2)
    RegisterPFor("StatelessRandomUniformV2", _pattern)(_v2)


def _check_device(call: Call) -> None:
    """XLA has algorithms of its own."""
    if _tf.in_xla_context(call.emit.graph):
        raise CannotVectorize(
            "under jit_compile the algorithm is XLA's: it draws other numbers than TensorFlow"
        )


def _check(call: Call, shape: Value) -> int:
    """The number of draws of one iteration, after a check that integer ops can make them."""
    _check_device(call)
    inner = call.output_shape()
    if not is_static(inner):
        raise CannotVectorize("the shape is not known before running")
    count = size_of(inner)
    if count > philox.SMALL:
        raise CannotVectorize("it draws many numbers: the kernel's loop is faster")
    if _is_normal(call):
        if call.output_dtype() == tf.float64:
            raise CannotVectorize(f"{philox.KERNEL} (float64)")
        if not _normal.is_exact():
            raise CannotVectorize(f"{philox.KERNEL} (another C library)")
    return count


def _is_normal(call: Call) -> bool:
    return "Normal" in call.op_type


def _check_algorithm(call: Call) -> None:
    """Philox, or what is Philox wherever this runs."""
    alg = call.maybe_constant("alg")
    if alg is None:
        source = call.op.inputs[3].op
        while source.type in ("Identity", "Cast"):
            source = source.inputs[0].op
        if source.type in ("StatelessRandomGetAlg", "StatelessRandomGetKeyCounterAlg"):
            return
        raise CannotVectorize("the algorithm is not known before running")
    if int(alg) not in (1, 3):
        raise CannotVectorize("the algorithm is not Philox")


def _draw(call: Call, key: tf.Tensor, counter: tf.Tensor, count: int) -> tf.Tensor:
    """[n, count]: uniform or normal floats, or the bits of integers as uint64."""
    return _drawn(key, counter, dtype=call.output_dtype(), count=count, is_normal=_is_normal(call))


@shared([None, 1], [None, 2])
def _drawn(
    key: tf.Tensor, counter: tf.Tensor, *, dtype: tf.DType, count: int, is_normal: bool
) -> tf.Tensor:
    words = philox.numbers(key, counter, philox.blocks_for(count, dtype))
    return (_normal.drawn if is_normal else philox.drawn)(words, dtype, count)


def _in_range(call: Call, bits: tf.Tensor, minval: Value, maxval: Value) -> tf.Tensor:
    """minval + bits % (maxval - minval), wrapping as the kernels do."""
    if minval.is_stacked or maxval.is_stacked:
        raise CannotVectorize("the bounds differ between iterations")
    lo, hi = tf.cast(minval.tensor, tf.uint64), tf.cast(maxval.tensor, tf.uint64)
    span = hi - lo
    if call.output_dtype() in (tf.int32, tf.uint32):
        span = philox.low(span)
    return lo + tf.math.floormod(bits, span)


def _finish(call: Call, made: tf.Tensor) -> tf.Tensor:
    """In the dtype and shape of the op: [n] + shape."""
    dtype = call.output_dtype()
    if dtype in (tf.int32, tf.uint32):
        made = tf.cast(philox.low(made), tf.uint32)
    if dtype in (tf.int32, tf.int64):
        made = tf.bitcast(made, dtype)
    inner: Any = call.output_shape()
    return call.emit.reshape(made, [call.loop.length, *inner])
