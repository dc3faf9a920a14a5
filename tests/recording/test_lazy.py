"""Tests of ``lazy``: recorded ops, values, errors, variables, tapes and the cache."""

import copy
import gc
import pathlib
import pickle
import weakref

import numpy as np
import pytest
import tensorflow as tf

import tf_pfor
from tests.cases import case
from tests.comparisons import gradient_of, in_threads, pairwise, value_and_gradient
from tf_pfor._tf import _eager_ops
from tf_pfor.recording.compiled import Compiled

X = tf.constant([0.5, -1.0, 2.0])


class Change:
    """The change of the report in a block."""

    def __enter__(self):
        self.before = tf_pfor.lazy_report()
        return self

    def __exit__(self, *error):
        after = tf_pfor.lazy_report()
        for name in ("recorded", "hits", "misses", "without_xla"):
            setattr(self, name, getattr(after, name) - getattr(self.before, name))
        self.cuts = {
            reason
            for (line, reason), n in after.cuts.items()
            if n > self.before.cuts.get((line, reason), 0)
        }


def equal(found, expected):
    tf.nest.map_structure(
        lambda f, e: np.testing.assert_array_equal(np.asarray(f), np.asarray(e), strict=True),
        found,
        expected,
    )


def same(run):
    """``run()`` gives in ``lazy`` what it gives eagerly."""
    expected = run()
    with tf_pfor.lazy():
        found = run()
    equal(found, expected)


# -- What is recorded ------------------------------------------------------------------------------


def test_ops_run_as_one_function_at_the_end():
    with Change() as change, tf_pfor.lazy():
        y = tf.tanh(X) * 2.0 + X
        z = tf.reduce_sum(y)
    equal([y, z], [tf.tanh(X) * 2.0 + X, tf.reduce_sum(tf.tanh(X) * 2.0 + X)])
    assert change.recorded == 4
    assert change.hits + change.misses == 1
    assert change.cuts == {"the end of lazy()"}
    assert _eager_ops.is_idle()


def test_dead_values_are_not_made():
    with Change() as change, tf_pfor.lazy():
        tf.tanh(X) * 2.0
    assert (change.recorded, change.hits, change.misses) == (2, 0, 0)


@pytest.mark.parametrize(
    "asked",
    [
        lambda y: y.numpy().tolist(),
        lambda y: bool(y[0] > 0.0),
        lambda y: float(y[0]),
        lambda y: int(y[2]),
        lambda y: [10, 20, 30][tf.argmax(y)],
        lambda y: f"{y[0]:.3f}",
        str,
        repr,
        lambda y: np.sin(y).tolist(),
        lambda y: np.asarray(y, np.float64).tolist(),
        lambda y: pickle.loads(pickle.dumps(y)).numpy().tolist(),
        lambda y: [float(x) for x in y],
        lambda y: 1 if tf.reduce_all(y > -5.0) else 2,
        lambda y: y[:2].numpy().tolist() in [y.numpy().tolist()[:2]],
        lambda y: tf.constant(y).numpy().tolist(),
        lambda y: round(float(y[0]), 2),
        lambda y: tf.py_function(lambda x: x + 1.0, [y], tf.float32).numpy().tolist(),
        lambda y: tf.numpy_function(np.cos, [y], tf.float32).numpy().tolist(),
        lambda y: tf.boolean_mask(y, y > 0.0).numpy().tolist(),
        lambda y: [x.numpy().tolist() for x in tf.data.Dataset.from_tensor_slices(y)],
        lambda y: tf.strings.as_string(y).numpy().tolist(),
        lambda y: tf.io.serialize_tensor(y).numpy(),
        lambda y: tf.make_ndarray(tf.make_tensor_proto(y)).tolist(),
        lambda y: tf.get_static_value(y).tolist(),
        lambda y: np.from_dlpack(y).tolist(),
    ],
)
def test_what_asks_for_values(asked):
    with Change() as change, tf_pfor.lazy():
        y = X * 3.0
        found = asked(y)
    assert found == asked(X * 3.0)
    assert change.hits + change.misses >= 1


def test_what_asks_for_no_value():
    with Change() as change, tf_pfor.lazy():
        y = X * 3.0
        assert y.shape == [3]
        assert y.dtype == tf.float32
        assert (y.ndim, len(y), y.shape.rank) == (1, 3, 1)
        assert tf.is_tensor(y)
        assert isinstance(y, tf.Tensor)
        assert tf.shape(y).numpy().tolist() == [3]
        assert tf.convert_to_tensor(y) is y
        assert copy.copy(y) is y
        assert copy.deepcopy([y])[0] is y
        assert len({y.ref(), y.ref()}) == 1
        assert tf.nest.flatten({"a": [y, (y,)]})[1] is y
        assert not hasattr(y, "no_such_attribute")
        with pytest.raises(TypeError, match="unhashable"):
            hash(y)
        with pytest.raises(AttributeError):
            _ = y.graph
        assert [x.shape.rank for x in y] == [0, 0, 0]
        assert tf.keras.ops.is_tensor(y)
    assert change.cuts == {"the end of lazy()"}


@case(same)
def test_arrays_numbers_and_lists_as_operands():
    y = X + np.float32(1.0)
    y = np.array([1.0, 2.0, 3.0], np.float32) * y
    y = y + [1.0, 2.0, 3.0]
    y = tf.stack([y, X, [1.0, 1.0, 1.0]])
    y = tf.concat([y, tf.reduce_sum(y, 0, keepdims=True)], axis=0)
    y = tf.pad(y, [[0, 1], [1, 0]]) ** 2
    i = tf.argmax(y, 1, output_type=tf.int32)
    slices = y[0, 1:], y[..., None], y[::-1], tf.gather(y, i % 3)
    return y, i * 2 + 1, slices, 2.0 - y, -y, y // 2.0


def test_values_after_the_scope():
    with tf_pfor.lazy():
        y = X * 2.0
    equal(y + 1.0, X * 2.0 + 1.0)
    equal(tf.function(lambda a: a * 2.0)(y), X * 4.0)
    equal(tf.function(lambda: y * 2.0)(), X * 4.0)
    equal(tf.matmul(y[None], y[:, None]), tf.matmul((X * 2.0)[None], (X * 2.0)[:, None]))
    equal(tf_pfor.vectorized_map(lambda a: a * 2.0, y), X * 4.0)
    v = tf.Variable(y)
    v.assign(y)
    equal(v, X * 2.0)
    model = tf.keras.Sequential([tf.keras.layers.Dense(2)])
    equal(model(y[None]), model((X * 2.0)[None]))


def test_a_decorated_function_returns_eager_tensors():
    @tf_pfor.lazy
    def pair(x):
        """Two."""
        return x * 2.0, {"sum": tf.reduce_sum(x)}

    found = pair(X)
    assert pair.__doc__ == "Two."
    assert isinstance(found[0], _eager_ops.EagerTensor)
    equal(found, (X * 2.0, {"sum": tf.reduce_sum(X)}))
    with pytest.raises(tf_pfor.ArgumentTypeError, match="fn must be a function"):
        tf_pfor.lazy(3)


def test_a_function_is_one_call():
    double = tf.function(lambda x: tf.tanh(x) * 2.0)
    with tf_pfor.lazy():
        double(X)
    with Change() as change, tf_pfor.lazy():
        y = double(X * 1.0) + double(X)
    equal(y, double(X * 1.0) + double(X))
    assert change.recorded == 4


def test_functions_with_state_run_by_themselves():
    v = tf.Variable(1.0)
    traces = []

    @tf.function
    def count(x):
        traces.append(1)
        v.assign_add(x)
        return v * 2.0

    with tf_pfor.lazy():
        v.assign(5.0)
        y = count(tf.constant(2.0) * 1.0)
        z = v + 1.0
        count(1.0)
    assert (float(y), float(z), float(v)) == (14.0, 8.0, 8.0)
    assert len(traces) == 2  # for a tensor, and for 1.0


def test_functions_that_read_variables_among_writes():
    v = tf.Variable(tf.zeros([3]))
    shifted = tf.function(lambda x: x + v * 1.0)

    def run():
        v.assign(tf.zeros([3]))
        found = []
        for k in range(10):
            v.assign_add(X * float(k))
            found.append(shifted(X))
            v.assign(v * 0.5)
            found += [shifted(X * 2.0), shifted(X * 3.0)]
        return found

    expected = run()
    for _ in range(2):
        with tf_pfor.lazy():
            found = run()
        equal(found, expected)


def test_scopes_in_scopes_functions_and_maps():
    with tf_pfor.lazy():
        y = X * 2.0
        with tf_pfor.lazy():
            z = y + 1.0
        w = z * y
        maps = tf_pfor.vectorized_map(lambda a: a * y[0], w)
        lists = tf_pfor.batched(lambda a: a * 2.0)([w[0], w[1]])
    equal(w, (X * 2.0 + 1.0) * (X * 2.0))
    equal(maps, w * X[0] * 2.0)
    equal(lists, w[:2] * 2.0)
    scoped = tf_pfor.lazy(lambda a: a * 2.0)
    equal(tf.function(scoped)(X), X * 2.0)
    equal(tf_pfor.batched(scoped)([X, X])[1], X * 2.0)


# -- Errors ----------------------------------------------------------------------------------------


def test_an_error_names_its_line_and_what_came_before_has_happened():
    v = tf.Variable(1.0)
    with tf_pfor.lazy():
        before = X * 2.0
        v.assign_add(1.0)
        wrong = tf.gather(before, tf.cast(v, tf.int32) + 7)  # the line
        after = wrong * 2.0
        v.assign(100.0)
        with pytest.raises(tf.errors.InvalidArgumentError, match=r"test_lazy.py:\d+") as found:
            float(after)
        number = int(str(found.value).split("test_lazy.py:")[1].split(",")[0])
        assert "the line" in pathlib.Path(__file__).read_text().split("\n")[number - 1]
        with pytest.raises(tf.errors.InvalidArgumentError):
            float(wrong)
        equal(before, X * 2.0)
        assert float(v) == 2.0
        equal(before + v, X * 2.0 + 2.0)


def test_an_error_after_a_write_leaves_no_wrong_value(monkeypatch):
    run = Compiled.run

    def failing(self, inputs):
        run(self, inputs)
        raise tf.errors.ResourceExhaustedError(None, None, "no memory")

    v = tf.Variable(1.0)
    with tf_pfor.lazy():
        v.assign_add(1.0)
        y = v + 1.0
        with monkeypatch.context() as patch:
            patch.setattr(Compiled, "run", failing)
            with pytest.raises(tf.errors.ResourceExhaustedError, match=r"test_lazy.py:\d+"):
                float(y)
        with pytest.raises(tf.errors.ResourceExhaustedError):
            float(y)
    assert float(v) == 2.0  # the write has happened, and does not happen again


def test_errors_at_the_end_of_the_scope():
    bad = tf.constant([1.0, np.inf])
    with pytest.raises(tf.errors.InvalidArgumentError, match="CheckNumerics"), tf_pfor.lazy():
        tf.debugging.check_numerics(bad * 2.0, "bad")
    v = tf.Variable(1.0)

    @tf_pfor.lazy
    def failing():
        v.assign_add(1.0)
        raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        failing()
    assert float(v) == 2.0
    assert _eager_ops.is_idle()


@pytest.mark.parametrize(
    "wrong",
    [
        lambda x: x + tf.zeros([4]),
        lambda x: x + tf.zeros([3], tf.float64),
        lambda x: tf.reshape(x, [2, 2]),
        lambda x: tf.concat([x, x[None]], 0),
        lambda x: x["a"],
        lambda x: x + "a",
        lambda x: tf.cast(x, tf.int32) + [np.float64(1.5)],
        lambda x: tf.cast(x, tf.complex64) + True,
        lambda x: tf.matmul(x, x),
        lambda x: float(x),
        lambda x: iter(x[0]),
        lambda x: len(x[0]),
        lambda x: x[0][0],
        lambda x: x.no_such_attribute,
        lambda x: bool(x),
        lambda x: tf.cast(x, tf.int32) // 0 + int(x[0]),
        lambda x: tf.split(x, 2),
        lambda x: x.set_shape([4]),
    ],
)
def test_wrong_calls_fail_as_they_do_eagerly(wrong):
    with pytest.raises(Exception) as expected:  # noqa: PT011
        wrong(X * 1.0)
    with tf_pfor.lazy():
        x = X * 1.0
        with pytest.raises(type(expected.value)):
            wrong(x)


# -- Variables and random numbers ------------------------------------------------------------------


def test_reads_and_writes_in_order():
    def run(v, table):
        seen = [v + 0.0]
        v.assign_add(X)
        seen.append(v * 1.0)
        v.assign(v * 2.0)
        seen.append(v.read_value())
        v.assign_sub(tf.ones([3]))
        table.scatter_update(tf.IndexedSlices(v[None], [1]))
        table.scatter_add(tf.IndexedSlices(X[None], [1]))
        seen.append(tf.gather(table, [1, 0]))
        seen.append(v.sparse_read([0, 2]))
        return seen

    v, table = tf.Variable(X), tf.Variable(tf.zeros([2, 3]))
    expected = run(v, table)
    w, other = tf.Variable(X), tf.Variable(tf.zeros([2, 3]))
    with Change() as change, tf_pfor.lazy():
        found = run(w, other)
    equal([*found, w, other], [*expected, v, table])
    assert change.cuts == {"an op that may fail, after a write", "the end of lazy()"}


def test_variables_are_inputs_and_may_be_made_inside():
    def run():
        v = tf.Variable(X * 2.0)
        for k in range(3):
            v.assign_add(X * float(k))
        return v.value()

    expected = run()
    with tf_pfor.lazy():
        first = run()
    with Change() as change, tf_pfor.lazy():
        found = run()
    equal([first, found], [expected, expected])
    assert change.misses == 0


@case(same)
def test_random_numbers_under_a_seed():
    tf.random.set_seed(3)
    a = tf.random.normal([3]) * X
    b = tf.random.uniform([3], 0.0, 2.0) + a
    g = tf.random.Generator.from_seed(4)
    return b, g.normal([2]), tf.random.stateless_normal([2], [1, 2]), tf.nn.dropout(b, 0.5)


@case(same)
def test_keras_layers_and_optimizers():
    tf.keras.utils.set_random_seed(1)
    layers = tf.keras.layers
    model = tf.keras.Sequential([
        layers.Dense(4, "relu"), layers.BatchNormalization(), layers.Dropout(0.5, seed=2),
        layers.Dense(2),
    ])  # fmt: skip
    optimizer = tf.keras.optimizers.Adam(0.1)
    x, y = tf.random.stateless_normal([8, 3], [1, 2]), tf.constant([0, 1] * 4)
    losses = []
    for _ in range(4):
        with tf.GradientTape() as tape:
            logits = model(x, training=True)
            loss = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(y, logits))
        gradients = tape.gradient(loss, model.trainable_variables)
        optimizer.apply_gradients(zip(gradients, model.trainable_variables))
        losses.append(loss)
        tf_pfor.mark_step()
    return losses, [tf.convert_to_tensor(v.value) for v in model.variables]


# -- Tapes -----------------------------------------------------------------------------------------


def test_tapes_inside_around_and_across():
    v = tf.Variable([1.0, 2.0, 3.0])

    def forward():
        y = tf.concat([v * X, tf.sin(v)], 0)
        return tf.reduce_sum(y**2) + tf.reduce_max(y)

    with tf.GradientTape() as tape:
        loss = forward()
    expected = tape.gradient(loss, v)
    with tf_pfor.lazy(), tf.GradientTape() as tape:
        loss = forward()
        found = tape.gradient(loss, v)
    equal(found, expected)
    with tf.GradientTape() as tape, tf_pfor.lazy():
        loss = forward()
    equal(tape.gradient(loss, v), expected)
    with tf.GradientTape() as tape:
        with tf_pfor.lazy():
            loss = forward()
        loss = loss * 2.0
    equal(tape.gradient(loss, v), expected * 2.0)
    equal(gradient_of(lambda: tf_pfor.lazy(forward)() * 2.0, v), expected * 2.0)
    with tf_pfor.lazy():
        w = v * 1.0
    equal(
        gradient_of(lambda: tf.reduce_sum(tf.function(lambda a: a * a)(w)) + tf.reduce_sum(w), w),
        2.0 * v + 1.0,
    )


def test_more_derivatives():
    def run():
        found = []
        with tf.GradientTape(persistent=True) as tape:
            tape.watch(X)
            y, slope = value_and_gradient(lambda: tf.reduce_sum(tf.tanh(X) * X), X)
        found.append(tape.gradient(slope, X))
        found.append(tape.jacobian(slope, X))
        found.append(tape.gradient(y, X))
        with tf.autodiff.ForwardAccumulator(X, tf.ones([3])) as accumulator:
            z = tf.sin(X) * X
        found.append(accumulator.jvp(z))
        with tf.GradientTape() as tape:
            tape.watch(X)
            parts = tf.split(tf.exp(X), [1, 2])
        found += tape.gradient(parts[1], [X])
        with tf.GradientTape() as tape:
            tape.watch(X)
            y = X * 2.0
            with tape.stop_recording():
                y = y + 0.0
        assert tape.gradient(y, X) is None
        return found

    expected = run()
    with tf_pfor.lazy():
        found = run()
    pairwise(np.testing.assert_allclose, found, expected, rtol=1e-6)


# -- The cache -------------------------------------------------------------------------------------


def loop(steps, jit):
    """Momentum by hand, with a rate that changes in each step."""
    v, m = tf.Variable([3.0, -2.0]), tf.Variable([0.0, 0.0])
    with tf_pfor.lazy(jit_compile=jit):
        for k in range(steps):
            m.assign(0.9 * m + gradient_of(lambda: tf.reduce_sum((v - 1.0) ** 2), v))
            v.assign_sub(m * (0.1 / (1 + k)))
            tf_pfor.mark_step()
    return v.numpy()


@pytest.mark.parametrize("jit", [False, True])
def test_a_steady_loop_compiles_once(jit):
    with Change() as first:
        loop(3, jit)
    with Change() as rest:
        found = loop(50, jit)
    assert first.misses <= 2
    assert rest.misses == 0
    np.testing.assert_allclose(found, [1.0, 1.0], atol=0.2)


def test_equal_programs_at_two_lines_are_compiled_once():
    def run(x):
        with tf_pfor.lazy():
            y = tf.sin(x) * 0.25 + x
        return y

    with Change() as first:
        expected = run(X)
    with Change() as change, tf_pfor.lazy():
        y = tf.sin(X) * 0.75 + X
    assert (first.misses, change.misses, change.hits) == (1, 0, 1)
    equal(run(X), expected)
    equal(y, tf.sin(X) * 0.75 + X)


def test_a_loop_without_a_mark_is_cut_where_it_began():
    def run(steps):
        x = X
        for _ in range(steps):
            x = tf.tanh(x * 1.5)
            x = x / (1.0 + tf.reduce_max(tf.abs(x)))
        return x

    with tf_pfor.lazy():
        run(400)
    with Change() as change, tf_pfor.lazy():
        found = run(4000)
    equal(found, run(4000))
    assert change.misses <= 3


def test_a_line_with_many_forms_runs_one_by_one():
    run = lambda n: float(tf.reduce_sum(tf.ones([n]) * 2.0 + 1.0 * tf.ones([n])))
    with Change() as change, tf_pfor.lazy():
        assert [run(n) for n in range(100, 140)] == [3.0 * n for n in range(100, 140)]
    assert change.misses == 40
    report = tf_pfor.lazy_report()
    assert any("test_lazy.py" in line for line in report.one_by_one)
    assert "one by one" in str(report)


def test_xla_and_what_it_does_not_compile():
    def run():
        y = tf.reduce_sum(tf.tanh(X) * 2.0) + tf.cast(tf.unique(X).y[0], tf.float32)
        image = tf.ones([1, 4, 4, 3]) * X
        boxes = tf.image.draw_bounding_boxes(image, [[[0.1, 0.1, 0.5, 0.5]]], [[1.0, 2.0, 3.0]])
        return y * 2.0, tf.linalg.matvec(tf.eye(3), X), boxes

    expected = run()
    with Change() as change, tf_pfor.lazy(jit_compile=True):
        run()
    assert change.without_xla  # a box may be an error, so it is drawn if nobody wants it, too
    for _ in range(2):
        with tf_pfor.lazy(jit_compile=True):
            found = run()
        tf.nest.map_structure(
            lambda f, e: np.testing.assert_allclose(f, e, rtol=1e-6), found, expected
        )


def test_threads_do_not_see_each_other():
    def work(k):
        v = tf.Variable(float(k))
        for step in range(10):
            with tf_pfor.lazy():
                y = v * 2.0 + tf.reduce_sum(X)
                v.assign(y - v)
            assert float(v) == float(k) + 1.5 * (step + 1)

    in_threads(work, range(4))
    with tf_pfor.lazy():
        y = X * 3.0
        (found,) = in_threads(lambda _: (y + 1.0).numpy(), range(1))
    equal(found, X * 3.0 + 1.0)


def test_threads_that_share_values():
    shared = [X * 1.0]

    def work(k):
        rng = np.random.default_rng(k)
        for step in range(20):
            with tf_pfor.lazy():
                y = tf.tanh(X * float(k)) + float(step)
                shared.append(y)
                if rng.random() < 0.5:
                    float(shared[rng.integers(len(shared))][0])
                z = y * y + 1.0
            expected = tf.tanh(X * float(k)) + float(step)
            equal([y, z], [expected, expected * expected + 1.0])

    in_threads(work, range(4))


def test_nothing_stays_alive():
    def objects():
        gc.collect()
        return sum(isinstance(x, tf.Tensor) for x in gc.get_objects())

    loop(40, jit=False)  # the numbers of its steps are kept as tensors, up to 10,000 of them
    before = objects()
    loop(40, jit=False)
    assert objects() <= before + 20
    with tf_pfor.lazy():
        y = X * 2.0
        known = weakref.ref(y)
        z = float(y[0])
        del y
    assert z == 1.0
    assert known() is None


def test_a_function_with_more_results_serves_fewer():
    def run(keep):
        with tf_pfor.lazy():
            y = X * 5.0
            z = tf.tanh(y) * y
            if not keep:
                del y
        return z

    with Change() as change:
        equal(run(True), run(False))
    assert (change.misses, change.hits) == (1, 1)


def test_an_index_that_a_graph_uses_first():
    with tf_pfor.lazy():
        y = X * 2.0
        mapped = tf_pfor.vectorized_map(lambda a: a * y[-2], X)
        z = y[-2] + 1.0
    equal(mapped, X * X[-2] * 2.0)
    equal(z, X[-2] * 2.0 + 1.0)
