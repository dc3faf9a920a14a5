"""Ragged and sparse tensors as elements and as results: taken apart, and put together again.

A row is ``rt[i]``: a dense tensor, a RaggedTensor of one rank less, or a SparseTensor of one axis
less. The length of dense rows differs. For a RaggedTensor the elements of the map say where each
row begins and ends in the values. The body captures the values and cuts them: no copy, no padding.
The rows are padded, beside their lengths, in blocks, for SparseTensors, and in the body of another
map, where all tensors have one shape. A result of the body becomes its parts. The parts of all
iterations are stacked as by ``tf.ragged.stack``, or by ``tf.sparse.concat`` of expanded tensors.

The type of a composite may know how it is batched: an extension type with an encoder, or a
``LinearOperator``. Such a composite goes through the tensors of its encoder: its parts still
broadcast. The fields of other extension types are taken apart one by one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple, NoReturn

import numpy as np
import tensorflow as tf

from tf_pfor import _tf
from tf_pfor._tf import _graphs, _types
from tf_pfor._tf._types import RAGGED
from tf_pfor.core import nests
from tf_pfor.core.errors import ArgumentError, NotVectorizableError
from tf_pfor.core.nests import Nest

# ---------------------------------------------------------------------------
# Elements
# ---------------------------------------------------------------------------


Supply = Iterator[tf.Tensor]
"""The values that rows are cut from, in the order in which the rows were opened."""


class _Packed(NamedTuple):
    """The begins and ends of rows in values that all iterations see."""

    start: tf.Tensor  # [] in an iteration, [n] outside
    end: tf.Tensor

    def cut(self, values: Supply) -> tf.Tensor:
        """The row, in an iteration."""
        row = next(values)[self.start : self.end]
        if tf.is_symbolic_tensor(row):
            _graphs.mark_rows(row)
        return row


class _Padded(NamedTuple):
    """Variable-length rows, padded."""

    padded: tf.Tensor  # [longest, ...] in an iteration, [n, longest, ...] outside
    length: tf.Tensor  # [], [n]

    @classmethod
    def of(cls, ragged: tf.RaggedTensor) -> _Padded:
        """Makes them of a RaggedTensor of ragged rank 1."""
        if _tf.in_xla_context(tf.compat.v1.get_default_graph()):
            return cls(_padded_by_xla(ragged), ragged.row_lengths())
        return cls(ragged.to_tensor(), ragged.row_lengths())

    def cut(self, values: Supply) -> tf.Tensor:
        """In an iteration: the row."""
        del values
        return self.padded[: self.length]


def _padded_by_xla(ragged: tf.RaggedTensor) -> tf.Tensor:
    """``ragged.to_tensor()``, by ops that XLA has; it needs the longest row."""
    values, splits = ragged.values, tf.cast(ragged.row_splits, tf.int32)
    known = _tf.static_value(ragged.row_splits)
    if known is None:
        _refuse(ragged, "how long its longest row is")
    places = np.arange(np.max(np.diff(known), initial=0), dtype=np.int32)
    at = splits[:-1, None] + places
    at = tf.where(at < splits[1:, None], at, tf.shape(values)[0])  # a zero stands behind the values
    zero = tf.zeros(tf.concat([[1], tf.shape(values)[1:]], 0), values.dtype)
    return tf.gather_nd(tf.concat([values, zero], 0), tf.expand_dims(at, -1))  # of a dense gradient


def _refuse(x: tf.RaggedTensor | tf.SparseTensor, what: str) -> NoReturn:
    """Raises the error that says what XLA needs to know of such rows, and what to do."""
    kind, dense = type(x).__name__, "tf.sparse.to_dense(x)"
    if isinstance(x, tf.RaggedTensor):
        dense = "x.to_tensor() and x.row_lengths(), of which the function takes row[:length]"
    ways = (
        "Call vmap(fn, jit_compile=True) outside of what is compiled, which pads the rows before "
        f"XLA sees them; map over {dense}, made before what is compiled; or leave out jit_compile."
    )
    if _tf.in_body(tf.compat.v1.get_default_graph()):
        ways = "Leave out jit_compile."
    raise NotVectorizableError(
        f"A map under jit_compile is over a {kind} of shape {x.shape}, and XLA needs to know "
        f"{what}. {ways}"
    )


class _RaggedRows(NamedTuple):
    """Rows of a RaggedTensor of ragged rank 2 or more."""

    lengths: tuple[Any, ...]
    flat: Nest

    @classmethod
    def of(cls, ragged: tf.RaggedTensor, rows: Callable[[Any, Any], Any]) -> _RaggedRows:
        """Makes them of a RaggedTensor; ``rows`` is a function of values and splits."""
        splits, lengths, inner = ragged.row_splits, list[Any](), ragged.values
        while isinstance(inner, tf.RaggedTensor):
            level = inner
            lengths.append(rows(level.row_lengths(), splits))
            splits, inner = tf.gather(level.row_splits, splits), level.values
        return cls(tuple(lengths), rows(inner, splits))

    def cut(self, values: Supply) -> Any:
        """In an iteration: the RaggedTensor of the row."""
        lengths = [level.cut(values) for level in self.lengths]
        return RAGGED.from_nested_row_lengths(self.flat.cut(values), lengths, validate=False)


class _SparseRows(NamedTuple):
    """Rows of a SparseTensor."""

    indices: _Padded
    values: _Padded
    shape: tf.Tensor  # no elements, of the shape of a row and one axis more

    @classmethod
    def of(cls, sparse: tf.SparseTensor) -> _SparseRows:
        """Makes them of a SparseTensor."""
        if _tf.in_xla_context(tf.compat.v1.get_default_graph()):
            _refuse(sparse, "how many entries a row has")
        sparse = tf.sparse.reorder(sparse)  # or the elements of a row need not lie together
        n, numbers = sparse.dense_shape[0], sparse.indices[:, 0]
        counts = tf.math.unsorted_segment_sum(tf.ones_like(numbers), numbers, n)
        indices, values = (
            _Padded.of(RAGGED.from_row_lengths(x, counts))
            for x in (sparse.indices[:, 1:], sparse.values)
        )
        shape = tf.zeros(tf.concat([sparse.dense_shape, [0]], 0), tf.bool)
        shape.set_shape([*sparse.shape, 0])
        return cls(indices, values, shape)

    def cut(self, values: Supply) -> Any:
        """In an iteration: the SparseTensor of the row."""
        shape = tf.shape(self.shape, tf.int64)[:-1]
        return tf.SparseTensor(self.indices.cut(values), self.values.cut(values), shape)


class _Type:
    """The type of a composite: a key, so that it is in the structure of a nest."""

    __slots__ = ("encoder", "spec")

    def __init__(self, spec: tf.TypeSpec[Any], encoder: _types.Encoder):
        self.spec, self.encoder = spec, encoder


class _Encoded(NamedTuple):
    """The tensors that a composite's type stacks: of one iteration, or stacked."""

    tensors: Nest
    known: dict[_Type, tuple[()]]

    @classmethod
    def of(cls, x: Nest, encoder: _types.Encoder, minimum_rank: int = 0) -> _Encoded:
        """Makes one of a composite."""
        spec = tf.type_spec_from_value(x)
        return cls(encoder.encode(spec, x, minimum_rank=minimum_rank), {_Type(spec, encoder): ()})

    @property
    def type(self) -> _Type:
        """The type of the composite."""
        return next(iter(self.known))

    def cut(self, values: Supply) -> Any:
        """In an iteration: the composite of the row."""
        encoder, spec = self.type.encoder, self.type.spec
        return encoder.decode(encoder.unbatch(spec), _cut(self.tensors, values))


_KINDS = (_Packed, _Padded, _RaggedRows, _SparseRows, _Encoded)


def _cut(rows: Nest, values: Supply) -> Any:
    return nests.replaced(rows, _KINDS, lambda x: x.cut(values))


def opened(
    nest: Nest,
    *,
    of: tuple[type, ...] = (_types.COMPOSITE,),
    in_blocks: bool = False,
    axes: Callable[[Any], Any] = lambda _: 0,
) -> tuple[Any, Callable[[Any], Any]]:
    """A nest with dense tensors in place of composites, and what cuts one iteration.

    In the nest they may have been opened before, as rows that are padded.

    Args:
      nest: the nest; it is returned itself if it has none.
      of: the composite to open.
      in_blocks: whether only some of the rows run at once.
      axes: over which axis one is mapped; one that all rows share (None) is left as it is.
    """
    found: list[Any] = []
    held: list[tf.Tensor] = []

    graph = tf.compat.v1.get_default_graph()
    are_padded = in_blocks or _tf.in_body(graph) or _tf.in_xla_context(graph)

    def of_splits(values: tf.Tensor, splits: tf.Tensor) -> Any:
        if are_padded:
            return _Padded.of(RAGGED.from_row_splits(values, splits, validate=False))
        held.append(values)
        return _Packed(splits[:-1], splits[1:])

    def rows(x: Nest) -> Any:
        is_plain = isinstance(x, (tf.RaggedTensor, tf.SparseTensor))
        encoder = None if is_plain else _types.batch_encoder(x, of_rows=True)
        axis = axes(x)
        if axis is not None and isinstance(x, tf.linalg.LinearOperator):
            _check_operator(x, "among the elements", mapped=1)
        if axis is None or not (is_plain or encoder):
            return x
        if axis != 0:
            raise ArgumentError(
                f"A {type(x).__name__} among the arguments has the entry {axis!r} of in_axes. "
                "Expected: 0, or None if all examples share it."
            )
        if encoder is not None:
            found.append(x)
            made = _Encoded.of(x, encoder, minimum_rank=1)
            return made._replace(tensors=nests.replaced(made.tensors, of, rows))
        found.append(x)
        if isinstance(x, tf.SparseTensor):
            return _SparseRows.of(x)
        if x.ragged_rank > 1:
            return _RaggedRows.of(x, of_splits)
        return _Padded.of(x) if are_padded else of_splits(x.values, x.row_splits)

    nests.replaced(nest, _KINDS, found.append)
    made = nests.replaced(nest, of, rows)
    if not found:
        return nest, lambda row: row

    return made, lambda row: _cut(row, iter(held))


def _check_operator(x: Nest, where: str, mapped: int) -> None:
    """Refuses an operator whose rows, or batch, are not the rows or batch of its tensors.

    Args:
      x: the operator.
      where: its role, for the message.
      mapped: the number of mapped axes of its batch: 1 for an element, 0 for a result.
    """
    rank, parts = x.batch_shape.rank, list(_types.operator_parts(x))
    if rank is None:
        return
    bad = [
        op
        for op, found, is_tensor in parts
        if found is not None and (found != rank if is_tensor else found > rank - mapped)
    ]
    if bad or not any(is_tensor for _, _, is_tensor in parts):
        name = type((bad or [x])[0]).__name__
        of = "" if name == type(x).__name__ else f" in a {type(x).__name__}"
        raise ArgumentError(
            f"A {name}{of} {where} has a batch that its tensors do not have. Expected: all axes "
            "of the batch in each tensor, as in a LinearOperatorDiag of ones, or to_dense()."
        )


# ---------------------------------------------------------------------------
# Results
# ---------------------------------------------------------------------------


class _RaggedResult(NamedTuple):
    """The parts of a RaggedTensor: of one iteration, or stacked."""

    flat: Nest
    lengths: tuple[Any, ...]  # of each level, the outermost first
    counts: tuple[Any, ...]  # how many elements each of these has, and ``flat``


class _SparseResult(NamedTuple):
    """The parts of a SparseTensor: of one iteration, or stacked."""

    indices: tf.Tensor
    values: tf.Tensor
    shape: tf.Tensor  # perhaps of one row if it is stacked: ``shapes_in``
    count: Any
    known: dict[tuple[int, int], tuple[()]]  # keys: each axis and its size in a row, -1 if unknown


def by_parts(fn: Callable[..., Any]) -> Callable[..., Any]:
    """``fn``, returning the parts of ragged and sparse tensors, and what else ``parts`` opens."""
    return lambda *rows: parts(fn(*rows))


def parts(result: Nest) -> Any:
    """The result of the body, with the tensors to stack in the place of composites."""

    def of(x: object) -> Any:
        if not isinstance(x, (tf.RaggedTensor, tf.SparseTensor)):
            encoder = _types.batch_encoder(x)
            if encoder is None:
                return x
            if isinstance(x, tf.linalg.LinearOperator):
                _check_operator(x, "that the body returns", mapped=0)
            made = _Encoded.of(_broadening(x), encoder)
            return made._replace(tensors=parts(made.tensors))
        if isinstance(x, tf.SparseTensor):
            sizes = x.shape.as_list() if x.shape.rank is not None else []
            known = {(i, -1 if k is None else k): () for i, k in enumerate(sizes)}
            count = tf.shape(x.values)[0]
            return _SparseResult(x.indices, x.values, x.dense_shape, count, known)
        lengths, flat = tuple(x.nested_row_lengths()), x.flat_values
        return _RaggedResult(flat, lengths, tuple(tf.shape(t)[0] for t in (*lengths, flat)))

    return nests.replaced(result, _types.COMPOSITE, of)


def _broadening(x: object) -> Any:
    """A distribution or a bijector with parameters of one rank, as far as these are batches.

    They still broadcast then if each has one more axis in front: TensorFlow Probability's type
    says nothing about that, but has this for it.
    """
    broaden = getattr(x, "_broadcast_parameters_with_batch_shape", None)
    shape = getattr(x, "batch_shape_tensor", None)
    return x if broaden is None or shape is None else broaden(tf.ones_like(shape()))


def check_axes(structure: Nest, axes: list[Any]) -> None:
    """Results that are put together again have the mapped axis in front."""

    def check(x: object) -> Any:
        if any(axis != 0 for axis in nests.flatten(x)):
            kind = "RaggedTensor" if isinstance(x, _RaggedResult) else "SparseTensor"
            if isinstance(x, _Encoded):
                kind = x.type.spec.value_type.__name__
            raise ArgumentError(
                f"out_axes asks for an axis of a {kind} that the body returns. Expected: 0."
            )
        return x

    nests.replaced(nests.pack(structure, axes), (_RaggedResult, _SparseResult, _Encoded), check)


def shapes_in(structure: Nest, count: int) -> frozenset[int]:
    """The leaves of a body that are shapes of sparse results: the largest row is all it takes."""
    found: list[int] = []
    visit = lambda x: found.append(x.shape)  # noqa: E731
    nests.replaced(nests.pack(structure, [*range(count)]), _SparseResult, visit)
    return frozenset(found)


def assembled(result: Nest) -> Any:
    """The inverse, of the parts of all iterations."""

    def of(x: Nest) -> Any:
        if isinstance(x, _Encoded):
            return _batched(x)
        return _ragged(x) if isinstance(x, _RaggedResult) else _sparse(x)

    return nests.replaced(result, (_RaggedResult, _SparseResult, _Encoded), of)


def _batched(x: _Encoded) -> Any:
    """One composite of all iterations; one that has no tensors is the same in all."""
    encoder, spec, leaves = x.type.encoder, x.type.spec, nests.flatten(x.tensors)
    if leaves:
        spec = encoder.batch(spec, leaves[0].shape[0])
    return encoder.decode(spec, assembled(x.tensors))


def _packed(rows: tf.RaggedTensor | tf.Tensor, counts: tf.Tensor) -> tf.Tensor:
    """[n, most, ...] or ragged -> [total, ...]: the first elements of each row."""
    if isinstance(rows, tf.RaggedTensor):
        values = rows.values  # of an unknown number of axes: indices that all are as long
        return values.to_tensor() if isinstance(values, tf.RaggedTensor) else values
    shape, mask = tf.shape(rows), tf.sequence_mask(counts, tf.shape(rows)[1])
    flat = tf.reshape(rows, tf.concat([[shape[0] * shape[1]], shape[2:]], 0))
    made = tf.gather(flat, tf.where(tf.reshape(mask, [-1]))[:, 0])
    made.set_shape([None, *rows.shape[2:]])
    return made


def _ragged(x: _RaggedResult) -> Any:
    made = _packed(x.flat, x.counts[-1])
    for lengths, counts in reversed(list(zip(x.lengths, x.counts))):
        made = RAGGED.from_row_lengths(made, _packed(lengths, counts), validate=False)
    counts = tf.cast(x.counts[0], made.row_splits.dtype)
    return RAGGED.from_row_lengths(made, counts, validate=False)


def _sparse(x: _SparseResult) -> Any:
    n = tf.shape(x.count, tf.int64)[:1]
    numbers = tf.repeat(tf.range(n[0]), x.count)
    indices = tf.concat([numbers[:, None], _packed(x.indices, x.count)], 1)
    sizes = tf.reduce_max(tf.pad(x.shape, [[0, 1], [0, 0]]), 0)  # zeros if there are no rows
    shape = tf.concat([n, sizes], 0)
    if x.known:  # TensorFlow reads static sizes off the op that makes the shape
        rows = x.count.shape[0]
        known = [sizes[i] if size < 0 else tf.constant(size, tf.int64) for i, size in x.known]
        shape = tf.stack([n[0] if rows is None else tf.constant(rows, tf.int64), *known])
    return tf.SparseTensor(indices, _packed(x.values, x.count), shape)
