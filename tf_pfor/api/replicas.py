"""The mapped axis split over the replicas of a ``tf.distribute`` strategy."""

from __future__ import annotations

import contextvars
import dataclasses
from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from tf_pfor import _tf
from tf_pfor.api.inputs import Element
from tf_pfor.api.run import Job, placed, run
from tf_pfor.core import nests
from tf_pfor.core.emit import Dim, salted
from tf_pfor.core.errors import ArgumentError, ArgumentTypeError, Refused
from tf_pfor.core.loop import Block
from tf_pfor.core.nests import Nest

Strategy = Any
"""A ``tf.distribute.Strategy``."""


def check_strategy(strategy: Any, per_replica: bool, jit_compile: Any, *, is_shown: bool) -> None:
    """Refuses what is no strategy, and options that it cannot have.

    Raises:
      ArgumentError, ArgumentTypeError: if there is something to refuse.
    """
    if strategy is None:
        if per_replica:
            raise ArgumentError("per_replica=True needs a strategy.")
        return
    if not isinstance(strategy, tf.distribute.Strategy):
        raise ArgumentTypeError(f"strategy must be a tf.distribute.Strategy, found {strategy!r}.")
    if isinstance(strategy, tf.distribute.ParameterServerStrategy):
        raise ArgumentError(
            "strategy is a ParameterServerStrategy, which has one replica: nothing would be split. "
            "Expected: MirroredStrategy or MultiWorkerMirroredStrategy. Leave strategy out, and "
            "schedule blocks of rows: coordinator.schedule(fn, args=(block,))."
        )
    if jit_compile or is_shown:
        raise ArgumentError("strategy has neither jit_compile nor progress: leave them out.")


class Replica:
    """A replica that is being built, which exchanges values with the others.

    All replicas build the same ops, so that they exchange in the same order.
    """

    def __init__(self) -> None:
        self._context = tf.distribute.get_replica_context()
        self._graph = tf.compat.v1.get_default_graph()
        self.count: int = self._context.num_replicas_in_sync
        number = self._context.replica_id_in_sync_group
        known = number if isinstance(number, int) else _tf.static_value(number)
        if known is None:
            raise ArgumentError(
                "This strategy builds one graph for all replicas (as on TPUs), which vmap cannot "
                "split rows over. Expected: MirroredStrategy or MultiWorkerMirroredStrategy."
            )
        self.number = int(known)
        # Plain ops between replicas of one machine have gradients, and all_reduce has none around.
        self._is_local = len(self._context.strategy.extended.worker_devices) == self.count

    def total(self, x: tf.Tensor) -> tf.Tensor:
        """The sum of ``x`` of all replicas."""
        self._check()
        if self._is_local:
            return self._context.merge_call(_total, args=(x,))
        return self._context.all_reduce(tf.distribute.ReduceOp.SUM, x)

    def joined(self, x: tf.Tensor, rows: Dim) -> tf.Tensor:
        """``x`` of all replicas, one behind the other along axis 0: so many rows together."""
        self._check()
        if self._is_local:
            return self._context.merge_call(_joined, args=(x,))
        more = _is_nothing(x, rows)
        made = self._context.all_gather(_with_one(x, more), axis=0)
        return _without(made, x, rows, more)

    def _check(self) -> None:
        if tf.compat.v1.get_default_graph() is not self._graph:
            raise Refused(
                "a collective over the replicas of a strategy is in a branch, a loop or a function "
                "of the graph: call it outside, for all"
            )


def _total(strategy: Strategy, x: Nest) -> tf.Tensor:
    return tf.add_n(strategy.experimental_local_results(x))


def _joined(strategy: Strategy, x: Nest) -> tf.Tensor:
    return tf.concat(strategy.experimental_local_results(x), 0)


# A gather between machines of no element ends the process (TensorFlow 2.21): it gets one element.


def _is_nothing(x: tf.Tensor, rows: Dim) -> Dim:
    """1 if all replicas together have no element of ``x``, with so many rows; else 0."""
    inner = x.shape[1:]
    if isinstance(rows, int) and inner.is_fully_defined():
        return int(rows * (inner.num_elements() or 0) == 0)
    elements = tf.reduce_prod(tf.shape(x)[1:]) * tf.cast(rows, tf.int32)
    return tf.cast(tf.equal(elements, 0), tf.int32)


def _with_one(x: tf.Tensor, more: Dim) -> tf.Tensor:
    """``x`` with one place more behind each axis, or as it is."""
    if isinstance(more, int) and not more:
        return x
    return tf.pad(x, tf.fill([tf.rank(x), 2], more) * tf.constant([[0, 1]]))


def _without(made: tf.Tensor, x: tf.Tensor, rows: Dim, more: Dim) -> tf.Tensor:
    """The gathered tensor without the places that were added."""
    if isinstance(more, int) and not more:
        return made
    return tf.slice(made, tf.zeros_like(tf.shape(x)), tf.concat([[rows], tf.shape(x)[1:]], 0))


def run_distributed(
    strategy: Strategy, job: Job, elements: Sequence[Element], n: Dim, *, per_replica: bool
) -> Any:
    """Runs a job in the graph of a function: each replica has a part of the rows.

    Args:
      strategy: the strategy.
      job: the job.
      elements: the elements of all rows.
      n: the number of rows.
      per_replica: whether results stay as the replicas made them.

    Raises:
      ArgumentError: in a replica of a strategy, and if results cannot be put together.
    """
    if not tf.distribute.in_cross_replica_context() and tf.distribute.has_strategy():
        raise ArgumentError(
            "vmap(strategy=...) splits rows over replicas, and was called in one of them. Call it "
            "outside of strategy.run, or leave strategy out inside."
        )
    if _tf.in_body(tf.compat.v1.get_default_graph()):
        raise ArgumentError(
            "vmap(strategy=...) was called in the function of another map. Give the outer map the "
            "strategy."
        )
    axes = tf.nest.map_structure(lambda a: None if a is None else 0, nests.from_user(job.out_axes))
    inner = dataclasses.replace(job, out_axes=nests.to_user(axes))
    kept: dict[str, Any] = {}
    context = contextvars.copy_context()

    def of_replica() -> list[Any]:
        return context.copy().run(build)  # a replica is built in a thread of its own

    def build() -> list[Any]:
        replica = Replica()
        first, end = (n * k // replica.count for k in (replica.number, replica.number + 1))
        part = [
            e
            if e.tensor is None or not e.is_mapped
            else dataclasses.replace(e, tensor=e.tensor[first:end])
            for e in elements
        ]
        block = Block(tf.convert_to_tensor(first, tf.int32), n, replica)
        with salted(2 * replica.number):
            made = nests.from_user(run(dataclasses.replace(inner, part=block), part, end - first))
        leaves = tf.nest.flatten(made)
        kept["structure"] = made
        return [x for x in leaves if _is_tensor(x)]

    values = iter(strategy.run(of_replica))
    structure = kept["structure"]
    axes_of = iter(nests.spread(job.out_axes, structure, "out_axes"))
    results: list[Any] = []
    for i, leaf in enumerate(tf.nest.flatten(structure)):
        axis, *_ = [next(axes_of) for _ in nests.flatten(leaf)]
        value = next(values) if _is_tensor(leaf) else None
        if value is not None and not per_replica:
            value = _whole(strategy, value, n, axis, i)
        results.append(value)
    return nests.to_user(tf.nest.pack_sequence_as(structure, results))


def _is_tensor(x: Nest) -> bool:
    return isinstance(x, (tf.Tensor, tf.RaggedTensor))


def _whole(strategy: Strategy, value: Nest, n: Dim, axis: int | None, position: int) -> Any:
    """A result of all replicas, as ``vmap`` returns it."""
    parts = strategy.experimental_local_results(value)
    if axis is None:
        return parts[0]
    if len(parts) < strategy.num_replicas_in_sync:  # the others are on other machines
        if not isinstance(parts[0], tf.Tensor):
            raise ArgumentError(
                f"Output {position} is ragged, which cannot be gathered from other machines. "
                'Choose out_shapes="padded", or per_replica=True.'
            )
        more = _is_nothing(parts[0], n)
        filled = strategy.run(lambda x: _with_one(x, more), args=(value,))
        made = _without(strategy.gather(filled, 0), parts[0], n, more)
    else:
        made = tf.concat(parts, 0)
    if isinstance(made, tf.Tensor) and isinstance(n, int):
        made.set_shape([n, *made.shape[1:]])
    return placed(made, axis, position)
