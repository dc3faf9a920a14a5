"""While loops: trip counts that vary and that do not, both strategies, gradients, XLA, nesting."""

import numpy as np
import pytest
import tensorflow as tf

import tf_pfor
from tests.cases import case
from tests.comparisons import (
    assert_close,
    check,
    gradient_of,
    looped,
    notes,
    row_of,
    strict_map,
    vectorized,
)

_x = lambda *shape, seed=0: np.random.default_rng(seed).normal(size=shape).astype(np.float32)
X = _x(5, 3)
LEN = np.array([2, 0, 4, 1, 4], np.int32)
W = tf.constant(_x(3, 3) * 0.5)
both = pytest.mark.parametrize("strategy", ["compact", "mask"])
_cell = lambda s: tf.tanh(tf.linalg.matvec(W, s) + s * 0.1)


def _smooth(k, x):
    _, s = tf.while_loop(lambda t, s: t < k, lambda t, s: (t + 1, _cell(s)), (0, x))
    return s


def three_trips(x):
    return tf.while_loop(lambda t, s: t < 3, lambda t, s: (t + 1, _cell(s)), (0, x))


def test_invariant_predicate():
    check(three_trips, X)
    assert "while: one trip count for all rows, 1 uniform, 1 row-varying" in notes(three_trips, X)


def test_automatic_choice():
    assert any("while: mask," in x for x in notes(_smooth, LEN, X))
    wide = tf.constant(_x(256, 256))

    def f(k, x):
        body = lambda t, s: (t + 1, tf.tanh(tf.linalg.matvec(wide, s)))
        return tf.while_loop(lambda t, s: t < k, body, (0, x))[1]

    found = notes(f, np.zeros(128, np.int32), _x(128, 256))
    assert any("while: compact, 1 uniform, 1 row-varying" in x for x in found), found


@both
@pytest.mark.parametrize("lengths", [[0, 0, 0, 0, 0], [3, 3, 3, 3, 3], [1], [0], []])
def test_extreme_lengths(strategy, lengths):
    k = np.array(lengths, np.int32)
    check(_smooth, k, X[: len(k)], while_strategy=strategy, xla=strategy == "mask")


@both
def test_padding_is_nan(strategy):
    """Padding behind a row's end must not reach values or gradients."""
    x = _x(5, 4, 2)
    for row, k in enumerate(LEN):
        x[row, k:] = np.nan

    w = tf.constant(_x(2, 2))

    def f(k, x):
        body = lambda t, s: (t + 1, tf.tanh(tf.linalg.matvec(w, s) + x[t]))
        return tf.while_loop(lambda t, s: t < k, body, (0, tf.zeros([2])))[1]

    check(f, LEN, x, while_strategy=strategy, xla=strategy == "mask")


def test_gradient_under_jit_compile():
    step = lambda t, s: (t + 1, _cell(s))
    f = lambda k, x: tf.while_loop(lambda t, s: t < k, step, (0, x), maximum_iterations=5)[1]
    slope = lambda run: lambda k, x: gradient_of(lambda: tf.reduce_sum(run(k, x)[0] ** 2), x)
    args = tf.constant(LEN), tf.constant(X)
    found = tf.function(slope(lambda *a: vectorized(f, a)), jit_compile=True)(*args)
    expected = tf.function(slope(lambda *a: looped(f, a, 5)))(*args)
    np.testing.assert_allclose(found, expected, 1e-5, 1e-5)


@case(check, LEN, X)
def test_pfor_in_while_in_pfor(k, x):
    body = lambda t, s: (t + 1, tf_pfor.vectorized_map(lambda v: tf.tanh(v + s[0]), s))
    return tf.while_loop(lambda t, s: t < k, body, (0, x))[1]


@case(check, LEN, _x(5, 2, 3))
def test_while_in_pfor_in_pfor(k, x):
    return tf_pfor.vectorized_map(lambda a: _smooth(a[0] + k, a[1]), (tf.range(2), x))


def _grown(k, x, per_row=True):
    """[k, 3]: row t is (t + 1) x."""
    row = x[None] if per_row else tf.ones([1, 3])
    return tf.while_loop(
        lambda t, z: t < k,
        lambda t, z: (t + 1, tf.concat([z, row * tf.cast(t + 1, x.dtype)], 0)),
        (0, tf.zeros([0, 3])),
        shape_invariants=(tf.TensorShape([]), tf.TensorShape([None, 3])),
    )[1]


@pytest.mark.parametrize("per_row", [True, False])
def test_growing_shape_of_rows_that_leave_together(per_row):
    """The predicate varies, and all rows make as many trips."""
    check(lambda k, x: _grown(k, x, per_row), np.array([2] * 5, np.int32), X, xla=False)
    check(lambda k, x: tf.reduce_sum(_grown(k, x, per_row), 0), LEN[2:3], X[:1], xla=False)


def test_growing_shape_of_rows_that_leave_one_by_one():
    found = tf_pfor.vmap(_grown, in_axes=(0, 0), while_strategy="compact")(LEN, X)
    assert isinstance(found, tf.RaggedTensor)
    for got, k, x in zip(found, LEN, X, strict=True):
        np.testing.assert_allclose(got, _grown(tf.constant(k), x))


def test_growing_shape_in_two_maps():
    """Once it was broadcast, without a word."""
    inner = tf_pfor.vmap(_grown)
    with pytest.warns(tf_pfor.FallbackWarning, match="StatelessWhile"):
        found = tf_pfor.vmap(inner)(LEN[None], X[None])
    for got, k, x in zip(found[0], LEN, X, strict=True):
        np.testing.assert_allclose(got, _grown(tf.constant(k), x))


@case(check, LEN, X, xla=False)
def test_second_gradient_of_a_relaxed_shape_that_stays(k, x):
    shapes = tf.TensorShape([]), tf.TensorShape([None, 3])
    step, start = lambda t, z: (t + 1, tf.sin(z + x)), (0, tf.zeros([2, 3]))
    run = lambda: tf.while_loop(lambda t, z: t < k, step, start, shape_invariants=shapes)[1]
    return gradient_of(lambda: tf.reduce_sum(run() ** 2), x)


def test_the_strategy_is_an_option():
    def f(row):
        k, x = row
        return tf.while_loop(lambda t, _: t < k, lambda t, s: (t + 1, tf.sin(s) * s), (0, x))[1]

    rows = (tf.constant(LEN), tf.constant(X))
    expected = tf.stack([f(row) for row in zip(*rows, strict=True)])
    for strategy in ("compact", "mask", "auto"):
        found = tf_pfor.vectorized_map(f, rows, while_strategy=strategy)
        np.testing.assert_allclose(found, expected, rtol=1e-5)
        mapped = tf_pfor.vmap(lambda k, x: f((k, x)), while_strategy=strategy)
        np.testing.assert_allclose(mapped(*rows), expected, rtol=1e-5)
        said = str(tf_pfor.explain(f, rows, while_strategy=strategy))
        assert strategy == "auto" or f"while: {strategy}" in said
    with pytest.raises(tf_pfor.ArgumentError, match="while_strategy must be .* found 'fast'"):
        tf_pfor.vectorized_map(f, rows, while_strategy="fast")


def test_compact_where_the_shapes_must_be_static():
    step = lambda t, s: (t + 1, s + 1.0)
    one = lambda k, x: tf.while_loop(lambda t, _: t < k, step, (0, x))[1]
    run = tf_pfor.vmap(one, while_strategy="compact", fallback="error", jit_compile=True)
    with pytest.raises(tf_pfor.NotVectorizableError, match="'compact', and under jit_compile"):
        run(tf.constant(LEN), tf.constant(X))


@pytest.mark.parametrize("strategy", ["auto", "compact", "mask"])
def test_a_row_that_ends_by_overflow(strategy):
    """Its last value is infinite; what it would compute from that must not reach a gradient."""
    w = tf.Variable(3e19)
    f = lambda row: tf.while_loop(lambda s: tf.math.is_finite(s), lambda s: (s * w,), (row,))[0]

    def value_and_gradients(run, x):
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = tf.clip_by_value(run(x), -1.0, 1.0)
        return y, *tape.gradient(y, [x, w])

    x = tf.constant([1.0, 1e20, 1e-20])
    found = value_and_gradients(lambda x: tf_pfor.vectorized_map(f, x, while_strategy=strategy), x)
    expected = value_and_gradients(lambda x: tf.stack([f(row) for row in tf.unstack(x)]), x)
    assert_close(found, expected, rtol=1e-7, atol=0)


@case(check, np.random.default_rng(0).normal(size=(5, 2)), while_strategy="compact", xla=False)
def test_gradient_of_a_start_that_is_read_elsewhere(start):
    """Grappler adds both, and took the rows in a trip for all rows."""
    slope = lambda y: tf.stack([y[1], y[0] * y[1]])

    def body(t, y, last):
        k = slope(y + 0.1 * y)
        new, then = y + 0.1 * k, tf.sin(y + 0 * k + 0.1 * k)
        return tf.cond(tf.norm(then) <= 1, lambda: (t + 2, new, then), lambda: (t + 1, y, last))

    return tf.while_loop(lambda t, *_: t < 20, body, (0, start, slope(start)))[1:]


def test_optionals_that_loops_change_are_looped():
    """The optional that a row is in would change with each trip."""
    optional = tf.experimental.Optional
    x = tf.constant(np.random.default_rng(0).normal(size=[4, 3]))

    def largest(x, first):
        def body(i, best):
            larger = x[i] > best.get_value()
            return i + 1, tf.cond(larger, lambda: optional.from_value(x[i] * 2), lambda: best)

        start = (0, optional.from_value(first))
        return tf.while_loop(lambda i, _: i < 3, body, start)[1].get_value()

    for first in (lambda x: x[0], lambda x: tf.constant(0.0, x.dtype)):
        one = lambda x, first=first: largest(x, first(x))
        with pytest.warns(tf_pfor.FallbackWarning, match="changes an optional"):
            found = tf_pfor.vectorized_map(one, x)
        np.testing.assert_allclose(found, [one(row) for row in x])
        with pytest.raises(tf_pfor.NotVectorizableError, match="changes an optional"):
            strict_map(one, x)


# Loops with both strategies, and loops that have none to choose: values, gradients and XLA.
STRATEGIES = {
    "trip count for each row": (_smooth, [LEN, X], {}),
    "second gradient": (_smooth, [LEN, X], {"xla": False, "second": True}),
    "unknown n": (_smooth, [LEN, X], {"xla": False, "unknown": True}),
}
ONCE = {}


@row_of(ONCE, X)
def layouts_reach_a_fixpoint(x):
    """a is stacked only because of b, which is stacked only because of c."""
    body = lambda t, a, b, c: (t + 1, b, c, x * 2.0)
    zero = tf.zeros([3])
    return tf.while_loop(lambda t, *_: t < 3, body, (0, zero, zero, zero))[1:]


@row_of(STRATEGIES, X)
def counter_is_read(x):
    """The step counter stays unstacked; what it was when a row left is the row's result."""
    body = lambda t, s: (t + 1, s * 0.5)
    return tf.while_loop(lambda t, s: tf.reduce_sum(tf.abs(s)) > 0.3, body, (0, x))


@row_of(STRATEGIES, LEN, _x(5, 4, 2))
def reads_of_a_captured_tensor(k, x):
    body = lambda t, s: (t + 1, tf.tanh(s + x[t]))
    return tf.while_loop(lambda t, s: t < k, body, (0, tf.zeros([2])))[1]


@row_of(STRATEGIES, LEN, _x(5, 4, 2))
def reads_at_an_index_for_each_row(k, x):
    body = lambda t, s: (t - 1, tf.tanh(s + x[t] + tf.gather(x, t)[0]))
    return tf.while_loop(lambda t, s: t >= 0, body, (k - 1, tf.zeros([2])))[1]


@row_of(STRATEGIES, LEN, _x(5, 4, 2), _x(5, 2))
def whole_captured_tensor(k, x, y):
    body = lambda t, s: (t + 1, tf.tanh(s + tf.reduce_sum(x, 0) * y))
    return tf.while_loop(lambda t, s: t < k, body, (0, tf.zeros([2])))[1]


@row_of(STRATEGIES, LEN, X)
def trap_behind_the_end(k, x):
    """1 / (k - t) is infinite one trip after the last."""
    body = lambda t, s: (t + 1, s + x / tf.sqrt(tf.cast(k - t, tf.float32)))
    return tf.while_loop(lambda t, s: t < k, body, (0, x))[1]


@row_of(STRATEGIES, LEN, X)
def maximum_iterations(k, x):
    return tf.while_loop(
        lambda t, s: t < k, lambda t, s: (t + 1, _cell(s)), (0, x), maximum_iterations=2,
        parallel_iterations=3,
    )  # fmt: skip


@row_of(STRATEGIES, LEN, X)
def python_while(k, x):
    t = 0
    while t < k:
        x = _cell(x)
        t += 1
    return x, t


@row_of(STRATEGIES, LEN, X, xla=False)
def python_for(k, x):
    total = tf.zeros([3])
    for t in tf.range(k):
        total += x * tf.cast(t, tf.float32)
    return total


@row_of(STRATEGIES, LEN, X)
def while_in_while(k, x):
    def outer(t, s):
        inner = tf.while_loop(lambda u, s: u < k - t, lambda u, s: (u + 1, _cell(s + x)), (0, s))
        return t + 1, inner[1]

    return tf.while_loop(lambda t, s: t < k, outer, (0, x))[1]


@row_of(ONCE, LEN, X)
def while_in_cond(k, x):
    return tf.cond(x[0] > 0.0, lambda: _smooth(k, x), lambda: x * 2.0)


@row_of(STRATEGIES, LEN, X)
def cond_in_while(k, x):
    body = lambda t, s: (t + 1, tf.cond(s[0] > 0.0, lambda: tf.sqrt(s[0]) + s, lambda: _cell(s)))
    return tf.while_loop(lambda t, s: t < k, body, (0, x))[1]


@row_of(ONCE, X, xla=False)
def growing_shape(x):
    return tf.while_loop(
        lambda t, s: t < 3,
        lambda t, s: (t + 1, tf.concat([s, x[None] * tf.cast(t, tf.float32)], 0)),
        (0, x[None]),
        shape_invariants=(tf.TensorShape([]), tf.TensorShape([None, 3])),
    )[1]


@row_of(ONCE, _x(5, 2))
def nothing_is_stacked_but_a_random_draw(x):
    y = tf.while_loop(lambda t, s: t < 2, lambda t, s: (t + 1, s + 1.0), (0, tf.zeros([2])))[1]
    return y + x


@row_of(STRATEGIES, LEN, X, xla=False)
def gradient_inside(k, x):
    return gradient_of(lambda: tf.reduce_sum(_smooth(k, x) ** 2), x)


@row_of(STRATEGIES, LEN, X, xla=False, grad=False, unknown=True)
def gradient_inside_of_unknown_n(k, x):
    return gradient_of(lambda: tf.reduce_sum(_smooth(k, x) ** 2), x)


@row_of(ONCE, X, xla=False)
def gradient_inside_of_an_invariant_loop(x):
    return gradient_of(
        lambda: tf.while_loop(lambda t, s: t < 3, lambda t, s: (t + 1, _cell(s)), (0, x))[1], x
    )


@row_of(ONCE, X, xla=False)
def map_scan_fold(x):
    a = tf.map_fn(lambda v: tf.exp(v) * x[0], x)
    b = tf.scan(lambda a, v: a * v + x[1], x)
    c = tf.foldl(lambda a, v: a + v * v, x)
    return a, b, c


@row_of(STRATEGIES, LEN, X, xla=False)
def list_written_at_the_counter(k, x):
    ta = tf.TensorArray(tf.float32, 4, element_shape=[3])
    ta = ta.unstack(tf.zeros([4, 3]))

    def body(t, s, ta):
        s = _cell(s)
        return t + 1, s, ta.write(t, s)

    _, s, ta = tf.while_loop(lambda t, *_: t < k, body, (0, x, ta))
    return s, ta.stack()


@both
@pytest.mark.parametrize("name", STRATEGIES)
def test_table_of_loops(name, strategy):
    f, args, options = STRATEGIES[name]
    check(f, *args, **{"xla": strategy == "mask", "while_strategy": strategy, **options})


@pytest.mark.parametrize("name", ONCE)
def test_table_of_loops_without_a_strategy(name):
    f, args, options = ONCE[name]
    check(f, *args, **options)
