"""The gradient of one example's loss, dense, as slices or by its factors; norms and sums of it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

from tf_pfor.api.checks import check_callable
from tf_pfor.api.leaves import is_scalar, tensor_of
from tf_pfor.core import nests
from tf_pfor.core.emit import Dim
from tf_pfor.core.errors import ArgumentError, ArgumentTypeError
from tf_pfor.core.nests import Nest
from tf_pfor.derivatives.factored import FactoredGradient
from tf_pfor.derivatives.indexed_slices import BatchedIndexedSlices
from tf_pfor.derivatives.missing_gradients import refuse_constants
from tf_pfor.derivatives.pullbacks import has_derivative
from tf_pfor.tracing.user_code import autographed

LossFn = Callable[..., Any]


def example_gradients(loss_fn: LossFn, variables: Nest, has_aux: bool) -> Callable[..., Any]:
    """A function of one example: gradients (slices for lookups), loss and aux."""
    check_callable(loss_fn, "loss_fn")
    converted = autographed(loss_fn, "loss_fn")
    leaves = _checked(variables)

    def one(*example: Nest) -> tuple[list[Any], tf.Tensor, Any]:
        with tf.GradientTape(watch_accessed_variables=False) as tape:
            tape.watch(leaves)
            result = converted(*example)
            loss, aux = _loss_and_aux(result) if has_aux else (result, None)
        if loss is None:
            raise ArgumentError("loss_fn must return the loss of one example, found None.")
        loss = tf.convert_to_tensor(loss)
        if not loss.dtype.is_floating:
            raise ArgumentError(
                f"loss_fn must return a real number, found dtype {loss.dtype.name}: integers have "
                "no gradient, and complex numbers no order."
            )
        if loss.shape.rank not in (0, None):
            raise ArgumentError(
                f"loss_fn must return a scalar for one example, found shape {loss.shape}. It sees "
                "one example, without the batch axis."
            )
        refuse_constants([loss], leaves)
        grads = tape.gradient(loss, leaves, unconnected_gradients=tf.UnconnectedGradients.ZERO)
        return [_leaf(g, v) for g, v in zip(grads, leaves)], loss, aux

    return one


def _loss_and_aux(result: Nest) -> tuple[Any, Any]:
    if not isinstance(result, tuple) or len(result) != 2:
        raise ArgumentError(
            f"With has_aux=True loss_fn must return (loss, aux), found {nests.shown(result)}."
        )
    return result


def _leaf(gradient: Nest, variable: tf.Variable) -> Any:
    """A gradient as a tensor, or as slices of fewer rows than the variable has."""
    if not isinstance(gradient, tf.IndexedSlices):
        return tf.convert_to_tensor(gradient)
    count, rows = gradient.indices.shape[0], variable.shape[0]
    if count is not None and rows is not None and count >= rows:
        return tf.convert_to_tensor(gradient)
    return BatchedIndexedSlices.of(gradient, variable)


def dense(gradient: Nest) -> tf.Tensor:
    """A gradient as one tensor, in the shape of its variable."""
    is_sparse = isinstance(gradient, BatchedIndexedSlices)
    return gradient.to_dense() if is_sparse else gradient


def parts_of(gradient: object) -> Any:
    """The parts of a gradient that differ between examples: a tensor, or values and indices."""
    is_sparse = isinstance(gradient, BatchedIndexedSlices)
    return (gradient.values, gradient.indices) if is_sparse else gradient


def whole(gradient: object, variable: tf.Variable) -> Any:
    """The inverse of ``parts_of``."""
    if isinstance(gradient, FactoredGradient) or not isinstance(gradient, tuple):
        return gradient
    values, indices = gradient
    return BatchedIndexedSlices(values, indices, tf.shape(variable))


def factored(gradient: object) -> Any:
    """A dense gradient by its factors where it is a product of smaller ones, else as it is."""
    if isinstance(gradient, BatchedIndexedSlices):
        return gradient
    return FactoredGradient.of(gradient) or gradient


def tensors_of(variables: Nest) -> list[Any]:
    """The leaves, Keras variables as the TensorFlow variables that they hold."""
    return [
        v if isinstance(v, (tf.Tensor, tf.Variable)) else getattr(v, "value", v)
        for v in tf.nest.flatten(variables)
    ]


def named(variables: Nest) -> list[tuple[Any, str]]:
    """``tensors_of``, each with the name that a user would write."""
    leaves = tensors_of(variables)
    if not leaves:
        raise ArgumentError(
            "variables holds nothing to differentiate with respect to. The variables of a Keras "
            "model exist once it is built: call it once before, or begin it with a keras.Input."
        )
    return list(zip(leaves, nests.paths(variables, "variables")))


def _checked(variables: Nest) -> list[Any]:
    """The leaves, which must be tensors or variables with gradients."""
    for leaf, name in named(variables):
        if not isinstance(leaf, (tf.Tensor, tf.Variable)):
            raise ArgumentTypeError(
                f"{name} is {nests.shown(leaf)} of type {type(leaf).__name__}, expected a "
                "variable or a tensor that loss_fn uses."
            )
        if not has_derivative(leaf.dtype):
            raise ArgumentError(
                f"{name} has dtype {leaf.dtype.name}, which has no gradient. Leave it out."
            )
    return tensors_of(variables)


def check_batch(batch: tuple[Any, ...]) -> None:
    """Refuses a batch without tensors, which has no examples, and numbers of Python."""
    if all(x is None for x in tf.nest.flatten(nests.from_user(batch))):
        raise ArgumentError(
            "batch holds no tensor, so there are no examples. Expected: tensors of shape [n, ...], "
            "behind the variables."
        )
    for leaf, name in zip(nests.flatten(batch), nests.paths(batch, "batch")):
        if is_scalar(leaf):
            tensor_of(leaf, name, "Close over it in loss_fn if all examples share it.")


def flattened(gradient: Nest, *rows: Dim) -> Any:
    """[*rows, ...] -> [*rows, m]; slices and factors as they are."""
    if isinstance(gradient, (BatchedIndexedSlices, FactoredGradient)):
        return gradient
    known: tf.TensorShape = gradient.shape[len(rows) :]
    count = known.num_elements()
    if count is None:  # no -1, which stands for nothing if there are no rows
        count = tf.reduce_prod(tf.shape(gradient)[len(rows) :])
    return tf.reshape(gradient, [*rows, count])


def squares(gradient: Nest) -> tf.Tensor:
    """The sum of squares over the last axis of a dense gradient, of slices or of a product."""
    if isinstance(gradient, (BatchedIndexedSlices, FactoredGradient)):
        return gradient.squared_norms()
    if gradient.dtype in (tf.float16, tf.bfloat16):  # their squares overflow
        gradient = tf.cast(gradient, tf.float32)
    return tf.reduce_sum(tf.math.real(gradient * tf.math.conj(gradient)), -1)


def global_norm(squares: Sequence[tf.Tensor]) -> tf.Tensor:
    """The global norm, in double precision if one of the gradients is."""
    dtype = tf.float64 if any(s.dtype == tf.float64 for s in squares) else tf.float32
    return tf.sqrt(tf.add_n([tf.cast(s, dtype) for s in squares]))


def scaled_sum(gradient: Nest, scales: tf.Tensor, variable: tf.Variable) -> tf.Tensor:
    """The sum over examples of scale times gradient: the shape of the variable."""
    if isinstance(gradient, BatchedIndexedSlices):
        return tf.convert_to_tensor(gradient.sum(scales))
    if isinstance(gradient, FactoredGradient):
        return gradient.sum(scales, variable)
    total = tf.linalg.matvec(gradient, tf.cast(scales, gradient.dtype), transpose_a=True)
    return tf.reshape(total, tf.shape(variable))
