"""pfor, for_loop, vectorized_map: arguments, axes and nests."""

from __future__ import annotations

import functools
import numbers
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from tf_pfor import _tf
from tf_pfor._tf import _types
from tf_pfor.api import composites, leaves
from tf_pfor.api.function import called_with, has_pushed_rows
from tf_pfor.api.inputs import Element
from tf_pfor.api.options import Options
from tf_pfor.api.progress import check_progress
from tf_pfor.api.run import Job, run
from tf_pfor.core import axes, nests
from tf_pfor.core.emit import Dim
from tf_pfor.core.errors import ArgumentError, ArgumentTypeError
from tf_pfor.core.settings import (
    ChunkSize,
    Fallback,
    OutShapes,
    Randomness,
    Settings,
    WhileStrategy,
)
from tf_pfor.core.values import dims
from tf_pfor.tracing.caching import UNCACHED, EagerCall
from tf_pfor.tracing.memory import AUTO, check_budget
from tf_pfor.tracing.row_numbers import in_front
from tf_pfor.tracing.trace import dense
from tf_pfor.tracing.user_code import arguments_of, autographed

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
      fallback: as for ``vmap``: "loop", "error", or a set of op types that may run in a sequential
        loop. None follows ``fallback_to_while_loop``, and ``tf_pfor.settings`` if that is True.
      randomness: as for ``vmap``: "different", "same" or "error".
      while_strategy: as for ``vmap``: "auto", "compact" or "mask".
      memory_budget: bytes for "auto", as for ``vmap``.
      out_shapes: as for ``vmap``: "ragged", "dense" or "padded".
      progress: as for ``vmap``; needs ``parallel_iterations``.

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
        fallback, randomness, while_strategy, out_shapes, warn=warn,
        may_loop=fallback_to_while_loop,
        progress=check_progress(progress, block, "parallel_iterations"),
    ).settings()  # fmt: skip
    options = (n, settings, block, axes.check_name(axis_name), budget)
    if tf.executing_eagerly() and not progress:
        result = EagerCall(_pfor, (loop_fn,), (), options)()
        if result is not UNCACHED:
            return result
    return _pfor(loop_fn, *options)


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
def for_loop(
    loop_fn: Callable[[tf.Tensor], Any],
    loop_fn_dtypes: Any,
    iters: int | tf.Tensor,
    parallel_iterations: int | None = None,
) -> Any:
    """Runs ``loop_fn(i)`` one iteration after the other: the reference for ``pfor``.

    Args:
      loop_fn: as for ``pfor``.
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


def _results_of_one(result: Any, structure: Any) -> list[tf.Tensor]:
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


def _dtypes(structure: Any) -> Any:
    """The nest of dtype names, as messages show it."""
    return tf.nest.map_structure(
        lambda x: tf.as_dtype(x).name if _is_dtype(x) else _dtype_name(x) or type(x).__name__,
        structure,
    )


def _is_dtype(x: Any) -> bool:
    return isinstance(x, (tf.DType, type, np.dtype, str))


def _dtype_name(x: Any) -> str:
    """The dtype of a result; "" for a Python value, whose dtype is free."""
    if x is None or isinstance(x, tf.Operation):
        return "None"
    return tf.as_dtype(x.dtype).name if hasattr(x, "dtype") else ""


def _in_graph(function: Callable[..., Any], *args: tf.Tensor) -> Any:
    if not tf.executing_eagerly():
        return function(*args)
    compiled = tf.function(function, autograph=False)
    return compiled.get_concrete_function(*args)(*args)


@_no_autograph
def vectorized_map(
    fn: Callable[[Any], Any],
    elems: Any,
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
      chunk_size: as for ``vmap``: the number of rows to run at once, None for all, or "auto" for as
        many as fit into ``memory_budget``.
      memory_budget: as for ``vmap``: bytes for ``chunk_size="auto"``.
      fallback: as for ``vmap``: "loop", "error", or a set of op types that may run in a sequential
        loop. None follows ``fallback_to_while_loop``, and ``tf_pfor.settings`` if that is True.
      randomness: as for ``vmap``: "different", "same" or "error".
      while_strategy: as for ``vmap``: "auto", "compact" or "mask".
      out_shapes: as for ``vmap``: "ragged", "dense" or "padded".
      progress: as for ``vmap``; needs ``chunk_size``.

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
    fn, elems = _of_dense(fn, elems, (tf.SparseTensor,))
    blocks = check_blocks(chunk_size, memory_budget, "chunk_size")
    settings = Options.of(
        fallback, randomness, while_strategy, out_shapes, warn=warn,
        may_loop=fallback_to_while_loop, progress=check_progress(progress, blocks[0], "chunk_size"),
    ).settings()  # fmt: skip
    options = (settings, axes.check_name(axis_name), *blocks)
    if tf.executing_eagerly() and not progress:
        result = EagerCall(_vectorized_map, (fn,), (elems,), options, rows=in_front)()
        if result is not UNCACHED:
            return result
    return _vectorized_map(fn, elems, *options)


def _vectorized_map(
    fn: Callable[[Any], Any],
    elems: Any,
    settings: Settings,
    name: str,
    block: int | str | None,
    budget: int | None,
) -> Any:
    if has_pushed_rows(elems):
        options = (settings, name, block, budget)
        return called_with(elems, lambda again: _vectorized_map(fn, again, *options))
    dense, elems = _of_dense(fn, elems, (_types.COMPOSITE,), in_blocks=block is not None)
    structure, tensors = check_elems(elems)
    n, elements = align(structure, tensors)
    converted = autographed(dense, "vectorized_map")

    def of_flat(*rows: tf.Tensor) -> Any:
        return converted(nests.to_user(with_rows(structure, rows)))

    job = Job(nests.named_as(of_flat, dense), settings, block, axis_name=name, budget=budget)
    return run(job, elements, n)


def with_rows(structure: Any, rows: Sequence[tf.Tensor]) -> Any:
    """The nest of elements with one row in the place of each tensor; None stays."""
    supply = iter(rows)
    leaves = [None if leaf is None else next(supply) for leaf in nests.flatten(structure)]
    return nests.pack(structure, leaves)


def _of_dense(
    fn: Callable[[Any], Any], elems: Any, kinds: tuple[type, ...], *, in_blocks: bool = False
) -> tuple[Callable[[Any], Any], Any]:
    """``fn`` and ``elems`` with dense tensors in place of ragged or sparse ones."""
    opened, cut = composites.opened(elems, of=kinds, in_blocks=in_blocks)
    if opened is elems:
        return fn, elems
    converted = autographed(fn, "vectorized_map")

    @_no_autograph
    def of_rows(row: Any) -> Any:
        with arguments_of(fn):
            row = cut(row)
        return converted(row)

    return functools.update_wrapper(of_rows, fn, ("__name__", "__qualname__"), ()), opened


# ---------------------------------------------------------------------------
# Checks
# ---------------------------------------------------------------------------


def check_callable(fn: Any, name: str) -> None:
    """Refuses what cannot be called."""
    if not callable(fn):
        raise ArgumentTypeError(
            f"{name} must be a function of one iteration, found {fn!r} of type "
            f"{type(fn).__name__}. Pass a function, a lambda or a callable object."
        )


def check_iters(iters: Any) -> Dim:
    """The length as an int when it is known, else an int32 scalar tensor."""
    if isinstance(iters, (bool, float)):
        raise _bad_iters(iters)
    if isinstance(iters, numbers.Integral):
        n = int(iters)
    else:
        try:
            tensor = tf.convert_to_tensor(iters)
        except (TypeError, ValueError) as why:
            raise _bad_iters(iters) from why
        if not tensor.dtype.is_integer:
            raise _bad_iters(f"a tensor of dtype {tensor.dtype.name}")
        if tensor.shape.rank not in (0, None):
            raise _bad_iters(f"a tensor of shape {tensor.shape}")
        known = tf.get_static_value(tensor)
        if known is None:
            return _not_negative(tf.cast(tensor, tf.int32))
        n = int(known)
    if n < 0:
        raise ArgumentError(f"iters must not be negative, found {n}.")
    return n


def _not_negative(n: tf.Tensor) -> tf.Tensor:
    """``n``, which fails when it runs if it is negative; what is a size cannot be.

    Not in the body of another map, and not under XLA, which has no checks.
    """
    graph = tf.compat.v1.get_default_graph()
    if _is_size(n) or _tf.in_body(graph) or _tf.in_xla_context(graph):
        return n
    text = "iters must not be negative, found:"
    with tf.control_dependencies([tf.debugging.Assert(n >= 0, [text, n])]):
        return tf.identity(n)


def _is_size(n: tf.Tensor) -> bool:
    """Whether n is read from the shape of a tensor."""
    op = n.op
    while op.type in ("Cast", "Identity", "StridedSlice", "GatherV2"):
        op = op.inputs[0].op
    return op.type in ("Shape", "Size")


def _bad_iters(found: Any) -> ArgumentTypeError:
    return ArgumentTypeError(
        f"iters must be an integer or a scalar integer tensor, found {found!s}. Use int(...) or "
        "tf.cast(..., tf.int32)."
    )


def check_block(block: Any, name: str = "parallel_iterations") -> int | str | None:
    """A block size as an int, None for all at once, or "auto" for as many as fit."""
    if isinstance(block, str) and block == AUTO:
        return block
    return fixed_block(block, name, " or 'auto'")


def check_blocks(block: Any, budget: Any, name: str) -> tuple[int | str | None, int | None]:
    """A block size and the bytes for "auto"."""
    size, limit = check_block(block, name), check_budget(budget)
    if limit is not None and size != AUTO:
        raise ArgumentError(f"memory_budget is for {name}='auto', which is not set.")
    return size, limit


def fixed_block(block: Any, name: str = "parallel_iterations", other: str = "") -> int | None:
    """A block size as an int, or None for all at once."""
    if block is None:
        return None
    known = block
    if isinstance(block, tf.Tensor):
        known = tf.get_static_value(block)
    if isinstance(known, np.ndarray) and known.ndim == 0:
        known = known.item()
    if isinstance(known, bool) or not isinstance(known, numbers.Integral) or int(known) < 1:
        raise ArgumentError(f"{name} must be a positive int or None{other}, found {block!r}.")
    return int(known)


_SHARED = "Close over it in fn if all rows share it."


def check_elems(elems: Any) -> tuple[Any, list[tf.Tensor]]:
    """The nest, and its leaves as tensors of rank >= 1; leaves that are None are left out."""
    nests.check_rows(elems, "elems")
    structure = nests.from_user(elems)
    nests.check_keys(structure, "elems")
    names = nests.paths(structure, "elems")
    for leaf, name in zip(tf.nest.flatten(structure), _composite_names(structure, names)):
        if isinstance(leaf, (tf.RaggedTensor, tf.SparseTensor)):
            kind = type(leaf).__name__
            if isinstance(leaf, tf.RaggedTensor):
                kind += f" with {leaf.ragged_rank} ragged dimensions"
            raise ArgumentTypeError(
                f"{name} is a {kind}, which is not supported yet as an element. "
                "Convert it to a dense tensor first: .to_tensor() or tf.sparse.to_dense()."
            )
    found = nests.flatten(structure)
    if all(leaf is None for leaf in found):
        raise ArgumentError(
            "elems holds no tensor, so there is nothing to map over. Pass at least one tensor of "
            "shape [n, ...]; for a loop over numbers use pfor."
        )
    tensors: list[tf.Tensor] = []
    for leaf, name in zip(found, names):
        if leaf is None:
            continue
        tensor = leaves.tensor_of(leaf, name, _SHARED)
        if tensor.shape.rank == 0:
            raise ArgumentError(
                f"{name} is a scalar, expected a tensor of shape [n, ...] with one row for each "
                f"call of fn. {_SHARED}"
            )
        tensors.append(tensor)
    return structure, tensors


def _composite_names(structure: Any, names: list[str]) -> list[str]:
    """The name of each leaf when composites are leaves."""
    out: list[str] = []
    position = 0
    for leaf in tf.nest.flatten(structure):
        out.append(names[position] if position < len(names) else "elems")
        position += len(nests.flatten(leaf))
    return out


def align(structure: Any, tensors: Sequence[tf.Tensor]) -> tuple[Dim, list[Element]]:
    """n, and the elements; all iterations share an element of one row."""
    sizes = [(dims(t) or (None,))[0] for t in tensors]
    several = sorted({s for s in sizes if s not in (None, 1)}, key=lambda s: s or 0)
    if len(several) > 1:
        names = [
            name
            for name, leaf in zip(nests.paths(structure, "elems"), nests.flatten(structure))
            if leaf is not None
        ]
        lines = "\n  ".join(f"{p}: {t.shape}" for p, t in zip(names, tensors))
        raise ArgumentError(
            "The elements differ in the size of axis 0 (each must have n rows, or one that is "
            f"shared by all):\n  {lines}"
        )
    if None not in sizes:
        n: Dim = several[0] if several else 1
        return n, [
            Element(t) if s == n else Element(tf.squeeze(t, 0), is_mapped=False)
            for t, s in zip(tensors, sizes)
        ]
    if several:
        n = several[0]
    elif len(tensors) == 1:
        n = tf.shape(tensors[0])[0]
    else:
        n = _dynamic_size(tensors)
    elements: list[Element] = []
    for tensor, size in zip(tensors, sizes):
        if size is None and len(tensors) > 1:
            target = tf.concat([[n], tf.shape(tensor)[1:]], 0)
            spread = tf.broadcast_to(tensor, target)  # a no-op where it has n rows already
            lead = tf.TensorShape([n if isinstance(n, int) else None])
            spread.set_shape(lead.concatenate(tensor.shape[1:]))
            elements.append(Element(spread))
        elif size == 1 and not (isinstance(n, int) and n == 1):
            elements.append(Element(tf.squeeze(tensor, 0), is_mapped=False))
        else:
            elements.append(Element(tensor))
    return n, elements


def _dynamic_size(tensors: Sequence[tf.Tensor]) -> tf.Tensor:
    """The one size of axis 0 that is not 1 (1 if all are), known only when running."""
    sizes = tf.stack([tf.shape(t)[0] for t in tensors])
    return tf.where(tf.reduce_any(tf.equal(sizes, 0)), 0, tf.reduce_max(sizes))
