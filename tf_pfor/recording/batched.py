"""``batched`` and ``cell``."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import tensorflow as tf

from tf_pfor._tf import _eager_ops
from tf_pfor._tf._types import RAGGED
from tf_pfor.core import nests
from tf_pfor.core.errors import ArgumentError, ArgumentTypeError
from tf_pfor.recording.columns import joined
from tf_pfor.recording.examples import Examples
from tf_pfor.recording.nodes import Recorded, values
from tf_pfor.recording.plans import Plans
from tf_pfor.recording.recorder import Recorder
from tf_pfor.recording.schedule import Schedule

_SCHEDULES = ("agenda", "depth")


def batched(
    fn: Callable[[Any], Any], *, schedule: Schedule = "agenda", chunk_size: int | None = None
) -> Callable[..., Any]:
    """Makes a function of one example, written as plain Python, one of a list of examples.

    The function may recurse over a tree, or loop as often as its example asks for. Examples need
    not have the same structure. The function runs once for each example, but its TensorFlow ops are
    recorded and not run. Then equal ops of all examples run as one op with as many rows, if none of
    them depends on another. This is dynamic batching (Neubig, Goldberg and Dyer, 2017; Looks,
    Herreshoff, Hutchins and Norvig, 2017).

    A function may ask for a value: ``numpy()``, ``bool``, ``float``, an ``if`` on a tensor. Its
    example waits there until all others wait or are done. Then what was recorded runs.

    Gradients: put a ``tf.GradientTape`` around the call. A tape inside of the function gives the
    gradients of each example. Calls of a ``tf_pfor.cell`` or of a ``tf.function`` are recorded as
    one op each, which takes less time than their ops.

    Example:
      >>> import tensorflow as tf, tf_pfor
      >>> join = tf_pfor.cell(lambda left, right: left + 2.0 * right)
      >>> def fold(tree):
      ...     return join(*map(fold, tree)) if isinstance(tree, tuple) else tf.constant(tree)
      >>> tf_pfor.batched(fold)([(1.0, 2.0), ((0.5, 1.0), 2.0), 3.0]).numpy().tolist()
      [5.0, 6.5, 3.0]

    Args:
      fn: a function of one example, which may be any Python object.
      schedule: "agenda" runs the kind of op with the least average depth first, and then all calls
        of it that may run. "depth" runs equal ops of the same depth together: it takes less time
        to plan, and more and smaller batches where structures differ.
      chunk_size: the number of examples that are recorded and run at once; None: all. Between
        chunks only results stay in memory, unless a tape around the call keeps more.

    Returns:
      A function of a sequence of examples. It returns the nest that ``fn`` returns, with tensors
      [n, ...]. Results whose sizes differ between examples are RaggedTensors; so are results whose
      sizes a ``tf.function`` around the call does not know.

    Raises:
      ArgumentTypeError: ``fn`` is no function, or the examples are no sequence.
      ArgumentError: an option is not known, or results differ in structure or dtype.
      UnsupportedStateError: ``fn`` writes a variable.
    """
    if not callable(fn):
        raise ArgumentTypeError(f"fn must be a function of one example, found {fn!r}.")
    if schedule not in _SCHEDULES:
        raise ArgumentError(f"schedule must be one of {_SCHEDULES}, found {schedule!r}.")
    if chunk_size is not None and (type(chunk_size) is not int or chunk_size < 1):
        raise ArgumentError(f"chunk_size must be a positive number, found {chunk_size!r}.")
    kinds: dict[Any, Any] = {}
    plans = Plans()

    @functools.wraps(fn, updated=())
    def of_examples(examples: Sequence[Any]) -> Any:
        around = _eager_ops.catcher()
        if isinstance(around, Recorder):
            raise ArgumentError(
                "batched() is called inside of batched(). Call the function of one example there."
            )
        if around is not None:  # a recorder of lazy(): examples have recorders of their own
            around.runs("batched()", [])
            with _eager_ops.caught(None):
                return of_examples(examples)
        if isinstance(examples, tf.Tensor):
            examples = tf.unstack(examples)
        if isinstance(examples, tf.RaggedTensor):
            examples = [examples[i] for i in range(int(examples.nrows()))]
        is_sequence = hasattr(examples, "__len__") and hasattr(examples, "__getitem__")
        if not is_sequence or isinstance(examples, Mapping):
            raise ArgumentTypeError(
                f"examples must be a sequence, found {type(examples).__name__}."
            )
        if not len(examples):
            raise ArgumentError("examples must have at least one example, found none.")
        results: list[Any] = []
        size = chunk_size or len(examples)
        for first in range(0, len(examples), size):
            chunk = range(first, min(first + size, len(examples)))
            found = Examples(fn, examples, chunk, kinds, plans, schedule).run()
            results += _alone(found) if chunk_size else found
        return _stacked(results)

    return of_examples


def cell(fn: Callable[..., Any]) -> Callable[..., Any]:
    """Makes a function whose calls ``batched`` records as one op each.

    The function is traced once for each combination of shapes and dtypes, and vectorized over the
    calls that run together. A call costs less to record than the ops in it, so make cells of what
    a recursion calls at each node. Outside of ``batched`` the function runs as it is.

    Example:
      >>> import tensorflow as tf, tf_pfor
      >>> step = tf_pfor.cell(lambda h, x: h + x)
      >>> def total(numbers):
      ...     h = tf.constant(0.0)
      ...     for x in numbers:
      ...         h = step(h, tf.constant(x))
      ...     return h
      >>> tf_pfor.batched(total)([[1.0, 2.0], [3.0]]).numpy().tolist()
      [3.0, 3.0]

    Args:
      fn: a function of nests of tensors and Python values, which returns a nest of tensors. A
        Keras layer is one, too.

    Raises:
      ArgumentTypeError: ``fn`` is no function.
    """
    if not callable(fn):
        raise ArgumentTypeError(f"fn must be a function, found {fn!r}.")
    name = getattr(fn, "__name__", type(fn).__name__)

    @functools.wraps(fn, updated=())
    def called(*args: object, **kwargs: object) -> Any:
        recorder = _eager_ops.catcher()
        if not isinstance(recorder, Recorder):
            return fn(*args, **kwargs)
        return recorder.unit(called, name, fn, args, kwargs)

    return called


def _alone(results: list[Any]) -> Any:
    """Results that keep no other value of their examples alive."""
    runs: dict[Any, Any] = {}
    inner = nests.from_user(results)
    leaves = [x.alone(runs) if isinstance(x, Recorded) else x for x in nests.flatten(inner)]
    return nests.to_user(nests.pack(nests.skeleton(inner), leaves))


def _stacked(results: list[Any]) -> Any:
    """One nest with the results of all examples."""
    structures = [nests.from_user(r) for r in results]
    first = structures[0]
    for i, other in enumerate(structures[1:], 1):
        try:
            tf.nest.assert_same_structure(first, other, expand_composites=True)
        except (TypeError, ValueError) as why:
            raise ArgumentError(
                f"fn must return the same structure for all examples, found {results[0]!r} for "
                f"example 0 and {results[i]!r} for example {i}."
            ) from why
    columns = zip(*map(nests.flatten, structures))
    return nests.to_user(nests.pack(nests.skeleton(first), [_column(list(c)) for c in columns]))


def _column(items: list[Any]) -> Any:
    """[n, ...] of one result of all examples."""
    if all(x is None for x in items):
        return None
    items = [x if isinstance(x, Recorded) else tf.convert_to_tensor(x) for x in items]
    if len({x.dtype for x in items}) > 1:
        found = sorted({x.dtype.name for x in items})
        raise ArgumentError(f"fn must return the same dtype for all examples, found {found}.")
    if len({tuple(x.shape) for x in items}) == 1 and items[0].shape.is_fully_defined():
        return joined(items)
    if len({x.shape.rank for x in items}) > 1:
        found = sorted({x.shape.rank for x in items})
        raise ArgumentError(f"fn must return the same rank for all examples, found ranks {found}.")
    return _ragged(values(items))


def _ragged(tensors: list[tf.Tensor]) -> tf.Tensor | tf.RaggedTensor:
    """Tensors of one rank as a RaggedTensor. An axis of one size stays uniform."""
    axes = [set(sizes) for sizes in zip(*[x.shape.as_list() for x in tensors])]
    same = [next(iter(a)) if len(a) == 1 else None for a in axes]
    last = max(axis for axis, size in enumerate(same) if size is None)
    inner = same[last + 1 :]
    made: tf.Tensor | tf.RaggedTensor = tf.concat([tf.reshape(x, [-1, *inner]) for x in tensors], 0)
    shapes = tf.stack([tf.shape(x, tf.int64) for x in tensors])
    for axis in reversed(range(last + 1)):
        counts = tf.reduce_prod(shapes[:, :axis], 1)
        if same[axis] is None:
            lengths = tf.repeat(shapes[:, axis], counts)
            made = RAGGED.from_row_lengths(made, lengths, validate=False)
        else:
            rows = tf.reduce_sum(counts)
            made = RAGGED.from_uniform_row_length(made, same[axis], rows, validate=False)
    return made
