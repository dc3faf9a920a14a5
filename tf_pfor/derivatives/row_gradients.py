"""The gradients of one number for each row, from the gradient of the sum of these numbers.

``vmap(jacrev(f))`` differentiates f in the body. Where the number of trips of a loop differs per
row, keeping tensors for each trip and row is dear. If f returns one number, the map of f can be
differentiated instead. No row depends on another row, so the gradient of the sum has the gradient
of each row.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

from tf_pfor import _tf
from tf_pfor.core import nests
from tf_pfor.core.nests import Nest
from tf_pfor.derivatives.missing_gradients import refuse_constants
from tf_pfor.tracing.user_code import autographed

Map = Callable[[Callable[..., Any], tuple[Any, ...]], Any]


def of_rows(
    fn: Callable[..., Any],
    argnums: int | Sequence[int],
    map_rows: Map,
    args: tuple[Any, ...],
    axes: Sequence[Any],
) -> Any:
    """The gradients [n, ...] of all rows; None where they are not, or need not be, got so.

    ``map_rows`` maps a function over arguments, in the current graph. ``axes`` has for each of them
    0 if it is mapped, None if all rows share it.
    """
    chosen = [argnums] if isinstance(argnums, int) else list(argnums)
    if any(not -len(args) <= k < len(args) or axes[k] != 0 for k in chosen):
        return None
    if not _is_scalar_of_a_loop(fn, args, axes, chosen):
        return None
    given = list(args)
    for k in chosen:
        given[k] = nests.to_user(tf.nest.map_structure(tf.identity, nests.from_user(args[k])))
    y = map_rows(fn, tuple(given))
    flat = [x for k in chosen for x in tf.nest.flatten(nests.from_user(given[k]))]
    found = iter(
        tf.zeros_like(x) if g is None else tf.convert_to_tensor(g)
        for g, x in zip(tf.gradients(y, flat), flat)
    )
    made = [
        nests.to_user(tf.nest.map_structure(lambda _: next(found), nests.from_user(given[k])))
        for k in chosen
    ]
    return made[0] if isinstance(argnums, int) else tuple(made)


def _is_scalar_of_a_loop(
    fn: Callable[..., Any], args: tuple[Any, ...], axes: Sequence[Any], chosen: Sequence[int]
) -> bool:
    """Whether a row gives one real number, by a loop."""
    scratch = _tf.FuncGraph("one_row")

    def row(x: Nest, axis: object) -> tf.Tensor:
        known = tf.convert_to_tensor(x)
        shape = known.shape if axis is None else known.shape[1:]
        return tf.compat.v1.placeholder(known.dtype, shape)

    try:
        with scratch.as_default():
            rows = [
                tf.nest.map_structure(lambda x, axis=axis: row(x, axis), nests.from_user(a))
                for a, axis in zip(args, axes)
            ]
            y = autographed(fn)(*nests.to_user(rows))
            flat = [x for k in chosen for x in tf.nest.flatten(rows[k])]
            if not isinstance(y, tf.Tensor) or y.shape.rank != 0 or not y.dtype.is_floating:
                return False
            refuse_constants([y], flat)
    except Exception:
        return False
    same = all(x.dtype == y.dtype for x in flat)
    return same and any(op.type in _tf.LOOPS for op in scratch.get_operations())
