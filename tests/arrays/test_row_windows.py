"""Crops of large rows: copied row by row by a kernel on CPUs, gathered elsewhere."""

import numpy as np
import pytest
import tensorflow as tf

import tf_pfor
from tests.comparisons import mapped, rows_of
from tests.ways import How, check, errors_of, table_of

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
MAPPED = {name: lambda *rows, crop=crop: mapped(crop, *rows) for name, crop in CROPS.items()}
EXACT = {"tolerance": (1e-7, 0.0), "slopes": (1e-7, 1e-12)}
OF_RANGE = ["no rows", "one row", "unknown n"]
test_table_of_crops = table_of(
    {
        **CROPS,
        **{
            f"range of {dtype.name}": (CROPS["range"], (tf.cast(IMAGES * 10, dtype), AT))
            for dtype in (tf.uint8, tf.bfloat16, tf.bool, tf.complex64, tf.int64)
        },
    },
    IMAGES, AT,
    ways=["function", "function around", "twice around", "inside", "compiled", "two maps",
          "compiled, two maps", *OF_RANGE],
    only={
        **dict.fromkeys(["function around", "twice around", "inside"], CROPS),
        **dict.fromkeys(["compiled", "two maps", "compiled, two maps"], ["slice of numbers"]),
        **dict.fromkeys(OF_RANGE, ["range"]),
    }, **EXACT,
)  # fmt: skip


def used_kernels(fn, *specs):
    graph = tf.function(fn).get_concrete_function(*specs).graph.as_graph_def()
    return any(n.op == "MapDefun" for f in graph.library.function for n in f.node_def)


@pytest.mark.parametrize("name", CROPS)
def test_kernels_are_used(name):
    assert used_kernels(MAPPED[name], IMAGES, AT)


@pytest.mark.parametrize("way", ["eager", "around"])
@pytest.mark.parametrize("name", CROPS)
def test_gathers_elsewhere(name, way, monkeypatch):
    """The branch of other devices runs: the branch of a CPU is taken nowhere."""
    monkeypatch.setattr(
        tf.raw_ops, "DeviceIndex", lambda device_names: tf.constant(1), raising=True
    )
    check(way, CROPS[name], (IMAGES, AT), How(**EXACT))


BEYOND = tf.constant([[0, 0], [5, 21], [0, 0], [0, 0]])
test_a_crop_past_the_edge_is_an_error = errors_of(
    {name: CROPS[name] for name in ("slice of numbers", "range")}, IMAGES, BEYOND,
    match="past the edge",
)  # fmt: skip


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
    expected = tf.stack(rows_of(CROPS["range"], text, AT[:2]))
    assert np.array_equal(mapped(text, AT[:2]), expected)
    assert not used_kernels(mapped, text, AT[:2])
