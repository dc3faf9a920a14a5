"""``tf_pfor.data.map_and_batch`` gives the results of ``map(fn).batch(n)`` over whole batches."""

import collections

import keras
import numpy as np
import pytest
import tensorflow as tf

import tf_pfor
from tests.cases import grid
from tests.comparisons import in_threads, value_and_gradient
from tests.frontends.datasets import Dataset, assert_rows, results, rows
from tf_pfor.data import map_and_batch, vectorize

Pair = collections.namedtuple("Pair", "x y")
RNG = np.random.default_rng(0)
X = RNG.normal(size=[10, 3]).astype(np.float32)
RAGGED = tf.ragged.constant([[1, 2], [], [3], [4, 5, 6], [7]])
DEEP = tf.ragged.constant([[[1.0, 2.0], [3.0]], [], [[4.0], [5.0, 6.0], []]], ragged_rank=2)
SPARSE = tf.sparse.from_dense([[0, 1, 0], [2, 0, 3], [0, 0, 0], [4, 5, 6]])
TEXT = tf.constant(["a b c", "", "d", "e f", "g h i j"])
of_range = lambda n: Dataset.range(n)
# int64 rows of 0 to 6 elements.
ranges = lambda: Dataset.range(7).map(tf.range)


def images():
    """Images of different sizes, three channels; one without rows, one without columns."""
    sizes = tf.constant([[3, 2], [1, 4], [0, 3], [2, 0], [2, 2]])
    return Dataset.from_tensor_slices(sizes).map(
        lambda s: tf.random.stateless_normal(tf.concat([s, [3]], 0), s)
    )


def mixed():
    """Dense components whose shape differs, beside ragged and sparse components."""
    return Dataset.range(5).map(
        lambda i: {
            "grid": tf.cast(tf.ones([i, i + 1]), tf.int64) * i,
            "text": tf.strings.as_string(tf.ones([2, i], tf.int64) * i),
            "bag": tf.RaggedTensor.from_row_lengths(tf.range(2 * i), [i, i]),
            "sparse": tf.sparse.from_dense([i, 0, 1]),
        }
    )


def same_places(e):
    return {
        "shape": tf.shape(e["grid"]), "sum": tf.reduce_sum(e["grid"], 1), "text": e["text"],
        "bag": e["bag"], "sparse": tf.sparse.to_dense(e["sparse"]) + 1,
    }  # fmt: skip


CASES = {
    "scalars": (lambda: of_range(7), lambda i: i * i + 1),
    "pair": (lambda: Dataset.from_tensor_slices((X, X[:, 0])), lambda x, y: (x * y, tf.norm(x))),
    "dict": (lambda: Dataset.from_tensor_slices({"x": X}), lambda e: {"s": tf.reduce_sum(e["x"])}),
    "one in a tuple": (lambda: Dataset.from_tensor_slices((X,)), lambda x: x + 1),
    "tuple in a tuple": (
        lambda: Dataset.from_tensor_slices(((X, X[:, 0]),)), lambda p: p[0] * p[1],
    ),
    "namedtuple": (
        lambda: Dataset.from_tensor_slices(Pair(X, X[:, 1])), lambda p: Pair(p.x - p.y, p.y),
    ),
    "list of results": (lambda: Dataset.from_tensor_slices(X), lambda x: [x, x[0], x[:2]]),
    "list in results": (lambda: Dataset.from_tensor_slices(X), lambda x: (tf.stack([x, x]), x)),
    "strings": (
        lambda: Dataset.from_tensor_slices(TEXT), lambda t: (tf.strings.length(t), t + "!"),
    ),
    "ragged": (
        lambda: Dataset.from_tensor_slices(RAGGED), lambda r: (tf.reduce_sum(r), r * 2, tf.size(r)),
    ),
    "own lengths": (ranges, lambda r: (tf.reduce_sum(r), r[::-1], tf.shape(r))),
    "images": (images, lambda x: (tf.shape(x), x * 2, tf.reduce_sum(x, [0, 1]))),
    "results of own length": (lambda: of_range(6), lambda i: (tf.range(i), i)),
    "branch": (lambda: of_range(9), lambda i: tf.cond(i > 4, lambda: i, lambda: -i)),
    "same for all": (lambda: of_range(5), lambda i: (tf.constant([1, 2]), i)),
}  # fmt: skip
LOOPED = {
    "deep": (
        lambda: Dataset.from_tensor_slices(DEEP), lambda d: tf.reduce_sum(d, axis=1),
    ),
    "sparse": (lambda: Dataset.from_tensor_slices(SPARSE), lambda s: tf.sparse.reduce_sum(s)),
    "mixed": (mixed, same_places),
    "split": (lambda: Dataset.from_tensor_slices(TEXT), tf.strings.split),
}  # fmt: skip


@grid(name=CASES, drop=[False, True])
def test_against_a_loop(name, drop):
    make, fn = CASES[name]
    dataset = make()
    found = dataset.apply(map_and_batch(fn, 3, drop_remainder=drop, fallback="error"))
    wanted = results(fn, dataset)
    if drop:
        wanted = wanted[: len(wanted) // 3 * 3]
    assert_rows(rows(found), wanted)
    by_loop = dataset.map(fn).batch(3, drop)
    assert found.cardinality() == by_loop.cardinality()
    dense = [x for x in tf.nest.flatten(found.element_spec) if isinstance(x, tf.TensorSpec)]
    assert all(x.shape[0] == (3 if drop else None) for x in dense)


@pytest.mark.filterwarnings("ignore::tf_pfor.FallbackWarning")
@pytest.mark.parametrize("name", LOOPED)
def test_what_still_loops(name):
    make, fn = LOOPED[name]
    found = make().apply(map_and_batch(fn, 2))
    assert_rows(rows(found), results(fn, make()))


@pytest.mark.parametrize("name", ["pair", "dict", "namedtuple", "strings", "list of results"])
def test_the_spec_is_that_of_map_and_batch(name):
    make, fn = CASES[name]
    for drop in (False, True):
        by_loop = make().map(fn).batch(3, drop)
        assert make().apply(map_and_batch(fn, 3, drop_remainder=drop)).element_spec == (
            by_loop.element_spec
        )


def test_a_list_in_the_results_is_a_tensor():
    found = of_range(4).apply(map_and_batch(lambda i: (i, [i, -i]), 2))
    assert_rows(rows(found), [[i, np.array([i, -i])] for i in np.arange(4)])


@pytest.mark.parametrize("kind", [dict, collections.OrderedDict, collections.defaultdict])
def test_lists_in_mappings(kind):
    def fn(i):
        made = kind(list) if kind is collections.defaultdict else kind()
        made["b"] = [i, -i]
        made["a"] = {"c": (i, [i])}
        return made

    found = of_range(4).apply(map_and_batch(fn, 2))
    assert found.element_spec["b"].shape.as_list() == [None, 2]
    assert_rows(rows(found), [[i, np.array([i]), np.array([i, -i])] for i in np.arange(4)])


@pytest.mark.parametrize(
    "dtype", ["bool", "bfloat16", "half", "float64", "complex64", "int8", "uint16", "string"]
)
def test_dtypes_of_own_shapes(dtype):
    def row(i):
        x = tf.range(i)
        return tf.strings.as_string(x) if dtype == "string" else tf.cast(x, dtype)

    dataset = of_range(5).map(row)
    found = dataset.apply(map_and_batch(lambda x: (x[::-1], tf.size(x)), 3, fallback="error"))
    for (got, size), want in zip(rows(found), dataset, strict=True):
        assert size == len(want)
        assert (np.asarray(got) == want.numpy()[::-1]).all()


def test_none_is_none():
    dataset = of_range(4).map(lambda i: (i, None))
    found = dataset.apply(map_and_batch(lambda i, none: {"i": i, "none": none}, 2))
    assert [b["none"] for b in found] == [None, None]
    assert_rows(rows(found), [[i] for i in np.arange(4)])


@grid(size=[1, np.int64(2), tf.constant(4, tf.int64), 100], parallel=[None, 1, 2, tf.data.AUTOTUNE])
def test_sizes_and_parallel_calls(size, parallel):
    options = {"num_parallel_calls": parallel, "deterministic": True}
    found = of_range(9).apply(map_and_batch(lambda i: -i, size, **options))
    assert_rows(rows(found), [[-i] for i in np.arange(9)])
    assert all(len(b) <= int(size) for b in found)


def test_no_elements():
    assert rows(of_range(0).apply(map_and_batch(lambda i: i + 1, 2))) == []
    assert rows(ranges().take(0).apply(map_and_batch(lambda r: r + 1, 2))) == []


def test_order_may_be_left_open():
    found = of_range(40).apply(
        map_and_batch(lambda i: i, 4, num_parallel_calls=4, deterministic=False)
    )
    assert sorted(x for (x,) in rows(found)) == [*range(40)]


def test_variables_and_tables():
    scale = tf.Variable(2.0)
    table = tf.lookup.StaticHashTable(
        tf.lookup.KeyValueTensorInitializer(["a", "b"], tf.constant([1, 2], tf.int64)), -1
    )
    keys = Dataset.from_tensor_slices(["b", "x", "a"])
    found = keys.apply(
        map_and_batch(lambda k: tf.cast(table.lookup(k), tf.float32) * scale, 2, fallback="error")
    )
    assert_rows(rows(found), [[4.0], [-2.0], [2.0]])
    scale.assign(10.0)
    assert_rows(rows(found), [[20.0], [-10.0], [10.0]])


def test_updates_are_as_many():
    seen = tf.Variable(0)

    def fn(i):
        seen.assign_add(2)
        return i

    assert len(rows(of_range(7).apply(map_and_batch(fn, 3, num_parallel_calls=None)))) == 7
    assert seen.numpy() == 14


def test_python_control_flow():
    def fn(i):
        total = tf.constant(0, tf.int64)
        while i > 0:
            total += i
            i -= 1
        return total

    found = of_range(7).apply(map_and_batch(fn, 4, fallback="error"))
    assert_rows(rows(found), [[i * (i + 1) // 2] for i in np.arange(7)])


class TestRandomness:
    def test_stateless_seeds_by_index(self):
        def fn(i, x):
            return x + tf.random.stateless_normal([3], [i, 7]), tf.random.stateless_uniform(
                [], [i, 8]
            )

        dataset = Dataset.from_tensor_slices(X).enumerate()
        by_loop = [[x.numpy(), y.numpy()] for x, y in dataset.map(fn)]
        for size in (3, 5):
            found = rows(dataset.apply(map_and_batch(fn, size, fallback="error")))
            for a, b in zip(found, by_loop, strict=True):
                assert all((x == y).all() for x, y in zip(a, b))

    def test_stateful_draws_differ(self):
        fn = lambda _: tf.random.uniform([])
        dataset = of_range(12).apply(map_and_batch(fn, 4))
        assert len({float(x) for (x,) in rows(dataset)}) == 12
        same = of_range(12).apply(map_and_batch(fn, 4, randomness="same"))
        assert [len({*b.numpy().tolist()}) for b in same] == [1, 1, 1]
        with pytest.raises(tf_pfor.NotVectorizableError, match="RandomUniform"):
            of_range(12).apply(map_and_batch(fn, 4, randomness="error"))

    def test_a_generator_draws_what_a_loop_draws(self):
        a, b = tf.random.Generator.from_seed(1), tf.random.Generator.from_seed(1)
        by_loop = of_range(6).map(lambda _: a.normal([2]))
        found = of_range(6).apply(
            map_and_batch(lambda _: b.normal([2]), 4, num_parallel_calls=None)
        )
        assert_rows(rows(found), [[x.numpy()] for x in by_loop])


class TestPlaces:
    def test_in_a_function(self):
        @tf.function
        def total(x):
            dataset = Dataset.from_tensor_slices(x).apply(map_and_batch(lambda r: r * 2, 4))
            out = tf.zeros([3])
            for batch in dataset:
                out += tf.reduce_sum(batch, 0)
            return out

        np.testing.assert_allclose(total(X), 2 * X.sum(0), rtol=1e-5)

    def test_in_an_interleave(self):
        inner = map_and_batch(lambda i: i * i, 2, num_parallel_calls=None)
        found = of_range(3).interleave(lambda k: of_range(4).map(lambda i: i + k).apply(inner))
        wanted = sorted(((i + k) ** 2) for i in range(4) for k in range(3))
        assert sorted(x for (x,) in rows(found)) == wanted

    def test_iterators_can_be_checkpointed(self, tmp_path):
        dataset = of_range(10).apply(map_and_batch(lambda i: i * 2, 2))
        iterator = iter(dataset)
        next(iterator)
        checkpoint = tf.train.Checkpoint(iterator=iterator)
        path = checkpoint.save(str(tmp_path / "it"))
        assert next(iterator).numpy().tolist() == [4, 6]
        checkpoint.restore(path)
        assert next(iterator).numpy().tolist() == [4, 6]

    @pytest.mark.parametrize("name", ["dict", "own lengths", "strings"])
    def test_saved(self, name, tmp_path):
        make, fn = CASES[name]
        made = make().apply(map_and_batch(fn, 3))
        made.save(str(tmp_path / "saved"))
        assert_rows(rows(Dataset.load(str(tmp_path / "saved"))), results(fn, make()))

    def test_a_model_is_fitted(self):
        dataset = Dataset.from_tensor_slices((X, X[:, :1])).repeat(3)
        dataset = dataset.apply(map_and_batch(lambda x, y: (x / tf.norm(x), y), 5))
        model = keras.Sequential([keras.layers.Dense(1)])
        model.compile("sgd", "mse")
        history = model.fit(dataset.prefetch(1), shuffle=False, verbose=0)
        assert np.isfinite(history.history["loss"]).all()

    def test_in_threads(self):
        transformation = map_and_batch(lambda i: i * 3, 4)
        run = lambda k: [int(x) for (x,) in rows(of_range(10 + k).apply(transformation))]
        found = in_threads(run, range(8))
        assert found == [[3 * i for i in range(10 + k)] for k in range(8)]

    def test_shards_shuffles_and_repeats(self):
        dataset = of_range(16).shuffle(8, seed=1).repeat(2).shard(2, 0)
        found = dataset.apply(map_and_batch(lambda i: i, 3)).prefetch(2)
        assert len(rows(found)) == 16

    def test_options_go_along(self):
        options = tf.data.Options()
        options.deterministic = False
        dataset = of_range(4).with_options(options).apply(map_and_batch(lambda i: i, 2))
        assert dataset.options().deterministic is False

    def test_distributed(self):
        def run():
            strategy = tf.distribute.MirroredStrategy(["CPU:0"])
            dataset = of_range(8).apply(map_and_batch(lambda i: i * i, 4, drop_remainder=True))
            return rows(list(strategy.experimental_distribute_dataset(dataset)))

        # Each thread has another default graph. In a graph of others, a failed tf.map_fn leaves a
        # variable scope in which strategies cannot be entered.
        (found,) = in_threads(lambda _: run(), [0])
        assert_rows(found, [[i * i] for i in np.arange(8)])

    def test_a_map_in_the_function(self):
        fn = lambda x: tf_pfor.vectorized_map(lambda v: v * tf.reduce_max(x), x)
        found = Dataset.from_tensor_slices(X).apply(map_and_batch(fn, 4, fallback="error"))
        assert_rows(rows(found), [[x * x.max()] for x in X])


class TestUnknownShapes:
    def test_all_of_one_shape(self):
        spec = tf.TensorSpec([None, 1], tf.int64)
        dataset = Dataset.from_generator(lambda: ([[i]] for i in range(6)), output_signature=spec)
        assert dataset.element_spec.shape.as_list() == [None, 1]
        found = dataset.apply(map_and_batch(lambda x: x + 1, 4, ragged=False))
        assert isinstance(found.element_spec, tf.TensorSpec)
        assert_rows(rows(found), [[[[i + 1]]] for i in np.arange(6)])

    def test_that_is_an_error_where_they_are_not(self):
        with pytest.raises(tf.errors.InvalidArgumentError, match="Shapes are"):
            rows(ranges().apply(map_and_batch(lambda x: x, 4, ragged=False)))

    @pytest.mark.filterwarnings("ignore::tf_pfor.FallbackWarning")
    def test_of_unknown_rank(self):
        dataset = Dataset.from_generator(lambda: iter(X), tf.float32)
        assert dataset.element_spec.shape.rank is None
        found = dataset.apply(map_and_batch(lambda x: x * 2, 4))
        assert_rows(rows(found), [[2 * x] for x in X])

    def test_of_unknown_rank_beside_others(self):
        dataset = Dataset.from_generator(lambda: iter(X), tf.float32)
        dataset = Dataset.zip(dataset, ranges())
        with pytest.raises(tf_pfor.ArgumentError, match=r"tf\.ensure_shape"):
            dataset.apply(map_and_batch(lambda x, _: x, 2))

    def test_a_size_in_between(self):
        dataset = of_range(5).map(lambda i: tf.ones([2, i, 3]))
        found = dataset.apply(map_and_batch(lambda x: tf.reduce_sum(x, 1), 2, fallback="error"))
        assert_rows(rows(found), [[np.full([2, 3], i, np.float32)] for i in range(5)])
        assert found.element_spec.shape.as_list() == [None, 2, 3]


class TestVectorize:
    def test_of_batches(self):
        fn = lambda x, y: {"a": tf.reduce_sum(x) * y}
        batches = Dataset.from_tensor_slices((X, X[:, 0])).batch(4, drop_remainder=True)
        found = batches.map(vectorize(fn, fallback="error"))
        assert found.element_spec == {"a": tf.TensorSpec([4], tf.float32)}
        assert_rows(rows(found), [[x.sum() * x[0]] for x in X[:8]])

    def test_of_ragged_batches(self):
        found = ranges().ragged_batch(3).map(vectorize(lambda r: r[::-1]))
        assert_rows(rows(found), [[np.arange(i)[::-1]] for i in range(7)])

    def test_eagerly(self):
        found = vectorize(lambda x: tf.reduce_sum(x))(tf.constant(X))
        np.testing.assert_allclose(found, X.sum(1), rtol=1e-5)

    def test_compiled_and_with_gradients(self):
        mapped = vectorize(lambda x, w: tf.reduce_sum(tf.tanh(x) * w), fallback="error")
        x, w = tf.constant(X), tf.constant(X[::-1])
        for run in (mapped, tf.function(mapped, jit_compile=True)):
            found, slopes = value_and_gradient(lambda run=run: run(x, w), x)
            np.testing.assert_allclose(found, (np.tanh(X) * X[::-1]).sum(1), rtol=1e-4, atol=1e-5)
            wanted = (1 - np.tanh(X) ** 2) * X[::-1]
            np.testing.assert_allclose(slopes, wanted, rtol=1e-4, atol=1e-5)

    @pytest.mark.parametrize("n", [0, 1])
    def test_no_and_one_row(self, n):
        found = vectorize(lambda x: (tf.reduce_sum(x), tf.range(tf.cast(x[0], tf.int32))))(
            tf.ones([n, 3])
        )
        assert found[0].numpy().tolist() == [3.0] * n
        assert found[1].to_list() == [[0]] * n

    def test_in_blocks(self):
        found = of_range(10).batch(8).map(vectorize(lambda i: i + 1, chunk_size=3))
        assert_rows(rows(found), [[i + 1] for i in np.arange(10)])
