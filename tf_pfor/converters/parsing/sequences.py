"""``tf.io.parse_single_sequence_example``: the examples of all rows in one parse.

Sparse and ragged features are parsed as ragged ones (``examples``). A feature list has as many
steps as its example says; the values of a step may have a number of their own.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from tf_pfor.converters.parsing._batches import (
    differences,
    keys,
    listed,
    names_of,
    nothing,
    same_for_all,
    sizes_between,
    strings,
)
from tf_pfor.converters.parsing._features import ragged_vector, sparse_vector
from tf_pfor.converters.ragged._entries import longest, own_splits
from tf_pfor.converters.ragged._forms import from_padded, row_sizes
from tf_pfor.core.call import Call
from tf_pfor.core.errors import CannotVectorize
from tf_pfor.core.registry import ANY, RegisterPFor
from tf_pfor.core.values import Value
from tf_pfor.layouts.packing import masked
from tf_pfor.layouts.ragged import Ragged, shape_value

Field = tuple[bytes, tf.DType, tf.DType]
"""A key, the dtype of its values, and that of its splits where it is ragged."""


@dataclasses.dataclass(frozen=True, slots=True)
class Part:
    """The context, or the feature lists.

    Attributes:
      sparse, ragged: keys with dtypes.
      dense_keys: the keys of dense features.
      dense_shapes: the shapes of one value, or of one step.
    """

    sparse: Sequence[Field]
    ragged: Sequence[Field]
    dense_keys: Sequence[bytes]
    dense_shapes: Sequence[tf.TensorShape]

    @property
    def own_lengths(self) -> list[Field]:
        """The features that are parsed as ragged."""
        return [*self.ragged, *self.sparse]


@dataclasses.dataclass(frozen=True, slots=True)
class Parsed:
    """The kernel's results for n examples; for ragged features the values and splits."""

    dense: list[tf.Tensor]
    ragged: list[tuple[tf.Tensor, tf.Tensor]]
    lists: list[tuple[tf.Tensor, tf.Tensor]]  # dense: [n, longest, ...], with lengths [n]
    ragged_lists: list[tuple[tf.Tensor, tf.Tensor, tf.Tensor]]  # values, of steps, in a step


_V2 = (
    "Ncontext_sparse context_sparse_types context_ragged_value_types "
    "context_ragged_split_types Tcontext_dense context_dense_shapes Nfeature_list_sparse "
    "Nfeature_list_dense feature_list_dense_types feature_list_sparse_types "
    "feature_list_ragged_value_types feature_list_ragged_split_types feature_list_dense_shapes"
)
_V1 = (
    "Ncontext_sparse Ncontext_dense Nfeature_list_sparse Nfeature_list_dense "
    "context_sparse_types Tcontext_dense feature_list_dense_types context_dense_shapes "
    "feature_list_sparse_types feature_list_dense_shapes"
)
_KEYS = (
    "context_sparse_keys",
    "context_dense_keys",
    "feature_list_sparse_keys",
    "feature_list_dense_keys",
    "feature_list_dense_missing_assumed_empty",
    "context_dense_defaults",
)


@RegisterPFor("ParseSequenceExampleV2", ANY, attrs=_V2)
def parse_sequence_examples_v2(call: Call, serialized: Value, *_: object) -> Any:
    """One example in each row."""
    same_for_all(call, *_KEYS, "context_ragged_keys", "feature_list_ragged_keys")
    parts = [
        Part(
            _fields(keys(call, f"{name}_sparse_keys"), call.attr(f"{name}_sparse_types")),
            _fields(
                keys(call, f"{name}_ragged_keys"),
                call.attr(f"{name}_ragged_value_types"),
                call.attr(f"{name}_ragged_split_types"),
            ),
            keys(call, f"{name}_dense_keys"),
            call.attr(f"{name}_dense_shapes"),
        )
        for name in ("context", "feature_list")
    ]
    may_miss = call.value("feature_list_dense_missing_assumed_empty")
    values = _converted(call, serialized, parts, may_miss.tensor)
    return [v for column in values for v in column]


@RegisterPFor("ParseSingleSequenceExample", ANY, attrs=_V1)
def parse_single_sequence_example(call: Call, serialized: Value, *_: object) -> Any:
    """One example in each row; the lists that may be missing are given by their keys."""
    same_for_all(call, *_KEYS)
    parts = [
        Part(
            _fields(listed(call, f"{name}_sparse_keys"), call.attr(f"{name}_sparse_types")),
            (),
            listed(call, f"{name}_dense_keys"),
            call.attr(f"{name}_dense_shapes"),
        )
        for name in ("context", "feature_list")
    ]
    empty = keys(call, "feature_list_dense_missing_assumed_empty")
    may_miss = call.emit.constant(np.asarray([k in empty for k in parts[1].dense_keys], np.bool_))
    columns = _converted(call, serialized, parts, may_miss)
    without_lengths = [*columns[:4], *columns[6:10]]
    return [v for column in without_lengths for v in column]


def _fields(
    names: Iterable[bytes], types: Iterable[tf.DType], splits: Iterable[tf.DType] | None = None
) -> list[Field]:
    types = list(types)
    return list(
        zip(names, types, [tf.int64] * len(types) if splits is None else splits, strict=True)
    )


def _converted(
    call: Call, serialized: Value, parts: Sequence[Part], may_miss: tf.Tensor
) -> list[list[Value]]:
    """The results by kind, in the order of the outputs of ParseSequenceExampleV2."""
    if not serialized.is_stacked or call.require_rank(serialized, "'serialized'") != 0:
        raise CannotVectorize("each iteration has a vector of examples")
    context, lists = parts
    if context.own_lengths or lists.own_lengths or lists.dense_keys:
        call.require_packed()
    names = names_of(call, "debug_name", [call.loop.length])
    n_ragged = len(context.ragged), len(lists.ragged)
    with call.emit.as_default():
        found = _parsed(call, serialized.tensor, names, parts, may_miss)
        sparse = [sparse_vector(call, *x) for x in found.ragged[n_ragged[0] :]]
        ragged = [ragged_vector(call, *x) for x in found.ragged[: n_ragged[0]]]
        steps = [_dense_list(call, *x) for x in found.lists]
        sparse_lists = [_sparse_list(call, *x) for x in found.ragged_lists[n_ragged[1] :]]
        ragged_lists = [
            _ragged_list(call, *x, dtype=f[2])
            for x, f in zip(found.ragged_lists[: n_ragged[1]], lists.ragged, strict=True)
        ]
        return [
            *_columns(sparse, 3),
            [Value.stacked(x) for x in found.dense],
            ragged,
            [nothing(call, dtype) for *_, dtype in context.ragged],
            *_columns(sparse_lists, 3),
            *_columns(steps, 2),
            *_columns(ragged_lists, 3),
        ]


def _columns(rows: Sequence[Sequence[Value]], count: int) -> list[list[Value]]:
    return [[row[i] for row in rows] for i in range(count)]


def _parsed(
    call: Call, serialized: tf.Tensor, names: tf.Tensor, parts: Sequence[Part], may_miss: tf.Tensor
) -> Parsed:
    """Parses examples [n], in one op."""
    context, lists = parts
    own, own_lists = context.own_lengths, lists.own_lengths
    defaults: Any = call.inputs["context_dense_defaults"]
    empty = strings(call, [])
    inputs: dict[str, Any] = {
        "serialized": serialized,
        "debug_name": names,
        "context_sparse_keys": empty,
        "context_dense_keys": strings(call, context.dense_keys),
        "context_ragged_keys": strings(call, [key for key, *_ in own]),
        "feature_list_sparse_keys": empty,
        "feature_list_dense_keys": strings(call, lists.dense_keys),
        "feature_list_ragged_keys": strings(call, [key for key, *_ in own_lists]),
        "feature_list_dense_missing_assumed_empty": may_miss,
        "context_dense_defaults": [v.tensor for v in defaults],
    }
    attrs: dict[str, Any] = {
        "context_ragged_value_types": [dtype for _, dtype, _ in own],
        "context_ragged_split_types": [tf.int32] * len(own),
        "context_dense_shapes": context.dense_shapes,
        "Nfeature_list_dense": len(lists.dense_keys),
        "feature_list_dense_types": call.attr("feature_list_dense_types"),
        "feature_list_dense_shapes": lists.dense_shapes,
        "feature_list_ragged_value_types": [dtype for _, dtype, _ in own_lists],
        "feature_list_ragged_split_types": [tf.int32] * len(own_lists),
    }

    def parse() -> list[tf.Tensor]:
        return tf.nest.flatten(tf.raw_ops.ParseSequenceExampleV2(**inputs, **attrs))

    n = call.loop.length
    if not context.dense_keys or (isinstance(n, int) and n):
        made = parse()
    else:  # the kernel makes an error of no examples
        nothing_parsed = lambda: _of_no_examples(attrs, [v.dtype for v in defaults])  # noqa: E731
        made = tf.cond(tf.equal(n, 0), nothing_parsed, parse)
    supply = iter(made)

    def take(kinds: int, count: int) -> list[Any]:
        columns = [[next(supply) for _ in range(count)] for _ in range(kinds)]
        return list(zip(*columns, strict=True))

    return Parsed(
        [x for (x,) in take(1, len(context.dense_keys))],
        take(2, len(own)),
        take(2, len(lists.dense_keys)),
        take(3, len(own_lists)),
    )


def _of_no_examples(attrs: dict[str, Any], dense_types: Sequence[tf.DType]) -> list[tf.Tensor]:
    """The results that the kernel would return for no examples."""
    own, steps = attrs["context_ragged_value_types"], attrs["feature_list_dense_types"]
    own_lists = attrs["feature_list_ragged_value_types"]
    start = tf.zeros([1], tf.int32)
    shapes, step_shapes = attrs["context_dense_shapes"], attrs["feature_list_dense_shapes"]
    return [
        *[tf.zeros([0, *s], dtype) for s, dtype in zip(shapes, dense_types, strict=True)],
        *[tf.zeros([0], dtype) for dtype in own],
        *[start for _ in own],
        *[tf.zeros([0, 0, *s], dtype) for s, dtype in zip(step_shapes, steps, strict=True)],
        *[tf.zeros([0], tf.int64) for _ in steps],
        *[tf.zeros([0], dtype) for dtype in own_lists],
        *[start for _ in (*own_lists, *own_lists)],
    ]


# ---------------------------------------------------------------------------
# Feature lists, as a row sees them
# ---------------------------------------------------------------------------


def _dense_list(call: Call, padded: tf.Tensor, lengths: tf.Tensor) -> list[Value]:
    """[steps, ...] of each row, and how many steps it has."""
    size = row_sizes(call, tf.cast(lengths, tf.int32))
    return [
        from_padded(masked(padded, [size]), [size], is_clean=True),
        Value.stacked(lengths),
    ]


def _sparse_list(call: Call, values: tf.Tensor, steps: tf.Tensor, inside: tf.Tensor) -> list[Value]:
    """Indices [k, 2], values [k] and the shape (steps, most in a step) of each row.

    Args:
      call: the call.
      values: the values of all rows.
      steps: int32 [n + 1], the begins of the rows' steps.
      inside: int32 [total + 1], the begins of the steps' values.
    """
    size, counts = sizes_between(call, steps), differences(call, inside)
    total = sizes_between(call, tf.gather(inside, steps))
    step = tf.repeat(tf.range(tf.shape(counts)[0]), counts)  # of which step each value is
    first = tf.gather(steps, total.rows)  # the first step of its row
    column = tf.range(tf.shape(values)[0]) - tf.gather(inside, step)
    indices = tf.cast(tf.stack([step - first, column], 1), tf.int64)
    most = longest(call, counts, size)
    return [
        Ragged.packed(indices, [total]),
        Ragged.packed(values, [total]),
        shape_value(call.emit, [size, most], tf.int64),
    ]


def _ragged_list(
    call: Call, values: tf.Tensor, steps: tf.Tensor, inside: tf.Tensor, dtype: tf.DType
) -> list[Value]:
    """Values of each row, no splits of examples, and where steps begin, [steps + 1]."""
    own, total = own_splits(call, tf.cast(inside, dtype), sizes_between(call, steps))
    return [Ragged.packed(values, [total]), nothing(call, dtype), own]
