"""Gradients of recorded calls, for tapes inside of the function that is batched.

A tape follows recorded values by their numbers. The gradient of a call is a call of its own: a
function that runs the call again under a tape. So it is recorded, vectorized and batched as others.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

from tf_pfor._tf import _eager_ops
from tf_pfor.core.errors import NotVectorizableError
from tf_pfor.recording.forms import FOLLOWED
from tf_pfor.recording.nodes import Kind


def follow(
    kind: Kind,
    inputs: Sequence[tf.Tensor],
    results: Sequence[tf.Tensor],
    call: Callable[[Callable[..., Any], list[Any]], list[Any]],
) -> None:
    """Tells the tapes of this thread of a call; ``call`` records the call of a function."""
    sources = [*inputs, *kind.handles]
    if _eager_ops.has_tangent(sources):
        raise NotVectorizableError(
            f"a ForwardAccumulator inside of batched() follows {kind.name}. Put the accumulator, "
            "and what it follows, into a tf_pfor.cell."
        )
    wanted = tuple(map(_eager_ops.is_watched, sources))
    if not any(wanted):
        return
    if not kind.may_share:
        raise NotVectorizableError(
            f"a GradientTape inside of batched() follows {kind.name}, which draws random numbers "
            "or has state. Its gradient runs it again. Put the tape, and what it follows, into a "
            "tf_pfor.cell."
        )
    if wanted not in kind.gradients:
        kind.gradients[wanted] = _gradient(kind, wanted)
    function, connected = kind.gradients[wanted]

    def backward(*slopes: tf.Tensor | tf.IndexedSlices | None) -> list[Any]:
        given = list(inputs)
        for x, dy in zip(results, slopes):
            if x.dtype.as_datatype_enum in FOLLOWED:
                given.append(tf.zeros(x.shape, x.dtype) if dy is None else tf.convert_to_tensor(dy))
        found = iter(call(function, given))
        return [next(found) if place in connected else None for place in range(len(sources))]

    _eager_ops.show_tapes(kind.name, results, sources, backward)


def follow_op(
    kind: Kind,
    inputs: Sequence[tf.Tensor],
    results: Sequence[tf.Tensor],
    gradient: Callable[..., list[Any]],
) -> None:
    """Tells the tapes of this thread of an op, whose gradient is TensorFlow's.

    ``gradient`` is a function of the kind, which inputs ask for a gradient, the inputs, the
    results, and the gradients of the results.
    """
    wanted = tuple(map(_eager_ops.is_watched, inputs))
    if not any(wanted):
        return
    given, made = list(inputs), list(results)

    def backward(*slopes: tf.Tensor | tf.IndexedSlices | None) -> list[Any]:
        if kind.name in ("Identity", "ReadVariableOp"):
            return list(slopes)
        return gradient(kind, wanted, given, made, slopes)

    _eager_ops.show_tapes(kind.name, results, inputs, backward)


def _gradient(kind: Kind, wanted: tuple[bool, ...]) -> Any:
    """The gradient of a kind, and the numbers of the inputs that have one.

    ``wanted`` is for the inputs, and then for the handles of variables.
    """
    count = len(kind.inputs)
    connected: list[int] = []

    def gradient(*tensors: tf.Tensor) -> list[tf.Tensor]:
        sources = [*tensors[:count], *kind.handles]
        numbers = [place for place, is_wanted in enumerate(wanted) if is_wanted]
        with tf.GradientTape(watch_accessed_variables=False) as tape:
            tape.watch([sources[k] for k in numbers])
            results = kind.run(*tensors[:count])
        followed = [x for x in results if x.dtype.as_datatype_enum in FOLLOWED]
        found: list[Any] = tape.gradient(
            followed, [sources[k] for k in numbers], output_gradients=list(tensors[count:])
        )
        connected[:] = [k for k, x in zip(numbers, found) if x is not None]
        return [tf.convert_to_tensor(x) for x in found if x is not None]

    return gradient, connected
