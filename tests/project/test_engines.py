"""Engines of data that call ours, where they are installed: ``pip install ".[engines]"``.

Each runs a function of one row on batches of columns or elements, in local processes. Results are
compared with plain Python.
"""

import doctest
import importlib
import importlib.util
import os
import pathlib
import re
import shutil
import sys

import numpy as np
import pytest
import tensorflow as tf

import tf_pfor

pytestmark = pytest.mark.filterwarnings("default")  # theirs
DATA = {
    "x": [0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0],
    "text": ["a b", "c", "", "d e f", "ü", "g", "h"],
    "ids": [[], [7], [1, 2], [3, 4, 5], [], [6], [8, 9]],
}
ROWS = [dict(zip(DATA, row)) for row in zip(*DATA.values())]


def features(row):
    return {
        "double": 2.0 * row["x"],
        "words": tf.strings.split(row["text"]),
        "back": row["ids"][::-1],
        "pair": tf.stack([row["x"], row["x"]]),
    }


WANTED = [
    {"double": 2 * x, "words": text.split(), "back": ids[::-1], "pair": [x, x]}
    for x, text, ids in zip(*DATA.values())
]


def engine(name):
    """The module of an engine, or a skip with what to install."""
    return pytest.importorskip(name, reason=f"{name} is not installed: pip install '.[engines]'")


def plain(row):
    """A row of Python values."""
    return {k: x.tolist() if isinstance(x, np.ndarray) else x for k, x in row.items()}


@pytest.fixture
def mapped():
    return tf_pfor.column_function(features)


# -- Arrow and pandas ------------------------------------------------------------------------------


@pytest.mark.parametrize("of", ["table", "chunks", "slice", "record batch"])
def test_arrow(mapped, of):
    arrow = engine("pyarrow")
    table = arrow.table(DATA)
    if of == "chunks":
        table = arrow.concat_tables([table.slice(0, 2), table.slice(2)])
    given = table.slice(2, 4) if of == "slice" else table
    given = given.to_batches()[0] if of == "record batch" else given
    found = mapped(given)
    assert type(found) is type(given)
    assert found.to_pylist() == (WANTED[2:6] if of == "slice" else WANTED)
    assert found.schema.field("back").type == arrow.list_(arrow.int64())
    assert found.schema.field("pair").type == arrow.list_(arrow.float64())


def test_types_of_arrow():
    arrow = engine("pyarrow")
    grids = arrow.array(
        [[[1.0, 2.0], [3.0, 4.0]], []], arrow.list_(arrow.list_(arrow.float32(), 2))
    )
    table = arrow.table(
        {
            "kind": arrow.array(["u", "v"]).dictionary_encode(),
            "grid": grids,
            "bytes": arrow.array([b"\xff", b""], arrow.large_binary()),
            "flag": arrow.array([True, False]),
            "deep": arrow.array([[["a"], []], []]),
        }
    )
    mapped = tf_pfor.column_function(
        lambda row: {**row, "n": tf.shape(row["grid"])}, binary=["bytes"]
    )
    found = mapped(table).to_pydict()
    assert found["n"] == [[2, 2], [0, 2]]
    assert {k: v for k, v in found.items() if k != "n"} == table.to_pydict()


@pytest.mark.parametrize(
    ("column", "message"),
    [
        ([1, None], "1 missing values"),
        ([[1], [None]], "1 missing values"),
        ([{"a": 1}], "Arrow type struct"),
    ],
)
def test_columns_that_are_no_tensors(column, message):
    arrow = engine("pyarrow")
    with pytest.raises(tf_pfor.PforError, match=message):
        tf_pfor.column_function(lambda row: row)(arrow.table({"x": column}))


def test_missing_values_inside_of_an_extension_type():
    arrow = engine("pyarrow")
    storage = arrow.array([[1, 2], [3, None]], arrow.list_(arrow.int64(), 2))
    kind = arrow.fixed_shape_tensor(arrow.int64(), [2])
    column = arrow.ExtensionArray.from_storage(kind, storage)
    with pytest.raises(tf_pfor.ArgumentError, match="'x' has 1 missing values"):
        tf_pfor.column_function(lambda row: row)(arrow.table({"x": column}))


def test_missing_values_of_pandas():
    pandas = engine("pandas")
    for column in (pandas.array([1, None], "Int64"), pandas.array([True, None], "boolean")):
        with pytest.raises(tf_pfor.ArgumentError, match="'x' has 1 missing values"):
            tf_pfor.column_function(lambda row: row)(pandas.DataFrame({"x": column}))


def test_no_utf8():
    arrow = engine("pyarrow")
    with pytest.raises(tf_pfor.ArgumentError, match="no UTF-8"):
        tf_pfor.column_function(lambda row: row)(arrow.table({"x": [b"\xff"]}))


def test_pandas(mapped):
    pandas = engine("pandas")
    frame = pandas.DataFrame(DATA, index=range(10, 17))
    found = mapped(frame)
    assert found.index.tolist() == [*range(10, 17)]
    assert [plain(row) for row in found.to_dict("records")] == WANTED


# -- Engines ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("form", [None, "arrow", "numpy"])
def test_hugging_face(mapped, form, monkeypatch, tmp_path):
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setenv("HF_HOME", str(tmp_path))
    datasets = engine("datasets")
    rows = datasets.Dataset.from_dict(DATA)
    made = rows.with_format(form).map(mapped, batched=True, batch_size=3, remove_columns=[*DATA])
    assert [*made.with_format(None)] == WANTED
    hashed = datasets.fingerprint.Hasher.hash
    assert hashed(mapped) == hashed(tf_pfor.column_function(features)), "its cache finds it again"


@pytest.fixture(scope="module")
def workers():
    """Processes that engines start run this Python, and find the tests."""
    with pytest.MonkeyPatch.context() as patch:
        root = str(pathlib.Path(__file__).resolve().parents[2])
        patch.setenv("PYTHONPATH", os.pathsep.join([root, os.environ.get("PYTHONPATH", "")]))
        patch.setenv("PYSPARK_PYTHON", sys.executable)
        yield


@pytest.fixture(scope="module")
def ray(workers):
    made = engine("ray")
    engine("pyarrow")
    made.init(num_cpus=2, log_to_driver=False, configure_logging=False, include_dashboard=False)
    made.data.DataContext.get_current().enable_progress_bars = False
    yield made
    made.shutdown()


@pytest.mark.parametrize("form", ["numpy", "pyarrow", "pandas"])
def test_ray(ray, mapped, form):
    rows = ray.data.from_items(ROWS, override_num_blocks=2)
    if form == "numpy":  # a block whose lists have one length is an array, so say what a cell is
        spec = {"x": None, "text": None, "ids": tf.TensorSpec([None], tf.int64)}
        mapped = tf_pfor.column_function(features, columns=spec)
    made = rows.map_batches(mapped, batch_size=3, batch_format=form).take_all()
    assert sorted(map(plain, made), key=lambda row: row["double"]) == WANTED


@pytest.fixture(scope="module")
def spark(workers):
    sql = engine("pyspark.sql")
    engine("pyarrow")
    if shutil.which("java") is None:
        pytest.skip("Spark needs Java, and none is on the path")
    made = sql.SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
    made = made.config("spark.sql.shuffle.partitions", "2").getOrCreate()
    yield made
    made.stop()


def test_spark(spark, mapped):
    frame = spark.createDataFrame(
        [tuple(row.values()) for row in ROWS], "x double, text string, ids array<long>"
    )
    made = frame.mapInArrow(
        lambda batches: map(mapped, batches),
        "double double, words array<string>, back array<long>, pair array<double>",
    )
    found = sorted((row.asDict() for row in made.collect()), key=lambda row: row["double"])
    assert found == WANTED


def test_spark_predicts(spark):
    functions = importlib.import_module("pyspark.ml.functions")
    types = importlib.import_module("pyspark.sql.types")
    product = tf_pfor.column_function(lambda row: {"y": row["x"] * row["z"]})
    make = lambda: lambda x, z: product({"x": x, "z": z})["y"]
    udf = functions.predict_batch_udf(make, return_type=types.DoubleType(), batch_size=4)
    frame = spark.createDataFrame([(float(i), 2.0) for i in range(7)], "x double, z double")
    found = sorted(row.y for row in frame.select(udf("x", "z").alias("y")).collect())
    assert found == [2.0 * i for i in range(7)]


# -- The page --------------------------------------------------------------------------------------

PAGE = pathlib.Path(__file__).resolve().parents[2] / "docs" / "many_machines.md"
BLOCKS = re.findall(r"```py\n# needs (\w+)\n(.*?)```", PAGE.read_text(), re.DOTALL)


@pytest.mark.parametrize(("name", "block"), BLOCKS, ids=[name for name, _ in BLOCKS])
def test_the_page(name, block, request):
    """A block of the page for an engine, with the function of the page."""
    engine(name)
    if name in ("ray", "pyspark"):
        request.getfixturevalue("spark" if name == "pyspark" else name)

    def of_page(row):
        words = tf.strings.split(row["text"])
        return {"words": words, "count": tf.size(words), "last": row["ids"][-2:]}

    names = {"batched": tf_pfor.column_function(of_page), "tf_pfor": tf_pfor, "__name__": "page"}
    exec(compile(block, str(PAGE), "exec"), names)


# -- Beam ------------------------------------------------------------------------------------------

IDS = {"ids": tf.TensorSpec([None], tf.int64)}


def of_pipeline(elements, transform, wanted):
    """Checks the elements that a transform makes in a pipeline on this machine."""
    beam = engine("apache_beam")
    util = importlib.import_module("apache_beam.testing.util")
    with beam.Pipeline() as pipeline:
        made = pipeline | beam.Create(elements) | transform(beam)
        util.assert_that(made, util.equal_to(wanted))


def test_beam():
    of_pipeline(
        ROWS * 40, lambda beam: tf_pfor.beam.Map(features, spec=IDS) | beam.Map(plain), WANTED * 40
    )


def test_keys_of_beam_are_python_values():
    fn = lambda pair: (pair[0], pair[1] * 2)
    pairs = [("a", 1), ("b", 2), ("a", 3)]
    of_pipeline(
        pairs, lambda beam: tf_pfor.beam.Map(fn) | beam.CombinePerKey(sum), [("a", 8), ("b", 4)]
    )


def test_windows_of_beam():
    """Elements stay in their windows: sums of windows of ten seconds."""

    def summed(beam):
        window = importlib.import_module("apache_beam.transforms.window")
        return (
            beam.Map(lambda x: window.TimestampedValue(x, x))
            | beam.WindowInto(window.FixedWindows(10))
            | tf_pfor.beam.Map(lambda x: x * 2)
            | beam.CombineGlobally(sum).without_defaults()
        )

    of_pipeline([*range(20)], summed, [2 * sum(range(10)), 2 * sum(range(10, 20))])


def test_a_bundle_that_runs_again_gives_the_same_rows():
    """A worker that is lost runs its bundle again elsewhere: the function has no state."""
    engine("apache_beam")
    cloudpickle = importlib.import_module("cloudpickle")
    elements = importlib.import_module("tf_pfor.frontends.columns._elements")
    of_batch = elements.ElementsFunction(features, IDS, {}, binary=False)
    elsewhere = cloudpickle.loads(cloudpickle.dumps(of_batch))
    found = [[plain(row) for row in made(ROWS)] for made in (of_batch, of_batch, elsewhere)]
    assert found == [WANTED] * 3


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"min_batch_size": 0}, "min_batch_size must be a positive int"),
        ({"min_batch_size": 9, "max_batch_size": 3}, "at most max_batch_size"),
        ({"binary": "x"}, "binary must be a bool"),
        ({"batch_size": 3}, "no option 'batch_size'"),
    ],
)
def test_wrong_use_of_beam(options, message):
    engine("apache_beam")
    with pytest.raises(tf_pfor.PforError, match=message):
        tf_pfor.beam.Map(features, **options)


def test_the_example_of_beam():
    engine("apache_beam")
    finder, runner = doctest.DocTestFinder(recurse=False), doctest.DocTestRunner()
    for test in finder.find(tf_pfor.beam.Map, "Map", globs={}):
        runner.run(test)
    assert runner.summarize().failed == 0


@pytest.mark.skipif(importlib.util.find_spec("apache_beam") is not None, reason="Beam is installed")
def test_beam_says_what_to_install():
    with pytest.raises(ImportError, match=r"tf-pfor\[beam\]"):
        _ = tf_pfor.beam.Map
