"""Jacobians by rows: a unit cotangent of each output pulled back, all at once."""

from __future__ import annotations

import contextlib
import contextvars
import itertools
from collections.abc import Callable, Generator, Sequence
from typing import Any

import tensorflow as tf

from tf_pfor import _tf
from tf_pfor.api.inputs import Element
from tf_pfor.api.options import Job
from tf_pfor.api.run import run
from tf_pfor.core.emit import Dim
from tf_pfor.core.errors import ArgumentError
from tf_pfor.core.nests import Nest
from tf_pfor.core.settings import current
from tf_pfor.derivatives.indexed_slices import BatchedIndexedSlices

Pull = Callable[[tf.Tensor], Sequence[Any]]
"""From a cotangent of the output to the gradients of the sources (None where unconnected)."""
Blocks = tuple[int | str | None, int | None]
"""How many at once, and the bytes for "auto"."""

_IS_DIFFERENTIATED = contextvars.ContextVar("tf_pfor_is_differentiated", default=False)


@contextlib.contextmanager
def differentiated() -> Generator[None]:
    """Says that results of the ``with`` block are differentiated."""
    token = _IS_DIFFERENTIATED.set(True)
    try:
        yield
    finally:
        _IS_DIFFERENTIATED.reset(token)


def _must_be_at_once() -> bool:
    """Whether rows cannot be computed in blocks, since these are differentiated under XLA.

    It has no gradients of what blocks are sliced and joined by, nor of loops in loops that keep
    lists. Nothing is lost: the gradient of blocks keeps what all of them computed.
    """
    is_xla = _tf.in_xla_context(tf.compat.v1.get_default_graph())
    return is_xla and (_IS_DIFFERENTIATED.get() or _tf.may_record_gradients())


def has_derivative(dtype: tf.DType) -> bool:
    """Whether numbers of a dtype have derivatives."""
    return dtype.is_floating or dtype.is_complex


def map_units(
    x: tf.Tensor,
    of_seed: Callable[[tf.Tensor], Any],
    blocks: Blocks,
    *,
    batched: bool = False,
    once: bool = False,
) -> list[Any]:
    """``of_seed`` of every unit tensor of the shape of ``x``, all at once: [size of x, ...].

    Args:
      x: the tensor whose shape and dtype the units have.
      of_seed: called with one of them.
      blocks: the number of rows at once.
      batched: units are the same in all rows of ``x`` (axis 0), so there are fewer.
      once: ``of_seed`` can be called only once (it uses up a tape).
    """
    block, budget = (None, None) if _must_be_at_once() else blocks
    n = size_of_rows(x, 1 if batched else 0)
    fn = _seeded(x, of_seed, n, batched)
    if isinstance(n, int) and n == 1:  # nothing to map over
        made = tf.nest.map_structure(tf.convert_to_tensor, fn(tf.constant(0)))
        if all(g.shape.rank is not None for g in tf.nest.flatten(made)):
            return tf.nest.map_structure(lambda g: tf.expand_dims(g, 0), made)
    job = Job(fn, current().settings("dense"), block, axis_name=None, budget=budget, once=once)
    return run(job, [Element(None)], n)


def _seeded(x: tf.Tensor, of_seed: Callable[..., Any], n: Dim, batched: bool) -> Callable[..., Any]:
    """``of_seed`` as a function of the number of the unit."""

    def one(i: tf.Tensor) -> Any:
        if has_derivative(x.dtype):
            unit = tf.one_hot(i, n, dtype=x.dtype)
        else:  # TensorFlow has no gradient of these, whatever the cotangent
            unit = tf.zeros([n], x.dtype)
        if batched:
            unit = tf.broadcast_to(unit, [tf.shape(x)[0], n])
        return of_seed(tf.reshape(unit, _shape(x)))

    return one


def rows_of(
    output: tf.Tensor,
    pull: Pull,
    blocks: Blocks,
    *,
    use_pfor: bool = True,
    batched: bool = False,
    once: bool = False,
    tables: Sequence[Any] = (),
) -> list[Any]:
    """For each source: [m] + source shape, the gradients of the m elements of the output.

    Each iteration pulls back one unit cotangent. All iterations at once are one batched backward
    pass, in which the whole forward pass is loop-invariant.

    Args:
      output: the tensor to differentiate.
      pull: the backward pass.
      blocks: the number of rows at once.
      use_pfor: False runs the rows in a loop.
      batched: an element of all rows of ``output`` (axis 0) is one row of the result.
      once: ``pull`` can be called only once.
      tables: the sources, where gradients of lookups are to stay slices.
    """
    found: list[int] = []  # how many tensors each gradient is

    def of_seed(seed: tf.Tensor) -> list[tf.Tensor]:
        pairs = itertools.zip_longest(pull(seed), tables)
        parts = [_parts(g, table) for g, table in pairs]
        found[:] = map(len, parts)
        return [x for part in parts for x in part]

    if use_pfor:
        supply = iter(map_units(output, of_seed, blocks, batched=batched, once=once))
    else:
        n = size_of_rows(output, 1 if batched else 0)
        supply = iter(_one_by_one(_seeded(output, of_seed, n, batched), n, blocks[0]))
    rows = [[next(supply) for _ in range(count)] for count in found]
    return [_whole(row, k, tables) for k, row in enumerate(rows)]


def _parts(gradient: Nest, table: tf.Variable | None) -> list[tf.Tensor]:
    """No tensor for None; two for slices of a table; else a dense one."""
    if gradient is None:
        return []
    if table is None or not isinstance(gradient, tf.IndexedSlices):
        return [tf.convert_to_tensor(gradient)]
    slices = BatchedIndexedSlices.of(gradient, table)
    return [slices.values, slices.indices]


def _whole(row: list[Any], k: int, tables: Sequence[Any]) -> Any:
    """The inverse of ``_parts``, for source k."""
    if len(row) == 2:
        return BatchedIndexedSlices(row[0], row[1], tf.shape(tables[k]))
    return row[0] if row else None


def _one_by_one(one: Callable[..., Any], n: Dim, block: int | str | None) -> list[tf.Tensor]:
    graph = tf.__internal__.FuncGraph("jacobian_row")
    with graph.as_default():
        dtypes = [g.dtype for g in one(tf.constant(0))]
    return tf.map_fn(
        one,
        tf.range(n),
        fn_output_signature=dtypes,
        parallel_iterations=block if isinstance(block, int) else 10,
    )


def gradients_of(ys: Nest, xs: Nest, seeds: Nest = None) -> list[Any]:
    """``tf.gradients``.

    Raises:
      ArgumentError: if TensorFlow says that it has no gradient of an op.
    """
    with refused_if_missing():
        return tf.gradients(ys, xs, grad_ys=seeds)


@contextlib.contextmanager
def refused_if_missing() -> Generator[None]:
    """Makes TensorFlow's error about an op without a gradient one that says what to do.

    Raises:
      ArgumentError: in place of it.
    """
    try:
        yield
    except (LookupError, NotImplementedError) as why:
        if type(why) not in (LookupError, NotImplementedError):  # KeyError: not TensorFlow's
            raise
        is_xla = _tf.in_xla_context(tf.compat.v1.get_default_graph())
        raise ArgumentError(
            f"TensorFlow has no derivative of the function: {why}. Expected: ops that can be "
            "differentiated, for jacfwd and second derivatives twice. Use others, or jacrev for a "
            f"first derivative{', or leave out jit_compile' if is_xla else ''}."
        ) from why


def size_of_rows(tensor: tf.Tensor, first_axis: int = 0) -> Dim:
    """The number of elements of each block of ``tensor`` behind its first axes."""
    shape = tensor.shape
    if shape.rank is not None:
        known = shape[first_axis:].num_elements()
        if known is not None:
            return known
    return tf.reduce_prod(tf.shape(tensor)[first_axis:])


def _shape(tensor: tf.Tensor) -> Any:
    return tensor.shape if tensor.shape.is_fully_defined() else tf.shape(tensor)


def unflattened(output: tf.Tensor, rows: tf.Tensor | BatchedIndexedSlices | None) -> Any:
    """[m, ...x] -> output.shape + [...x]."""
    if rows is None:
        return None
    if isinstance(rows, BatchedIndexedSlices):
        values, indices = (unflattened(output, x) for x in (rows.values, rows.indices))
        return BatchedIndexedSlices(values, indices, rows.dense_shape)
    if output.shape.is_fully_defined() and rows.shape.is_fully_defined():
        return tf.reshape(rows, output.shape + rows.shape[1:])
    result = tf.reshape(rows, tf.concat([tf.shape(output), tf.shape(rows)[1:]], 0))
    result.set_shape(output.shape + rows.shape[1:])
    return result
