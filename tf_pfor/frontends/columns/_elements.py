"""Elements one by one as batches, and batches as elements, for engines that have no columns."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any

import tensorflow as tf

from tf_pfor.core.errors import ArgumentError, ArgumentTypeError
from tf_pfor.core.nests import Nest
from tf_pfor.frontends.columns import _inputs, _results
from tf_pfor.frontends.columns._function import Mapped
from tf_pfor.tracing.user_code import autographed

_no_autograph = tf.autograph.experimental.do_not_convert


class ElementsFunction:
    """A function of one element as a function of a list of elements.

    Elements are cells (numbers, texts, lists, arrays) in dicts and tuples.
    """

    def __init__(
        self, fn: Callable[..., Any], spec: Nest, options: Mapping[str, Any], binary: bool
    ):
        self._made = fn, spec, options, binary
        self._mapped = Mapped(_reads_elements(fn), options)

    def __reduce__(self) -> tuple[Any, ...]:
        """Leaves out the traces: each process traces ``fn`` again."""
        return ElementsFunction, self._made

    def __call__(self, elements: Sequence[Nest]) -> list[Any]:
        """The result of each element."""
        _, spec, _, binary = self._made
        if not elements:
            return []
        found, dense = self._mapped(_batch(elements, spec, ""))
        leaves = [
            _results.Cells(
                f"result {k}", x, is_dense=is_dense, binary=[f"result {k}"] if binary else ()
            ).as_numpy()
            for k, (x, is_dense) in enumerate(zip(tf.nest.flatten(found), tf.nest.flatten(dense)))
        ]
        cells = [x.tolist() if x.ndim == 1 else [*x] for x in leaves]
        return _rows(tf.nest.pack_sequence_as(found, [_Leaf(c) for c in cells]))


class _Leaf:
    """The cells of one tensor: a leaf of a nest, which a list would not be."""

    def __init__(self, cells: list[Any]):
        self.cells = cells


def _batch(elements: Sequence[Nest], spec: Nest, name: str) -> Any:
    """The nest of an element with a batch in the place of each cell."""
    first = elements[0]
    if not isinstance(first, (Mapping, tuple)):
        return _inputs.tensors(elements, name or "element", spec)
    keys: list[Any] = [*first] if isinstance(first, Mapping) else [*range(len(first))]
    for other in elements:
        if type(other) is not type(first) or len(other) != len(keys):
            raise _differ(name, first, other)
    made: list[Any] = []
    for key in keys:
        try:
            column = [element[key] for element in elements]
        except KeyError:
            other = next(x for x in elements if key not in x)
            raise _differ(name, first, other) from None
        path = f"{name}.{key}" if name else str(key)
        made.append(_batch(column, _part(spec, key), path))
    if isinstance(first, Mapping):
        return dict(zip(keys, made))
    return type(first)(*made) if hasattr(first, "_fields") else tuple(made)


def _part(spec: Nest, key: Hashable) -> Any:
    """The spec of a part of an element; None where the user gave none."""
    if spec is None:
        return None
    if isinstance(spec, Mapping) and isinstance(key, str):
        return spec.get(key)
    if isinstance(spec, tuple) and isinstance(key, int) and key < len(spec):
        return spec[key]
    raise ArgumentTypeError(
        f"spec is {spec!r} where elements have a part {key!r}. Expected: specs in the nest of an "
        "element, with None for a part without one."
    )


def _differ(name: str, first: Nest, other: Nest) -> ArgumentError:
    return ArgumentError(
        f"The {name or 'element'} is {_shown(first)}, and in another element {_shown(other)}. "
        "Expected: elements of one structure. Give all of them the same keys, or split them."
    )


def _shown(x: Nest) -> str:
    if isinstance(x, Mapping):
        return f"a dict with the keys {sorted(map(str, x))}"
    return f"a tuple of {len(x)}" if isinstance(x, tuple) else f"a {type(x).__name__}"


def _rows(nest: Nest) -> list[Any]:
    """The nest of each element."""
    if isinstance(nest, _Leaf):
        return nest.cells
    parts = [_rows(part) for part in (nest.values() if isinstance(nest, Mapping) else nest)]
    if isinstance(nest, Mapping):
        return [dict(zip(nest, values)) for values in zip(*parts)]
    if isinstance(nest, tuple) and hasattr(nest, "_fields"):
        return [type(nest)(*values) for values in zip(*parts)]
    return [type(nest)(values) for values in zip(*parts)]


def _reads_elements(fn: Callable[..., Any]) -> Callable[..., Any]:
    converted = autographed(fn)

    @_no_autograph
    def one(row: Nest) -> Any:
        made = converted(_inputs.Row(row) if isinstance(row, dict) else row)
        leaves = [_results.tensor_of(x, "a part of its result") for x in tf.nest.flatten(made)]
        if not leaves:
            raise ArgumentTypeError(
                f"The function returned {made!r}, expected tensors, also in dicts and tuples."
            )
        return tf.nest.pack_sequence_as(made, leaves)

    return one
