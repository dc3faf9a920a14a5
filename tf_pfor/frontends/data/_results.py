"""Results of functions of one element, as tf.data reads them, and padded batches of them."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable, Mapping
from typing import Any

import numpy as np
import tensorflow as tf

from tf_pfor.core import nests
from tf_pfor.core.emit import Dim
from tf_pfor.core.errors import ArgumentError, ArgumentTypeError
from tf_pfor.core.nests import Nest
from tf_pfor.core.settings import OutShapes

# ---------------------------------------------------------------------------
# Of one element
# ---------------------------------------------------------------------------


def as_dataset_reads(result: Nest) -> Any:
    """The result with a tuple for a list, and tensors for lists in it, as in ``Dataset.map``."""
    made = _without_lists(tuple(result) if isinstance(result, list) else result)
    for leaf in tf.nest.flatten(nests.from_user(made)):
        if isinstance(leaf, (tf.data.Dataset, tf.experimental.Optional, tf.TensorArray)):
            raise ArgumentTypeError(
                f"The function of one element returned a {type(leaf).__name__}, expected tensors, "
                "RaggedTensors or SparseTensors, which can be stacked. Return what it holds (of a "
                "TensorArray: .stack()), or use Dataset.map(fn)."
            )
    return made


def _without_lists(result: Nest) -> Any:
    """Lists as tensors, in tuples, namedtuples, mappings (which become dicts) and dataclasses."""

    def of(x: Nest) -> Any:
        if isinstance(x, list):
            return tf.convert_to_tensor(x)
        made = {key: _without_lists(value) for key, value in x.items()}
        return OrderedDict(made) if isinstance(x, OrderedDict) else made

    return nests.replaced(result, (list, Mapping), of)


def kept_and_result(result: Nest) -> tuple[Any, Any]:
    """The checked pair that a function of ``filter_map_and_batch`` returned."""
    keep = result[0] if isinstance(result, (tuple, list)) and len(result) == 2 else None
    if keep is None or isinstance(keep, (tuple, list, dict)):
        raise ArgumentError(
            "The function of filter_map_and_batch must return a pair (keep, result), keep a scalar "
            f"bool; found {result!r}."
        )
    keep = tf.convert_to_tensor(keep)
    if keep.dtype != tf.bool or keep.shape.rank not in (0, None):
        raise ArgumentError(
            "The function of filter_map_and_batch must return a pair (keep, result), keep a scalar "
            f"bool; found keep of dtype {keep.dtype.name} and shape {keep.shape}."
        )
    return tf.ensure_shape(keep, []), as_dataset_reads(result[1])


# ---------------------------------------------------------------------------
# Of a batch
# ---------------------------------------------------------------------------


def selected(batch: Nest, keep: tf.Tensor) -> Any:
    """The rows of a batch that are kept, of dense, ragged and sparse components."""

    def of(x: object) -> Any:
        if isinstance(x, tf.SparseTensor):
            return _selected_sparse(x, keep)
        if isinstance(x, tf.RaggedTensor):
            return tf.ragged.boolean_mask(x, keep)
        return tf.boolean_mask(x, keep)

    return nests.replaced(batch, (tf.Tensor, tf.RaggedTensor, tf.SparseTensor), of)


def _selected_sparse(x: Nest, keep: tf.Tensor) -> Any:
    numbers = tf.cumsum(tf.cast(keep, tf.int64)) - 1  # of each row among those that are kept
    is_kept = tf.gather(keep, x.indices[:, 0])
    indices = tf.boolean_mask(x.indices, is_kept)
    indices = tf.concat([tf.gather(numbers, indices[:, :1]), indices[:, 1:]], 1)
    count = tf.math.count_nonzero(keep, keepdims=True)
    shape = tf.concat([count, x.dense_shape[1:]], 0)
    return tf.SparseTensor(indices, tf.boolean_mask(x.values, is_kept), shape)


class Padding:
    """The shapes and values with which results of different shapes are padded.

    Attributes:
      is_on: whether anything is padded.
    """

    def __init__(self, out_shapes: OutShapes, padded_shapes: object, padding_values: object):
        self._shapes, self._values = padded_shapes, padding_values
        self._out_shapes: OutShapes = out_shapes
        self.is_on = padded_shapes is not None or out_shapes == "padded"
        if padded_shapes is not None and out_shapes == "dense":
            raise ArgumentError(
                'padded_shapes is given and out_shapes is "dense", which says that all results '
                'have one shape. Leave one of them out, or choose out_shapes="padded".'
            )
        if padding_values is not None and not self.is_on:
            raise ArgumentError(
                "padding_values is given, and nothing is padded. Expected with it: "
                'out_shapes="padded", or padded_shapes.'
            )

    @classmethod
    def of(cls, options: Mapping[str, Any]) -> Padding:
        """Makes the padding of all options."""
        return cls(options["out_shapes"], options["padded_shapes"], options["padding_values"])

    @property
    def out_shapes(self) -> OutShapes:
        """The ``out_shapes`` of the function of a batch, before ``of_batch``."""
        if not self.is_on:
            return self._out_shapes
        return "padded" if self._values is None else "ragged"

    def of_batch(self, batch: Nest) -> Any:
        """The batch with its ragged components padded, and dense ones to the wanted shapes."""

        def of(x: object, shape: object, value: object, name: str) -> Any:
            if not isinstance(x, (tf.Tensor, tf.RaggedTensor)):
                return x
            if x.shape.rank is None:
                raise ArgumentError(
                    f"{name}: how many axes this result has is not known, so that it cannot be "
                    "padded. Say it in the function: tf.ensure_shape(x, [None, ...])."
                )
            return _padded_to(x, _shape_of(shape, x.shape.rank - 1, name), value, name)

        return _mapped(of, batch, self._shapes, self._values, "padded_shapes")

    def batched(
        self, dataset: tf.data.Dataset[Any], size: Dim, *, drop_remainder: bool
    ) -> tf.data.Dataset[Any] | None:
        """The results of elements, batched and padded in one go; None where they are not dense."""
        spec = dataset.element_spec
        leaves = tf.nest.flatten(spec)
        if not all(isinstance(x, tf.TensorSpec) and x.shape.rank is not None for x in leaves):
            return None
        given = (self._shapes, self._values, "padded_shapes")
        shapes = _mapped(lambda x, s, _, k: _shape_of(s, x.shape.rank, k), spec, *given)
        values = _mapped(lambda x, _, v, __: _cast(v, x.dtype), spec, *given)
        return dataset.padded_batch(size, shapes, values, drop_remainder)


def _mapped(make: Callable[..., Any], x: object, shapes: Nest, values: Nest, name: str) -> Any:
    """``make(leaf, shape, value, name)`` of each component, in the nest ``x``."""

    def inner(key: Hashable, item: Nest, place: str) -> Any:
        shape, value = _part(shapes, key, x, name), _part(values, key, x, "")
        return _mapped(make, item, shape, value, name + place)

    if isinstance(x, tuple) and hasattr(x, "_fields"):
        fields = getattr(x, "_fields")  # noqa: B009
        return type(x)(*[inner(i, y, f".{f}") for i, (f, y) in enumerate(zip(fields, x))])
    if isinstance(x, tuple):
        return tuple(inner(i, y, f"[{i}]") for i, y in enumerate(x))
    if isinstance(x, dict):
        return type(x)((k, inner(k, y, f"[{k!r}]")) for k, y in x.items())
    return make(x, shapes, values, name)


def _cast(value: Any, dtype: tf.DType) -> Any:
    """A value to pad with as a tensor; None stays."""
    if value is None:
        return None
    if isinstance(value, tf.Tensor):
        fits = value.dtype == dtype
    elif dtype == tf.string:
        fits = isinstance(value, (str, bytes))
    else:
        given = np.asarray(value)
        fits = given.dtype.kind in "biufcV"
        if fits:
            made = given.astype(dtype.as_numpy_dtype)
            fits = dtype.is_floating or dtype.is_complex or bool(np.all(made == given))
    if not fits:
        raise ArgumentTypeError(
            f"padding_values has {value!r} for a component of dtype {dtype.name}, which cannot be "
            "it. Expected: a value of that dtype."
        )
    return tf.convert_to_tensor(value, dtype)


def _part(given: Nest, key: Hashable, structure: Nest, name: str) -> Any:
    """The part of a nest of options for one component; one value is for all of them."""
    is_names = isinstance(structure, dict)
    is_nest = isinstance(given, dict) if is_names else type(given) is type(structure)
    if given is None or (not is_nest and not name):
        return given
    if not is_nest or len(given) != len(structure) or (is_names and key not in given):
        raise ArgumentError(
            f"{name or 'padding_values'} is {given!r}, expected the nest of what the function "
            f"returns, a shape (or None) for each component: {nests.paths(structure, 'result')}."
        )
    return given[key]


def _shape_of(given: Nest, rank: int, name: str) -> tf.TensorShape:
    """The wanted shape of one row with so many axes."""
    if given is None:
        return tf.TensorShape([None] * rank)
    try:
        known = tf.get_static_value(given) if isinstance(given, tf.Tensor) else given
        if isinstance(known, str):
            raise TypeError("a string")
        shape = tf.TensorShape([None if k in (None, -1) else int(k) for k in known])
    except (TypeError, ValueError) as why:
        raise ArgumentError(f"{name} must be a shape, found {given!r}.") from why
    if shape.rank != rank:
        raise ArgumentError(
            f"{name} is {shape}, and an element of the result has {rank} axes. "
            "Expected: a size, or None for the largest in the batch, for each of them."
        )
    return shape


def _padded_to(x: Any, shape: tf.TensorShape, value: Nest, name: str) -> tf.Tensor:
    """A batch [n, ...] with rows of this shape."""
    value = _cast(value, x.dtype)
    static = tf.TensorShape(x.shape[:1]).concatenate(shape)
    if isinstance(x, tf.RaggedTensor):
        ragged: Any = x
        x = ragged.to_tensor(default_value=value)
    sizes = [i for i, k in enumerate(shape, 1) if k is not None and x.shape[i] != k]
    if not sizes:
        return x
    for i in sizes:
        if x.shape[i] is not None and x.shape[i] > shape[i - 1]:
            raise ArgumentError(
                f"{name} has {shape[i - 1]} for axis {i - 1} of a result, which has {x.shape[i]}. "
                "Expected: no less than that, or None."
            )
    found, paddings = tf.shape(x), []
    for i in range(x.shape.rank):
        missing = static[i] - found[i] if i in sizes else 0
        paddings.append([0, missing])
    with tf.control_dependencies([_check_fits(found[i], static[i], i - 1, name) for i in sizes]):
        made = tf.pad(x, paddings, constant_values=_default(x, value))
    made.set_shape(static)
    return made


def _default(x: Nest, value: object) -> Any:
    if value is not None:
        return value
    return tf.constant("") if x.dtype == tf.string else tf.zeros([], x.dtype)


def _check_fits(found: tf.Tensor, wanted: int, axis: int, name: str) -> Any:
    return tf.debugging.assert_less_equal(
        found,
        wanted,
        f"{name} has {wanted} for axis {axis} of a result, and one of this batch is larger.",
    )
