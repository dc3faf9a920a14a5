"""``column_function`` gives, for columns of NumPy and lists, what its function gives row by row."""

import collections
import pickle

import numpy as np
import pytest
import tensorflow as tf

import tf_pfor
from tests.cases import errors
from tests.comparisons import in_threads
from tf_pfor import ArgumentError, ArgumentTypeError, column_function
from tf_pfor.frontends.columns._elements import ElementsFunction

RNG = np.random.default_rng(0)
arrays = lambda *shapes: [RNG.normal(size=shape) for shape in shapes]
BATCH = {
    "number": np.array([1.5, -2.0, 3.0], np.float32),
    "flag": np.array([True, False, True]),
    "vector": RNG.normal(size=[3, 4]),
    "text": np.array(["a b", "", "ü c d"]),
    "words": [["x", "yy"], [], ["zzz"]],
    "ids": [[1, 2, 3], [], [4]],
    "signal": arrays([2], [0], [5]),
    "image": arrays([2, 3, 3], [0, 2, 3], [1, 4, 3]),
    "nested": [[[1, 2], [3]], [[4]], []],
    "bytes": [b"\xff", b"a", b""],
    "labels": [np.array([["a", "b"]], object), np.full([0, 2], "", object), np.full([2, 2], "c")],
}


def one(row):
    """A result of each kind of column."""
    return {
        "number": row["number"] * 2.0,
        "flag": tf.logical_not(row["flag"]),
        "vector": row["vector"][:2],
        "text": tf.strings.upper(row["text"]),
        "split": tf.strings.split(row["text"]),
        "words": row["words"][::-1],
        "lengths": tf.strings.length(row["words"]),
        "ids": row["ids"][::-1],
        "count": tf.size(row["ids"]),
        "signal": tf.cumsum(row["signal"]),
        "image": row["image"][:, ::-1] * 2.0,
        "shape": tf.shape(row["image"]),
        "nested": row["nested"] + 1,
        "bytes": row["bytes"],
        "labels": tf.strings.join([row["labels"], "!"]),
        "constant": 7,
    }


def by_rows(fn, batch):
    """The results of ``fn``, called with one row after the other."""
    count = len(next(iter(batch.values())))
    made = []
    for i in range(count):
        row = {name: column[i] for name, column in batch.items()}
        row = {name: as_tensor(name, cell) for name, cell in row.items()}
        made.append({k: plain(x) for k, x in fn(row).items()})
    return made


def as_tensor(name, cell):
    if name == "nested":
        return tf.ragged.constant(cell, tf.int64, ragged_rank=1)
    dtypes = {"ids": tf.int64, "words": tf.string, "labels": tf.string}
    return tf.constant(cell, dtypes.get(name))


def plain(x):
    return x.to_list() if isinstance(x, tf.RaggedTensor) else tf.convert_to_tensor(x).numpy()


def assert_cells(found, wanted, *, binary=("bytes",)):
    """Columns of cells, against the results of rows."""
    assert list(found) == list(wanted[0])
    for name, column in found.items():
        assert len(column) == len(wanted)
        for cell, row in zip(column, wanted):
            expected = row[name]
            if name not in binary and getattr(expected, "dtype", np.dtype(bool)).kind == "O":
                expected = np.vectorize(bytes.decode, otypes=[object])(expected)
            if isinstance(expected, list):
                assert [x.tolist() for x in cell] == expected, name
            elif isinstance(expected, bytes):
                assert cell in (expected, expected.decode(errors="replace")), name
            else:
                assert np.shape(cell) == np.shape(expected) or not np.size(expected), name
                np.testing.assert_array_equal(np.ravel(cell), np.ravel(expected), name)


def test_results_are_those_of_rows():
    mapped = column_function(one, binary=["bytes"])
    assert_cells(mapped(BATCH), by_rows(one, BATCH))


def test_forms_of_results():
    found = column_function(one, binary=["bytes"])(BATCH)
    assert found["vector"].shape == (3, 2)
    assert found["vector"].dtype == np.float64
    assert found["number"].dtype == np.float32
    assert found["text"].tolist() == ["A B", "", "ü C D"]
    assert found["bytes"].tolist() == [b"\xff", b"a", b""]
    assert found["ids"].dtype == object
    assert found["ids"][0].dtype == np.int64
    assert found["image"][2].shape == (1, 4, 3)


def test_two_sizes_are_two_traces_and_more_sizes_no_more():
    traces = []

    def fn(row):
        traces.append(row["x"].shape)
        return {"sum": tf.reduce_sum(row["x"])}

    mapped = column_function(fn)
    for n, size in ((3, 4), (5, 4), (2, 6), (1, 7), (4, 9)):
        x = RNG.normal(size=[n, size])
        np.testing.assert_allclose(mapped({"x": x})["sum"], x.sum(1))
    assert [shape.as_list() for shape in traces] == [[4], [None]]


def test_columns_are_chosen():
    mapped = column_function(lambda row: {"y": row["x"] + 1}, columns=["x"])
    assert mapped({"x": [1, 2], "other": [object(), None]})["y"].tolist() == [2, 3]


SPEC = {
    "ids": tf.TensorSpec([None], tf.int32),
    "fixed": tf.TensorSpec([2], tf.float32),
    "grid": tf.TensorSpec([None, 2], tf.float32),
    "deep": tf.RaggedTensorSpec([None, None], tf.int64, 1),
}


def described(row):
    return {
        "ids": tf.size(row["ids"]),
        "fixed": row["fixed"],
        "grid": tf.shape(row["grid"]),
        "deep": row["deep"],
    }


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"ids": np.zeros([2, 3], np.int32)},
        {"ids": [[], []]},
        {"grid": [[], []]},
        {"deep": [[], []]},
        {"deep": [[[], []], []]},
        {"fixed": [[1, 2], [3, 4]]},
        {"fixed": [np.ones(2), np.ones(2)]},
        {"grid": [np.ones([1, 2]), np.ones([0, 2])]},
        {"grid": np.ones([2, 3, 2])},
    ],
)
def test_the_spec_of_a_cell(changes):
    batch = {
        "ids": [[1, 2], []],
        "fixed": np.ones([2, 2]),
        "grid": [[[1, 2], [3, 4]], [[5, 6]]],
        "deep": [[[1], []], [[2, 3]]],
    }
    batch.update(changes)
    found = column_function(described, columns=SPEC)(batch)
    assert found["ids"].tolist() == [len(x) for x in batch["ids"]]
    assert found["fixed"].dtype == np.float32
    np.testing.assert_array_equal(found["fixed"], np.array(batch["fixed"]))
    shapes = [list(np.shape(x)) if len(x) else [0, 2] for x in batch["grid"]]
    assert found["grid"].tolist() == shapes
    assert [[x.tolist() for x in cell] for cell in found["deep"]] == batch["deep"]


def test_no_rows():
    empty = {"ids": [], "fixed": [], "grid": np.zeros([0, 3, 2]), "deep": []}
    found = column_function(described, columns=SPEC)(empty)
    shapes = {name: column.shape for name, column in found.items()}
    assert shapes == {"ids": (0,), "fixed": (0, 2), "grid": (0, 2), "deep": (0,)}


@pytest.mark.parametrize(
    ("column", "spec", "dtype"),
    [
        ([1, 200], tf.TensorSpec([], tf.uint8), np.uint8),
        ([2**63, 1.0], None, np.float64),
        ([2**24, -3], tf.TensorSpec([]), np.float32),
        (np.ma.array([1, 2]), None, np.int64),
        (range(3), None, np.int64),
        (collections.deque([1, 2]), None, np.int64),
        (tf.constant([1, 2]), tf.TensorSpec([], tf.int8), np.int8),
    ],
)
def test_values_that_fit(column, spec, dtype):
    found = column_function(lambda row: row, columns={"x": spec})({"x": column})["x"]
    assert found.dtype == dtype
    assert found.tolist() == [*map(dtype, column)]


def test_the_dtype_of_empty_cells_does_not_count():
    found = column_function(lambda row: row)({"x": [np.array([2**60 + 1]), np.array([])]})["x"]
    assert [x.tolist() for x in found] == [[2**60 + 1], []]
    assert found[1].dtype == np.int64


@pytest.mark.parametrize("ids", [[1, 2, 3], [[1], [], [2, 3]], [[[1]], [], [[2], []]]])
def test_a_failure_names_the_row(ids):
    mapped = column_function(lambda row: {"y": tf.strings.to_number(row["x"]), "ids": row["ids"]})
    with pytest.raises(tf.errors.InvalidArgumentError) as found:
        mapped({"x": ["1", "2", "three"], "ids": ids})
    first, second = str(found.value).splitlines()[:2]
    assert first.startswith("Row 2 of the batch fails in StringToNumber (")
    assert "test_columns.py" in first
    assert second == f"The row: {{'x': b'three', 'ids': {ids[2]}}}"


def test_a_failure_after_an_update_is_not_repeated():
    count = tf.Variable(0)

    def fn(row):
        count.assign_add(1)
        return {"y": tf.strings.to_number(row["x"])}

    with pytest.raises(tf.errors.InvalidArgumentError, match="In a batch of 2 rows"):
        column_function(fn)({"x": ["1", "two"]})
    assert count.numpy() <= 2


def test_variables_and_randomness():
    w = tf.Variable(2.0)
    mapped = column_function(
        lambda row: {"y": row["x"] * w + tf.random.uniform([])}, randomness="same"
    )
    x = np.zeros(4, np.float32)
    assert len(set(mapped({"x": x})["y"].tolist())) == 1
    w.assign(100.0)
    assert mapped({"x": x + 1})["y"].min() >= 100.0


def test_reports():
    mapped = column_function(one, binary=["bytes"])
    report = tf_pfor.explain(mapped, BATCH)
    assert report.totals["vectorized"] > 5
    assert report.name == "one"
    assert tf_pfor.check(mapped, BATCH)
    with pytest.raises(ArgumentError, match="one batch of columns"):
        tf_pfor.explain(mapped, 1, 2)


def test_settings_are_followed():
    mapped = column_function(lambda row: {"y": row["x"] + tf.random.uniform([])})
    x = {"x": np.zeros(4, np.float32)}
    assert len({*mapped(x)["y"].tolist()}) == 4
    with tf_pfor.settings(randomness="same"):
        assert len({*mapped(x)["y"].tolist()}) == 1


def test_threads():
    mapped = column_function(one, binary=["bytes"])
    wanted = by_rows(one, BATCH)
    for found in in_threads(mapped, [BATCH] * 16):
        assert_cells(found, wanted)


def doubled(row):
    return {"y": 2 * row["x"]}


def test_pickle():
    mapped = column_function(doubled, columns={"x": tf.TensorSpec([], tf.float32)})
    assert mapped({"x": [1.0]})["y"].tolist() == [2.0]
    again = pickle.loads(pickle.dumps(mapped))
    assert again({"x": [1.0, 2.0]})["y"].tolist() == [2.0, 4.0]
    assert repr(again) == "column_function(doubled)"


WRONG = {
    "missing": ({"x": [1, None]}, "1 missing values"),
    "mixed": ({"x": [1, "a"]}, "different types: number, text"),
    "objects": ({"x": [object()]}, "cells of type object|dtype object"),
    "dates": ({"x": np.array(["2020-01-01"], "datetime64[D]")}, "datetime64"),
    "ranks": ({"x": arrays([1], [1, 1])}, "numbers of axes"),
    "unknown dtype": ({"x": [[], []]}, "dtype is unknown"),
    "no rows": ({"x": np.array(1.0)}, "expected a NumPy array with rows"),
    "lengths": ({"x": [1, 2], "y": [1]}, "must have one length"),
    "no columns": ({}, "has no columns"),
    "no batch": ([1, 2], "called with a list"),
    "scalar": ({"x": tf.constant(1)}, "with rows"),
    "masked": ({"x": np.ma.array([1, 2], mask=[0, 1])}, "'x' has 1 missing values"),
    "masked cells": ({"x": [np.ma.array([1, 2], mask=[1, 1])]}, "'x' has 2 missing values"),
    "masked lists": ({"x": [[1.0, np.ma.masked]]}, "'x' has 1 missing values"),
    "integers of two dtypes": ({"x": [2**63, -1]}, "'x' has integers from -1 to 92"),
    "large integer": ({"x": [2**70]}, "'x' has the integer 118"),
    "beside floats": ({"x": [2**53 + 1, 0.5]}, "'x' has the integer 9007199254740993 beside"),
    "arrays beside floats": ({"x": [np.array([2**53 + 1]), np.array([0.5])]}, "beside floats"),
    "arrays of two dtypes": ({"x": [np.array([1], "u8"), np.array([1])]}, "dtypes int64, uint64"),
    "arrays of texts": ({"x": [np.array([1]), np.array(["1"])]}, "beside arrays of texts"),
    "surrogate": ({"x": ["\ud800"]}, r"'x' has the text '\\ud800'"),
    "long double": ({"x": np.ones(1, np.longdouble)}, "'x' has dtype float"),
}


@pytest.mark.parametrize("name", WRONG)
def test_wrong_batches(name):
    batch, message = WRONG[name]
    with pytest.raises((ArgumentError, ArgumentTypeError), match=message):
        column_function(lambda row: {"y": row["x"]})(batch)


MISFITS = {
    "shape": (np.ones([2, 3]), tf.TensorSpec([2]), "cells of shape"),
    "rank": (np.ones([2, 3]), tf.TensorSpec([]), "cells of shape"),
    "lists": ([[1.0], [1.0, 2.0]], tf.TensorSpec([2]), "cells of shape"),
    "uneven rows": ([[[1.0], [1.0, 2.0]]], tf.TensorSpec([None, None]), "cells of shape"),
    "dtype": ([1.5, 2.5], tf.TensorSpec([], tf.int32), "dtype float64, expected int32"),
    "text": (["a"], tf.TensorSpec([], tf.int32), "expected int32"),
    "large": ([2**40 + 5, 3], tf.TensorSpec([], tf.int32), "value 1099511627781 .* says int32"),
    "large in lists": ([[300], [1]], tf.TensorSpec([None], tf.int8), "value 300 .* says int8"),
    "large in arrays": (
        [np.array([300]), np.array([1, 2])], tf.TensorSpec([None], tf.int8), "value 300",
    ),
    "large in a tensor": (tf.constant([300]), tf.TensorSpec([], tf.int8), "value 300"),
    "sign": ([-1], tf.TensorSpec([], tf.uint64), "from 0 to"),
    "unsigned": ([2**63], tf.TensorSpec([], tf.int64), "value 9223372036854775808"),
    "rounded": ([2**24 + 1], tf.TensorSpec([], tf.float32), "16777217 .* without rounding"),
    "infinite": ([1e39], tf.TensorSpec([], tf.float32), "that do not become infinite"),
    "no text": ([1], tf.TensorSpec([], tf.string), "expected string"),
    "not ragged": ([[1.0]], tf.RaggedTensorSpec([None, None], tf.float32, 1), "cells of shape"),
}  # fmt: skip


@pytest.mark.parametrize("name", MISFITS)
def test_cells_that_do_not_fit(name):
    column, spec, message = MISFITS[name]
    with pytest.raises(ArgumentError, match=message):
        column_function(lambda row: {"y": row["x"]}, columns={"x": spec})({"x": column})


test_wrong_use = errors(
    (lambda: column_function(3), "fn must be a function"),
    (lambda: column_function(one, columns="x"), "columns must be a list of names"),
    (lambda: column_function(one, columns={"x": 3}), "tf.TensorSpec"),
    (lambda: column_function(one, binary="x"), "binary must be a list of names"),
    (lambda: column_function(one, out_shapes="dense"), "no option 'out_shapes'"),
    (lambda: column_function(one, fallback="no"), "fallback"),
    (lambda: column_function(one, columns=["xy"])({"x": [1]}), "has no column 'xy'"),
    (lambda: tf.function(lambda: column_function(one)(BATCH))(), "Call it outside"),
    (lambda: column_function(lambda row: row["x"])({"x": [1]}), "expected a dict of tensors"),
    (lambda: column_function(lambda row: {"y": {}})({"x": [1]}), "for column 'y'"),
    (lambda: column_function(lambda row: row)({"x": [b"\xff"]}), "no UTF-8"),
    (lambda: column_function(doubled, binary=["z"])({"x": [1]}), "no result 'z'"),
    (lambda: column_function(lambda row: {"y": row["xy"]})({"x": [1]}), "'xy', .* row lacks"),
    error=(ArgumentError, ArgumentTypeError),
)


# -- Elements one by one, as Beam has them ---------------------------------------------------------


of_elements = lambda fn, spec=None, binary=False: ElementsFunction(fn, spec, {}, binary=binary)


def test_elements():
    def fn(pair):
        key, value = pair
        return key, {"sum": tf.reduce_sum(value["ids"]), "back": value["ids"][::-1]}

    elements = [("a", {"ids": [1, 2]}), ("b", {"ids": [3]})]
    found = of_elements(fn)(elements)
    assert [(key, value["sum"], value["back"].tolist()) for key, value in found] == [
        ("a", 3, [2, 1]),
        ("b", 3, [3]),
    ]
    assert [type(found[0][0]), type(found[0][1]["sum"])] == [str, int]
    assert of_elements(fn)([]) == []
    assert of_elements(tf.square)([2.0, 3.0]) == [4.0, 9.0]
    assert of_elements(tf.identity, binary=True)(["a"]) == [b"a"]
    found = of_elements(tf.square, tf.TensorSpec([None]))([[], []])
    assert [x.shape for x in found] == [(0,), (0,)]


@pytest.mark.parametrize(
    ("elements", "spec", "message"),
    [
        ([{"a": 1}, {"b": 1}], None, "in another element a dict with the keys"),
        ([{"a": 1}, {"a": 1, "b": 1}], None, "in another element a dict with the keys"),
        ([(1, 2), 3], None, "in another element a int"),
        ([(1, 2)], {"a": None}, "spec is"),
    ],
)
def test_wrong_elements(elements, spec, message):
    with pytest.raises((ArgumentError, ArgumentTypeError), match=message):
        of_elements(lambda x: tf.nest.flatten(x)[0], spec)(elements)
