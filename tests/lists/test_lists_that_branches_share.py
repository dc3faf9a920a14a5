"""Conditionals that rows choose, of which several results are made of the same TensorArray."""

import functools
import warnings

import numpy as np
import pytest
import tensorflow as tf

import tf_pfor
from tests.comparisons import gradient_of, pairwise

D = tf.float64
X = tf.constant(np.arange(12.0).reshape([3, 4]))
CHOICE = tf.constant([True, False, True])
TABLE = tf.constant([1.0, 2.0, 3.0, 4.0], D)
array_of = lambda x: tf.TensorArray(D, 4, element_shape=[], clear_after_read=False).unstack(x)


def backup(x, choice):
    a = array_of(x)
    if choice:
        old = a
        a = a.write(0, 70.0 * x[1])
    else:
        old = a
    return a.stack(), old.stack()


def backup_elsewhere(x, choice):
    a = array_of(x)
    if choice:
        old = a
    else:
        old = a
        a = a.write(0, 70.0 * x[1])
    return a.stack(), old.stack()


def two_of_one(x, choice):
    a = array_of(x)
    if choice:
        p, q = a.write(0, 70.0 * x[1]), a.write(1, 71.0 * x[1])
    else:
        p, q = a.write(2, 80.0 * x[1]), a.write(3, 81.0 * x[1])
    return p.stack(), q.stack()


def one_after_the_other(x, choice):
    p = q = array_of(x)
    if choice:
        p = q.write(1, x[2] * 5.0)
        q = p.write(2, x[1])
    return p.stack() * 2.0, q.stack()


def three_ways(x, choice):
    a, k = array_of(x), tf.cast(x[0], tf.int32) % 4
    ways = [
        lambda: (a.write(0, x[1]), a, a.write(3, x[2])),
        lambda: (a, a.write(1, x[0]), a.write(2, x[3] * 2.0)),
        lambda: (a.write(2, x[1] * 3.0), a.write(k, x[2] * 4.0), a),
    ]
    return tuple(t.stack() for t in tf.switch_case(tf.where(choice, k % 3, 2), ways))


def of_what_all_share(x, choice):
    a = array_of(TABLE)
    if choice:
        p, q = a.write(0, 70.0 * x[1]), a
    else:
        p, q = a, a.write(3, 81.0 * x[1])
    return p.stack(), q.stack()


def in_a_loop(x, choice):
    p = q = array_of(x)
    s = tf.constant(0.0, D)
    for i in tf.range(3):
        now = p
        if choice:
            p, q = now, now.write(i, x[i] * 3.0 + s)
        else:
            p, q = now.write(i, x[i] * 2.0 - s), now
        s += p.read(i) * q.read(i + 1)
    return p.stack(), q.stack(), s


def loops_in_branches(x, choice):
    p = q = array_of(x)
    if choice:
        for i in tf.range(tf.cast(x[0], tf.int32) % 3 + 1):
            p = p.write(i, x[1] * tf.cast(i, D))
    else:
        q = q.write(2, x[3] * 4.0)
    return p.stack(), q.stack()


def growing(x, choice):
    a = tf.TensorArray(D, 0, dynamic_size=True, element_shape=[], clear_after_read=False)
    for i in tf.range(2):
        a = a.write(i, x[i])
    if choice:
        p, q = a.write(2, x[2] * 5.0), a.write(0, x[3])
    else:
        p, q = a.write(1, x[2]), a.write(2, x[1])
    return tf.reduce_sum(p.stack() ** 2), tf.reduce_sum(q.stack() ** 2)


def nested(x, choice):
    a = array_of(x)
    if choice:
        if x[1] > 3.0:
            p, q = a.write(0, x[0] * 2.0), a
        else:
            p, q = a, a.write(1, x[1] * 7.0)
    else:
        p, q = a.write(3, x[2] ** 2), a.write(2, x[3] ** 2)
    return p.stack(), q.stack()


FAST = (backup_elsewhere, growing, in_a_loop, two_of_one)
SLOW = (
    backup, loops_in_branches, nested, of_what_all_share, one_after_the_other, three_ways
)  # fmt: skip
PROGRAMS = [*FAST, *(f for f in SLOW)]


def loss(results):
    return sum((k + 1.0) * tf.reduce_sum(y**2) for k, y in enumerate(tf.nest.flatten(results)))


def slopes(run):
    of = lambda x, choice: gradient_of(lambda: loss(run(x, choice)), x)
    return of


def mapped(fn, fallback="error"):
    def run(x, choice):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", tf_pfor.FallbackWarning)
            return tf_pfor.vectorized_map(lambda row: fn(*row), (x, choice), fallback=fallback)

    return run


def check(fn, run, x=X, choice=CHOICE, **options):
    """``run`` of all rows, against ``fn`` of each."""
    one = tf.function(fn)
    rows = [tf.nest.flatten(one(*row)) for row in zip(x, choice)]
    found = tf.nest.flatten(tf.function(run, **options)(x, choice))
    pairwise(np.testing.assert_allclose, found, zip(*rows), rtol=1e-12)


@pytest.mark.parametrize("f", PROGRAMS)
def test_each_is_a_list_of_its_own(f):
    check(f, mapped(f))
    check(slopes(f), mapped(slopes(f), "loop" if f is growing else "error"))
    check(slopes(f), slopes(mapped(f)))


@pytest.mark.parametrize("f", PROGRAMS)
def test_second_gradients(f):
    curvature = slopes(slopes(f))
    check(curvature, mapped(curvature, "loop"))


@pytest.mark.parametrize("f", PROGRAMS)
def test_maps_in_maps(f):
    def pairs(fn):
        def run(x, choice):
            found = mapped(mapped(fn))(x[None], choice[None])
            return tf.nest.map_structure(lambda t: t[0], found)

        return run

    check(f, pairs(f))
    if f is not growing:
        check(slopes(f), pairs(slopes(f)))


@pytest.mark.parametrize("f", [f for f in PROGRAMS if f is not growing])
def test_compiled(f):
    check(f, mapped(f), jit_compile=True)


@pytest.mark.parametrize("f", [two_of_one, in_a_loop])
def test_few_and_unknown_rows(f):
    specs = [tf.TensorSpec([None, 4], D), tf.TensorSpec([None], tf.bool)]
    for fn in (f, slopes(f)):
        run = tf.function(mapped(fn), input_signature=specs)
        for n in (1, 3):
            check(fn, functools.partial(run), X[:n], CHOICE[:n])
        assert all(t.shape[0] == 0 for t in tf.nest.flatten(run(X[:0], CHOICE[:0])))
