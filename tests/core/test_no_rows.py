"""Maps over no rows, in maps of maps too: shapes come from the body's result."""

import random

import numpy as np
import pytest
import tensorflow as tf

import tf_pfor

STEPS = {
    "a conditional": lambda x: tf.cond(tf.reduce_sum(x) > 0.0, lambda: x * 2.0, lambda: x),
    "a loop": lambda x: tf.while_loop(lambda i, y: i < 2, lambda i, y: (i + 1, y * 2.0), (0, x))[1],
    "a map": tf_pfor.vmap(tf.sin),
    "a map of more": tf_pfor.vmap(lambda y: tf.stack([y, y])),
    "a map of sums": tf_pfor.vmap(tf.reduce_sum),
    "a map that reads nothing": tf_pfor.vmap(lambda y: tf.ones([2])),
    "a pfor": lambda x: tf_pfor.pfor(lambda i: x[i] * 2.0, tf.shape(x)[0]),
    "concat": lambda x: tf.concat([x, x], 0),
    "expand": lambda x: x[None],
    "outer": lambda x: x[..., None] * tf.ones([2]),
    "reverse": lambda x: tf.reverse(x, [0]),
    "softmax": tf.nn.softmax,
    "stack": lambda x: tf.stack([x, x]),
    "sum": lambda x: tf.reduce_sum(x, 0),
}


def program(seed):
    """A function of a row, in how many maps it is, and the sizes of its argument."""
    rng = random.Random(seed)
    depth, rank = rng.choice([1, 1, 2, 3]), rng.choice([1, 2, 2, 3])
    shape = [rng.choice([0, 0, 1, 3]) for _ in range(depth)]
    shape += [rng.choice([0, 1, 2, 3]) for _ in range(rank)]
    names = [rng.choice(sorted(STEPS)) for _ in range(rng.randint(1, 4))]

    def fn(x):
        for name in names:
            if x.shape.rank:
                x = STEPS[name](x)
        return x

    return fn, depth, shape, names


def check(seed, known):
    fn, depth, shape, names = program(seed)
    row = tf.TensorSpec(shape[depth:])
    one = tf.function(fn).get_concrete_function(row).structured_outputs.shape
    for _ in range(depth):
        fn = tf_pfor.vmap(fn)
    given = np.ones(shape, np.float32)
    signature = [tf.TensorSpec(shape if known else [None] * len(shape))]
    found = tf.function(fn, input_signature=signature)(given)
    assert tuple(found.shape) == (*shape[:depth], *one), (seed, shape, depth, names)


@pytest.mark.parametrize("known", [True, False])
@pytest.mark.parametrize("block", range(5))
def test_random_programs(block, known):
    for seed in range(8 * block, 8 * block + 8):
        check(seed, known)


@pytest.mark.parametrize("known", [True, False])
@pytest.mark.parametrize("block", range(5, 30))
def test_more_random_programs(block, known):
    test_random_programs(block, known)
