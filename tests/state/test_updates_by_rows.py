"""Updates in the order of the rows, and Python functions, of rows of different lengths."""

import keras
import numpy as np
import pytest
import tensorflow as tf

import tf_pfor
from tests.cases import case, grid
from tests.comparisons import of_unknown_n, pairwise, strict_map, value_and_gradient
from tests.state.maps import made, starts, var

ROWS = tf.ragged.constant([[1.0, 2.0, 3.0], [4.0], [0.5, -1.0]])
DENSE = tf.constant([[1.0, 2.0], [4.0, 0.5], [0.25, -1.0]])
loops = pytest.mark.filterwarnings("ignore::tf_pfor.FallbackWarning")
_lists = lambda found: [np.asarray(r) for r in found]


def _as_the_loop(make, rows=ROWS, **options):
    """Results and state equal a Python loop; ``make()`` gives a body and its variables."""
    (mine, state), (theirs, want_state) = made(make), made(make)
    one = tf.function(theirs, reduce_retracing=True)
    want = [tf.nest.flatten(one(rows[i])) for i in range(rows.shape[0])]
    found = tf.nest.flatten(tf_pfor.vectorized_map(mine, rows, **options))
    for column, wanted in zip(found, zip(*want)):
        pairwise(np.testing.assert_allclose, _lists(column), wanted, rtol=1e-4, atol=1e-6)
    pairwise(np.testing.assert_allclose, state, want_state, rtol=1e-4, atol=1e-6)


# -- Read-modify-writes: no fallback ---------------------------------------------------------------


@starts(0.5)
def _descent(v, x):
    loss, slopes = value_and_gradient(lambda: tf.reduce_sum((x * v - 1.0) ** 2), v)
    v.assign_sub(0.01 * slopes)
    return loss


def _keras():
    w = keras.Variable(np.float32([0.5, 0.25]))
    optimizer = keras.optimizers.SGD(0.01)
    optimizer.build([w])

    def body(x):
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean((x[:, None] * w.value - 1.0) ** 2)
        optimizer.apply_gradients([(tape.gradient(loss, w.value), w)])
        return loss

    return body, [w.value]


@starts(1.0)
def _as_many_as_the_variable_says(v, x):
    v.assign(v + tf.reduce_sum(x[: tf.cast(v, tf.int32)]))
    return v.read_value(), x * v


@starts([0.0, 0.0])
def _buffer(v, x):
    v.assign(tf.concat([v[1:], x[-1:]], 0))
    return v[0]


@starts([0.0, 0.0])
def _largest_so_far(v, x):
    v.assign(tf.math.top_k(tf.concat([v, x], 0), 2)[0])
    return x - v[1]


@starts(1.0)
def _carried_by_a_loop(v, x):
    s = v.read_value()
    for r in x:
        s = tf.tanh(s + r)
    v.assign(s)
    return s


@starts([0.0, 0.0, 0.0])
def _padded(v, x):
    """The sum of the variable and of the row, whose sizes must agree, is made in the loop only."""
    v.assign(0.9 * v + tf.pad(x, [[0, 3 - tf.size(x)]]))
    return x


def _grows():
    v = tf.Variable(tf.zeros([0]), shape=[None])

    def body(x):
        v.assign(tf.concat([v, x], 0))
        return v * 2.0, tf.size(v)

    return body, [v]


UPDATES = {
    f.__name__[1:].replace("_", " "): f
    for f in (
        _as_many_as_the_variable_says, _buffer, _carried_by_a_loop, _descent, _grows, _keras,
        _largest_so_far, _padded,
    )
}  # fmt: skip


@pytest.mark.parametrize("name", sorted(UPDATES))
def test_a_value_made_of_the_variable_and_of_a_row(name):
    _as_the_loop(UPDATES[name], fallback="error")


@pytest.mark.parametrize("name", ["carried by a loop", "grows"])
def test_a_value_made_of_the_variable_and_of_a_dense_row(name):
    _as_the_loop(UPDATES[name], DENSE, fallback="error")


@grid(n=[0, 1, 3], name=["buffer", "grows"])
def test_an_unknown_number_of_rows(name, n):
    (mine, state), (theirs, want) = made(UPDATES[name]), made(UPDATES[name])
    run = tf.function(lambda rows: strict_map(mine, rows), input_signature=[of_unknown_n(ROWS)])
    found = tf.nest.flatten(run(ROWS[:n]))[0]
    assert found.shape[0] == n
    one = tf.function(theirs, reduce_retracing=True)
    for i in range(n):
        one(ROWS[i])
    pairwise(np.testing.assert_allclose, state, want, rtol=1e-4)


def test_a_gradient_around_an_update():
    """A row's own gradient, with the value of the variable that the row has read."""

    def of_loop(x, v, rows):
        total = 0.0
        for r in rows(x):
            total += tf.reduce_sum(r * r * v)
            v.assign(0.5 * v + tf.reduce_sum(r * v))
        return total

    def of_map(x, v, rows):
        def body(r):
            loss = tf.reduce_sum(r * r * v)
            v.assign(0.5 * v + tf.reduce_sum(r * v))
            return loss

        return tf.reduce_sum(tf_pfor.vectorized_map(body, ROWS.with_values(x)))

    results = []
    for run in (of_loop, of_map):
        x, v = tf.constant(ROWS.values), var(0.5)
        with tf.GradientTape() as tape:
            tape.watch(x)
            total = run(x, v, lambda x: [ROWS.with_values(x)[i] for i in range(3)])
        results.append(tape.gradient(total, [x, v]))
    for got, expected in zip(*results):
        np.testing.assert_allclose(got, expected, rtol=1e-5)


@case(_as_the_loop, fallback="error")
@starts([0.0, 0.0])
def test_rows_are_added_to_a_variable_of_their_size(v, x):
    v.assign_add(tf.concat([x, x], 0)[:2])
    return tf.size(x)


def test_what_does_not_fit_into_the_variable_is_an_error():
    v, w = var([0.0, 0.0]), var([0.0, 0.0])
    for body in (lambda x: v.assign(tf.concat([v[1:], x], 0)), lambda x: w.assign_add(x)):
        with pytest.raises(
            tf.errors.InvalidArgumentError, match="the variable Variable:0 of shape"
        ):
            tf_pfor.vectorized_map(body, ROWS)


def test_rows_under_xla_are_refused_with_the_name_of_the_variable():
    v = tf.Variable(0.5, name="average")

    def body(row):
        x, k = row
        v.assign(0.5 * v + tf.reduce_sum(x[:k] * v))

    run = tf.function(
        lambda: tf_pfor.vectorized_map(body, (DENSE, tf.constant([1, 2, 1]))), jit_compile=True
    )
    with pytest.raises(tf_pfor.NotVectorizableError, match="'average:0' is made of its own and of"):
        run()


# -- A loop of the body, and functions, that read the variable: in order ---------------------------


@starts(1.0)
def _read_in_a_loop(v, x):
    s = tf.constant(0.0)
    for r in x:
        s = tf.tanh(s + r * v)
    v.assign(0.9 * v + 0.1 * s)
    return s


def _descent_through_a_loop():
    v = var(1.0)

    @tf.function(reduce_retracing=True)
    def model(x):
        s = tf.constant(0.0)
        for r in x:
            s = tf.tanh(s + r * v)
        return s

    def body(x):
        loss, (by_v, by_x) = value_and_gradient(lambda: (model(x) - 0.3) ** 2, [v, x])
        v.assign_sub(0.1 * by_v)
        return loss, by_x

    return body, [v]


def _recurrent():
    cell = keras.layers.GRUCell(3, kernel_initializer="ones", recurrent_initializer="ones")
    cell.build((1, 1))
    state = var(tf.zeros([1, 3]))

    def body(x):
        s = state.read_value()
        for r in x:
            _, (s,) = cell(tf.reshape(r, [1, 1]), [s])
        state.assign(s)
        return s

    return body, [state]


def _recurrent_function():
    """A function with state and a count, and its gradient: their lists stay in one loop."""
    v, w, count = var(0.1), var(0.5), var(0.0)

    @tf.function(reduce_retracing=True)
    def model(x):
        count.assign_add(1.0)
        s = v * 1.0
        for r in x:
            s = tf.tanh(s + r * w * v)
        v.assign(0.5 * s)
        return s

    body = lambda x: value_and_gradient(lambda: (model(x) - 0.3) ** 2, w)
    return body, [v, count]


@loops
@pytest.mark.parametrize(
    "make", [_descent_through_a_loop, _read_in_a_loop, _recurrent, _recurrent_function]
)
@pytest.mark.parametrize("rows", [ROWS, DENSE[:1], ROWS[:0]], ids=["ragged", "dense", "none"])
def test_a_loop_over_the_row_that_reads_a_variable(make, rows):
    _as_the_loop(make, rows)


def test_one_cause_is_one_warning():
    body, _ = made(_read_in_a_loop)
    with pytest.warns(tf_pfor.FallbackWarning) as found:
        tf_pfor.vectorized_map(body, ROWS)
    assert len(found) == 1
    for part in (
        "AssignVariableOp",
        "test_updates_by_rows.py:",
        "the variable 'Variable:0' of shape",
    ):
        assert part in str(found[0].message)


@loops
def test_an_effect_of_a_function_whose_call_cannot_be_inlined_happens_once():
    count = var(0.0)

    @tf.function
    def places(x):
        count.assign_add(1.0)
        return _there_and_back(tf.boolean_mask(tf.argsort(x), x > -9.0))

    found = tf_pfor.vectorized_map(lambda x: places(x) + 1, DENSE)
    assert [r.tolist() for r in _lists(found)] == [[1, 2], [2, 1], [2, 1]]
    assert count.numpy() == 3.0


@loops
def test_a_function_that_counts_and_returns_what_python_makes():
    count, calls = var(0.0), []

    def python(x):
        calls.append(x.tolist())
        return np.sort(x)

    @tf.function
    def called(x):
        count.assign_add(1.0)
        return tf.numpy_function(python, [x], tf.float32)

    found = tf_pfor.vectorized_map(lambda x: tf.ensure_shape(called(x), [None]) + x, ROWS)
    assert found.to_list() == [[2.0, 4.0, 6.0], [8.0], [-0.5, -0.5]]
    assert (calls, count.numpy()) == (ROWS.to_list(), 3.0)


# -- An op without a rule for rows of different shapes, and effects --------------------------------


def _there_and_back(x):
    """Integers, by ops that have no rule for such rows."""
    made = tf.signal.ifft(tf.signal.fft(tf.cast(x, tf.complex64)))
    return tf.cast(tf.round(tf.math.real(made)), tf.int32)


# The place of each element in the sorted row, in a loop over the rows.
_ranks = lambda x: _there_and_back(tf.math.invert_permutation(tf.argsort(x)))


def _sorted(x, shape=(None,)):
    made = tf.numpy_function(np.sort, [x], tf.float32)
    return made if shape is None else tf.ensure_shape(made, shape)


@starts()
def _beside_a_python_function(x):
    return tf.reduce_sum(_sorted(x)), _ranks(x)


@starts()
def _read_by_a_python_function(x):
    return _sorted(tf.cast(_ranks(x), tf.float32)) + x


@starts()
def _python_function_of_unknown_rank(x):
    return tf.reduce_sum(_sorted(x, None) * tf.cast(_ranks(x), tf.float32))


@starts([0.0, 0.0])
def _python_function_into_an_update(v, x):
    made = tf.numpy_function(lambda a: np.float32([a.sum(), a.size]), [x], tf.float32)
    v.assign(0.5 * v + made)
    return x * v[0]


@starts([0, 0, 0, 0])
def _beside_a_scatter(v, x):
    ranks = _ranks(x)
    v.scatter_add(tf.IndexedSlices(ranks, ranks))
    return ranks


@starts([0.0, 0.0])
def _assigned(v, x):
    before, ranks = x * v[0], tf.cast(_ranks(x), tf.float32)
    v.assign(tf.concat([v[1:] + tf.reduce_sum(ranks * before), ranks[-1:]], 0))
    return before, ranks


@loops
@pytest.mark.parametrize(
    "make",
    [
        _assigned,
        _beside_a_python_function,
        _beside_a_scatter,
        _python_function_into_an_update,
        _python_function_of_unknown_rank,
        _read_by_a_python_function,
    ],
)
@pytest.mark.parametrize("rows", [ROWS, ROWS[:0]], ids=["some", "none"])
def test_an_op_without_a_rule_for_such_rows_and_an_effect(make, rows):
    _as_the_loop(make, rows)


@loops
def test_a_table_gets_what_an_op_without_a_rule_makes():
    table = tf.lookup.experimental.MutableHashTable(tf.int32, tf.int32, -1)

    def body(x):
        ranks = _ranks(x)
        table.insert(ranks, tf.cast(x, tf.int32))
        return ranks

    assert tf_pfor.vectorized_map(body, ROWS).to_list() == [[0, 1, 2], [0], [1, 0]]
    assert table.lookup(tf.range(3)).numpy().tolist() == [-1, 0, 3]


@loops
@case(_as_the_loop)
@pytest.mark.parametrize("rows", [ROWS, DENSE], ids=["ragged", "dense"])
@starts()
def test_a_gradient_in_the_body_of_two_python_functions(x):
    """Each asks for what its own last call has left: the gradient of a row follows its calls."""
    with tf.GradientTape() as tape:
        tape.watch(x)
        y = tf.py_function(lambda a: a * a, [x], tf.float32)
        z = tf.py_function(lambda a: tf.reduce_sum(a**3), [tf.sin(y)], tf.float32)
        loss = tf.ensure_shape(z, []) * tf.reduce_sum(x)
    return loss, tape.gradient(loss, x) + x
