"""Apache Beam: a transform that maps a function of one element over batches."""

from __future__ import annotations

import importlib
import importlib.util
import numbers
import pathlib
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from tf_pfor.api.checks import check_callable
from tf_pfor.api.options import check_bool
from tf_pfor.api.vmap import vmap
from tf_pfor.core.errors import ArgumentError
from tf_pfor.core.nests import Nest
from tf_pfor.frontends.columns._elements import ElementsFunction
from tf_pfor.frontends.columns._function import MapOptions, check_options

if TYPE_CHECKING:
    from typing_extensions import Unpack

if importlib.util.find_spec("apache_beam") is None:
    raise ImportError(
        "tf_pfor.beam needs Apache Beam, which is not installed. Install it: "
        'pip install "tf-pfor[beam]".'
    )
_BEAM = importlib.import_module("apache_beam")
Transform = Any
"""A ``beam.PTransform``, which has no types here: Beam is optional."""


def Map(  # noqa: N802  (the name of Beam's transform of one element)
    fn: Callable[..., Any],
    *,
    spec: Nest = None,
    binary: bool = False,
    min_batch_size: int = 1,
    max_batch_size: int = 1000,
    **options: Unpack[MapOptions],
) -> Transform:
    """``beam.Map(fn)`` over batches: elements are gathered by ``beam.BatchElements``.

    Args:
      fn: a function of one element. Elements are numbers, texts, lists or arrays, or dicts and
        tuples of such, which ``fn`` gets as tensors. It returns tensors, also in dicts and tuples.
      spec: the ``tf.TensorSpec`` of each tensor in an element, in the nest of the element, or None.
        A size of None differs between elements. It casts, and saves traces.
      binary: whether strings of the results stay bytes. Else they are decoded as UTF-8.
      min_batch_size: as for ``beam.BatchElements``, which chooses the size by the time it takes.
      max_batch_size: as for ``beam.BatchElements``.
      **options: ``fallback``, ``warn``, ``randomness``, ``while_strategy``, ``chunk_size`` and
        ``memory_budget`` of ``tf_pfor.vmap``.

    Returns:
      A ``PTransform``. Its elements are the results of ``fn``: a scalar is a Python number or str,
      another tensor is a NumPy array. Elements stay in their windows; their timestamps become
      the end of the window, as with ``BatchElements``.

    Raises:
      ArgumentError, ArgumentTypeError: if an argument is wrong. When the pipeline runs: if elements
        have different structures, or are no tensors.
      NotVectorizableError: when the pipeline runs, if an op has no converter and the fallback is
        off.

    >>> import apache_beam as beam
    >>> import tensorflow as tf
    >>> import tf_pfor
    >>> with beam.Pipeline() as p:
    ...     words = p | beam.Create(["a b", "c"])
    ...     _ = words | tf_pfor.beam.Map(lambda text: tf.strings.length(text)) | beam.Map(print)
    3
    1
    """
    check_callable(fn, "fn")
    check_options(options, "tf_pfor.beam.Map", "spec, binary, min_batch_size, max_batch_size")
    vmap(fn, **options)  # wrong options are refused here, not in a worker
    sizes = {"min_batch_size": min_batch_size, "max_batch_size": max_batch_size}
    for name, size in sizes.items():
        if isinstance(size, bool) or not isinstance(size, numbers.Integral) or size < 1:
            raise ArgumentError(f"{name} must be a positive int, found {size!r}.")
    if min_batch_size > max_batch_size:
        raise ArgumentError(
            f"min_batch_size is {min_batch_size}, expected at most max_batch_size, "
            f"{max_batch_size}. Change one of them."
        )
    check_bool(binary, "binary")
    of_batch = ElementsFunction(fn, spec, dict(options), binary)
    made = _BEAM.BatchElements(**sizes) | _BEAM.FlatMap(of_batch)
    return f"tf_pfor.beam.Map({_label(fn)})" >> made


def _label(fn: Callable[..., Any]) -> str:
    """A name for a step of a pipeline, which must be another one for another function."""
    name = getattr(fn, "__name__", type(fn).__name__)
    code = getattr(fn, "__code__", None)
    if name != "<lambda>" or code is None:
        return name
    return f"<lambda at {pathlib.PurePath(code.co_filename).name}:{code.co_firstlineno}>"
