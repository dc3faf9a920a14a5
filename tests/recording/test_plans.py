"""Plans of what is recorded, chunks of examples, and what stays in memory after a call."""

import functools
import gc
import weakref

import pytest
import tensorflow as tf

import tf_pfor
from tests.comparisons import value_and_gradient
from tests.recording.test_batched import TREES, Model, assert_close, one_by_one
from tf_pfor.recording import columns as _columns
from tf_pfor.recording import examples as _examples
from tf_pfor.recording import nodes as _nodes
from tf_pfor.recording import plans as _plans


def test_calls_of_all_examples_run_together():
    model = Model(tf_pfor.cell)
    run = _examples.Examples(model.vector, TREES, range(len(TREES)), {}, _plans.Plans(), "depth")
    run.run()
    assert run.batches == 1 + 4  # the leaves, and one for each height of a tree


def test_plans_are_kept_for_structures():
    model, plans = Model(tf_pfor.cell), _plans.Plans()
    kinds = {}

    def run(trees, schedule="agenda"):
        found = _examples.Examples(
            model.vector, trees, range(len(trees)), kinds, plans, schedule
        ).run()
        assert_close(_columns.joined(found), one_by_one(model.vector, trees))
        return plans.made

    assert run(TREES) == 1
    assert run(tf.nest.map_structure(lambda word: (word + 3) % 10, TREES)) == 1  # other words
    model.weights.assign(model.weights * 2.0)
    assert run(TREES) == 1
    assert run([*TREES[:-1], (5, (5, 6))]) == 2  # another word is read
    assert run(TREES, "depth") == 3
    for count in range(_plans.KEPT):
        run([functools.reduce(lambda tree, word: (tree, word), range(1 + count % 9), 7)] + TREES)
        run([functools.reduce(lambda tree, word: (word, tree), range(1 + count % 9), 7)] + TREES)
    assert len(plans) == _plans.KEPT


def test_plans_of_values_that_are_asked_for():
    plans, kinds = _plans.Plans(), {}

    def fn(x):
        y = x * 2.0
        return y + 1.0 if tf.reduce_sum(y) > 4.0 else tf.exp(y)

    rows = [tf.constant([k, 1.0]) for k in (0.5, 3.0, 1.5, 0.1)]
    for order, made in ((rows, 2), (rows, 2), ([rows[1], rows[0], *rows[2:]], 3), (rows, 3)):
        found = _examples.Examples(fn, order, range(4), kinds, plans, "agenda").run()
        assert_close(_columns.joined(found), one_by_one(fn, order))
        assert plans.made == made


def test_values_of_a_call_that_has_failed():
    seen = []

    def fn(x):
        seen.append(x * 2.0)
        raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        tf_pfor.batched(fn)([tf.constant(1.0)])
    with pytest.raises(tf_pfor.NotVectorizableError, match="has failed"):
        tf_pfor.batched(lambda x: x + seen[0])([tf.constant(1.0)])


def test_a_variable_that_all_examples_read_is_not_repeated(monkeypatch):
    model, seen = Model(), []
    of_rows = _nodes.Kind.of_rows

    def noted(kind, tensors, stacked):
        seen.append((kind.name, stacked))
        return of_rows(kind, tensors, stacked)

    monkeypatch.setattr(_nodes.Kind, "of_rows", noted)
    tf_pfor.batched(model.vector)(TREES)
    products = [stacked for name, stacked in seen if name == "MatMul"]
    assert products
    assert all(stacked == [False, True] for stacked in products)  # the weights, a column


@pytest.mark.parametrize("size", [1, 2, 4, 100])
def test_chunks(size):
    model, alive = Model(tf_pfor.cell), []

    def fn(tree):
        alive[:] = [ref for ref in alive if ref() is not None]
        y = model.vector(tree)
        alive.append(weakref.ref(y))
        z = y * 2.0
        return {"z": z, "row": (z[: 1 + len(alive) % 2], 3), "none": None}

    batch, doubled = tf_pfor.batched(fn, chunk_size=size), lambda t: model.vector(t) * 2.0
    found = value_and_gradient(lambda: batch(TREES)["z"], model.weights)
    assert_close(found, value_and_gradient(lambda: one_by_one(doubled, TREES), model.weights))
    batch(TREES)
    assert len(alive) <= size
    with pytest.raises(KeyError, match="4") as error:
        tf_pfor.batched(lambda i: {}[i] if i > 3 else i, chunk_size=size)(list(range(6)))
    assert "example 4" in str(getattr(error.value, "__notes__", "example 4"))


def test_nothing_stays_alive():
    class Example:
        pass

    batch = tf_pfor.batched(lambda example: tf.reduce_sum(example.x) * 2.0)
    example = Example()
    example.x = tf.random.normal([3])
    alive = weakref.ref(example)
    batch([example])
    del example
    gc.collect()
    assert alive() is None
    kinds = batch.__closure__
    sizes = [len(c.cell_contents) for c in kinds if isinstance(c.cell_contents, dict)]
    for _ in range(3):
        other = Example()
        other.x = tf.random.normal([3])
        batch([other])
    assert sizes == [len(c.cell_contents) for c in kinds if isinstance(c.cell_contents, dict)]


def test_values_are_freed_without_a_collection_of_garbage():
    model, refs = Model(tf_pfor.cell), []

    def fn(tree):
        y = model.vector(tree)
        refs.append(weakref.ref(y))
        if tf.reduce_sum(y) > 0.0:
            y = y + tf.random.normal([4])
        return y * 2.0

    batch = tf_pfor.batched(fn)
    batch(TREES)
    gc.collect()
    gc.disable()
    try:
        refs.clear()
        batch(TREES)
        assert [ref() for ref in refs] == [None] * len(TREES)
    finally:
        gc.enable()
