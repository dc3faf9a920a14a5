"""Sparse and ragged tensors in bodies: bad indices, and the public functions."""

import numpy as np
import pytest
import tensorflow as tf

from tests.comparisons import mapped
from tests.ways import errors_of, table_of

raw = tf.raw_ops
X = np.random.default_rng(0).normal(size=(3, 4)).astype(np.float32)
AT = np.int64([[[0, 1], [1, 0], [1, 3], [2, 2]], [[0, 0], [0, 1], [1, 2], [2, 3]],
               [[0, 3], [1, 1], [2, 0], [2, 1]]])  # fmt: skip


def _sparse(values, at):
    return tf.SparseTensor(at, values, [3, 4])


def _reorder(x, at, shape):
    return raw.SparseReorder(input_indices=at[::-1], input_values=x, input_shape=shape)[1]


def _softmax(x, at, shape):
    return raw.SparseSoftmax(sp_indices=at, sp_values=x, sp_shape=shape)


def _ragged(columns):
    def body(x, splits):
        ragged = tf.RaggedTensor.from_row_splits(x, splits, validate=False)
        return ragged.to_tensor(shape=[3, columns])

    return body


FUNCTIONS = {
    "to_dense": tf.sparse.to_dense,
    "reduce_sum": tf.sparse.reduce_sum,
    "keepdims": lambda s: tf.sparse.reduce_sum(s, 1, keepdims=True),
    "reduce_max": lambda s: tf.sparse.reduce_max(s, 0),
    "matmul": lambda s: tf.sparse.sparse_dense_matmul(s, tf.constant(X.T)),
    "matmul_right": lambda s: tf.sparse.sparse_dense_matmul(tf.constant(X.T), s),
    "transpose": lambda s: tf.sparse.to_dense(tf.sparse.transpose(s)),
    "reshape": lambda s: tf.sparse.to_dense(tf.sparse.reshape(s, [2, -1])),
    "concat": lambda s: tf.sparse.to_dense(tf.sparse.concat(0, [s, s])),
    "softmax": lambda s: tf.sparse.to_dense(tf.sparse.softmax(s)),
    "times": lambda s: tf.sparse.to_dense(s * tf.constant(X)),
    "expand_dims": lambda s: tf.sparse.to_dense(tf.sparse.expand_dims(s, 1)),
    "add": lambda s: tf.sparse.add(s, tf.constant(X)),
}
SHAPES = tf.constant(np.int64([[3, 4], [5, 4], [3, 6]]))
ROWS, PLACES = tf.constant(X), tf.constant(AT)
test_table_of_functions = table_of(
    {
        **{name: lambda x, at, f=f: f(_sparse(x, at)) for name, f in FUNCTIONS.items()},
        # A shape of the row, with as many entries in each.
        "reordered": (_reorder, (ROWS, PLACES, SHAPES)),
        "softmax of shapes": (_softmax, (ROWS, PLACES, SHAPES)),
        "splits that end early": (
            _ragged(3), (ROWS, tf.constant(np.int64([[0, 1, 2, 3], [0, 0, 0, 0], [0, 0, 4, 4]])))),
    },
    ROWS, PLACES, ways=["eager"], tolerance=(1e-6, 1e-7),
)  # fmt: skip


def _one_wrong(place, value):
    at = AT.copy()
    at[1, place] = value
    return at


@pytest.mark.parametrize(
    ("name", "body"),
    [
        ("to_dense", lambda x, at: tf.sparse.to_dense(_sparse(x, at))),
        ("matmul", lambda x, at: tf.sparse.sparse_dense_matmul(_sparse(x, at), X.T)),
        ("matmul_both",
         lambda x, at: tf.sparse.sparse_dense_matmul(_sparse(x, at), x[:, None] * X.T)),
        ("adjoint", lambda x, at: tf.sparse.sparse_dense_matmul(
            _sparse(x, at), X[:, :2] * x[0], adjoint_a=True)),
        ("reduce_sum", lambda x, at: tf.sparse.reduce_sum(_sparse(x, at), 1)),
        ("add", lambda x, at: tf.sparse.add(_sparse(x, at), tf.constant(X) * x)),
    ],
    ids=lambda x: x if isinstance(x, str) else "",
)  # fmt: skip
@pytest.mark.parametrize("wrong", [[3, 0], [-1, 0], [0, 4]], ids=["high", "low", "column"])
def test_an_index_outside_fails_as_for_one_example(name, body, wrong):
    """Never a place of the next row."""
    at = _one_wrong(-1 if wrong[0] == 3 else 0, wrong)
    fails = True
    try:
        with tf.device("cpu"):
            tf.function(body)(tf.constant(X[1]), tf.constant(at[1]))
        fails = False
    except tf.errors.OpError:
        pass
    assert fails or name == "reduce_sum"
    if fails:
        with pytest.raises(tf.errors.OpError):
            mapped(body, ROWS, tf.constant(at))
    else:
        np.testing.assert_allclose(
            mapped(body, ROWS, tf.constant(at)),
            [body(*row) for row in zip(ROWS, tf.constant(at))],
            1e-5,
        )


def _validated(x, at):
    return tf.sparse.to_dense(_sparse(x, at), validate_indices=True)


# Repeated or unsorted indices, and bad splits: TensorFlow's kernel reads behind the values where
# the last splits do.
PLACED = {1: "repeated", 2: "unsorted"}
WRONG_PLACES = {name: tf.constant(_one_wrong(k, [0, 0])) for k, name in PLACED.items()}
WRONG_SPLITS = ([0, 3, 1, 4], [1, 2, 3, 4], [0, -1, 2, 4], [0, 1, 2, 5])
WRONG = {
    **{name: (_validated, (ROWS, at)) for name, at in WRONG_PLACES.items()},
    **{
        str(splits): (
            _ragged(2), (ROWS, tf.constant(np.int64([[0, 1, 2, 4], splits, [0, 0, 4, 4]]))))
        for splits in WRONG_SPLITS
    },
}  # fmt: skip
test_errors = errors_of(WRONG)


@pytest.mark.parametrize("name", [name for name in WRONG if "5" not in name])
def test_errors_of_one_row(name):
    body, rows = WRONG[name]
    with pytest.raises(tf.errors.InvalidArgumentError):
        body(*(x[1] for x in rows))
