"""Blocks of iterations one after the other (Agarwal, 2019): their results put together.

Results of one shape are stacked, [blocks, block, ...], and joined. Where the shape may differ
between iterations each block gives a RaggedTensor. The elements of all blocks, and the lengths of
each level, are put one behind the other.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from tf_pfor import _tf
from tf_pfor._tf._types import RAGGED
from tf_pfor.core.emit import Dim
from tf_pfor.core.nests import Nest
from tf_pfor.core.values import dims, is_static
from tf_pfor.layouts.row_shapes import stacked_rows


@dataclasses.dataclass(frozen=True, slots=True)
class Kind:
    """The kind of a block's result.

    Attributes:
      spec: the spec of the result of one block, where it is dense.
      flat: the static shape and dtype of a RaggedTensor's elements; None where it is dense.
      uniform: for each level the one length of all rows, None where lengths differ.
    """

    spec: tf.TensorSpec
    flat: tf.TensorSpec | None = None
    uniform: tuple[int | None, ...] = ()

    @classmethod
    def of(cls, leaf: object, spec: tf.TensorSpec) -> Kind:
        """The kind of a block's result ``leaf``."""
        if not isinstance(leaf, tf.RaggedTensor):
            return cls(spec)
        uniform, level = list[int | None](), leaf
        while isinstance(level, tf.RaggedTensor):
            length = level.uniform_row_length
            known = None if length is None else _tf.static_value(length)
            uniform.append(None if known is None else int(known))
            level = level.values
        inner = level.shape[1:]
        return cls(spec, tf.TensorSpec([None, *inner], level.dtype), tuple(uniform))

    @property
    def specs(self) -> list[tf.TensorSpec]:
        """The specs of ``tensors``: a RaggedTensor has its elements, and the lengths of levels."""
        if self.flat is None:
            return [self.spec]
        return [self.flat, *[tf.TensorSpec([None], tf.int64)] * self.uniform.count(None)]

    @property
    def are_joined(self) -> list[bool]:
        """For each spec whether blocks are put one behind the other, and not stacked."""
        return [self.flat is not None] * len(self.specs)

    def tensors(self, leaf: Nest) -> list[tf.Tensor]:
        """The tensors that a block hands on of a result."""
        if self.flat is None:
            return [leaf]
        lengths = zip(leaf.nested_row_lengths(), self.uniform)
        return [leaf.flat_values, *(tf.cast(x, tf.int64) for x, same in lengths if same is None)]

    def whole(self, tensors: Sequence[tf.Tensor], n: Dim) -> Any:
        """The result, of the tensors that all blocks have handed on."""
        if self.flat is None:
            return tensors[0]
        made: Any
        made, *lengths = tensors
        if self.uniform[0] is None and isinstance(n, int):
            lengths[0].set_shape([n])
        counts: list[Any] = []  # rows at each level
        supply, rows = iter(lengths), tf.cast(n, tf.int64)
        for same in self.uniform:
            own = None if same is not None else next(supply)
            counts.append((rows, same, own))
            rows = rows * same if own is None else tf.reduce_sum(own)  # type: ignore[operator]
        for rows, same, own in reversed(counts):
            if own is None:
                made = RAGGED.from_uniform_row_length(made, same, rows, validate=False)
            else:
                made = RAGGED.from_row_lengths(made, own, validate=False)
        return made


def of_one_shape(ragged: tf.RaggedTensor, name: str) -> tf.Tensor:
    """A RaggedTensor as a tensor, after a check that all rows have one shape."""
    checks: list[Any] = []
    text = (
        f"The shape of a result of the body differs between iterations: {name}. Expected: one "
        "shape. Pad it or reduce it. Found the lengths"
    )
    for lengths in ragged.nested_row_lengths():
        is_right = tf.reduce_all(tf.equal(lengths, lengths[:1]))
        checks.append(tf.debugging.Assert(is_right, [text, lengths], 99))
    with tf.control_dependencies([c for c in checks if c is not None]):
        return tf.identity(ragged.to_tensor())


def several(tensor: tf.Tensor, block: int | None) -> tf.TensorSpec:
    """The spec of ``block`` iterations of an output; one iteration if None."""
    shape: Any = tensor.shape
    if block is not None:
        shape = None if shape.rank is None else [block, *shape]
    return tf.TensorSpec(shape, tensor.dtype)


def split(x: tf.Tensor, full: Dim, block: int) -> tf.Tensor:
    """The rows of the full blocks: [n, ...] -> [full, block, ...]."""
    shape = dims(x)
    inner = tf.shape(x)[1:]
    if shape is not None and None not in shape[1:]:
        inner = tf.constant(np.asarray(shape[1:], np.int32))
    out = tf.reshape(x[: full * block], tf.concat([[full, block], inner], 0))
    if shape is not None:
        out.set_shape([full if isinstance(full, int) else None, block, *shape[1:]])
    return out


def join(x: tf.Tensor, block: int) -> tf.Tensor:
    """[full, block, ...] -> [full * block, ...]."""
    shape = dims(x)
    if is_static(shape):
        return tf.reshape(x, [shape[0] * block, *shape[2:]])
    dynamic = tf.shape(x)
    out = tf.reshape(x, tf.concat([dynamic[:1] * block, dynamic[2:]], 0))
    if shape is not None:
        out.set_shape([None, *shape[2:]])
    return out


def in_turn(
    fn: Callable[[list[tf.Tensor], list[tf.Tensor]], tuple[Sequence[tf.Tensor], Any]],
    rows: Sequence[tf.Tensor],
    signature: Sequence[tf.TensorSpec],
    trips: Dim,
    carried: Sequence[tf.Tensor] = (),
    are_joined: Sequence[bool] = (),
) -> tuple[list[tf.Tensor], list[tf.Tensor]]:
    """``tf.map_fn``, also where there are no rows and the shapes of results are not known.

    Args:
      fn: a function of a row and the carried tensors. It gives the results for the row, and the
        tensors that are carried on.
      rows: tensors [trips, ...].
      signature: the specs of the results for one row.
      trips: the number of rows.
      carried: the carried tensors of the first call.
      are_joined: for each result whether its variable-length rows are put one behind the other.

    Returns:
      The results [trips, ...], or joined, and the tensors that the last call carries on.
    """
    size = _at_least_one(trips)
    if size is not trips:
        rows = [readable(x, trips)[:size] for x in rows]
    given = [tf.TensorArray(x.dtype, size).unstack(x) for x in rows]
    empty = [
        tf.TensorArray(s.dtype, size, element_shape=s.shape, infer_shape=False) for s in signature
    ]

    def step(i: tf.Tensor, arrays: list[Any], carried: list[tf.Tensor]) -> Any:
        made, carried = fn([a.read(i) for a in given], carried)
        return i + 1, [a.write(i, x) for a, x in zip(arrays, made)], carried

    _, arrays, last = tf.while_loop(
        lambda i, *_: i < trips,
        step,
        (tf.constant(0), empty, list(carried)),
        parallel_iterations=1,
        maximum_iterations=size,
    )
    joined = are_joined or [False] * len(arrays)
    made = [
        _joined_rows(a, s, size)
        if is_joined
        else stacked_rows(a, s, size)[:trips]
        if size is not trips
        else stacked_rows(a, s, size)
        for a, s, is_joined in zip(arrays, signature, joined)
    ]
    return made, last


def _joined_rows(array: tf.TensorArray, like: tf.TensorSpec, n: Dim) -> tf.Tensor:
    """The n rows of an array one behind the other; unknown dimensions are 0 if there are none."""
    filler = tf.where(tf.equal(n, 0), 0, -1)
    inner = like.shape[1:]
    made = tf.raw_ops.TensorListConcatV2(
        input_handle=array.flow,
        element_shape=tf.stack([-1, *[filler if d is None else d for d in inner]]),
        leading_dims=tf.zeros([0], tf.int64),
        element_dtype=like.dtype,
    )[0]
    made.set_shape([None, *inner])
    return made


def _at_least_one(n: Dim) -> Dim:
    """``n``; under XLA, which compiles reads that do not run, one where it may be zero."""
    is_known = isinstance(n, int) or not _tf.in_xla_context(tf.compat.v1.get_default_graph())
    return n if is_known else tf.maximum(n, 1)


def readable(x: tf.Tensor, n: Dim) -> tf.Tensor:
    """[n, ...]; with a row of zeros more where XLA could not compile a read of it."""
    if _at_least_one(n) is n:
        return x
    return tf.concat([x, tf.zeros(tf.concat([[1], tf.shape(x)[1:]], 0), x.dtype)], 0)


def followed_by(x: tf.Tensor, rest: tf.Tensor) -> tf.Tensor:
    """The rows of all blocks, and the rest; without blocks x does not know its shape."""
    if not x.shape[1:].is_fully_defined():
        x = tf.reshape(x, tf.concat([tf.shape(x)[:1], tf.shape(rest)[1:]], 0))
    return tf.concat([x, rest], 0)


def sized(x: tf.Tensor, n: Dim) -> tf.Tensor:
    """``x``, of which it is known that it has n rows."""
    if isinstance(n, int):
        x.set_shape([n, *x.shape[1:]] if x.shape.rank is not None else None)
    return x
