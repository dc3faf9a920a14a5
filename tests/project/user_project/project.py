"""A small project of a user, for the type checker and for the tests: it uses what is public."""

from __future__ import annotations

import tensorflow as tf

import tf_pfor
from tf_pfor import psum, vmap


def loss(weights: tf.Tensor, x: tf.Tensor) -> tf.Tensor:
    """The loss of one example."""
    return tf.reduce_sum((weights * x) ** 2)


@vmap(in_axes=(None, 0), axis_name="batch", chunk_size="auto")
def shares(weights: tf.Tensor, x: tf.Tensor) -> tf.Tensor:
    """The part of the batch's loss that each example has."""
    own = loss(weights, x)
    return own / psum(own, "batch")


def squares(count: int) -> tf.Tensor:
    """i * i for i below ``count``."""
    return tf_pfor.pfor(lambda i: i * i, count, parallel_iterations=2)


def curvature(weights: tf.Tensor, x: tf.Tensor) -> tf.Tensor:
    """The second derivatives of the loss of one example."""
    hessian = tf_pfor.hessian(loss, argnums=0)
    return hessian(weights, x)


def gradients(weights: tf.Variable, batch: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """The gradient of each example, and its norm."""

    def of_one(x: tf.Tensor) -> tf.Tensor:
        return tf.reduce_sum(weights * x)

    found = tf_pfor.per_example_gradients(of_one, weights, batch)
    norms = tf_pfor.gradient_norms(of_one, weights, batch)
    first: tf.Tensor = found[0]
    return first, norms


def is_safe(batch: tf.Tensor) -> bool:
    """Whether a function can be vectorized, and gives a loop's numbers."""
    try:
        report: tf_pfor.Report = tf_pfor.explain(tf.tanh, batch)
    except tf_pfor.ArgumentError as why:
        raise SystemExit(str(why)) from why
    checked: tf_pfor.CheckReport = tf_pfor.check(tf.tanh, batch)
    return report.is_complete and checked.is_equal


def existing_code(batch: tf.Tensor) -> tf.Tensor:
    """Code that knows nothing of tf_pfor."""
    with tf_pfor.drop_in(), tf.GradientTape() as tape:
        tape.watch(batch)
        outputs = tf.tanh(batch)
        return tape.batch_jacobian(outputs, batch)
