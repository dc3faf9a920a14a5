"""Rows that have left a loop or do not take a branch, and are computed all the same.

None of their results may reach a gradient. A custom gradient may make another number of zero, and
zero times an infinite derivative is NaN.
"""

import numpy as np
import pytest
import tensorflow as tf

import tf_pfor
from tests.cases import grid
from tests.comparisons import compare, looped, pairwise, strict_map, vectorized
from tf_pfor.converters.analysis._safety import is_smooth

LENGTHS = tf.constant([2, 0, 4, 1])
X = tf.constant(np.random.default_rng(0).normal(size=(4, 3)), tf.float32)
W = tf.Variable([0.5, -1.5, 2.0])
_plus_one = tf.custom_gradient(lambda s: (s * 2.0, lambda upstream: upstream + 1.0))
_with_weight = tf.custom_gradient(
    lambda s, w: (s * w, lambda upstream: (upstream + 1.0, upstream * s + 0.5))
)
_nan_of_zero = tf.custom_gradient(
    lambda s: (s * 2.0, lambda upstream: tf.where(upstream == 0.0, np.nan, upstream))
)


def _reading(x):
    f = tf.custom_gradient(lambda s: (s * 2.0, lambda upstream: upstream * x + 1.0))
    return f


STEPS = {
    "carry": lambda s, x: _plus_one(tf.tanh(s)),
    "capture": lambda s, x: tf.tanh(s) + _plus_one(x),
    "weight": lambda s, x: _with_weight(tf.tanh(s), tf.tanh(W)),
    "reads a row": lambda s, x: _reading(x)(tf.tanh(s)),
    "not a number": lambda s, x: _nan_of_zero(tf.tanh(s)),
    "variable": lambda s, x: tf.tanh(s * W) + x,
}


def _while(step):
    def f(k, x):
        body = lambda t, s: (t + 1, step(s, x))
        return tf.while_loop(lambda t, _: t < k, body, (0, x * 1.0), maximum_iterations=5)[1]

    return f


_cond = lambda step: lambda k, x: tf.cond(k > 1, lambda: step(x, x), lambda: x * 1.0)
_plain = lambda f, **settings: lambda k, x: vectorized(f, (k, x), **settings)[0]


def _nested(f, **settings):
    def run(k, x):
        of_pairs = lambda pairs: strict_map(lambda pair: f(*pair), pairs, **settings)
        pairs = (tf.reshape(k, [2, 2]), tf.reshape(x, [2, 2, 3]))
        return tf.reshape(tf_pfor.vectorized_map(of_pairs, pairs), [4, 3])

    return run


def _value_and_gradients(run, jit_compile=False):
    @tf.function(jit_compile=jit_compile, autograph=False)
    def go(k, x):
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = run(k, x)
            loss = tf.reduce_sum(y**2)
        found = tape.gradient(loss, [x, W], unconnected_gradients="zero")
        return [y, *map(tf.convert_to_tensor, found)]

    return [t.numpy() for t in go(LENGTHS, X)]


@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("control", [_while, _cond], ids=["while", "cond"])
def test_custom_gradient(control, step):
    f = control(STEPS[step])
    expected = _value_and_gradients(lambda k, x: looped(f, (k, x), 4)[0])
    assert all(np.isfinite(e).all() for e in expected)
    runs = {
        "auto": (_plain(f), False),
        "mask": (_plain(f, while_strategy="mask"), False),
        "jit_compile": (_plain(f), True),
        "nested": (_nested(f), False),
    }
    for name, (run, jit_compile) in runs.items():
        found = _value_and_gradients(run, jit_compile)
        pairwise(np.testing.assert_allclose, found, expected, 1e-4, 1e-5, err_msg=name)


@pytest.mark.parametrize("strategy", ["auto", "compact", "mask"])
def test_a_row_without_trips_that_is_not_a_number(strategy):
    """The weight's gradient comes from the other rows."""
    x = tf.tensor_scatter_nd_update(X, [[1]], [[np.nan, np.inf, 0.0]])

    def f(row):
        k, x = row
        body = lambda t, s: (t + 1, tf.tanh(s * W + x * W))
        return tf.while_loop(lambda t, _: t < k, body, (0, x))[1]

    def gradients(run):
        with tf.GradientTape() as tape:
            y = run()
            loss = tf.reduce_sum(tf.where(tf.math.is_finite(y), y, tf.zeros_like(y)))
        return tape.gradient(loss, W)

    def of_rows():
        return tf.stack([f(row) for row in zip(tf.unstack(LENGTHS), tf.unstack(x), strict=True)])

    found = gradients(lambda: tf_pfor.vectorized_map(f, (LENGTHS, x), while_strategy=strategy))
    assert "while: mask, 1 uniform" in str(tf_pfor.explain(f, (LENGTHS, x)))
    np.testing.assert_allclose(found, gradients(of_rows), rtol=1e-5)


@pytest.mark.parametrize("strategy", ["auto", "compact", "mask"])
def test_a_row_that_leaves_by_a_flag(strategy):
    """The flag is an integer, and says that the state is infinite."""
    w = tf.Variable(3e19)

    def f(x):
        def body(_, s):
            s = s * w
            return tf.cast(tf.math.is_finite(s), tf.int32), s

        return tf.while_loop(lambda go, _: go > 0, body, (1, x))[1]

    with tf.GradientTape() as tape:
        y = tf_pfor.vectorized_map(f, tf.constant([1.0, 1e20, 1e-20]), while_strategy=strategy)
        y = tf.clip_by_value(y, -1.0, 1.0)
    np.testing.assert_allclose(tape.gradient(y, w), 0.0)


def _newton(x):
    y = tf.maximum(x, 1.0)
    return tf.while_loop(
        lambda y: tf.abs(y * y - x) > 1e-6 * x,
        lambda y: (0.5 * (y + x / y),),
        (y,),
        maximum_iterations=40,
    )[0]


def _roots_until_nothing_is_left(x):
    """A row that has left takes a root of a negative number, or a root's derivative at zero."""
    return tf.while_loop(
        lambda r: r > 1.0, lambda r: (tf.sqrt(r - 1.0),), (x,), maximum_iterations=40
    )[0]


def _divides_by_what_is_left(x):
    k = tf.cast(x, tf.int32)
    return tf.while_loop(lambda k, s: k > 0, lambda k, s: (k - 1, s + 60 // k), (k, 0))[1]


def _takes_its_steps(x):
    """A complex number that escapes, and a flag that is carried along."""

    def body(z, goes_on, k):
        z = z * z + tf.complex(x - 1.0, tf.constant(0.3, x.dtype))
        return z, tf.math.real(z * tf.math.conj(z)) < 4.0, k + 1

    start = (tf.complex(0.0 * x, 0.0 * x), x < 3.0, 0)
    end = tf.while_loop(lambda z, goes_on, k: goes_on & (k < 9), body, start)
    return tf.where(tf.math.is_finite(tf.abs(end[0])), tf.abs(end[0]), 0.0)


NUMBERS = [_newton, _roots_until_nothing_is_left, _divides_by_what_is_left, _takes_its_steps]
SIZES = {"four": [0.5, 1.0, 2.0, 9.0], "one": [3.0], "none": []}


@grid(how=["eagerly", "in a function", "of unknown length", "compiled"], size=SIZES, f=NUMBERS)
def test_loops_of_a_few_numbers(f, size, how):
    """They are computed in all rows, one that goes on in place of those that have left."""
    x = tf.constant(SIZES[size], tf.float64)

    def run(x):
        with tf.GradientTape() as tape:
            tape.watch(x)
            made = strict_map(f, x)
        if made.dtype.is_integer:
            return made, tf.zeros_like(x)
        return made, tape.gradient(made, x)

    spec = tf.TensorSpec([None], x.dtype)
    if how == "eagerly":
        found = run(x)
    elif how == "of unknown length":
        found = tf.function(run, input_signature=[spec])(x)
    else:
        found = tf.function(run, jit_compile=how == "compiled")(x)
    values, gradients = [], []
    for v in x:
        with tf.GradientTape() as tape:
            tape.watch(v)
            values.append(f(v))
        gradients.append(0.0 if values[-1].dtype.is_integer else tape.gradient(values[-1], v))
    np.testing.assert_allclose(found[0], np.array(values, found[0].dtype.as_numpy_dtype), 1e-9)
    np.testing.assert_allclose(found[1], np.array(gradients, float), 1e-9)


@pytest.mark.parametrize("f", NUMBERS)
def test_loops_of_a_few_numbers_are_not_compacted(f):
    report = tf_pfor.explain(f, tf.TensorSpec([None], tf.float64))
    assert "while: mask" in str(report)
    wide = tf_pfor.explain(lambda x: (f(x[0]), x[1]), tf.TensorSpec([None, 2], tf.float64))
    assert "while: mask" in str(wide)


def test_loops_that_read_much_are_compacted():
    step = lambda x: lambda y: (y + tf.exp(x),)
    f = lambda x: tf.while_loop(lambda y: tf.reduce_sum(y) < 9.0, step(x), (tf.zeros_like(x),))[0]
    report = tf_pfor.explain(f, tf.TensorSpec([None, 64], tf.float64))
    assert "while: compact" in str(report)


def test_integer_division_costs_more_than_it_takes_to_copy_a_row():
    step = lambda k, x: (k + 1, tf.where(x % 2 == 0, x // 2, 3 * x + 1))
    collatz = lambda x: tf.while_loop(lambda k, x: x > 1, step, (0, x))[0]
    assert "while: compact" in str(tf_pfor.explain(collatz, tf.TensorSpec([None], tf.int64)))
    compare(collatz, tf.range(1, 30, dtype=tf.int64), fallback="loop")


def test_an_axis_that_only_the_rows_of_a_branch_have():
    """Rows that do not take the branch may have any number in its place."""
    one = lambda x, p, k: tf.cond(p, lambda: tf.transpose(x, [k, 1 - k])[0], lambda: x[0])
    run = tf.function(tf_pfor.vmap(one), autograph=False)
    x = tf.reshape(tf.range(18.0), [2, 3, 3])
    found = run(x, tf.constant([True, False]), tf.constant([1, 7]))
    np.testing.assert_array_equal(found, [x[0, :, 0], x[1, 0]])


BODIES = {
    "small numbers": (lambda s, x: tf.tanh(s * x), True),
    "sine": (lambda s, x: tf.sin(s) * x, True),
    "exponential": (lambda s, x: tf.exp(s), False),
    "product of a sum": (lambda s, x: (s + x) * x, False),
    "product of a mean": (lambda s, x: tf.reduce_mean([s, x]) * x, False),
    "product in half precision": (lambda s, x: tf.cast(s, tf.float16) * tf.cast(x, "half"), False),
    "infinite factor": (lambda s, x: s * tf.constant(np.inf), False),
    "finite factor": (lambda s, x: s * tf.constant(2.0), True),
    "quotient": (lambda s, x: s / x, False),
    "text": (lambda s, x: (s * x, tf.strings.length("text")), True),
}


@pytest.mark.parametrize("body", BODIES)
def test_bodies_whose_gradients_are_finite_for_finite_inputs(body):
    fn, expected = BODIES[body]
    graph = tf.function(fn).get_concrete_function(*[tf.TensorSpec([])] * 2).graph
    assert is_smooth(graph) is expected


# -- Reads of one place, which only the rows that have it do ---------------------------------------


def _last(i):
    return i[-1] if tf.size(i) > 0 else 0


def _second_is_one(i):
    return 1 if tf.size(i) > 1 and i[1] == 1 else 0


def _until_three(i):
    t = 0
    while t < 3 and tf.size(i) > 0 and i[-1] < 3:
        t += 1
    return t


def _without_repeats(ids):
    made = tf.zeros([0], tf.int32)
    for x in ids:
        tf.autograph.experimental.set_loop_options(
            shape_invariants=[(made, tf.TensorShape([None]))]
        )
        if tf.size(made) == 0 or made[-1] != x:
            made = tf.concat([made, [x]], 0)
    return made


def _reshaped(i):
    return tf.reduce_sum(tf.reshape(i, [3])[1:]) if tf.size(i) == 3 else tf.size(i)


@pytest.mark.parametrize("strategy", ["auto", "mask"])
@pytest.mark.parametrize("body", [_last, _second_is_one, _until_three, _without_repeats, _reshaped])
def test_guarded_reads(body, strategy):
    """Rows that are too short for a read do not take the branch that reads."""
    rows = tf.ragged.constant([[0, 1, 1], [], [2], [3, 3, 1, 0]])
    found = tf_pfor.vmap(body, while_strategy=strategy, warn=False)(rows)
    for i in range(4):
        assert found[i].numpy().tolist() == np.asarray(body(rows[i])).tolist()
