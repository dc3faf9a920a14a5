"""Paddings that differ between rows: together they are one size, or the rows are refused."""

import pytest
import tensorflow as tf

import tf_pfor
from tests.comparisons import gradient_of
from tests.ways import errors_of, table_of

K = tf.constant([0, 1, 3, 2])
X = tf.random.stateless_normal([4, 5], [1, 2])
IMAGES = tf.random.stateless_normal([4, 3, 2, 1], [1, 3])


def gradient_of_pad(x, k):
    return gradient_of(lambda: tf.reduce_sum(tf.pad(x, [[k, 3 - k]]) ** 3 * tf.range(8.0)), x)


BODIES = {
    "vector": (X, lambda x, k: tf.pad(x, [[k, 3 - k]])),
    "shared": (X, lambda x, k: tf.pad(X[0], [[k + 1, 3 - k]])),
    "values": (X, lambda x, k: tf.pad(x, [[k, 3 - k]], constant_values=7.0)),
    "values by row": (X, lambda x, k: tf.pad(x, [[k, 3 - k]], constant_values=x[0])),
    "shared, values by row": (X, lambda x, k: tf.pad(X[0], [[k, 3 - k]], constant_values=x[0])),
    "two axes": (IMAGES, lambda x, k: tf.pad(x, [[k, 3 - k], [4 - k, k], [0, 0]])),
    "one fixed": (IMAGES, lambda x, k: tf.pad(x, [[1, 2], [3 - k, k], [0, 1]])),
    "bounding box": (IMAGES, lambda x, k: tf.image.pad_to_bounding_box(x, k, 1, 7, 4)),
    "gradient": (X, gradient_of_pad),
    "bools": (X, lambda x, k: tf.pad(x > 0, [[k, 3 - k]], constant_values=True)),
    "int64": (X, lambda x, k: tf.pad(x, [[tf.cast(k, tf.int64), 3 - tf.cast(k, tf.int64)]])),
}
SITES = ["eager", "unknown n", "compiled", "each twice"]
test_table_of_paddings = table_of(
    {name: (body, (x, K)) for name, (x, body) in BODIES.items()},
    ways=[way for site in SITES for way in (site, f"{site}, no rows", f"{site}, one row")],
    tolerance=(1e-6, 0.0),
)  # fmt: skip
test_negative_paddings_are_an_error_as_in_a_row = errors_of(
    {"two": lambda k: tf.pad(X[0], [[k, 2 - k]])}, K, match=r"test_paddings_by_row.py:\d+"
)


@pytest.mark.parametrize("row", [
    lambda k: tf.pad(X[0], [[k, k]]),
    lambda k: tf_pfor.jacrev(lambda v: tf.reduce_sum(tf.slice(v, [k], [-1]) ** 2))(X[0]),
])  # fmt: skip
def test_what_xla_would_get_wrong_is_refused(row):
    """TensorFlow's own map_fn returns gradients of another shape there."""
    with pytest.raises(tf_pfor.NotVectorizableError, match="under jit_compile"):
        tf.function(lambda: tf_pfor.vectorized_map(row, K), jit_compile=True)()
