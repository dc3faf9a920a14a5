"""The sequential loop for what no converter takes."""

import contextlib
import gc
import warnings

import numpy as np
import pytest
import tensorflow as tf

import tf_pfor
from tests.cases import grid
from tests.comparisons import assert_close, gradient_of, in_threads, strict_map, two_orders
from tf_pfor import _tf
from tf_pfor._tf import _graphs
from tf_pfor.core.regions import Region
from tf_pfor.core.registry import REGISTRY

HIDDEN = ("Betainc", "Erf", "Sin", "Sinh", "Xlogy")  # converters that these tests do without


@contextlib.contextmanager
def unregistered(hidden=HIDDEN):
    """Takes the converters of some op types away."""
    with REGISTRY.temporary():
        REGISTRY._rules = {k: v for k, v in REGISTRY._rules.items() if k not in hidden}
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
    "chain": lambda x: tf.sinh(tf.math.erf(tf.math.xlogy(tf.sin(x), tf.sinh(x) * 0.0 + C))),
    "diamond": lambda x: tf.math.xlogy(tf.sinh(x), tf.math.erf(x)) + tf.sinh(tf.sinh(C) * 0.1) * x,
    "left and back": lambda x: tf.math.xlogy(tf.sinh(x), tf.exp(tf.sinh(x)) + 1.0),
    "mixed": lambda x: tf.sinh(tf.exp(tf.sinh(x) * 0.1) + x * C),
}
MODES = {
    "eager": lambda f: f,
    "function": lambda f: tf.function(f, autograph=False),
    "compiled": lambda f: tf.function(f, autograph=False, jit_compile=True),
}
rows = lambda n: tf.random.stateless_uniform([n, 2], [1, 2], 0.5, 2.0)
loop = lambda fn, x: tf.stack([fn(r) for r in x])


@grid(name=BODIES, mode=MODES)
def test_values_and_gradients(name, mode, monkeypatch):
    # Second gradients multiply rounding a thousandfold, so the numbers are of float64.
    monkeypatch.setitem(globals(), "C", tf.cast(C, tf.float64))
    monkeypatch.setitem(globals(), "W", tf.Variable(tf.cast(W, tf.float64)))
    fn, x = BODIES[name], tf.cast(rows(3), tf.float64)
    found = MODES[mode](lambda x: two_orders(lambda x: tf_pfor.vectorized_map(fn, x), x, [C, W]))(x)
    expected = two_orders(lambda x: loop(fn, x), x, [C, W])
    assert_close(found, expected, rtol=1e-10, atol=1e-12)


@grid(spec=[[3, 2], [None, 2], [None, None]], n=[0, 1, 3])
def test_sizes(n, spec):
    fn, spec = BODIES["several"], tf.TensorSpec(spec if spec[0] is None else [n, 2])
    run = lambda x: tf_pfor.vectorized_map(fn, x)
    found = tf.function(run, autograph=False, input_signature=[spec])(rows(n))
    assert found.shape[0] == n
    if n:
        np.testing.assert_allclose(found, loop(fn, rows(n)), 1e-5)


def test_strings_and_ints():
    x = tf.constant(["a b", "c d"])
    with REGISTRY.temporary():
        REGISTRY._rules = {k: v for k, v in REGISTRY._rules.items() if k != "StringLower"}
        found = tf_pfor.vectorized_map(lambda s: tf.strings.lower(tf.strings.upper(s)), x)
    assert found.numpy().tolist() == [b"a b", b"c d"]


def test_rows_that_differ_in_shape():
    x = tf.constant([[1, 1, 1], [1, 2, 3]])
    found = tf_pfor.vectorized_map(lambda r: tf.unique(r)[0], x)
    assert found.to_list() == [[1], [1, 2, 3]]
    with pytest.raises(tf.errors.OpError):
        tf_pfor.vectorized_map(lambda r: tf.unique(r)[0], x, out_shapes="dense")


def test_nested():
    x = tf.reshape(rows(6), [2, 3, 2])
    fn = BODIES["invariant"]
    found = tf_pfor.vectorized_map(lambda r: tf_pfor.vectorized_map(fn, r), x)
    np.testing.assert_allclose(found, tf.reshape(loop(fn, rows(6)), [2, 3, 2]), 1e-5)


def test_threads():
    x, fn = rows(3), BODIES["several"]
    for found in in_threads(lambda _: tf_pfor.vectorized_map(fn, x), range(3)):
        np.testing.assert_allclose(found, loop(fn, x), 1e-5)


def test_one_warning_for_each_op_type():
    tf_pfor.clear_cache()  # a trace warns once
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        tf_pfor.vectorized_map(BODIES["several"], rows(3))
    texts = sorted(str(w.message) for w in caught if w.category is tf_pfor.FallbackWarning)
    assert all("test_fallback.py:" in t for t in texts)
    types = [f"1 op(s) of type {op}" for op in ("Erf", "Sinh", "Xlogy")]
    assert [t.split(" (")[0] for t in texts] == types
    assert all("no converter is registered" in t for t in texts)


def test_a_reader_that_takes_no_rows_of_different_shapes_is_named_first():
    draw = lambda k: tf.random.stateless_categorical(tf.range(5.0)[:k][None], 5, [1, k])
    counts = tf.constant([2, 5, 3])
    text = (
        r"^StatelessMultinomial \(.*test_fallback.py:\d+\) has no rule for rows of different "
        r"shapes. So 1 op\(s\) of type StridedSlice \(.*test_fallback.py:\d+\), which it reads, "
        "run in a sequential loop: the length of the slice may differ between iterations; its "
        "result"
    )
    tf_pfor.clear_cache()  # a trace warns once
    with pytest.warns(tf_pfor.FallbackWarning, match=text):
        found = tf_pfor.vectorized_map(draw, counts)
    np.testing.assert_array_equal(found, [draw(k) for k in counts])
    with pytest.raises(tf_pfor.NotVectorizableError, match="which reads it, has no rule for rows"):
        strict_map(draw, counts)


def test_map_fn_over_variable_length_rows_names_what_does_not_loop():
    texts = tf.constant(["ab c", "d"])

    def sizes(text):
        letters = tf.strings.unicode_split(tf.strings.split(text), "UTF-8")
        return tf.map_fn(tf.size, letters, fn_output_signature=tf.int32)

    with pytest.warns(tf_pfor.FallbackWarning, match="write tf_pfor.vectorized_map there"):
        found = tf_pfor.vectorized_map(sizes, texts)
    assert found.to_list() == [[2, 1], [1]]


def test_no_warning_when_asked_not_to():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        tf_pfor.vectorized_map(BODIES["several"], rows(3), warn=False)


def test_off():
    with pytest.raises(tf_pfor.NotVectorizableError) as caught:
        strict_map(BODIES["several"], rows(3))
    assert "Sinh" in str(caught.value)
    assert "test_fallback.py" in str(caught.value)


def loops(fn, x, **options):
    """The number of loops over rows in the vectorized ``fn``."""
    graph = tf.function(
        lambda x: tf_pfor.vectorized_map(fn, x, **options), autograph=False
    ).get_concrete_function(x)
    return [o.type for o in graph.graph.get_operations()].count("PartitionedCall")


@pytest.mark.parametrize(
    ("name", "count"),
    [("one input", 1), ("several", 1), ("diamond", 1), ("left and back", 2), ("mixed", 2)],
)
def test_adjacent_ops_share_a_loop(name, count):
    # "several": Add and Mul lie on paths that leave the first ops, so they come before or after.
    if name == "several":
        count = 3
    assert loops(BODIES[name], rows(3)) == count


def test_gradients_of_copies_of_a_branch_that_calls():
    # TensorFlow would name the gradients of the copies alike.
    cubed = tf.function(lambda x: x**3, autograph=False)
    spec = tf.TensorSpec([], tf.float32)
    graph = _graphs.trace(
        "body", lambda x: [tf.cond(x > 0.0, lambda: cubed(x), lambda: -x)], [spec]
    )
    region = Region.of_graph(graph)
    slope = lambda x, upstream: tf.gradients(region.copy(x), [x], [upstream])
    slopes = [_graphs.trace("slope", slope, [spec, spec]) for _ in range(2)]
    both = tf.function(
        lambda *given: [Region.of_graph(g).copy(*given) for g in slopes], autograph=False
    )
    for x, slope_there in ((2.0, 12.0), (-2.0, -1.0)):
        found = both(tf.constant(x), tf.ones([]))
        np.testing.assert_allclose(tf.nest.flatten(found), [slope_there, slope_there])


def test_a_shape_that_is_made_of_constants_under_jit_compile():
    """XLA must see in the loop how the shape is made."""

    def body(x):
        sizes = tf.transpose(tf.constant([[2, 0], [1, 3]]))  # as the number of trips of a range
        sizes += tf.cast(tf.not_equal(tf.transpose(tf.constant([[4, 5], [2, 6]])) % 2, 0), tf.int32)
        return tf.reshape(x, tf.reshape(sizes, [4]))

    x = tf.reshape(rows(9), [3, 6])
    run = tf.function(lambda: tf_pfor.vectorized_map(body, x), jit_compile=True, autograph=False)
    with unregistered(("Reshape",)):
        np.testing.assert_array_equal(run(), tf.reshape(x, [3, 2, 1, 1, 3]))


def test_an_op_inside_a_loop_can_be_asked_for_by_a_gradient():
    @tf.custom_gradient
    def odd(x):
        inner = tf.sinh(x)
        return tf.math.erf(inner), lambda dy: dy * inner

    derivative = lambda m, x: gradient_of(lambda: tf.reduce_sum(m(x)), x)
    x = rows(3)
    found = derivative(lambda x: tf_pfor.vectorized_map(odd, x), x)
    np.testing.assert_allclose(found, derivative(lambda x: loop(odd, x), x), 1e-5)


# -- Effects ---------------------------------------------------------------------------------------


def in_order(fn, x, **options):
    """The rows that a py_function in ``fn`` saw, in order, and the result."""
    seen = []

    def see(r):
        seen.append(r.numpy().tolist())
        return r * 2

    with REGISTRY.temporary():
        REGISTRY._rules = {k: v for k, v in REGISTRY._rules.items() if k != "EagerPyFunc"}
        result = tf_pfor.vectorized_map(lambda r: fn(r, see), x, **options)
    return seen, result


def test_a_stateful_op_runs_in_order_once_for_each_row():
    seen, result = in_order(lambda r, see: tf.py_function(see, [r], tf.int32) + 1, tf.range(20))
    assert seen == list(range(20))
    assert result.numpy().tolist() == [2 * i + 1 for i in range(20)]


def test_a_stateful_op_without_stacked_inputs_runs_n_times():
    seen, _ = in_order(lambda r, see: (tf.py_function(see, [tf.constant(7)], tf.int32), r)[1],
                       tf.range(4))  # fmt: skip
    assert seen == [7, 7, 7, 7]


@pytest.mark.parametrize("n", [0, 1])
def test_a_stateful_op_with_few_rows(n):
    seen, _ = in_order(lambda r, see: tf.py_function(see, [r], tf.int32), tf.range(n))
    assert seen == list(range(n))


def test_two_stateful_ops_keep_their_order():
    def fn(r, see):
        tf.py_function(see, [r], tf.int32)
        tf.py_function(see, [r + 100], tf.int32)
        return r

    seen, _ = in_order(fn, tf.range(3))
    assert seen == [0, 1, 2, 100, 101, 102]  # lock-step: op by op


def test_the_gradient_of_a_stateful_op():
    fn = lambda r: tf.ensure_shape(tf.py_function(lambda r: r**3, [r], tf.float32), [2])
    x = rows(3)
    with REGISTRY.temporary(), tf.GradientTape() as tape:
        REGISTRY._rules = {k: v for k, v in REGISTRY._rules.items() if k != "EagerPyFunc"}
        tape.watch(x)
        y = tf_pfor.vectorized_map(fn, x)
    np.testing.assert_allclose(tape.gradient(y, x), 3 * x**2, 1e-5)


def test_a_stateful_op_is_refused_when_loops_are_off():
    fn = lambda r, see: tf.py_function(see, [r], tf.int32)
    with pytest.raises(tf_pfor.NotVectorizableError, match="EagerPyFunc.*test_fallback.py"):
        in_order(fn, tf.range(3), fallback_to_while_loop=False)


def test_what_is_refused():
    dataset = lambda x: next(iter(tf.data.Dataset.from_tensors(x)))

    @tf.function
    def queue(x):
        q = tf.queue.FIFOQueue(1, [tf.float32])
        q.enqueue(x)
        return x

    for fn, word in ((dataset, "dataset"), (queue, "queue")):
        with pytest.raises(tf_pfor.NotVectorizableError, match=word):
            tf_pfor.vectorized_map(fn, rows(2))


def test_of_version_1_loops():
    graph = tf.Graph()
    with graph.as_default():
        x = tf.compat.v1.placeholder(tf.float32, [])
        y = tf.raw_ops.Enter(data=x, frame_name="f")
        z = tf.raw_ops.Exit(data=y)
    fn = tf.compat.v1.wrap_function(
        lambda x: tf.graph_util.import_graph_def(
            graph.as_graph_def(), {x_name: x}, [z_name], name=""
        )[0],
        [tf.TensorSpec([])],
    ) if (x_name := x.name) and (z_name := z.name) else None  # fmt: skip
    with pytest.raises(tf_pfor.NotVectorizableError, match="Enter.*TensorFlow 1"):
        tf_pfor.vectorized_map(fn, tf.ones([3]))


def test_saved_model(tmp_path):
    module = tf.Module()
    fn = BODIES["several"]
    run = lambda x: tf_pfor.vectorized_map(fn, x)
    spec = tf.TensorSpec([None, 2])
    module.f = tf.function(run, autograph=False, input_signature=[spec])
    module.w = W
    tf.saved_model.save(module, str(tmp_path))
    x = rows(3)
    loaded = tf.saved_model.load(str(tmp_path))
    np.testing.assert_allclose(loaded.f(x), loop(fn, x), 1e-5)
    nested = tf_pfor.vectorized_map(loaded.f, tf.stack([x, x + 1.0]))
    np.testing.assert_allclose(nested[1], loop(fn, x + 1.0), 1e-5)


@pytest.mark.parametrize("writes", [False, True])
def test_loop_with_variables_under_jit_compile(writes):
    """The number of active rows cannot change there: row by row, where that is allowed."""
    v = tf.Variable(2.0)

    def one(row):
        k, x = row

        def body(t, s):
            if writes:
                v.assign_add(0.5)
            return t + 1, s * v

        return tf.while_loop(lambda t, s: t < k, body, (0, x))[1]

    def run(rows, **options):
        return tf_pfor.vectorized_map(one, rows, while_strategy="compact", **options)

    rows = (tf.constant([1, 2, 0]), tf.constant([1.0, 1.0, 3.0]))
    with pytest.raises(tf_pfor.NotVectorizableError, match="fallback loop is off"):
        tf.function(lambda r: run(r, fallback_to_while_loop=False), jit_compile=True)(rows)
    with pytest.warns(tf_pfor.FallbackWarning, match="active rows|inside of While"):
        found = tf.function(run, jit_compile=True)(rows)
    after = v.numpy()
    v.assign(2.0)
    np.testing.assert_allclose(found, [one((k, x)) for k, x in zip(*rows)])
    assert v.numpy() == after


def chosen_items(k, x, table):
    """A conditional that runs row by row, for its unknown rank, and reads a list of all rows."""
    ta = tf.TensorArray(tf.float32, 3, clear_after_read=False).unstack(table)
    item = lambda i: tf.raw_ops.PlaceholderWithDefault(input=x * ta.read(i), shape=None)
    return tf.reduce_sum(tf.cond(k > 1, lambda: item(0), lambda: item(k)))


def test_gradient_of_a_list_that_a_loop_over_rows_reads():
    ks, xs, table = tf.constant([1, 2, 0, 3]), rows(4), rows(3)

    def gradients(run):
        return gradient_of(run, [xs, table], output_gradients=tf.constant([1.0, 2.0, 3.0, 4.0]))

    one = tf.function(chosen_items)
    expected = gradients(lambda: tf.stack([one(k, x, table) for k, x in zip(ks, xs)]))
    mapped = tf_pfor.vmap(chosen_items, in_axes=(0, 0, None))
    with pytest.warns(tf_pfor.FallbackWarning, match="cannot be stacked"):
        found = gradients(lambda: mapped(ks, xs, table))
    assert_close(found, expected, rtol=1e-5, atol=1e-6)


# Two pieces of x, of lengths that differ between rows.
pieces = lambda k, x: tf.TensorArray(tf.float32, 2, infer_shape=False).split(x, [k, 2 - k]).concat()


def test_lists_that_a_loop_over_rows_makes():
    ks, xs = tf.constant([1, 2, 0]), rows(3)
    run = tf_pfor.vmap(pieces)
    with pytest.warns(tf_pfor.FallbackWarning, match="cannot be stacked"):
        found = run(ks, xs)
    np.testing.assert_array_equal(found, xs)
    (gradient,) = tf.function(lambda x: tf.gradients(run(ks, x) ** 2, x))(xs)
    np.testing.assert_allclose(gradient, 2.0 * xs)


@pytest.mark.parametrize("dtype", [tf.quint8, tf.qint8, tf.qint32], ids=lambda d: d.name)
def test_quantized_numbers_in_a_loop_over_rows(dtype):
    """Rows of quantized numbers, and a quantized tensor that all rows share."""
    plain = {tf.quint8: tf.uint8, tf.qint8: tf.int8, tf.qint32: tf.int32}[dtype]
    x = tf.bitcast(tf.constant([[1, 2, 3], [4, 5, 6]], plain), dtype)
    shared = tf.bitcast(tf.constant([7, 8, 9], plain), dtype)
    lows, highs = tf.constant([-2.0, -1.0]), tf.constant([1.0, 3.0])

    def fn(a):
        row, low, high = a
        of_both = [tf.quantization.dequantize(q, low, high, "MIN_FIRST") for q in (row, shared)]
        return of_both[0] - 2.0 * of_both[1]

    found = looped_map(fn, (x, lows, highs))
    expected = [fn((x[i], lows[i], highs[i])) for i in range(2)]
    np.testing.assert_array_equal(found, tf.stack(expected))


def looped_map(fn, elems):
    with pytest.warns(tf_pfor.FallbackWarning):
        return tf_pfor.vectorized_map(fn, elems)


# -- Gradient functions of loops over rows ---------------------------------------------------------


slope_of = lambda mapped, x: gradient_of(lambda: tf.reduce_sum(mapped(x) ** 2), x)


def registered():
    gc.collect()
    return len(_tf.ops.gradient_registry.list())


def test_gradients_are_forgotten_with_their_functions():
    def trace():
        mapped = tf.function(lambda x: tf_pfor.vectorized_map(BODIES["several"], x))
        slope_of(mapped, rows(3))

    trace()
    before = registered()
    for _ in range(3):
        trace()
    assert registered() == before


def test_a_function_outlives_the_one_that_traced_it():
    inner = tf.function(lambda x: tf_pfor.vectorized_map(BODIES["several"], x), autograph=False)
    outer = tf.function(lambda x: inner(x) + 1.0, autograph=False)
    x = rows(3)
    outer(x)
    del outer
    gc.collect()
    assert inner.experimental_get_tracing_count() == 1
    expected = slope_of(lambda x: loop(BODIES["several"], x), x)
    np.testing.assert_allclose(slope_of(inner, x), expected, 1e-5)
    assert inner.experimental_get_tracing_count() == 1
