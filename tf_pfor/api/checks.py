"""Checks of what users pass to maps: functions, numbers of rows, elements and sizes of blocks."""

from __future__ import annotations

import numbers
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from tf_pfor import _tf
from tf_pfor.api import leaves
from tf_pfor.api.inputs import Element
from tf_pfor.api.options import check_bool
from tf_pfor.core import nests
from tf_pfor.core.emit import Dim
from tf_pfor.core.errors import ArgumentError, ArgumentTypeError
from tf_pfor.core.nests import Nest
from tf_pfor.core.values import dims
from tf_pfor.tracing.memory import AUTO, check_budget


def with_rows(structure: Nest, rows: Sequence[tf.Tensor]) -> Any:
    """The nest of elements with one row in the place of each tensor; None stays."""
    supply = iter(rows)
    leaves = [None if leaf is None else next(supply) for leaf in nests.flatten(structure)]
    return nests.pack(structure, leaves)


def check_callable(fn: Callable[..., Any], name: str) -> None:
    """Refuses what cannot be called."""
    if not callable(fn):
        raise ArgumentTypeError(
            f"{name} must be a function of one iteration, found {nests.shown(fn)} of type "
            f"{type(fn).__name__}. Pass a function, a lambda or a callable object."
        )


def check_iters(iters: Nest) -> Dim:
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


def _bad_iters(found: object) -> ArgumentTypeError:
    return ArgumentTypeError(
        f"iters must be an integer or a scalar integer tensor, found {found!s}. Use int(...) or "
        "tf.cast(..., tf.int32)."
    )


def check_blocks(block: object, budget: object, name: str) -> tuple[int | str | None, int | None]:
    """A block size (None: all at once; "auto": as many as fit), and the bytes for "auto"."""
    is_auto = isinstance(block, str) and block == AUTO
    size, limit = AUTO if is_auto else fixed_block(block, name, " or 'auto'"), check_budget(budget)
    if limit is not None and not is_auto:
        raise ArgumentError(f"memory_budget is for {name}='auto', which is not set.")
    return size, limit


def check_progress(progress: object, block: int | str | None, name: str) -> bool:
    """Whether progress is to be shown."""
    is_on = check_bool(progress, "progress")
    if is_on and block is None:
        raise ArgumentError(
            f"progress=True shows how many blocks of iterations are done, and {name} is None: all "
            f"run at once. Set {name}, or leave progress out."
        )
    return is_on


def fixed_block(block: object, name: str = "parallel_iterations", other: str = "") -> int | None:
    """A block size as an int, or None for all at once."""
    if block is None:
        return None
    known = block
    if isinstance(block, tf.Tensor):
        known = tf.get_static_value(block)
    if isinstance(known, np.ndarray) and known.ndim == 0:
        known = known.item()
    if isinstance(known, bool) or not isinstance(known, numbers.Integral) or int(known) < 1:
        raise ArgumentError(
            f"{name} must be a positive int or None{other}, found {nests.shown(block)}."
        )
    return int(known)


_SHARED = "Close over it in fn if all rows share it."


def check_elems(elems: Nest) -> tuple[Any, list[tf.Tensor]]:
    """The nest, and its leaves as tensors of rank >= 1; leaves that are None are left out."""
    nests.check_rows(elems, "elems")
    structure = nests.from_user(elems)
    nests.check_leaves(structure, "elems")
    names = nests.paths(structure, "elems")
    whole = nests.paths(tf.nest.map_structure(lambda _: 0, structure), "elems")
    for leaf, name in zip(tf.nest.flatten(structure), whole):
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


def align(structure: Nest, tensors: Sequence[tf.Tensor]) -> tuple[Dim, list[Element]]:
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
