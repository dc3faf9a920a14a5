"""Samples of ops in ``lazy``: results and gradients equal eager ones, bit for bit."""

import contextlib

import numpy as np
import pytest
import tensorflow as tf

import tf_pfor
from tests.samples import ALL

EVERY = 6  # all of them were compared by hand
GROUPS = 8
RANDOM = ("Random", "Rng", "NonDeterministic", "Stateful", "Distorted", "Fractional", "Truncated")
CASES = [
    s for s in ALL if not s.random and not any(word in s.name for word in (*RANDOM, "Multinomial"))
]


def outcome(case, around):
    """Arrays of all results and gradients, or the type of the error."""
    given = [tf.constant(x) for x in case.arguments((), 0)]
    try:
        with around(), tf.GradientTape() as tape:
            inputs = [tf.identity(x) for x in given]
            tape.watch(inputs)
            results = tf.nest.flatten(case.fn(*inputs), expand_composites=True)
            floats = [x for x in results if x.dtype.is_floating]
            slopes = tape.gradient(floats, inputs)
            results += [tf.convert_to_tensor(x) for x in slopes if x is not None]
        return [np.asarray(x) for x in results if x.dtype not in (tf.variant, tf.resource)]
    except Exception as error:  # noqa: BLE001
        return type(error)


@pytest.mark.parametrize("first", range(GROUPS))
def test_samples(first):
    for case in CASES[first * EVERY :: EVERY * GROUPS]:
        expected = outcome(case, contextlib.nullcontext)
        found = outcome(case, tf_pfor.lazy)
        if isinstance(expected, type):
            assert found is expected, case.name
            continue
        for f, e in zip(found, expected, strict=True):
            assert f.dtype == e.dtype, case.name
            np.testing.assert_array_equal(f, e, err_msg=case.name)
