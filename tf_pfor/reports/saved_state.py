"""The state that a body changes, as it was before: variables and lookup tables."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

from tf_pfor import _tf
from tf_pfor.core.accesses import handle_key
from tf_pfor.tracing.trace import Body

_CHANGES = frozenset(["LookupTableImportV2", "LookupTableInsertV2", "LookupTableRemoveV2"])
_DTYPES = (("Tin", "Tout"), ("Tkeys", "Tvalues"))  # attributes with the dtypes of keys and values


def saved(body: Body, variables: Sequence[tf.Variable]) -> Callable[[], None]:
    """Copies the state that a body may change, and returns a function that restores it.

    The function may be called several times.

    A table from which a body only removes keys is not restored. Its graph does not tell the dtype
    of the values, and TensorFlow ends the process for a wrong one.
    """
    values = [(v, v.read_value()) for v in variables]
    tables = [(handle, *_content(handle, *dtypes)) for handle, dtypes in _tables(body)]

    def restore() -> None:
        for variable, value in values:
            variable.assign(value)
        for handle, keys, of_keys in tables:
            # A dense table goes on in the tensors that it is given: these are new ones.
            new = (tf.constant(x, dtype) for x, dtype in (keys, of_keys))
            tf.raw_ops.LookupTableImportV2(
                table_handle=handle, **dict(zip(("keys", "values"), new, strict=True))
            )

    return restore


def _content(handle: tf.Tensor, of_keys: tf.DType, of_values: tf.DType) -> list[tuple[Any, Any]]:
    """Copies of keys and values: a dense table hands out the tensors in which it changes."""
    found = tf.raw_ops.LookupTableExportV2(table_handle=handle, Tkeys=of_keys, Tvalues=of_values)
    return [(t.numpy().copy(), t.dtype) for t in found]


def _tables(body: Body) -> list[tuple[tf.Tensor, tuple[tf.DType, tf.DType]]]:
    """The tables from outside that a body changes, with the dtypes of keys and values."""
    dtypes: dict[int, tuple[tf.DType, tf.DType]] = {}
    changed: set[int] = set()

    def visit(graph: tf.Graph, places: dict[Any, int]) -> None:
        for op in graph.get_operations():
            at = places.get(handle_key(op.inputs[0])) if op.type.startswith("LookupTable") else None
            if at is not None:
                attrs = _tf.attr_map(op)
                for names in _DTYPES:
                    if all(name in attrs for name in names):
                        dtypes[at] = tuple(op.get_attr(name) for name in names)  # type: ignore[assignment]
                changed.update([at] if op.type in _CHANGES else [])
            for inner in _tf.functions_of(op):
                first = len(op.inputs) - len(inner.inputs)
                pairs = zip(inner.inputs, op.inputs[first:], strict=True)
                known = {handle_key(i): places.get(handle_key(t)) for i, t in pairs}
                visit(inner, {k: at for k, at in known.items() if at is not None})

    handles = [(o, i) for o, i in body.captures if o.dtype == tf.resource]
    visit(body.graph, {handle_key(inside): at for at, (_, inside) in enumerate(handles)})
    return [(handles[at][0], dtypes[at]) for at in sorted(changed & dtypes.keys())]
