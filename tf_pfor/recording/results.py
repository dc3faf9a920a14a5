"""The results of all examples as one nest with an axis of examples."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from tf_pfor._tf._types import COMPOSITE, RAGGED
from tf_pfor.core import nests
from tf_pfor.core.errors import ArgumentError, ArgumentTypeError
from tf_pfor.core.nests import Nest
from tf_pfor.recording.columns import joined
from tf_pfor.recording.nodes import Recorded, values


def alone(results: list[Any]) -> Any:
    """Results that keep no other value of their examples alive."""
    runs: dict[Any, Any] = {}
    inner = nests.from_user(results)
    leaves = [x.alone(runs) if isinstance(x, Recorded) else x for x in nests.flatten(inner)]
    return nests.to_user(nests.pack(nests.skeleton(inner), leaves))


def stacked(results: list[Any]) -> Any:
    """One nest with the results of all examples."""
    structures = [nests.from_user(r) for r in results]
    first = structures[0]
    rows = [tf.nest.flatten(structure) for structure in structures]
    for i, (other, row) in enumerate(zip(structures, rows)):
        try:
            tf.nest.assert_same_structure(first, other)
            if any(_kind(x) is not _kind(y) for x, y in zip(rows[0], row)):
                raise TypeError("The types differ.")
        except (TypeError, ValueError) as why:
            raise ArgumentError(
                f"fn must return the same structure for all examples, found {results[0]!r} for "
                f"example 0 and {results[i]!r} for example {i}."
            ) from why
    columns = [_column(list(column)) for column in zip(*rows)]
    return nests.to_user(tf.nest.pack_sequence_as(first, columns))


def _kind(x: Nest) -> type:
    """The type that results of all examples must have; numbers and tensors may be mixed."""
    return type(x) if x is None or _is_composite(x) else tf.Tensor


def _is_composite(x: Nest) -> bool:
    return isinstance(x, COMPOSITE) and not isinstance(x, tf.Variable)


def _column(items: list[Any]) -> Any:
    """[n, ...] of one result of all examples."""
    if items[0] is None:
        return None
    if _is_composite(items[0]):
        return _composite([_with_values(x) for x in items])
    items = [x if isinstance(x, Recorded) else tf.convert_to_tensor(x) for x in items]
    if len({x.dtype for x in items}) > 1:
        found = sorted({x.dtype.name for x in items})
        raise ArgumentError(f"fn must return the same dtype for all examples, found {found}.")
    if len({tuple(x.shape) for x in items}) == 1 and items[0].shape.is_fully_defined():
        return joined(items)
    if len({x.shape.rank for x in items}) > 1:
        found = sorted({x.shape.rank for x in items})
        raise ArgumentError(f"fn must return the same rank for all examples, found ranks {found}.")
    return _ragged(values(items))


def _with_values(x: Nest) -> Any:
    """A composite, with values in place of what was recorded."""
    leaves = tf.nest.flatten(x, expand_composites=True)
    return tf.nest.pack_sequence_as(x, values(leaves), expand_composites=True)


def _composite(items: list[Any]) -> Any:
    """[n, ...] of RaggedTensors, SparseTensors or extension types."""
    first = items[0]
    try:
        if isinstance(first, RAGGED):
            return tf.stack(items)
        if isinstance(first, tf.SparseTensor):
            return tf.sparse.concat(0, [tf.sparse.expand_dims(x, 0) for x in items])
    except (ValueError, tf.errors.InvalidArgumentError) as why:
        raise ArgumentError(
            f"fn must return {type(first).__name__}s of one dtype and of shapes that can be "
            f"stacked, found {[str(x.shape) for x in items]}."
        ) from why
    fields = tf.nest.flatten(list(vars(first).values()))
    if isinstance(first, tf.experimental.ExtensionType) and not any(
        isinstance(x, COMPOSITE) for x in fields
    ):
        columns = zip(*[tf.nest.flatten(x, expand_composites=True) for x in items])
        made = [_column(list(column)) for column in columns]
        return tf.nest.pack_sequence_as(first, made, expand_composites=True)
    advice = "tf.convert_to_tensor of it" if isinstance(first, tf.IndexedSlices) else "its tensors"
    raise ArgumentTypeError(
        f"fn returns {type(first).__name__}, which cannot be stacked for all examples. Return "
        f"{advice}."
    )


def _ragged(tensors: list[tf.Tensor]) -> tf.Tensor | tf.RaggedTensor:
    """Tensors of one rank as a RaggedTensor. An axis of one size stays uniform."""
    axes = [set(sizes) for sizes in zip(*[x.shape.as_list() for x in tensors])]
    same = [next(iter(a)) if len(a) == 1 else None for a in axes]
    last = max(axis for axis, size in enumerate(same) if size is None)
    inner = same[last + 1 :]
    made: tf.Tensor | tf.RaggedTensor = tf.concat([tf.reshape(x, [-1, *inner]) for x in tensors], 0)
    shapes = tf.stack([tf.shape(x, tf.int64) for x in tensors])
    for axis in reversed(range(last + 1)):
        counts = tf.reduce_prod(shapes[:, :axis], 1)
        if same[axis] is None:
            lengths = tf.repeat(shapes[:, axis], counts)
            made = RAGGED.from_row_lengths(made, lengths, validate=False)
        else:
            rows = tf.reduce_sum(counts)
            made = RAGGED.from_uniform_row_length(made, same[axis], rows, validate=False)
    return made
