"""Examples that are parsed in a body: one parse for all rows, against a Python loop over them."""

import pytest
import tensorflow as tf

import tf_pfor
from tests.parsing.rows import EXACT, WAYS, floats, ints, text
from tests.ways import errors_of, table_of

Fixed, Var, Ragged = tf.io.FixedLenFeature, tf.io.VarLenFeature, tf.io.RaggedFeature
Sequence = tf.io.FixedLenSequenceFeature


def serialized(**features):
    found = tf.train.Features(feature=features)
    return tf.train.Example(features=found).SerializeToString()


def example(i):
    features = {
        "x": floats(i + 0.5, -1.0, 2.0 * i),
        "name": text(b"row %d" % i),
        "ids": ints(*range(i % 4)),
        "weights": floats(*[k + 0.25 for k in range(i % 4)]),
        "words": text(*[b"w%d" % k for k in range((i + 1) % 3)]),
        "pairs": floats(*[float(k) for k in range(2 * (i % 3))]),
        "splits": ints(*[0, i % 4 // 2, i % 4]),
    }
    if i % 2:
        features["label"] = ints(i)
        del features["words"]
    return serialized(**features)


EXAMPLES = tf.constant([example(i) for i in range(7)])
TABLE = tf.reshape(tf.range(24.0), [8, 3])


def one(s, **features):
    return tf.io.parse_single_example(s, features)


def dense(s):
    return one(
        s, x=Fixed([3], tf.float32), name=Fixed([], tf.string), label=Fixed([], tf.int64, -1)
    )


def doubled(s):
    row = dense(s)
    return row["x"] * 2.0, tf.strings.join([row["name"], "!"]), tf.one_hot(row["label"], 4)


def columns(s):
    row = one(s, ids=Var(tf.int64), weights=Var(tf.float32), x=Fixed([3], tf.float32))
    vectors = tf.gather(TABLE, row["ids"].values) * row["weights"].values[:, None]
    return tf.reduce_sum(vectors, 0) + row["x"]


def partitions(s):
    by_splits = Ragged(tf.int64, "ids", [Ragged.RowSplits("splits")])
    return one(s, r=by_splits)["r"]


BODIES = {
    "dense": dense,
    "dense, computed with": doubled,
    "the values of a sparse one": lambda s: one(s, ids=Var(tf.int64))["ids"].values,
    "a sparse one": lambda s: one(s, words=Var(tf.string), weights=Var(tf.float32)),
    "a sparse one of keys": lambda s: one(
        s, both=tf.io.SparseFeature("ids", "weights", tf.float32, 8))["both"],
    "made dense": lambda s: tf.sparse.to_dense(one(s, weights=Var(tf.float32))["weights"], -1.0),
    "text made dense": lambda s: tf.sparse.to_dense(one(s, words=Var(tf.string))["words"], "-"),
    "how many": lambda s: one(s, ids=Var(tf.int64))["ids"].dense_shape[0],
    "ragged": lambda s: one(s, ids=Ragged(tf.int64), words=Ragged(tf.string)),
    "ragged, int64 splits": lambda s: one(s, ids=Ragged(tf.int64, row_splits_dtype=tf.int64)),
    "of own length": lambda s: one(s, ids=Sequence([], tf.int64, allow_missing=True))["ids"],
    "pairs": lambda s: one(s, pairs=Sequence([2], tf.float32, allow_missing=True))["pairs"] + 1.0,
    "missing": lambda s: one(
        s, none=Var(tf.int64), also=Ragged(tf.float32), some=Sequence([2], tf.int64, True)),
    "all kinds": lambda s: one(s, x=Fixed([3, 1], tf.float32), ids=Var(tf.int64),
        words=Ragged(tf.string), weights=Sequence([], tf.float32, allow_missing=True)),
    "embedded": columns,
    "sums": lambda s: tf.reduce_sum(one(s, weights=Ragged(tf.float32))["weights"]),
    "buckets": lambda s: tf.strings.to_hash_bucket_fast(
        one(s, words=Var(tf.string))["words"].values, 5),
    "a vector": lambda s: tf.io.parse_example(
        tf.stack([s, s]), {"x": Fixed([3], tf.float32), "name": Fixed([], tf.string)}),
    "one by parse_example": lambda s: tf.io.parse_example(s, {"x": Fixed([3], tf.float32)}),
}  # fmt: skip


def several(s, **features):
    return tf.io.parse_example(s, features)


def of_vectors(s):
    """The features of a vector of examples in each row."""
    return several(
        s, x=Fixed([3], tf.float32), ids=Var(tf.int64), words=Ragged(tf.string),
        weights=Sequence([], tf.float32, allow_missing=True, default_value=-3.0),
        pairs=Sequence([2], tf.float32, allow_missing=True, default_value=9.0),
    )  # fmt: skip


def flat(nest):
    return tuple(tf.nest.flatten(nest))


def version_1(s):
    return flat(tf.raw_ops.ParseExample(
        serialized=s, names=[], sparse_keys=["words", "ids"], dense_keys=["label", "x"],
        dense_defaults=[tf.constant(-1, tf.int64), tf.constant([], tf.float32)],
        sparse_types=[tf.string, tf.int64], dense_shapes=[[], [3]],
    ))  # fmt: skip


def version_1_of_one(s):
    return flat(tf.raw_ops.ParseSingleExample(
        serialized=s, dense_defaults=[tf.constant(-1, tf.int64), tf.constant([], tf.float32)],
        num_sparse=2, sparse_keys=["words", "ids"], dense_keys=["label", "x"],
        sparse_types=[tf.string, tf.int64], dense_shapes=[[], [3]],
    ))  # fmt: skip


VECTORS = {
    "all kinds": of_vectors,
    "made dense": lambda s: tf.sparse.to_dense(several(s, ids=Var(tf.int64))["ids"]),
    "version 1": version_1,
}


def with_places(s, places_of):
    """The weights at other places."""
    found = one(s, weights=Var(tf.float32))["weights"]
    return tf.SparseTensor(places_of(found), found.values, found.dense_shape)


def reordered(s):
    """Elements in the reverse order, which the op sorts."""
    return tf.sparse.reorder(with_places(s, lambda x: x.dense_shape[0] - 1 - x.indices))


def embedded(s):
    ids = one(s, ids=Var(tf.int64))["ids"].values
    return tf.reduce_sum(tf.sin(tf.nn.embedding_lookup(VECTORS_OF_IDS, ids)), 0)


VECTORS_OF_IDS = tf.Variable(TABLE / 24.0)
test_table_of_examples = table_of(
    {
        **BODIES, "single, version 1": version_1_of_one, "reordered": reordered,
        "embedding": embedded,
    },
    EXAMPLES, ways=[*WAYS, "two maps", "around"],
    only={"two maps": ["dense, computed with"], "around": ["embedding"]},
    by=(VECTORS_OF_IDS,), tolerance=EXACT, slopes=(1e-6, 1e-6),
)  # fmt: skip
SHAPES = ([3, 2], [0, 2], [1, 4], [2, 1], [2, 0])
test_table_of_vectors = table_of(
    {
        f"{name}, {shape}": (
            body, tf.reshape(EXAMPLES[1 : 1 + shape[0] * shape[1]], shape))
        for name, body in VECTORS.items()
        for shape in SHAPES
    },
    ways=WAYS, tolerance=EXACT,
    only=dict.fromkeys(["function", "dataset"], [f"{name}, [3, 2]" for name in VECTORS]),
)  # fmt: skip

OF_OWN_NUMBER = {
    "x": lambda s: several(s, x=Fixed([3], tf.float32))["x"],
    "label": lambda s: several(s, label=Fixed([], tf.int64, -1))["label"],
    "sum of ids": lambda s: tf.reduce_sum(several(s, ids=Var(tf.int64))["ids"].values),
    "ids": lambda s: tf.sparse.to_dense(several(s, ids=Var(tf.int64))["ids"]),
    "places of ids": lambda s: several(s, ids=Var(tf.int64))["ids"].indices,
    "words": lambda s: several(s, words=Ragged(tf.string))["words"],
    "splits": lambda s: several(s, words=Ragged(tf.string))["words"].row_splits,
    "weights": lambda s: several(s,
        weights=Sequence([], tf.float32, allow_missing=True, default_value=-3.0))["weights"],
    "pairs": lambda s: several(s,
        pairs=Sequence([2], tf.float32, allow_missing=True, default_value=9.0))["pairs"],
    "version 1": lambda s: tf.reduce_sum(version_1(s)[-1]),
}  # fmt: skip
# As many examples as the row has.
test_table_of_own_numbers = table_of(
    OF_OWN_NUMBER, tf.RaggedTensor.from_row_lengths(EXAMPLES, [3, 0, 1, 3]),
    ways=["eager", "no rows", "unknown sizes"], tolerance=EXACT,
)  # fmt: skip


def test_names():
    """Names of the examples stand in errors."""

    def named(s):
        return tf.compat.v1.io.parse_single_example(
            s, {"none": Fixed([], tf.int64)}, name=None, example_names=tf.constant("mine")
        )

    with pytest.raises(tf.errors.InvalidArgumentError, match="mine"):
        tf_pfor.vectorized_map(named, EXAMPLES)


ERRORS = {
    "missing": {"label": Fixed([], tf.int64)},
    "of another type": {"x": Fixed([3], tf.int64)},
    "of another type, sparse": {"x": Var(tf.int64)},
    "of another type, ragged": {"x": Ragged(tf.string)},
    "too few": {"x": Fixed([4], tf.float32)},
    "no pairs": {"x": Sequence([2], tf.float32, allow_missing=True)},
}
# An error in one example is an error in the map.
test_errors = errors_of(
    {
        **{
            name: lambda s, features=features: tf.io.parse_single_example(s, features)
            for name, features in ERRORS.items()
        },
        "broken": (dense, tf.concat([EXAMPLES[:2], [b"no example"]], 0), "Could not parse"),
        # An index beyond the shape does not reach the next row.
        "an index beyond the shape": (
            lambda s: tf.sparse.to_dense(with_places(s, lambda x: x.indices + 1)), EXAMPLES,
            "out of bounds"),
        "repeated": (
            lambda s: tf.sparse.to_dense(with_places(s, lambda x: x.indices * 0)), EXAMPLES,
            "repeated"),
    },
    EXAMPLES,
)  # fmt: skip


@pytest.mark.parametrize("name", ERRORS)
def test_errors_of_one_example(name):
    with pytest.raises(tf.errors.InvalidArgumentError):
        tf.io.parse_single_example(EXAMPLES[0], ERRORS[name])


def test_xla_is_refused():
    mapped = tf.function(lambda x: tf_pfor.vectorized_map(dense, x), jit_compile=True)
    with pytest.raises(TypeError, match="XLA compiles numbers only"):
        mapped(EXAMPLES)


def test_one_parse():
    """One op parses all rows, whatever n is."""
    run = tf.function(lambda x: tf_pfor.vectorized_map(BODIES["all kinds"], x))
    graph = run.get_concrete_function(tf.TensorSpec([None], tf.string)).graph
    found = [op for op in graph.get_operations() if "Parse" in op.type]
    assert [op.type for op in found] == ["ParseExampleV2"]
    assert found[0].inputs[0].shape.as_list() == [None]
