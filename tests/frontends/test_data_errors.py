"""``tf_pfor.data``: refusals, the text of errors, and ``find_failure``."""

import functools
import inspect

import pytest
import tensorflow as tf

import tf_pfor
from tests.cases import errors
from tests.devices import of_cpus
from tests.frontends.datasets import Dataset
from tf_pfor.data import explain, filter_map_and_batch, find_failure, map_and_batch, vectorize

identity = lambda x: x
ARGUMENTS = {
    "fn": (lambda: map_and_batch(3, 2), TypeError, "fn must be a function"),
    "fn of vectorize": (lambda: vectorize(None), TypeError, "fn must be a function"),
    "zero": (lambda: map_and_batch(identity, 0), ValueError, "batch_size must be positive"),
    "float": (lambda: map_and_batch(identity, 2.0), TypeError, "batch_size must be an integer"),
    "bool": (lambda: map_and_batch(identity, True), TypeError, "batch_size must be an integer"),
    "tensor": (
        lambda: map_and_batch(identity, tf.constant([2])), TypeError, "must be an integer scalar",
    ),
    "choose": (
        lambda: map_and_batch(identity, 2, choose="fast"), ValueError,
        "choose must be 'vectorized', 'loop' or 'auto', found 'fast'",
    ),
    "ragged": (lambda: map_and_batch(identity, 2, ragged="yes"), TypeError, "ragged must be"),
    "fallback": (
        lambda: filter_map_and_batch(identity, 2, fallback="no"), ValueError, "fallback must be",
    ),
    "randomness": (
        lambda: map_and_batch(identity, 2, randomness="none"), ValueError, "randomness must be",
    ),
    "out_shapes": (
        lambda: vectorize(identity, out_shapes="flat"), ValueError, "out_shapes must be",
    ),
    "dataset": (
        lambda: map_and_batch(identity, 2)(tf.range(3)), TypeError, r"Expected a tf\.data\.Dataset",
    ),
    "dataset of find_failure": (
        lambda: find_failure(identity, [1]), TypeError, r"dataset must be a tf\.data\.Dataset",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", ARGUMENTS)
def test_arguments(name):
    call, kind, text = ARGUMENTS[name]
    with pytest.raises(kind, match=text) as found:
        call()
    assert isinstance(found.value, tf_pfor.PforError)


NUMBERED = Dataset.range(4)
OPTIONAL = tf.experimental.Optional.from_value
batched = lambda dataset, fn=identity: dataset.apply(map_and_batch(fn, 2))
ELEMENT = "A component of the dataset's elements is a"
RESULT = "function of one element returned a"
test_what_cannot_be_batched = errors(
    (lambda: batched(NUMBERED.window(2)), ELEMENT),
    (lambda: batched(Dataset.from_tensors(OPTIONAL(1))), ELEMENT),
    (lambda: batched(NUMBERED, Dataset.range), RESULT),
    (lambda: batched(NUMBERED, lambda i: tf.TensorArray(tf.int64, 1).write(0, i)), RESULT),
    (lambda: batched(NUMBERED, OPTIONAL), RESULT),
    error=tf_pfor.ArgumentTypeError,
)


def test_vectorize_takes_batches():
    numbers = Dataset.range(4)
    for dataset in (numbers, numbers.map(lambda i: {"a": i}), Dataset.zip((numbers, numbers))):
        with pytest.raises(tf_pfor.ArgumentError, match=r"component 0.* has shape \(\).*ds\.batch"):
            dataset.map(vectorize(lambda *x: x))


def test_a_refusal_names_the_line():
    v = tf.Variable(0, dtype=tf.int64)

    def fn(i):
        v.assign(i)
        return i

    with pytest.raises(tf_pfor.NotVectorizableError, match=r"test_data_errors.py:\d+"):
        Dataset.range(4).apply(map_and_batch(fn, 2))


def test_an_error_names_the_function_and_the_rows():
    def small(i):
        tf.debugging.assert_less(i, tf.constant(6, tf.int64))
        return i

    found = Dataset.range(10).apply(map_and_batch(small, 4))
    name = f"small_of_test_data_errors_py_line_{small.__code__.co_firstlineno}"
    with pytest.raises(tf.errors.InvalidArgumentError) as error:
        list(found)
    assert name in str(error.value)
    assert "Failed in the iterations:] [2 3]" in str(error.value)


@pytest.mark.parametrize("fn", [functools.partial(tf.add, 1), tf.keras.layers.Rescaling(2)])
def test_functions_without_a_line(fn):
    dataset = Dataset.range(3).map(lambda i: tf.cast(i, tf.int32)).apply(map_and_batch(fn, 3))
    assert next(iter(dataset)).shape == [3]


class TestFindFailure:
    def test_none(self):
        assert find_failure(identity, Dataset.range(5)) is None

    @of_cpus
    def test_an_op(self):
        def fn(i, names):
            return tf.gather([1, 2, 3], i), names["a"]

        dataset = Dataset.range(5).map(lambda i: (i, {"a": i}))
        failure = find_failure(fn, dataset)
        assert (failure.index, failure.op_type) == (3, "GatherV2")
        assert failure.line == f"{__file__}:{fn.__code__.co_firstlineno + 1}"
        assert "3 is not in [0, 3)" in failure.error
        assert failure.element[0].numpy() == 3
        assert str(failure).startswith("Element 3 fails in GatherV2 (")

    def test_an_assert_in_a_branch(self):
        def fn(r):
            if tf.size(r) > 2:
                tf.debugging.assert_less(tf.size(r), 4)
            return r

        failure = find_failure(fn, Dataset.range(7).map(tf.range))
        assert (failure.index, failure.op_type) == (4, "Assert")
        assert "test_data_errors.py" in failure.line

    def test_ragged_and_none(self):
        rows = Dataset.from_tensor_slices(tf.ragged.constant([[1], [], [2]]))
        failure = find_failure(lambda r, none: r[0], rows.map(lambda r: (r, None)))
        assert (failure.index, failure.op_type) == (1, "StridedSlice")


class TestExplain:
    @pytest.mark.parametrize(
        "dataset",
        [
            Dataset.range(20).map(lambda i: (i, tf.range(i))),
            Dataset.range(20).map(lambda i: (i, tf.RaggedTensor.from_row_lengths([i], [1]))),
            Dataset.range(1).map(lambda i: (i, {"a": i})),
        ],
    )
    def test_totals(self, dataset):
        def fn(i, x):
            return [i * 2, tf.py_function(lambda v: v, [i], tf.int64)]

        report = explain(fn, dataset)
        assert report.totals["looped"] == 1
        assert report.totals["rejected"] == 0
        assert "EagerPyFunc" in str(report)
        assert report.name == "fn"

    def test_refused(self):
        with pytest.raises(tf_pfor.ArgumentError, match="no elements"):
            explain(identity, Dataset.range(0))
        with pytest.raises(tf_pfor.ArgumentTypeError, match=r"must be a tf\.data\.Dataset"):
            explain(identity, tf.range(3))


_number = lambda text: tf.strings.to_number(text) * 2.0
NUMBERS = ["1", "2", "3", "four", "5"]


@pytest.mark.parametrize("also", [lambda ds: ds, lambda ds: ds.prefetch(1)])
def test_errors_name_the_element(also):
    source = Dataset.from_tensor_slices(NUMBERS)
    iterator = iter(also(source.apply(map_and_batch(_number, 2))))
    assert next(iterator).numpy().tolist() == [2.0, 4.0]
    with pytest.raises(tf.errors.InvalidArgumentError) as found:
        next(iterator)
    assert "Element 3 fails in StringToNumber" in found.value.message
    assert "test_data_errors.py" in found.value.message
    kept = source.apply(filter_map_and_batch(lambda x: (True, _number(x)), 2, refill=False))
    with pytest.raises(tf.errors.InvalidArgumentError, match="Element 3 fails"):
        list(kept)


def test_errors_of_functions_that_change_variables_name_the_batch():
    count = tf.Variable(0.0)

    def counted(text):
        count.assign_add(1.0)
        return _number(text)

    ds = Dataset.from_tensor_slices(NUMBERS).apply(map_and_batch(counted, 2))
    with pytest.raises(tf.errors.InvalidArgumentError, match="In batch 1 of the dataset"):
        list(ds)


def test_datasets_stay_what_they_are(tmp_path):
    ds = Dataset.from_tensor_slices(NUMBERS[:3]).apply(map_and_batch(_number, 2))
    iterator = iter(ds)
    next(iterator)
    path = tf.train.Checkpoint(it=iterator).write(str(tmp_path / "it"))
    other = iter(ds)
    tf.train.Checkpoint(it=other).read(path)
    assert next(other).numpy().tolist() == [6.0]
    assert isinstance(iterator, tf.data.Iterator)
    total = tf.function(lambda it: tf.reduce_sum(next(it)))
    assert total(iter(ds)) == 6.0
    assert sum(float(tf.reduce_sum(x)) for x in ds.unbatch().batch(3)) == 12.0


def test_options_have_one_place():
    for function, names in (
        (map_and_batch, ["fn", "batch_size"]),
        (filter_map_and_batch, ["fn", "batch_size", "refill"]),
        (vectorize, ["fn"]),
    ):
        found = inspect.signature(function).parameters
        defaults = [] if function is vectorize else ["choose", "num_parallel_calls"]
        assert set(found) >= {*names, *defaults, "fallback", "padded_shapes"}
        assert found["out_shapes"].default == "ragged"
        with pytest.raises(tf_pfor.ArgumentTypeError, match="no option 'falback'.*fallback"):
            function(identity, *[2][: len(names) - 1], falback="error")
