"""Composite types that say how many of one kind become one that is batched."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Protocol

import tensorflow as tf
from tensorflow.python.framework import extension_type as _extension_type
from tensorflow.python.framework import type_spec as _type_spec

COMPOSITE: Any = tf.__internal__.CompositeTensor
RAGGED: Any = tf.RaggedTensor  # the stubs know no constructors
ROWS = (tf.RaggedTensor, tf.SparseTensor)


class Encoder(Protocol):
    """The methods of TensorFlow's batch encoders: a composite as tensors that can be stacked."""

    def batch(self, spec: tf.TypeSpec[Any], batch_size: int | None) -> tf.TypeSpec[Any]:
        """The spec of many composites."""
        ...

    def unbatch(self, spec: tf.TypeSpec[Any]) -> tf.TypeSpec[Any]:
        """The spec of one of many composites."""
        ...

    def encode(self, spec: tf.TypeSpec[Any], value: object, minimum_rank: int = 0) -> Any:
        """The tensors of a composite, a nest."""
        ...

    def decode(self, spec: tf.TypeSpec[Any], encoded_value: object) -> Any:
        """The composite of such tensors."""
        ...

    def encoding_specs(self, spec: tf.TypeSpec[Any]) -> Any:
        """The specs of the tensors of ``encode``."""
        ...


class _Fields(tf.experimental.ExtensionTypeBatchEncoder):  # pyright: ignore[reportUntypedBaseClass]
    """The fields of an extension type, whose specs are not needed to put it together.

    TensorFlow's encoder fails to make the specs of the rows of an operator.
    """

    def batch(self, spec: object, batch_size: object) -> Any:
        return spec

    def unbatch(self, spec: object) -> Any:
        return spec


def fields_of(x: object) -> tuple[Any, dict[str, Any]]:
    """The spec of an extension type, and its tensors and composites by the names of its fields."""
    spec = tf.type_spec_from_value(x)
    names: list[str] = []
    kinds = (tf.Tensor, COMPOSITE)
    for name in spec.__dict__:
        own = [y for y in tf.nest.flatten(x.__dict__[name]) if isinstance(y, kinds)]
        names += [name] if len(own) == 1 else [f"{name}_{i}" for i in range(len(own))]
    return spec, dict(zip(names, spec._to_components(x), strict=True))


def of_fields(spec: object, fields: Sequence[Any]) -> Any:
    """The inverse; its constructor, which may ask for other shapes, is not called."""
    make = getattr(spec, "_from_components")  # noqa: B009  (the stubs do not know it)
    return make(tuple(fields))


def batch_encoder(x: object, *, of_rows: bool = False) -> Encoder | None:
    """The encoder that turns a composite into tensors to stack; None if its parts will do.

    Args:
      x: a composite.
      of_rows: whether it is batched, to be taken apart into rows. The encoders of old types
        (operators) do that by their parts.
    """
    if isinstance(x, (tf.data.Dataset, tf.IndexedSlices)):
        return None
    spec = tf.type_spec_from_value(x)
    found = getattr(spec, "__batch_encoder__", None)
    if isinstance(found, _type_spec.LegacyTypeSpecBatchEncoder):
        return None if of_rows else found
    if not isinstance(spec, _extension_type.ExtensionTypeSpec):
        return found
    if type(found) is tf.experimental.ExtensionTypeBatchEncoder or found is None:
        fields = tf.nest.flatten(spec._to_components(x))
        if all(_is_by_parts(field, of_rows) for field in fields):
            return None
        return _Fields()
    return found


def encoder(x: object) -> Encoder:
    """The encoder that turns a composite into tensors to stack, or composites of such parts."""
    return batch_encoder(x, of_rows=True) or _Fields()


def is_opened(spec: Any) -> bool:
    """Whether the type of a component says which of its tensors are stacked."""
    plain = (tf.RaggedTensorSpec, tf.SparseTensorSpec, tf.data.DatasetSpec)
    is_kind = isinstance(spec, (_extension_type.ExtensionTypeSpec, _type_spec.BatchableTypeSpec))
    return is_kind and not isinstance(spec, plain) and issubclass(spec.value_type, COMPOSITE)


def _is_by_parts(x: object, of_rows: bool) -> bool:
    """Whether a field of a composite is a tensor, or simply its tensors; operators are checked."""
    if isinstance(x, (tf.RaggedTensor, tf.SparseTensor, tf.linalg.LinearOperator)):
        return False
    return not isinstance(x, COMPOSITE) or batch_encoder(x, of_rows=of_rows) is None


def operator_parts(op: tf.Operation) -> Iterator[tuple[Any, int | None, bool]]:
    """The parts of a ``LinearOperator``: tensors, and operators that have no tensor.

    Returns:
      The operator that it is a part of, how many axes of a batch it has, whether it is a tensor.
    """
    static = op._composite_tensor_prefer_static_fields  # sizes, which no row has of its own
    ndims = dict(op._experimental_parameter_ndims_to_matrix_ndims or ())
    components = tf.type_spec_from_value(op)._to_components(op)
    given = {name: x for name, x in components.items() if name not in static}
    if not tf.nest.flatten(given):
        yield op, op.batch_shape.rank, False
    for name, value in given.items():
        leaves = tf.nest.flatten(value)
        for leaf, behind in zip(leaves, tf.nest.flatten(ndims.get(name, [None] * len(leaves)))):
            if isinstance(leaf, tf.linalg.LinearOperator):
                yield from operator_parts(leaf)
            elif behind is None or leaf.shape.rank is None:
                yield op, op.batch_shape.rank, True
            else:
                yield op, leaf.shape.rank - behind, True
