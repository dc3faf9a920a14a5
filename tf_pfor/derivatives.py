"""Jacobians of graph tensors and of taped computations (papers/001 section 3.3)."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

from tf_pfor import nests
from tf_pfor.api import check_blocks
from tf_pfor.convert import Settings
from tf_pfor.emit import Dim
from tf_pfor.errors import ArgumentError, ArgumentTypeError
from tf_pfor.indexed_slices import BatchedIndexedSlices
from tf_pfor.run import Element, Job, run

_no_autograph = tf.autograph.experimental.do_not_convert
Pull = Callable[[tf.Tensor], Sequence[Any]]
"""From a cotangent of the output to the gradients of the sources (None where unconnected)."""


@_no_autograph
def jacobian(
    output: tf.Tensor,
    inputs: Any,
    use_pfor: bool = True,
    parallel_iterations: int | str | None = None,
    memory_budget: int | None = None,
    sparse: bool = False,
) -> Any:
    """The jacobian of a graph tensor (papers/000 section 5.1).

    Args:
      output: a tensor of the graph being built (in a ``tf.function`` or a v1 graph).
      inputs: a nest of tensors of that graph.
      use_pfor: False runs the rows one by one in a loop.
      parallel_iterations: rows of the jacobian to compute at once; None: all; "auto": what
        fits.
      memory_budget: bytes for "auto", as for ``vmap``.
      sparse: keep the jacobian by a table that is looked up (an embedding) as a
        ``BatchedIndexedSlices`` with the axes of the output in front, where TensorFlow's gradient
        is a ``tf.IndexedSlices``.

    Returns:
      The nest of ``inputs``: tensors of shape output.shape + input.shape; None for an input that
      the output does not depend on.

    Raises:
      ArgumentTypeError: if ``output`` is an eager tensor: use ``tape_jacobian``.

    >>> import tensorflow as tf
    >>> import tf_pfor
    >>> @tf.function
    ... def f(x):
    ...     return tf_pfor.jacobian(x ** 2, x)
    >>> f(tf.constant([1., 2.])).numpy().tolist()
    [[2.0, 0.0], [0.0, 4.0]]
    """
    _check_graph_tensor(output, "jacobian")
    sources = nests.flatten(inputs)

    def pull(seed: tf.Tensor) -> Sequence[Any]:
        return tf.gradients(output, sources, grad_ys=seed)

    blocks = check_blocks(parallel_iterations, memory_budget, "parallel_iterations")
    rows = _rows(output, pull, use_pfor, blocks, tables=sources if sparse else ())
    return tf.nest.pack_sequence_as(inputs, [_jacobian_shape(output, r) for r in rows])


@_no_autograph
def batch_jacobian(
    output: tf.Tensor,
    inp: tf.Tensor,
    use_pfor: bool = True,
    parallel_iterations: int | str | None = None,
    memory_budget: int | None = None,
) -> tf.Tensor | None:
    """The jacobian of each row of a graph tensor with respect to the same row of another.

    Row b of ``output`` must depend on row b of ``inp`` alone (papers/001 section 3.3).

    Args:
      output: [b, ...] tensor of the graph being built.
      inp: [b, ...] tensor of that graph.
      use_pfor: False runs the rows one by one in a loop.
      parallel_iterations: elements of an output row to differentiate at once; None: all;
        "auto": what fits.
      memory_budget: bytes for "auto", as for ``vmap``.

    Returns:
      [b] + output.shape[1:] + inp.shape[1:], or None if the output does not depend on ``inp``.

    >>> import tensorflow as tf
    >>> import tf_pfor
    >>> @tf.function
    ... def f(x):
    ...     return tf_pfor.batch_jacobian(x ** 2, x)
    >>> f(tf.constant([[1.], [3.]])).numpy().tolist()
    [[[2.0]], [[6.0]]]
    """
    _check_graph_tensor(output, "batch_jacobian")
    _check_batches(output, inp)

    def pull(seed: tf.Tensor) -> Sequence[Any]:
        return tf.gradients(output, [inp], grad_ys=seed)

    blocks = check_blocks(parallel_iterations, memory_budget, "parallel_iterations")
    (rows,) = _rows(output, pull, use_pfor, blocks, batched=True)
    return _batch_jacobian_shape(output, rows)


@_no_autograph
def tape_jacobian(
    tape: tf.GradientTape,
    target: tf.Tensor,
    sources: Any,
    unconnected_gradients: Any = tf.UnconnectedGradients.NONE,
    parallel_iterations: int | str | None = None,
    memory_budget: int | None = None,
    sparse: bool = False,
) -> Any:
    """The jacobian of what a tape has seen: ``tape.jacobian``, vectorized by tf_pfor.

    Args:
      tape: any ``tf.GradientTape``, persistent or not, eager or in a ``tf.function``.
      target: a tensor computed under the tape.
      sources: a nest of tensors or variables that the tape watched.
      unconnected_gradients: NONE gives None, ZERO zeros, for a source that the target does not
        depend on.
      parallel_iterations: rows of the jacobian to compute at once; None: all; "auto": what
        fits.
      memory_budget: bytes for "auto", as for ``vmap``.
      sparse: keep the jacobian by a table that is looked up (an embedding) as a
        ``BatchedIndexedSlices`` with the axes of the output in front, where TensorFlow's gradient
        is a ``tf.IndexedSlices``.

    Returns:
      The nest of ``sources``: tensors of shape target.shape + source.shape.

    >>> import tensorflow as tf
    >>> import tf_pfor
    >>> x = tf.constant([1., 2.])
    >>> with tf.GradientTape() as tape:
    ...     tape.watch(x)
    ...     y = x ** 2
    >>> tf_pfor.tape_jacobian(tape, y, x).numpy().tolist()
    [[2.0, 0.0], [0.0, 4.0]]
    """
    _check_target(target)
    leaves = tf.nest.flatten(sources)
    gradient: Any = tape.gradient  # its stub knows lists only

    def pull(seed: tf.Tensor) -> Sequence[Any]:
        return gradient(
            target, leaves, output_gradients=seed, unconnected_gradients=unconnected_gradients
        )

    blocks = check_blocks(parallel_iterations, memory_budget, "parallel_iterations")
    rows = _rows(target, pull, True, blocks, tables=leaves if sparse else ())
    return tf.nest.pack_sequence_as(sources, [_jacobian_shape(target, r) for r in rows])


@_no_autograph
def tape_batch_jacobian(
    tape: tf.GradientTape,
    target: tf.Tensor,
    source: Any,
    unconnected_gradients: Any = tf.UnconnectedGradients.NONE,
    parallel_iterations: int | str | None = None,
    memory_budget: int | None = None,
) -> tf.Tensor | None:
    """The jacobian of each row of ``target`` with respect to the same row of ``source``.

    Args:
      tape: any ``tf.GradientTape``.
      target: [b, ...] tensor computed under the tape; row b depends on row b of ``source`` alone.
      source: [b, ...] tensor or variable that the tape watched.
      unconnected_gradients: as in ``tape_jacobian``.
      parallel_iterations: elements of a target row to differentiate at once; None: all;
        "auto": what fits.
      memory_budget: bytes for "auto", as for ``vmap``.

    Returns:
      [b] + target.shape[1:] + source.shape[1:].

    >>> import tensorflow as tf
    >>> import tf_pfor
    >>> x = tf.constant([[1.], [3.]])
    >>> with tf.GradientTape() as tape:
    ...     tape.watch(x)
    ...     y = x ** 2
    >>> tf_pfor.tape_batch_jacobian(tape, y, x).numpy().tolist()
    [[[2.0]], [[6.0]]]
    """
    _check_target(target)
    _check_batches(target, source)
    gradient: Any = tape.gradient

    def pull(seed: tf.Tensor) -> Sequence[Any]:
        return [
            gradient(
                target, source, output_gradients=seed, unconnected_gradients=unconnected_gradients
            )
        ]

    blocks = check_blocks(parallel_iterations, memory_budget, "parallel_iterations")
    (rows,) = _rows(target, pull, True, blocks, batched=True)
    return _batch_jacobian_shape(target, rows)


def _rows(
    output: tf.Tensor,
    pull: Pull,
    use_pfor: bool,
    blocks: tuple[int | str | None, int | None],
    batched: bool = False,
    tables: Sequence[Any] = (),
) -> list[Any]:
    """For each source: [m] + source shape, the gradients of the m elements of the output.

    Each iteration pulls back one unit cotangent; all of them at once are one batched backward
    pass, in which everything of the forward pass is loop-invariant.
    """
    block, budget = blocks
    elements = _size(output, first_axis=1 if batched else 0)
    found: list[int] = []  # how many tensors each gradient is

    def one(i: tf.Tensor) -> list[tf.Tensor]:
        unit = tf.one_hot(i, elements, dtype=output.dtype)
        if batched:
            unit = tf.broadcast_to(unit, [tf.shape(output)[0], elements])
        seed = tf.reshape(unit, _shape(output))
        grads = pull(seed)
        parts = [_parts(g, table) for g, table in itertools.zip_longest(grads, tables)]
        found[:] = map(len, parts)
        return [x for part in parts for x in part]

    if use_pfor:
        job = Job(one, Settings(), block, axis_name=None, budget=budget)
        supply = iter(run(job, [Element(None)], elements))
    else:
        supply = iter(_one_by_one(one, elements, block))
    rows = [[next(supply) for _ in range(count)] for count in found]
    return [_whole(row, k, tables) for k, row in enumerate(rows)]


def _whole(row: list[Any], k: int, tables: Sequence[Any]) -> Any:
    """The inverse of ``_parts``, for source k."""
    if len(row) == 2:
        return BatchedIndexedSlices(row[0], row[1], tf.shape(tables[k]))
    return row[0] if row else None


def _parts(gradient: Any, table: Any) -> list[tf.Tensor]:
    """No tensor for None; two for slices of a table; else a dense one."""
    if gradient is None:
        return []
    if table is None or not isinstance(gradient, tf.IndexedSlices):
        return [tf.convert_to_tensor(gradient)]
    slices = BatchedIndexedSlices.of(gradient, table)
    return [slices.values, slices.indices]


def _one_by_one(one: Callable[..., Any], elements: Dim, block: int | str | None) -> list[tf.Tensor]:
    graph = tf.__internal__.FuncGraph("jacobian_row")
    with graph.as_default():
        dtypes = [g.dtype for g in one(tf.constant(0))]
    return tf.map_fn(
        one,
        tf.range(elements),
        fn_output_signature=dtypes,
        parallel_iterations=block if isinstance(block, int) else 10,
    )


def _size(tensor: tf.Tensor, first_axis: int) -> Dim:
    """The number of elements of each block of ``tensor`` behind its first axes."""
    shape = tensor.shape
    if shape.rank is not None:
        known = shape[first_axis:].num_elements()
        if known is not None:
            return known
    return tf.reduce_prod(tf.shape(tensor)[first_axis:])


def _shape(tensor: tf.Tensor) -> Any:
    return tensor.shape if tensor.shape.is_fully_defined() else tf.shape(tensor)


def _jacobian_shape(output: tf.Tensor, rows: Any) -> Any:
    """[m, ...x] -> output.shape + [...x]."""
    if rows is None:
        return None
    if isinstance(rows, BatchedIndexedSlices):
        values, indices = (
            _jacobian_shape(output, rows.values),
            _jacobian_shape(output, rows.indices),
        )
        return BatchedIndexedSlices(values, indices, rows.dense_shape)
    if output.shape.is_fully_defined() and rows.shape.is_fully_defined():
        return tf.reshape(rows, output.shape + rows.shape[1:])
    result = tf.reshape(rows, tf.concat([tf.shape(output), tf.shape(rows)[1:]], 0))
    result.set_shape(output.shape + rows.shape[1:])
    return result


def _batch_jacobian_shape(output: tf.Tensor, rows: Any) -> Any:
    """[m, b, ...x] -> [b] + output.shape[1:] + [...x]."""
    if rows is None:
        return None
    turned = tf.einsum("mb...->bm...", rows)
    if output.shape.is_fully_defined() and turned.shape.is_fully_defined():
        return tf.reshape(turned, output.shape + turned.shape[2:])
    result = tf.reshape(turned, tf.concat([tf.shape(output), tf.shape(turned)[2:]], 0))
    result.set_shape(output.shape + rows.shape[2:])
    return result


def _check_graph_tensor(output: Any, name: str) -> None:
    if not isinstance(output, tf.Tensor) or tf.executing_eagerly():
        raise ArgumentTypeError(
            f"{name} differentiates tensors of a graph: call it inside a tf.function, on a "
            f"tensor; found {type(output).__name__}. For eager tensors use tape_{name}."
        )


def _check_target(target: Any) -> None:
    if not isinstance(target, (tf.Tensor, tf.Variable)):
        raise ArgumentTypeError(
            f"The target of a jacobian must be one tensor, found {type(target).__name__}. Call it "
            "for each tensor, with a persistent tape."
        )


def _check_batches(output: Any, inp: Any) -> None:
    for name, tensor in (("output", output), ("input", inp)):
        if tensor.shape.rank == 0:
            raise ArgumentError(
                f"The {name} of a batch jacobian is a scalar, expected a tensor of shape [b, ...]."
            )
    first, second = output.shape[:1], inp.shape[:1]
    if not first.is_compatible_with(second):
        raise ArgumentError(
            "The output and the input of a batch jacobian must have the same number of rows, found "
            f"shapes {output.shape} and {inp.shape}. Use jacobian if rows depend on each other."
        )
