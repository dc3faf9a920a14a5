"""How much memory a vectorized graph needs, and which block of iterations fits."""

from __future__ import annotations

import contextlib
import functools
import numbers
import os
from collections.abc import Callable, Generator
from typing import Any

import tensorflow as tf

from tf_pfor import _tf
from tf_pfor.errors import ArgumentError
from tf_pfor.values import dims, size_of

AUTO = "auto"
_SHARE = 0.5  # of the memory that is free: other things run too, and sizes are estimates
_ALIASES = (
    "Const", "ExpandDims", "Identity", "IdentityN", "Placeholder", "PreventGradient",
    "ReadVariableOp", "Reshape", "Squeeze", "StopGradient",
)  # fmt: skip


def check_budget(budget: Any) -> int | None:
    """Bytes, or None for the default.

    Raises:
      ArgumentError: if it is no positive int.
    """
    if budget is None:
        return None
    if isinstance(budget, bool) or not isinstance(budget, numbers.Integral) or budget < 1:
        raise ArgumentError(
            f"memory_budget must be a number of bytes, a positive int, or None; found {budget!r}."
        )
    return int(budget)


def default_budget() -> int:
    """Half of what is free: on the GPU if there is one, else in main memory.

    Raises:
      ArgumentError: if the system does not tell.
    """
    free = _free_on_gpu() if tf.config.list_physical_devices("GPU") else _free_memory()
    if free <= 0:
        raise ArgumentError(
            "This system does not tell how much memory is free, which 'auto' needs to know. Pass "
            "the number of iterations to run at once, or memory_budget where there is one."
        )
    return max(1, int(free * _SHARE))


def _free_on_gpu() -> int:
    """Bytes of the first GPU, where a limit was set for it; 0 if unknown."""
    device = tf.config.list_physical_devices("GPU")[0]
    parts = tf.config.get_logical_device_configuration(device) or []
    limit = next((p.memory_limit for p in parts if p.memory_limit), None)
    if limit is None:
        return 0
    return limit * 2**20 - tf.config.experimental.get_memory_info("GPU:0")["current"]


def _free_memory() -> int:
    """Bytes of main memory that may be taken; 0 if unknown."""
    found: list[int] = []
    with contextlib.suppress(OSError, ValueError), open("/proc/meminfo") as lines:
        found += [1024 * int(x.split()[1]) for x in lines if x.startswith("MemAvailable")]
    if not found:
        with contextlib.suppress(OSError, ValueError, AttributeError):
            found.append(os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))
    with contextlib.suppress(OSError, ValueError):
        found.append(_read("memory.max") - _read("memory.current"))
    return max(min(found, default=0), 0)


def _read(name: str) -> int:
    """A number of the container that the process runs in."""
    with open(f"/sys/fs/cgroup/{name}") as file:
        return int(file.read())


def peak(graph: Any, rows: int) -> int:
    """Bytes of the tensors of a graph that are alive at once, if it runs in the order it was made.

    Args:
      graph: a graph, with static shapes as far as they are known.
      rows: what stands for an unknown first dimension: there are no more active rows.
    """
    operations = graph.get_operations()
    last: dict[Any, int] = {}
    owner: dict[Any, Any] = {}  # of a tensor that shares another one's memory
    for i, op in enumerate(operations):
        for tensor in op.inputs:
            last[owner.get(_key(tensor), _key(tensor))] = i
        if op.type in _ALIASES and len(op.inputs) > 0:
            source = _key(op.inputs[0])
            owner.update({_key(t): owner.get(source, source) for t in op.outputs})
    results = {owner.get(_key(t), _key(t)) for t in getattr(graph, "outputs", ())}
    ends: dict[int, int] = {}  # bytes that are free after an op
    alive = most = 0
    for i, op in enumerate(operations):
        inner = max((peak(g, rows) for g in _tf.functions_of(op)), default=0)
        made = [] if op.type in _ALIASES else [(_key(t), _bytes(t, rows)) for t in op.outputs]
        alive += sum(size for _, size in made)
        most = max(most, alive + inner)
        for key, size in made:
            end = last.get(key, i)
            if key not in results:
                ends[end] = ends.get(end, 0) + size
        alive -= ends.pop(i, 0)
    return most


def _key(tensor: tf.Tensor) -> Any:
    return (tensor.op, tensor.value_index)


def _bytes(tensor: tf.Tensor, rows: int) -> int:
    """The size of a tensor; 0 for handles, and where a dimension behind the first is unknown."""
    shape = dims(tensor)
    if shape is None or None in shape[1:] or tensor.dtype in (tf.resource, tf.variant):
        return 0
    known = [rows if d is None else d for d in shape]
    return size_of(known) * (tensor.dtype.size or 16)


def largest_block(n: int | None, cost: Callable[[int], int], budget: int) -> int | None:
    """The largest number of iterations whose cost fits into the budget; None for all n.

    The cost is taken for linear in the number of iterations; what this gives is looked up, and
    made smaller until it fits.

    Raises:
      ArgumentError: if not even one iteration fits.
    """
    cost = functools.cache(cost)
    one = cost(1)
    if one > budget:
        raise ArgumentError(
            f"One iteration needs about {_size(one)} and the budget is {_size(budget)}. Raise "
            "the budget, or make one iteration smaller."
        )
    if n is not None and cost(n) <= budget:
        return None
    far = n or 256
    slope = max((cost(far) - one) / max(far - 1, 1), 1.0)
    block = max(1, min(int((budget - one) / slope) + 1, n or 1 << 20))
    while block > 1 and cost(block) > budget:
        block = block * 3 // 4
    return block


def _size(count: float) -> str:
    for unit in ("bytes", "KiB", "MiB", "GiB"):
        if count < 1024 or unit == "GiB":
            return f"{count:.4g} {unit}"
        count /= 1024
    raise AssertionError


@contextlib.contextmanager
def advised() -> Generator[None]:
    """Adds to an out-of-memory error of TensorFlow how to use less."""
    try:
        yield
    except tf.errors.ResourceExhaustedError as why:
        if _ADVICE in why.message:
            raise
        raise tf.errors.ResourceExhaustedError(
            why.node_def, why.op, f"{why.message}\n{_ADVICE}"
        ) from why


_ADVICE = (
    "tf_pfor ran all iterations at once. Run blocks of them, one after the other: vmap("
    "chunk_size='auto') or an int, pfor(parallel_iterations='auto') or an int."
)
