"""tf.TensorArray and lists in loops and branches, with gradients inside the body."""

import pytest
import tensorflow as tf

from tests.comparisons import gradient_of
from tests.lists.test_tensor_array import PLACE, X, check

raw = tf.raw_ops


def uniform(x, i):
    """A trip count that is the same for all rows."""
    ta = tf.TensorArray(tf.float32, size=4)
    _, ta = tf.while_loop(lambda t, a: t < 4, lambda t, a: (t + 1, a.write(t, x[t] * 2.0)), (0, ta))
    return ta.stack()


def varying(x, i):
    """Rows leave at different times: what they did not write is zero."""
    ta = tf.TensorArray(tf.float32, size=4, element_shape=[2])
    _, ta = tf.while_loop(lambda t, a: t < i, lambda t, a: (t + 1, a.write(t, x[t] * 2.0)), (0, ta))
    return ta.stack()


def maps(x, i):
    return (
        tf.map_fn(lambda r: r * r, x),
        tf.scan(lambda a, r: a + r, x),
        tf.foldl(lambda a, r: a * 0.5 + r, x),
    )


def captured(x, i):
    ta = tf.TensorArray(tf.float32, size=4).unstack(x)
    return tf.while_loop(
        lambda t, s: t < i, lambda t, s: (t + 1, s + ta.read(3 - t)), (0, tf.zeros([2]))
    )[1]


def per_row_index(x, i):
    ta = tf.TensorArray(tf.float32, size=5, element_shape=[2]).write(0, x[0])

    def step(t, a):
        j = tf.minimum((t * i) % 4, t)
        return t + 1, a.write(t + 1, a.read(j) + x[t])

    _, ta = tf.while_loop(lambda t, a: t < i, step, (0, ta))
    return ta.stack(), ta.read(i)


def growing(x, i):
    ta = tf.TensorArray(tf.float32, size=0, dynamic_size=True, element_shape=[2])
    _, ta = tf.while_loop(lambda t, a: t < i, lambda t, a: (t + 1, a.write(t, x[t] * 2.0)), (0, ta))
    return ta.size()


def grown_and_read(x, i):
    """Also where no row tells how long the list is."""
    ta = tf.TensorArray(
        tf.float32, size=0, dynamic_size=True, element_shape=[2], clear_after_read=False
    )
    _, ta = tf.while_loop(lambda t, a: t <= i, lambda t, a: (t + 1, a.write(t, x[t % 4])), (0, ta))
    return ta.read(0), ta.read(i)


def chain(x, i):
    """An array of scalars: the shapes that its gradient keeps are without elements."""
    ta = tf.TensorArray(tf.float32, size=4, element_shape=[], clear_after_read=False)
    step = lambda t, a: (t + 1, a.write(t + 1, a.read(t) * x[t, 1]))
    return tf.while_loop(lambda t, a: t < i, step, (0, ta.write(0, x[0, 0])))[1].stack()


def local(x, i):
    """A list of the trip, with an inner loop of the same length for all rows."""

    def inner(s):
        ta = tf.TensorArray(tf.float32, size=4, element_shape=[2])
        return tf.while_loop(
            lambda j, u: j < 4,
            lambda j, u: (j + 1, u.write(j, s * tf.cast(j, tf.float32))),
            (0, ta),
        )[1]

    step = lambda t, s: (t + 1, s + tf.reduce_sum(inner(s).stack(), 0) * 0.1)
    return tf.while_loop(lambda t, s: t < i, step, (0, x[0]))[1]


# The rows that have left keep what they had, also where a list is not written but replaced.


def _two(x):
    a = tf.TensorArray(tf.float32, size=4, element_shape=[2]).unstack(x)
    return a, tf.TensorArray(tf.float32, size=4, element_shape=[2]).unstack(-2.0 * x)


def swapped(x, i):
    a, b = _two(x)
    _, a, b = tf.while_loop(lambda t, a, b: t < i, lambda t, a, b: (t + 1, b, a), (0, a, b))
    return a.stack(), b.stack(), a.read(1), b.read(2)


def replaced(x, i):
    def step(t, a):
        return t + 1, tf.TensorArray(tf.float32, size=4, element_shape=[2]).unstack(a.stack() * 2.0)

    return tf.while_loop(lambda t, a: t < i, step, (0, _two(x)[0]))[1].stack()


def _stack(handle):
    return raw.TensorListStack(
        input_handle=handle, element_shape=[2], element_dtype=tf.float32, num_elements=4
    )


def added(x, i):
    a, b = (ta.flow for ta in _two(x))
    _, a, _ = tf.while_loop(
        lambda t, a, b: t < i, lambda t, a, b: (t + 1, raw.AddN(inputs=[a, b]), b), (0, a, b)
    )
    return _stack(a)


def zeroed(x, i):
    a = _two(x)[0].flow
    _, a = tf.while_loop(lambda t, a: t < i, lambda t, a: (t + 1, raw.ZerosLike(x=a)), (0, a))
    return _stack(a)


def gradient(fn):
    def run(x, i):
        return gradient_of(lambda: sum(tf.reduce_sum(v * v) for v in tf.nest.flatten(fn(x, i))), x)

    run.__name__ = f"gradient_{fn.__name__}"
    return run


FORWARD = [
    added, captured, chain, grown_and_read, growing, local, maps, per_row_index, replaced, swapped,
    uniform, varying, zeroed,
]  # fmt: skip
FIRST = [gradient(f) for f in (captured, maps, per_row_index, uniform, varying)]
SECOND = [gradient(gradient(f)) for f in (uniform,)]


@pytest.mark.parametrize("strategy", ["compact", "mask"])
def test_gradient_of_a_chain_of_scalars(strategy):
    check(gradient(chain), X, PLACE, while_strategy=strategy)


@pytest.mark.parametrize("body", [*FORWARD, *FIRST, *SECOND], ids=lambda f: f.__name__)
def test_body(body):
    check(body, X, PLACE)
