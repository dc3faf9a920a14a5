"""``progress=True``, and what long traces say."""

import logging
import threading
import types

import numpy as np
import pytest
import tensorflow as tf

import tf_pfor
from tests.comparisons import gradient_of
from tf_pfor._tf import _patience

XS = np.arange(10, dtype=np.float32)


class FakeTqdm:
    """The part of tqdm that is used."""

    made: list = []

    def __init__(self, total, desc):
        self.total, self.done, self.is_closed = total, 0, False
        self.steps = []
        FakeTqdm.made.append(self)

    def update(self, k):
        self.done += k
        self.steps.append(self.done)

    def close(self):
        self.is_closed = True


@pytest.fixture
def bars(monkeypatch):
    monkeypatch.setattr(FakeTqdm, "made", [])
    monkeypatch.setitem(__import__("sys").modules, "tqdm", types.SimpleNamespace(tqdm=FakeTqdm))
    return FakeTqdm.made


def square(x):
    return x * x


CALLS = {
    "vectorized_map": lambda fn, **o: tf_pfor.vectorized_map(fn, tf.constant(XS), **o),
    "vmap": lambda fn, **o: tf_pfor.vmap(fn, **o)(tf.constant(XS)),
    "pfor": lambda fn, chunk_size=None, **o: tf_pfor.pfor(
        lambda i: fn(tf.gather(XS, i)), 10, parallel_iterations=chunk_size, **o
    ),
}


@pytest.mark.parametrize("name", CALLS)
@pytest.mark.parametrize(
    ("block", "steps"), [(4, [4, 8, 10]), (5, [5, 10]), (1, list(range(1, 11)))]
)
def test_bars(bars, name, block, steps):
    for _ in range(2):  # each call has its own
        found = CALLS[name](square, chunk_size=block, progress=True)
        np.testing.assert_array_equal(found, XS**2)
    assert [(b.steps, b.total, b.is_closed) for b in bars] == [(steps, 10, True)] * 2


def test_without_tqdm(monkeypatch, capsys):
    monkeypatch.setitem(__import__("sys").modules, "tqdm", None)
    found = CALLS["vmap"](square, chunk_size=4, progress=True)
    np.testing.assert_array_equal(found, XS**2)
    assert "10/10" in capsys.readouterr().out


def test_gradients_and_errors(bars):
    xs = tf.constant(XS)
    found = gradient_of(lambda: tf_pfor.vectorized_map(square, xs, chunk_size=3, progress=True), xs)
    np.testing.assert_allclose(found, 2 * XS)

    def failing(x):
        tf.debugging.assert_less(x, 5.0)
        return x

    with pytest.raises(tf.errors.InvalidArgumentError):
        tf_pfor.vectorized_map(failing, xs, chunk_size=3, progress=True)
    assert all(b.is_closed for b in bars)


def test_all_fits(bars):
    found = CALLS["vmap"](square, chunk_size="auto", progress=True)
    np.testing.assert_array_equal(found, XS**2)
    assert bars == []  # there are no blocks


@pytest.mark.parametrize("block", [1, 4])
def test_lines_in_a_graph(capfd, bars, block):
    @tf.function(input_signature=[tf.TensorSpec([None], tf.float32)])
    def mapped(xs):
        return tf_pfor.vectorized_map(square, xs, chunk_size=block, progress=True)

    np.testing.assert_array_equal(mapped(XS), XS**2)
    lines = [x for x in capfd.readouterr().err.splitlines() if "iterations" in x]
    assert lines
    assert lines[-1] == "square: 10 of 10 iterations"
    assert not bars
    many = tf.range(1000.0)
    np.testing.assert_array_equal(mapped(many), many * many)
    lines = [x for x in capfd.readouterr().err.splitlines() if "iterations" in x]
    assert 5 < len(lines) < 50
    assert lines[-1].startswith("square: 1000 of 1000")


@pytest.mark.parametrize("name", CALLS)
def test_refused(name):
    with pytest.raises(tf_pfor.ArgumentError, match="all run at once"):
        CALLS[name](square, progress=True)
    with pytest.raises(tf_pfor.ArgumentTypeError, match="must be a bool"):
        CALLS[name](square, chunk_size=2, progress="yes")
    compiled = tf.function(
        lambda: CALLS[name](square, chunk_size=4, progress=True), jit_compile=True
    )
    with pytest.raises((tf_pfor.ArgumentError, tf.errors.OpError), match="jit_compile|XLA|compil"):
        compiled()
    with pytest.raises(tf_pfor.ArgumentError, match="XLA"):
        tf_pfor.vmap(square, chunk_size=2, progress=True, jit_compile=True)


def test_long_traces_say_once_what_they_do(monkeypatch, caplog):
    monkeypatch.setattr(_patience, "AFTER", 0.0)
    threads = threading.active_count()
    with caplog.at_level(logging.WARNING, "absl"):
        tf_pfor.vectorized_map(lambda x: tf.tanh(x) + x, tf.constant(XS))
    texts = [r.getMessage() for r in caplog.records if "tf_pfor has worked" in r.getMessage()]
    assert len(texts) == 1
    assert "test_progress.py" in texts[0]
    assert "tracing" in texts[0]
    assert threading.active_count() == threads
    caplog.clear()
    monkeypatch.setattr(_patience, "AFTER", 5.0)
    with caplog.at_level(logging.WARNING, "absl"):
        tf_pfor.vectorized_map(lambda x: tf.tanh(x) - x, tf.constant(XS))
    assert not [r for r in caplog.records if "tf_pfor has worked" in r.getMessage()]
