"""Bounds of integers before running hold for all values that the integers may have."""

import numpy as np
import pytest
import tensorflow as tf

import tf_pfor
from tf_pfor.core.ranges import Bounds

_EDGES = {
    t: np.array([t.min, t.min + 1, t.max // 2, t.max - 2, t.max, 0, 1, 3], t.as_numpy_dtype)
    for t in (tf.int8, tf.uint8, tf.int16, tf.int32, tf.uint32, tf.int64, tf.uint64)
}

_PROGRAMS = {
    "from a constant": lambda k: tf.cast(3, k.dtype) - k,
    "more": lambda k: k + tf.cast(2, k.dtype),
    "more of at least 0": lambda k: tf.maximum(k, tf.cast(0, k.dtype)) + tf.cast(5, k.dtype),
    "minus": lambda k: -tf.cast(k, tf.int32),
    "abs": lambda k: tf.abs(tf.cast(k, tf.int32)),
    "square": lambda k: k * k,
    "square of a cast": lambda k: tf.cast(tf.cast(k, tf.int64) * 65536, tf.int32),
    "narrower": lambda k: tf.cast(tf.maximum(tf.cast(k, tf.int64), 0), tf.int32) + 0,
    "unsigned to signed": lambda k: tf.cast(k, tf.int8),
    "signed to unsigned": lambda k: tf.cast(k, tf.uint8),
    "at most": lambda k: tf.minimum(k, tf.cast(3, k.dtype)) - tf.cast(4, k.dtype),
    "remainder": lambda k: tf.math.floormod(tf.cast(k, tf.int32), 3) - 1,
    "quotient": lambda k: tf.cast(k, tf.int32) // 2,
    "sum": lambda k: tf.reduce_sum(tf.stack([tf.cast(k, tf.int32), tf.abs(tf.cast(k, tf.int32))])),
    "less": lambda k: tf.cast(k, tf.int32) + 1 < tf.cast(k, tf.int32),
}  # fmt: skip


@pytest.mark.parametrize("name", _PROGRAMS)
def test_bounds_hold(name):
    for dtype, values in _EDGES.items():

        @tf.function(input_signature=[tf.TensorSpec([], dtype)], autograph=False)
        def run(k):
            return _PROGRAMS[name](k)

        graph = run.get_concrete_function().graph
        known = Bounds().of(graph.outputs[0].op.inputs[0])
        assert known is not None
        for k in values:
            found = float(run(tf.constant(k, dtype)).numpy())
            assert known.low <= found <= known.high, (dtype, k, found, known)


def test_bounds_are_kept_where_nothing_overflows():
    @tf.function(input_signature=[tf.TensorSpec([], tf.int32)], autograph=False)
    def run(k):
        return tf.cast(tf.clip_by_value(k, 0, 3) + 2, tf.int64) * 2

    known = Bounds().of(run.get_concrete_function().graph.outputs[0].op.inputs[0])
    assert known is not None
    assert (known.low, known.high) == (4, 10)


def _down(k):
    at = tf.cast(tf.constant(3, tf.uint8) - k, tf.int32)
    return tf.reduce_sum(tf.range(1.0, 7.0)[at : at + 2])


def _around(k):
    at = tf.cast(k + tf.constant(2, tf.uint8), tf.int32) - 2
    return tf.reduce_sum(tf.range(1.0, 7.0)[at : at + 2])


@pytest.mark.parametrize("fn", [_down, _around])
@pytest.mark.parametrize("jit_compile", [False, True])
def test_windows_at_unsigned_places(fn, jit_compile):
    rows = tf.constant([0, 1, 2, 3, 5, 254, 255], tf.uint8)
    want = [fn(k).numpy() for k in rows]
    got = tf.function(lambda e: tf_pfor.vectorized_map(fn, e), jit_compile=jit_compile)(rows)
    np.testing.assert_allclose(got, want)


@pytest.mark.parametrize("jit_compile", [False, True])
def test_one_place_of_an_unsigned_type(jit_compile):
    def fn(k):
        return tf.gather(tf.range(300.0), tf.cast(tf.constant(3, tf.uint8) - k, tf.int32))

    rows = tf.constant([0, 3, 4, 255], tf.uint8)
    got = tf.function(lambda e: tf_pfor.vectorized_map(fn, e), jit_compile=jit_compile)(rows)
    np.testing.assert_allclose(got, [3.0, 0.0, 255.0, 4.0])


def test_an_axis_beyond_int32_is_an_error():
    """Cut to 32 bits, 1 << 32 would be the first axis."""
    axes = tf.constant([0, 1 << 32], tf.int64)
    with pytest.raises(tf.errors.InvalidArgumentError, match="the axis is not one of 2"):
        tf_pfor.vectorized_map(lambda axis: tf.reduce_sum(tf.ones([2, 2]), axis), axes)
