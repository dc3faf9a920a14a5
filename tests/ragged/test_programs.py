"""Programs over variable-length rows, as users write them, against a loop."""

import warnings

import numpy as np
import pytest
import tensorflow as tf

import tf_pfor
from tests.ragged.programs import PROGRAMS

# What still runs in a sequential loop, with a part of the reason that the warning gives.
LOOPED = {}


def mapped(name, **options):
    body, elements = PROGRAMS[name]
    if len(elements) == 1:
        return tf_pfor.vectorized_map(body, elements[0], **options)
    return tf_pfor.vectorized_map(lambda rows: body(*rows), elements, **options)


def assert_same(found, wanted):
    if isinstance(wanted, (list, tuple)):
        for got, want in zip(found, wanted, strict=True):
            assert_same(got, want)
        return
    found = found.to_tensor() if isinstance(found, tf.RaggedTensor) else found
    assert found.dtype == wanted.dtype
    if 0 not in wanted.shape:
        assert found.shape == wanted.shape
    np.testing.assert_allclose(found, wanted, rtol=2e-4, atol=2e-5)


@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.parametrize("where", ["eager", "function"])
def test_program(name, where):
    body, elements = PROGRAMS[name]
    one = tf.function(body)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        run = (lambda: mapped(name)) if where == "eager" else tf.function(lambda: mapped(name))
        found = run()
    looped = [str(w.message) for w in caught if w.category is tf_pfor.FallbackWarning]
    if name in LOOPED:
        assert LOOPED[name] in looped[0], "it is vectorized now, or loops for another reason"
    else:
        assert not looped
    for i in range(elements[0].shape[0]):
        row = tf.nest.map_structure(lambda t, i=i: t[i], found)
        assert_same(row, one(*(e[i] for e in elements)))
