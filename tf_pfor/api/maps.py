"""pfor and vectorized_map: arguments, axes and nests."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tensorflow as tf

from tf_pfor.api.checks import (
    align,
    check_blocks,
    check_callable,
    check_elems,
    check_iters,
    check_progress,
    with_rows,
)
from tf_pfor.api.function import called_with, has_pushed_rows
from tf_pfor.api.inputs import Element
from tf_pfor.api.mapped_arguments import with_dense_elements
from tf_pfor.api.options import Job, Options
from tf_pfor.api.run import run
from tf_pfor.core import axes, nests
from tf_pfor.core.emit import Dim
from tf_pfor.core.nests import Nest
from tf_pfor.core.settings import (
    ChunkSize,
    Fallback,
    OutShapes,
    Randomness,
    Settings,
    WhileStrategy,
)
from tf_pfor.tracing.caching import cached_call
from tf_pfor.tracing.row_numbers import in_front
from tf_pfor.tracing.user_code import autographed

_no_autograph = tf.autograph.experimental.do_not_convert


@_no_autograph
def pfor(
    loop_fn: Callable[[tf.Tensor], Any],
    iters: int | tf.Tensor,
    fallback_to_while_loop: bool = True,
    parallel_iterations: ChunkSize = None,
    *,
    warn: bool | None = None,
    axis_name: str | None = None,
    fallback: Fallback | None = None,
    randomness: Randomness | None = None,
    while_strategy: WhileStrategy = "auto",
    memory_budget: int | None = None,
    out_shapes: OutShapes | None = None,
    progress: bool = False,
) -> Any:
    """Runs ``loop_fn(i)`` for i in 0 ... iters - 1, all at once (Agarwal, 2019).

    Args:
      loop_fn: takes an int32 scalar, the iteration number; returns a nest of tensors, None or
        operations. Iterations must not depend on each other. Traced once, with AutoGraph.
      iters: the number of iterations: an int, or a scalar integer tensor.
      fallback_to_while_loop: whether ops without a converter may run in a sequential loop.
      parallel_iterations: the number of iterations in a block. Blocks bound memory: each is
        vectorized, and they run one after the other. None runs all iterations at once. "auto"
        takes as many as fit into ``memory_budget``, by the sizes of the tensors that a block needs.
      warn: whether to warn of ops that run in a sequential loop, as for ``vmap``.
      axis_name: the name of this loop for collectives (``psum`` ...) in ``loop_fn``.
      fallback: "loop", "error", or a set of op types that may run in a sequential
        loop. None follows ``fallback_to_while_loop``, and ``tf_pfor.settings`` if that is True.
      randomness: "different", "same" or "error": each row draws, all rows share one draw, or such
        ops are refused.
      while_strategy: "auto", "compact" (a while loop computes the rows that still go on), or "mask"
        (it computes all rows).
      memory_budget: bytes that "auto" may use for all that a call allocates. None: half of the free
        memory.
      out_shapes: the form of results whose shape may differ per row. "ragged" is a RaggedTensor.
        "dense" is a tensor; other shapes are an error at run time. "padded" adds zeros.
      progress: whether to show how many iterations are done; needs ``parallel_iterations``.

    Returns:
      The nest that ``loop_fn`` returns. Each tensor has shape [iters] + its shape in ``loop_fn``;
      it is a RaggedTensor where that shape may differ between iterations.

    Raises:
      ArgumentTypeError, ArgumentError: if an argument is wrong.
      NotVectorizableError: if an op has no converter and the fallback is off.

    >>> import tf_pfor
    >>> tf_pfor.pfor(lambda i: i * i, 4).numpy().tolist()
    [0, 1, 4, 9]
    """
    check_callable(loop_fn, "loop_fn")
    n = check_iters(iters)
    block, budget = check_blocks(parallel_iterations, memory_budget, "parallel_iterations")
    settings = Options.of(
        fallback,
        randomness,
        while_strategy,
        out_shapes,
        warn=warn,
        may_loop=fallback_to_while_loop,
        progress=check_progress(progress, block, "parallel_iterations"),
    ).settings()
    options = (n, settings, block, axes.check_name(axis_name), budget)
    return _pfor(loop_fn, *options) if progress else cached_call(_pfor, (loop_fn,), (), options)


def _pfor(
    loop_fn: Callable[[tf.Tensor], Any],
    n: Dim,
    settings: Settings,
    block: int | str | None,
    name: str,
    budget: int | None,
) -> Any:
    body = nests.named_as(autographed(loop_fn, "pfor"), loop_fn)
    job = Job(body, settings, block, axis_name=name, budget=budget)
    return run(job, [Element(None)], n)


@_no_autograph
def vectorized_map(
    fn: Callable[[Any], Any],
    elems: Nest,
    fallback_to_while_loop: bool = True,
    warn: bool | None = None,
    *,
    axis_name: str | None = None,
    chunk_size: ChunkSize = None,
    memory_budget: int | None = None,
    fallback: Fallback | None = None,
    randomness: Randomness | None = None,
    while_strategy: WhileStrategy = "auto",
    out_shapes: OutShapes | None = None,
    progress: bool = False,
) -> Any:
    """Applies ``fn`` to each row of ``elems``, all rows at once (Agarwal, 2019).

    Args:
      fn: takes one row, the nest of ``elems`` without axis 0; returns a nest of tensors, None or
        operations. Traced once, with AutoGraph.
      elems: a nest of tensors, [n, ...] each. A tensor of shape [1, ...] is the same for all n
        rows; a leaf that is None is None in each row. Each row of a RaggedTensor with one ragged
        dimension is a tensor whose size differs per row (docs/ragged.md).
      fallback_to_while_loop: whether ops without a converter may run in a sequential loop.
      warn: whether to warn of such ops, as for ``vmap``.
      axis_name: the name of the mapped axis for collectives (``psum`` ...) in ``fn``.
      chunk_size: the number of rows to run at once, None for all, or "auto" for as
        many as fit into ``memory_budget``.
      memory_budget: bytes that "auto" may use for all that a call allocates. None: half of the free
        memory.
      fallback: "loop", "error", or a set of op types that may run in a sequential
        loop. None follows ``fallback_to_while_loop``, and ``tf_pfor.settings`` if that is True.
      randomness: "different", "same" or "error": each row draws, all rows share one draw, or such
        ops are refused.
      while_strategy: "auto", "compact" (a while loop computes the rows that still go on), or "mask"
        (it computes all rows).
      out_shapes: the form of results whose shape may differ per row. "ragged" is a RaggedTensor.
        "dense" is a tensor; other shapes are an error at run time. "padded" adds zeros.
      progress: whether to show how many iterations are done; needs ``chunk_size``.

    Returns:
      The nest that ``fn`` returns. Each tensor has shape [n] + its shape in ``fn``; it is a
      RaggedTensor where that shape may differ between rows.

    Raises:
      ArgumentTypeError, ArgumentError: if an argument is wrong.
      NotVectorizableError: if an op has no converter and the fallback is off.

    >>> import tensorflow as tf
    >>> import tf_pfor
    >>> x = tf.constant([[1., 2.], [3., 4.]])
    >>> tf_pfor.vectorized_map(tf.reduce_sum, x).numpy().tolist()
    [3.0, 7.0]
    """
    check_callable(fn, "fn")
    fn, elems = with_dense_elements(fn, elems, (tf.SparseTensor,))
    blocks = check_blocks(chunk_size, memory_budget, "chunk_size")
    settings = Options.of(
        fallback,
        randomness,
        while_strategy,
        out_shapes,
        warn=warn,
        may_loop=fallback_to_while_loop,
        progress=check_progress(progress, blocks[0], "chunk_size"),
    ).settings()
    options = (settings, axes.check_name(axis_name), *blocks)
    if progress:
        return _vectorized_map(fn, elems, *options)
    return cached_call(_vectorized_map, (fn,), (elems,), options, rows=in_front)


def _vectorized_map(
    fn: Callable[[Any], Any],
    elems: Nest,
    settings: Settings,
    name: str,
    block: int | str | None,
    budget: int | None,
) -> Any:
    if has_pushed_rows(elems):
        options = (settings, name, block, budget)
        return called_with(elems, lambda again: _vectorized_map(fn, again, *options))
    dense, elems = with_dense_elements(fn, elems, in_blocks=block is not None)
    structure, tensors = check_elems(elems)
    n, elements = align(structure, tensors)
    converted = autographed(dense, "vectorized_map")

    def of_flat(*rows: tf.Tensor) -> Any:
        return converted(nests.to_user(with_rows(structure, rows)))

    job = Job(nests.named_as(of_flat, dense), settings, block, axis_name=name, budget=budget)
    return run(job, elements, n)
