"""The sequential loop for what no converter takes."""

import contextlib
import threading
import warnings

import numpy as np
import pytest
import tensorflow as tf

import tf_pfor
from tf_pfor.registry import REGISTRY

HIDDEN = ("Betainc", "Erf", "Sin", "Sinh", "Xlogy")  # converters that these tests do without


@contextlib.contextmanager
def unregistered():
    """Takes the converters of HIDDEN away."""
    with REGISTRY.temporary():
        REGISTRY._rules = {k: v for k, v in REGISTRY._rules.items() if k not in HIDDEN}
        yield


def UNREGISTERED(x):  # noqa: N802 (a body, used like a constant)
    return tf.math.betainc(x, x + 1.0, tf.fill(tf.shape(x), 0.4))


@pytest.fixture(autouse=True)
def _without_converters():
    with unregistered(), warnings.catch_warnings():
        warnings.simplefilter("ignore", tf_pfor.FallbackWarning)
        yield


W = tf.Variable([0.5, 1.5])
C = tf.constant([1.5, 2.5])
BODIES = {
    "one input": tf.sinh,
    "twice the same": lambda x: tf.math.xlogy(x, x),
    "invariant": lambda x: tf.math.xlogy(x, tf.abs(W) + 1.0),
    "invariant first": lambda x: tf.math.xlogy(C, x),
    "several": lambda x: tf.math.xlogy(tf.sinh(x) + x, tf.sinh(C)) * tf.math.erf(x),
    "mixed": lambda x: tf.sinh(tf.exp(tf.sinh(x) * 0.1) + x * C),
}
MODES = {
    "eager": lambda f: f,
    "function": lambda f: tf.function(f, autograph=False),
    "compiled": lambda f: tf.function(f, autograph=False, jit_compile=True),
}


def rows(n):
    return tf.random.stateless_uniform([n, 2], [1, 2], 0.5, 2.0)


def loop(fn, x):
    return tf.stack([fn(r) for r in x])


def derivatives(m, x):
    """The result, first and second gradients with respect to x, C and W."""
    with tf.GradientTape() as outer:
        outer.watch([x, C])
        with tf.GradientTape() as inner:
            inner.watch([x, C])
            y = m(x)
            total = tf.reduce_sum(y * tf.cos(tf.range(2.0)))
        first = inner.gradient(total, [x, C, W], unconnected_gradients="zero")
        curved = tf.add_n([tf.reduce_sum(tf.sin(g)) for g in first])
    return [y, *first, *outer.gradient(curved, [x, C, W], unconnected_gradients="zero")]


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name", BODIES)
def test_values_and_gradients(name, mode):
    fn, x = BODIES[name], rows(3)
    found = MODES[mode](lambda x: derivatives(lambda x: tf_pfor.vectorized_map(fn, x), x))(x)
    expected = derivatives(lambda x: loop(fn, x), x)
    for f, e in zip(found, expected):
        np.testing.assert_allclose(f, e, 2e-4, 2e-5)


@pytest.mark.parametrize("n", [0, 1, 3])
@pytest.mark.parametrize("spec", [[3, 2], [None, 2], [None, None]])
def test_sizes(n, spec):
    fn = BODIES["several"]
    if spec[0] is not None:
        spec = [n, 2]
    mapped = tf.function(
        lambda x: tf_pfor.vectorized_map(fn, x),
        autograph=False,
        input_signature=[tf.TensorSpec(spec)],
    )
    found = mapped(rows(n))
    assert found.shape[0] == n
    if n:
        np.testing.assert_allclose(found, loop(fn, rows(n)), 1e-5)


def test_strings_and_ints():
    x = tf.constant(["a b", "c d"])
    with REGISTRY.temporary():
        REGISTRY._rules = {k: v for k, v in REGISTRY._rules.items() if k != "StringLower"}
        found = tf_pfor.vectorized_map(lambda s: tf.strings.lower(tf.strings.upper(s)), x)
    assert found.numpy().tolist() == [b"a b", b"c d"]


def test_rows_that_differ_in_shape_are_an_error():
    x = tf.constant([[1, 1, 1], [1, 2, 3]])
    with pytest.raises(tf.errors.OpError):
        tf_pfor.vectorized_map(lambda r: tf.unique(r)[0], x)


def test_nested():
    x = tf.reshape(rows(6), [2, 3, 2])
    fn = BODIES["invariant"]
    found = tf_pfor.vectorized_map(lambda r: tf_pfor.vectorized_map(fn, r), x)
    np.testing.assert_allclose(found, tf.reshape(loop(fn, rows(6)), [2, 3, 2]), 1e-5)


def test_threads():
    x, fn, found = rows(3), BODIES["several"], []
    threads = [
        threading.Thread(target=lambda: found.append(tf_pfor.vectorized_map(fn, x)))
        for _ in range(3)
    ]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    for f in found:
        np.testing.assert_allclose(f, loop(fn, x), 1e-5)
    assert len(found) == 3


def test_one_warning_for_each_op_type():
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        tf_pfor.vectorized_map(BODIES["several"], rows(3))
    texts = sorted(str(w.message) for w in caught if w.category is tf_pfor.FallbackWarning)
    assert [t.split(" run")[0] for t in texts] == [
        "1 op(s) of type Erf",
        "1 op(s) of type Sinh",
        "1 op(s) of type Xlogy",
    ]
    assert all("no converter is registered" in t for t in texts)


def test_no_warning_when_asked_not_to():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        tf_pfor.vectorized_map(BODIES["several"], rows(3), warn=False)


def test_off():
    with pytest.raises(tf_pfor.NotVectorizableError) as caught:
        tf_pfor.vectorized_map(BODIES["several"], rows(3), fallback_to_while_loop=False)
    assert "Sinh" in str(caught.value)
    assert "test_fallback.py" in str(caught.value)
