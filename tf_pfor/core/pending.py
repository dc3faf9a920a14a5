"""Pending values: stacked tensors that nobody has read yet, and what they would be made of.

A converter that knows the class takes what a value is made of instead of its tensor, and nothing
is emitted for the rest. For all others a pending value is a stacked value like any other.
"""

from __future__ import annotations

import dataclasses

import tensorflow as tf

from tf_pfor.core.values import Stacked, Value, known_dims


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class Reshaped(Stacked):
    """Pending: a reshape of ``elements``, a tensor with the same elements in the same order."""

    elements: tf.Tensor = dataclasses.field(kw_only=True)

    @property
    def any_form(self) -> tf.Tensor:
        """The tensor before the reshape, where nothing after it was emitted."""
        if self.cell.is_made:
            return self.tensor
        if self.folded is not None and self.folded.is_made:
            return self.folded.tensor
        return self.elements


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class Product:
    """a_i^T b_i of two matrices, [r, k] and [r, m], each stored as it is or transposed.

    ``transpose_a`` and ``transpose_b`` are attributes of the MatMul: a is [r, k] if
    ``transpose_a``, b is [r, m] if not ``transpose_b``.
    """

    a: Value
    b: Value
    transpose_a: bool
    transpose_b: bool

    @property
    def rows(self) -> int:
        """The inner size r."""
        return _static(self.a, 0 if self.transpose_a else 1)

    @property
    def shape(self) -> tuple[int, int]:
        """The shape of the product, [k, m]."""
        k = _static(self.a, 1 if self.transpose_a else 0)
        return k, _static(self.b, 0 if self.transpose_b else 1)


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class Products:
    """A sum that was not emitted yet: of products of one static shape, and of other values."""

    terms: tuple[Product, ...]
    rest: tuple[Value, ...]


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class SumOfProducts(Stacked):
    """Pending: a sum of products, when only a sum is going to read it."""

    products: Products = dataclasses.field(kw_only=True)


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class Packed(Stacked):
    """Pending: the parts x[k], [n, ...] each, of which each was computed alone."""

    parts: tuple[tf.Tensor, ...] = dataclasses.field(kw_only=True)


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class InChannels(Stacked):
    """Pending: images [n, b, ...spatial, c] that are ``wide``, [b, ...spatial, n*c]."""

    wide: tf.Tensor = dataclasses.field(kw_only=True)


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class Piece:
    """The elements of ``dy``, at ``count`` places from ``start`` of inner axis 0; zeros around."""

    dy: Value
    start: int
    count: int


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class ZeroExtended(Stacked):
    """Pending: a piece with zeros around it, when only a sum is going to read it."""

    piece: Piece = dataclasses.field(kw_only=True)


def _static(value: Value, axis: int) -> int:
    return known_dims(value.inner_shape)[axis]
