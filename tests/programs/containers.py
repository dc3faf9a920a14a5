"""Values that loops may carry: structures, arrays, sparse and ragged tensors, odd dtypes."""

import numpy as np
import tensorflow as tf

from tests.programs.program import F8, cast, chances, given, integers, normal, program


class Position(tf.experimental.ExtensionType):
    """A point, and how often it was moved."""

    x: tf.Tensor
    moves: tf.Tensor


@program(x=normal(2))
def extension_type(x):
    """A loop and a branch carry an ExtensionType."""
    p = Position(x=x, moves=tf.constant(0))
    while tf.reduce_sum(tf.abs(p.x)) > 1.0 and p.moves < 20:
        p = Position(x=tf.sin(p.x) * 0.9, moves=p.moves + 1)
    if p.moves > 3:
        p = Position(x=p.x * 2, moves=p.moves)
    return p.x, p.moves


@program(x=normal(5))
def ragged_tensor(x):
    """A loop carries a RaggedTensor with an empty row."""
    ragged = tf.RaggedTensor.from_row_splits(x, [0, 2, 2, 5])
    total, k = tf.constant(0.0, F8), 0
    while total < 4.0 and k < 10:
        ragged = ragged * 1.2 + 0.1
        total = tf.reduce_sum(tf.abs(ragged.values))
        k += 1
    return ragged.values, tf.reduce_sum(ragged, 1), k


@program(x=normal(3))
def sparse_tensor(x):
    """tf.while_loop carries a SparseTensor."""

    def goes_on(sparse, v, k):
        return (tf.reduce_sum(v) < 9.0) & (k < 6)

    def step(sparse, v, k):
        v = tf.ensure_shape(tf.sparse.sparse_dense_matmul(sparse, v), [3, 1]) + 0.1
        return sparse.with_values(sparse.values * 0.9), v, k + 1

    start = (tf.SparseTensor([[0, 1], [1, 0], [2, 2]], x, [3, 3]), tf.ones([3, 1], F8), 0)
    sparse, v, k = tf.while_loop(goes_on, step, start)
    return sparse.values, v, k


@program(x=normal(4), k=integers(0, 5))
def optional(x, k):
    """A loop carries an Optional, which a branch replaces."""
    best, i = tf.experimental.Optional.from_value(tf.constant(0.0, F8)), 0
    while i < k:
        new = tf.experimental.Optional.from_value(x[i] * 2)
        best = tf.cond(x[i] > best.get_value(), lambda new=new: new, lambda best=best: best)
        i += 1
    return best.get_value()


def grown(x, k):
    """A vector grows by its last item's weighted sum."""

    def step(i, grown, _):
        item = tf.reduce_sum(tf.sin(grown)) * x[i : i + 1]
        grown = tf.concat([grown, item], 0)
        return i + 1, grown, tf.reduce_sum(grown)

    shapes = (tf.TensorShape([]), tf.TensorShape([None]), tf.TensorShape([]))
    start = (tf.constant(0), x[:1], tf.constant(0.0, F8))
    return tf.while_loop(lambda i, *_: i < k, step, start, shape_invariants=shapes)


@program(x=normal(4))
def growing_vector(x):
    """tf.concat in a loop, as often in all rows."""
    _, vector, total = grown(x, 4)
    return vector, total


@program(x=normal(4), k=given(0, 2, 4, 1, 3, 2, dtype=np.int32))
def growing_vector_by_row(x, k):
    """tf.concat in a loop, further in some rows than in others; only its sum is read."""
    return grown(x, k)[2]


@program(u=normal(4), v=normal(4))
def folds(u, v):
    """tf.foldr over a dict, then tf.foldl."""

    def step(carried, x):
        a, b = carried["a"], carried["b"]
        return {"a": a * x["u"] + b[0], "b": tf.where(x["v"] > 0, b + 1.0, b * x["u"])}

    items = {"u": u, "v": v}
    start = {"a": tf.constant(0.5, F8), "b": tf.ones([2], F8)}
    right = tf.foldr(step, items, initializer=start)
    left = tf.foldl(lambda c, x: tf.tanh(c + x["u"] * x["v"]), items, initializer=right["a"])
    return right, left


@program(x=normal(2, 3))
def map_in_a_map(x):
    """tf.map_fn with structures, in tf.map_fn."""

    def of_item(item):
        return item * 2, tf.cast(item > 0, tf.int32), tf.stack([item, item**2])

    def of_line(line):
        types = (F8, tf.int32, F8)
        double, positive, powers = tf.map_fn(of_item, line, fn_output_signature=types)
        return tf.reduce_sum(double) * tf.reduce_max(x), positive, powers

    types = (tf.TensorSpec([], F8), tf.int32, tf.TensorSpec([3, 2], F8))
    return tf.map_fn(of_line, x, fn_output_signature=types)


@program(x=normal(5), lengths=integers(0, 6, 3))
def map_to_ragged(x, lengths):
    """tf.map_fn whose results differ in length."""
    spec = tf.RaggedTensorSpec([None], F8, ragged_rank=0)
    ragged = tf.map_fn(lambda k: x[:k], lengths, fn_output_signature=spec)
    return tf.reduce_sum(ragged, 1), ragged.to_tensor(shape=[3, 5]), ragged.row_lengths()


@program(
    half=cast(normal(), tf.float16),
    brain=cast(normal(), tf.bfloat16),
    flag=chances(0.5),
    bits=integers(0, 9, dtype=np.uint8),
)
def small_dtypes(half, brain, flag, bits):
    """A loop carries five dtypes of one or two bytes."""
    i = tf.constant(0, tf.int8)
    while (tf.abs(half) < 4) and (i < 9):
        half = half * tf.constant(1.5, tf.float16) + tf.constant(0.1, tf.float16)
        brain = brain * tf.constant(0.5, tf.bfloat16)
        flag = tf.math.logical_xor(flag, tf.cast(i % 2, tf.bool))
        bits = tf.bitwise.left_shift(bits, tf.constant(1, tf.uint8))
        i += tf.constant(1, tf.int8)
    return half, brain, flag, bits, i


@program(x=normal(0, 2), k=integers(0, 4))
def no_items(x, k):
    """A loop and an array over tensors without items."""
    total = tf.zeros([0, 2], F8)
    while k > 0:
        total = total + x
        if k % 2 == 0:
            x = x * 2
        k -= 1
    return total, tf.reduce_sum(total), tf.TensorArray(F8, 0, element_shape=[2]).stack()


@program(x=normal(2), k=integers(0, 6))
def two_arrays(x, k):
    """A branch in a loop decides what goes to arrays of two dtypes."""
    places = tf.TensorArray(F8, 5, element_shape=[2])
    flags = tf.TensorArray(tf.bool, 5, element_shape=[])
    for i in tf.range(5):
        if i < k:
            x = x * 1.1 + tf.reverse(x, [0]) * 0.2
        else:
            x = tf.sin(x)
        places = places.write(i, x)
        flags = flags.write(i, x[0] > 0)
    return places.stack(), flags.stack(), places.size()


@program(x=normal(6, 3))
def split_and_joined(x):
    """TensorArray.split, changed in turn, and TensorArray.concat."""
    parts = tf.TensorArray(F8, 3, element_shape=[2, 3]).split(x, [2, 2, 2])
    out = tf.TensorArray(F8, 3, element_shape=[2, 3])
    for i in tf.range(3):
        part = parts.read(i)
        if tf.reduce_sum(part) > 0:
            part = -part
        out = out.write(2 - i, part * tf.cast(i + 1, F8))
    return out.concat()


@tf.custom_gradient
def clipped(x):
    """The identity, whose gradient stays small."""
    return tf.identity(x), lambda dy: tf.clip_by_value(dy, -0.1, 0.1)


@program(x=normal(3))
def custom_gradient(x):
    """A function with a gradient of its own in a branch of a loop."""
    y, k = x, 0
    while tf.reduce_sum(y * y) < 50.0 and k < 8:
        if y[0] > 0.3:
            y = clipped(y) * 1.7
        else:
            y = tf.nn.softplus(y) + tf.stop_gradient(y) * 0.1 + x
        k += 1
    return y, k


@tf.recompute_grad
def block(h, w):
    """Computed again for its gradient."""
    return tf.tanh(tf.linalg.matvec(w, h))


@program(x=normal(3), k=integers(0, 4), weights={"w": normal(3, 3)})
def recomputed(x, k, w):
    """tf.recompute_grad in a loop."""
    h, weight = x, tf.identity(w)
    for _ in tf.range(k):
        h = block(h, weight) + x
    return h
