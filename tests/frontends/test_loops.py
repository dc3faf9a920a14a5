"""``tf_pfor.optimize``: loops over independent trips, and those that must stay loops."""

import re

import numpy as np
import pytest
import tensorflow as tf

import tf_pfor
from tests.cases import case

XS = np.random.default_rng(0).normal(size=[5, 3]).astype(np.float32)
OPEN = tf.TensorSpec([None, 3], tf.float32)


def held(fn, *args, vectorized=1, kept=0, has_gradient=True, specs=None, kind=None, reason=""):
    """Compares an optimized function with the loop it was, its gradients, and counts loops."""
    args = [tf.constant(x) for x in args]
    plain = tf.function(fn, input_signature=specs)
    fast = tf_pfor.optimize(tf.function(fn, input_signature=specs))
    floats = [x for x in args if x.dtype.is_floating]
    results = []
    for function in (plain, fast):
        with tf.GradientTape() as tape:
            tape.watch(floats)
            found = [tf.convert_to_tensor(x) for x in tf.nest.flatten(function(*args))]
            loss = sum(tf.reduce_sum(x**2) for x in found if x.dtype.is_floating)
        gradients = tape.gradient(loss, floats) if has_gradient else []
        results.append([*found, *map(tf.convert_to_tensor, gradients)])
    for wanted, got in zip(*results, strict=True):
        assert wanted.dtype == got.dtype
        assert wanted.shape == got.shape
        if wanted.dtype == tf.string:
            assert (wanted.numpy() == got.numpy()).all()
        else:
            np.testing.assert_allclose(got, wanted, rtol=1e-5, atol=1e-6)
    report = fast.report
    assert (len(report.vectorized), len(report.kept)) == (vectorized, kept), str(report)
    assert kind in (None, report.records[0].kind)
    assert all(re.search(reason, record.reason) for record in report.kept), str(report)
    types = op_types(fast.get_concrete_function(*args).graph)
    assert bool({"While", "StatelessWhile"} & types) == bool(kept), types
    return report


def held_of_any_number(fn):
    held(fn, XS)
    held(fn, XS, specs=[OPEN])
    held(fn, XS[:0], specs=[OPEN])


def op_types(graph):
    types = {op.type for op in graph.get_operations()}
    return types.union(n.op for f in graph.as_graph_def().library.function for n in f.node_def)


# Loops that are vectorized ---------------------------------------------------


def rows_of(xs):
    out = tf.TensorArray(tf.float32, size=len(xs))
    i = 0
    for x in xs:
        out = out.write(i, tf.nn.softmax(x) * tf.reduce_max(x))
        i += 1  # noqa: SIM113  (AutoGraph has no enumerate)
    return out.stack()


def test_for_over_rows():
    report = held(rows_of, XS)
    assert report.records[0].kind == "for"
    assert report.records[0].source == "for x in xs:"
    assert "test_loops.py" in report.records[0].line


@pytest.mark.parametrize("n", [0, 1, 5])
def test_unknown_number_of_rows(n):
    held(rows_of, XS[:n], specs=[OPEN])


@case(held_of_any_number)
def test_for_over_a_range(xs):
    n = tf.shape(xs)[0]
    out = tf.TensorArray(tf.float32, n)
    for i in tf.range(n):
        y = xs[i] * 2.0
        if tf.reduce_sum(y) > 0.0:
            y += 1.0
        out = out.write(i, y)
    return out.stack()


@case(held, XS, vectorized=2)
def test_ranges_with_a_start_and_a_step(xs):
    out = tf.TensorArray(tf.float32, 5)
    for i in tf.range(4, -1, -2):
        out = out.write(i, xs[i] + tf.cast(i, tf.float32))
    for i in tf.range(1, 5, 2):
        out = out.write(i, -xs[i])
    return out.stack()


@case(held, XS, XS[:, 0], kind="tf.map_fn")
def test_map_fn_of_nests(xs, ys):
    def one(pair):
        x, y = pair["x"], pair["y"]
        return {"sum": tf.reduce_sum(x) + y, "text": tf.strings.as_string(y)}

    signature = {"sum": tf.float32, "text": tf.string}
    return tf.map_fn(one, {"x": xs, "y": ys}, fn_output_signature=signature)


@case(held, XS, kind="tf.while_loop")
def test_while_loops(xs):
    body = lambda i, out: (i + 1, out.write(i, tf.sin(xs[i])))
    out = tf.TensorArray(tf.float32, 5)
    return tf.while_loop(lambda i, _: i < 5, body, [0, out], parallel_iterations=1)[1].stack()


@case(held, XS, kind="while")
def test_loops_written_as_while(xs):
    out = tf.TensorArray(tf.float32, 5)
    i = tf.constant(0)
    while i <= 4:
        out = out.write(i, tf.sin(xs[i]))
        i += 1
    return out.stack(), i


@case(held, XS)
def test_other_rows_of_what_is_only_read(xs):
    out = tf.TensorArray(tf.float32, 5)
    for i in tf.range(5):
        out = out.write(4 - i, xs[i] - xs[i - 1])
    return out.stack()


@case(held, XS)
def test_a_list_read_in_another_order(xs):
    rows = tf.TensorArray(tf.float32, 5).unstack(xs)
    out = tf.TensorArray(tf.float32, 5)
    for i in tf.range(5):
        out = out.write(i, rows.read(4 - i) * 2.0)
    return out.stack()


@case(held, XS)
def test_fewer_trips_than_slices(xs):
    out = tf.TensorArray(tf.float32, 7, element_shape=[3])
    for i in tf.range(len(xs)):
        out = out.write(i, xs[i])
    return out.stack()


@case(held, XS)
def test_a_list_that_grows(xs):
    out = tf.TensorArray(tf.float32, 0, dynamic_size=True)
    for i in tf.range(tf.shape(xs)[0]):
        out = out.write(i, xs[i])
    return out.stack(), out.size()


def test_writes_beyond_the_end_fail():
    def fn(xs):
        out = tf.TensorArray(tf.float32, 3, element_shape=[3])
        for i in tf.range(tf.shape(xs)[0]):
            out = out.write(i, xs[i])
        return out.stack()

    fast = tf_pfor.optimize(tf.function(fn, input_signature=[OPEN]))
    assert fast(XS[:3]).shape == [3, 3]
    assert fast.report.vectorized
    with pytest.raises(tf.errors.InvalidArgumentError, match="beyond the end"):
        fast(XS)


@case(held_of_any_number)
def test_what_is_overwritten_has_the_last_value(xs):
    last = tf.zeros([3])
    out = tf.TensorArray(tf.float32, tf.shape(xs)[0])
    for i in tf.range(tf.shape(xs)[0]):
        last = tf.exp(xs[i])
        out = out.write(i, last * 2.0)
    return out.stack(), last


@case(held, XS, vectorized=2)
def test_nested_loops(xs):
    out = tf.TensorArray(tf.float32, 5)
    for i in tf.range(5):
        inner = tf.TensorArray(tf.float32, 3)
        for k in tf.range(3):
            inner = inner.write(k, xs[i, k] ** 2)
        out = out.write(i, inner.stack())
    return out.stack()


def test_a_recurrence_of_each_row():
    def fn(xs):
        out = tf.TensorArray(tf.float32, 5)
        for i in tf.range(5):
            total = tf.constant(0.0)
            for k in tf.range(3):
                total = tf.tanh(total + xs[i, k])
            out = out.write(i, total)
        return out.stack()

    report = held_values(fn, XS)
    assert [r.source for r in report.vectorized] == ["for i in tf.range(5):"]
    assert [r.source for r in report.kept] == ["for k in tf.range(3):"]


def held_values(fn, *args):
    """Compares values only."""
    fast = tf_pfor.optimize(fn)
    for wanted, got in zip(tf.nest.flatten(tf.function(fn)(*args)), tf.nest.flatten(fast(*args))):
        np.testing.assert_allclose(got, wanted, rtol=1e-5, atol=1e-6)
    return fast.report


@case(held, XS)
def test_a_loop_in_a_conditional(xs):
    if tf.reduce_sum(xs) > -1e9:
        xs = tf.map_fn(tf.nn.softmax, xs)
    return xs


def test_checks_of_each_trip():
    def fn(xs):
        out = tf.TensorArray(tf.float32, 5)
        for i in tf.range(5):
            tf.debugging.assert_less(xs[i, 0], 9.0)
            out = out.write(i, xs[i])
        return out.stack()

    fast = tf_pfor.optimize(fn)
    np.testing.assert_array_equal(fast(tf.constant(XS)), XS)
    assert fast.report.vectorized
    with pytest.raises(tf.errors.InvalidArgumentError):
        fast(tf.constant(XS + 100.0))


# Loops that are kept -----------------------------------------------------------


def accumulates(xs):
    total = tf.zeros([3])
    out = tf.TensorArray(tf.float32, 5)
    for i in tf.range(5):
        total += xs[i]
        out = out.write(i, total)
    return out.stack()


def sums(xs):
    total = tf.zeros([3])
    for x in xs:
        total += x
    return total


def reads_what_was_written(xs):
    out = tf.TensorArray(tf.float32, 5, clear_after_read=False).write(0, xs[0])
    for i in tf.range(1, 5):
        out = out.write(i, out.read(i - 1) + xs[i])
    return out.stack()


def ends_early(xs):
    out = tf.TensorArray(tf.float32, 5, element_shape=[3])
    for i in tf.range(5):
        if xs[i, 0] > 10.0:
            break
        out = out.write(i, xs[i])
    return out.stack()


def depends_on_values(xs):
    out = tf.TensorArray(tf.float32, 5, element_shape=[3])
    i, x = tf.constant(0), xs[0, 0]
    while x < 1e9 and i < 5:
        out = out.write(i, xs[i])
        x = xs[i, 0]
        i += 1
    return out.stack()


def writes_where_the_values_say(xs):
    out = tf.TensorArray(tf.float32, 5, element_shape=[3])
    for i in tf.range(5):
        out = out.write(tf.cast(tf.abs(xs[i, 0]), tf.int32), xs[i])
    return out.stack()


def keeps_some(xs):
    out = tf.TensorArray(tf.float32, 5, element_shape=[3])
    for i in tf.range(5):
        if xs[i, 0] > 0.0:
            out = out.write(i, xs[i])
    return out.stack()


def writes_own_shapes(xs):
    out = tf.TensorArray(tf.float32, 5, infer_shape=False, element_shape=[None])
    for i in tf.range(5):
        out = out.write(i, xs[i, : i % 3])
    return out.concat()


draws = lambda xs: tf.map_fn(lambda x: x * 0.0 + tf.random.uniform([3], 0.5, 0.5 + 1e-7), xs)


def prints(xs):
    def one(x):
        tf.print(x[0], output_stream="file:///dev/null")
        return x

    return tf.map_fn(one, xs)


scans = lambda xs: tf.scan(lambda a, x: a + x, xs)


def runs_python(xs):
    return tf.map_fn(lambda x: tf.numpy_function(lambda y: y + 1.0, [x], tf.float32), xs)


def jumps(xs):
    out = tf.TensorArray(tf.float32, 5, element_shape=[3])
    i = tf.constant(0)
    while i < 5:
        out = out.write(i, xs[i])
        i += tf.cast(xs[0, 0] * 0.0, tf.int32) + 1
    return out.stack()


@pytest.mark.parametrize(
    ("fn", "reason"),
    [
        (accumulates, "what the trip before it has left"),
        (depends_on_values, "condition"),
        (draws, "RandomUniform"),
        (ends_early, "early"),
        (jumps, "told by a counter"),
        (keeps_some, "in some cases only"),
        (prints, "PrintV2"),
        (reads_what_was_written, "a list that others write"),
        (runs_python, "PyFunc"),
        (scans, "what the trip before it has left"),
        (sums, "no TensorArray"),
        (writes_own_shapes, "another shape|may differ"),
        (writes_where_the_values_say, "counter"),
    ],
)
def test_kept(fn, reason):
    has_gradient = fn is not runs_python
    held(fn, XS, vectorized=0, kept=1, has_gradient=has_gradient, reason=reason)


def test_variables_that_trips_change():
    v = tf.Variable(0.0)

    def fn(xs):
        def one(x):
            v.assign_add(x[0])
            return v + x

        return tf.map_fn(one, xs)

    fast = tf_pfor.optimize(fn)
    np.testing.assert_allclose(fast(tf.constant(XS)), np.cumsum(XS[:, 0])[:, None] + XS, rtol=1e-4)
    assert "AssignAddVariableOp" in fast.report.kept[0].reason


@case(held, XS, vectorized=0, kept=1, reason="told by a counter")
def test_a_step_that_grows(xs):
    """The rows 0, 1 and 3 are written: what trips add to the counter is not a constant."""
    out = tf.TensorArray(tf.float32, 5, element_shape=[3])
    i, step = tf.constant(0), tf.constant(1)
    while i < 5:
        out = out.write(i, xs[i])
        i += step
        step += 1
    return out.stack()


@case(held, XS, vectorized=0, kept=2, reason="told by a counter")
def test_indices_that_wrap_around(xs):
    """Two trips write one slice: the last one counts, for gradients too."""
    narrow = tf.TensorArray(tf.float32, 129, element_shape=[3])
    for i in tf.range(3):
        narrow = narrow.write(tf.cast(tf.cast(i * 128, tf.uint8), tf.int32), xs[i])
    wide = tf.TensorArray(tf.float32, 5, element_shape=[3])
    for i in tf.range(5):
        wide = wide.write(i * 2**16 * 2**16, xs[i])
    return narrow.stack(), wide.stack()


@case(held, XS, vectorized=0, kept=1)
def test_counters_of_other_dtypes(xs):
    """A narrow counter wraps around, and a range has no unsigned numbers: the loop is kept."""
    out = tf.TensorArray(tf.float32, 5)
    narrow, unsigned = tf.constant(254, tf.uint8), tf.constant(9, tf.uint32)
    for i in tf.range(5):
        numbers = tf.cast(narrow, tf.float32), tf.cast(unsigned, tf.float32), 1.0
        out = out.write(i, xs[i] * tf.stack(numbers))
        narrow += tf.constant(1, tf.uint8)
        unsigned -= tf.constant(1, tf.uint32)
    return out.stack()
