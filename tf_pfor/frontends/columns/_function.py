"""``column_function``: a function of one row as a function of a batch of columns."""

from __future__ import annotations

import dataclasses
import functools
import threading
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import tensorflow as tf

from tf_pfor.api.checks import check_callable
from tf_pfor.api.vmap import vmap
from tf_pfor.core.errors import ArgumentError, ArgumentTypeError, did_you_mean
from tf_pfor.core.nests import Nest
from tf_pfor.core.settings import current
from tf_pfor.frontends.columns import _inputs, _results
from tf_pfor.frontends.columns._failures import located
from tf_pfor.frontends.data._elements import rows
from tf_pfor.frontends.data._options import MapOptions
from tf_pfor.reports.report import Report
from tf_pfor.reports.subjects import Subject, subject_of
from tf_pfor.tracing.user_code import autographed

if TYPE_CHECKING:
    from typing_extensions import Unpack

Columns = Sequence[str] | Mapping[str, _inputs.Spec | None]
"""The names of the columns that are read; a mapping also has the spec of a cell."""
_no_autograph = tf.autograph.experimental.do_not_convert


def column_function(
    fn: Callable[..., Any],
    *,
    columns: Columns | None = None,
    binary: Sequence[str] = (),
    **options: Unpack[MapOptions],
) -> ColumnFunction:
    """``fn`` of one row as a function of a batch of columns, for engines of data.

    Hugging Face's ``dataset.map(..., batched=True)``, Ray's ``ds.map_batches`` and Spark's
    ``mapInArrow`` call it with a batch. ``fn`` is what their ``map`` of one row would take.

    Args:
      fn: a function of one row, a dict of tensors by the name of a column. It returns such a dict.
        A list is a tensor [length], a list of lists a RaggedTensor, and a text a string tensor.
        Traced, with AutoGraph.
      columns: the columns that ``fn`` reads; None for all. A mapping also gives the shape and dtype
        of a cell, as a ``tf.TensorSpec``, or None for the ones that it has. A size of None differs
        between rows. The dtype casts; a value that it does not hold is an error.
      binary: the names of results whose strings stay bytes. Others are decoded as UTF-8.
      **options: ``fallback``, ``warn``, ``randomness``, ``while_strategy``, ``chunk_size`` and
        ``memory_budget`` of ``tf_pfor.vmap``.

    Returns:
      A function of a batch, in the form that it gets. A mapping of columns gives a dict of NumPy
      arrays, [n, ...] each, or an object array of n arrays where shapes differ. A list of arrays
      counts as stacked where its arrays have one shape; a spec with a size of None keeps it a list.
      A pyarrow Table or RecordBatch gives the same kind, and a pandas DataFrame too. It can be
      pickled if ``fn`` can, and called by several threads.

    Raises:
      ArgumentError, ArgumentTypeError: if an argument is wrong. When called: if a column is not
        there, has missing values, or does not fit. Also if ``fn`` returns no dict of tensors.
      NotVectorizableError: when called, if an op has no converter and the fallback is off.
      tf.errors.OpError: when called, if an op fails for a row. The message names the row.

    >>> import tensorflow as tf
    >>> import tf_pfor
    >>> def features(row):
    ...     return {"words": tf.strings.split(row["text"]), "double": 2 * row["x"]}
    >>> batched = tf_pfor.column_function(features)
    >>> made = batched({"text": ["a b", "c"], "x": [1, 2]})
    >>> [cell.tolist() for cell in made["words"]], made["double"].tolist()
    ([['a', 'b'], ['c']], [2, 4])
    """
    check_callable(fn, "fn")
    check_options(options, "column_function", "columns, binary")
    vmap(fn, **options)  # wrong options are refused here, not in a worker
    return ColumnFunction(fn, _specs(columns), _names(binary, "binary"), dict(options))


def check_options(options: MapOptions, asked: str, own: str) -> None:
    """Refuses options that are not of ``MapOptions``; ``own`` names what ``asked`` takes beside."""
    known = MapOptions.__annotations__
    if unknown := sorted(set(options) - set(known)):
        raise ArgumentTypeError(
            f"{asked} has no option {unknown[0]!r}. Expected: {own}, {', '.join(known)}."
        )


class ColumnFunction:
    """A function of a batch of columns: see ``column_function``, which makes it."""

    def __init__(
        self,
        fn: Callable[..., Any],
        columns: Mapping[str, _inputs.Spec | None] | None,
        binary: Collection[str],
        options: Mapping[str, Any],
    ):
        self._made = fn, columns, binary, options
        self._mapped = Mapped(_reads_columns(fn), options)

    def __reduce__(self) -> tuple[Any, ...]:
        """Leaves out the traces: each process traces ``fn`` again."""
        return ColumnFunction, self._made

    def __repr__(self) -> str:
        fn = self._made[0]
        return f"column_function({getattr(fn, '__name__', repr(fn))})"

    @_no_autograph
    def __call__(self, batch: _results.Batch) -> _results.Batch:
        """A batch of results, in the form of ``batch``."""
        if not tf.executing_eagerly():
            raise ArgumentError(
                f"{self!r} makes columns of values, and was called in a tf.function or a graph. "
                "Call it outside, or call tf_pfor.vmap(fn) with tensors inside."
            )
        binary = self._made[2]
        found, dense = self._mapped(self.tensors_of(batch))
        if unknown := [name for name in binary if name not in found]:
            raise ArgumentError(
                f"binary: the function has no result {unknown[0]!r}. It has: {', '.join(found)}."
                f"{did_you_mean(unknown[0], found)}"
            )
        cells = [
            _results.Cells(name, x, is_dense=dense[name], binary=binary)
            for name, x in found.items()
        ]
        return _results.in_form_of(batch, cells)

    def tensors_of(self, batch: _results.Batch) -> dict[str, Any]:
        """The columns that are read, as batches of tensors."""
        specs = self._made[1]
        given = _results.columns_of(batch)
        chosen = dict.fromkeys(given) if specs is None else specs
        tensors = {
            name: _inputs.tensors(_column(given, name), name, spec) for name, spec in chosen.items()
        }
        _check_rows(tensors)
        return tensors

    @property
    def mapped(self) -> Mapped:
        """The function of batches of tensors."""
        return self._mapped


@subject_of.register
def _of_columns(fn: ColumnFunction, given: Subject) -> Subject | Report:
    """Reports of a column function take a batch of columns."""
    if len(given.args) != 1:
        raise ArgumentError(
            f"{fn!r} is reported with {len(given.args)} arguments, expected one batch of columns."
        )
    tensors = fn.tensors_of(given.args[0])
    return subject_of(fn.mapped.rows([]), dataclasses.replace(given, args=(tensors,)))


@dataclasses.dataclass(slots=True)
class _Trace:
    """A function that was traced.

    Attributes:
      specs: the leaves of its signature.
      dense: whether each result of a row is a dense tensor, in the nest of results.
    """

    specs: list[Any]
    function: Callable[..., Any]
    dense: Nest


class Mapped:
    """A function of one row on batches: traced once for each kind of columns, not of sizes.

    The number of rows is unknown in the trace. Other sizes are as they come first, and unknown
    when another one comes.
    """

    def __init__(self, fn: Callable[..., Any], options: Mapping[str, Any]):
        self._fn, self._options = fn, options
        self._traces: dict[Any, _Trace] = {}
        self._lock = threading.RLock()

    def __call__(self, batch: Nest) -> tuple[Any, Any]:
        """The results of a batch, and a nest that says of which a row is dense.

        Raises:
          OpError: if an op fails for a row. The message names the row.
        """
        spec = tf.nest.map_structure(_open, batch)
        leaves = tf.nest.flatten(spec)
        # A namedtuple's keys are part of the structure: so are the axes of an Uneven.
        structure = str(tf.nest.map_structure(lambda _: 0, batch))
        key = (structure, tuple(map(_kind, leaves)), current())
        with self._lock:
            trace = self._traces.get(key)
            if trace is None or not _covers(trace.specs, leaves):
                merged = leaves if trace is None else [*map(_merged, trace.specs, leaves)]
                trace = self._traced(tf.nest.pack_sequence_as(spec, merged), merged)
                self._traces[key] = trace
        try:
            return trace.function(batch), trace.dense
        except tf.errors.OpError as why:
            raise located(why, self._fn, batch) from None

    def _traced(self, spec: Nest, leaves: list[Any]) -> _Trace:
        dense: list[Any] = []
        function = tf.function(self.rows(dense), input_signature=[spec], autograph=False)
        function.get_concrete_function()
        return _Trace(leaves, function, dense[0])

    def rows(self, dense: list[Any]) -> Callable[..., Any]:
        """The vectorized function; ``dense`` gets a nest that says which results are dense."""

        @_no_autograph
        @functools.wraps(self._fn, ("__name__", "__qualname__", "__doc__"), ())
        def one(row: Nest) -> Any:
            result = self._fn(rows(row))
            dense[:] = [tf.nest.map_structure(lambda x: isinstance(x, tf.Tensor), result)]
            return result

        return vmap(one, out_shapes="ragged", **self._options)


def _reads_columns(fn: Callable[..., Any]) -> Callable[..., Any]:
    converted = autographed(fn)

    @_no_autograph
    @functools.wraps(fn, ("__name__", "__qualname__", "__doc__"), ())
    def one(row: Nest) -> Any:
        return _results.named(converted(_inputs.Row(row)))

    return one


def _open(x: Nest) -> Any:
    """The spec of a batch with an unknown number of rows."""
    if not isinstance(x, tf.RaggedTensor):
        return tf.TensorSpec([None, *x.shape[1:]], x.dtype)
    inner = x.flat_values.shape[1:]
    shape = [None] * (x.ragged_rank + 1) + [*inner]
    return tf.RaggedTensorSpec(shape, x.dtype, x.ragged_rank, x.row_splits.dtype)


def _kind(spec: Nest) -> tuple[Any, ...]:
    return type(spec), spec.dtype, spec.shape.rank, getattr(spec, "ragged_rank", 0)


def _covers(specs: Sequence[Nest], others: Sequence[Nest]) -> bool:
    return all(
        a is None or a == b
        for spec, other in zip(specs, others)
        for a, b in zip(spec.shape.as_list(), other.shape.as_list())
    )


def _merged(spec: Nest, other: Nest) -> Any:
    sizes = [a if a == b else None for a, b in zip(spec.shape.as_list(), other.shape.as_list())]
    if isinstance(spec, tf.TensorSpec):
        return tf.TensorSpec(sizes, spec.dtype)
    return tf.RaggedTensorSpec(sizes, spec.dtype, spec.ragged_rank, spec.row_splits_dtype)


def _column(given: Mapping[str, Any], name: str) -> Any:
    if name not in given:
        raise ArgumentError(
            f"columns: the batch has no column {name!r}. It has: {', '.join(map(str, given))}."
            f"{did_you_mean(name, map(str, given))}"
        )
    return given[name]


def _check_rows(tensors: Mapping[str, Any]) -> None:
    counts = {name: _inputs.size_of(x) for name, x in tensors.items()}
    if not counts:
        raise ArgumentError("The batch has no columns. Expected: one or more, all of one length.")
    if len(set(counts.values())) > 1:
        raise ArgumentError(
            f"The columns of a batch must have one length, found {counts}. Pass columns of the "
            "same rows."
        )


def _specs(columns: Columns | None) -> dict[str, _inputs.Spec | None] | None:
    """Name -> spec of a cell; None for all columns of a batch."""
    if columns is None:
        return None
    if not isinstance(columns, Mapping):
        return dict.fromkeys(_names(columns, "columns"))
    given: Nest = columns
    for name, spec in given.items():
        if not isinstance(name, str) or not (spec is None or isinstance(spec, _inputs.Spec)):
            raise ArgumentTypeError(
                f"columns must map names to a tf.TensorSpec or tf.RaggedTensorSpec of one cell, or "
                f"None; found {name!r}: {spec!r}."
            )
    return dict(columns)


def _names(names: Nest, argument: str) -> tuple[str, ...]:
    if isinstance(names, str) or not all(isinstance(name, str) for name in names):
        raise ArgumentTypeError(f"{argument} must be a list of names of columns, found {names!r}.")
    return tuple(names)
