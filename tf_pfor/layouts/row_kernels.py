"""A function of one row, run by ``MapDefun`` for all rows in parallel: results may differ in shape.

Results of one shape are stacked by it. Of others each row gives its elements as a variant, and its
shape: what lies in the variants is joined, which is the packed form of ragged rows. TensorFlow has
that for CPUs, outside of XLA, and without a gradient.
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
      function: from a row of each of ``rows``, and ``shared``, to its results.
      rows: tensors [n, ...].
      shared: tensors that all rows see.
      outputs: what the results are in the body.
      shapes: of the results of one row, of known rank.
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
    return tf.raw_ops.RaggedTensorToVariant(
        rt_nested_splits=[], rt_dense_values=tf.reshape(tensor, [-1]), batched_input=False
    )


def _joined(
    rows: tf.Tensor, shapes: tf.Tensor, output: tf.Tensor, shape: Shape, length: int | None
) -> Value:
    """Elements of all rows, of the shapes int32 [n, rank]."""
    _, flat = tf.raw_ops.RaggedTensorFromVariant(
        encoded_ragged=rows, input_ragged_rank=0, output_ragged_rank=1,
        Tvalues=output.dtype, Tsplits=tf.int64,
    )  # fmt: skip
    assert shape is not None
    count = max(i for i, size in enumerate(shape) if size is None) + 1
    sizes: list[Any] = []
    for axis, size in enumerate(shape[:count]):
        if size is None:
            column: Any = shapes[:, axis]  # type: ignore[index]
            column.set_shape([length])
            size = RowSizes.of(column)
        sizes.append(size)
    return Ragged.packed(tf.reshape(flat, [-1, *shape[count:]]), sizes, output)
