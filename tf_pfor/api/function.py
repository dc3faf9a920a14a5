"""What runs as one function: eager calls, and what a ForwardAccumulator is to differentiate."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

from tf_pfor import _tf
from tf_pfor.core import nests
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
        return [x for x in leaves if isinstance(x, tf.Tensor)]

    compiled = tf.function(flat, autograph=False)
    concrete = compiled.get_concrete_function(*[tf.TensorSpec(t.shape, t.dtype) for t in inputs])
    with memory.advised():
        outputs = iter(concrete(*inputs))
    leaves = [next(outputs) if is_tensor else None for is_tensor in kept["present"]]
    return nests.to_user(nests.pack(kept["result"], leaves))


def is_pushed_forward(body: Body, elements: Sequence[tf.Tensor | None]) -> bool:
    """Whether an active ForwardAccumulator has tangents for a body with control flow.

    It differentiates a call as a whole. Op by op it would differentiate what loops and conditionals
    become, where lists are that it takes for numbers.
    """
    read = [t for t in (*elements, *numbers(body)) if t is not None]
    if not _tf.pack_tangents(read).tangents:
        return False
    return any(_tf.functions_of(op) for op in body.graph.get_operations())


def numbers(body: Body) -> list[tf.Tensor]:
    """The captures of a body that may have tangents, variables apart."""
    return [t for t, _ in body.captures if t.dtype.is_floating or t.dtype.is_complex]
