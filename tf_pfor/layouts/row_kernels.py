"""A function of one row, run by ``MapDefun`` for all rows in parallel: results may differ in shape.

``MapDefun`` stacks results of one shape. If shapes differ, each row gives a list of one tensor, its
elements, and its shape. The lists are joined by pairs to one list of all rows, which copies no
element. The tensors of that list, one behind the other, are the packed form of ragged rows.
TensorFlow has ``MapDefun`` for CPUs, outside of XLA, and without a gradient.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

from tf_pfor.core.values import Shape, Value, is_static
from tf_pfor.layouts.ragged import Ragged, RowSizes


def all_rows(
    function: Callable[..., Sequence[tf.Tensor]],
    rows: Sequence[tf.Tensor],
    shared: Sequence[tf.Tensor],
    outputs: Sequence[tf.Tensor],
    shapes: Sequence[Shape],
    length: int | None,
) -> list[Value]:
    """The results of all rows, in the current graph.

    Args:
      function: a function of a row of each of ``rows``, and of ``shared``.
      rows: tensors [n, ...].
      shared: tensors that all rows see.
      outputs: the tensors of the body that the results are.
      shapes: the shapes of the results of one row, of known rank.
      length: n, None if it is not known.
    """

    def one(*given: tf.Tensor) -> list[tf.Tensor]:
        made = function(*given)
        own = [tf.shape(x) for x, shape in zip(made, shapes) if not is_static(shape)]
        return [*[_element(x, shape) for x, shape in zip(made, shapes)], *own]

    specs = [tf.TensorSpec(x.shape[1:], x.dtype) for x in rows]
    specs += [tf.TensorSpec(x.shape, x.dtype) for x in shared]
    traced = tf.function(one, autograph=False).get_concrete_function(*specs)
    traced.add_to_graph(tf.compat.v1.get_default_graph())
    made = tf.raw_ops.MapDefun(
        arguments=list(rows),
        captured_inputs=list(shared),
        output_types=[t.dtype for t in traced.outputs],
        output_shapes=[t.shape for t in traced.outputs],
        f=traced,
    )
    own = iter(made[len(outputs) :])
    return [
        Value.stacked(x) if is_static(shape) else _joined(x, next(own), output, shape, length)
        for x, output, shape in zip(made, outputs, shapes)
    ]


def _element(tensor: tf.Tensor, shape: Shape) -> tf.Tensor:
    """A result of one row: as it is, or all of its elements in a scalar."""
    if is_static(shape):
        return tf.ensure_shape(tensor, shape)
    return tf.raw_ops.TensorListFromTensor(tensor=tf.reshape(tensor, [1, -1]), element_shape=[-1])


def _in_one_list(rows: tf.Tensor, dtype: tf.DType) -> tf.Tensor:
    """Lists [n] -> a list of all their tensors, in order: in log2(n) steps."""

    def joined(a: tf.Tensor, b: tf.Tensor) -> tf.Tensor:
        return tf.raw_ops.TensorListConcatLists(input_a=a, input_b=b, element_dtype=dtype)

    def step(lists: Any, behind: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        n: tf.Tensor = tf.shape(lists)[0]
        even = n // 2 * 2
        behind = tf.cond(n > even, lambda: joined(lists[n - 1], behind), lambda: behind)
        return joined(lists[0:even:2], lists[1:even:2]), behind

    empty = tf.raw_ops.EmptyTensorList(element_shape=[-1], max_num_elements=-1, element_dtype=dtype)
    _, found = tf.while_loop(
        lambda lists, _: tf.shape(lists)[0] > 0,
        step,
        (rows, empty),
        shape_invariants=(tf.TensorShape([None]), tf.TensorShape([])),
    )
    return found


def _joined(
    rows: tf.Tensor, shapes: tf.Tensor, output: tf.Tensor, shape: Shape, length: int | None
) -> Value:
    """Elements of all rows, of the shapes int32 [n, rank]."""
    flat, _ = tf.raw_ops.TensorListConcatV2(
        input_handle=_in_one_list(rows, output.dtype),
        element_shape=[-1],
        leading_dims=tf.constant([], tf.int64),
        element_dtype=output.dtype,
    )
    assert shape is not None
    count = max(i for i, size in enumerate(shape) if size is None) + 1
    sizes: list[Any] = []
    for axis, size in enumerate(shape[:count]):
        if size is None:
            column = shapes[:, axis]  # type: ignore[index]
            column.set_shape([length])
            size = RowSizes.of(column)
        sizes.append(size)
    return Ragged.packed(tf.reshape(flat, [-1, *shape[count:]]), sizes, output)
