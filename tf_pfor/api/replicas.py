"""The mapped axis split over the replicas of a ``tf.distribute`` strategy."""

from __future__ import annotations

import contextvars
import dataclasses
from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from tf_pfor import _tf
from tf_pfor._tf import _strategies
from tf_pfor.api.blocks import of_one_shape, sized
from tf_pfor.api.draws import drawn_once
from tf_pfor.api.function import called
from tf_pfor.api.inputs import Element, mapped, with_mapped, with_tensors
from tf_pfor.api.options import Job
from tf_pfor.api.replica_variables import check_variables
from tf_pfor.api.run import placed, run_part, traced
from tf_pfor.core import nests
from tf_pfor.core.emit import Dim, Emitter, salted
from tf_pfor.core.errors import ArgumentError, ArgumentTypeError, Refused
from tf_pfor.core.loop import Block
from tf_pfor.core.nests import Nest
from tf_pfor.tracing.trace import update_copies

Strategy = Any
"""A ``tf.distribute.Strategy``."""


def checked_strategy(
    strategy: Any, per_replica: bool, jit_compile: Any, *, is_shown: bool
) -> Strategy | None:
    """The strategy; None for the one of programs that chose none.

    Raises:
      ArgumentError, ArgumentTypeError: if it is no strategy, or has options that it cannot have.
    """
    if strategy is None:
        if per_replica:
            raise ArgumentError("per_replica=True needs a strategy.")
        return None
    if not isinstance(strategy, tf.distribute.Strategy):
        raise ArgumentTypeError(f"strategy must be a tf.distribute.Strategy, found {strategy!r}.")
    if _strategies.is_default(strategy):
        return None
    if isinstance(strategy, tf.distribute.ParameterServerStrategy):
        raise ArgumentError(
            "strategy is a ParameterServerStrategy, which has one replica: nothing would be split. "
            "Expected: MirroredStrategy or MultiWorkerMirroredStrategy. Leave strategy out, and "
            "schedule blocks of rows: coordinator.schedule(fn, args=(block,))."
        )
    if jit_compile or is_shown:
        raise ArgumentError("strategy has neither jit_compile nor progress: leave them out.")
    return strategy


def is_local(strategy: Strategy) -> bool:
    """Whether all replicas are on this machine."""
    return len(strategy.extended.worker_devices) == strategy.num_replicas_in_sync


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
        self._is_local = is_local(self._context.strategy)

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

    All of it is one call in the current graph. So a tape around the map sees what the replicas do
    in threads of their own.

    Raises:
      ArgumentError: in a replica of a strategy, and if results cannot be put together.
      UnsupportedStateError: if the body changes variables in a way that replicas cannot share.
    """
    _check_place()
    outside = [e.whole for e in elements]
    kept: dict[str, Any] = {}

    def build(*given: tf.Tensor) -> list[Any]:
        supply = iter(given)
        inner = with_tensors(elements, supply)
        size = next(supply) if isinstance(n, tf.Tensor) else n
        spread = _Spread(strategy, job, inner, size, outside, per_replica)
        made = spread.run()
        kept["structure"] = spread.structure
        return made

    inputs = [t for t in (*(e.tensor for e in elements), n) if isinstance(t, tf.Tensor)]
    results = called(build, inputs)
    if per_replica:
        results = [None if x is None else _strategies.joined(x) for x in results]
    return nests.to_user(tf.nest.pack_sequence_as(kept["structure"], results))


def _check_place() -> None:
    """Refuses a call in a replica, and one in the function of another map."""
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


class _Spread:
    """A job whose rows run in parts, in the current graph: one body, traced once.

    Attributes:
      structure: the nest of results, after ``run``.
    """

    structure: Nest = None

    def __init__(
        self,
        strategy: Strategy,
        job: Job,
        elements: Sequence[Element],
        n: Dim,
        outside: Sequence[tf.Tensor | None],
        per_replica: bool,
    ):
        self._strategy, self._n, self._is_gathered = strategy, n, not per_replica
        self._is_local = is_local(strategy)
        self._body, self._elements = traced(job, elements, n, outside)
        if strategy.num_replicas_in_sync > 1:
            check_variables(self._body, is_local=self._is_local)
        if job.settings.randomness == "same":
            self._draw_once()
        self._job = job

    def _draw_once(self) -> None:
        """Lets all rows share the draws of the body."""
        drawn = drawn_once(self._body)
        if drawn is not self._body and not self._is_local:
            raise ArgumentError(
                "randomness is 'same', and each machine of the strategy would draw its own "
                "numbers. Draw them by a seed: tf.random.stateless_normal(shape, seed)."
            )
        self._body = drawn

    def run(self) -> list[Any]:
        """The results, gathered, or a list of what each replica made; None where there is none."""
        context = contextvars.copy_context()

        def of_replica() -> list[Any]:
            return context.copy().run(self._of_replica)  # a replica is built in a thread of its own

        values = iter(self._strategy.run(of_replica))
        update_copies(self._body)
        structure = self.structure
        axes_of = iter(nests.spread(self._job.out_axes, structure, "out_axes"))
        results: list[Any] = []
        for leaf in tf.nest.flatten(structure):
            axis, *_ = [next(axes_of) for _ in nests.flatten(leaf)]
            if not _is_tensor(leaf):
                results.append(None)
                continue
            value = next(values)
            results.append(
                self._whole(value, axis, len(results))
                if self._is_gathered
                else list(self._strategy.experimental_local_results(value))
            )
        return results

    def _of_replica(self) -> list[Any]:
        """The results of one replica that are tensors."""
        replica, n = Replica(), self._n
        first, end = (n * k // replica.count for k in (replica.number, replica.number + 1))
        part = with_mapped(self._elements, [x[first:end] for x in mapped(self._elements)])
        axes = nests.from_user(self._job.out_axes)
        settings = self._job.settings
        if self._is_local and self._is_gathered and settings.out_shapes != "ragged":
            settings = dataclasses.replace(settings, out_shapes="parts")
        job = dataclasses.replace(
            self._job,
            settings=settings,
            out_axes=nests.to_user(tf.nest.map_structure(lambda a: None if a is None else 0, axes)),
            part=Block(tf.convert_to_tensor(first, tf.int32), n, replica),
        )
        with salted(2 * replica.number):
            made = nests.from_user(run_part(job, part, end - first, self._body))
        self.structure = made
        return [x for x in tf.nest.flatten(made) if _is_tensor(x)]

    def _whole(self, value: Nest, axis: int | None, position: int) -> Any:
        """A result of all replicas, as ``vmap`` returns it."""
        parts = self._strategy.experimental_local_results(value)
        if not isinstance(parts[0], (tf.Tensor, tf.RaggedTensor, tf.SparseTensor)):
            raise ArgumentError(
                f"Output {position} is a {type(parts[0]).__name__}, which replicas cannot put "
                "together. Return its tensors, or choose per_replica=True."
            )
        if self._is_local:
            made = parts[0] if axis is None else self._joined(parts, position)
        elif isinstance(parts[0], tf.Tensor):
            made = parts[0] if axis is None else self._gathered(value)
            (made,) = Emitter().identities([made], _OF_MACHINES)
        else:
            kind = "ragged" if isinstance(parts[0], tf.RaggedTensor) else "sparse"
            raise ArgumentError(
                f"Output {position} is {kind}, which cannot be gathered from other machines. "
                'Choose out_shapes="padded", or per_replica=True.'
            )
        if axis is None:
            return made
        made = sized(made, self._n) if isinstance(made, tf.Tensor) else made
        return placed(made, axis, position)

    def _joined(self, parts: Sequence[Any], position: int) -> Any:
        """The parts of a result one behind the other."""
        if isinstance(parts[0], tf.SparseTensor):
            return tf.sparse.concat(0, list(parts), expand_nonconcat_dims=True)
        made = tf.concat(parts, 0)
        chosen = self._job.settings.out_shapes
        if not isinstance(made, tf.RaggedTensor) or chosen == "ragged":
            return made
        if chosen == "padded":
            return made.to_tensor()
        return of_one_shape(made, f"output {position} (in the order of tf.nest.flatten)")

    def _gathered(self, value: Nest) -> tf.Tensor:
        """A result [n, ...] of replicas on several machines."""
        strategy, n = self._strategy, self._n
        if self._job.settings.out_shapes == "padded":
            value = _of_one_size(strategy, value)
        part = strategy.experimental_local_results(value)[0]
        more = _is_nothing(part, n)
        filled = strategy.run(lambda x: _with_one(x, more), args=(value,))
        return _without(strategy.gather(filled, 0), part, n, more)


def _is_tensor(x: Nest) -> bool:
    return isinstance(x, (tf.Tensor, tf.__internal__.CompositeTensor))


_OF_MACHINES = "TfPforOfSeveralMachines"


@tf.RegisterGradient(_OF_MACHINES)
def _no_gradient(*_: object) -> None:
    raise ArgumentError(
        "A tape watches vmap(strategy=...) over several machines, which has no gradient: each "
        "machine would add up its own rows only. Take the gradient in the body (tf_pfor.grad, "
        "per_example_gradients), and add up with tf_pfor.psum. Or call vmap without strategy in "
        "strategy.run. If no gradient is needed, call it in tape.stop_recording()."
    )


def _of_one_size(strategy: Strategy, value: Nest) -> Nest:
    """The results of replicas, with zeros behind rows that are shorter than another replica's."""
    sizes = strategy.gather(strategy.run(lambda x: tf.shape(x)[None, 1:], args=(value,)), 0)
    largest = tf.reduce_max(sizes, 0)

    def padded(x: tf.Tensor) -> tf.Tensor:
        behind = tf.concat([[0], largest - tf.shape(x)[1:]], 0)
        return tf.pad(x, tf.stack([tf.zeros_like(behind), behind], 1))

    return strategy.run(padded, args=(value,))
