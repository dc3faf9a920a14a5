"""AutoGraph never converts the sources of this package: that takes seconds in each process.

Functions of users that are passed to it are converted, wherever it is called.
"""

from unittest import mock

import numpy as np
import pytest
import tensorflow as tf

import tf_pfor
import tf_pfor.keras
from tf_pfor._tf import _functions

W = tf.Variable([1.0, 2.0])
ROWS = tf.constant([[1.0, 2.0], [-3.0, 1.0]])


def _row(x):
    """Needs AutoGraph: the condition is a tensor."""
    if tf.reduce_sum(x) > 0.0:
        return x * x
    return 2.0 * x


def _number(x):
    return tf.reduce_sum(_row(x) * W)


def _sum(a, b):
    if tf.reduce_sum(a) > 1000.0:
        return a
    return a + b


def _step(carry, x):
    if x > 0.0:
        carry = carry + x
    return carry, carry


def _with_rule():
    own = tf_pfor.custom_vmap(_row)

    @own.def_vmap
    def of_rows(n, batched, x):
        return tf.where(tf.reduce_sum(x, 1, keepdims=True) > 0.0, x * x, 2.0 * x), True

    return own


def _on_axis(x):
    shared = [tf_pfor.psum, tf_pfor.pmean, tf_pfor.pmax, tf_pfor.pmin]
    numbers = [tf_pfor.axis_index("i"), tf_pfor.axis_size("i"), tf_pfor.pargmax(x[0], "i")]
    moved = tf_pfor.ppermute(x, "i", [(0, 1), (1, 0)]) + tf_pfor.all_to_all(x, "i")
    summed = tf_pfor.psum_scatter(x, "i") + tf_pfor.all_gather(x, "i")[0, 1]
    return sum(f(x, "i") for f in shared) + moved + summed + tf.cast(sum(numbers), tf.float32)


def _taped(x):
    with tf.GradientTape(persistent=True) as tape:
        tape.watch(x)
        y = _row(x)
    return tf_pfor.tape_jacobian(tape, y, x)


def _quietly(x):
    with tf_pfor.settings(warn=False):
        return _row(x)


MADE = tf_pfor.vmap(_number), tf_pfor.grad(_number), tf_pfor.cell(_row), tf_pfor.lazy(_row)
LAYER = tf_pfor.keras.Vectorized(lambda x: _row(x))
_pair = lambda x: tf.stack([x, -x])

BODIES = {
    "vmap": lambda x: tf_pfor.vmap(_number)(_pair(x)),
    "vmap, axes": lambda x: tf_pfor.vmap(_on_axis, axis_name="i")(_pair(x)),
    "pfor": lambda x: tf_pfor.pfor(lambda i: _row(x) * tf.cast(i, tf.float32), 2),
    "for_loop": lambda x: tf_pfor.for_loop(lambda i: _row(x), tf.float32, 2),
    "vectorized_map": lambda x: tf_pfor.vectorized_map(_number, _pair(x)),
    "scan": lambda x: tf_pfor.scan(_step, tf.constant(0.0), x)[1],
    "associative_scan": lambda x: tf_pfor.associative_scan(_sum, x),
    "custom_vmap": lambda x: tf_pfor.vmap(_with_rule())(_pair(x)),
    "vectorize": lambda x: tf_pfor.vectorize(_number, signature="(k)->()")(_pair(x)),
    "grad": lambda x: tf_pfor.grad(_number)(x),
    "value_and_grad": lambda x: tf_pfor.value_and_grad(_number)(x),
    "hessian": lambda x: tf_pfor.hessian(_number)(x),
    "hessian_diag": lambda x: tf_pfor.hessian_diag(_number)(x),
    "hvp": lambda x: tf_pfor.hvp(_number)(x, x),
    "jacfwd": lambda x: tf_pfor.jacfwd(_row)(x),
    "jacrev": lambda x: tf_pfor.jacrev(_row)(x),
    "laplacian": lambda x: tf_pfor.laplacian(_number)(x),
    "jvp": lambda x: tf_pfor.jvp(_row, (x,), (x,)),
    "vjp": lambda x: tf_pfor.vjp(_row, x)[1](x),
    "linearize": lambda x: tf_pfor.linearize(_row, x)[1](x),
    "ntk": lambda x: tf_pfor.ntk(lambda w, row: _number(w * row), x, _pair(x)),
    "fisher_vector_product": lambda x: tf_pfor.fisher_vector_product(_row)(x, x),
    "gauss_newton_vector_product": lambda x: tf_pfor.gauss_newton_vector_product(
        _row, _number
    )(x, x),
    "conjugate_gradient": lambda x: tf_pfor.conjugate_gradient(lambda v: _sum(v, v), x),
    "tape_jacobian": _taped,
    "per_example_gradients": lambda x: tf_pfor.per_example_gradients(_number, [W], _pair(x)),
    "gradient_norms": lambda x: tf_pfor.gradient_norms(_number, [W], _pair(x)),
    "clipped_gradient_sum": lambda x: tf_pfor.clipped_gradient_sum(
        _number, [W], _pair(x), clip_norm=1.0
    ),
    "batched": lambda x: tf_pfor.batched(lambda v: v * v)([x, -x]),
    "cell": lambda x: tf_pfor.cell(_row)(x),
    "lazy": lambda x: tf_pfor.lazy(_row)(x),
    "optimize": lambda x: tf_pfor.optimize(_row)(x),
    "explain": lambda x: (tf_pfor.explain(_row, ROWS), x)[1],
    "settings": _quietly,
    "made before": lambda x: [MADE[0](_pair(x)), *(f(x) for f in MADE[1:])],
    "keras": lambda x: LAYER(_pair(x)),
}  # fmt: skip


@pytest.mark.parametrize("name", BODIES)
def test_table_of_calls(name):
    converted, convert = [], _functions._ag_api._convert_actual

    def seen(entity, *args):
        converted.append(getattr(entity, "__module__", None) or "")
        return convert(entity, *args)

    body = BODIES[name]
    with mock.patch.object(_functions._ag_api, "_convert_actual", seen):
        found = tf_pfor.vectorized_map(body, ROWS, warn=False)
        wanted = [tf.function(body)(x) for x in ROWS]
    assert __name__ in converted
    assert not [module for module in converted if module.startswith("tf_pfor")]
    for column, *rows in zip(tf.nest.flatten(found), *map(tf.nest.flatten, wanted), strict=True):
        np.testing.assert_allclose(column, tf.stack(rows), 1e-5, 1e-6)
