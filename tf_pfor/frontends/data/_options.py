"""The options of the transformations: names, defaults, and the code that follows them."""

from __future__ import annotations

import dataclasses
import functools
import inspect
import numbers
import pathlib
import re
from collections.abc import Callable, Mapping
from typing import Any, Literal, TypedDict, TypeVar

import tensorflow as tf

from tf_pfor.api.options import check_bool
from tf_pfor.core import nests
from tf_pfor.core.emit import Dim
from tf_pfor.core.errors import ArgumentError, ArgumentTypeError, NotVectorizableError
from tf_pfor.core.nests import Nest
from tf_pfor.core.settings import (
    ChunkSize,
    Fallback,
    OutShapes,
    Randomness,
    WhileStrategy,
    current,
)
from tf_pfor.frontends.data import _elements
from tf_pfor.frontends.data._choice import is_faster, is_pure, names_the_batch, needs_order
from tf_pfor.frontends.data._located import located

Choose = Literal["vectorized", "loop", "auto"]
F = TypeVar("F", bound=Callable[..., Any])
Transformation = Callable[[Any], Any]
"""From a dataset to a dataset."""


class MapOptions(TypedDict, total=False):
    """The options by which a function of one row is vectorized, as in ``tf_pfor.vmap``.

    Attributes:
      fallback: "loop", "error", or op types that may loop. None here and below follows
        ``tf_pfor.settings``.
      warn: whether to warn of ops that run in a sequential loop.
      randomness: "different", "same" or "error": each row draws, all rows share one draw, or such
        ops are refused.
      while_strategy: "auto", "compact" (a while loop computes the rows that still go on), or "mask"
        (it computes all rows).
      chunk_size: elements of a batch to run at once; None for all, "auto" for as many as fit into
        ``memory_budget``.
      memory_budget: bytes that "auto" may use for all that a call allocates. None: half of the free
        memory.
    """

    fallback: Fallback | None
    warn: bool | None
    randomness: Randomness | None
    while_strategy: WhileStrategy
    chunk_size: ChunkSize
    memory_budget: int | None


class RowOptions(MapOptions, total=False):
    """The options by which a function of one element is vectorized and its results are padded.

    Attributes:
      out_shapes: the form of results whose shape may differ per row. "ragged" is a RaggedTensor.
        "dense" is a tensor; other shapes are an error at run time. "padded" adds zeros.
      padded_shapes: as in ``Dataset.padded_batch``: the shapes of padded results, in the nest that
        ``fn`` returns. None in a shape stands for the largest size in the batch.
      padding_values: as in ``Dataset.padded_batch``; zeros and empty strings if None.
    """

    out_shapes: OutShapes
    padded_shapes: Nest
    padding_values: Nest


class BatchOptions(RowOptions, total=False):
    """The options by which a dataset is batched and mapped, beside ``RowOptions``.

    Attributes:
      num_parallel_calls: as in ``Dataset.map``: the number of batches at once. The default is
        ``tf.data.AUTOTUNE``. It is one batch after the other where the order of batches changes
        results. That is so if ``fn`` changes variables, draws from a ``tf.random.Generator``, or
        draws with a seed that was set.
      drop_remainder: as in ``Dataset.batch``; when True the batch size is a static shape.
      deterministic: as in ``Dataset.map``: whether the order of the batches is kept.
      ragged: whether elements may have different shapes where the dataset's ``element_spec`` has
        unknown sizes. False says that all shapes are equal, as for ``Dataset.batch``.
      choose: "vectorized"; "loop" for ``map(fn).batch(n)``; or "auto". "auto" times both on the
        first batches, and keeps the faster form (docs/data.md).
    """

    num_parallel_calls: Dim | None
    drop_remainder: bool
    deterministic: bool | None
    ragged: bool
    choose: Choose


class _Default(int):
    """The default of an option: the same number, but nobody has chosen it."""


_PARALLEL = _Default(tf.data.AUTOTUNE)
OF_ROWS: RowOptions = {
    "fallback": None,
    "warn": None,
    "randomness": None,
    "while_strategy": "auto",
    "chunk_size": None,
    "memory_budget": None,
    "out_shapes": "ragged",
    "padded_shapes": None,
    "padding_values": None,
}
OF_BATCHES: BatchOptions = {
    "num_parallel_calls": _PARALLEL,
    "drop_remainder": False,
    "deterministic": None,
    "ragged": True,
    "choose": "vectorized",
    **OF_ROWS,
}


def takes(defaults: Mapping[str, Any]) -> Callable[[F], F]:
    """A decorator for ``function(..., **options)`` that completes the options by their defaults.

    Unknown options are refused; ``help`` and ``inspect.signature`` show names and defaults.
    """

    def decorated(function: Callable[..., Any]) -> Any:
        @tf.autograph.experimental.do_not_convert
        @functools.wraps(function)
        def called(*args: Nest, **options: object) -> Any:
            unknown = sorted(set(options) - set(defaults) - own)
            if unknown:
                raise ArgumentTypeError(
                    f"{function.__name__} has no option {unknown[0]!r}. Expected: "
                    f"{', '.join([*own - {'fn', 'batch_size'}, *defaults])}."
                )
            return function(*args, **{**defaults, **options})

        plain = inspect.signature(function)
        kept = [x for x in plain.parameters.values() if x.kind is not x.VAR_KEYWORD]
        own = {x.name for x in kept}
        more = [
            inspect.Parameter(k, inspect.Parameter.KEYWORD_ONLY, default=v)
            for k, v in defaults.items()
        ]
        vars(called)["__signature__"] = plain.replace(parameters=[*kept, *more])
        return called

    return decorated


def of_vmap(options: RowOptions) -> dict[str, Any]:
    """The options that ``vmap`` has."""
    names = ("fallback", "warn", "randomness", "while_strategy", "chunk_size", "memory_budget")
    return {name: options.get(name) for name in names}


@dataclasses.dataclass(frozen=True, slots=True)
class Options:
    """The checked options by which a dataset is batched and mapped.

    Attributes:
      parallel: as ``num_parallel_calls``.
      ragged: whether elements may have different shapes.
    """

    size: Dim
    parallel: Dim | None
    drop_remainder: bool
    deterministic: bool | None
    ragged: bool
    choose: str
    randomness: str

    @classmethod
    def of(cls, size: Dim, given: BatchOptions) -> Options:
        """Makes the options of a batch size and all given options."""
        return cls(
            size,
            given.get("num_parallel_calls"),
            bool(given.get("drop_remainder")),
            given.get("deterministic"),
            given.get("ragged", True),
            given.get("choose", ""),
            given.get("randomness") or current().randomness,
        )

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
        check_bool(self.ragged, "ragged")

    def batched(
        self, dataset: tf.data.Dataset[Any], *, drop: bool | None = None
    ) -> tf.data.Dataset[Any]:
        """The dataset in batches, before the function of a batch."""
        drop = self.drop_remainder if drop is None else drop
        return _elements.in_batches(
            dataset, self.size, drop_remainder=drop, may_be_ragged=self.ragged
        )

    def mapped(
        self, dataset: tf.data.Dataset[Any], fn: Callable[..., Any], of: Callable[..., Any]
    ) -> tf.data.Dataset[Any]:
        """``Dataset.map``, in parallel as the options say; errors name the function ``of``."""
        name, seen = _name(of), list[Any]()

        @tf.autograph.experimental.do_not_convert
        def noted(*components: Nest) -> Any:
            seen[:] = [tf.compat.v1.get_default_graph()]
            return fn(*components)

        if self.parallel is not None:
            made = dataset.map(noted, int(self.parallel), self.deterministic, name=name)
            is_chosen = self.parallel is not _PARALLEL or self.deterministic is False
            if is_chosen or not needs_order(seen[0]):
                return made
        return dataset.map(fn, name=name)

    def chosen(
        self,
        fn: Callable[..., Any],
        vectorized: Transformation,
        looped: Callable[[Any, Any], Any],
        *,
        in_order: bool,
    ) -> Transformation:
        """One of two forms of a transformation, as ``choose`` says.

        Args:
          fn: the user's function.
          vectorized: the vectorized form.
          looped: the form of a loop. It gets the ``element_spec`` of the vectorized form, or None
            if ``fn`` cannot be vectorized.
          in_order: whether batch i begins with element i * size, and the next ones follow.
        """

        def apply(*datasets: object) -> tf.data.Dataset[Any]:
            [dataset, *others] = datasets or [None]
            if others or not isinstance(dataset, tf.data.Dataset):
                found = ", ".join(map(nests.shown, datasets)) or "nothing"
                raise ArgumentTypeError(
                    "Expected a tf.data.Dataset, as in ds.apply(...), and not the elements of one, "
                    f"as in ds.map(...). Found {found}."
                )
            if self.choose == "vectorized":
                return with_errors(vectorized(dataset), dataset)
            try:
                made = vectorized(dataset)
            except NotVectorizableError:
                return with_errors(looped(dataset, None), dataset)
            spec = made.element_spec
            if self.choose == "auto" and names_the_batch(fn, dataset.element_spec):
                return with_errors(made, dataset)  # a loop has no other elements to look at
            loop = looped(dataset, spec)
            if self.choose == "loop":
                return with_errors(loop, dataset)
            often = is_pure(fn, dataset.element_spec)
            try:
                wins = is_faster(
                    vectorized, lambda ds: looped(ds, spec), dataset, self.size, often=often
                )
            except tf.errors.OpError:
                wins = True  # it fails for an element, which is said when it is read
            return with_errors(made if wins else loop, dataset)

        def with_errors(made: tf.data.Dataset[Any], dataset: tf.data.Dataset[Any]) -> Any:
            if not in_order or self.deterministic is False:
                return made
            return located(made, fn, dataset, self.size)

        return apply


def _name(fn: object) -> str:
    """A name for a transformation, an identifier: the user's function and its line."""
    plain = inspect.unwrap(fn) if inspect.isfunction(fn) or inspect.ismethod(fn) else fn
    code = getattr(plain, "__code__", None)
    name = getattr(plain, "__name__", type(plain).__name__)
    if code is not None:
        name = f"{name}_of_{pathlib.PurePath(code.co_filename).name}_line_{code.co_firstlineno}"
    return re.sub("[^A-Za-z0-9]+", "_", name).strip("_") or "fn"


def _check_size(size: Dim) -> None:
    """Refuses batch sizes that are no positive integers; of a tensor tf.data says so later."""
    if isinstance(size, tf.Tensor):
        if not size.dtype.is_integer or size.shape.rank not in (0, None):
            raise ArgumentTypeError(f"batch_size must be an integer scalar, found {size}.")
        return
    if isinstance(size, bool) or not isinstance(size, numbers.Integral):
        raise ArgumentTypeError(f"batch_size must be an integer, found {size!r}.")
    if size < 1:
        raise ArgumentError(f"batch_size must be positive, found {size}.")
