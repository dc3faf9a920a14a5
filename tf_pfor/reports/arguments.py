"""The arguments that ``explain`` and ``check`` take, as a traced body and its elements."""

from __future__ import annotations

import dataclasses
import numbers
import re
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from tf_pfor import _tf
from tf_pfor.api import checks, composites
from tf_pfor.api.inputs import Element
from tf_pfor.api.mapped_arguments import Axes, elements_of
from tf_pfor.core import nests
from tf_pfor.core.axes import Axis
from tf_pfor.core.emit import Dim
from tf_pfor.core.errors import ArgumentError, ArgumentTypeError
from tf_pfor.core.nests import Nest
from tf_pfor.reports.subjects import Subject
from tf_pfor.tracing.trace import Body, trace
from tf_pfor.tracing.user_code import arguments_of, autographed


@dataclasses.dataclass(frozen=True, slots=True)
class Traced:
    """A body that was traced, and its elements.

    Attributes:
      name: the user's name of the function.
      known_n: the same as an int, None if it is known only at run time.
    """

    name: str
    body: Body
    elements: Sequence[Element]
    n: Dim
    known_n: int | None


def traced_of(subject: Subject, make: Callable[[Any], Any]) -> Traced:
    """Traces what is to be explained; ``make`` makes a tensor of each leaf of the elements."""
    body_fn, elements, n = _arguments(subject, make)
    known = n if isinstance(n, int) else _tf.static_value(n)
    size = None if known is None else int(known)
    axis = Axis(subject.axis_name, size)
    body = trace(composites.by_parts(body_fn), [e.spec for e in elements], axis=axis)
    return Traced(_name_of(subject.fn), body, elements, n, size)


def _name_of(fn: object) -> str:
    """The user's name of a function; TensorFlow calls f ``__inference_f_123``, in bytes."""
    name = getattr(fn, "__qualname__", getattr(fn, "name", type(fn).__name__))
    name = name.decode() if isinstance(name, bytes) else str(name)
    return re.sub(r"^__inference_(.+)_\d+$", r"\1", name).split("<locals>.")[-1]


def _arguments(
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
    for leaf in tf.nest.flatten(rows):
        if isinstance(leaf, tf.TypeSpec) and not isinstance(leaf, tf.TensorSpec):
            raise ArgumentTypeError(
                f"elems holds a {type(leaf).__name__}. Expected: tensors, or specs of dense "
                "tensors. Pass a batch in its place, such as a RaggedTensor of two rows."
            )
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
    if isinstance(arg, tf.TensorSpec) and not arg.dtype.is_integer:
        return False
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
