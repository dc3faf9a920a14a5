"""Tests of ops that fail for some examples of ``batched``: who gets the error."""

import numpy as np
import pytest
import tensorflow as tf

import tf_pfor
from tests.cases import grid
from tests.comparisons import gradient_of
from tf_pfor._tf import _eager_ops

TABLE = tf.Variable([1.0, 2.0])
TRIED = tf.errors.InvalidArgumentError


def safe(k):
    try:
        return tf.gather(TABLE, k).numpy()
    except TRIED:
        return np.float32(-1.0)


def safe_by_a_cell(k, unit=tf_pfor.cell(lambda k: tf.gather(TABLE, k) * 3.0)):  # noqa: B008
    try:
        found = float(unit(tf.constant(k)) + 1.0)  # of a call that reads what has failed
    except TRIED:
        found = -1.0
    return tf.constant(found) * 2.0


def safe_of_unknown_size(k):
    x = tf.range(3.0)
    try:
        x = tf.boolean_mask(x, x > tf.gather(TABLE, k))
    except TRIED:
        return x[:1]
    return x


def safe_twice(k):
    total = tf.constant(0.0)
    for i in (k, k + 1, k):
        try:
            if tf.gather(TABLE, i) > 0.0:
                total += tf.gather(TABLE, i)
        except TRIED:
            total += 100.0
    return total


@grid(schedule=["agenda", "depth"], fn=[safe, safe_by_a_cell, safe_of_unknown_size, safe_twice])
def test_an_example_catches_its_error(fn, schedule):
    examples = [0, 1, 5, 0, 7, 5]
    for chunk_size in (None, 4):
        found = tf_pfor.batched(fn, schedule=schedule, chunk_size=chunk_size)(examples)
        for x, k in zip(found, examples):
            np.testing.assert_allclose(x, fn(k))
    assert _eager_ops.is_idle()


def test_gradients_beside_an_error():
    def fn(k):
        y = tf.gather(TABLE, k) ** 2
        try:
            return y if y > 0.0 else -y
        except TRIED:
            return tf.constant(0.0)

    slopes = gradient_of(lambda: tf.reduce_sum(tf_pfor.batched(fn)([1, 5, 0, 1])), TABLE)
    assert tf.convert_to_tensor(slopes).numpy().tolist() == [2.0, 8.0]


uncaught = lambda k: tf.gather(TABLE, k) * 2.0


def dead(k):
    tf.gather(TABLE, k)
    return tf.constant(1.0)


def asked_too_late(k):
    try:
        y = tf.gather(TABLE, k)
    except TRIED:
        return -1.0
    return float(y)


@pytest.mark.parametrize("fn", [uncaught, dead, asked_too_late])
def test_an_error_that_nobody_catches_names_line_and_example(fn):
    with pytest.raises(TRIED, match=r"ResourceGather was called in .*failures.py:\d+") as found:
        tf_pfor.batched(fn)([1, 0, 3, 2])
    text = "".join(getattr(found.value, "__notes__", ["This is example 2"]))
    assert "This is example 2" in text
    assert "indices = 3 is not in [0, 2)" in str(found.value)
    assert _eager_ops.is_idle()
