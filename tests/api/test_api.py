"""pfor, for_loop, vectorized_map: every way to call them, and what comes back."""

import collections
import dataclasses
import gc

import numpy as np
import pytest
import tensorflow as tf

import tf_pfor
from tests.cases import grid
from tests.comparisons import gradient_of, in_threads

Point = collections.namedtuple("Point", "x y")


@dataclasses.dataclass
class Pair:
    left: tf.Tensor
    right: dict


def rows(n, *inner):
    size = int(np.prod([n, *inner]))
    return np.arange(size, dtype=np.float32).reshape(n, *inner) / 7 - 1


@pytest.fixture(params=["eager", "function"])
def call(request):
    """Runs a function eagerly, or inside tf.function."""
    if request.param == "eager":
        return lambda fn, *args: fn(*args)
    return lambda fn, *args: tf.function(fn)(*args)


# -- pfor ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "iters",
    [4, np.int32(4), np.int64(4), np.array(4), tf.constant(4), tf.constant(4, tf.int64)],
    ids=["int", "np.int32", "np.int64", "array", "int32", "int64"],
)
def test_iters_in_every_form(call, iters):
    found = call(lambda: tf_pfor.pfor(lambda i: 2 * i + 1, iters))
    assert found.dtype == tf.int32
    assert found.numpy().tolist() == [1, 3, 5, 7]


@grid(dtype=[tf.int32, tf.int64], n=[0, 1, 5])
def test_iters_known_only_at_run_time(n, dtype):
    table = tf.constant(rows(5, 3))

    @tf.function(input_signature=[tf.TensorSpec([], dtype)])
    def run(count):
        found = tf_pfor.pfor(lambda i: tf.gather(table, i) * tf.cast(i, tf.float32), count)
        assert found.shape.as_list() == [None, 3]
        return found

    expected = table.numpy() * np.arange(5, dtype=np.float32)[:, None]
    np.testing.assert_allclose(run(tf.constant(n, dtype)), expected[:n])


def test_static_shapes_are_kept():
    @tf.function
    def run(x):
        found = tf_pfor.pfor(lambda i: tf.reshape(x, [2, 3])[0] + tf.cast(i, x.dtype), 4)
        assert found.shape.as_list() == [4, 3]
        found = tf_pfor.vectorized_map(lambda r: tf.stack([r, r]), x)
        assert found.shape.as_list() == [6, 2]
        return found

    run(tf.constant(rows(6)))


def test_invariant_outputs_are_tiled(call):
    c = tf.constant([1.0, 2.0])
    found = call(lambda: tf_pfor.pfor(lambda i: (c, c + 1.0, 3), 3))
    np.testing.assert_array_equal(found[0], [[1, 2]] * 3)
    np.testing.assert_array_equal(found[1], [[2, 3]] * 3)
    np.testing.assert_array_equal(found[2], [3, 3, 3])


def test_none_as_output(call):
    found = call(lambda: tf_pfor.pfor(lambda i: (i, None), 3))
    assert found[1] is None
    assert call(lambda: tf_pfor.pfor(lambda i: None, 3)) is None


def test_operation_as_output():
    v = tf.Variable(1.0)

    @tf.function
    def run():
        done = tf_pfor.pfor(lambda i: tf.group(v.read_value()), 3)
        assert isinstance(done, tf.Operation)
        mixed = tf_pfor.pfor(lambda i: (i, tf.no_op()), 3)
        assert isinstance(mixed[1], tf.Operation)
        return mixed[0]

    assert run().numpy().tolist() == [0, 1, 2]


def test_outputs_in_nests(call):
    body = lambda i: ({"a": i, "b": [i + 1, (i + 2,)]}, Point(i, -i))
    found = call(lambda: tf_pfor.pfor(body, 2))
    assert isinstance(found[1], Point)
    tf.nest.assert_same_structure(found, body(tf.constant(0)))
    assert found[0]["b"][1][0].numpy().tolist() == [2, 3]
    assert found[1].y.numpy().tolist() == [0, -1]


def test_the_body_is_traced_once():
    for block in (None, 2, 3, 100):
        calls = []

        def body(i, calls=calls):
            calls.append(i)
            return i * 2

        found = tf_pfor.pfor(body, 7, parallel_iterations=block)
        assert found.numpy().tolist() == [0, 2, 4, 6, 8, 10, 12]
        assert len(calls) == 1


@grid(n=[0, 1, 4, 5], block=[1, 2, 3, 4, 5, 7])
def test_blocks(call, n, block):
    table = tf.constant(rows(5, 2))
    body = lambda i: (tf.gather(table, i) + 1.0, i, tf.constant(7))
    found = call(lambda: tf_pfor.pfor(body, n, parallel_iterations=block))
    np.testing.assert_allclose(found[0], table[:n] + 1.0)
    assert found[1].numpy().tolist() == list(range(n))
    assert found[2].numpy().tolist() == [7] * n
    assert found[0].shape == [n, 2]


@pytest.mark.parametrize("n", [0, 2, 5])
def test_blocks_with_a_length_known_only_at_run_time(n):
    run = lambda count: tf_pfor.pfor(lambda i: i * i, count, parallel_iterations=2)
    found = tf.function(run, input_signature=[tf.TensorSpec([], tf.int32)])(tf.constant(n))
    assert found.numpy().tolist() == [i * i for i in range(n)]


def test_gradients_through_blocks():
    x = tf.Variable(rows(5, 2))
    squares = lambda i: tf.tanh(tf.gather(x, i)) ** 2
    total = lambda block: gradient_of(
        lambda: tf_pfor.pfor(squares, 5, parallel_iterations=block), x
    )
    np.testing.assert_allclose(*(tf.convert_to_tensor(total(n)) for n in (2, None)), rtol=1e-6)


# -- for_loop --------------------------------------------------------------------------------------


def test_for_loop_is_the_reference(call):
    body = lambda i: {"square": i * i, "half": tf.cast(i, tf.float32) / 2}
    types = {"square": tf.int32, "half": tf.float32}
    loop = call(lambda: tf_pfor.for_loop(body, types, 4))
    fast = call(lambda: tf_pfor.pfor(body, 4))
    for key in types:
        np.testing.assert_array_equal(loop[key], fast[key])


def test_for_loop_options(call):
    assert call(lambda: tf_pfor.for_loop(lambda i: i, tf.int32, 0)).numpy().tolist() == []
    found = call(lambda: tf_pfor.for_loop(lambda i: i, tf.int32, tf.constant(3), 2))
    assert found.numpy().tolist() == [0, 1, 2]
    assert call(lambda: tf_pfor.for_loop(lambda i: None, None, 3)) is None


def test_for_loop_runs_side_effects_in_order():
    v = tf.Variable(1)
    tf_pfor.for_loop(lambda i: v.assign(v * 2 + i), tf.int32, 3, 1)
    assert v.numpy() == 1 * 8 + 0 * 4 + 1 * 2 + 2


# -- vectorized_map --------------------------------------------------------------------------------


@pytest.mark.parametrize("wrap", [
    lambda a, b: (a, b),
    lambda a, b: [a, b],
    lambda a, b: {"a": a, "b": b},
    lambda a, b: Point(a, b),
    lambda a, b: Pair(a, {"k": b}),
    lambda a, b: {"t": (a, [b])},
], ids=["tuple", "list", "dict", "namedtuple", "dataclass", "nested"])  # fmt: skip
def test_nests_in_and_out(call, wrap):
    a, b = rows(3, 2), rows(3)
    seen = []

    def fn(x):
        seen.append(type(x))
        return x

    def run():
        found = tf_pfor.vectorized_map(fn, wrap(tf.constant(a), tf.constant(b)))
        seen.append(type(found))
        if isinstance(found, Pair):
            return [found.left, found.right["k"]]  # tf.function cannot return a dataclass
        return tf.nest.flatten(found)

    leaves = call(run)
    assert set(seen) == {type(wrap(a, b))}
    np.testing.assert_array_equal(leaves[0], a)
    np.testing.assert_array_equal(leaves[1], b)


def test_indexed_slices_leave_dense(call):
    table = tf.Variable(rows(4, 2))

    def fn(i):
        with tf.GradientTape() as tape:
            y = tf.reduce_sum(tf.gather(table, [i, i]) ** 2)
        return tape.gradient(y, table)  # IndexedSlices

    found = call(lambda: tf_pfor.vectorized_map(fn, tf.constant([1, 3])))
    assert found.shape == [2, 4, 2]
    expected = np.zeros([2, 4, 2], np.float32)
    for r, i in enumerate([1, 3]):
        expected[r, i] = 4 * table.numpy()[i]
    np.testing.assert_allclose(found, expected, rtol=1e-6)


def test_numpy_lists_and_variables_as_elements(call):
    assert call(lambda: tf_pfor.vectorized_map(lambda x: x + 1, np.arange(3))).numpy().tolist() == [
        1, 2, 3,
    ]  # fmt: skip
    v = tf.Variable([1.0, 2.0])
    assert tf_pfor.vectorized_map(lambda x: x * x, v).numpy().tolist() == [1.0, 4.0]


def test_one_row_is_shared_by_all(call):
    a, b = tf.constant(rows(4, 2)), tf.constant(rows(1, 2))
    found = call(lambda: tf_pfor.vectorized_map(lambda e: e[0] * e[1], (a, b)))
    np.testing.assert_allclose(found, a * b)


differences = lambda a, b: tf_pfor.vectorized_map(lambda e: e[0] - e[1], (a, b))


@pytest.mark.parametrize(
    ("sizes", "n"), [((4, 1), 4), ((1, 4), 4), ((1, 1), 1), ((4, 4), 4), ((0, 1), 0), ((0, 0), 0)]
)
def test_one_row_is_shared_by_all_when_known_only_at_run_time(sizes, n):
    a, b = rows(sizes[0], 2), rows(sizes[1], 2)
    found = tf.function(differences, input_signature=[tf.TensorSpec([None, 2])] * 2)(a, b)
    assert found.shape == [n, 2]
    np.testing.assert_allclose(found, a - b)


def test_sizes_that_turn_out_to_differ_are_an_error():
    run = tf.function(differences, input_signature=[tf.TensorSpec([None])] * 2)
    for sizes in ((3, 2), (2, 3), (4, 2), (0, 2)):
        with pytest.raises(tf.errors.InvalidArgumentError):
            run(rows(sizes[0]), rows(sizes[1]))


def test_unknown_inner_shape_and_rank():
    run = lambda a: tf_pfor.vectorized_map(lambda r: tf.tanh(r), a)
    run = tf.function(run, input_signature=[tf.TensorSpec([None, None])])
    np.testing.assert_allclose(run(rows(3, 2)), np.tanh(rows(3, 2)), rtol=1e-6)


def test_empty_elements():
    found = tf_pfor.vectorized_map(lambda r: (r * 2, tf.constant(1)), tf.zeros([0, 3]))
    assert found[0].shape == [0, 3]
    assert found[1].shape == [0]


def test_vectorized_map_warns_unless_told_not_to(recwarn):
    def fn(x):
        return tf.strings.unicode_script(x)  # nobody converts this: it does not matter which

    if "UnicodeScript" in tf_pfor.registry.REGISTRY:
        pytest.skip("this op has a converter now")
    x = tf.constant([[65], [1041]])
    quiet = tf_pfor.vectorized_map(fn, x, warn=False)
    assert not [w for w in recwarn if w.category is tf_pfor.FallbackWarning]
    with pytest.warns(tf_pfor.FallbackWarning, match="UnicodeScript") as caught:
        loud = tf_pfor.vectorized_map(fn, x)
    assert len([w for w in caught if w.category is tf_pfor.FallbackWarning]) == 1
    np.testing.assert_array_equal(quiet, loud)


# -- Where it runs ---------------------------------------------------------------------------------


def test_run_functions_eagerly():
    x = tf.constant(rows(3, 2))
    tf.config.run_functions_eagerly(True)
    try:
        found = tf_pfor.vectorized_map(lambda r: tf.reduce_sum(r * r), x)
        inner = tf.function(lambda r: tf.reduce_sum(r * r))
        nested = tf_pfor.vectorized_map(lambda r: inner(r), x)
        indexed = tf_pfor.pfor(lambda i: i + 1, 3)
        looped = tf_pfor.for_loop(lambda i: i + 1, tf.int32, 3)
    finally:
        tf.config.run_functions_eagerly(False)
    np.testing.assert_allclose(found, np.sum(rows(3, 2) ** 2, 1), rtol=1e-6)
    np.testing.assert_allclose(nested, found)
    assert indexed.numpy().tolist() == looped.numpy().tolist() == [1, 2, 3]


def test_plain_graph_and_session():
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        x = tf.compat.v1.placeholder(tf.float32, [None, 2])
        y = tf_pfor.vectorized_map(lambda r: tf.reduce_sum(r) ** 2, x)
        (dx,) = tf.gradients(tf.reduce_sum(y), [x])
        z = tf_pfor.pfor(lambda i: i * 3, 4)
        given = rows(3, 2)
        found, grad, index = session.run([y, dx, z], {x: given})
    np.testing.assert_allclose(found, given.sum(1) ** 2, rtol=1e-6)
    np.testing.assert_allclose(grad, np.repeat(2 * given.sum(1)[:, None], 2, 1), rtol=1e-5)
    assert index.tolist() == [0, 3, 6, 9]


def test_under_jit_compile():
    x = tf.constant(rows(3, 2))
    mapped = lambda a: tf_pfor.vectorized_map(lambda r: tf.reduce_sum(tf.tanh(r)), a)
    run = tf.function(mapped, jit_compile=True)
    np.testing.assert_allclose(run(x), np.tanh(rows(3, 2)).sum(1), rtol=1e-5)


def test_saved_model(tmp_path):
    class Module(tf.Module):
        @tf.function(input_signature=[tf.TensorSpec([None, 2])])
        def __call__(self, x):
            return tf_pfor.vectorized_map(lambda r: tf.reduce_sum(r * r), x)

    tf.saved_model.save(Module(), str(tmp_path))
    loaded = tf.saved_model.load(str(tmp_path))
    np.testing.assert_allclose(loaded(rows(3, 2)), np.sum(rows(3, 2) ** 2, 1), rtol=1e-6)


def test_threads():
    x = rows(4, 3)

    def work(k):
        for _ in range(5):
            found = tf_pfor.vectorized_map(lambda r: tf.reduce_sum(r) + k, tf.constant(x))
            np.testing.assert_allclose(found, x.sum(1) + k, rtol=1e-5)

    in_threads(work, [float(k) for k in range(8)])


def test_repeated_calls_leave_nothing_behind():
    x = tf.constant(rows(4, 3))

    def once():
        tf_pfor.vectorized_map(lambda r: tf.reduce_sum(tf.tanh(r)), x)

    def graphs():
        gc.collect()
        return sum(isinstance(o, tf.Graph) for o in gc.get_objects())

    for _ in range(3):
        once()
    before = graphs()
    for _ in range(10):
        once()
    assert graphs() <= before + 1
