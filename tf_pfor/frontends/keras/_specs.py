"""Shapes and dtypes of one example of the arguments of a layer."""

from __future__ import annotations

import inspect
from typing import Any

import tensorflow as tf

from tf_pfor.core.nests import Nest
from tf_pfor.frontends.keras import _scopes
from tf_pfor.frontends.keras._scopes import keras

_PLAIN = (bool, int, float, str, type(None))


def of_row(x: Nest) -> Any:
    """The spec of one example of a batch; anything else than a tensor stays as it is."""
    if isinstance(x, tf.RaggedTensor):
        rank = x.ragged_rank - 1
        if not rank:
            return tf.TensorSpec(x.shape[1:], x.dtype)
        return tf.RaggedTensorSpec(x.shape[1:], x.dtype, rank, x.row_splits.dtype)
    is_sparse = _scopes.is_sparse(x)
    if isinstance(x, keras.KerasTensor) or tf.is_tensor(x) or hasattr(x, "__array__"):
        shape = tf.TensorShape(x.shape)
        dtype = keras.backend.standardize_dtype(x.dtype)
        if shape.rank == 0:
            return tf.TensorSpec([], dtype)
        rest = shape[1:]
        return tf.SparseTensorSpec(rest, dtype) if is_sparse else tf.TensorSpec(rest, dtype)
    return x


def of_batch(nest: Nest) -> Any:
    """``of_row`` of each leaf."""
    return keras.tree.map_structure(of_row, nest)


def of_call(layer: Any, args: Nest, kwargs: Nest, with_masks: bool) -> Any:
    """The specs of a layer's arguments and masks, of the dtypes that Keras makes of them."""
    masks = None
    if with_masks:
        own = keras.tree.map_structure(_scopes.mask_of, args[0])
        masks = of_batch(kwargs.get("mask", own))
    kwargs = {k: v for k, v in kwargs.items() if k not in ("training", "mask")}

    def one(x: object) -> Any:
        spec = of_row(x)
        if isinstance(spec, tf.TensorSpec) and spec.dtype.is_floating and layer.autocast:
            return tf.TensorSpec(spec.shape, layer.compute_dtype)
        return spec

    return *keras.tree.map_structure(one, (args, kwargs)), masks


def of_shapes(layer: Any, input_shape: Nest) -> Any:
    """The specs for inputs of these shapes, of the layer's dtype; None if there are none."""
    if input_shape is None:
        return None
    inputs = keras.tree.map_shape_structure(
        lambda shape: tf.TensorSpec(tuple(shape)[1:], layer.compute_dtype), input_shape
    )
    return (inputs,), {}, None


def batch_size(nest: Nest) -> int | None:
    """The size of the batch, if one of the inputs tells."""
    shapes = [x.shape for x in keras.tree.flatten(nest) if hasattr(x, "shape") and len(x.shape)]
    return next((shape[0] for shape in shapes if shape[0] is not None), None)


def in_batch(x: object) -> Any:
    """The spec of a batch of unknown size."""
    return tf.TensorSpec([None, *x.shape], x.dtype) if isinstance(x, tf.TensorSpec) else x


def zeros(x: Nest) -> tf.Tensor:
    """A tensor of the shape of a KerasTensor."""
    return tf.compat.v1.placeholder_with_default(
        tf.zeros([1 if size is None else size for size in x.shape], x.dtype), x.shape
    )


def encoded(nest: Nest) -> Any:
    """A nest of specs as JSON can hold it."""
    if isinstance(nest, tf.TensorSpec):
        return {"shape": list(nest.shape), "dtype": nest.dtype.name}
    if isinstance(nest, dict):
        return {"dict": {key: encoded(x) for key, x in nest.items()}}
    if isinstance(nest, (list, tuple)):
        kind = "tuple" if isinstance(nest, tuple) else "list"
        return {kind: [encoded(x) for x in nest]}
    return {"other": nest if isinstance(nest, _PLAIN) else None}


def decoded(config: dict[str, Any]) -> Any:
    """The nest of specs that ``encoded`` was given."""
    if "shape" in config:
        return tf.TensorSpec(config["shape"], config["dtype"])
    if "dict" in config:
        return {key: decoded(x) for key, x in config["dict"].items()}
    if "tuple" in config:
        return tuple(decoded(x) for x in config["tuple"])
    return [decoded(x) for x in config["list"]] if "list" in config else config["other"]


def inputs_of(model: Any) -> Any:
    """The nest of a model's symbolic inputs; None if it was made without, as a subclass is."""
    inputs = getattr(model, "input", None)
    if inputs is None and isinstance(model, keras.Sequential):
        (inputs,) = model.inputs or (None,)
    return inputs


def of_batches(known: Nest, batch: Nest) -> Any:
    """The specs of inputs, with None for a size that earlier batches do not have."""
    leaves = keras.tree.flatten(batch)
    if not all(tf.is_tensor(x) and hasattr(x, "shape") for x in leaves):
        return None
    found = [[None, *tf.TensorShape(x.shape).as_list()[1:]] for x in leaves]
    before = [] if known is None else keras.tree.flatten(known)
    if len(before) == len(found) and all(len(a.shape) == len(b) for a, b in zip(before, found)):
        found = [[a if a == b else None for a, b in zip(x.shape, y)] for x, y in zip(before, found)]
    made = [
        keras.InputSpec(shape=shape, dtype=keras.backend.standardize_dtype(x.dtype))
        for shape, x in zip(found, leaves)
    ]
    return keras.tree.pack_sequence_as(batch, made)


def with_inputs(export: Nest, inputs: Nest, args: Nest, kwargs: Nest) -> Any:
    """The keyword arguments of Keras' ``export`` with inputs that it would not know itself.

    ``args`` are the arguments by position behind the path.
    """
    if inputs is None or "input_signature" not in inspect.signature(export).parameters:
        return kwargs
    return kwargs if len(args) > 2 else {"input_signature": [inputs], **kwargs}
