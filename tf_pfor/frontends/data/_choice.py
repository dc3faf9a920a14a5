"""``choose``: the form of a loop beside the vectorized one, and which of both is faster."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import Any

import tensorflow as tf

from tf_pfor import _tf
from tf_pfor.core.accesses import Accesses
from tf_pfor.core.axes import Axis, entered
from tf_pfor.core.collectives import has_collective
from tf_pfor.core.errors import ArgumentError
from tf_pfor.frontends.data._elements import arguments, may_differ
from tf_pfor.frontends.data._results import Padding
from tf_pfor.tracing.user_code import autographed

_LOG = logging.getLogger("tf_pfor.data")
_TRIAL = 8  # batches of the dataset that both forms are timed on, again and again
_SECONDS = 0.3  # for each form in each round
_ROUNDS = 2
_WARM = 2  # batches that are not timed
_SEEN = ("EagerPyFunc", "PrintV2", "Print", "PyFunc", "PyFuncStateless")
_RAGGED: Any = tf.RaggedTensor
Form = Callable[[Any], Any]
"""From a dataset to a dataset."""


# ---------------------------------------------------------------------------
# The loop
# ---------------------------------------------------------------------------


def batched_as(
    dataset: tf.data.Dataset[Any], size: Any, spec: Any, padding: Padding, *, drop_remainder: bool
) -> tf.data.Dataset[Any]:
    """The results of a function of one element, in batches such as the vectorized form makes.

    Args:
      dataset: of the results.
      size: of a batch.
      spec: the ``element_spec`` of the vectorized form; None if there is none.
      padding: of results of different shapes.
      drop_remainder: as in ``Dataset.batch``.
    """
    leaves = tf.nest.flatten(dataset.element_spec)
    padded = None
    if padding.is_on:
        padded = padding.batched(dataset, size, drop_remainder=drop_remainder)
    is_dense = padding.out_shapes == "dense" or not any(map(may_differ, leaves))
    if padded is not None:
        batches = padded
    elif is_dense or any(may_differ(x) and x.shape.rank is None for x in leaves):
        batches = dataset.batch(size, drop_remainder)
    else:
        batches = dataset.ragged_batch(size, drop_remainder)
    is_tuple = type(batches.element_spec) is tuple

    @tf.autograph.experimental.do_not_convert
    def as_vectorized(*components: Any) -> Any:
        batch = components if is_tuple else components[0]
        if padding.is_on and padded is None:
            batch = padding.of_batch(batch)
        if spec is None:
            return batch
        made = [_as(x, s) for x, s in zip(tf.nest.flatten(batch), tf.nest.flatten(spec))]
        return tf.nest.pack_sequence_as(batch, made)

    return (
        batches
        if batches.element_spec == spec and (padded is not None or not padding.is_on)
        else batches.map(as_vectorized)
    )


def _as(batch: Any, spec: Any) -> Any:
    """One component of a batch in the form that ``spec`` says."""
    if isinstance(spec, tf.RaggedTensorSpec):
        ragged: Any = spec
        return _of_ragged_rank(batch, ragged.ragged_rank)
    if not isinstance(spec, tf.TensorSpec):
        return batch
    return tf.ensure_shape(_of_ragged_rank(batch, 0), spec.shape)


def _of_ragged_rank(x: Any, rank: int) -> Any:
    """The same rows with more or fewer ragged axes; axes that are none must be of one size."""
    if not isinstance(x, tf.RaggedTensor):
        return x if rank == 0 else _RAGGED.from_tensor(x, ragged_rank=rank)
    ragged: Any = x
    if rank > 0:
        return ragged.with_values(_of_ragged_rank(ragged.values, rank - 1))
    dense = ragged.to_tensor()
    check = tf.debugging.assert_equal(
        tf.size(dense), tf.size(ragged.flat_values), "Results of different shapes in one batch."
    )
    with tf.control_dependencies([check]):
        return tf.identity(dense)


# ---------------------------------------------------------------------------
# Which is faster
# ---------------------------------------------------------------------------


def _traced(fn: Callable[..., Any], spec: Any) -> Any:
    """The graph of a function of one element."""
    function = tf.function(autographed(fn), autograph=False)
    return function.get_concrete_function(*arguments(spec)).graph


def check_stateless(fn: Callable[..., Any], spec: Any) -> Any:
    """Refuses functions that change variables: a trial would change them. Returns the graph.

    Raises:
      ArgumentError: if it does; it names the line.
    """
    graph = _traced(fn, spec)
    for access in Accesses(graph).all:
        if access.writes:
            line = _tf.user_line(access.op) or "line unknown"
            raise ArgumentError(
                'choose="auto" runs the function on the first batches, which would change the '
                f'variable that {access.op.type} ({line}) writes. Choose "vectorized" or '
                '"loop".'
            )
    return graph


def is_pure(fn: Callable[..., Any], spec: Any) -> bool:
    """Whether nobody sees how often a function is called: it calls no Python, and prints nothing.

    Raises:
      ArgumentError: if it changes variables.
    """
    return not any(op.type in _SEEN for op in _ops(check_stateless(fn, spec)))


def names_the_batch(fn: Callable[..., Any], spec: Any) -> bool:
    """Whether a function uses collectives, over the elements of its batch."""
    with entered(Axis()):
        return has_collective(_traced(fn, spec))


def needs_order(graph: Any) -> bool:
    """Whether results depend on which batch comes first: state, or draws with a seed."""
    if any(access.writes for access in Accesses(graph).all):
        return True
    return any(map(_is_seeded, _ops(graph)))


def _is_seeded(op: tf.Operation) -> bool:
    schema = _tf.schema(op.type)
    if schema is None or not schema.is_stateful or "seed" not in schema.attr_types:
        return False
    return bool(op.get_attr("seed") or ("seed2" in schema.attr_types and op.get_attr("seed2")))


def _ops(graph: Any) -> list[tf.Operation]:
    """The ops of a graph and of the functions that they call."""
    found: list[tf.Operation] = []
    seen, graphs = set[int](), [graph]
    while graphs:
        here = graphs.pop()
        if id(here) not in seen:
            seen.add(id(here))
            for op in here.get_operations():
                found.append(op)
                graphs += _tf.functions_of(op)
    return found


def is_faster(
    first: Form, second: Form, dataset: tf.data.Dataset[Any], size: Any, *, often: bool
) -> bool:
    """Whether ``first`` makes more batches in a second, on the first elements of a dataset.

    These are read once and kept in memory, so that the time of the source counts for neither. What
    counts are batches in a second and the time that all processors spend on one: where others use
    the machine, the second is the one that can be trusted. Unless ``often``, each form runs once on
    each of these elements.

    Raises:
      ArgumentError: where a dataset cannot be run: in a function.
    """
    if not tf.executing_eagerly():
        raise ArgumentError(
            'choose="auto" runs the first batches, which a tf.function cannot do. Make the dataset '
            'outside of the function, or choose "vectorized" or "loop".'
        )
    trial = dataset.take(_TRIAL * int(size)).cache()
    if not any([True for _ in trial]):  # all of them: then the cache is complete
        return True
    trial = trial.repeat() if often else trial
    speeds, forms = [(0.0, 0.0)] * 2, [first(trial), second(trial)]
    for _ in range(_ROUNDS if often else 1):
        speeds = [_larger(best, _speed(form)) for best, form in zip(speeds, forms)]
    scores = [rate * of_work for rate, of_work in speeds]
    _LOG.info(
        "choose='auto': batches in a second and in a second of one processor: %.0f and %.0f "
        "vectorized, %.0f and %.0f in a loop: %s.",
        *speeds[0], *speeds[1], "vectorized" if scores[0] >= scores[1] else "loop",
    )  # fmt: skip
    return scores[0] >= scores[1]


def _larger(a: tuple[float, float], b: tuple[float, float]) -> tuple[float, float]:
    return max(a[0], b[0]), max(a[1], b[1])


def _speed(batches: tf.data.Dataset[Any]) -> tuple[float, float]:
    """Batches in a second, and in a second of one processor; an endless dataset need not end."""
    began, worked, count = time.perf_counter(), time.process_time(), 0
    for count, _ in enumerate(batches, 1 - _WARM):
        now = time.perf_counter()
        if count == 0:
            began, worked = now, time.process_time()
        if now - began > _SECONDS and count > 0:
            break
    if count <= 0:
        return 0.0, 0.0
    work = max(time.process_time() - worked, 1e-9)
    return count / (time.perf_counter() - began), count / work
