"""Products of matrices: with zeros where rows have no more elements."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import tensorflow as tf

from tf_pfor.converters.ragged._forms import agreed, broadcast_size, from_padded, padded, with_sizes
from tf_pfor.core.call import Call
from tf_pfor.core.errors import CannotVectorize
from tf_pfor.core.values import Value
from tf_pfor.layouts.ragged import Ragged, RowSizes, Size
from tf_pfor.layouts.ragged_rules import ragged_rule
from tf_pfor.layouts.row_sizes import is_one

_PRODUCTS = ("MatMul", "BatchMatMul", "BatchMatMulV2", "BatchMatMulV3")
_NARROW = 32  # columns


@ragged_rule(" ".join(_PRODUCTS))
def matmul(call: Call, a: Value, b: Value) -> Any:
    """By a matrix that all rows share: packed. Else padded; zeros on both sides are contracted."""
    is_mat_mul = call.op_type == "MatMul"
    names = ("transpose_a", "transpose_b") if is_mat_mul else ("adj_x", "adj_y")
    flip_a, flip_b = (bool(call.attr(name)) for name in names)
    turns = ("transpose_a", "transpose_b") if is_mat_mul else ("adjoint_a", "adjoint_b")
    rank_a, rank_b = a.rank, b.rank
    rank = max(rank_a, rank_b)
    if is_packed_product(call, a, b, flip_a):
        assert isinstance(a, Ragged)
        if _stays_padded(call, a):
            made = _multiplied(a.in_rows, b.tensor, {turns[1]: flip_b})
            return from_padded(made, a.sizes, is_clean=True)
        made = _multiplied(_as_matrix(a), b.tensor, {turns[1]: flip_b})
        if a.tensor.shape.rank == 2:
            return Ragged.packed(made, a.sizes)
        shape = tf.concat([tf.shape(a.tensor)[:-1], tf.shape(made)[-1:]], 0)
        full = tf.reshape(made, shape)
        full.set_shape([*a.tensor.shape[:-1], made.shape[-1]])
        return Ragged.packed(full, a.sizes)
    batch: list[Any] = []
    for i in range(rank - 2):
        at_a, at_b = i - rank + rank_a, i - rank + rank_b
        if min(at_a, at_b) >= 0:
            a, b = agreed(call, (a, at_a), (b, at_b))
        batch.append(broadcast_size([a.size_at(at_a), b.size_at(at_b)], i))
    inner = (rank_a - 2 if flip_a else rank_a - 1), (rank_b - 1 if flip_b else rank_b - 2)
    a, b = agreed(call, *with_sizes(call, (a, inner[0]), (b, inner[1])))
    rows_a, inner_a = (a.size_at(rank_a - 2), a.size_at(rank_a - 1))
    inner_b, cols_b = (b.size_at(rank_b - 2), b.size_at(rank_b - 1))
    rows = inner_a if flip_a else rows_a
    cols = inner_b if flip_b else cols_b
    sizes = _known([*batch, rows, cols])
    x, y = (padded(call, v, rank) for v in _contracted(a, b))
    made = _multiplied(x, y, dict(zip(turns, (flip_a, flip_b))))
    return from_padded(made, sizes, is_tame=True)  # of numbers that are finite where rows are


def _multiplied(x: Any, y: Any, turns: Mapping[str, Any]) -> tf.Tensor:
    """Products of batches of matrices; of one matrix by many these are one batch of rank 3.

    TensorFlow's kernel (2.21 with oneDNN) is wrong, or ends the process, for [n, 1, a, b] by
    [1, 1, b, c].

    Args:
      x: the matrices on the left.
      y: the matrices on the right.
      turns: the options of ``tf.matmul``. MatMul transposes, BatchMatMul conjugates as well.
    """

    def is_one(t: Any) -> bool:
        return all(size == 1 for size in t.shape[:-2])

    def folded(t: Any) -> Any:
        return tf.reshape(t, tf.concat([[1 if is_one(t) else -1], tf.shape(t)[-2:]], 0))

    if max(x.shape.rank, y.shape.rank) <= 3 or not (is_one(x) or is_one(y)):
        return tf.matmul(x, y, **turns)
    made = tf.matmul(folded(x), folded(y), **turns)
    batch = tf.broadcast_static_shape(x.shape[:-2], y.shape[:-2])
    full = tf.broadcast_dynamic_shape(tf.shape(x)[:-2], tf.shape(y)[:-2])
    found = tf.reshape(made, tf.concat([full, tf.shape(made)[-2:]], 0))
    found.set_shape([*batch, *made.shape[-2:]])
    return found


def _contracted(a: Value, b: Value) -> tuple[Value, Value]:
    """Both in their padded form, of which one has zeros in the padding, the other finite numbers.

    So has the gradient of each: what flows back from the padding of the result is zero.
    """
    if isinstance(a, Ragged) and a.is_tame and isinstance(b, Ragged):
        return Value.stacked(a.in_any_rows), b
    if isinstance(b, Ragged) and b.is_tame and isinstance(a, Ragged):
        return a, Value.stacked(b.in_any_rows)
    return a, b


def is_packed_product(call: Call, a: Value, b: Value, flip_a: bool) -> bool:
    """Whether the rows of all matrices a can be multiplied by one matrix b."""
    if not call.uses_packed or not isinstance(a, Ragged) or b.is_stacked or flip_a:
        return False
    return b.rank == 2 and a.n_leading < a.rank


def _stays_padded(call: Call, a: Value) -> bool:
    """Whether a narrow product is only read by products of two ragged values, as in attention.

    These need the padded form. Where ``a`` is in that form alone, the two copies that would
    change the form take longer than multiplying the padding.
    """
    assert isinstance(a, Ragged)
    width = a.size_at(a.rank - 1)
    if not a.is_padded or not isinstance(width, int) or width > _NARROW:
        return False
    (output,) = call.op.outputs
    readers = output.consumers()
    return bool(readers) and all(
        reader.type in _PRODUCTS
        and all(x.op.type in (*_PRODUCTS, "Softmax") for x in reader.inputs if x is not output)
        for reader in readers
    )


def _as_matrix(a: Ragged) -> tf.Tensor:
    width = a.tensor.shape[-1]
    if a.tensor.shape.rank == 2:
        return a.tensor
    return tf.reshape(a.tensor, [-1, tf.shape(a.tensor)[-1] if width is None else width])


def _known(sizes: Sequence[Any]) -> list[Size]:
    """Sizes up to the last one that differs, none of which may be unknown."""
    found = list(sizes)
    while found and not isinstance(found[-1], RowSizes):
        found.pop()
    if any(s is None for s in found):
        raise CannotVectorize("the size of an axis is not known before running")
    return found


@ragged_rule("Einsum")
def einsum(call: Call, inputs: list[Value]) -> Any:
    """The equation with one letter more, for the rows."""
    inputs = [*inputs]
    equation = call.attr("equation").replace(" ", "")
    if "->" not in equation:
        raise CannotVectorize("its equation does not name the result")
    left, result = equation.split("->")
    terms = left.split(",")
    row = next(c for c in "zyxwvutsrqponm" if c not in equation)
    sizes: dict[Any, Any] = {}
    names = [_axes_of(term, value) for term, value in zip(terms, inputs)]
    for name in dict.fromkeys(name for axes in names for name in axes):
        places = [(k, axes.index(name)) for k, axes in enumerate(names) if name in axes]
        for (k, _), value in zip(places, agreed(call, *((inputs[k], i) for k, i in places))):
            inputs[k] = value
    for axes, value in zip(names, inputs):
        for i, name in enumerate(axes):
            size = value.size_at(i)
            known = sizes.get(name, size)
            differs = isinstance(size, RowSizes) or isinstance(known, RowSizes)
            may_spread = isinstance(name, int)
            sizes[name] = broadcast_size([known, size], i) if differs or may_spread else known
            if differs and not may_spread and (is_one(size) or is_one(known)):
                raise CannotVectorize("an axis of size one meets one that differs")
    spread = sorted(name for name in sizes if isinstance(name, int))
    if spread and "..." not in result:
        raise CannotVectorize("axes that its equation does not name are summed")
    tensors = [padded(call, v, v.rank) for v in inputs]
    marked = [(row if v.is_stacked else "") + t for t, v in zip(terms, inputs)]
    made = tf.einsum(",".join(marked) + "->" + row + result, *tensors)
    front, _, behind = result.partition("...")
    axes = [*front, *(spread if "..." in result else ()), *behind]
    return from_padded(made, _known([sizes[name] for name in axes]))


def _axes_of(term: str, value: Value) -> list[Any]:
    """The names of an operand's axes: letters, and negative numbers for axes of an ellipsis."""
    front, dots, behind = term.partition("...")
    count = value.rank - len(front) - len(behind)
    if count < 0 or (count and not dots) or len({*front, *behind}) != len(front + behind):
        raise CannotVectorize("an input is not of the rank that its equation says")
    return [*front, *range(-count, 0), *behind]
