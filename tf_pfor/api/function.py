"""Calls that run as one function: eager calls, and calls under a ForwardAccumulator."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

from tf_pfor import _tf
from tf_pfor._tf import _functions
from tf_pfor.core import nests
from tf_pfor.core.nests import Nest
from tf_pfor.tracing import memory
from tf_pfor.tracing.trace import Body


def called(build: Callable[..., Any], inputs: Sequence[tf.Tensor]) -> Any:
    """The nest ``build(*inputs)``, made in the graph of a function, which is called."""
    kept: dict[str, Any] = {}

    def flat(*given: tf.Tensor) -> list[tf.Tensor]:
        result = nests.from_user(build(*given))
        leaves = nests.flatten(result)
        kept["result"] = nests.skeleton(result)
        kept["present"] = [isinstance(x, tf.Tensor) for x in leaves]
        return [_functions.returned(x) for x in leaves if isinstance(x, tf.Tensor)]

    compiled = tf.function(flat, autograph=False)
    concrete = compiled.get_concrete_function(*[tf.TensorSpec(t.shape, t.dtype) for t in inputs])
    with memory.advised():
        outputs = iter(concrete(*inputs))
    leaves = [next(outputs) if is_tensor else None for is_tensor in kept["present"]]
    return nests.to_user(nests.pack(kept["result"], leaves))


def called_with(nest: Nest, build: Callable[[Any], Any]) -> Any:
    """``build(nest)``, made in the graph of a function with all tensors of the nest as inputs."""
    structure = nests.from_user(nest)
    leaves = nests.flatten(structure)
    given = [x for x in leaves if isinstance(x, tf.Tensor)]

    def of(*tensors: tf.Tensor) -> Any:
        supply = map(with_dense_gradient, tensors)
        seen = [next(supply) if isinstance(x, tf.Tensor) else x for x in leaves]
        return build(nests.to_user(nests.pack(structure, seen)))

    return called(of, given)


def has_pushed_rows(nest: Nest) -> bool:
    """Whether an active ForwardAccumulator has tangents for values that rows are cut from.

    A body captures these: it would be differentiated op by op while it is traced.
    """
    held: list[tf.Tensor] = []

    def of(x: object) -> Any:
        held.extend(t for t in nests.flatten(x) if isinstance(t, tf.Tensor))
        return x

    nests.replaced(nest, (tf.RaggedTensor, tf.SparseTensor), of)
    return bool(held and _tf.pack_tangents(held).tangents)


def with_dense_gradient(x: tf.Tensor) -> tf.Tensor:
    """``x`` with a dense gradient: forward mode refuses slices, as of a gather, in a call."""
    has_gradient = x.dtype.is_floating or x.dtype.is_complex
    return tf.reshape(x, tf.shape(x)) if has_gradient else x


def is_pushed_forward(body: Body, elements: Sequence[tf.Tensor | None]) -> bool:
    """Whether an active ForwardAccumulator has tangents for a body.

    It differentiates a call as a whole. Op by op it takes lists for numbers, and fails where the
    gradient of an op is slices.
    """
    read = [t for t in (*elements, *numbers(body)) if t is not None]
    return bool(_tf.pack_tangents(read).tangents)


def numbers(body: Body) -> list[tf.Tensor]:
    """The captures of a body that may have tangents, variables apart."""
    return [t for t, _ in body.captures if t.dtype.is_floating or t.dtype.is_complex]
