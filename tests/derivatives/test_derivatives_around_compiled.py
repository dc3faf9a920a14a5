"""Derivatives around maps whose bodies differentiate a loop, in all orders, also under jit_compile.

A list has room for maximum_iterations items there, and its gradient must end where the list does,
whatever the number of trips.
"""

import functools
import itertools

import numpy as np
import pytest
import tensorflow as tf

import tf_pfor
from tests.cases import table
from tests.comparisons import gradient_of, mapped, strict_map
from tf_pfor.core.errors import NotVectorizableError

# As many trips as maximum_iterations, fewer, none, and another number in each row.
TRIPS = [[4, 4, 4, 4], [2, 2, 2, 2], [0, 0, 0, 0], [0, 1, 2, 3], [4, 1, 3, 2]]
X = np.array([-1.2, 2.3, 0.7, 1.1])


def loop(k, x):
    return tf.while_loop(
        lambda i, _: i < k, lambda i, x: (i + 1, x * x * 0.5), (0, x), maximum_iterations=4
    )[1]


def leaves_by_data(k, x):
    return tf.while_loop(
        lambda i, x: (i < 5) & (x * x < tf.cast(k, x.dtype)),
        lambda i, x: (i + 1, x * x * 0.5 + 0.3),
        (0, x),
        maximum_iterations=6,
    )[1]


def writes_an_array(k, x):
    def body(i, x, states):
        x = x * x * 0.5
        return i + 1, x, states.write(i, x * x)

    states = tf.TensorArray(x.dtype, 4, element_shape=[]).unstack(tf.zeros([4], x.dtype))
    made = tf.while_loop(lambda i, *_: i < k, body, (0, x, states), maximum_iterations=4)
    return made[1] + tf.reduce_sum(made[2].stack())


def branches(k, x):
    body = lambda i, x: (i + 1, tf.cond(x > 0.0, lambda: x * x * 0.5, lambda: 1.2 * x * x * x))
    return tf.while_loop(lambda i, _: i < k, body, (0, x), maximum_iterations=4)[1]


def descends(k, x):
    body = lambda i, w: (i + 1, w - 0.1 * gradient_of(lambda: (w - x) ** 2 * w, w))
    return tf.while_loop(lambda i, _: i < k, body, (0, x * 2.0), maximum_iterations=4)[1]


def derived(f):
    run = lambda k, x: gradient_of(lambda: f(k, x), x, unconnected_gradients="zero")
    return run


mapped = lambda f: lambda k, x: strict_map(lambda row: f(*row), (k, x))


def jacobian(f):
    """The gradients of one result after the other, which is a map around the gradient."""

    def run(k, x):
        with tf.GradientTape(persistent=True) as tape:
            tape.watch(x)
            y = f(k, x)
        return tf.linalg.diag_part(tf_pfor.tape_jacobian(tape, y, x))

    return run


STEPS = {"D": derived, "M": mapped, "J": jacobian}


def nest(word, f):
    """``f`` with a derivative for each D and a map for each M, the last letter innermost."""
    for letter in reversed(word):
        f = STEPS[letter](f)
    return f


@functools.cache
def rows(f, order):
    """The derivatives of this order of each row for itself, for all of TRIPS."""
    one = tf.function(nest("D" * order, f))
    return [
        [one(tf.constant(k), tf.constant(x)).numpy() for k, x in zip(trips, X)] for trips in TRIPS
    ]


def check(f, word, jit):
    shape = [2, 2] if word.count("M") == 2 else [4]
    run = tf.function(nest(word, f), jit_compile=jit)
    for trips, expected in zip(TRIPS, rows(f, word.count("D") + word.count("J"))):
        found = run(tf.reshape(tf.constant(trips), shape), tf.reshape(tf.constant(X), shape))
        np.testing.assert_allclose(np.ravel(found), expected, rtol=1e-9, err_msg=f"{word} {trips}")


def words(maps, order):
    return sorted({"".join(w) for w in itertools.permutations("M" * maps + "D" * order)})


WORDS = [w for maps in (1, 2) for order in (1, 2, 3) for w in words(maps, order)]
QUICK = ["DM", "MD", "DMD", "MDD", "DMDD", "DMM", "MMD", "DMMD", "DMDM"]
# Refused, or refused by XLA; fails here when one is right, or a wrong number.
FAILS: dict = {True: {"DMMDD", "MDDMD"}, None: set()}


def check_or_fails(word, jit):
    if word not in FAILS[jit]:
        return check(loop, word, jit)
    with pytest.raises((NotVectorizableError, tf.errors.InvalidArgumentError)):
        check(loop, word, jit)


compiled = lambda f, word: check(f, word, True)
test_table_of_nests = table(
    {
        "quick": (lambda word, jit: check(loop, word, jit), QUICK, [None, True]),
        "longer": (check_or_fails, [w for w in WORDS if w not in QUICK], [None, True]),
        "jacobian around": (compiled, [loop], ["JMD"]),
        "jacobian around more": (compiled, [loop], ["JMDD", "JDMD", "DJMD"]),
        "another predicate": (compiled, [leaves_by_data], ["DMMD"]),
        "other bodies": (compiled, [leaves_by_data, branches, descends], ["DMDD", "DMMD", "DMDMD"]),
        "an array": (compiled, [writes_an_array], ["DMD", "DMMD", "DMDMD"]),
    }
)


def test_a_tape_around_branches_in_an_option():
    """``vmap(jit_compile=True)`` in a call that a tape records."""
    chosen = lambda k, x: tf.switch_case(k % 3, [lambda: tf.sin(x), lambda: x * 2.0, lambda: x**2])
    k = tf.constant([0, 1, 2, 4])
    run = tf_pfor.vmap(chosen, jit_compile=True)
    x = tf.constant(X)
    slope = gradient_of(lambda: tf.reduce_sum(run(k, x)), x)
    assert np.allclose(slope, [np.cos(X[0]), 2.0, 2 * X[2], 2.0])


def test_a_tape_around_hessians_of_branches_of_ragged_rows():
    powers = lambda x: [lambda: tf.reduce_sum(x**3), lambda: tf.reduce_sum(x**4)]
    hessian = tf_pfor.hessian(lambda x: tf.cond(tf.reduce_sum(x) > 0, *powers(x)))
    values = tf.constant([1.0, 2.0, -3.0])
    rows = lambda: tf.RaggedTensor.from_row_lengths(values, [2, 1])
    squares = lambda: tf.reduce_sum(tf_pfor.vmap(hessian, warn=False)(rows()).flat_values ** 2)
    assert np.allclose(gradient_of(squares, values), [72.0, 144.0, -15552.0])
