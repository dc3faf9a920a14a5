"""Programs over variable-length rows, as users write them, against a loop."""

import warnings

import pytest
import tensorflow as tf

import tf_pfor
from tests.comparisons import assert_rows, rows_of
from tests.ragged.programs import PROGRAMS

# What still runs in a sequential loop, with a part of the reason that the warning gives.
LOOPED = {}


def mapped(name, **options):
    body, elements = PROGRAMS[name]
    if len(elements) == 1:
        return tf_pfor.vectorized_map(body, elements[0], **options)
    return tf_pfor.vectorized_map(lambda rows: body(*rows), elements, **options)


@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.parametrize("where", ["eager", "function"])
def test_program(name, where):
    body, elements = PROGRAMS[name]
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        run = (lambda: mapped(name)) if where == "eager" else tf.function(lambda: mapped(name))
        found = run()
    looped = [str(w.message) for w in caught if w.category is tf_pfor.FallbackWarning]
    if name in LOOPED:
        assert LOOPED[name] in looped[0], "it is vectorized now, or loops for another reason"
    else:
        assert not looped
    assert_rows(found, rows_of(body, *elements), rtol=2e-4, atol=2e-5)
