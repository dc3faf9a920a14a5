"""Bodies of maps, a few for each class: each takes one row, a float matrix [k, 4].

The number k differs between rows in some contexts. A body must give the same values for the same
row, or say that its draws are free. So a loop over rows can tell the right values.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

import tf_pfor

D = 4
_RNG = np.random.default_rng(1)

Row = Callable[[tf.Tensor], Any]


def _floats(*shape: int) -> tf.Tensor:
    return tf.constant(_RNG.uniform(-1.0, 1.0, shape), tf.float32)


W, B, SQUARE = _floats(D, 3), _floats(D), _floats(D, D)
TABLE = _floats(7, D)
FILTERS, KERNEL = _floats(3, D, 2), _floats(3, 3, 1, 2)


@dataclasses.dataclass(frozen=True)
class Body:
    """One body, or a maker of it where it has state.

    Attributes:
      kind: the class that it belongs to, a heading of the page.
      name: its name on the page.
      make: makes the function of one row, and the variables that it changes, anew for each run.
      is_free: whether its draws differ from the draws of a loop: shapes are compared, not values.
    """

    kind: str
    name: str
    make: Callable[[], tuple[Row, Sequence[Any]]]
    is_free: bool = False


BODIES: list[Body] = []


def _plain(kind: str, is_free: bool = False, **rows: Row) -> None:
    """Registers bodies without state; the name says what it does."""
    for name, row in rows.items():
        BODIES.append(Body(kind, name.replace("_", " "), lambda row=row: (row, ()), is_free))


Held = tuple[Callable[[], Any], Callable[[Any, tf.Tensor], Any]]


def _with_state(kind: str, is_free: bool = False, **rows: Held) -> None:
    """Registers bodies with state: what makes it, and the function of it and of a row."""
    for name, (make, row) in rows.items():

        def body(make: Any = make, row: Any = row) -> tuple[Row, Sequence[Any]]:
            held = make()
            return (lambda r: row(held, r)), _variables(held)

        BODIES.append(Body(kind, name.replace("_", " "), body, is_free))


def _variables(held: Any) -> Sequence[Any]:
    """The variables of a generator, a metric or a layer; of a variable, itself."""
    if isinstance(held, tf.random.Generator):
        return [held.state]
    return [held] if isinstance(held, tf.Variable) else held.variables


def _size(r: tf.Tensor) -> tf.Tensor:
    return tf.shape(r)[0]


def _ids(r: tf.Tensor) -> tf.Tensor:
    """int32 [k] of 0 ... 6, that the values of the row decide."""
    return tf.cast(tf.abs(r[:, 0]) * 6.9, tf.int32)


# ---------------------------------------------------------------------------
# Values
# ---------------------------------------------------------------------------

_plain(
    "elementwise and reductions",
    elementwise=lambda r: tf.tanh(r) * 2.0 + B,
    mean=lambda r: tf.reduce_mean(r, 0),
    softmax_over_the_row=lambda r: tf.nn.softmax(r, 0),
    arg_max=lambda r: tf.argmax(r, 0),
    reversed_cumsum=lambda r: tf.cumsum(r, 0, reverse=True),
    moments=lambda r: tf.nn.moments(r, [0]),
    complex_numbers=lambda r: tf.abs(tf.complex(r, r[::-1])),
    half_precision=lambda r: tf.cast(tf.cast(r, tf.bfloat16) * 2, tf.float32),
)
_plain(
    "products and linear algebra",
    product_with_weights=lambda r: tf.nn.relu(r @ W),
    gram_matrix=lambda r: tf.matmul(r, r, transpose_a=True),
    pairs=lambda r: tf.matmul(r, r, transpose_b=True),
    attention=lambda r: tf.nn.softmax(tf.matmul(r, r @ SQUARE, transpose_b=True)) @ r,
    einsum=lambda r: tf.einsum("...ij,jk->...ik", r, W),
    cholesky=lambda r: tf.linalg.cholesky(tf.matmul(r, r, transpose_a=True) + tf.eye(D)),
    least_squares=lambda r: tf.linalg.lstsq(r, r[:, :1], l2_regularizer=0.1),
    distances=lambda r: tf.norm(r[:, None] - r[None] + 0.1, axis=-1),
)
_plain(
    "shapes, slices, joins",
    rest=lambda r: r[1:],
    last=lambda r: r[-1],
    reversed=lambda r: r[::-1],
    windows=lambda r: tf.concat([r[:1], r[1:] - 0.5 * r[:-1]], 0),
    flattened=lambda r: tf.reshape(r, [-1]),
    transposed=lambda r: tf.transpose(r) * 2.0,
    padded=lambda r: tf.pad(r, [[1, 2], [0, 0]]),
    halves=lambda r: tf.split(r, 2, 1),
    stacked=lambda r: tf.stack([r, r + 1.0]),
    tiled=lambda r: tf.tile(r, [2, 1]),
)
_plain(
    "indices, sorts, groups",
    embeddings=lambda r: tf.gather(TABLE, _ids(r)),
    gather_of_the_row=lambda r: tf.gather(r, tf.argsort(r[:, 0])),
    batched_gather=lambda r: tf.gather(r, _ids(r) % D, axis=1, batch_dims=1),
    one_hot=lambda r: tf.one_hot(_ids(r), 7),
    scatter=lambda r: tf.scatter_nd(_ids(r)[:, None], r, [7, D]),
    update=lambda r: tf.tensor_scatter_nd_update(r, [[0]], [B]),
    sort=lambda r: tf.sort(r, 0),
    largest_two=lambda r: tf.math.top_k(tf.transpose(r), 1)[0],
    boolean_mask=lambda r: tf.boolean_mask(r, r[:, 0] > 0.0),
    unique=lambda r: tf.unique(_ids(r))[0],
    segments=lambda r: tf.math.unsorted_segment_sum(r, _ids(r), 7),
    bincount=lambda r: tf.math.bincount(_ids(r), minlength=7, maxlength=7),
)
_plain(
    "signals and images",
    spectrum=lambda r: tf.abs(tf.signal.rfft(tf.transpose(r), [8])),
    convolution_of_a_sequence=lambda r: tf.nn.conv1d(r[None], FILTERS, 1, "SAME")[0],
    convolution_of_an_image=lambda r: tf.nn.conv2d(r[None, ..., None], KERNEL, 1, "SAME")[0],
    pooling=lambda r: tf.nn.max_pool1d(r[None], 2, 1, "SAME")[0],
    resized=lambda r: tf.image.resize(r[..., None], [3, 5]),
    flipped=lambda r: tf.image.flip_left_right(r[..., None]),
    coded=lambda r: tf.io.encode_png(tf.cast(tf.abs(r[..., None]) * 255.0, tf.uint8)),
)
_plain(
    "text, sparse and ragged tensors",
    text=lambda r: tf.strings.reduce_join(tf.as_string(_ids(r)), separator=" "),
    split_text=lambda r: tf.strings.to_number(
        tf.strings.split(tf.strings.reduce_join(tf.as_string(_ids(r)), separator=","), ",")
    ),
    hashed=lambda r: tf.strings.to_hash_bucket_fast(tf.as_string(_ids(r)), 9),
    sparse_product=lambda r: tf.sparse.sparse_dense_matmul(
        tf.sparse.from_dense(tf.nn.relu(r)), SQUARE
    ),
    ragged_tensor=lambda r: tf.reduce_sum(tf.RaggedTensor.from_tensor(r, padding=0.0), 1),
)

# ---------------------------------------------------------------------------
# Control flow
# ---------------------------------------------------------------------------


def _steps(r: tf.Tensor) -> Any:
    total = B
    for t in tf.range(_size(r)):
        total = tf.tanh(total + r[t])
    return total


def _written(r: tf.Tensor) -> Any:
    made = tf.TensorArray(tf.float32, _size(r), element_shape=[D])
    for t in tf.range(_size(r)):
        made = made.write(t, r[t] * 2.0)
    return made.stack()


def _until(r: tf.Tensor) -> Any:
    x = tf.reduce_sum(tf.abs(r)) + 3.0
    while x > 1.0:
        x = x / 2.0
    return x


def _sinkhorn(r: tf.Tensor) -> Any:
    p = tf.exp(r)
    for _ in tf.range(3):
        p = p / tf.reduce_sum(p, 0, keepdims=True)
        p = p / tf.reduce_sum(p, 1, keepdims=True)
    return p


def _nested(r: tf.Tensor) -> Any:
    total = tf.constant(0.0)
    if r[0, 0] > 0.0:
        for t in tf.range(_size(r)):
            if r[t, 1] > 0.0:
                total += tf.reduce_sum(r)
            elif r[t, 2] > 0.0:
                total -= tf.reduce_max(r)
            else:
                total *= 0.5
    elif r[0, 1] > 0.0:
        total = tf.reduce_sum(r[1:])
    return total


def _early(r: tf.Tensor) -> Any:
    if tf.reduce_sum(r) > 0.5:
        return r[0] * 2.0
    if r[0, 0] > 0.0:
        return r[-1]
    return tf.reduce_sum(r, 0)


_plain(
    "control flow",
    conditional=lambda r: tf.cond(r[0, 0] > 0.0, lambda: r * 2.0, lambda: tf.sin(r)),
    branches_of_two_shapes=lambda r: tf.cond(r[0, 0] > 0.0, lambda: r, lambda: r[1:]),
    choice_of_three=lambda r: tf.switch_case(
        _ids(r)[0] % 3, [lambda: r[0], lambda: tf.reduce_sum(r, 0), lambda: tf.exp(r[-1])]
    ),
    nested_branches_and_loops=_nested,
    early_returns=_early,
    loop_over_the_row=_steps,
    loop_until=_until,
    loop_that_writes_an_array=_written,
    loop_over_a_matrix_of_the_row=_sinkhorn,
    map_fn_that_reads_the_row=lambda r: tf.map_fn(lambda x: tf.sin(r[:, 0]) * x[1], r),
    scan_that_carries_the_row=lambda r: tf.scan(
        lambda a, x: a * 0.5 + tf.linalg.matvec(r, x), r, r[:, 0]
    ),
    map_fn=lambda r: tf.map_fn(lambda x: tf.tanh(x) * x[0], r),
    scan=lambda r: tf.scan(lambda a, x: a * 0.5 + x, r),
    map_in_the_body=lambda r: tf_pfor.vectorized_map(lambda x: tf.reduce_sum(x * x) * x, r),
    function_in_the_body=lambda r: tf.function(lambda x: tf.tanh(x @ W))(r),
)


@tf.custom_gradient
def _clipped(x: tf.Tensor) -> Any:
    return x * x, lambda d: tf.clip_by_value(d * x, -0.5, 0.5)


def _gradient(r: tf.Tensor) -> Any:
    with tf.GradientTape() as tape:
        tape.watch(r)
        loss = tf.reduce_sum(tf.tanh(r @ W) ** 2)
    return tape.gradient(loss, r)


def _gradient_of_a_loop(r: tf.Tensor) -> Any:
    with tf.GradientTape() as tape:
        tape.watch(r)
        v = r
        for _ in tf.range(_ids(r)[0] % 3):
            v = tf.nn.softmax(v, 0) * r
        loss = tf.reduce_sum(v)
    return tape.gradient(loss, r)


_plain(
    "derivatives in the body",
    gradient_of_a_loop=_gradient_of_a_loop,
    custom_gradient=_clipped,
    recomputed_gradient=lambda r: tf.recompute_grad(lambda x: tf.tanh(x @ W))(r),
    gradient=_gradient,
    jacobian=lambda r: tf_pfor.jacrev(lambda x: tf.reduce_sum(tf.tanh(x), 0))(r),
    hessian=lambda r: tf_pfor.hessian(lambda x: tf.reduce_sum(tf.tanh(x) ** 3))(r[0]),
)

# ---------------------------------------------------------------------------
# Layers
# ---------------------------------------------------------------------------


def _layer(kind: str, name: str, make: Callable[[], Any], **options: Any) -> None:
    """Registers a Keras layer, called on a batch of the row alone."""

    def body() -> tuple[Row, Sequence[Any]]:
        tf.keras.utils.set_random_seed(3)
        layer = make()
        layer(tf.zeros([1, 2, D]), **options)
        return (lambda r: layer(r[None], **options)[0]), layer.variables

    BODIES.append(Body(kind, name, body))


_layers = tf.keras.layers
_layer("Keras layers", "dense layer", lambda: _layers.Dense(3, activation="gelu"))
_layer("Keras layers", "layer normalization", _layers.LayerNormalization)
_layer("Keras layers", "convolutional layer", lambda: _layers.Conv1D(3, 3, padding="same"))
_layer("Keras layers", "LSTM", lambda: _layers.LSTM(3))
_layer("Keras layers", "GRU that returns sequences", lambda: _layers.GRU(3, return_sequences=True))
_layer("Keras layers", "batch normalization, training", _layers.BatchNormalization, training=True)


def _attention() -> Any:
    tf.keras.utils.set_random_seed(3)
    layer = _layers.MultiHeadAttention(2, 3)
    layer(tf.zeros([1, 2, D]), tf.zeros([1, 2, D]))
    return layer


def _dropout() -> Any:
    return _layers.Dropout(0.5, seed=3)


_with_state(
    "Keras layers", self_attention=(_attention, lambda layer, r: layer(r[None], r[None])[0])
)
_with_state(
    "Keras layers",
    is_free=True,
    dropout_training=(_dropout, lambda layer, r: layer(r, training=True)),
)

# ---------------------------------------------------------------------------
# State, randomness and effects
# ---------------------------------------------------------------------------


def _generator() -> tf.random.Generator:
    return tf.random.Generator.from_seed(5)


def _variable(start: Any) -> Callable[[], tf.Variable]:
    return lambda: tf.Variable(start)


def _after(change: Any, result: tf.Tensor) -> tf.Tensor:
    """The result of a row behind what it changes."""
    return result


def _counted(v: tf.Variable, r: tf.Tensor) -> Any:
    v.assign_add(1.0)
    return r[0] * v


def _mean_so_far(mean: Any, r: tf.Tensor) -> Any:
    mean.update_state(tf.reduce_sum(r))
    return r[0] + mean.result()


_plain(
    "random numbers",
    seeded_draw=lambda r: tf.random.stateless_normal(tf.shape(r), [3, 7]) + r,
    draw_seeded_by_the_row=lambda r: tf.random.stateless_uniform([3], [_ids(r)[0], 7]),
)


_plain(
    "random numbers",
    is_free=True,
    free_draw=lambda r: tf.random.normal([3]) + r[0, :3],
    draw_as_large_as_the_row=lambda r: tf.random.uniform(tf.shape(r)) * r,
    shuffled=lambda r: tf.random.shuffle(r),
)
_with_state(
    "random numbers",
    generator=(_generator, lambda g, r: g.normal([2]) + r[0, :2]),
    generator_as_large_as_the_row=(_generator, lambda g, r: g.normal(tf.shape(r)) + r),
)
_with_state(
    "variables",
    variable_that_is_read=(_variable(W), lambda v, r: r @ v),
    variable_that_is_looked_up=(_variable(TABLE), lambda v, r: tf.gather(v, _ids(r))),
    sum_in_a_variable=(
        _variable(0.0),
        lambda v, r: _after(v.assign_add(tf.reduce_sum(r)), r[0]),
    ),
    moving_average=(
        _variable(tf.zeros([D])),
        lambda v, r: _after(v.assign(0.9 * v + 0.1 * tf.reduce_mean(r, 0)), r[0]),
    ),
    scatter_into_a_variable=(
        _variable(tf.zeros([7, D])),
        lambda v, r: _after(v.scatter_add(tf.IndexedSlices(r, _ids(r))), r[0]),
    ),
    metric=(
        tf.keras.metrics.Mean,
        lambda m, r: _after(m.update_state(tf.reduce_sum(r)), r[0]),
    ),
    counter=(_variable(0.0), _counted),
    result_of_a_metric=(tf.keras.metrics.Mean, _mean_so_far),
)


def _lookup() -> tuple[Row, Sequence[Any]]:
    keys, values = tf.range(7), tf.range(7) * 3
    table = tf.lookup.StaticHashTable(tf.lookup.KeyValueTensorInitializer(keys, values), -1)
    return (lambda r: table.lookup(_ids(r))), [table]


def _doubled(x: Any) -> Any:
    return np.float32(2.0) * x


def _through_numpy(r: tf.Tensor) -> Any:
    made = tf.numpy_function(_doubled, [r], tf.float32)
    return tf.ensure_shape(made, [None, D])


def _checked(r: tf.Tensor) -> Any:
    tf.debugging.assert_less(tf.abs(r), 10.0)
    return r * 2.0


def _printed(r: tf.Tensor) -> Any:
    tf.print(tf.reduce_sum(r), output_stream="file:///dev/null")
    return r * 2.0


BODIES.append(Body("effects", "lookup in a table", _lookup))
_plain(
    "effects",
    assertion=_checked,
    print=_printed,
    NumPy_function_of_the_row=_through_numpy,
    NumPy_function_of_a_number=lambda r: tf.ensure_shape(
        tf.numpy_function(_doubled, [tf.reduce_sum(r)], tf.float32), []
    ),
    Python_function_of_the_row=lambda r: tf.py_function(
        lambda x: tf.reduce_sum(x * x), [r], tf.TensorSpec([], tf.float32)
    ),
)
