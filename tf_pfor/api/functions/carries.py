"""scan: a function that carries a state from row to row, one row after the other."""

from __future__ import annotations

import numbers
from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

from tf_pfor._tf._types import COMPOSITE
from tf_pfor.api.blocks import in_turn, sized
from tf_pfor.api.checks import with_rows
from tf_pfor.api.leaves import array, moved
from tf_pfor.api.options import check_bool
from tf_pfor.core import nests
from tf_pfor.core.emit import Dim
from tf_pfor.core.errors import ArgumentError, ArgumentTypeError
from tf_pfor.core.nests import Nest
from tf_pfor.tracing.caching import cached_call
from tf_pfor.tracing.user_code import autographed


@tf.autograph.experimental.do_not_convert
def scan(
    fn: Callable[[Any, Any], tuple[Any, Any]],
    init: Nest,
    xs: Nest = None,
    length: int | None = None,
    reverse: bool = False,
    *,
    axis: int = 0,
) -> tuple[Any, Any]:
    """Calls ``fn(carry, x)`` for each row of ``xs`` in order, as ``jax.lax.scan``.

    In ``vmap`` the examples take each step together. ``associative_scan`` needs fewer steps where
    the function is associative.

    Args:
      fn: takes the carry and a row of ``xs``, and returns (carry, y). Traced once, with AutoGraph.
        The carry must keep its structure, dtypes and shapes. y is a nest of dense tensors.
      init: the first carry, a nest of tensors. In all these nests a leaf may be None.
      xs: a nest of dense tensors, which all have n rows along ``axis``; None with ``length``.
      length: the number of rows n; needed without ``xs``.
      reverse: begin with the last row; results stay in the order of the rows.
      axis: the axis of the rows in the tensors of ``xs`` and of the results. A negative axis counts
        from the end.

    Returns:
      (carry, ys): the last carry, and the nest of y with n rows along ``axis``.

    Raises:
      ArgumentError, ArgumentTypeError: if an argument is wrong, or ``fn`` does not return a pair
        with a carry like ``init``.

    >>> import tensorflow as tf
    >>> import tf_pfor
    >>> total, sums = tf_pfor.scan(lambda c, x: (c + x, c + x), 0., tf.constant([1., 2., 3.]))
    >>> float(total), sums.numpy().tolist()
    (6.0, [1.0, 3.0, 6.0])
    """
    if not callable(fn):
        raise ArgumentTypeError(f"scan: fn must be a function, found {nests.shown(fn)}.")
    if isinstance(axis, bool) or not isinstance(axis, numbers.Integral):
        raise ArgumentTypeError(f"scan: axis must be an int, found {axis!r}.")
    options = (length, check_bool(reverse, "scan: reverse"), int(axis))
    return cached_call(_scan, (fn,), (init, xs), options)


def _scan(
    fn: Callable[[Any, Any], Any],
    init: Nest,
    xs: Nest,
    length: int | None,
    reverse: bool,
    axis: int,
) -> tuple[Any, Any]:
    carry, rows = nests.from_user(init), nests.opened(xs)
    carried = _tensors(carry, "init")
    _check_dense(rows, "xs")
    given = [] if xs is None else _tensors(rows, "xs")
    n = _length(given, length, axis)
    given = [moved(x, axis % len(x.shape), 0) for x in given]
    given = [tf.reverse(x, [0]) for x in given] if reverse else given
    kept: dict[str, Any] = {}

    def flat(*tensors: tf.Tensor) -> list[tf.Tensor]:
        old = _packed(carry, tensors[: len(carried)])
        row = None if xs is None else _packed(rows, tensors[len(carried) :])
        result = autographed(fn)(old, row)
        if not isinstance(result, tuple) or len(result) != 2:
            raise ArgumentError(f"scan: fn must return (carry, y), found {nests.shown(result)}.")
        new = nests.from_user(result[0])
        made = _like(carry, carried, new)
        kept["ys"] = nests.opened(result[1])
        _check_dense(kept["ys"], "y")
        ys = [] if kept["ys"] is None else _tensors(kept["ys"], "y")
        for y in ys:
            if not -len(y.shape) - 1 <= axis <= len(y.shape):
                raise ArgumentError(
                    f"scan: results of shape {y.shape} have no room for axis {axis}."
                )
        return [*made, *ys]

    specs = [tf.TensorSpec(t.shape, t.dtype) for t in carried]
    specs += [tf.TensorSpec(x.shape[1:], x.dtype) for x in given]
    step = tf.function(flat, autograph=False).get_concrete_function(*specs)
    k = len(carried)

    def in_order(row: list[tf.Tensor], state: list[tf.Tensor]) -> Any:
        made = step(*state, *row[1:])
        return made[k:], made[:k]

    signature = [tf.TensorSpec(t.shape, t.dtype) for t in step.outputs[k:]]
    ys, last = in_turn(in_order, [tf.range(n), *given], signature, n, carried)
    ys = [tf.reverse(y, [0]) for y in ys] if reverse else ys
    ys = [moved(sized(y, n), 0, axis % len(y.shape)) for y in ys]  # checked in ``flat``
    stacked = None if kept["ys"] is None else _packed(kept["ys"], ys)
    return _packed(carry, last), stacked


def _packed(structure: Nest, tensors: Sequence[tf.Tensor]) -> Nest:
    return nests.to_user(with_rows(structure, tensors))


def _check_dense(structure: Nest, name: str) -> None:
    """Refuses tensors that have no rows of one shape."""
    for x in tf.nest.flatten(structure):
        if isinstance(x, COMPOSITE):
            raise ArgumentTypeError(
                f"scan: {name} has a {type(x).__name__}, expected tensors whose rows have one "
                "shape. Make it dense (x.to_tensor(), tf.sparse.to_dense), and pass the lengths "
                "of its rows beside it."
            )


def _tensors(structure: Nest, name: str) -> list[tf.Tensor]:
    """The leaves of a nest as tensors of known rank; a leaf may be None, and is left out."""
    found: list[tf.Tensor] = []
    for x, path in zip(nests.flatten(structure), nests.paths(structure, name)):
        if x is None:
            continue
        found.append(array(x, f"scan: {path}"))
        if found[-1].shape.rank is None:
            raise ArgumentError(f"scan: {path} has unknown rank. Give it one: tf.ensure_shape.")
    return found


def _length(given: list[tf.Tensor], length: Any, axis: int) -> Dim:
    """The number of rows."""
    is_number = isinstance(length, int) and not isinstance(length, bool)
    if length is not None and (not is_number or length < 0):
        raise ArgumentError(f"scan: length must be an int of at least 0, found {length!r}.")
    if not given and length is None:
        raise ArgumentError("scan: without xs it needs length, the number of rows.")
    for x in given:
        if not -len(x.shape) <= axis < len(x.shape):
            raise ArgumentError(
                f"scan: a tensor of xs has shape {x.shape} and no axis {axis}. A list of "
                "numbers is a nest of scalars: make one tensor of it, tf.constant([...])."
            )
    sizes: list[int | None] = [x.shape[axis] for x in given]
    known: set[int] = {size for size in (*sizes, length) if size is not None}
    if len(known) > 1:
        shapes = ", ".join(str(x.shape) for x in given)
        raise ArgumentError(
            f"scan: the tensors of xs and length must agree in the number of rows along axis "
            f"{axis}. Found the shapes {shapes}, and length {length}."
        )
    if None not in sizes:
        return known.pop()
    counts = [tf.shape(x)[axis] for x in given]
    n = counts[0] if length is None else tf.constant(length)
    checks = [
        tf.debugging.assert_equal(c, n, "scan: xs differ in the number of rows") for c in counts
    ]
    with tf.control_dependencies([c for c in checks if c is not None]):
        return tf.identity(n)


def _like(carry: Nest, carried: list[tf.Tensor], new: Nest) -> list[tf.Tensor]:
    """The leaves of a new carry."""
    try:
        tf.nest.assert_same_structure(carry, new, expand_composites=True)
        pairs = [*zip(nests.flatten(carry), nests.flatten(new))]
        made = [tf.convert_to_tensor(x) for old, x in pairs if old is not None]
        if any(old is None and x is not None for old, x in pairs):
            raise TypeError("a value in the place of a None")
    except (TypeError, ValueError) as why:
        raise ArgumentError(
            f"scan: the carry that fn returns has another structure than init. Found: {new!r}."
        ) from why
    for old, x in zip(carried, made):
        if x.dtype != old.dtype or not x.shape.is_compatible_with(old.shape):
            raise ArgumentError(
                f"scan: the carry that fn returns holds {x.dtype.name}{x.shape}, and init "
                f"{old.dtype.name}{old.shape}. Expected: the same dtypes and shapes."
            )
    return [tf.ensure_shape(x, old.shape) for x, old in zip(made, carried)]
