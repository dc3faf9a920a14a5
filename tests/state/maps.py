"""Helpers that the tests of state share: a batch, maps in three settings, variables."""

import numpy as np
import pytest
import tensorflow as tf

import tf_pfor
from tests.comparisons import of_unknown_n, pairwise, strict_map
from tf_pfor import NotVectorizableError

X = tf.constant([1.0, 2.0, 4.0])


@pytest.fixture(params=["eager", "function", "unknown n"])
def mapped(request):
    """vectorized_map, eagerly, in tf.function, and there with an unknown number of rows."""

    def run(body, elems=X):
        call = lambda rows: strict_map(body, rows)
        if request.param == "eager":
            return call(elems)
        spec_of = of_unknown_n if request.param == "unknown n" else tf.TensorSpec.from_tensor
        spec = tf.nest.map_structure(spec_of, elems)
        return tf.function(call, input_signature=[spec], autograph=False)(elems)

    return run


def _by_pfor(fn, rows, **options):
    return tf_pfor.pfor(lambda i: fn(tf.gather(rows, i)), rows.shape[0], **options)


MAPS = {
    "pfor": _by_pfor,
    "vectorized_map": tf_pfor.vectorized_map,
    "vmap": lambda fn, rows, **options: tf_pfor.vmap(fn, **options)(rows),
}
var = lambda value, **options: tf.Variable(value, **options)


def check_as_the_loop(body, *starts, mapped, elems=X, rtol=1e-5):
    """``body(*variables, *row)`` gives what a loop gives, and leaves the same variables."""
    mine, theirs = ([var(start) for start in starts] for _ in range(2))
    is_pair = isinstance(elems, tuple)
    found = mapped(lambda e: body(*mine, *(e if is_pair else (e,))), elems)
    rows = zip(*map(tf.unstack, elems if is_pair else (elems,)))
    expected = [tf.broadcast_to(body(*theirs, *row), found.shape[1:]) for row in rows]
    np.testing.assert_allclose(found, expected, rtol=rtol)
    pairwise(np.testing.assert_allclose, mine, theirs, rtol=rtol)


def starts(*values):
    """Says at which values the variables start that a function of them and of a row gets."""

    def add(body):
        body.starts = values
        return body

    return add


def made(make):
    """A function of a row, and its variables: of ``make()``, or of a function with ``starts``."""
    if not hasattr(make, "starts"):
        return make()
    state = [var(start) for start in make.starts]
    return lambda x: make(*state, x), state


def refused(body, *texts):
    with pytest.raises(NotVectorizableError) as caught:
        tf_pfor.vectorized_map(body, X)
    for text in texts:
        assert text in str(caught.value), str(caught.value)
