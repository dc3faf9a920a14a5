"""Ops that only XLA computes: sorted segments of a given number."""

import numpy as np
import pytest
import tensorflow as tf

from tests.comparisons import mapped

X = tf.random.stateless_normal([3, 4, 6, 2], [1, 2])
IDS = tf.constant([[0, 0, 2, 3], [1, 1, 1, 1], [0, 2, 2, 7]])
raw = tf.raw_ops


def agree(body, *args):
    """The map compiled, nothing looped, against a compiled loop."""
    one = tf.function(body, jit_compile=True)
    expected = tf.stack([one(*row) for row in zip(*map(tf.unstack, args))])

    found = tf.function(lambda *given: mapped(body, *given), jit_compile=True)(*args)
    assert found.dtype == expected.dtype
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("name", ["Max", "Min", "Prod", "Sum"])
def test_segments_of_a_given_number(name):
    op = getattr(raw, f"Segment{name}V2")

    def body(x, ids):
        return op(data=x, segment_ids=ids, num_segments=4)

    agree(body, X, tf.minimum(IDS, 3))
    agree(lambda x: body(x, tf.constant([0, 0, 2, 3])), X)
