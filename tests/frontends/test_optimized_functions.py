"""``tf_pfor.optimize``: the functions around loops, and what it leaves behind."""

import numpy as np
import pytest
import tensorflow as tf

import tf_pfor
from tests.comparisons import gradient_of, in_threads, pairwise, value_and_gradient
from tests.frontends.test_loops import OPEN, XS, held, op_types, rows_of
from tf_pfor._tf import _loops


def test_called_functions():
    inner = tf.function(lambda xs: tf.map_fn(tf.nn.softmax, xs))
    before = inner(tf.constant(XS))
    fast = tf_pfor.optimize(lambda xs: inner(xs) * 2.0)
    np.testing.assert_allclose(fast(tf.constant(XS)), before * 2.0, rtol=1e-6)
    assert fast.report.vectorized
    assert not fast.report.kept
    types = op_types(inner.get_concrete_function(tf.constant(XS)).graph)
    assert "StatelessWhile" in types or "While" in types  # its own traces are as they were


def test_what_tensorflow_vectorizes_itself():
    inner = tf.function(lambda xs: tf.vectorized_map(tf.nn.softmax, xs))

    def fn(xs):
        with tf.GradientTape() as tape:
            tape.watch(xs)
            ys = tf.sin(xs) * xs
        return tf.vectorized_map(tf.norm, xs), inner(xs), tape.batch_jacobian(ys, xs)

    own = tf.vectorized_map
    wanted = tf.function(fn)(tf.constant(XS))
    fast = tf_pfor.optimize(fn)
    pairwise(np.testing.assert_allclose, wanted, fast(tf.constant(XS)), rtol=1e-5, atol=1e-6)
    kinds = [r.kind for r in fast.report.vectorized]
    assert sorted(kinds) == ["GradientTape.batch_jacobian", *["tf.vectorized_map"] * 2]
    assert not fast.report.kept
    assert tf.vectorized_map is own


def test_concrete_functions_that_are_called():
    inner = tf.function(lambda xs: tf.map_fn(tf.nn.softmax, xs)).get_concrete_function(OPEN)
    fast = tf_pfor.optimize(lambda xs: inner(xs) * 2.0)
    np.testing.assert_allclose(fast(tf.constant(XS)), tf.nn.softmax(XS) * 2.0, rtol=1e-6)
    assert "traced before" in fast.report.kept[0].reason
    with pytest.raises(tf_pfor.ArgumentTypeError, match="Python code"):
        tf_pfor.optimize(inner)


def test_variables_are_shared():
    v = tf.Variable([1.0, 2.0, 3.0])
    fast = tf_pfor.optimize(lambda xs: tf.map_fn(lambda x: x * v, xs))
    np.testing.assert_allclose(fast(tf.constant(XS)), XS * [1, 2, 3], rtol=1e-6)
    v.assign([0.0, 1.0, 0.0])
    np.testing.assert_allclose(fast(tf.constant(XS)), XS * [0, 1, 0], rtol=1e-6)
    slopes = gradient_of(lambda: tf.reduce_sum(fast(tf.constant(XS))), v)
    np.testing.assert_allclose(slopes, XS.sum(0), rtol=1e-5)


def test_a_training_step():
    v = tf.Variable([1.0, 2.0, 3.0])

    def step(xs):
        loss, gradient = value_and_gradient(
            lambda: tf.reduce_sum(tf.map_fn(lambda x: tf.tanh(tf.reduce_sum(x * v)), xs)), v
        )
        v.assign_sub(0.1 * gradient)
        return loss, gradient

    wanted = tf.function(step)(tf.constant(XS))
    v.assign([1.0, 2.0, 3.0])
    fast = tf_pfor.optimize(step)
    pairwise(np.testing.assert_allclose, wanted, fast(tf.constant(XS)), rtol=1e-5)
    assert not fast.report.kept
    graph = fast.get_concrete_function(tf.constant(XS)).graph
    assert not {"While", "StatelessWhile"} & op_types(graph)


def test_custom_gradients_and_gradients_of_rows():
    doubled = tf.custom_gradient(lambda x: (x * 2.0, lambda dy: dy * 5.0))
    gradients = lambda xs: tf.map_fn(lambda x: gradient_of(lambda: tf.reduce_sum(x**3), x), xs)
    held(lambda xs: tf.map_fn(doubled, xs), XS)
    held(gradients, XS)


@pytest.mark.parametrize("inside", [False, True])
def test_xla(inside):
    function = tf.function(rows_of, jit_compile=True)
    fast = tf_pfor.optimize((lambda xs: function(xs)) if inside else function)
    np.testing.assert_allclose(fast(tf.constant(XS)), rows_of_numpy(XS), rtol=1e-5)
    assert fast.report.vectorized


def rows_of_numpy(xs):
    e = np.exp(xs)
    return e / e.sum(1, keepdims=True) * xs.max(1, keepdims=True)


def test_methods_and_decorators():
    class Model(tf.Module):
        def __init__(self, factor):
            super().__init__()
            self.factor = tf.Variable(factor)

        @tf_pfor.optimize
        def rows(self, xs):
            """The product for each row."""
            return tf.map_fn(lambda x: x * self.factor, xs)

        @tf.function(input_signature=[OPEN])
        def other(self, xs):
            return tf.map_fn(lambda x: x + self.factor, xs)

    two, three = Model(2.0), Model(3.0)
    np.testing.assert_allclose(two.rows(tf.constant(XS)), XS * 2.0, rtol=1e-6)
    np.testing.assert_allclose(three.rows(tf.constant(XS)), XS * 3.0, rtol=1e-6)
    assert Model.rows.report.vectorized
    fast = tf_pfor.optimize(two.other)
    np.testing.assert_allclose(fast(XS), XS + 2.0, rtol=1e-6)
    assert fast.report.vectorized
    assert fast.input_signature == (OPEN,)


def test_in_a_dataset_and_in_a_map():
    fast = tf_pfor.optimize(rows_of)
    data = tf.data.Dataset.from_tensors(XS).map(fast)
    np.testing.assert_allclose(next(iter(data)), rows_of_numpy(XS), rtol=1e-5)
    many = tf_pfor.vectorized_map(fast, tf.stack([XS, -XS]))
    np.testing.assert_allclose(many[1], rows_of_numpy(-XS), rtol=1e-5)


def test_saved(tmp_path):
    module = tf.Module()
    module.fn = tf_pfor.optimize(tf.function(rows_of, input_signature=[OPEN]))
    tf.saved_model.save(module, str(tmp_path))
    np.testing.assert_allclose(
        tf.saved_model.load(str(tmp_path)).fn(XS), rows_of_numpy(XS), rtol=1e-5
    )


def test_captured_tensors_and_retracing():
    table = tf.constant(XS)

    def fn(ids, scale):
        return tf.map_fn(lambda i: tf.gather(table, i) * scale, ids, fn_output_signature=tf.float32)

    fast = tf_pfor.optimize(fn)
    ids = tf.constant([4, 0, 2])
    np.testing.assert_allclose(fast(ids, 2.0), XS[[4, 0, 2]] * 2.0)
    np.testing.assert_allclose(fast(ids[:2], scale=3.0), XS[[4, 0]] * 3.0)
    assert len(fast.report.records) == 1


def test_explain_runs_nothing():
    fn = lambda xs: (tf.map_fn(tf.nn.softmax, xs), tf.scan(lambda a, x: a + x, xs))
    report = tf_pfor.optimize(fn).explain(OPEN)
    assert [r.kind for r in report.records] == ["tf.scan", "tf.map_fn"]
    assert "1 of 2 loops vectorized" in str(report)
    assert "kept" in str(report)
    assert report.to_dict()["loops"][0]["kind"] == "tf.scan"
    assert "tf.scan" in report._repr_html_()


def test_nothing_of_tensorflow_stays_replaced():
    own = _loops.while_v2.while_loop, type(tf.function(abs)).__call__

    def work(k):
        fast = tf_pfor.optimize(lambda xs: tf.map_fn(lambda x: x * k, xs))
        plain = tf.function(lambda xs: tf.map_fn(lambda x: x * k, xs))
        return np.allclose(fast(tf.constant(XS)), plain(tf.constant(XS)))

    assert in_threads(work, (0.0, 1.0, 2.0, 3.0)) == [True] * 4
    assert own == (_loops.while_v2.while_loop, type(tf.function(abs)).__call__)
    with pytest.raises(Exception, match="division"):
        tf_pfor.optimize(lambda xs: tf.map_fn(lambda x: x / (1 // 0), xs))(tf.constant(XS))
    assert own == (_loops.while_v2.while_loop, type(tf.function(abs)).__call__)


def test_ragged_rows_and_writes_that_must_fail():
    rows = tf.ragged.constant([[1.0, 2.0], [3.0], []])
    fast = tf_pfor.optimize(lambda x: tf.map_fn(tf.reduce_sum, x, fn_output_signature=tf.float32))
    np.testing.assert_allclose(fast(rows), [3.0, 3.0, 0.0])
    assert fast.report.records

    def too_many(xs, is_wanted):
        out = tf.TensorArray(tf.float32, 2, element_shape=[3])
        if is_wanted:
            for i in tf.range(5):
                out = out.write(i, xs[i])
        return out.stack()

    fast = tf_pfor.optimize(too_many)
    np.testing.assert_allclose(fast(XS, tf.constant(False)), np.zeros([2, 3]))
    with pytest.raises(tf.errors.InvalidArgumentError):
        fast(XS, tf.constant(True))


def test_a_report_before_anything_was_traced():
    fast = tf_pfor.optimize(lambda xs: tf.map_fn(tf.sin, xs))
    assert "not traced yet" in str(fast.report)
    fast(tf.constant(XS))
    assert "1 of 1 loops vectorized" in str(fast.report)


def test_a_report_after_a_trace_that_failed():
    def fn(xs):
        raise ValueError("mine")

    fast = tf_pfor.optimize(fn)
    with pytest.raises(ValueError, match="mine"):
        fast(tf.constant(XS))
    assert "not traced yet" in str(fast.report)


def if_positive(x):
    if tf.reduce_sum(x) > 0.0:
        return x * 2.0
    return x


def to_the_fourth(x):
    for _ in tf.range(3):
        x = x * XS[0]
    return x


nested = lambda x: if_positive(x) + if_positive(-x)


class Scaled:
    def __init__(self, scale):
        self.scale = scale

    def __call__(self, x):
        return x * self.scale if tf.reduce_sum(x) > 0.0 else x


@pytest.mark.parametrize("kind", ["for", "map_fn", "while", "called function"])
@pytest.mark.parametrize("helper", [if_positive, to_the_fourth, nested, Scaled(3.0)])
def test_helpers_with_control_flow(helper, kind):
    """AutoGraph converts them, in the trips of a loop too."""

    def by_for(xs):
        out = tf.TensorArray(tf.float32, tf.shape(xs)[0])
        for i in tf.range(tf.shape(xs)[0]):
            out = out.write(i, helper(xs[i]))
        return out.stack()

    def by_while(xs):
        n, i = tf.shape(xs)[0], 0
        out = tf.TensorArray(tf.float32, n)
        while i < n:
            out = out.write(i, helper(xs[i]))
            i += 1
        return out.stack()

    mapped = lambda xs: tf.map_fn(lambda x: helper(x) + 1.0, xs)
    inner = tf.function(by_for)
    fns = {"for": by_for, "map_fn": mapped, "while": by_while, "called function": inner}
    fn = (lambda xs: inner(xs) * 2.0) if kind == "called function" else fns[kind]
    plain, fast, xs = tf.function(fn), tf_pfor.optimize(tf.function(fn)), tf.constant(XS)
    wanted, found = (value_and_gradient(lambda f=f: f(xs), xs) for f in (plain, fast))
    pairwise(np.testing.assert_allclose, found, wanted, rtol=1e-5)
    loop = {"map_fn": "tf.map_fn", "while": "while"}.get(kind, "for")
    assert any(r.kind == loop and r.is_vectorized for r in fast.report.records), str(fast.report)


def test_helpers_that_are_not_converted_stay_so():
    @tf.autograph.experimental.do_not_convert
    def plain(x):
        return if_positive(x)

    fast = tf_pfor.optimize(lambda xs: tf.map_fn(lambda x: plain(x), xs))
    with pytest.raises(TypeError, match="AutoGraph did not convert: .*if_positive"):
        fast(tf.constant(XS))
