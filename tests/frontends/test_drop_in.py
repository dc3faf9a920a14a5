"""``drop_in``: every place, nests, exceptions, threads; what callers of TensorFlow rely on."""

import asyncio
import importlib
import sys
import threading
import types
from unittest import mock

import keras
import numpy as np
import pytest
import tensorflow as tf

import tf_pfor
from tests.comparisons import close, in_threads
from tests.peer import FLOW, GRADIENTS, peer
from tf_pfor import disable_drop_in, drop_in, enable_drop_in

__all__ = ["peer"]  # a fixture

X = np.array([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]], np.float32)

PLACES = {
    "tf": lambda: tf.vectorized_map,
    "v1": lambda: tf.compat.v1.vectorized_map,
    "v2": lambda: tf.compat.v2.vectorized_map,
    "v1 of v1": lambda: tf.compat.v1.compat.v1.vectorized_map,
    "v2 of v1": lambda: tf.compat.v1.compat.v2.vectorized_map,
    "v1 of v2": lambda: tf.compat.v2.compat.v1.vectorized_map,
    "api": lambda: importlib.import_module("tensorflow._api.v2.v2").vectorized_map,
    "peer": lambda: FLOW.vectorized_map,
    "keras": lambda: keras.ops.vectorized_map,
}


@pytest.mark.parametrize("place", PLACES)
def test_every_place(peer, place):
    with pytest.raises(AssertionError, match="own vectorizer was entered"):
        PLACES[place]()(lambda x: x * 2, tf.constant(X))
    with drop_in():
        close(PLACES[place]()(lambda x: x * 2, tf.constant(X)), 2 * X)
    with pytest.raises(AssertionError, match="own vectorizer was entered"):
        PLACES[place]()(lambda x: x * 2, tf.constant(X))


def test_a_module_that_imported_it_by_name(peer):
    client = types.ModuleType("client_of_vectorized_map")
    client.vectorized_map = own = tf.vectorized_map
    late = types.ModuleType("late_client_of_vectorized_map")
    with mock.patch.dict(sys.modules, {client.__name__: client, late.__name__: late}):
        with drop_in():
            late.vectorized_map = tf.vectorized_map
            close(client.vectorized_map(tf.square, tf.constant(X)), X**2)
        assert client.vectorized_map is late.vectorized_map is own


def test_nests_and_exceptions(peer):
    own = {key: place() for key, place in PLACES.items()}
    with drop_in():
        with pytest.raises(RuntimeError, match="mine"), drop_in():
            raise RuntimeError("mine")
        close(tf.vectorized_map(tf.square, tf.constant(X)), X**2)
    assert {key: place() for key, place in PLACES.items()} == own


def test_enable_and_disable(peer):
    own = FLOW.pfor
    disable_drop_in()
    enable_drop_in()
    enable_drop_in()
    try:
        with drop_in():
            pass
        found = []
        thread = threading.Thread(target=lambda: found.append(FLOW.pfor(lambda i: i * i, 3)))
        thread.start()
        thread.join()
        assert found[0].numpy().tolist() == [0, 1, 4]
    finally:
        disable_drop_in()
    assert FLOW.pfor is own


def test_a_block_counts_for_its_thread_only(peer):
    inside, done = threading.Barrier(2), threading.Barrier(2)
    found = {}

    def other():
        inside.wait(60)
        try:
            tf.vectorized_map(tf.square, tf.constant(X))
        except AssertionError as e:
            found["other"] = str(e)
        done.wait(60)

    thread = threading.Thread(target=other)
    thread.start()
    with drop_in():
        inside.wait(60)
        close(tf.vectorized_map(tf.square, tf.constant(X)), X**2)
        done.wait(60)
    thread.join()
    assert "entered" in found["other"]


def test_many_threads(peer):
    own = tf.vectorized_map

    def work(k):
        for _ in range(5):
            with drop_in():
                y = tf.vectorized_map(lambda x: x + k, tf.constant([1.0, 2.0]))
            assert y.numpy().tolist() == [1.0 + k, 2.0 + k]

    in_threads(work, range(8))
    assert tf.vectorized_map is own


def test_tasks(peer):
    async def one(use):
        if not use:
            await asyncio.sleep(0.01)
            with pytest.raises(AssertionError, match="entered"):
                FLOW.pfor(lambda i: i, 2)
            return
        with drop_in():
            await asyncio.sleep(0.02)
            assert FLOW.pfor(lambda i: i, 2).numpy().tolist() == [0, 1]

    async def both():
        await asyncio.gather(one(True), one(False))

    asyncio.run(both())


# What callers rely on ---------------------------------------------------------------------------


def test_tapes(peer):
    x = tf.constant(X)
    with drop_in(), tf.GradientTape(persistent=True) as tape:
        tape.watch(x)
        y = tf.sin(x) * x
        close(tape.jacobian(y, x)[1, 0, 1], [np.sin(3) + 3 * np.cos(3), 0])
        close(tape.batch_jacobian(y, x)[2], np.diag(np.sin(X[2]) + X[2] * np.cos(X[2])))
        blocks = tape.jacobian(y, x, parallel_iterations=2)
        close(blocks, tape.jacobian(y, x))

        @tf.function
        def traced(x):
            with tf.GradientTape() as inner:
                inner.watch(x)
                y = x**3
            return inner.batch_jacobian(y, x)

        close(traced(x)[0], np.diag(3 * X[0] ** 2))


def test_forward_accumulator(peer):
    x = tf.constant(X)
    tangents = tf.stack([tf.ones_like(x), 2 * tf.ones_like(x)])
    with drop_in(), tf.autodiff.ForwardAccumulator._batch_accumulator(x, tangents) as acc:
        y = tf.sin(x) * x
    one = np.sin(X) + X * np.cos(X)
    close(acc.jvp(y), np.stack([one, 2 * one]))


def test_gradients_of_a_gather_are_dense(peer):
    table = tf.Variable(X)
    with drop_in(), tf.GradientTape(persistent=True) as tape:
        y = tf.gather(table, [2, 0])
        jacobian = tape.jacobian(y, table)
    expected = np.zeros([2, 2, 3, 2])
    for row, source in enumerate([2, 0]):
        for column in range(2):
            expected[row, column, source, column] = 1
    close(jacobian, expected)


def test_graph_functions(peer):
    with drop_in(), tf.Graph().as_default():
        x = tf.compat.v1.placeholder(tf.float32, [None, 2])
        y = tf.vectorized_map(lambda r: tf.cond(r[0] > 2, lambda: r * 2, lambda: tf.exp(r)), x)
        loop = FLOW.for_loop(lambda i: x[i] * 2, tf.float32, tf.shape(x)[0])
        results = [y, loop, GRADIENTS.jacobian(x**2, x), GRADIENTS.batch_jacobian(x**2, x)]
        with tf.compat.v1.Session() as session:
            y, loop, jacobian, batch = session.run(results, {x: X})
    close(y, [np.exp(X[0]), 2 * X[1], 2 * X[2]])
    close(loop, 2 * X)
    close(jacobian.sum((2, 3)), 2 * X)
    close(batch, [np.diag(2 * row) for row in X])


def test_config(peer):
    x = tf.constant(X)

    def loop_fn(i, pfor_config):
        row = x[i]
        return {
            "sum": pfor_config.reduce_sum(row),
            "mean": pfor_config.reduce_mean(row),
            "whole": pfor_config.reduce_mean(i * i),
            "max": pfor_config.reduce_max(row),
            "min": pfor_config.reduce_min(row),
            "concat": pfor_config.reduce_concat(row),
            "own": pfor_config.reduce(lambda a, b: tf.reduce_sum(a[:, 0]) * b[1, 1], row, row),
        }

    with drop_in():
        found = FLOW.pfor(loop_fn, 3)
    rows = {
        "sum": X.sum(0),
        "mean": X.mean(0),
        "whole": 1,  # of integers: (0 + 1 + 4) // 3
        "max": X.max(0),
        "min": X.min(0),
        "concat": X,
        "own": 9.0 * 4.0,
    }
    for key, row in rows.items():
        close(found[key], np.stack([row] * 3))


def test_config_of_an_outer_loop(peer):
    outer = lambda i, pfor_config: FLOW.pfor(lambda j: pfor_config.reduce_sum(i * 10 + j), 3)
    with drop_in():
        assert FLOW.pfor(outer, 2).numpy().tolist() == [[10, 12, 14]] * 2
        with pytest.raises(ValueError, match="in blocks"):
            FLOW.pfor(lambda i, pfor_config: pfor_config.reduce_sum(i), 3, parallel_iterations=2)


def test_sparse_and_sliced_results(peer):
    def fn(row):
        sparse = tf.SparseTensor([[0, 1], [1, 0]], row, [2, 3])
        return {"a": (sparse, row), "b": [tf.IndexedSlices(row[None], [1], tf.constant([3, 2]))]}

    with drop_in():
        found = tf.vectorized_map(fn, tf.constant(X))
    sparse = found["a"][0]
    assert isinstance(sparse, tf.SparseTensor)
    dense = tf.sparse.to_dense(sparse).numpy()
    assert dense.shape == (3, 2, 3)
    close(dense[:, 0, 1], X[:, 0])
    close(dense[:, 1, 0], X[:, 1])
    assert np.count_nonzero(dense) == 6
    close(found["b"][0][:, 1], X)
    assert np.count_nonzero(found["b"][0]) == 6


def test_errors_that_callers_catch(peer):
    with drop_in():
        for bad in (-1, 0, 1.5):
            with pytest.raises(ValueError, match="parallel_iterations"):
                FLOW.pfor(lambda i: i, 3, parallel_iterations=bad)
        with pytest.raises(ValueError, match="cannot be vectorized"):
            tf.vectorized_map(
                lambda i: tf.raw_ops.AudioSpectrogram(
                    input=tf.ones([8, 1]) * i, window_size=4, stride=2
                ),
                tf.ones([3]),
                fallback_to_while_loop=False,
            )


def test_keras(peer):
    x = tf.random.stateless_normal([4, 5, 3], [1, 2])
    layer = keras.layers.TimeDistributed(keras.layers.Dense(2))
    expected = layer(x)
    auc = keras.metrics.AUC(num_thresholds=10, multi_label=True, num_labels=2)
    truth = tf.constant([[0.0, 1.0], [1.0, 0.0], [1.0, 1.0], [0.0, 1.0]])
    guess = tf.constant([[0.2, 0.7], [0.6, 0.4], [0.4, 0.9], [0.5, 0.3]])
    with drop_in():
        close(keras.ops.vectorized_map(layer.layer, tf.transpose(x, [1, 0, 2]))[0], expected[:, 0])
        close(layer(x), expected)
        auc.update_state(truth, guess)
    assert 0 < float(auc.result()) <= 1


def test_public_functions_are_not_changed():
    with drop_in():
        assert tf_pfor.pfor(lambda i: i * i, 3).numpy().tolist() == [0, 1, 4]
