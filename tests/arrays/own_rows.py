"""Bodies over rows of different shapes against a loop: in several places, and their gradients."""

import warnings

import numpy as np
import tensorflow as tf

import tf_pfor

SITES = ["eager", "unknown", "one row", "no rows", "chunks", "two maps"]


def mapped(body, rows, **options):
    def one(row):
        return body(*row) if isinstance(row, tuple) else body(row)

    return tf_pfor.vectorized_map(one, rows, **options)


def looped(body, rows):
    n = tf.nest.flatten(rows)[-1].shape[0]
    rows = rows if isinstance(rows, tuple) else (rows,)
    return [body(*[x[i] for x in rows]) for i in range(n)]


def assert_rows(found, rows):
    for i, want in enumerate(rows):
        got = found[i]
        if isinstance(got, tf.RaggedTensor):
            got, want = got.flat_values, tf.reshape(want, got.flat_values.shape)
        assert got.dtype == want.dtype
        assert np.size(got) == np.size(want) == 0 or got.shape == want.shape
        np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-5)


def check_values(body, rows, site):
    """The values at a site, of which only an inner map may loop."""
    n = {"one row": 1, "no rows": 0}.get(site)
    rows = tf.nest.map_structure(lambda x: x[:n], rows)
    options = {"chunk_size": 3} if site == "chunks" else {}

    def run(rows):
        return mapped(body, rows, fallback="error", **options)

    if site == "unknown":
        specs = [tf.nest.map_structure(_unknown, rows)]
        found = tf.function(run, input_signature=specs)(rows)
    elif site == "two maps":
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", tf_pfor.FallbackWarning)
            found = tf_pfor.vectorized_map(lambda _: mapped(body, rows), tf.range(2))[1]
    else:
        found = run(rows)
    assert_rows(found, [] if site == "no rows" else looped(body, rows))


def _unknown(x):
    if isinstance(x, tf.RaggedTensor):
        return tf.RaggedTensorSpec([None] * len(x.shape), x.dtype, x.ragged_rank)
    return tf.TensorSpec([None, *x.shape[1:]], x.dtype)


def check_gradients_around(body, rows, shared=()):
    """Checks gradients of the rows, and of tensors and variables that all rows share."""
    sources = [t for t in tf.nest.flatten(rows, expand_composites=True) if t.dtype.is_floating]
    sources += shared
    found = []
    for run in (lambda: mapped(body, rows, fallback="error"), lambda: looped(body, rows)):
        with tf.GradientTape() as tape:
            tape.watch(sources)
            made = run()
            flat = made.flat_values if isinstance(made, tf.RaggedTensor) else made
            parts = flat if isinstance(flat, list) else [flat]
            if not parts[0].dtype.is_floating:
                return
            y = tf.concat([tf.reshape(t, [-1]) for t in parts], 0)
            total = tf.reduce_sum(y * tf.sin(tf.range(tf.cast(tf.size(y), tf.float32))))
        found.append(tape.gradient(total, sources, unconnected_gradients="zero"))
    for got, want in zip(*found):
        got, want = tf.convert_to_tensor(got), tf.convert_to_tensor(want)
        np.testing.assert_allclose(got, want, rtol=1e-3, atol=1e-4)


def check_gradients_inside(body, rows):
    """Checks the gradient of the row's part with floats, in the body; it may loop."""

    def gradient(*parts):
        (x,) = [p for p in parts if p.dtype.is_floating]
        with tf.GradientTape() as tape:
            tape.watch(x)
            total = tf.reduce_sum(tf.cast(body(*parts), tf.float32) ** 2)
        return tf.convert_to_tensor(tape.gradient(total, x, unconnected_gradients="zero"))

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", tf_pfor.FallbackWarning)
        found = mapped(gradient, rows)
    assert_rows(found, looped(gradient, rows))
