"""``tf_pfor.data``: functions with state, seeds, Python code or collectives; static shapes."""

import numpy as np
import pytest
import tensorflow as tf

import tf_pfor
from tests.frontends.datasets import Dataset
from tf_pfor.data import find_failure, map_and_batch


def batches(fn, n=64, size=8, **options):
    made = Dataset.range(n).apply(map_and_batch(fn, size, **options))
    return [batch.numpy().tolist() for batch in made]


number = lambda text: tf.strings.to_number(text)


@pytest.mark.parametrize("options", [{}, {"choose": "loop"}])
def test_state_sees_the_elements_in_their_order(options):
    count = tf.Variable(0, dtype=tf.int64)
    last = tf.Variable(0.0)

    def counted(i):
        count.assign_add(1)
        last.assign(0.9 * last + tf.cast(i, tf.float32))
        return count.read_value(), last.read_value()

    made = Dataset.range(64).apply(map_and_batch(counted, 8, **options))
    found = [x.numpy() for x in list(made)[-1]]
    count.assign(0)
    last.assign(0.0)
    wanted = [x.numpy() for x in list(Dataset.range(64).map(counted))[-1]]
    assert found[0][-1] == wanted[0] == 64
    np.testing.assert_allclose(found[1][-1], wanted[1], rtol=1e-5)


def test_draws_with_a_seed_are_made_again():
    runs = []
    for _ in range(3):
        tf.random.set_seed(1)
        runs.append(batches(lambda i: tf.random.uniform([])))
    assert runs[0] == runs[1] == runs[2]
    generator = tf.random.Generator.from_seed(1)
    first = batches(lambda i: generator.uniform([]))
    generator.reset_from_seed(1)
    assert batches(lambda i: generator.uniform([])) == first


def test_auto_calls_python_a_few_times_only():
    calls = []

    def noted(i):
        calls.append(int(i))
        return i

    made = Dataset.range(10).apply(
        map_and_batch(lambda i: tf.numpy_function(noted, [i], tf.int64), 5, choose="auto")
    )
    assert len(calls) <= 20
    assert [b.numpy().tolist() for b in made] == [list(range(5)), list(range(5, 10))]


def test_auto_of_collectives():
    assert batches(lambda i: i - tf_pfor.pmax(i), 6, 3, choose="auto") == [[-2, -1, 0]] * 2


@pytest.mark.parametrize("choose", ["vectorized", "loop", "auto"])
def test_errors_name_the_element_in_each_form(choose):
    texts = Dataset.from_tensor_slices(["0", "1", "two"])
    with pytest.raises(tf.errors.InvalidArgumentError, match="Element 2 fails in StringToNumber"):
        list(texts.apply(map_and_batch(number, 2, choose=choose)))


def test_elements_in_another_order_each_time_are_not_named():
    """Another element fails when they are read again."""
    texts = Dataset.from_tensor_slices([f"bad {i}" for i in range(1000)])
    with pytest.raises(tf.errors.InvalidArgumentError) as why:
        list(texts.shuffle(1000, seed=3).apply(map_and_batch(number, 5)))
    assert "In batch 0 of the dataset" in str(why.value)
    assert "Element" not in str(why.value)


def test_searches_do_not_warn_of_retracing(caplog):
    texts = Dataset.from_tensor_slices(["1", "x"])
    for _ in range(6):
        assert find_failure(number, texts).index == 1
    assert "retracing" not in caplog.text


def test_sparse_results_have_static_shapes():
    rows = Dataset.from_tensor_slices(np.eye(8, dtype=np.float32))
    sparse = rows.map(tf.sparse.from_dense)
    for source, fn in ((rows, tf.sparse.from_dense), (sparse, lambda x: x)):
        for drop in (False, True):
            made = source.apply(map_and_batch(fn, 4, drop_remainder=drop))
            assert made.element_spec == source.map(fn).batch(4, drop).element_spec
            dense = np.concatenate([tf.sparse.to_dense(x) for x in made])
            np.testing.assert_array_equal(dense, np.eye(8))


def ids(i):
    """Elements, as many as the number says, by Python code."""
    found = tf.numpy_function(np.arange, [i], tf.int64)
    found.set_shape([None])
    return found


checked_ids = lambda i: tf.ensure_shape(tf.numpy_function(np.arange, [i], tf.int64), [None])


@pytest.mark.parametrize("fn", [ids, checked_ids])
def test_python_code_with_results_of_own_length(fn):
    assert batches(fn, 4, 4, padded_shapes=[None]) == [[[0, 0, 0], [0, 0, 0], [0, 1, 0], [0, 1, 2]]]
    assert batches(lambda i: tf.reduce_sum(fn(i)), 4, 2) == [[0, 0], [1, 3]]
    rows = tf_pfor.vectorized_map(fn, tf.range(4, dtype=tf.int64))
    assert rows.to_list() == [[], [0], [0, 1], [0, 1, 2]]
    assert tf_pfor.vectorized_map(fn, tf.range(0, dtype=tf.int64)).shape[0] == 0


PADDINGS = {
    "fraction": (tf.range, {"padded_shapes": [3], "padding_values": 1.5}, "padding_values has 1.5"),
    "too large": (
        lambda i: tf.cast(tf.range(i), tf.uint8), {"padded_shapes": [3], "padding_values": 300},
        "padding_values has 300 for a component of dtype uint8",
    ),
    "text": (tf.range, {"padded_shapes": [3], "padding_values": "x"}, "padding_values has 'x'"),
    "too small": (
        lambda i: tf.zeros([5]), {"padded_shapes": [4]}, "padded_shapes has 4 for axis 0",
    ),
    "unknown rank": (
        lambda i: tf.py_function(tf.range, [i], tf.int64), {"padded_shapes": [None]},
        "how many axes this result has is not known",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", PADDINGS)
def test_paddings_that_cannot_be(name):
    fn, options, says = PADDINGS[name]
    with pytest.raises((tf_pfor.ArgumentError, tf_pfor.ArgumentTypeError), match=says):
        Dataset.range(3).apply(map_and_batch(fn, 3, **options))


def test_elements_of_unknown_rank_and_other_shapes():
    spec = tf.TensorSpec(None, tf.float64)
    rows = Dataset.from_generator(lambda: iter([np.ones(2), np.ones(3)]), output_signature=spec)
    with pytest.raises(tf.errors.InvalidArgumentError, match="say the rank before"):
        list(rows.apply(map_and_batch(tf.reduce_sum, 2)))


@pytest.mark.parametrize("choose", ["vectorized", "loop", "auto"])
def test_python_control_flow_in_each_form(choose):
    def halved(i):
        while i > 3:
            i = i // 2
        if i > 1:
            i = -i
        return i

    wanted = [halved(i) for i in range(8)]
    assert batches(halved, 8, 4, choose=choose) == [wanted[:4], wanted[4:]]
