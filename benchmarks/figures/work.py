"""The form of a workload, and its contenders in each library.

A workload is written once for one example in each library, and once batched by hand. Modules of
workloads import numpy alone: the interpreter of the peers may have no TensorFlow. ``Work`` has the
fields.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

Fn = Callable[..., Any]
Arrays = list[np.ndarray]
LOOP, THEIRS, HAND = "loop", "TensorFlow's", "by hand"
OURS, COMPILED = "tf_pfor", "tf_pfor compiled"
OUR_HAND = f"{HAND} compiled"


@dataclasses.dataclass(frozen=True)
class Work:
    """A workload.

    Attributes:
      title: the workload.
      axis: the size that varies.
      unit: the unit of the amount of work.
      small: sizes of ``make bench``.
      full: sizes of ``make bench-full``.
      data: weights and rows (arrays of the same length) of a size.
      tensorflow: makes the function of one example ``one(weights, *row)``, and the batch by hand.
      jax: makes the function of one example.
      torch: makes the function of one example, and other functions of the batch by name.
      kind: ``"map"``, ``"gradients"`` of a loss by the weights, or ``"jacobian"`` by the input.
      amount: the units in a call, of the size and the rows.
      nested: whether ``one`` of TensorFlow takes ``over``, the map for maps inside.
      torch_compiles: whether torch compiles it too; long unrolled loops take minutes.
      to_tensorflow: makes the tensors of rows.
      to_torch: turns weights and rows into the layout of torch.
      from_torch: turns results back.
    """

    title: str
    axis: str
    unit: str
    small: Sequence[int]
    full: Sequence[int]
    data: Callable[[int], tuple[Arrays, Arrays]]
    tensorflow: Callable[[], tuple[Fn, Fn]]
    jax: Callable[[], Fn]
    torch: Callable[[], tuple[Fn | None, dict[str, Fn]]]
    kind: str = "map"
    amount: Callable[[int, Arrays], float] = lambda size, _: float(size)
    nested: bool = False
    torch_compiles: bool = True
    to_tensorflow: Callable[[Arrays], list[Any]] | None = None
    to_torch: Callable[[Arrays, Arrays], tuple[Arrays, Arrays]] = lambda w, rows: (w, rows)
    from_torch: Callable[[Arrays], Arrays] = lambda found: found


@dataclasses.dataclass(frozen=True)
class Contender:
    """A contender: ``start`` traces or compiles, and returns a call and the number of ops."""

    start: Callable[[], tuple[Callable[[], Any], int | None]]
    arrays: Callable[[Any], Arrays]


def normal(rng: np.random.Generator, *shape: int, fan: int | None = None) -> np.ndarray:
    """Random numbers; with ``fan``, weights that keep the size of what they multiply."""
    return (rng.normal(size=shape) / np.sqrt(fan or 1)).astype(np.float32)


def traced(name: str, fn: Fn, where: str) -> tuple[Callable[[], Any], int]:
    """A call of the traced function on a device, and its number of ops."""
    import tensorflow as tf

    with tf.device(where):
        function = tf.function(fn, autograph=False, jit_compile="compiled" in name or None)
        concrete = function.get_concrete_function()

    def call() -> Any:
        with tf.device(where):
            results = concrete()
        if "GPU" in where:
            tf.test.experimental.sync_devices()
        return results

    return call, sum(op.type != "Const" for op in concrete.graph.get_operations())


def tensorflow(work: Work, size: int, device: str) -> dict[str, Contender]:
    """The loop, TensorFlow's own map, tf_pfor and the batch by hand, plain and compiled."""
    import tensorflow as tf

    import tf_pfor

    if device == "gpu" and not tf.config.list_physical_devices("GPU"):
        raise SystemExit("--device gpu: TensorFlow finds no GPU")
    where = f"/{device.upper()}:0"
    one, hand = work.tensorflow()
    arrays, data = work.data(size)
    with tf.device(where):
        weights = [tf.Variable(x) for x in arrays]
        rows = work.to_tensorflow(data) if work.to_tensorflow else [tf.constant(x) for x in data]
    strict = functools.partial(tf_pfor.vectorized_map, fallback_to_while_loop=False)

    def loop(fn: Fn, elements: Any) -> Any:
        count = len(arrays) if work.kind == "gradients" else 0
        dtypes = [tf.float32] * count if count else tf.float32
        return tf.map_fn(fn, elements, fn_output_signature=dtypes)

    def gradient(*row: Any) -> Any:
        with tf.GradientTape() as tape:
            value = one(weights, *row)
        return tape.gradient(value, weights)

    def mapped(over: Fn) -> Fn:
        if work.kind == "gradients":
            return lambda: over(lambda row: gradient(*row), tuple(rows))
        options = {"over": over} if work.nested else {}
        return lambda: over(lambda row: one(weights, *row, **options), tuple(rows))

    def jacobian(ours: bool, **options: Any) -> Any:
        with tf.GradientTape() as tape:
            tape.watch(rows[0])
            y = one(weights, rows[0])
        take = tf_pfor.tape_jacobian if ours else tf.GradientTape.jacobian
        return take(tape, y, rows[0], **options)

    if work.kind == "jacobian":
        by_loop = functools.partial(jacobian, False, experimental_use_pfor=False)
        found = [by_loop, functools.partial(jacobian, False), functools.partial(jacobian, True)]
    else:
        found = [mapped(loop), mapped(tf.vectorized_map), mapped(strict)]
    by_hand = functools.partial(hand, weights, *rows)
    names = (LOOP, THEIRS, OURS, COMPILED, HAND, OUR_HAND)
    every = zip(names, [*found, found[-1], by_hand, by_hand])

    def numbers(results: Any) -> Arrays:
        return [tf.convert_to_tensor(x).numpy() for x in tf.nest.flatten(results)]

    return {
        name: Contender(functools.partial(traced, name, fn, where), numbers) for name, fn in every
    }  # fmt: skip


def jax(work: Work, size: int, device: str) -> dict[str, Contender]:
    """``jit(vmap)``."""
    import jax as library

    one = work.jax()
    place = library.devices(device)[0]
    weights, rows = library.device_put(work.data(size), place)
    if work.kind == "jacobian":
        batch: Fn = library.jacrev(one, argnums=1)
    else:
        inner = library.grad(one) if work.kind == "gradients" else one
        batch = library.vmap(inner, in_axes=(None, *[0] * len(rows)))

    def start() -> Any:
        compiled = library.jit(batch).lower(weights, *rows).compile()
        return lambda: library.block_until_ready(compiled(weights, *rows)), None

    return {
        "JAX": Contender(start, lambda found: [*map(np.asarray, library.tree.leaves(found))])
    }  # fmt: skip


def torch(work: Work, size: int, device: str) -> dict[str, Contender]:
    """``torch.func.vmap``, eager and compiled, and what else the workload has."""
    import torch as library

    place = library.device("cuda" if device == "gpu" else "cpu")
    one, others = work.torch()
    weights, rows = work.to_torch(*work.data(size))
    weights, rows = (
        [library.from_numpy(np.ascontiguousarray(x)).to(place) for x in xs]
        for xs in (weights, rows)
    )  # fmt: skip
    batches: dict[str, Fn] = {}
    if one is not None:
        if work.kind == "jacobian":
            batch: Fn = library.func.jacrev(one, argnums=1)
        else:
            inner = library.func.grad(one) if work.kind == "gradients" else one
            batch = library.func.vmap(inner, in_dims=(None, *[0] * len(rows)))
        batches = {"torch": batch}
        if work.torch_compiles:
            batches["torch compiled"] = batch

    def start(name: str, batch: Fn) -> Any:
        if "compiled" in name:
            batch = library.compile(batch, fullgraph=True)

        def call() -> Any:
            results = batch(weights, *rows)
            if device == "gpu":
                library.cuda.synchronize()
            return results

        return call, None

    def other(make: Fn) -> Any:
        ready = make(weights, *rows)
        return ready, None

    def numbers(found: Any) -> Arrays:
        found = [found] if isinstance(found, library.Tensor) else found
        return work.from_torch([x.detach().cpu().numpy() for x in found])

    known = {
        name: Contender(functools.partial(start, name, fn), numbers) for name, fn in batches.items()
    }
    made = {
        name: Contender(functools.partial(other, fn), numbers) for name, fn in others.items()
    }  # fmt: skip
    return {**known, **made}


LIBRARIES = {"tensorflow": tensorflow, "jax": jax, "torch": torch}
