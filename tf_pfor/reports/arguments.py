"""The arguments that ``explain`` and ``check`` take, as a body of flat tensors and its elements."""

from __future__ import annotations

import numbers
from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf

from tf_pfor.api import checks, composites
from tf_pfor.api.inputs import Element
from tf_pfor.api.mapped_arguments import Axes
from tf_pfor.api.vmap import elements_of
from tf_pfor.core import nests
from tf_pfor.core.emit import Dim
from tf_pfor.core.errors import ArgumentError
from tf_pfor.core.nests import Nest
from tf_pfor.reports.subjects import Subject
from tf_pfor.tracing.user_code import arguments_of, autographed


def arguments(
    subject: Subject, make: Callable[[Any], Any]
) -> tuple[Callable[..., Any], list[Element], Dim]:
    """The body of flat tensors, its elements (``make`` of each leaf of the arguments), n."""
    fn, args = subject.fn, subject.args
    checks.check_callable(fn, "fn")
    if subject.in_axes != 0 or subject.axis_size is not None:
        given = _made(args, subject.in_axes, make)
        return elements_of(fn, given, {}, subject.in_axes, subject.axis_size)
    if not args:
        raise ArgumentError(
            "It needs what the function is called with: the number of iterations for a pfor body, "
            "or the elements for a function of one row."
        )
    if len(args) == 1 and _is_count(args[0]):
        n = checks.check_iters(args[0])
        return autographed(fn, "pfor"), [Element(None)], n
    rows = args[0] if len(args) == 1 else tuple(args)
    nests.check_rows(rows, "elems")
    nests.check_leaves(rows, "elems")
    opened, cut = composites.opened(rows)
    given = nests.from_user(opened)
    structure, tensors = checks.check_elems(tf.nest.map_structure(make, given))
    n, elements = checks.align(structure, tensors)
    converted = autographed(fn, "" if len(args) > 1 else "vectorized_map")

    def of_flat(*leaves: tf.Tensor) -> Any:
        with arguments_of(fn):
            row = cut(nests.to_user(checks.with_rows(structure, leaves)))
        return converted(*row) if len(args) > 1 else converted(row)

    return of_flat, elements, n


def _made(args: tuple[Any, ...], in_axes: Axes, make: Callable[[Any], Any]) -> tuple[Any, ...]:
    """The arguments, with ``make`` of the leaves that are mapped, and of all specs."""
    structure = nests.from_user(args)
    axes = tuple(in_axes) if isinstance(in_axes, list) else in_axes
    if isinstance(axes, tuple) and len(axes) != len(args):
        return args  # which is refused, with its own message
    supply = iter(nests.spread(axes, structure, "in_axes"))
    leaves: list[Any] = []
    for leaf in tf.nest.flatten(structure):
        is_mapped = any([next(supply) is not None for _ in nests.flatten(leaf)])
        leaves.append(make(leaf) if is_mapped or isinstance(leaf, tf.TypeSpec) else leaf)
    return tuple(nests.to_user(tf.nest.pack_sequence_as(structure, leaves)))


def _is_count(arg: object) -> bool:
    if isinstance(arg, (numbers.Integral, float)):
        return True
    is_array = isinstance(arg, (tf.Tensor, tf.Variable, np.ndarray, tf.TensorSpec))
    return is_array and tf.TensorShape(arg.shape).rank == 0


def placeholder_like(leaf: Nest) -> Any:
    """A tensor of unknown value in place of a tensor: nothing depends on what is in it."""
    if isinstance(leaf, tf.TensorSpec):
        return tf.compat.v1.placeholder(leaf.dtype, leaf.shape)
    if isinstance(leaf, (tf.RaggedTensor, tf.SparseTensor)) or leaf is None:
        return leaf
    try:
        tensor = tf.convert_to_tensor(leaf)
    except (TypeError, ValueError):
        return leaf  # check_elems has the message
    if tensor.shape.rank == 0:
        return leaf  # so here
    return tf.compat.v1.placeholder(tensor.dtype, tensor.shape)
