"""Lookup tables: values, and what the table holds afterwards, against a loop."""

import keras
import numpy as np
import pytest
import tensorflow as tf

import tf_pfor
from tests.cases import grid
from tests.comparisons import pairwise, strict_map
from tf_pfor.core.errors import UnsupportedStateError

LOOPS = ("While", "StatelessWhile", "MapDefun")


def _fixed():
    pairs = tf.lookup.KeyValueTensorInitializer(
        tf.constant(["a", "b", "c"]), tf.constant([1, 2, 3], tf.int64)
    )
    return tf.lookup.StaticHashTable(pairs, -1)


_scalars = lambda: tf.lookup.experimental.MutableHashTable(tf.int64, tf.float32, -1.0)
_vectors = lambda: tf.lookup.experimental.MutableHashTable(tf.int64, tf.float32, [-1.0, -2.0])


def _dense(default=-1.0, empty=-7, deleted=-8):
    return tf.lookup.experimental.DenseHashTable(tf.int64, tf.float32, default, empty, deleted)


def _loop(body, *elems):
    rows = [body(*row) for row in zip(*[list(e) for e in elems])]
    return tf.nest.map_structure(lambda *x: tf.stack(x), *rows)


def _contents(table):
    keys, values = table.export()
    live = keys.numpy() >= 0
    return sorted(zip(keys.numpy()[live].tolist(), values.numpy()[live].tolist()))


def _mapped(body, *elems):
    """Without a loop, in a function."""
    run = tf.function(lambda *elems: strict_map(lambda given: body(*given), elems))
    graph = run.get_concrete_function(*elems).graph
    assert not [op for op in graph.get_operations() if op.type in LOOPS]
    return run(*elems)


@pytest.mark.parametrize("shape", [[5], [4, 3], [3, 2, 2], [0, 2], [1]])
def test_find(shape):
    table = _fixed()
    words = tf.constant(np.random.default_rng(0).choice(["a", "b", "c", "?"], shape), tf.string)
    found = _mapped(table.lookup, words)
    assert found.shape == shape
    assert found.dtype == tf.int64
    assert found.numpy().tolist() == table.lookup(words).numpy().tolist()


def test_find_of_the_same_key_in_each_iteration():
    table = _fixed()
    found = tf_pfor.vectorized_map(
        lambda x: x + table.lookup(tf.constant(["b", "?"])), tf.range(3, dtype=tf.int64)
    )
    assert found.numpy().tolist() == [[2, -1], [3, 0], [4, 1]]


def test_vectors():
    table = _vectors()
    table.insert(tf.constant([3, 4], tf.int64), [[1.0, 2.0], [3.0, 4.0]])
    keys = tf.constant([[3, 9], [4, 4]], tf.int64)
    np.testing.assert_array_equal(_mapped(table.lookup, keys), table.lookup(keys))


@grid(n=[0, 1, 6], make=[_scalars, _dense])
def test_inserts_and_removals(make, n):
    """The last iteration's value stays for equal keys."""
    keys = tf.constant([5, 6, 5, 7, 8, 6][:n], tf.int64)
    values = tf.range(n, dtype=tf.float32)

    def body(table):
        def run(key, value):
            table.insert(key, value)
            table.insert(tf.constant(1, tf.int64), value)  # in all iterations the same key
            table.insert(key + 10, tf.constant(2.0))
            table.insert(tf.constant(2, tf.int64), tf.constant(3.0))
            table.remove(key[None] + 20)
            return value

        return run

    expected, found = make(), make()
    for old in (expected, found):
        old.insert(tf.range(20, 40, dtype=tf.int64), tf.zeros([20]))
    for row in zip(keys, values):
        body(expected)(*row)
    tf_pfor.vectorized_map(lambda row: body(found)(*row), (keys, values), warn=False)
    assert _contents(found) == _contents(expected)
    assert found.size() == len(_contents(found))


def test_a_read_sees_the_updates_so_far():
    table = _scalars()
    body = lambda key: (table.insert(key, 1.0), table.size())[1]
    with pytest.warns(tf_pfor.FallbackWarning, match="a row reads it"):
        found = tf_pfor.vectorized_map(body, tf.constant([1, 2, 1], tf.int64))
    assert found.numpy().tolist() == [1, 2, 2]


# A body that adds two to the value of a key.
counted = lambda table: lambda key: (table.insert(key, table.lookup(key) + 2.0), key)[1]


@pytest.mark.parametrize("n", [0, 1, 5])
def test_an_insert_that_depends_on_a_find_runs_in_order(n):
    keys = tf.constant([1, 2, 1, 1, 2][:n], tf.int64)
    expected, found = _scalars(), _scalars()
    for key in keys:
        counted(expected)(key)
    with pytest.warns(tf_pfor.FallbackWarning, match="LookupTableInsertV2"):
        tf_pfor.vectorized_map(counted(found), keys)
    assert _contents(found) == _contents(expected)


def test_an_insert_that_depends_on_a_find_is_refused_without_loops():
    table = _scalars()
    with pytest.raises(UnsupportedStateError, match=r"LookupTableFindV2 .*test_lookup"):
        tf_pfor.vectorized_map(counted(table), tf.constant([1, 1], tf.int64), False)
    assert table.size() == 0


DENSE = {  # a table, and the shape of what one iteration looks up
    "keys": (lambda: _dense(-1.0, [-7, -7], [-8, -8]), [3, 2]),
    "scalars": (_dense, [3]),
    "vectors": (lambda: _dense([-1.0, -2.0]), [3]),
}
MODES = {
    "eager": lambda f, spec: f,
    "fixed": lambda f, spec: tf.function(f),
    "unknown": lambda f, spec: tf.function(f, input_signature=[spec]),
}


@grid(name=sorted(DENSE), n=[0, 1, 4], mode=sorted(MODES))
def test_dense_tables_take_several_keys(name, n, mode):
    """Their kernel takes a vector of keys, of no other rank."""
    make, shape = DENSE[name]
    keys = tf.random.stateless_uniform([n, *shape], [1, 2], 0, 3, tf.int64)
    rows = tf.unstack(keys)

    def values_of(k):
        values = tf.cast(k[:, 0] if name == "keys" else k, tf.float32) + 1.0
        return tf.stack([values, -values], 1) if name == "vectors" else values

    def body(k):
        found.insert(k, values_of(k))
        found.remove(k[1:2])
        return found.lookup(k)

    expected, found = make(), make()
    spec = tf.TensorSpec([None, *shape], tf.int64)
    mapped = MODES[mode](lambda k: tf_pfor.vectorized_map(body, k, warn=False), spec)
    made = mapped(keys)
    assert made.shape[0] == n
    for i, row in enumerate(rows):
        expected.insert(row, values_of(row))
        expected.remove(row[1:2])
        np.testing.assert_array_equal(made[i], expected.lookup(row))
    for row in rows:
        np.testing.assert_array_equal(found.lookup(row), expected.lookup(row))
    assert found.size() == expected.size()


def test_lookups_in_a_map_in_a_map():
    table = _dense()
    table.insert(tf.range(4, dtype=tf.int64), tf.range(4.0) * 2.0)
    keys = tf.reshape(tf.range(12, dtype=tf.int64), [2, 3, 2])
    found = _mapped(lambda k: tf_pfor.vectorized_map(table.lookup, k), keys)
    assert found.numpy().ravel().tolist() == [0.0, 2.0, 4.0, 6.0] + [-1.0] * 8


def test_a_default_of_each_row_runs_in_a_loop():
    table = _scalars()
    table.insert(tf.constant([1], tf.int64), [4.0])
    given = (tf.constant([1, 2, 3], tf.int64), tf.constant([7.0, 8, 9]))
    with pytest.warns(tf_pfor.FallbackWarning, match="LookupTableFindV2"):
        found = tf_pfor.vectorized_map(lambda row: table.lookup(*row), given)
    assert found.numpy().tolist() == [4.0, 8.0, 9.0]


def test_keras_lookups():
    words = keras.layers.StringLookup(vocabulary=["to", "be", "or"])
    numbers = keras.layers.IntegerLookup(vocabulary=[3, 5], output_mode="one_hot")
    body = lambda word, number: (words(word), numbers(number))
    given = (tf.constant([["be", "not"], ["or", "to"]]), tf.constant([5, 9]))
    found = _mapped(body, *given)
    pairwise(np.testing.assert_array_equal, found, _loop(body, *given))


# -- Tables that rows of several keys read and write -----------------------------------------------


def _counted(table, words):
    table.insert(words, table.lookup(words) + 1)
    return tf.reduce_sum(table.lookup(words))


def _returned(table, words):
    table.insert(words, table.lookup(words) + 1)
    return table.lookup(words)


def _seen_before(table, words):
    seen = table.lookup(words)
    table.insert(words, seen + 1)
    return tf.reduce_sum(tf.ensure_shape(seen, [None]))


def _word_by_word(table, words):
    for word in words:
        table.insert(word, table.lookup(word) + 1)
    return tf.reduce_sum(table.lookup(words))


def _vocabulary(table, words):
    for word in words:
        if table.lookup(word) <= 0:
            table.insert(word, table.size() + 1)
    return table.lookup(words)


@pytest.mark.filterwarnings("ignore::tf_pfor.FallbackWarning")
@pytest.mark.parametrize(
    "body",
    [_counted, _returned, _seen_before, _word_by_word, _vocabulary],
    ids=lambda f: f.__name__,
)
def test_keys_of_variable_length_rows_in_order(body):
    """A mutable table does not tell the rank of what it finds: an error of shapes, before."""
    texts = tf.constant(["a b a", "", "c a"])

    def run(rows):
        table = tf.lookup.experimental.MutableHashTable(tf.string, tf.int64, 0)
        one = lambda text: body(table, tf.strings.split(text))
        found = rows(one)
        return found, dict(zip(*(t.numpy().tolist() for t in table.export())))

    expected, held = run(lambda one: [tf.function(one)(t).numpy().tolist() for t in texts])
    found, left = run(lambda one: tf_pfor.vectorized_map(one, texts))
    assert (found.to_list() if isinstance(found, tf.RaggedTensor) else found.numpy().tolist()) == (
        expected
    )
    assert left == held
    assert held
