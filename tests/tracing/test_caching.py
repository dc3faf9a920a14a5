"""Eager calls without retracing: what is a hit, what is seen, what is not kept."""

# ruff: noqa: B023, E731  (fresh lambdas in loops are what these tests are about)

import collections
import concurrent.futures
import functools
import gc
import pathlib
import resource
import types

import numpy as np
import pytest
import tensorflow as tf

import tf_pfor
from tests.comparisons import gradient_of, in_threads
from tests.tracing.counts import counts
from tf_pfor.core.registry import REGISTRY

each = tf_pfor.vectorized_map
X = tf.constant([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]])
SCALE = 2.0
TABLE = tf.constant([10.0, 20.0])
HELP = 1.0


def same(found, expected):
    np.testing.assert_allclose(found, expected, rtol=1e-6)


# ---------------------------------------------------------------------------
# Hits
# ---------------------------------------------------------------------------


def test_a_fresh_lambda_over_fresh_tensors():
    for k in range(5):
        scale = tf.constant(float(k))
        same(each(lambda x: x * scale, X + k), (X + k) * float(k))
    assert counts() == (1, 4, 0)


def test_signatures_are_told_apart():
    f = lambda x: x * 2
    each(f, X)
    each(f, X[:2])
    each(f, tf.cast(X, tf.float64))
    each(f, X, fallback_to_while_loop=False)
    each(f, X, warn=False)
    assert counts() == (5, 0, 0)
    assert each(f, X.numpy()).shape == (3, 2)
    assert counts() == (5, 1, 0)


def test_structures_come_back():
    def f(row):
        return {"a": row["x"] * row["y"], "b": (row["x"], None), "c": [tf.no_op()]}

    for k in (1.0, 2.0):
        found = each(f, {"x": X * k, "y": tf.constant([1.0, 2.0, 3.0])})
        same(found["a"], X.numpy() * k * [[1.0], [2.0], [3.0]])
        assert found["b"][1] is None
        assert found["c"] == [None]
        assert found["a"].shape == (3, 2)
    assert counts() == (1, 1, 0)


def test_a_row_that_all_share():
    for k in (1.0, 2.0):
        same(each(lambda e: e[0] * e[1], (X, tf.constant([[k, k]]))), X * k)
    assert counts() == (1, 1, 0)


def test_pfor():
    for k in (1.0, 2.0):
        data = X * k
        same(tf_pfor.pfor(lambda i: data[i] * 2.0, 3), data * 2.0)
        same(tf_pfor.pfor(lambda i: data[i] * 2.0, 3, parallel_iterations=2), data * 2.0)
    assert counts() == (2, 2, 0)


def test_vmap_and_derivatives_of_fresh_functions():
    for k in (1.0, 2.0):
        c = tf.constant(k)
        same(tf_pfor.vmap(lambda x: x * c, in_axes=1, out_axes=1)(X), X * k)
        same(tf_pfor.jacrev(lambda x: x**2 * c)(X[0]), np.diag([2.0, 4.0]) * k)
        same(tf_pfor.jacfwd(lambda x: x**2 * c)(X[0]), np.diag([2.0, 4.0]) * k)
        hessian = tf_pfor.hessian(lambda x: tf.reduce_sum(x**3) * c)(X[0])
        same(hessian, np.diag([6.0, 12.0]) * k)
        both = tf_pfor.vmap(tf_pfor.vmap(lambda a: a * c))(X)
        same(both, X * k)
    assert counts() == (5, 5, 0)


def test_per_example_functions():
    w = tf.Variable([1.0, 1.0])
    for k in (1.0, 2.0):
        c = tf.constant(k)
        loss = lambda x: c * tf.reduce_sum(w * x)
        grads, losses = tf_pfor.per_example_gradients(loss, w, X)
        same(grads, X * k)
        same(losses, tf.reduce_sum(X, 1) * k)
        same(tf_pfor.gradient_norms(loss, [w], X), tf.norm(X * k, axis=1))
        total, _ = tf_pfor.clipped_gradient_sum(loss, w, X, clip_norm=1e9)
        same(total, tf.reduce_sum(X * k, 0))
    assert counts() == (3, 3, 0)


def test_gradients_of_per_example_functions_of_a_tensor():
    for k in (1.0, 2.0):
        w = tf.constant([k, k])
        grads, _ = tf_pfor.per_example_gradients(lambda x: tf.reduce_sum((w * x) ** 2), w, X)
        same(grads, 2 * k * X**2)
    assert counts() == (1, 1, 0)


def test_helpers_defaults_partials_and_containers():
    def make(t):
        def scaled(x, by=t, *, plus=t):
            return x * by + plus

        parts = {"f": functools.partial(scaled), "rest": [t, (t, 1.0)]}
        return lambda x: parts["f"](x) + parts["rest"][1][0]

    for k in (1.0, 2.0, 3.0):
        same(each(make(tf.constant(k)), X), X * k + 2 * k)
    assert counts() == (1, 2, 0)


def test_recursion():
    def make(t):
        def power(x, n):
            return x * t if n == 0 else power(x, n - 1) * x

        return lambda x: power(x, 2)

    for k in (1.0, 2.0):
        same(each(make(tf.constant(k)), X), X**3 * k)
    assert counts() == (1, 1, 0)


def test_autograph_in_a_rebuilt_function():
    for k in (0.0, 3.5):
        limit = tf.constant(k)

        def f(x):
            if x[0] > limit:
                y = x * limit
            else:
                y = -x
            return y

        expected = [r * k if r[0] > k else -r for r in X.numpy()]
        same(each(f, X), expected)
    assert counts() == (1, 1, 0)


def test_one_tensor_in_two_places_stays_one():
    for k in (1.0, 2.0):
        w = tf.constant([k, k])
        both = [w]

        def f(x):
            return gradient_of(lambda: tf.reduce_sum(both[0] * x), w)

        same(each(f, X), X)
    assert counts() == (1, 1, 0)


def test_drop_in_keeps_traces_too():
    with tf_pfor.drop_in():
        for k in (1.0, 2.0):
            c = tf.constant(k)
            same(tf.vectorized_map(lambda x: x * c, X), X * k)
    assert counts() == (1, 1, 0)


# ---------------------------------------------------------------------------
# Changes are seen
# ---------------------------------------------------------------------------


def test_scalars_in_cells():
    results = []
    for k in (1.0, 2.0, 1.0, 0.0, -0.0):
        results.append(each(lambda x: x / (k + 1e-30) if k else tf.zeros_like(x) * k, X).numpy())
    same(results[0], X)
    same(results[1], X / 2)
    assert np.signbit(results[4]).all()
    assert not np.signbit(results[3]).any()
    assert counts() == (4, 1, 0)


def test_int_float_and_bool_are_not_one():
    values = [1, 1.0, True, "1", b"1", None, 1j]
    kinds = tuple(type(v).__name__ for v in values)
    for v, kind in zip(values, kinds):
        size = {"int": 1.0, "float": 2.0, "bool": 3.0, "str": 4.0, "bytes": 5.0}.get(kind, 6.0)

        def f(x):
            kind = type(v).__name__
            sizes = {"int": 1.0, "float": 2.0, "bool": 3.0, "str": 4.0, "bytes": 5.0}
            return x * sizes.get(kind, 6.0)

        same(each(f, X), X * size)


def test_globals():
    global SCALE, TABLE
    f = lambda x: x * SCALE + TABLE
    saved = SCALE, TABLE
    try:
        same(each(f, X), X * 2.0 + [10.0, 20.0])
        SCALE = 3.0
        same(each(f, X), X * 3.0 + [10.0, 20.0])
        TABLE = tf.constant([1.0, 2.0])
        same(each(f, X), X * 3.0 + [1.0, 2.0])
        assert counts() == (2, 1, 0)
    finally:
        SCALE, TABLE = saved


def _helper(x):
    return _inner(x) + 1.0


def _inner(x):
    return [x * HELP for _ in range(1)][0]


def test_globals_of_helpers_of_helpers(monkeypatch):
    same(each(lambda x: _helper(x), X), X + 1.0)
    monkeypatch.setitem(globals(), "HELP", 5.0)
    same(each(lambda x: _helper(x), X), X * 5.0 + 1.0)
    monkeypatch.setitem(globals(), "HELP", tf.constant(7.0))
    same(each(_helper, X), X * 7.0 + 1.0)
    monkeypatch.setitem(globals(), "_inner", lambda x: -x)
    same(each(_helper, X), 1.0 - X)


def test_builtins_that_are_shadowed(monkeypatch):
    f = lambda x: x * abs(-2.0)
    same(each(f, X), X * 2.0)
    monkeypatch.setitem(globals(), "abs", lambda _: 5.0)
    same(each(f, X), X * 5.0)


def test_defaults_lists_and_dicts():
    def f(x, by=2.0):
        return x * by + numbers[0] + named["a"][1]

    numbers, named = [1.0], {"a": (0.0, 1.0)}
    same(each(f, X), X * 2 + 2)
    numbers[0] = 5.0
    same(each(f, X), X * 2 + 6)
    named["a"] = (0.0, 3.0)
    same(each(f, X), X * 2 + 8)
    f.__defaults__ = (4.0,)
    same(each(f, X), X * 4 + 8)
    assert counts() == (4, 0, 0)


def test_arrays_count_by_content():
    a = np.array([1.0, 2.0], np.float32)
    f = lambda x: x * a
    same(each(f, X), X * [1.0, 2.0])
    a[0] = 7.0
    same(each(f, X), X * [7.0, 2.0])
    a = a.copy()
    each(f, X)
    assert counts() == (2, 1, 0)


def test_small_integer_tensors_count_by_value():
    for k in (1, 2, 1):
        shape = tf.constant([2 * k, 3 - k])
        assert each(lambda x: tf.ones(shape) * x[0], X).shape == (3, 2 * k, 3 - k)
    assert counts() == (2, 1, 0)


def test_modules_by_attribute():
    settings = types.ModuleType("settings")
    settings.factor = 2.0
    f = lambda x: x * settings.factor
    same(each(f, X), X * 2.0)
    settings.factor = 3.0
    same(each(f, X), X * 3.0)
    settings.factor = tf.constant(4.0)
    same(each(f, X), X * 4.0)
    assert counts() == (3, 0, 0)


def test_library_functions_that_are_replaced(monkeypatch):
    f = lambda x: tf.nn.relu(-x)
    same(each(f, X), X * 0.0)
    monkeypatch.setattr(tf.nn, "relu", lambda x: x * 9.0)
    same(each(f, X), X * -9.0)


def test_registrations_are_seen():
    f = lambda x: tf.linalg.cross(x, x[::-1])
    data = tf.random.normal([4, 3])
    expected = each(f, data)
    with REGISTRY.temporary():

        @tf_pfor.RegisterPFor("Cross", stacked=tf_pfor.registry.ANY, override=True)
        def cross(call, a, b):
            return tf.zeros_like(a.tensor)

        same(each(f, data), tf.zeros([4, 3]))
    same(each(f, data), expected)
    assert counts() == (2, 1, 0)


def test_the_device_is_seen():
    f = lambda x: x * 2.0
    each(f, X)
    with tf.device("/CPU:0"):
        each(f, X)
    assert counts()[0] + counts()[1] == 2


def test_inside_a_graph_nothing_is_kept():
    @tf.function
    def outer(x):
        return each(lambda r: r * 2.0, x)

    same(outer(X), X * 2)
    assert counts() == (0, 0, 0)


# ---------------------------------------------------------------------------
# Gradients
# ---------------------------------------------------------------------------


def test_gradients_flow_to_all_inputs():
    for k in (1.0, 2.0):
        w, small = tf.ones([2, 200]) * k, tf.constant(3.0 * k)
        v = tf.Variable(2.0)
        with tf.GradientTape(persistent=True) as tape:
            tape.watch([X, w, small])
            y = each(lambda x: tf.reduce_sum(x[:, None] * w) * small * (v + 0.0), X)
        same(tape.gradient(y, X), 200 * k * 3 * k * 2 * np.ones([3, 2]))
        same(tape.gradient(y, small), tf.reduce_sum(X) * 200 * k * 2)
        assert tape.gradient(y, w).shape == w.shape
        assert tape.gradient(y, v) is not None


def test_second_derivatives():
    for k in (1.0, 2.0):
        c = tf.constant(k)
        with tf.GradientTape() as outer:
            outer.watch(c)
            with tf.GradientTape() as inner:
                inner.watch(c)
                y = tf.reduce_sum(each(lambda x: x * c**3, X))
            first = inner.gradient(y, c)
        same(outer.gradient(first, c), 6 * k * 21.0)


def test_forward_mode():
    for k in (1.0, 2.0):
        c = tf.constant(k)
        with tf.autodiff.ForwardAccumulator(c, tf.constant(1.0)) as forward:
            y = each(lambda x: x * c**2, X)
        same(forward.jvp(y), 2 * k * X)
    assert counts() == (1, 1, 0)


# ---------------------------------------------------------------------------
# Bounds and threads
# ---------------------------------------------------------------------------


def test_the_cache_is_bounded():
    maximum = tf_pfor.cache_info().max_size
    cache = tf_pfor.tracing.caching._CACHE
    for k in range(maximum + 10):
        cache.put(k, "reason", [k])
    assert len(cache._kept) == len(cache._of_token) == len(cache._tokens) == maximum


def test_traces_of_what_is_gone_are_dropped():
    def use():
        v = tf.Variable(1.0)
        each(lambda x: x * v, X)
        assert tf_pfor.cache_info().size == 1

    use()
    gc.collect()
    assert tf_pfor.cache_info().size == 0


def _many_calls(calls, wrong):
    for k in range(calls):
        c = tf.constant(float(k))
        n = k % 3
        found = each(lambda x: x * c + n, X)
        if not np.allclose(found, X * float(k) + n):
            wrong.append(k)


@pytest.mark.parametrize("calls", [40, 1000])
def test_threads(calls):
    wrong = []
    in_threads(lambda _: _many_calls(calls, wrong), range(8))
    assert not wrong
    misses, hits, uncacheable = counts()
    assert misses + hits + uncacheable == 8 * calls
    assert misses <= 24


def _resident():
    """Kilobytes of memory in use."""
    statm = pathlib.Path("/proc/self/statm")
    if not statm.exists():
        pytest.skip("no /proc here")
    gc.collect()
    return int(statm.read_text().split()[1]) * resource.getpagesize() // 1024


def _grown(some, warm, calls):
    """Kilobytes by which the process grows in so many calls."""
    some(warm)
    before = _resident()
    some(calls)
    return _resident() - before


def test_memory_stays_flat_over_10000_calls():
    def some(calls):
        for k in range(calls):
            c, n = tf.ones([1000]) * (k % 7), k % 5  # TensorFlow keeps each scalar it has seen
            each(lambda x: tf.reduce_sum(x) * c[0] + n, X)

    # What leaks does so each time; what else the process needs while it warms up does not.
    grown = min(_grown(some, 1000 if k == 0 else 0, 3000) for k in range(3))
    assert grown < 1_000, f"{grown} KB"  # 3000 tensors of 4 KB are 12,000 KB
    assert counts() == (5, 9995, 0)


def test_memory_stays_flat_when_each_call_traces():
    """New values in each call, half of them in a function that cannot be kept."""

    def some(calls):
        for k in range(calls):
            queue = collections.deque([1.0])
            each(lambda x: tf.reduce_sum(x) + k, X)
            each(lambda x: tf.reduce_sum(x) + queue[0] + k, X)

    some(300)  # fills the cache
    grown = min(_grown(some, 0, 60) for _ in range(3))
    assert grown < 1_000, f"{grown} KB"  # 120 traces, of 40 KB and more
    assert counts()[2] == 480


def test_threads_that_record_one_trace():
    """TensorFlow's own tf.function fails where threads differentiate one that has a loop."""
    x, k = tf.reshape(tf.range(12.0), [4, 3]) / 10, tf.constant([2, 0, 3, 1])

    def one(e):
        return tf.while_loop(lambda t, _: t < e[1], lambda t, s: (t + 1, tf.sin(s)), (0, e[0]))[1]

    def gradient():
        return gradient_of(lambda: tf_pfor.vectorized_map(one, (x, k)), x).numpy()

    tf_pfor.vectorized_map(one, (x, k))  # one trace, that no tape has seen
    with concurrent.futures.ThreadPoolExecutor(6) as pool:
        found = [f.result() for f in [pool.submit(gradient) for _ in range(6)]]
    expected = gradient_of(lambda: tf.stack([one((x[i], k[i])) for i in range(4)]), x)
    for f in found:
        np.testing.assert_allclose(f, expected, 1e-5)
