"""The memory that a vectorized graph needs, and the block of iterations that fits."""

from __future__ import annotations

import contextlib
import functools
import numbers
import os
from collections.abc import Callable, Generator, Sequence
from typing import Any

import tensorflow as tf

from tf_pfor import _tf
from tf_pfor._tf import _devices
from tf_pfor.core.errors import ArgumentError
from tf_pfor.core.facts import ALIAS, facts_of
from tf_pfor.core.values import dims, size_of

AUTO = "auto"
_SHARE = 0.5  # of the memory that is free: other things run too, and results are kept
_SLACK = 2  # TensorFlow's allocators hand out chunks of up to twice the size asked for


def check_budget(budget: object) -> int | None:
    """Bytes, or None for the default."""
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
    """Bytes of the first GPU that TensorFlow may still take; 0 if unknown."""
    limit = _devices.memory_limit("GPU:0")
    return limit - tf.config.experimental.get_memory_info("GPU:0")["current"] if limit else 0


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


def peak(graph: tf.Graph, rows: int) -> int:
    """Bytes of the tensors of a graph that are alive at once.

    It is the larger number of two orders in which the graph may run. One is the order in which its
    ops were made. The other is first come, first served, which is more like the order of threads.

    Args:
      graph: a graph, with static shapes as far as they are known.
      rows: the size that stands for an unknown first dimension: there are no more active rows.
    """
    made = graph.get_operations()
    results = getattr(graph, "outputs", ())
    return max(_alive_at_once(order, results, rows) for order in (made, _as_they_get_ready(made)))


def _alive_at_once(operations: list[Any], outputs: Sequence[tf.Tensor], rows: int) -> int:
    """The most bytes alive, if ops run one after the other in the order given."""
    last: dict[Any, int] = {}
    owner: dict[Any, Any] = {}  # of a tensor that shares another one's memory
    for i, op in enumerate(operations):
        for tensor in op.inputs:
            last[owner.get(_key(tensor), _key(tensor))] = i
        if _is_alias(op) and len(op.inputs) > 0:
            source = _key(op.inputs[0])
            owner.update({_key(t): owner.get(source, source) for t in op.outputs})
    results = {owner.get(_key(t), _key(t)) for t in outputs}
    ends: dict[int, int] = {}  # bytes that are free after an op
    alive = most = 0
    for i, op in enumerate(operations):
        room = _inside(op, rows)
        made = [] if _is_alias(op) else [(_key(t), _bytes(t, rows)) for t in op.outputs]
        alive += sum(size for _, size in made)
        most = max(most, alive + room)
        for key, size in made:
            end = last.get(key, i)
            if key not in results:
                ends[end] = ends.get(end, 0) + size
        alive -= ends.pop(i, 0)
    return most


def _is_alias(op: Any) -> bool:
    """Whether the results are its first input's bytes, or are made before it runs."""
    facts = facts_of(op.type)
    return facts.cost is ALIAS and not facts.is_of_shapes


def _as_they_get_ready(operations: Sequence[Any]) -> list[Any]:
    """First come, first served."""
    waits: dict[Any, int] = {}
    readers: dict[Any, list[Any]] = {}
    for op in operations:
        before = {*(t.op for t in op.inputs), *op.control_inputs}
        waits[op] = len(before)
        for other in before:
            readers.setdefault(other, []).append(op)
    order = [op for op in operations if not waits[op]]
    for op in order:  # grows
        for reader in readers.get(op, ()):
            waits[reader] -= 1
            if not waits[reader]:
                order.append(reader)
    return order


def _inside(op: tf.Operation, rows: int) -> int:
    """Bytes that an op needs while it runs, beside its inputs and outputs."""
    if op.type == "MaxPoolGrad":  # finds the maxima again, and their int64 positions
        return _bytes(op.inputs[1], rows) + _elements(op.inputs[1], rows) * 8
    return max((peak(g, rows) for g in _tf.functions_of(op)), default=0)


def _key(tensor: tf.Tensor) -> Any:
    return (tensor.op, tensor.value_index)


def _bytes(tensor: tf.Tensor, rows: int) -> int:
    """The size of a tensor; of a list what a loop pushes onto it; 0 for other handles."""
    if tensor.dtype == tf.resource:
        return 0
    if tensor.dtype == tf.variant:
        return _list_bytes(tensor, rows)
    return _elements(tensor, rows) * (tensor.dtype.size or 16)


def _elements(tensor: tf.Tensor, rows: int) -> int:
    """The number of elements; 0 where a dimension behind the first is unknown."""
    shape = dims(tensor)
    if shape is None or None in shape[1:]:
        return 0
    return size_of([rows if d is None else d for d in shape])


def _list_bytes(tensor: tf.Tensor, rows: int) -> int:
    """The bytes that a while loop pushes onto a list: a tensor in each trip."""
    op = tensor.op
    if op.type not in _tf.LOOPS:
        return 0
    cond, body = (_tf.function_graph(op.graph, op.get_attr(k).name) for k in ("cond", "body"))
    pushed = _plain(body.outputs[tensor.value_index]).op
    if pushed.type != "TensorListPushBack":
        return 0
    return _bytes(pushed.inputs[1], rows) * (_trips(op, cond, body) or 1)


def _trips(op: tf.Operation, cond: tf.Graph, body: tf.Graph) -> int | None:
    """The most trips that a while loop makes, if it counts up to a known number."""
    bounds: list[int] = []
    tests = [_plain(cond.outputs[0])]
    for test in tests:  # grows
        if test.op.type == "LogicalAnd":
            tests += [_plain(x) for x in test.op.inputs]
        if test.op.type != "Less":
            continue
        place, limit = _position(cond, test.op.inputs[0]), _known(op, cond, test.op.inputs[1])
        first = None if place is None else _tf.static_value(op.inputs[place])
        if limit is not None and first is not None and _counts(body, place):
            bounds.append(max(int(limit - first), 0))
    return min(bounds, default=None)


def _plain(tensor: tf.Tensor) -> tf.Tensor:
    while tensor.op.type in ("Identity", "Squeeze"):
        tensor = tensor.op.inputs[0]
    return tensor


def _position(graph: tf.Graph, tensor: tf.Tensor) -> int | None:
    """The number of the function's input that a tensor is."""
    found = _plain(tensor)
    return next((i for i, x in enumerate(graph.inputs) if x is found), None)


def _known(op: tf.Operation, cond: tf.Graph, tensor: tf.Tensor) -> Any:
    """The value of a tensor of a loop's condition, where the graph shows it."""
    place = _position(cond, tensor)
    return _tf.static_value(tensor if place is None else op.inputs[place])


def _counts(body: tf.Graph, place: int | None) -> bool:
    """Whether a loop adds at least one to a variable of its in each trip."""
    made = _plain(body.outputs[place]).op
    if made.type not in ("AddV2", "Add"):
        return False
    own = [_position(body, x) == place for x in made.inputs]
    steps = [_tf.static_value(x) for x, is_own in zip(made.inputs, own) if not is_own]
    return bool(any(own) and steps[0] is not None and steps[0] >= 1)


def fitting_block(
    n: int | None,
    build: Callable[[int], Sequence[tf.Tensor]],
    budget: int | None,
    *,
    are_sums: bool = False,
) -> int | None:
    """The largest number of iterations that may run at once; None for all n.

    Args:
      n: the number of iterations; None if it is not known before running.
      build: emits so many iterations into the current graph and returns their results.
      budget: bytes for everything, with the results of all iterations where n is known. None is
        half of the free memory, for one block; the results have the other half.
      are_sums: whether the results of blocks are added up, not stacked.

    Raises:
      ArgumentError: if not even one iteration fits.
    """

    @functools.cache
    def sizes(rows: int) -> tuple[int, int]:
        with tf.Graph().as_default():  # no tape and no function sees what happens here
            scratch = _tf.FuncGraph("pfor_sizes")
        with scratch.as_default():
            scratch.outputs = list(build(rows))
        return peak(scratch, rows), sum(_bytes(x, rows) for x in scratch.outputs)

    def cost(rows: int) -> int:
        most, made = sizes(rows)
        if rows != n and budget is not None:
            kept = made if are_sums else made * (n or 0) // rows
            most = kept + max(kept, most)  # as they come, then side by side
        return int(most * _SLACK)

    return largest_block(n, cost, default_budget() if budget is None else budget)


def largest_block(n: int | None, cost: Callable[[int], int], budget: int) -> int | None:
    """The largest number of iterations whose cost fits into the budget; None for all n.

    The cost is taken for linear in the number of iterations; what this gives is looked up, and
    made smaller until it fits.
    """
    cost = functools.cache(cost)
    if n is not None and cost(n) <= budget:
        return None
    one = cost(1)
    if one > budget:
        raise ArgumentError(
            f"One iteration needs about {_size(one)}, with the results of all, and the budget is "
            f"{_size(budget)}. Raise the budget, or make one iteration smaller."
        )
    far = 256 if n is None else max(n // 2, 2)
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
    """Says first in TensorFlow's errors what to do: of memory, and what a check has to say.

    TensorFlow says where a check was made, call by call, before it says what is wrong.
    """
    try:
        yield
    except tf.errors.ResourceExhaustedError as why:
        if _ADVICE in why.message:
            raise
        raise tf.errors.ResourceExhaustedError(
            why.node_def, why.op, f"{why.message}\n{_ADVICE}"
        ) from why
    except tf.errors.InvalidArgumentError as why:
        _, found, said = why.message.partition(_CHECK)
        said = said.partition("\n")[0]
        if not found or why.message.startswith(said):
            raise
        raise tf.errors.InvalidArgumentError(
            why.node_def, why.op, f"{said}\n\n{why.message}"
        ) from None


_CHECK = "assertion failed: "
_ADVICE = (
    "tf_pfor ran all iterations at once. Run blocks of them, one after the other: vmap("
    "chunk_size='auto') or an int, pfor(parallel_iterations='auto') or an int."
)
