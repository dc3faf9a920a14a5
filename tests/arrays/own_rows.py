"""Bodies over rows of different shapes against a loop: in several places, and their gradients."""

import tensorflow as tf

import tf_pfor
from tests.comparisons import (
    assert_rows,
    compare_around,
    compare_rows,
    gradient_of,
    mapped,
    rows_of,
)

SITES = ["eager", "unknown", "one row", "no rows", "chunks", "two maps"]


def parts(rows):
    return rows if isinstance(rows, tuple) else (rows,)


def check_values(body, rows, site):
    """The values at a site, of which only an inner map may loop."""
    n = {"one row": 1, "no rows": 0}.get(site)
    args = [x[:n] for x in parts(rows)]
    options = {"chunk_size": 3} if site == "chunks" else {}
    run = lambda *args: mapped(body, *args, **options)  # noqa: E731
    if site == "unknown":
        run = tf.function(run, input_signature=[_unknown(x) for x in args])
    elif site == "two maps":
        inner = lambda _: mapped(body, *args, fallback="loop", warn=False)  # noqa: E731
        run = lambda *_: tf_pfor.vectorized_map(inner, tf.range(2), warn=False)[1]  # noqa: E731
    assert_rows(run(*args), rows_of(body, *args), rtol=1e-4, atol=1e-5)


def _unknown(x):
    if isinstance(x, tf.RaggedTensor):
        return tf.RaggedTensorSpec([None] * len(x.shape), x.dtype, x.ragged_rank)
    return tf.TensorSpec([None, *x.shape[1:]], x.dtype)


def check_gradients_around(body, rows, shared=()):
    """Checks gradients of the rows, and of tensors and variables that all rows share."""
    compare_around(body, *parts(rows), by=list(shared), rtol=1e-3, atol=1e-4)


def check_gradients_inside(body, rows):
    """Checks the gradient of the row's part with floats, in the body; it may loop."""

    def gradient(*args):
        (x,) = [a for a in args if a.dtype.is_floating]
        total = lambda: tf.reduce_sum(tf.cast(body(*args), tf.float32) ** 2)  # noqa: E731
        return tf.convert_to_tensor(gradient_of(total, x, unconnected_gradients="zero"))

    options = {"fallback": "loop", "warn": False, "rtol": 1e-4, "atol": 1e-5}
    compare_rows(gradient, *parts(rows), **options)
