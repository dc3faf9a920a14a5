"""``tf_pfor.data``: padded results, elements that are dropped, and the choice of a form."""

import itertools
import logging

import numpy as np
import pytest
import tensorflow as tf

import tf_pfor
from tests.cases import errors, grid
from tests.frontends.datasets import Dataset, assert_rows, results, rows
from tf_pfor.data import filter_map_and_batch, map_and_batch, vectorize
from tf_pfor.frontends.data import _choice
from tf_pfor.frontends.data._choice import Cost, _cost

WORDS = ["a b c", "", "d", "e f", "g h i j"]
# Ids of variable length, and a grid whose shape differs.
tokens = lambda i: {"ids": tf.range(i) + 1, "grid": tf.ones([i, i + 1]), "i": i}


def dropped(i):
    """Two of three are kept."""
    return i % 3 > 0, {"i": i, "range": tf.range(i), "sparse": tf.sparse.from_dense([i, 0, 1])}


def assert_same(found, wanted):
    """The same batches."""
    pairs = list(zip(found, wanted, strict=True))
    assert pairs
    for got, want in pairs:
        tf.nest.assert_same_structure(got, want)
        for a, b in zip(tf.nest.flatten(got), tf.nest.flatten(want)):
            if isinstance(b, tf.SparseTensor):
                a, b = tf.sparse.to_dense(a), tf.sparse.to_dense(b)
            if isinstance(b, tf.RaggedTensor):
                assert a.to_list() == b.to_list()
            else:
                assert (a.numpy() == b.numpy()).all(), (a, b)


class TestPadding:
    SHAPES = {
        "longest": {"ids": [None], "grid": [None, None], "i": []},
        "fixed": {"ids": [7], "grid": tf.TensorShape([8, 9]), "i": ()},
        "one of two": {"ids": [6], "grid": [None, 8], "i": tf.TensorShape([])},
        "tensors": {"ids": tf.constant([6], tf.int64), "grid": (-1, 8), "i": []},
    }

    @grid(name=SHAPES, values=["zeros", "values"], choose=["vectorized", "loop"])
    def test_as_padded_batch(self, name, values, choose):
        shapes, dataset = self.SHAPES[name], Dataset.range(6)
        values = (
            {"ids": np.int64(-1), "grid": 0.5, "i": np.int64(0)} if values == "values" else None
        )
        options = {"padded_shapes": shapes, "padding_values": values, "choose": choose}
        found = dataset.apply(map_and_batch(tokens, 4, drop_remainder=True, **options))
        wanted = dataset.map(tokens).padded_batch(4, shapes, values, drop_remainder=True)
        assert_same(found, wanted)
        assert found.element_spec == wanted.element_spec

    def test_without_shapes(self):
        wanted = Dataset.range(6).map(tokens).padded_batch(4)
        assert_same(Dataset.range(6).apply(map_and_batch(tokens, 4, out_shapes="padded")), wanted)
        batches = Dataset.range(6).batch(4)
        assert_same(batches.map(vectorize(tokens, out_shapes="padded")), wanted)

    def test_one_value_for_all(self):
        fn = lambda i: (tf.range(i), tf.range(i + 1))
        found = Dataset.range(4).apply(map_and_batch(fn, 4, out_shapes="padded", padding_values=-1))
        wanted = Dataset.range(4).map(fn).padded_batch(4, padding_values=np.int64(-1))
        assert_same(found, wanted)

    @pytest.mark.filterwarnings("ignore::tf_pfor.FallbackWarning")
    def test_strings(self):
        dataset = Dataset.from_tensor_slices(WORDS)
        found = dataset.apply(map_and_batch(tf.strings.split, 5, padded_shapes=[5]))
        assert_same(found, dataset.map(tf.strings.split).padded_batch(5, [5]))
        found = dataset.apply(
            map_and_batch(tf.strings.split, 5, padded_shapes=[None], padding_values="-")
        )
        assert_same(found, dataset.map(tf.strings.split).padded_batch(5, [None], "-"))

    def test_a_longer_result_is_an_error(self):
        found = Dataset.range(6).apply(map_and_batch(tf.range, 4, padded_shapes=[4]))
        with pytest.raises(tf.errors.InvalidArgumentError, match="padded_shapes has 4 for axis 0"):
            list(found)


padded_to = lambda shapes: Dataset.range(4).apply(map_and_batch(tokens, 2, padded_shapes=shapes))
ids_to = lambda shape: padded_to({"ids": shape, "grid": [None, None], "i": []})
WRONG = tf_pfor.ArgumentError
test_shapes_that_do_not_fit = errors(
    (lambda: ids_to([None, 2]), r"padded_shapes\['ids'\] .* 1 axes"),
    (lambda: ids_to("x"), r"padded_shapes\['ids'\] must be a shape"),
    (lambda: ids_to(1.5), r"padded_shapes\['ids'\] must be a shape"),
    error=WRONG,
)
NEST = "padded_shapes is .* expected the nest"
test_a_nest_that_does_not_fit = errors(
    (lambda: padded_to([None]), NEST),
    (lambda: padded_to(([None], [])), NEST),
    (lambda: padded_to({"ids": [None], "grid": [3, 3]}), NEST),
    error=WRONG,
)
test_options_that_disagree = errors(
    (lambda: map_and_batch(tokens, 2, padding_values=1), "padding_values is given, and nothing"),
    (
        lambda: vectorize(tokens, padded_shapes=[None], out_shapes="dense"),
        'out_shapes is "dense"',
    ),
    (lambda: filter_map_and_batch(dropped, 2, refill=False, choose="auto"), "needs refill=True"),
    (lambda: map_and_batch(tokens, 2, choose="loop", randomness="same"), 'randomness="same"'),
    error=WRONG,
)


class TestFilter:
    @grid(size=[1, 3, 20], drop=[False, True], choose=["vectorized", "loop"])
    def test_as_filter_and_batch(self, size, drop, choose):
        dataset = Dataset.range(11)
        options = {"drop_remainder": drop, "choose": choose, "fallback": "error"}
        found = dataset.apply(filter_map_and_batch(dropped, size, **options))
        kept = [r for r in results(lambda i: dropped(i)[1], dataset) if r[0] % 3]
        if drop:
            kept = kept[: len(kept) // size * size]
        assert_rows(rows(found), kept)
        sizes = [len(b["i"]) for b in found]
        assert sizes[:-1] == [size] * len(sizes[:-1])
        assert found.element_spec["i"].shape.as_list() == [size if drop else None]

    def test_without_refill(self):
        fn = lambda i: ((i > 3) & (i % 2 == 0), i)
        found = Dataset.range(9).apply(filter_map_and_batch(fn, 3, refill=False))
        assert [b.numpy().tolist() for b in found] == [[], [4], [6, 8]]
        assert found.cardinality().numpy() == 3
        found = Dataset.range(8).apply(
            filter_map_and_batch(fn, 3, refill=False, drop_remainder=True)
        )
        assert [b.numpy().tolist() for b in found] == [[], [4]]

    @pytest.mark.parametrize("refill", [True, False])
    def test_nothing_is_kept(self, refill):
        found = Dataset.range(7).apply(
            filter_map_and_batch(lambda i: (i < 0, tf.range(i)), 3, refill=refill)
        )
        assert sum(b.nrows().numpy() for b in found) == 0

    def test_padded(self):
        fn = lambda i: (i % 3 > 0, tf.range(i))
        found = Dataset.range(9).apply(filter_map_and_batch(fn, 4, out_shapes="padded"))
        wanted = Dataset.range(9).filter(lambda i: i % 3 > 0).map(tf.range).padded_batch(4)
        assert_same(found, wanted)
        found = Dataset.range(9).apply(
            filter_map_and_batch(fn, 4, padded_shapes=[9], padding_values=-1, refill=False)
        )
        assert [b.shape.as_list() for b in found] == [[2, 9], [3, 9], [1, 9]]

    def test_the_same_for_all(self):
        found = Dataset.range(5).apply(filter_map_and_batch(lambda i: (True, i), 2))
        assert_rows(rows(found), [[i] for i in np.arange(5)])

    def test_elements_of_own_shape(self):
        dataset = Dataset.range(6).map(tf.range)
        found = dataset.apply(filter_map_and_batch(lambda r: (tf.size(r) > 2, r[1:]), 2))
        assert_rows(rows(found), [[np.arange(1, i)] for i in range(3, 6)])

    def test_a_tuple_of_results(self):
        found = Dataset.range(5).apply(filter_map_and_batch(lambda i: (i > 1, (i, -i)), 2))
        assert_rows(rows(found), [[i, -i] for i in np.arange(2, 5)])

    @pytest.mark.parametrize(
        "fn", [lambda i: i, lambda i: (i, i), lambda i: (tf.stack([i > 1]), i), lambda i: {"a": i}]
    )
    @pytest.mark.parametrize("choose", ["vectorized", "loop"])
    def test_no_pair(self, fn, choose):
        with pytest.raises(tf_pfor.ArgumentError, match=r"a pair \(keep, result\)"):
            Dataset.range(4).apply(filter_map_and_batch(fn, 2, choose=choose))


def grids(i):
    """Results of which one size, both or none is the row's own."""
    x = tf.ones([i, 3], tf.int64)
    return tf.concat([x, x], 0), tf.ones([2, i]), i, x[:, :1] * i


class TestChoose:
    @grid(drop=[False, True], fn=[tokens, grids, tf.range])
    def test_both_forms_are_alike(self, fn, drop):
        forms = [
            Dataset.range(9).apply(map_and_batch(fn, 4, drop_remainder=drop, choose=choose))
            for choose in ("vectorized", "loop")
        ]
        assert forms[0].element_spec == forms[1].element_spec
        assert_same(*forms)

    def test_auto(self, caplog, monkeypatch):
        monkeypatch.setattr(_choice, "_SECONDS", 0.05)
        with caplog.at_level(logging.INFO, "tf_pfor.data"):
            found = Dataset.range(100).apply(map_and_batch(lambda i: i * 2, 32, choose="auto"))
        assert "choose='auto'" in caplog.text
        assert_rows(rows(found), [[2 * i] for i in np.arange(100)])

    def test_auto_keeps_the_faster_one(self, caplog, monkeypatch):
        monkeypatch.setattr(_choice, "_SECONDS", 0.1)
        with caplog.at_level(logging.INFO, "tf_pfor.data"):
            Dataset.range(2000).apply(map_and_batch(lambda i: i * 2, 500, choose="auto"))
        assert "4 batches: vectorized" in caplog.text

    @pytest.mark.parametrize(
        ("dataset", "chosen"),
        [
            (Dataset.range(60), "loop"),
            (Dataset.range(10_000), "vectorized"),
            (Dataset.range(60).repeat(), "vectorized"),
            (Dataset.range(60).filter(lambda i: i < 50), "loop"),
        ],
    )
    def test_auto_counts_the_start_of_an_iterator(self, caplog, monkeypatch, dataset, chosen):
        """The vectorized form starts late and is fast: it wins from 197 batches on."""
        slow, fast = Cost((2.0, 2.0), (1.0, 1.0)), Cost((100.0, 100.0), (0.5, 0.5))
        costs = iter([fast, slow] * 2)
        monkeypatch.setattr(_choice, "_cost", lambda _: next(costs))
        with caplog.at_level(logging.INFO, "tf_pfor.data"):
            found = dataset.apply(map_and_batch(lambda i: i * 2, 1, choose="auto"))
        assert caplog.text.strip().endswith(f": {chosen}.")
        assert_rows(rows(found.take(50)), [[2 * i] for i in np.arange(50)])

    def test_what_an_epoch_costs(self):
        cost = Cost((2.0, 10.0), (1.0, 4.0)).least(Cost((3.0, 9.0), (0.5, 5.0)))
        assert cost == Cost((2.0, 9.0), (0.5, 4.0))
        assert cost.of_epoch(1) == 2.0 * 9.0
        assert cost.of_epoch(11) == (2.0 + 10 * 0.5) * (9.0 + 10 * 4.0)
        assert cost.of_epoch(None) == 0.5 * 4.0

    def test_what_a_form_costs(self, monkeypatch):
        """The first batch counts as the start; the next one as neither, where more follow."""
        monkeypatch.setattr(_choice, "_SECONDS", 2.5)

        def cost(form):
            times = iter([(0.0, 0.0), (3.0, 5.0), (7.0, 7.0), (8.0, 9.0), (10.0, 13.0)])
            monkeypatch.setattr(_choice, "_now", lambda: next(times))
            return _cost(form)

        assert cost(range(4)) == Cost(start=(3.0, 5.0), batch=(1.5, 3.0))
        assert cost(itertools.count()) == cost(range(4))  # for 2.5 seconds
        assert cost(range(2)) == Cost(start=(3.0, 5.0), batch=(4.0, 2.0))
        assert cost(range(0)) == Cost(start=(0.0, 0.0), batch=(0.0, 0.0))

    def test_auto_of_no_elements(self):
        found = Dataset.range(0).apply(map_and_batch(lambda i: i * 2, 32, choose="auto"))
        assert rows(found) == []

    def test_auto_reads_few_elements(self, monkeypatch):
        monkeypatch.setattr(_choice, "_SECONDS", 0.01)
        read = []

        def source():
            for i in range(10_000):
                read.append(i)
                yield i

        spec = tf.TensorSpec([], tf.int64)
        dataset = Dataset.from_generator(source, output_signature=spec)
        found = dataset.apply(map_and_batch(lambda i: i, 4, choose="auto"))
        assert len(read) < 100
        assert next(iter(found)).numpy().tolist() == [0, 1, 2, 3]

    def test_what_cannot_be_vectorized_is_a_loop(self):
        fn = lambda i: (tf.random.uniform([]), i)
        options = {"randomness": "error", "choose": "auto"}
        found = Dataset.range(5).apply(map_and_batch(fn, 2, **options))
        assert [i for _, i in rows(found)] == [0, 1, 2, 3, 4]

    def test_state_is_not_changed_by_a_trial(self):
        seen = tf.Variable(0)

        def fn(i):
            seen.assign_add(1)
            return i

        with pytest.raises(tf_pfor.ArgumentError, match=r"AssignAddVariableOp .*results.py:\d+"):
            Dataset.range(5).apply(map_and_batch(fn, 2, choose="auto"))
        assert seen.numpy() == 0

    def test_not_in_a_function(self):
        @tf.function
        def build():
            made = Dataset.range(5).apply(map_and_batch(lambda i: i, 2, choose="auto"))
            return next(iter(made))

        with pytest.raises(tf_pfor.ArgumentError, match="outside of the function"):
            build()
