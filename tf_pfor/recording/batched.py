"""``batched`` and ``cell``."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import tensorflow as tf

from tf_pfor._tf import _eager_ops, _functions
from tf_pfor.core.errors import ArgumentError, ArgumentTypeError
from tf_pfor.recording.errors import checked
from tf_pfor.recording.examples import Examples
from tf_pfor.recording.plans import Plans
from tf_pfor.recording.recorder import Recorder
from tf_pfor.recording.results import alone, stacked
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
      sizes a ``tf.function`` around the call does not know. RaggedTensors and SparseTensors are
      stacked. Python numbers become tensors, as by ``tf.constant``: a float is float32.

    Raises:
      ArgumentTypeError: ``fn`` is no function, the examples are no sequence, or a result cannot be
        stacked.
      ArgumentError: an option is not known, there are no examples, or results differ in structure
        or dtype.
      UnsupportedStateError: ``fn`` writes a variable or a lookup table.
    """
    checked(fn, "a function of one example", "Return a list or a tensor.")
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
        if getattr(examples, "shape", None) == ():
            raise ArgumentTypeError(f"examples must be a sequence, found a scalar: {examples!r}.")
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
            results += alone(found) if chunk_size else found
        return stacked(results)

    return _functions.never_converted(of_examples)


def cell(fn: Callable[..., Any]) -> Callable[..., Any]:
    """Makes a function whose calls ``batched`` records as one op each.

    The function is traced once for each combination of shapes and dtypes, and vectorized over the
    calls that run together. A call costs less to record than the ops in it, so make cells of what
    a recursion calls at each node. Outside of ``batched`` the function runs as it is.

    Python values from elsewhere (attributes, globals) are read in the trace only, as in
    ``tf.function``. Pass such a value as an argument if it may change, and values of the example.

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
    checked(fn, "a function", "Return a list or a tensor.")
    name = getattr(fn, "__name__", type(fn).__name__)

    @functools.wraps(fn, updated=())
    def called(*args: object, **kwargs: object) -> Any:
        recorder = _eager_ops.catcher()
        if not isinstance(recorder, Recorder):
            return _functions.treated_as_here(fn)(*args, **kwargs)
        return recorder.unit(called, name, fn, args, kwargs)

    return _functions.never_converted(called)
