"""The options of the transformations that say how a dataset is batched and mapped."""

from __future__ import annotations

import dataclasses
import inspect
import numbers
import pathlib
import re
from collections.abc import Callable
from typing import Any

import tensorflow as tf

from tf_pfor.core.errors import ArgumentError, ArgumentTypeError, NotVectorizableError
from tf_pfor.frontends.data import _elements
from tf_pfor.frontends.data._choice import check_stateless, is_faster

Transformation = Callable[[Any], Any]
"""From a dataset to a dataset."""


@dataclasses.dataclass(frozen=True, slots=True)
class Options:
    """The options that say how a dataset is batched and mapped, checked.

    Attributes:
      size: of a batch.
      parallel: as ``num_parallel_calls``.
      drop_remainder: as in ``Dataset.batch``.
      deterministic: as in ``Dataset.map``.
      ragged: whether elements may have different shapes.
      choose: "vectorized", "loop" or "auto".
      randomness: as for ``vmap``.
    """

    size: Any
    parallel: Any
    drop_remainder: bool
    deterministic: bool | None
    ragged: bool
    choose: str
    randomness: str

    def __post_init__(self) -> None:
        _check_size(self.size)
        if self.choose not in ("vectorized", "loop", "auto"):
            raise ArgumentError(
                f"choose must be 'vectorized', 'loop' or 'auto', found {self.choose!r}."
            )
        if self.choose != "vectorized" and self.randomness == "same":
            raise ArgumentError(
                f'randomness="same" is one draw for a batch, which a loop (choose={self.choose!r}) '
                'cannot make. Leave one of them out, or choose="vectorized".'
            )
        if self.ragged not in (True, False):
            raise ArgumentTypeError(f"ragged must be a bool, found {self.ragged!r}.")

    def batched(
        self, dataset: tf.data.Dataset[Any], *, drop: bool | None = None
    ) -> tf.data.Dataset[Any]:
        """In batches, before the function of a batch."""
        drop = self.drop_remainder if drop is None else drop
        return _elements.in_batches(
            dataset, self.size, drop_remainder=drop, may_be_ragged=self.ragged
        )

    def mapped(
        self, dataset: tf.data.Dataset[Any], fn: Callable[..., Any], of: Any
    ) -> tf.data.Dataset[Any]:
        """``Dataset.map``, in parallel as the options say; errors name the function ``of``."""
        if self.parallel is None:
            return dataset.map(fn, name=_name(of))
        return dataset.map(fn, self.parallel, self.deterministic, name=_name(of))

    def chosen(
        self,
        fn: Callable[..., Any],
        vectorized: Transformation,
        looped: Callable[[Any, Any], Any],
    ) -> Transformation:
        """One of two forms of a transformation, as ``choose`` says.

        Args:
          fn: the user's function.
          vectorized: the one.
          looped: the other, which is given the ``element_spec`` of the first, None if ``fn`` cannot
            be vectorized.
        """

        def apply(dataset: Any) -> tf.data.Dataset[Any]:
            if not isinstance(dataset, tf.data.Dataset):
                raise ArgumentTypeError(
                    f"Expected a tf.data.Dataset, as in ds.apply(...), found {dataset!r}."
                )
            if self.choose == "vectorized":
                return vectorized(dataset)
            try:
                made = vectorized(dataset)
            except NotVectorizableError:
                return looped(dataset, None)
            spec = made.element_spec
            loop = looped(dataset, spec)
            if self.choose == "loop":
                return loop
            check_stateless(fn, dataset.element_spec)
            wins = is_faster(vectorized, lambda ds: looped(ds, spec), dataset, self.size)
            return made if wins else loop

        return apply


def _name(fn: Any) -> str:
    """A name for a transformation, an identifier: the user's function and its line."""
    plain = inspect.unwrap(fn) if inspect.isfunction(fn) or inspect.ismethod(fn) else fn
    code = getattr(plain, "__code__", None)
    name = getattr(plain, "__name__", type(plain).__name__)
    if code is not None:
        name = f"{name}_of_{pathlib.PurePath(code.co_filename).name}_line_{code.co_firstlineno}"
    return re.sub("[^A-Za-z0-9]+", "_", name).strip("_") or "fn"


def _check_size(size: Any) -> None:
    """Refuses batch sizes that are no positive integers; of a tensor tf.data says so later."""
    if isinstance(size, tf.Tensor):
        if not size.dtype.is_integer or size.shape.rank not in (0, None):
            raise ArgumentTypeError(f"batch_size must be an integer scalar, found {size}.")
        return
    if isinstance(size, bool) or not isinstance(size, numbers.Integral):
        raise ArgumentTypeError(f"batch_size must be an integer, found {size!r}.")
    if size < 1:
        raise ArgumentError(f"batch_size must be positive, found {size}.")
