"""``randomness``: "same" and "error" reach generators and seeds in variables, as in Keras."""

import keras
import numpy as np
import pytest
import tensorflow as tf

import tf_pfor
from tests.cases import grid
from tests.comparisons import gradient_of, strict_map
from tests.state import maps
from tf_pfor import NotVectorizableError

ROWS = tf.constant([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0], [2.0, 2.0, 2.0]])


class _State:
    """Everything that draws, and a way back to its state at the start."""

    def __init__(self):
        self.generator = tf.random.Generator.from_seed(5)
        self.seeds = keras.random.SeedGenerator(3)
        self.dropout = keras.layers.Dropout(0.5, seed=1)
        self.own = tf.Variable([1, 2])
        states = (self.generator.state, self.seeds.state, self.dropout.seed_generator.state)
        self.variables = [*states, self.own]
        self.start = [tf.convert_to_tensor(v).numpy().copy() for v in self.variables]

    def reset(self):
        for v, x in zip(self.variables, self.start):
            v.assign(x)

    def now(self):
        return [tf.convert_to_tensor(v).numpy().tolist() for v in self.variables]

    def is_as_at_the_start(self):
        return self.now() == [x.tolist() for x in self.start]


STATE = _State()


@tf.function
def _next_seed():
    seed = STATE.own.read_value()
    STATE.own.assign(seed + 1)
    return seed


_dropout = lambda x: STATE.dropout(x, training=True)


def _to_own_trip_counts(x):
    step = lambda i, y: (i + 1, y + keras.random.uniform([3], seed=STATE.seeds))
    return tf.while_loop(lambda i, _: i < tf.cast(x[0], tf.int32), step, (0, x))[1]


BODIES = {
    "binomial": lambda x: x + STATE.generator.binomial([3], 5.0, 0.5, dtype=tf.float32),
    "categorical": lambda x: keras.random.categorical(tf.zeros([1, 3]), 4, seed=STATE.seeds),
    "cond": lambda x: tf.cond(x[1] > 2.0, lambda: _dropout(x), lambda: x),
    "dropout": _dropout,
    "dropout twice": lambda x: _dropout(_dropout(x)),
    "generator": lambda x: x + STATE.generator.normal([3]),
    "generator twice": lambda x: STATE.generator.normal([3]) + STATE.generator.normal([3]) + x,
    "in a map": lambda x: tf_pfor.vectorized_map(lambda y: _dropout(y[None]), x),
    "in map_fn": lambda x: tf.map_fn(lambda y: y + STATE.generator.normal([]), x),
    "keras.random": lambda x: x + keras.random.normal([3], seed=STATE.seeds),
    "returned": lambda x: x + tf.random.stateless_normal([3], _next_seed()),
    "skip": lambda x: (STATE.generator.skip(2), x)[1],
    "while": _to_own_trip_counts,
}


def _drawn_once(body, rows):
    """Each row as if it were the only one; the state after the row that moves it most."""
    values, states = [], []
    for x in rows:
        STATE.reset()
        values.append(body(x))
        states.append(STATE.now())
    STATE.reset()
    return np.stack(values), max(states)


_compiled = lambda fn, rows, **options: tf_pfor.vmap(fn, **options, jit_compile=True)(rows)


def _of_unknown_size(fn, rows, **options):
    mapped = tf.function(
        lambda x: tf_pfor.vectorized_map(fn, x, **options),
        autograph=False,
        input_signature=[tf.TensorSpec([None, 3])],
    )
    return mapped(rows)


def _of_a_data_set(fn, rows, **options):
    ds = tf.data.Dataset.from_tensor_slices(rows).batch(8)
    (found,) = ds.map(lambda x: tf_pfor.vectorized_map(fn, x, **options))
    return found


MAPS = {"data": _of_a_data_set, "unknown": _of_unknown_size, **maps.MAPS}


@pytest.mark.parametrize("name", sorted(BODIES))
def test_table_of_draws_that_are_the_same(name):
    expected, state = _drawn_once(BODIES[name], ROWS)
    found = strict_map(BODIES[name], ROWS, randomness="same")
    np.testing.assert_allclose(found, expected, 1e-6)
    assert STATE.now() == state


@grid(name=["cond", "dropout twice", "generator", "in a map"], where=sorted(MAPS))
def test_the_same_numbers_wherever_it_is_called(name, where):
    expected, state = _drawn_once(BODIES[name], ROWS)
    found = MAPS[where](BODIES[name], ROWS, randomness="same")
    np.testing.assert_allclose(found, expected, 1e-6)
    assert STATE.now() == state


@pytest.mark.parametrize("name", ["dropout twice", "keras.random"])
def test_compiled(name):
    """XLA draws other numbers."""
    state = _drawn_once(BODIES[name], ROWS)[1]
    found = _compiled(BODIES[name], tf.ones([3, 3]), randomness="same").numpy()
    assert (found == found[0]).all()
    assert STATE.now() == state


@grid(name=["cond", "dropout", "generator", "skip"], where=["unknown", "vectorized_map"])
def test_without_rows_nothing_is_drawn(name, where):
    STATE.reset()
    found = MAPS[where](BODIES[name], ROWS[:0], randomness="same")
    assert found.shape == (0, 3)
    assert STATE.is_as_at_the_start()


@pytest.mark.parametrize("name", sorted(BODIES))
def test_table_of_errors(name):
    STATE.reset()
    with pytest.raises(NotVectorizableError, match=r"randomness is 'error'") as caught:
        tf_pfor.vectorized_map(BODIES[name], ROWS, randomness="error")
    assert "test_randomness.py" in str(caught.value)
    assert STATE.is_as_at_the_start()


def test_what_cannot_be_the_same_is_refused():
    with pytest.raises(NotVectorizableError, match="blocks would each draw"):
        tf_pfor.vmap(BODIES["generator"], randomness="same", chunk_size=2)(ROWS)

    def own_steps(x):
        seed = STATE.own.read_value()
        STATE.own.assign(seed + tf.cast(x[:2], tf.int32))
        return tf.random.stateless_normal([3], seed)

    with pytest.raises(NotVectorizableError, match="differs between iterations"):
        tf_pfor.vectorized_map(own_steps, ROWS, randomness="same")

    place = tf.Variable(0.0)

    def walk(x):
        place.assign(tf.random.poisson([], place))
        return x + place

    with pytest.raises(NotVectorizableError, match="randomness is 'same', and .* would draw"):
        tf_pfor.vectorized_map(walk, ROWS, randomness="same")


def test_gradients_of_the_same_mask():
    expected = []
    for x in ROWS:
        STATE.reset()
        expected.append(gradient_of(lambda x=x: _dropout(x) ** 2, x))
    STATE.reset()
    run = lambda x: tf_pfor.vectorized_map(lambda x: _dropout(x) ** 2, x, randomness="same")
    np.testing.assert_allclose(gradient_of(lambda: run(ROWS), ROWS), expected, 1e-6)


def test_variables_that_are_no_seeds_are_updated_by_each_row():
    count = tf.Variable(0)

    def body(x):
        count.assign(count + 1)
        return _dropout(x)

    tf_pfor.vectorized_map(body, ROWS, randomness="same")
    assert count.numpy() == 3
