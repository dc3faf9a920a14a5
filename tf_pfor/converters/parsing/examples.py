"""``tf.io.parse_single_example`` and ``parse_example``: the examples of all rows in one parse.

Variable-length features are ``VarLenFeature``, ``RaggedFeature``, and a ``FixedLenSequenceFeature``
that may be missing. They are parsed as ragged features: the values of all examples one behind the
other, and the begin of each example. The values are the packed form of ragged rows.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from tf_pfor.converters.parsing._batches import (
    differences,
    keys,
    listed,
    names_of,
    nothing,
    same_for_all,
    strings,
)
from tf_pfor.converters.parsing._features import ragged_vector, sparse_vector
from tf_pfor.converters.ragged._entries import longest, own_splits
from tf_pfor.converters.ragged._forms import from_padded, row_sizes
from tf_pfor.core.call import Call
from tf_pfor.core.emit import Dim
from tf_pfor.core.errors import CannotVectorize
from tf_pfor.core.registry import ANY, RegisterPFor
from tf_pfor.core.shapes import fold, inner_dims
from tf_pfor.core.values import Value
from tf_pfor.layouts.packing import masked, pad
from tf_pfor.layouts.ragged import Ragged, RowSizes, shape_value
from tf_pfor.layouts.ragged_rules import ragged_rule


@dataclasses.dataclass(frozen=True, slots=True)
class Dense:
    """A feature of one shape; of one length in each example where its first size is None."""

    key: bytes
    default: tf.Tensor
    shape: tuple[int | None, ...]

    @property
    def is_fixed(self) -> bool:
        """Whether all examples have one shape."""
        return None not in self.shape[:1]


@dataclasses.dataclass(frozen=True, slots=True)
class Features:
    """The features to parse: keys with dtypes."""

    sparse: tuple[tuple[bytes, tf.DType], ...]
    dense: tuple[Dense, ...]
    ragged: tuple[tuple[bytes, tf.DType, tf.DType], ...]  # the last one is of the splits

    @property
    def own_lengths(self) -> list[tuple[bytes, tf.DType]]:
        """The variable-length features: ragged, then sparse, then dense features."""
        found = [(key, dtype) for key, dtype, _ in self.ragged]
        own = [(d.key, d.default.dtype) for d in self.dense if not d.is_fixed]
        return [*found, *self.sparse, *own]


Parsed = tuple[list[tf.Tensor], list[tuple[tf.Tensor, tf.Tensor]]]
"""Dense features [total, ...]; of each other one the values, and int32 [total + 1] splits."""


def parse(call: Call, serialized: tf.Tensor, names: tf.Tensor, features: Features) -> Parsed:
    """Parses examples [total], in one op."""
    fixed = [d for d in features.dense if d.is_fixed]
    own = features.own_lengths
    made = call.emit(
        "ParseExampleV2",
        serialized,
        names,
        strings(call, []),
        strings(call, [d.key for d in fixed]),
        strings(call, [key for key, _ in own]),
        [d.default for d in fixed],
        num_sparse=0,
        sparse_types=[],
        ragged_value_types=[dtype for _, dtype in own],
        ragged_split_types=[tf.int32] * len(own),
        dense_shapes=[tf.TensorShape(d.shape) for d in fixed],
    )
    outputs = made if isinstance(made, list) else [made]
    dense, rest = outputs[: len(fixed)], outputs[len(fixed) :]
    return dense, list(zip(rest[: len(own)], rest[len(own) :], strict=True))


# ---------------------------------------------------------------------------
# The ops
# ---------------------------------------------------------------------------


@ragged_rule("ParseExampleV2")
@RegisterPFor(
    "ParseExampleV2",
    ANY,
    attrs="num_sparse sparse_types ragged_value_types ragged_split_types Tdense dense_shapes",
)
def parse_examples_v2(call: Call, serialized: Value, *_: object) -> Any:
    """One example in each row, or a vector of them."""
    same_for_all(call, "sparse_keys", "dense_keys", "ragged_keys", "dense_defaults")
    features = Features(
        tuple(zip(keys(call, "sparse_keys"), call.attr("sparse_types"), strict=True)),
        _dense(call, keys(call, "dense_keys")),
        tuple(
            zip(
                keys(call, "ragged_keys"),
                call.attr("ragged_value_types"),
                call.attr("ragged_split_types"),
                strict=True,
            )
        ),
    )
    return _converted(call, serialized, "names", features)


@ragged_rule("ParseExample")
@RegisterPFor(
    "ParseExample",
    ANY,
    attrs=("Nsparse", "Ndense", "sparse_types", "Tdense", "dense_shapes"),
)
def parse_examples(call: Call, serialized: Value, names: Value, *_: object) -> Any:
    """A vector of examples in each row."""
    same_for_all(call, "sparse_keys", "dense_keys", "dense_defaults")
    sparse, dense = (listed(call, name) for name in ("sparse_keys", "dense_keys"))
    types = call.attr("sparse_types")
    features = Features(tuple(zip(sparse, types, strict=True)), _dense(call, dense), ())
    return _converted(call, serialized, "names", features)


@RegisterPFor(
    "ParseSingleExample",
    ANY,
    attrs=("num_sparse", "sparse_keys", "dense_keys", "sparse_types", "Tdense", "dense_shapes"),
)
def parse_single_example(call: Call, serialized: Value, dense_defaults: list[Value]) -> Any:
    """One example in each row; the keys are attributes."""
    same_for_all(call, "dense_defaults")
    sparse = zip(call.attr("sparse_keys"), call.attr("sparse_types"), strict=True)
    features = Features(tuple(sparse), _dense(call, call.attr("dense_keys")), ())
    return _converted(call, serialized, None, features)


def _dense(call: Call, names: Sequence[bytes]) -> tuple[Dense, ...]:
    """The dense features; a default per iteration was refused before."""
    defaults: Any = call.inputs["dense_defaults"]
    shapes = [_dims(s) for s in call.attr("dense_shapes")]
    given = zip(names, defaults, shapes, strict=True)
    return tuple(Dense(key, value.tensor, shape) for key, value, shape in given)


def _dims(shape: tf.TensorShape) -> tuple[int | None, ...]:
    if shape.rank is None or None in shape[1:] or 0 in shape[1:]:
        raise CannotVectorize("the shape of a dense feature is not known")
    return tuple(shape)


def _converted(call: Call, serialized: Value, names: str | None, features: Features) -> list[Value]:
    """The values of the outputs."""
    rank = call.require_rank(serialized, "'serialized'")
    if isinstance(serialized, Ragged) and rank == 1:
        return _of_own_number(call, serialized, names, features)
    if not serialized.is_stacked or rank > 1:
        raise CannotVectorize("the examples are the same in all iterations, or a matrix")
    if features.own_lengths:
        call.require_packed()
    lead: list[Dim] = [call.loop.length, *inner_dims(call, serialized)]
    flat = fold(call, serialized, rank)
    given = strings(call, []) if names is None else names_of(call, names, lead)
    with call.emit.as_default():
        dense, own = parse(call, flat, given, features)
        kind = _Vectors(call, lead[1]) if rank else _Singles(call)
        return _ordered(kind, features, dense, own)


def _of_own_number(
    call: Call, serialized: Ragged, names: str | None, features: Features
) -> list[Value]:
    """The examples, as many as each row has."""
    call.require_packed()
    given: Any = None if names is None else call.inputs[names]
    if given is not None and 0 not in (given.inner_shape or ()):
        raise CannotVectorize("examples that have names differ in number between iterations")
    size = serialized.size
    with call.emit.as_default():
        dense, own = parse(call, serialized.tensor, strings(call, []), features)
        return _ordered(_OwnVectors(call, size), features, dense, own)


def _ordered(
    kind: _Singles | _Vectors | _OwnVectors,
    features: Features,
    dense: Sequence[tf.Tensor],
    own: Sequence[tuple[tf.Tensor, tf.Tensor]],
) -> list[Value]:
    """The values in the order of the op's outputs."""
    n_ragged, n_sparse = len(features.ragged), len(features.sparse)
    ragged, sparse = own[:n_ragged], own[n_ragged : n_ragged + n_sparse]
    parts = [kind.sparse(*x) for x in sparse]
    fixed, lengths = iter(dense), iter(own[n_ragged + n_sparse :])
    values = [
        kind.fixed(next(fixed), feature.shape)
        if feature.is_fixed
        else kind.of_own_length(*next(lengths), feature=feature)
        for feature in features.dense
    ]
    types = [dtype for *_, dtype in features.ragged]
    ends = [kind.ragged(*x, dtype=dtype) for x, dtype in zip(ragged, types, strict=True)]
    columns = [*zip(*parts)], values, [*zip(*ends)]
    return [*itertools.chain(*columns[0], columns[1], *columns[2])]


# ---------------------------------------------------------------------------
# Features, as a row sees them
# ---------------------------------------------------------------------------


class _Singles:
    """The outputs for one example in each row."""

    def __init__(self, call: Call):
        self.call = call

    def fixed(self, tensor: tf.Tensor, shape: Sequence[int | None]) -> Value:
        """[n, ...]."""
        tensor.set_shape([self.call.loop.static_length, *shape])
        return Value.stacked(tensor)

    def sparse(self, values: tf.Tensor, splits: tf.Tensor) -> list[Value]:
        """Indices, values and the shape of each row."""
        return sparse_vector(self.call, values, splits)

    def of_own_length(self, values: tf.Tensor, splits: tf.Tensor, feature: Dense) -> Value:
        """[length, ...] of each row."""
        found, size = _blocks(self.call, values, differences(self.call, splits), feature)
        return Ragged.packed(found, [row_sizes(self.call, size)])

    def ragged(self, values: tf.Tensor, splits: tf.Tensor, dtype: tf.DType) -> list[Value]:
        """Values of each row, and no splits: that is what the kernel returns."""
        return [ragged_vector(self.call, values, splits), nothing(self.call, dtype)]


class _Vectors:
    """The outputs for a vector of m examples in each row."""

    def __init__(self, call: Call, m: Dim):
        self.call, self.m = call, m
        self.grid = call.emit.shape_vector([call.loop.length, m])

    def fixed(self, tensor: tf.Tensor, shape: Sequence[int | None]) -> Value:
        """[n, m, ...]."""
        sizes: Any = [self.call.loop.length, self.m, *shape]
        return Value.stacked(self.call.emit.reshape(tensor, sizes))

    def _counts(self, splits: tf.Tensor) -> tuple[tf.Tensor, RowSizes]:
        """The number of values of each example, [n, m], and of each row."""
        counts = tf.reshape(differences(self.call, splits), self.grid)
        return counts, row_sizes(self.call, tf.reduce_sum(counts, 1))

    def sparse(self, values: tf.Tensor, splits: tf.Tensor) -> list[Value]:
        """Indices [k, 2], values [k] and the shape (m, most) of each row."""
        call = self.call
        counts, size = self._counts(splits)
        examples = tf.repeat(tf.range(tf.size(counts)), tf.reshape(counts, [-1]))
        columns = tf.range(tf.shape(values)[0]) - tf.gather(splits, examples)
        indices = tf.cast(tf.stack([examples % self.m, columns], 1), tf.int64)
        most = row_sizes(call, _largest(counts))
        elements = Ragged.packed(values, [size])
        return [Ragged.packed(indices, [size]), elements, _shape(call, [self.m, most])]

    def of_own_length(self, values: tf.Tensor, splits: tf.Tensor, feature: Dense) -> Value:
        """[m, longest of the row, ...], with the default behind the others."""
        call = self.call
        padded, lengths = _to_longest(call, values, splits, feature)  # [n * m, most, ...]
        tail = tf.concat([self.grid, tf.shape(padded)[1:]], 0)
        wide = tf.reshape(padded, tail)
        wide.set_shape([call.loop.static_length, None, None, *feature.shape[1:]])
        if isinstance(self.m, int):
            wide.set_shape([None, self.m, None, *feature.shape[1:]])
        most = row_sizes(call, _largest(tf.reshape(lengths, self.grid)))
        sizes = [self.m, most]
        return from_padded(masked(wide, sizes), sizes, is_clean=True)

    def ragged(self, values: tf.Tensor, splits: tf.Tensor, dtype: tf.DType) -> list[Value]:
        """Values, and the splits [m + 1], of each row."""
        counts, size = self._counts(splits)
        own = tf.pad(tf.cumsum(counts, 1), [[0, 0], [1, 0]])
        own.set_shape([self.call.loop.static_length, None])
        return [Ragged.packed(values, [size]), Value.stacked(tf.cast(own, dtype))]


class _OwnVectors:
    """The outputs for a vector in each row; ``m`` is the number of its examples."""

    def __init__(self, call: Call, m: RowSizes):
        self.call, self.m = call, m

    def fixed(self, tensor: tf.Tensor, shape: Sequence[int | None]) -> Value:
        """[m_i, ...] of each row."""
        tensor.set_shape([None, *shape])
        return Ragged.packed(tensor, [self.m])

    def _sum(self, counts: tf.Tensor) -> RowSizes:
        """The number of values of each row, from the numbers of each example."""
        n = self.call.loop.length
        return row_sizes(self.call, tf.math.unsorted_segment_sum(counts, self.m.rows, n))

    def sparse(self, values: tf.Tensor, splits: tf.Tensor) -> list[Value]:
        """Indices [k, 2], values [k] and the shape (m_i, most) of each row."""
        call, m = self.call, self.m
        counts = differences(call, splits)
        size = self._sum(counts)
        examples = tf.repeat(tf.range(tf.size(counts)), counts)
        columns = tf.range(tf.shape(values)[0]) - tf.gather(splits, examples)
        examples -= tf.gather(m.starts, tf.gather(m.rows, examples))
        indices = tf.cast(tf.stack([examples, columns], 1), tf.int64)
        elements = Ragged.packed(values, [size])
        return [
            Ragged.packed(indices, [size]),
            elements,
            _shape(call, [m, longest(call, counts, m)]),
        ]

    def of_own_length(self, values: tf.Tensor, splits: tf.Tensor, feature: Dense) -> Value:
        """[m_i, longest of the row, ...], with the default behind the others."""
        call = self.call
        found, lengths = _to_longest(call, values, splits, feature)
        wide = pad(found, [self.m])
        wide.set_shape([call.loop.static_length, None, None, *feature.shape[1:]])
        sizes = [self.m, longest(call, lengths, self.m)]
        return from_padded(masked(wide, sizes), sizes, is_clean=True)

    def ragged(self, values: tf.Tensor, splits: tf.Tensor, dtype: tf.DType) -> list[Value]:
        """Values, and the splits [m_i + 1], of each row."""
        own, size = own_splits(self.call, tf.cast(splits, dtype), self.m)
        return [Ragged.packed(values, [size]), own]


def _largest(counts: tf.Tensor) -> tf.Tensor:
    """[n, m] -> [n], 0 where m is."""
    return tf.reduce_max(tf.pad(counts, [[0, 0], [0, 1]]), 1)


def _shape(call: Call, sizes: Sequence[Any]) -> Value:
    return shape_value(call.emit, sizes, tf.int64)


def _to_longest(
    call: Call, values: tf.Tensor, splits: tf.Tensor, feature: Dense
) -> tuple[tf.Tensor, Any]:
    """All examples [k, most, ...] with the default behind the others, and their lengths [k]."""
    found, lengths = _blocks(call, values, differences(call, splits), feature)
    kind: Any = tf.RaggedTensor
    rows = kind.from_row_lengths(found, lengths, validate=False)
    return rows.to_tensor(tf.reshape(feature.default, [])), lengths


def _blocks(
    call: Call, values: tf.Tensor, counts: Any, feature: Dense
) -> tuple[tf.Tensor, tf.Tensor]:
    """Values as blocks [total, ...] of the shape behind the first axis, and how many there are."""
    rest: Any = feature.shape[1:]
    if not rest:
        return values, counts
    each = int(np.prod(rest))
    text = f"the number of values of feature {feature.key!r} is no multiple of {each}. They are"
    is_right = tf.equal(counts % each, 0)
    counts = call.after_check(is_right, text, [counts], counts)
    return tf.reshape(values, [-1, *rest]), counts // each
