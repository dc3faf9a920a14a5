"""RaggedTensors and SparseTensors as elements of maps under jit_compile."""

import numpy as np
import pytest
import tensorflow as tf

import tf_pfor
from tests.comparisons import gradient_of, strict, strict_map
from tests.ways import errors_of, table_of

ROWS = tf.RaggedTensor.from_row_lengths(tf.random.stateless_normal([9, 3], [1, 2]), [3, 1, 0, 4, 1])
NUMBERS = ROWS.with_flat_values(ROWS.flat_values[:, 0])
NESTED = tf.ragged.constant([[[1.0, 2.0], [3.0]], [], [[4.0], [], [5.0, 6.0]]])
SPARSE = tf.sparse.from_dense([[0.0, 1.0, 0.0], [2.0, 0.0, 3.0], [0.0, 0.0, 0.0]])
WEIGHTS = tf.random.stateless_normal([5], [3, 4])


def attention(x):
    return tf.reduce_sum(tf.nn.softmax(x @ tf.transpose(x)) @ x, 0)


BODIES = {
    "sum": (lambda x: tf.reduce_sum(x, 0), ROWS),
    "mean of squares": (lambda x: tf.reduce_mean(tf.concat([x**2, [[1.0, 2.0, 3.0]]], 0), 0), ROWS),
    "softmax": (lambda x: tf.reduce_sum(tf.nn.softmax(x) ** 2), NUMBERS),
    "largest": (lambda x: tf.reduce_max(tf.concat([x, [0.0]], 0)), NUMBERS),
    "attention": (attention, ROWS),
    "with dense rows": (lambda x, w: tf.reduce_sum(x) * w, (NUMBERS, WEIGHTS)),
    "of two": (lambda x, y: tf.reduce_sum(x, 0) * tf.reduce_sum(y), (ROWS, NUMBERS)),
    "values of nested rows": (lambda r: tf.reduce_sum(r.flat_values**2), NESTED),
    "values of sparse rows": (lambda s: tf.reduce_sum(s.values**2), SPARSE),
}
OF_ONE = ["sum", "attention", "values of nested rows"]
test_table_of_compiled_maps = table_of(
    BODIES, ways=["vmap", "vmap, no rows", "vmap, one row", "vmap, around", "function, vmap"],
    but={"vmap, around": ["values of sparse rows"]}, only={"function, vmap": OF_ONE},
    options={"jit_compile": True}, tolerance=(1e-4, 1e-5),
)  # fmt: skip


def of_known_splits(values):
    """A RaggedTensor that a compiled function makes, which knows where the rows end."""
    rows = tf.RaggedTensor.from_row_splits(values, ROWS.row_splits, validate=False)
    return strict_map(attention, rows)


def test_rows_of_a_size_that_is_known_in_a_compiled_function():
    x = ROWS.values
    compiled = tf.function(of_known_splits, jit_compile=True)
    np.testing.assert_allclose(compiled(x), of_known_splits(x), rtol=1e-4, atol=1e-5)
    slopes = [gradient_of(lambda f=f: tf.sin(f(x)), x) for f in (compiled, of_known_splits)]
    np.testing.assert_allclose(*slopes, rtol=1e-3, atol=1e-4)
    empty = tf.RaggedTensor.from_row_lengths(x[:0], [0, 0])
    closed = tf.function(lambda: strict_map(lambda r: tf.reduce_sum(r, 0), empty), jit_compile=True)
    np.testing.assert_array_equal(closed(), tf.zeros([2, 3]))


def test_axes_of_ragged_arguments():
    body = lambda e, r: tf.reduce_sum(e["x"]) * e["w"] + tf.reduce_sum(r.values)  # noqa: E731
    in_axes = ({"x": 0, "w": -1}, None)
    args = {"x": NUMBERS, "w": tf.stack([WEIGHTS, WEIGHTS + 1.0])}, NUMBERS
    found = strict(body, in_axes=in_axes, jit_compile=True)(*args)
    np.testing.assert_allclose(found, strict(body, in_axes=in_axes)(*args), rtol=1e-5)
    with pytest.raises(tf_pfor.ArgumentError, match="has the entry 1 of in_axes"):
        strict(body, in_axes=(1, 0), jit_compile=True)(NUMBERS, NUMBERS)


def test_padded_results_are_as_large_as_the_largest_row():
    run = strict(lambda x: x * 2.0, jit_compile=True, out_shapes="padded")
    np.testing.assert_array_equal(run(ROWS), ROWS.to_tensor() * 2.0)


test_refused = errors_of(
    {
        "ragged rows": (BODIES["softmax"][0], NUMBERS, "longest row is.*row_lengths"),
        "nested rows": (BODIES["values of nested rows"][0], NESTED, "longest row is"),
        "sparse rows": (BODIES["values of sparse rows"][0], SPARSE, "entries.*sparse.to_dense"),
    },
    way="compiled", error=tf_pfor.NotVectorizableError,
)  # fmt: skip


def test_a_map_over_a_ragged_row_is_refused():
    inner = lambda r: tf_pfor.vectorized_map(tf.reduce_sum, r)  # noqa: E731
    with pytest.raises(tf_pfor.NotVectorizableError, match="longest row is. Leave out jit_compile"):
        tf_pfor.vmap(inner, jit_compile=True)(NESTED)


def test_rows_of_another_shape_are_refused_as_results():
    with pytest.raises(tf_pfor.NotVectorizableError, match="is a result whose shape may differ"):
        tf_pfor.vmap(lambda x: x * 2.0, jit_compile=True)(ROWS)
