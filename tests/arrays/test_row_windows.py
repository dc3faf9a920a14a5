"""Crops of large rows: copied row by row by a kernel on CPUs, gathered elsewhere."""

import numpy as np
import pytest
import tensorflow as tf

import tf_pfor
from tests.comparisons import assert_close, compare, compare_around, gradient_of

N, H, W, C, SIZE = 4, 70, 80, 3, 60
RANDOM = np.random.default_rng(0)
IMAGES = tf.constant(RANDOM.normal(size=[N, H, W, C]))
AT = tf.constant(np.stack([RANDOM.integers(0, 11, N), RANDOM.integers(0, 21, N)], 1), tf.int32)

CROPS = {
    "slice of a vector": lambda x, at: tf.slice(x, tf.pad(at, [[0, 1]]), [SIZE, SIZE, C]),
    "slice of numbers": lambda x, at: tf.slice(x, [at[0], at[1], 0], [SIZE, SIZE, C]),
    "range": lambda x, at: x[at[0] : at[0] + SIZE, at[1] : at[1] + SIZE],
    "range of one axis": lambda x, at: x[:, at[1] : at[1] + SIZE],
    "box": lambda x, at: tf.image.crop_to_bounding_box(x[None], at[0], at[1], SIZE, SIZE)[0],
    "sound": lambda x, at: tf.slice(tf.reshape(x, [-1]), at[:1], [9000]),
    "padded": lambda x, at: tf.pad(x, [[at[0], 20 - at[0]], [at[1], 30 - at[1]], [0, 0]]),
}


def rows(fn, *elems):
    return tf.stack([fn(*row) for row in zip(*map(tf.unstack, elems))])


def used_kernels(fn, *specs):
    graph = tf.function(fn).get_concrete_function(*specs).graph.as_graph_def()
    return any(n.op == "MapDefun" for f in graph.library.function for n in f.node_def)


@pytest.mark.parametrize("name", CROPS)
def test_values_and_gradients(name):
    crop = CROPS[name]
    mapped = tf.function(lambda x, at: tf_pfor.vectorized_map(lambda e: crop(*e), (x, at)))
    weights = tf.constant(RANDOM.normal(size=rows(crop, IMAGES, AT).shape))
    found, expected = [], []
    for run, out in ((mapped, found), (lambda x, at: rows(crop, x, at), expected)):
        with tf.GradientTape() as outer:
            outer.watch(IMAGES)
            with tf.GradientTape() as tape:
                tape.watch(IMAGES)
                made = run(IMAGES, AT)
                total = tf.reduce_sum(weights * made**2)
            gradient = tape.gradient(total, IMAGES)
            again = tf.reduce_sum(gradient**3)
        out += [made, gradient, outer.gradient(again, IMAGES)]
    assert_close(found, expected, rtol=1e-7, atol=0)
    assert used_kernels(mapped, IMAGES, AT)


@pytest.mark.parametrize("name", CROPS)
def test_gradients_in_the_body(name):
    def gradient(x, at):
        return gradient_of(lambda: tf.reduce_sum(CROPS[name](x, at) ** 2), x)

    compare(gradient, IMAGES, AT, rtol=1e-7, atol=0)


@pytest.mark.parametrize("name", CROPS)
def test_gathers_elsewhere(name, monkeypatch):
    """The branch of other devices runs: the branch of a CPU is taken nowhere."""
    monkeypatch.setattr(
        tf.raw_ops, "DeviceIndex", lambda device_names: tf.constant(1), raising=True
    )
    compare(CROPS[name], IMAGES, AT, rtol=1e-7, atol=0)
    compare_around(CROPS[name], IMAGES, AT, rtol=1e-7, atol=1e-12)


@pytest.mark.parametrize("jit", [False, True], ids=["plain", "xla"])
@pytest.mark.parametrize("nested", [False, True], ids=["one map", "two maps"])
def test_xla_and_maps_in_maps(jit, nested):
    crop = CROPS["slice of numbers"]

    def each(x, at):
        return tf_pfor.vectorized_map(lambda e: crop(*e), (x, at))

    run, given = each, (IMAGES, AT)
    if nested:
        given = (tf.reshape(IMAGES, [2, 2, H, W, C]), tf.reshape(AT, [2, 2, 2]))

        def run(x, at):
            return tf_pfor.vectorized_map(lambda e: each(*e), (x, at))

    found = tf.function(run, jit_compile=jit)(*given)
    expected = rows(crop, IMAGES, AT)
    np.testing.assert_allclose(tf.reshape(found, expected.shape), expected)


@pytest.mark.parametrize("dtype", [tf.uint8, tf.bfloat16, tf.bool, tf.complex64, tf.int64])
def test_dtypes(dtype):
    images = tf.cast(IMAGES * 10, dtype) if dtype != tf.bool else IMAGES > 0
    found = tf_pfor.vectorized_map(lambda e: CROPS["range"](*e), (images, AT))
    np.testing.assert_array_equal(found, rows(CROPS["range"], images, AT))


@pytest.mark.parametrize("n", [0, 1])
def test_few_rows(n):
    found = tf_pfor.vectorized_map(lambda e: CROPS["range"](*e), (IMAGES[:n], AT[:n]))
    assert found.shape == (n, SIZE, SIZE, C)


def test_unknown_number_of_rows():
    specs = [tf.TensorSpec([None, H, W, C], tf.float64), tf.TensorSpec([None, 2], tf.int32)]
    compare(CROPS["range"], IMAGES, AT, function={"input_signature": specs}, rtol=1e-7, atol=0)


@pytest.mark.parametrize("name", ["slice of numbers", "range"])
def test_a_crop_past_the_edge_is_an_error(name):
    at = tf.constant([[0, 0], [5, 21], [0, 0], [0, 0]])
    with pytest.raises(tf.errors.InvalidArgumentError, match="past the edge"):
        tf_pfor.vectorized_map(lambda e: CROPS[name](*e), (IMAGES, at))


def test_small_windows_are_gathered():
    graph = tf.function(
        lambda x, at: tf_pfor.vectorized_map(lambda e: e[0][e[1][0] : e[1][0] + 2], (x, at))
    )
    assert not used_kernels(graph, IMAGES, AT)


@pytest.mark.parametrize("run", [tf_pfor.vectorized_map, lambda fn, x: tf_pfor.vmap(fn)(x)])
def test_an_error_says_first_what_is_wrong(run):
    """The error names the slice, its begin in each row, and the advice; then the check."""
    with pytest.raises(tf.errors.InvalidArgumentError) as caught:
        run(lambda k: tf.range(5)[k : k + 3], tf.constant([2, 3, 1, 4]))
    first = str(caught.value).splitlines()[0]
    assert "StridedSlice of length 3" in first
    assert "test_row_windows.py" in first
    assert "Move its begin (tf.clip_by_value)" in first
    assert "[2 3 1 4]" in first


def test_windows_of_text_are_gathered():
    text = tf.strings.as_string(IMAGES[:2])
    mapped = tf.function(
        lambda x, at: tf_pfor.vectorized_map(lambda e: CROPS["range"](*e), (x, at))
    )
    expected = rows(CROPS["range"], text, AT[:2])
    assert np.array_equal(mapped(text, AT[:2]), expected)
    assert not used_kernels(mapped, text, AT[:2])
