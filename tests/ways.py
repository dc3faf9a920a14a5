"""Tables of functions of a row: each case in each way to run it, against a call for each row.

A way is a phrase. Its words say

- the place of the map: "function", "unknown n", "unknown sizes", "compiled", "dataset", else eager;
- the rows: "no rows", "one row", "few rows" (also these two, by the same trace), else all;
- the mapper: "vmap", "pfor", "two maps", "each twice", "in a map", else ``vectorized_map``;
- an option: "chunks", "compact", "mask";
- the function: the "sum" of all results, or the gradients "inside" of it, else the body;
- the tape: "around" the map, or "twice around" it.
"""

from __future__ import annotations

import collections
import dataclasses
from collections.abc import Callable, Collection, Mapping
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import tf_pfor
from tests.comparisons import (
    first_rows,
    flat,
    gradient_of,
    mapped,
    of_unknown_n,
    row_at,
    rows_of,
    strict,
    strict_map,
)

LOOP = {"fallback": "loop", "warn": False}


@dataclasses.dataclass(frozen=True)
class How:
    """Settings of a comparison.

    Attributes:
      tolerance: relative and absolute, of values.
      slopes: the same of gradients; None if it does not differ.
      by: sources of gradients around, beside the floats of the rows.
      places: the arguments by which gradients inside are taken; all floats if it is None.
      eager: whether the calls for each row are eager.
      specs: the signature of a map of unknown sizes, if it is another one.
      options: options of the map.
    """

    tolerance: tuple[float, float] = (1e-5, 1e-6)
    slopes: tuple[float, float] | None = None
    by: tuple[Any, ...] = ()
    places: tuple[int, ...] | None = None
    eager: bool = False
    specs: tuple[Any, ...] = ()
    options: Mapping[str, Any] = dataclasses.field(default_factory=dict)


def table_of(
    bodies: Mapping[str, Any] | Collection[Callable[..., Any]],
    *args: Any,
    ways: Collection[str],
    only: Mapping[str, Collection[str]] | None = None,
    but: Mapping[str, Collection[str]] | None = None,
    looped: Collection[str] | Mapping[str, Collection[str]] = (),
    **how: Any,
) -> Callable[..., None]:
    """A test function: each body in each way. A case is named by kind, way and body.

    Args:
      bodies: functions by name, or functions; or pairs of a function and its arguments.
      *args: the arguments of bodies that have no others; axis 0 is the loop.
      ways: phrases.
      only: the names of bodies of a way, if not all.
      but: the names of bodies that a way leaves out.
      looped: ways where a loop over rows is allowed, of all bodies or of these.
      **how: ``How``.
    """
    cases, only, but = named(bodies, args), only or {}, but or {}
    runs = {w: set(only.get(w, cases)) - set(but.get(w, ())) for w in ways}
    rows = [(w, k) for w in ways for k in cases if k in runs[w]]
    unknown = {k for names in (*only.values(), *but.values()) for k in names} - set(cases)
    assert not unknown | ({*only, *but, *looped} - set(ways)), unknown

    @pytest.mark.parametrize(("way", "name"), rows, ids=[f"{kind(w)}-{w}-{k}" for w, k in rows])
    def test(way: str, name: str) -> None:
        may_loop = way in looped and (not isinstance(looped, Mapping) or name in looped[way])
        options = {**how.get("options", {}), **(LOOP if may_loop else {})}
        check(way, *cases[name], How(**{**how, "options": options}))

    return test


def errors_of(
    bodies: Mapping[str, Any],
    *args: Any,
    match: str = "",
    way: str = "eager",
    error: type[Exception] = tf.errors.InvalidArgumentError,
    **options: Any,
) -> Callable[[str], None]:
    """A test function: the map of each body is an error.

    Args:
      bodies: functions by name, or pairs of a function and its arguments, or with a text as well.
      *args: the arguments of bodies that have no others.
      match: the text of errors that have no other.
      way: a phrase.
      error: the type of the errors.
      **options: options of the map.
    """
    texts = {k: e[2] if isinstance(e, tuple) and len(e) == 3 else match for k, e in bodies.items()}
    cases = named({k: e[:2] if isinstance(e, tuple) else e for k, e in bodies.items()}, args)

    @pytest.mark.parametrize("name", cases)
    def test(name: str) -> None:
        body, given = cases[name]
        with pytest.raises(error, match=texts[name] or None):
            place(way, map_of(way, body, options), given, ())(*given)

    return test


def named(bodies: Any, args: tuple[Any, ...]) -> dict[str, tuple[Callable[..., Any], Any]]:
    """The function and the arguments of each body."""
    if not isinstance(bodies, Mapping):
        bodies = {body.__name__: body for body in bodies}
    pairs = {k: e if isinstance(e, tuple) else (e, args) for k, e in bodies.items()}
    return {k: (f, a if isinstance(a, tuple) else (a,)) for k, (f, a) in pairs.items()}


def check(way: str, body: Callable[..., Any], args: tuple[Any, ...], how: How) -> None:
    """Compares a map of a body with a call for each row."""
    n = 0 if "no rows" in way else 1 if "one row" in way else None
    n = args[0].shape[0] // 2 * 2 if "two maps" in way else n
    args = tuple(first_rows(a, n) for a in args)
    one = total_of(body) if "sum" in way else body
    one = slopes_of(one, how.places) if "inside" in way else one
    run = map_of(way, each_twice(one) if "each twice" in way else one, how.options)
    if "around" in way:
        columns = lambda *a: list(zip(*map(tf.nest.flatten, rows_of(one, *a, eager=how.eager))))  # noqa: E731
        for _ in range(1 + ("twice" in way)):
            run, columns = (slopes_around(f, how.by) for f in (run, columns))
        assert (found := place(way, run, args, how.specs)(*args)), "there is no source"
        for got, want in zip(found, columns(*args), strict=True):
            assert (got.dtype, got.shape) == (want.dtype, want.shape)
            np.testing.assert_allclose(got, want, *(how.slopes or how.tolerance))
        return
    rows, kinds = rows_of(one, *args, eager=how.eager), set()
    if "dataset" in way and all(isinstance(a, tf.Tensor) for a in args):
        size = max(1, len(rows) - 1)  # the last batch is smaller
        batches = tf.data.Dataset.from_tensor_slices(args).batch(size).map(run)
        for k, found in enumerate(batches):
            assert_same_rows(found, rows[k * size : (k + 1) * size], *how.tolerance)
        return
    placed = place(way, run, args, how.specs)
    for count in [n, 0, 1] if "few rows" in way else [n]:
        found = placed(*(first_rows(a, count) for a in args))
        tolerance = how.slopes if "inside" in way and how.slopes else how.tolerance
        assert_same_rows(found, rows[:count], *tolerance)
        kinds.add(tuple(map(type, tf.nest.flatten(found))))
    assert len({tuple(k is tf.RaggedTensor for k in kind) for kind in kinds}) == 1


def map_of(way: str, one: Callable[..., Any], options: Mapping[str, Any]) -> Callable[..., Any]:
    """A map of a function of a row: a function of all rows."""
    strategies = [{"while_strategy": word} for word in ("compact", "mask") if word in way]
    options = dict(collections.ChainMap(*strategies, dict(options)))
    if "vmap" in way:
        return strict(one, **options)
    if "pfor" in way:

        def by_number(*args: Any) -> Any:
            def numbered(i: tf.Tensor) -> Any:
                return one(*tf.nest.map_structure(lambda a: tf.gather(a, i), args))

            return tf_pfor.pfor(numbered, args[0].shape[0], **options)

        return by_number
    if "two maps" in way:  # each pair of rows

        def pairs(*args: Any) -> Any:
            halves = tuple(tf.reshape(a, [a.shape[0] // 2, 2, *a.shape[1:]]) for a in args)
            inner = lambda rows: mapped(one, *rows, **options)  # noqa: E731
            found = strict_map(inner, halves, **options)
            return tf.nest.map_structure(joined_pairs, found)

        return pairs
    if "in a map" in way:

        def twice(*args: Any) -> Any:
            found = strict_map(lambda _: mapped(one, *args, **options), tf.range(2), **options)
            return tf.nest.map_structure(lambda x: x[1], found)

        return twice
    if "chunks" in way:  # the last one is smaller
        return lambda *args: mapped(one, *args, chunk_size=rows_in(args) - 1, **options)
    return lambda *args: mapped(one, *args, **options)


def rows_in(args: tuple[Any, ...]) -> int:
    """The number of rows, which is known before running."""
    return args[0].shape[0] if args[0].shape[0] is not None else int(args[0].nrows())


def each_twice(one: Callable[..., Any]) -> Callable[..., Any]:
    """The function of a row, in a map over the row and the same row again."""

    def both(*row: Any) -> Any:
        found = mapped(one, *(tf.stack([x, x]) for x in row))
        return tf.nest.map_structure(lambda x: x[1], found)

    return both


def joined_pairs(x: Any) -> Any:
    """The rows of pairs of rows."""
    if isinstance(x, tf.RaggedTensor):
        return x.merge_dims(0, 1)
    return tf.reshape(x, [-1, *x.shape[2:]])


def place(way: str, run: Callable[..., Any], args: tuple[Any, ...], specs: Any) -> Any:
    """A function of all rows, where the way says."""
    if "unknown" in way:
        of = of_unknown_n if "unknown n" in way else of_unknown_sizes
        signature = specs or [of(a) for a in args]
        options = {"input_signature": signature, "jit_compile": "compiled" in way or None}
        return tf.function(run, autograph=False, **options)
    if "dataset" in way:
        return lambda *args: next(iter(tf.data.Dataset.from_tensors(args).map(run)))
    if "function" in way or "compiled" in way:
        return tf.function(run, autograph=False, jit_compile="compiled" in way or None)
    return run


def of_unknown_sizes(x: Any) -> Any:
    """The spec of a tensor or of ragged rows, of which the rank is known."""
    if isinstance(x, tf.RaggedTensor):
        return tf.RaggedTensorSpec([None] * len(x.shape), x.dtype, x.ragged_rank)
    return tf.TensorSpec([None] * len(x.shape), x.dtype)


def total(function: Callable[[tf.Tensor], tf.Tensor], results: Any) -> tf.Tensor:
    """The sum of a function over all floats of results."""
    parts = [getattr(x, "flat_values", getattr(x, "values", x)) for x in tf.nest.flatten(results)]
    sums = [tf.reduce_sum(function(x)) for x in parts if x.dtype.is_floating]
    return tf.add_n(sums) if sums else tf.constant(0.0)


def total_of(body: Callable[..., Any]) -> Callable[..., tf.Tensor]:
    """The sum of x cos x over all numbers that a body gives."""

    def one(*row: Any) -> tf.Tensor:
        return total(lambda x: x * tf.cos(x), body(*row))

    return one


def slopes_of(body: Callable[..., Any], places: tuple[int, ...] | None) -> Callable[..., Any]:
    """The gradients of the sum of sines of a body's results, taken in the body."""

    def slopes(*row: Any) -> list[tf.Tensor]:
        chosen = range(len(row)) if places is None else places
        sources = [row[i] for i in chosen if row[i].dtype.is_floating]
        with tf.GradientTape() as tape:
            tape.watch(sources)
            loss = total(tf.sin, body(*row))  # called here: AutoGraph converts it
        return tape.gradient(loss, sources, unconnected_gradients="zero")

    return slopes


def slopes_around(run: Callable[..., Any], by: tuple[Any, ...]) -> Callable[..., Any]:
    """The gradients of a weighted sum of all results, by the floats of the rows and by others."""

    def slopes(*args: Any) -> list[tf.Tensor]:
        sources = [getattr(a, "flat_values", a) for a in args if a.dtype.is_floating]

        def weighted() -> tf.Tensor:
            x = flat(run(*args))
            x = tf.sin(tf.where(tf.math.is_finite(x), x, 0.0))
            return tf.reduce_sum(x * tf.cos(tf.range(tf.cast(tf.size(x), x.dtype))))

        found = gradient_of(weighted, [*sources, *by], unconnected_gradients="zero")
        return [tf.convert_to_tensor(g) for g in found]

    return slopes


def assert_same_rows(found: Any, rows: list[Any], rtol: float = 1e-5, atol: float = 1e-6) -> None:
    """The results of a map are these rows: of the same dtypes, sizes and values."""
    columns = tf.nest.flatten(found)
    for column in columns:
        assert int(tf.shape(column)[0]) == len(rows)
    for i, row in enumerate(rows):
        for column, want in zip(columns, tf.nest.flatten(row), strict=True):
            assert_same(row_at(column, i), want, rtol, atol)


def assert_same(got: Any, want: Any, rtol: float, atol: float) -> None:
    """Two tensors, dense, ragged or sparse, have the same dtype, sizes and values."""
    want = tf.convert_to_tensor(want) if isinstance(want, float | int | np.ndarray) else want
    assert got.dtype == want.dtype
    if isinstance(want, tf.SparseTensor):
        np.testing.assert_array_equal(got.indices, want.indices)
        got, want = got.values, want.values
    if isinstance(got, tf.RaggedTensor) or isinstance(want, tf.RaggedTensor):
        (sizes, numbers), (wanted, others) = map(nested, (got, want))
        assert sizes == wanted
    else:
        assert got.shape == want.shape
        numbers, others = got.numpy(), want.numpy()
    if want.dtype.is_floating or want.dtype.is_complex:
        np.testing.assert_allclose(numbers, others, rtol, atol)
    else:
        np.testing.assert_array_equal(numbers, others)


def nested(x: Any) -> tuple[Any, list[Any]]:
    """The sizes of nested lists, and what is in them."""
    if not isinstance(x, list):
        x = x.to_list() if isinstance(x, tf.RaggedTensor) else x.numpy().tolist()
    if not isinstance(x, list):
        return (), [x]
    parts = [nested(part) if isinstance(part, list) else ((), [part]) for part in x]
    return (len(x), *(sizes for sizes, _ in parts)), [v for _, vs in parts for v in vs]


def kind(way: str) -> str:
    """The kind of a way: as a function of tests, it is chosen by itself for ``make test``."""
    what = next((word for word in ("around", "inside") if word in way), "values")
    return f"compiled {what}" if "compiled" in way else what
