"""Code that runs at most once: a side of a conditional, which may have no rows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

from tf_pfor import _tf
from tf_pfor.converters.control_flow._subgraphs import Region, one_of
from tf_pfor.converters.lists._optional_values import list_of
from tf_pfor.core.emit import Dim, Emitter

_GRADIENT = "TfPforBranchResult"


def run_if_any(
    region: Region,
    flag: tf.Tensor,
    run: Callable[..., Any],
    like: Sequence[Any],
    dtypes: Sequence[Any],
    lead: Dim = 0,
) -> list[tf.Tensor]:
    """``run()`` if ``flag``, else zeros: a side without rows costs nothing and cannot fail.

    Args:
      region: the region that ``run`` converts.
      flag: a bool scalar.
      run: makes the list of tensors.
      like: the static shape of the zeros for each tensor; an unknown dimension becomes 0. A tensor
        is passed on instead of zeros. None is for an Optional, which stays empty.
      dtypes: their dtypes.
      lead: the size of an unknown first dimension.
    """

    def nothing() -> list[Any]:
        return [
            list_of([tf.raw_ops.OptionalNone()])
            if x is None
            else tf.identity(x)
            if isinstance(x, tf.Tensor)
            else tf.zeros([(0 if i else lead) if d is None else d for i, d in enumerate(x)], d_type)
            for x, d_type in zip(like, dtypes)
        ]

    if is_by_loop(lead, [region]):
        made = run_once(flag, run, nothing())
    else:
        made = one_of(
            region.call,
            [run],
            lambda: tf.cond(
                flag,
                apart(lambda: [*run(), tf.constant(0)]),
                lambda: [*nothing(), tf.constant(0)],
            )[:-1],
            [_shape_of_nothing(x, lead) for x in like],
        )
    for tensor, shape in zip(made, like):
        if isinstance(shape, tf.TensorShape) and shape.rank is not None:
            tensor.set_shape(tensor.shape.merge_with(shape) if shape.rank else shape)
    return made


def apart(branch: Callable[[], Sequence[tf.Tensor]]) -> Callable[[], list[tf.Tensor]]:
    """A branch of a conditional, whose results have an EnsureShape in their gradients.

    TensorFlow's optimizer makes a product with a constant of a tensor that is added to itself. If
    the tensor is an input of a branch, the constant may wait for the other side of the switch. Then
    all results are empty tensors. So each gradient passes an EnsureShape, which is kept.
    """

    def run() -> list[tf.Tensor]:
        emit, tensors = Emitter(), branch()
        return [
            emit.identities([t, emit.constant(0)], _GRADIENT)[0] if _has_gradient(t) else t
            for t in tensors
        ]

    return run


def _has_gradient(tensor: tf.Tensor) -> bool:
    return tensor.dtype.is_floating or tensor.dtype.is_complex


@tf.RegisterGradient(_GRADIENT)
def _gradient(op: tf.Operation, grad: tf.Tensor, _: object) -> list[Any]:
    grad = tf.convert_to_tensor(grad)
    return [tf.ensure_shape(grad, grad.shape), None]


def _shape_of_nothing(like: Any, lead: Dim) -> tf.TensorShape:
    """The static shape that ``like`` has in a side without rows."""
    if like is None or isinstance(like, tf.Tensor):
        return tf.TensorShape([]) if like is None else like.shape
    first = lead if isinstance(lead, int) else None
    return tf.TensorShape([(0 if i else first) if d is None else d for i, d in enumerate(like)])


def is_by_loop(rows: object, regions: Sequence[Region]) -> bool:
    """Whether XLA gets loops of at most one trip in place of conditionals.

    The gradient of a conditional keeps zeros for the branch that was not taken. If the number of
    rows is unknown they are zeros of no rows. In a loop XLA takes their shape for the shape of the
    tensors that the other branch keeps. XLA has no list of them either, which a loop in a branch
    would leave.
    """
    if not _tf.in_xla_context(tf.compat.v1.get_default_graph()):
        return False
    return is_unknown_in_loop(rows) or any(_has_loop(region.graph) for region in regions)


def is_unknown_in_loop(rows: object) -> bool:
    """Whether XLA compiles a loop of which the number of rows is unknown."""
    graph = tf.compat.v1.get_default_graph()
    return not isinstance(rows, int) and _tf.in_xla_context(graph) and _tf.in_while(graph)


def _has_loop(graph: tf.Graph) -> bool:
    return any(
        op.type in _tf.LOOPS or any(map(_has_loop, _tf.functions_of(op)))
        for op in graph.get_operations()
    )


def run_once(
    flag: tf.Tensor, run: Callable[..., Any], start: Sequence[tf.Tensor]
) -> list[tf.Tensor]:
    """``run()`` if ``flag``, else ``start``, by a loop of at most one trip."""
    shapes = [tf.TensorShape([]), *(x.shape for x in start)]
    made = tf.while_loop(
        lambda trip, *_: tf.logical_and(flag, trip < 1),
        lambda trip, *_: [trip + 1, *run()],
        [tf.constant(0), *start],
        shape_invariants=shapes,
        maximum_iterations=1,
    )
    return made[1:]
