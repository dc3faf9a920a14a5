"""Arrays that grow as long as a row's loop runs: their stacks reduced, without a loop over rows."""

import warnings

import numpy as np
import pytest
import tensorflow as tf

import tf_pfor
from tests.cases import case
from tests.comparisons import by_row, gradient_of

D = tf.float64
RNG = np.random.default_rng(0)
X = tf.constant(RNG.normal(size=[5, 6, 3]))
STEPS = tf.constant([3, 6, 1, 2, 4])
W = tf.constant(RNG.normal(size=[3, 3]) * 0.5)
V = tf.constant(RNG.normal(size=[3, 2]))
U = tf.constant(RNG.normal(size=[3]))


def states(x, steps, size=0, shape=(3,)):
    """The states of a recurrent network in its first steps: [steps, 3]."""

    def step(t, s, made):
        s = tf.tanh(tf.linalg.matvec(W, s) + x[t])
        return t + 1, s, made.write(t, s)

    made = tf.TensorArray(D, size, dynamic_size=True, element_shape=shape)
    start = (0, tf.zeros([3], D), made)
    return tf.while_loop(lambda t, s, made: t < steps, step, start)[2].stack()


def attention(s):
    weights = tf.nn.softmax(tf.linalg.matvec(s, U))
    return tf.linalg.matvec(s, weights, transpose_a=True)


centred = lambda s: tf.reduce_sum((s - tf.reduce_mean(s, 0)) ** 2, 0)
numbered = lambda s: tf.reduce_sum(s * tf.cast(tf.range(tf.shape(s)[0]), D)[:, None], 0)
PROGRAMS = {
    "mean": lambda s: tf.reduce_mean(s, 0),
    "sum": lambda s: tf.reduce_sum(s, 0),
    "largest": lambda s: tf.reduce_max(s, 0),
    "smallest": lambda s: tf.reduce_min(s),
    "norms": lambda s: tf.reduce_sum(tf.sqrt(tf.reduce_sum(s * s, 1))),
    "dense": lambda s: tf.reduce_mean(tf.nn.relu(s @ V + 0.1), 0),
    "bias": lambda s: tf.reduce_sum(tf.nn.bias_add(s @ V, [1.0, 2.0]) ** 2, 0),
    "attention": attention,
    "einsum": lambda s: tf.einsum("t,td->d", tf.nn.softmax(tf.einsum("td,d->t", s, U)), s),
    "tensordot": lambda s: tf.reduce_mean(tf.tensordot(s, V, 1), 0),
    "log of a sum of exp": lambda s: tf.reduce_logsumexp(s, 0),
    "centred": centred,
    "columns": lambda s: tf.reduce_sum(s[:, 1:] ** 2) + tf.reduce_sum(s[..., 0]),
    "count": lambda s: tf.reduce_sum(s, 0) / tf.cast(tf.shape(s)[0] + 1, D),
    "softmax of each": lambda s: tf.reduce_sum(tf.nn.softmax(s) * s, 0),
    "gram": lambda s: tf.matmul(s, s, transpose_a=True),
    "numbered": numbered,
    "joined": lambda s: tf.reduce_sum(tf.concat([s, s**2], 1), 0),
    "stacked": lambda s: tf.reduce_sum(tf.stack([s, s**2], 1), [0, 1]),
    "last": lambda s: s[-1],
    "last and first": lambda s: s[tf.shape(s)[0] - 1] * s[0] + s[-1, 1],
    "last, in parts": lambda s: s[-1, ..., ::2] + s[0, None, 1],
    "running sum": lambda s: tf.reduce_sum(tf.cumsum(s, 0) ** 2, 0),
    "sum of the rest": lambda s: tf.reduce_sum(tf.cumsum(s, 0, True, True) ** 2, 0),
    "running product": lambda s: tf.reduce_sum(tf.math.cumprod(s + 1.0, 0) ** 2, 0),
    "differences": lambda s: tf.reduce_sum((s[1:] - s[:-1]) ** 2, 0),
    "second differences": lambda s: tf.reduce_sum((s[2:] - 2.0 * s[1:-1] + s[:-2]) ** 2, 0),
    "far apart": lambda s: tf.reduce_sum(s[4:] * s[:-4]),
    "first ones": lambda s: tf.reduce_sum(s[:2], 0) + tf.reduce_sum(s[1:3, 1:]),
    "last ones": lambda s: tf.reduce_sum(s[-3:] ** 2, 0) + tf.reduce_sum(s[-2:] * s[:2]),
    "none": lambda s: tf.reduce_sum(s[:0]) + tf.reduce_sum(s[3:2]) + tf.reduce_sum(s, 0),
    "the last of the rest": lambda s: s[0] + tf.reduce_sum(tf.concat([s[1:], s[:-1]], 1)[-1:]),
    "in reverse": lambda s: tf.reduce_sum(tf.reverse(s, [0, 1]) * s, 0),
    "in reverse, sliced": lambda s: tf.reduce_sum(s[::-1, None, 1:] * s[:, None, :2], 0),
    "running sum in reverse": lambda s: tf.reduce_sum(tf.cumsum(s[::-1])[::-1] * s, 0),
    "how many less": lambda s: tf.reduce_sum(s, 0) / tf.cast(tf.shape(s[1:])[0] + 1, D),
    "running sum of exp": lambda s: tf.reduce_sum(tf.math.cumulative_logsumexp(s, 0), 0),
}
# Those that can do with no steps, and with few.
FOR_FEW = (
    "attention", "differences", "far apart", "first ones", "gram", "in reverse", "joined",
    "last ones", "numbered", "running sum", "second differences", "sum",
)  # fmt: skip
# The same numbers, with a loop over rows in the gradient.
LOOPED = {"sorted": lambda s: tf.reduce_sum(tf.sort(s, 0) * s, 0)}


def of_states(name, **array):
    reduction = (PROGRAMS | LOOPED)[name]
    return lambda x, steps: reduction(states(x, steps, **array))


def gradient(fn):
    one = lambda x, steps: gradient_of(lambda: tf.reduce_sum(fn(x, steps) ** 2), x)
    return one


def assert_same(got, want):
    np.testing.assert_allclose(got, want, rtol=1e-9, atol=1e-11)


def mapped(fn, *args, fallback="error"):
    with warnings.catch_warnings():
        warnings.simplefilter("error" if fallback == "error" else "ignore", tf_pfor.FallbackWarning)
        return tf_pfor.vectorized_map(lambda row: fn(*row), args, fallback=fallback)


def right(fn, x=X, steps=STEPS, **options):
    assert_same(mapped(fn, x, steps, **options), by_row(fn, x, steps))


def both_right(fn, x=X, steps=STEPS, **options):
    """Values, and gradients in the body."""
    right(fn, x, steps, **options)
    right(gradient(fn), x, steps, **options)


@pytest.mark.parametrize("name", PROGRAMS)
def test_reductions_without_a_loop(name):
    right(of_states(name))


@pytest.mark.parametrize("name", PROGRAMS)
def test_gradients_in_the_body_without_a_loop(name):
    right(gradient(of_states(name)))


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_tape_outside(name):
    fn = of_states(name)
    of_all = tf.function(
        lambda x: gradient_of(lambda: tf.reduce_sum(mapped(fn, x, STEPS) ** 2), x), autograph=False
    )
    assert_same(of_all(X), by_row(gradient(fn), X, STEPS))


@pytest.mark.parametrize("name", LOOPED)
def test_what_is_looped_is_right(name):
    both_right(of_states(name), fallback="loop")
    with pytest.raises(tf_pfor.NotVectorizableError, match="not known to be the same"):
        mapped(gradient(of_states(name)), X, STEPS)


@pytest.mark.parametrize("name", ["attention", "mean", "last", "joined"])
@pytest.mark.parametrize("array", [{"shape": None}, {"size": 2}], ids=str)
def test_arrays_of_other_kinds(name, array):
    both_right(of_states(name, **array), X[:2], STEPS[:2])


@case(both_right)
def test_arrays_of_a_size_that_the_row_gives(x, steps):
    made = tf.TensorArray(D, steps, element_shape=[3])
    step = lambda t, made: (t + 1, made.write(t, tf.sin(x[t])))
    return attention(tf.while_loop(lambda t, made: t < steps, step, (0, made))[1].stack())


@pytest.mark.parametrize("steps", [[], [4], [0, 3, 0], [0, 0]], ids=str)
@pytest.mark.parametrize("name", FOR_FEW)
def test_few_rows_and_rows_of_no_steps(name, steps):
    x, steps = X[: len(steps)], tf.constant(steps, tf.int32)
    for fn in (of_states(name), gradient(of_states(name))):
        got = mapped(fn, x, steps)
        assert got.shape[0] == len(steps)
        if len(steps):
            assert_same(got, by_row(fn, x, steps))


def test_the_mean_of_no_steps_is_not_a_number():
    got = mapped(of_states("mean"), X[:2], tf.constant([0, 2]))
    assert_same(got, by_row(of_states("mean"), X[:2], tf.constant([0, 2])))
    assert np.isnan(got[0]).all()


def test_the_last_of_no_steps_is_an_error():
    with pytest.raises(tf.errors.InvalidArgumentError, match="out of bounds|is not in"):
        mapped(of_states("last"), X[:2], tf.constant([0, 2]))


@case(both_right, tf.constant([1.0, 0.5, 3.0], D), tf.constant([2, 9, 5]))
def test_states_that_are_infinite_beyond_the_end_of_a_row(x, steps):
    """The steps of a row do not overflow; steps of a longer row do."""
    array = tf.TensorArray(D, 0, dynamic_size=True, element_shape=[])
    step = lambda t, s, made: (t + 1, s * s * x, made.write(t, tf.exp(s)))
    start = (0, tf.constant(2.0, D), array)
    s = tf.while_loop(lambda t, s, made: t < steps, step, start)[2].stack()
    return tf.reduce_sum(tf.math.log(s)) + tf.reduce_max(s)


@pytest.mark.parametrize("name", ["attention", "last", "dense", "differences", "in reverse"])
def test_unknown_numbers_of_rows(name):
    fn = gradient(of_states(name))
    specs = [tf.TensorSpec([None, 6, 3], D), tf.TensorSpec([None], tf.int32)]
    of_all = tf.function(lambda x, k: mapped(fn, x, k), input_signature=specs, autograph=False)
    assert_same(of_all(X, STEPS), by_row(fn, X, STEPS))
    assert_same(of_all(X[:2], STEPS[2:4]), by_row(fn, X[:2], STEPS[2:4]))


@pytest.mark.parametrize("name", ["attention", "centred", "last", "last ones"])
def test_maps_in_maps(name):
    fn = of_states(name)
    x, steps = tf.stack([X[:2], X[2:4]]), tf.reshape(STEPS[:4], [2, 2])
    got = mapped(lambda x, steps: mapped(fn, x, steps), x, steps)
    assert_same(tf.reshape(got, [4, -1]), by_row(fn, X[:4], STEPS[:4]))


def bidirectional(x, steps):
    """Reads its states from the end, and makes an array of all but the last."""
    s = states(x, steps)
    read = tf.TensorArray(D, 0, dynamic_size=True, element_shape=[3]).unstack(s[::-1][:-1])
    step = lambda t, a: (t + 1, tf.tanh(a * 0.5 + read.read(t)))
    return tf.while_loop(lambda t, _: t < read.size(), step, (0, s[-1]))[1]


def test_an_array_of_what_is_cut():
    right(bidirectional)
    # It is not known that the list of slopes is as long.
    right(gradient(bidirectional), fallback="loop")


def test_slices_of_other_ends():
    """They are variable-length rows."""
    for fn in (lambda s: tf.reduce_sum(s[-3:-1], 0), lambda s: tf.reduce_sum(s[::2], 0)):
        right(lambda x, steps, fn=fn: fn(states(x, steps)))


def test_slices_that_fit_in_long_rows_only():
    def one(x, steps):
        s = states(x, steps)
        return tf.reduce_sum(s[1:4] * s[:3])  # as many only in rows of four steps or more

    right(one, X[1:2], STEPS[1:2])
    with pytest.raises(tf.errors.InvalidArgumentError, match="differ in some iterations"):
        mapped(one, X[:2], STEPS[:2])


def test_second_gradients():
    right(gradient(gradient(of_states("attention"))), fallback="loop")


def test_single_precision():
    fn = lambda x, steps: tf.reduce_mean(tf.cast(states(x, steps), tf.float32), 0)
    np.testing.assert_allclose(mapped(fn, X, STEPS), by_row(fn, X, STEPS), rtol=1e-5)


def test_explain_names_the_stack():
    report = tf_pfor.explain(of_states("mean"), X, STEPS)
    outcomes = {r.op_type: r.outcome.value for r in report.records}
    assert outcomes["TensorListStack"] == outcomes["Mean"] == "vectorized"
