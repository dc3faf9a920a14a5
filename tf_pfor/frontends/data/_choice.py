"""``choose``: the form of a loop beside the vectorized one, and which of both is faster."""

from __future__ import annotations

import dataclasses
import functools
import logging
import math
import time
from collections.abc import Callable
from typing import Any

import tensorflow as tf

from tf_pfor import _tf
from tf_pfor._tf._all_ops import all_ops
from tf_pfor._tf._types import RAGGED
from tf_pfor.core.accesses import Accesses
from tf_pfor.core.axes import Axis, entered
from tf_pfor.core.collectives import has_collective
from tf_pfor.core.emit import Dim
from tf_pfor.core.errors import ArgumentError
from tf_pfor.core.nests import Nest
from tf_pfor.frontends.data._elements import arguments, closed, has_opened, may_differ, with_parts
from tf_pfor.frontends.data._results import Padding
from tf_pfor.tracing.user_code import autographed

_LOG = logging.getLogger("tf_pfor.data")
_TRIAL = 8  # batches of the dataset that both forms are timed on, again and again
_SECONDS = 0.3  # for each form in each round
_ROUNDS = 2
_WARM = 2  # batches that do not count as steady ones
_ASSUMED = 100  # batches of an epoch, where tf.data does not know how many there are
_SEEN = ("Print", "PrintV2", *_tf.PYTHON_OPS)
Form = Callable[[Any], Any]
"""From a dataset to a dataset."""


# ---------------------------------------------------------------------------
# The loop
# ---------------------------------------------------------------------------


def batched_as(
    dataset: tf.data.Dataset[Any],
    size: Dim,
    spec: tf.TypeSpec[Any],
    padding: Padding,
    *,
    drop_remainder: bool,
) -> tf.data.Dataset[Any]:
    """The results of a function of one element, in batches as the vectorized form makes them.

    ``spec`` is the ``element_spec`` of the vectorized form; None if there is none.
    """
    dataset = with_parts(dataset)
    leaves = tf.nest.flatten(dataset.element_spec)
    is_opened = has_opened(dataset.element_spec)
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
    def as_vectorized(*components: Nest) -> Any:
        batch = components if is_tuple else components[0]
        if is_opened:
            return closed(batch, is_batch=True)
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


def _as(batch: Nest, spec: tf.TypeSpec[Any]) -> Any:
    """One component of a batch in the form that ``spec`` says."""
    if isinstance(spec, tf.RaggedTensorSpec):
        ragged: Any = spec
        return _of_ragged_rank(batch, ragged.ragged_rank)
    if not isinstance(spec, tf.TensorSpec):
        return batch
    return tf.ensure_shape(_of_ragged_rank(batch, 0), spec.shape)


def _of_ragged_rank(x: object, rank: int) -> Any:
    """The same rows with more or fewer ragged axes; axes that are none must be of one size."""
    if not isinstance(x, tf.RaggedTensor):
        return x if rank == 0 else RAGGED.from_tensor(x, ragged_rank=rank)
    ragged = x
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


def _traced(fn: Callable[..., Any], spec: tf.TypeSpec[Any]) -> Any:
    """The graph of a function of one element."""
    function = tf.function(autographed(fn), autograph=False)
    return function.get_concrete_function(*arguments(spec)).graph


def check_stateless(fn: Callable[..., Any], spec: Nest) -> Any:
    """Refuses functions that change variables: a trial would change them. Returns the graph."""
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


def is_pure(fn: Callable[..., Any], spec: object) -> bool:
    """Whether nobody sees how often a function runs: it calls no Python, and prints nothing."""
    return not any(op.type in _SEEN for op in all_ops(check_stateless(fn, spec)))


def names_the_batch(fn: Callable[..., Any], spec: Nest) -> bool:
    """Whether a function uses collectives, over the elements of its batch."""
    with entered(Axis()):
        return has_collective(_traced(fn, spec))


def needs_order(graph: tf.Graph) -> bool:
    """Whether results depend on which batch comes first: state, or draws with a seed."""
    if any(access.writes for access in Accesses(graph).all):
        return True
    return any(map(_is_seeded, all_ops(graph)))


def _is_seeded(op: tf.Operation) -> bool:
    schema = _tf.schema(op.type)
    if schema is None or not schema.is_stateful or "seed" not in schema.attr_types:
        return False
    return bool(op.get_attr("seed") or ("seed2" in schema.attr_types and op.get_attr("seed2")))


def is_faster(
    first: Form, second: Form, dataset: tf.data.Dataset[Any], size: Dim, *, often: bool
) -> bool:
    """Whether an epoch of ``first`` takes less time, by the first elements of a dataset.

    The elements are read once and kept in memory, so that the time of the source counts for neither
    form. The time of a form is the time of an epoch: the start of an iterator, and all batches. The
    start grows with the ops of the form. Unless ``often``, each form runs once on each element.

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
    forms = [first(trial), second(trial)]
    rounds = [[_cost(form) for form in forms] for _ in range(_ROUNDS if often else 1)]
    costs = [functools.reduce(Cost.least, of_form) for of_form in zip(*rounds)]
    batches = _batches_of_epoch(dataset, int(size))
    scores = [cost.of_epoch(batches) for cost in costs]
    _LOG.info(
        "choose='auto': milliseconds of a batch and of an iterator's start: %.2f and %.1f "
        "vectorized, %.2f and %.1f in a loop; %s batches: %s.",
        *[1e3 * seconds for cost in costs for seconds in (cost.batch[0], cost.start[0])],
        batches or "endless",
        "vectorized" if scores[0] <= scores[1] else "loop",
    )
    return scores[0] <= scores[1]


def _batches_of_epoch(dataset: tf.data.Dataset[Any], size: int) -> int | None:
    elements = int(dataset.cardinality())
    if elements == tf.data.INFINITE_CARDINALITY:
        return None
    return _ASSUMED if elements == tf.data.UNKNOWN_CARDINALITY else -(-elements // size)


@dataclasses.dataclass(frozen=True, slots=True)
class Cost:
    """The cost of a form: seconds, and seconds that all processors work.

    Where other programs use the machine, only the second number can be trusted.

    Attributes:
      start: the cost from a new iterator to the end of its first batch.
      batch: the cost of a later batch.
    """

    start: tuple[float, float]
    batch: tuple[float, float]

    def least(self, other: Cost) -> Cost:
        """The smaller of each number, for a form that was measured twice."""
        return Cost(_least(self.start, other.start), _least(self.batch, other.batch))

    def of_epoch(self, batches: int | None) -> float:
        """The product of both costs of an epoch of so many batches; None is an endless epoch."""
        if batches is None:
            return math.prod(self.batch)
        return math.prod(s + (batches - 1) * b for s, b in zip(self.start, self.batch))


def _least(a: tuple[float, float], b: tuple[float, float]) -> tuple[float, float]:
    return min(a[0], b[0]), min(a[1], b[1])


def _cost(form: tf.data.Dataset[Any]) -> Cost:
    """Measures a form; its dataset may be endless."""
    times = [_now()]
    for _ in form:
        times.append(_now())
        if len(times) > _WARM + 1 and times[-1][0] - times[_WARM][0] > _SECONDS:
            break
    warm = min(_WARM, len(times) - 2)
    if warm < 0:
        return Cost((0.0, 0.0), (0.0, 0.0))
    start = [b - a for a, b in zip(times[0], times[1])]
    count = max(len(times) - 1 - warm, 1)
    batch = [(b - a) / count for a, b in zip(times[warm], times[-1])]
    return Cost((start[0], start[1]), (batch[0], batch[1]))


def _now() -> tuple[float, float]:
    return time.perf_counter(), time.process_time()
