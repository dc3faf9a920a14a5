"""for_loop: one iteration after the other, the reference for ``pfor``."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf

from tf_pfor.api.checks import (
    check_callable,
    check_iters,
    fixed_block,
)
from tf_pfor.core import axes, nests
from tf_pfor.core.errors import ArgumentError
from tf_pfor.core.nests import Nest
from tf_pfor.tracing.trace import dense
from tf_pfor.tracing.user_code import autographed

_no_autograph = tf.autograph.experimental.do_not_convert


@_no_autograph
def for_loop(
    loop_fn: Callable[[tf.Tensor], Any],
    loop_fn_dtypes: object,
    iters: int | tf.Tensor,
    parallel_iterations: int | None = None,
) -> Any:
    """Runs ``loop_fn(i)`` one iteration after the other: the reference for ``pfor``.

    Args:
      loop_fn: takes an int32 scalar, the iteration number; returns a nest of tensors, None or
        operations.
      loop_fn_dtypes: the dtypes of the results of ``loop_fn``, in the same nest; None where
        ``loop_fn`` returns None or an operation.
      iters: the number of iterations: an int, or a scalar integer tensor.
      parallel_iterations: as in ``tf.while_loop``; there is no "auto".

    Returns:
      The nest of ``loop_fn_dtypes``, each tensor stacked along a new axis 0.

    >>> import tensorflow as tf
    >>> import tf_pfor
    >>> tf_pfor.for_loop(lambda i: i * i, tf.int32, 4).numpy().tolist()
    [0, 1, 4, 9]
    """
    check_callable(loop_fn, "loop_fn")
    n = check_iters(iters)
    block = fixed_block(parallel_iterations)
    structure = nests.from_user(loop_fn_dtypes)
    dtypes = tf.nest.flatten(structure)

    user_fn = autographed(loop_fn, "pfor")

    def one(i: tf.Tensor) -> list[tf.Tensor]:
        alone = axes.Axis(why_not="for_loop runs one iteration after the other. Use pfor.")
        with axes.entered(alone):
            return [*_results_of_one(user_fn(i), structure), tf.identity(i)]

    def loop(count: tf.Tensor) -> list[tf.Tensor]:
        wanted = [d for d in dtypes if d is not None]
        return tf.map_fn(
            one,
            tf.range(count),
            fn_output_signature=[*wanted, tf.int32],
            parallel_iterations=block or 10,
        )[:-1]

    results = iter(_in_graph(loop, tf.convert_to_tensor(n, tf.int32)))
    leaves = [None if d is None else next(results) for d in dtypes]
    return nests.to_user(tf.nest.pack_sequence_as(structure, leaves))


def _results_of_one(result: Nest, structure: Nest) -> list[tf.Tensor]:
    """The results of one iteration of ``for_loop``, checked against the nest of dtypes."""
    result = tf.nest.map_structure(dense, nests.from_user(result))
    try:
        tf.nest.assert_same_structure(structure, result)
    except (TypeError, ValueError) as why:
        raise ArgumentError(
            "loop_fn_dtypes and what loop_fn returned differ in structure. Expected: one dtype "
            f"for each result, in the same nest. Found: {_dtypes(structure)} and {_dtypes(result)}."
        ) from why
    pairs = list(zip(tf.nest.flatten(structure), tf.nest.flatten(result)))
    for i, (dtype, x) in enumerate(pairs):
        wanted = "None" if dtype is None else tf.as_dtype(dtype).name
        found = _dtype_name(x)
        if found != wanted and (found or dtype is None):
            raise ArgumentError(
                f"loop_fn_dtypes has {wanted} for result {i} of loop_fn, which is {found}. "
                "Expected: its dtype, or None where loop_fn returns None or an operation."
            )
    with tf.control_dependencies([x for _, x in pairs if isinstance(x, tf.Operation)]):
        return [tf.identity(tf.convert_to_tensor(x, d)) for d, x in pairs if d is not None]


def _dtypes(structure: Nest) -> Any:
    """The nest of dtype names, as messages show it."""
    return tf.nest.map_structure(
        lambda x: tf.as_dtype(x).name if _is_dtype(x) else _dtype_name(x) or type(x).__name__,
        structure,
    )


def _is_dtype(x: object) -> bool:
    return isinstance(x, (tf.DType, type, np.dtype, str))


def _dtype_name(x: Nest) -> str:
    """The dtype of a result; "" for a Python value, whose dtype is free."""
    if x is None or isinstance(x, tf.Operation):
        return "None"
    return tf.as_dtype(x.dtype).name if hasattr(x, "dtype") else ""


def _in_graph(function: Callable[..., Any], *args: tf.Tensor) -> Any:
    if not tf.executing_eagerly():
        return function(*args)
    compiled = tf.function(function, autograph=False)
    return compiled.get_concrete_function(*args)(*args)
