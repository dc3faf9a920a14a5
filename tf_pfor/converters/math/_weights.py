"""Weights that several steps multiply by, kept transposed and in blocks (decisions/0011).

TensorFlow's CPU kernel multiplies by a transposed matrix more slowly than by an upright one. The
gradient of x W by x is dz W^T. A gradient that is vectorized reads W^T, which was made once. A
gradient that a tape takes later of a loop does so, too: a product in the loop registers its
gradient.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from tf_pfor import _tf
from tf_pfor._tf import _graphs
from tf_pfor.converters.analysis._loop_graphs import effects, source
from tf_pfor.core.accesses import QUERIES, READS
from tf_pfor.core.call import Call
from tf_pfor.core.emit import Emitter
from tf_pfor.core.values import Value, dims, is_static, known_dims

_GRADIENT = "TfPforProductByWeight"
_COLUMNS = "_tf_pfor_columns"  # how many blocks of columns the product is made in

# Where an upright matrix is faster than a transposed one by more than a share of its transpose.
_ROWS = range(16, 1025)
_LEAST = 64 * 64

# A larger matrix does not stay in a core's cache beside the rows; so many columns of it do.
LARGE = 128 * 1024
_BLOCK = 256
_USES = 3


def transposed_once(call: Call, b: Value, rows: int | None) -> tf.Tensor | None:
    """B^T, where B is the weight of several steps; None if it does not pay.

    Args:
      call: the call.
      b: the invariant matrix.
      rows: the number of rows that it multiplies; the number of all rows in a loop that rows leave.
    """
    if not _pays(call, b, rows):
        return None
    tensor = b.tensor
    if not tf.is_symbolic_tensor(tensor):
        return None
    tensor, uses = _same_read(call, tensor)
    if uses < _USES and tensor.graph is call.emit.graph:  # a loop uses what it captures again
        return None
    memo, key = call.memo, ("transposed", tensor.op, tensor.value_index)
    if key not in memo:
        with tensor.graph.as_default(), _graphs.depending_on_nothing(tensor.graph):
            memo[key] = _transpose(tensor, b.inner_shape)
    return memo[key]


def product_in_trip(
    call: Call, rows: tf.Tensor, b: Value
) -> tf.Tensor | tuple[tf.Tensor, ...] | None:
    """rows @ B in a loop, of which a tape will multiply by B^T that was made before it.

    Args:
      call: a MatMul.
      rows: [r, k].
      b: the invariant matrix, [k, m].

    Returns:
      [r, m], or blocks of its columns where B is larger than a cache. It is None where work on B
      before the loop does not pay.
    """
    if not _pays(call, b, known_dims(dims(rows))[0]):
        return None
    found = _before_loop(call, b.tensor)
    if found is None:
        return None
    columns = _by_columns(call, rows, b.tensor, found)
    if not _tf.may_record_gradients():
        return tuple(columns) if columns[1:] else columns[0]
    parts = _joined(call, rows)
    widths: list[Any] = [p.shape[1] for p in parts]
    turned = _made_before(call, b.tensor, found, "turned", widths)
    tensors = [*columns, rows, b.tensor, *parts, *turned]
    made = call.emit.identities(tensors, _GRADIENT, **{_COLUMNS: len(columns)})[: len(columns)]
    return tuple(made) if made[1:] else made[0]


def _by_columns(
    call: Call, rows: tf.Tensor, matrix: tf.Tensor, found: tf.Tensor
) -> list[tf.Tensor]:
    """rows @ B; of a B that is larger than a cache, by blocks of its columns."""
    shape = dims(matrix)
    assert is_static(shape)
    k, m = shape
    if k * m < LARGE or m % _BLOCK or m == _BLOCK:
        return [call.emit("MatMul", rows, matrix)]
    blocks = _made_before(call, matrix, found, "columns", [_BLOCK] * (m // _BLOCK))
    return [call.emit("MatMul", rows, block) for block in blocks]


def in_columns(call: Call, vector: tf.Tensor, widths: Sequence[int]) -> list[tf.Tensor]:
    """An invariant vector in pieces; taken apart before a loop that does not change it."""
    found = _before_loop(call, vector)
    if found is None:
        sizes, axis = np.asarray(widths, np.int32), np.int32(0)
        return call.emit("SplitV", vector, sizes, axis, num_split=len(widths))
    return _made_before(call, vector, found, "columns", widths)


@tf.RegisterGradient(_GRADIENT)
def _product_gradient(op: tf.Operation, *upstream: tf.Tensor) -> list[tf.Tensor | None]:
    """The gradient of z = [p_1 p_2 ...] B: dz B_i^T for each part, B_i being its rows of B."""
    count = op.get_attr(_COLUMNS)
    rows, _, *rest = op.inputs[count:]
    turned = rest[len(rest) // 2 :]
    dz = tf.concat(upstream[:count], 1) if count > 1 else upstream[0]
    by_part = [tf.matmul(dz, matrix) for matrix in turned]
    by_matrix = tf.matmul(rows, dz, transpose_a=True)
    return [*[None] * count, None, by_matrix, *by_part, *[None] * len(turned)]


def _joined(call: Call, rows: tf.Tensor) -> list[tf.Tensor]:
    """The parts side by side in ``rows``: x and h of [x h]; a gradient may be asked of one."""
    if not tf.is_symbolic_tensor(rows) or rows.graph is not call.emit.graph:
        return [rows]
    joined = rows.op.inputs[0] if rows.op.type == "Reshape" else rows
    shape = dims(joined)
    if joined.op.type != "ConcatV2" or not shape or shape[-1] != known_dims(dims(rows))[1]:
        return [rows]
    *parts, axis = joined.op.inputs
    widths = [known_dims(dims(p))[-1] for p in parts]
    if tf.get_static_value(axis) not in (-1, len(shape) - 1) or not is_static(tuple(widths)):
        return [rows]
    return [call.emit.reshape_to(p, [None, w]) for p, w in zip(parts, widths)]


def _before_loop(call: Call, matrix: tf.Tensor) -> tf.Tensor | None:
    """The matrix, or its variable, outside of the loop around; None if trips may change it."""
    trip, found = call.emit.graph, matrix
    body = call.memo.get(("body", trip))  # as the user wrote it; None outside of a loop
    if body is None:
        return None

    def is_own(tensor: tf.Tensor) -> bool:
        return tf.is_symbolic_tensor(tensor) and tensor.graph is trip

    if is_own(found):
        found = source(found)
        if found.op.type == "ReadVariableOp" and not effects(body):
            found = source(found.op.inputs[0])
        found = next((a for a, b in trip.captures if b is found), found)
    return None if is_own(found) else found


def _made_before(
    call: Call, matrix: tf.Tensor, found: tf.Tensor, what: str, widths: Sequence[int]
) -> list[tf.Tensor]:
    """Blocks of a matrix, made once in the graph around the loop.

    Args:
      call: the product.
      matrix: B as the trip has it, or a vector.
      found: the same matrix, or its variable, outside.
      what: "turned": B_i^T for blocks of rows; "columns": blocks of columns.
      widths: the number of rows or columns of each block.
    """
    memo, key = call.memo, (what, "before", call.emit.graph, found.ref(), tuple(widths))
    if key not in memo:
        with call.emit.graph.outer_graph.as_default():
            is_read = found.dtype == tf.resource
            whole = Emitter()("ReadVariableOp", found, dtype=matrix.dtype) if is_read else found
            axis = 0 if what == "turned" else -1
            made = tf.split(whole, widths, axis) if widths[1:] else [whole]
            if what == "turned":
                made = [_transpose(x, (k, matrix.shape.as_list()[1])) for x, k in zip(made, widths)]
            memo[key] = made
    return memo[key]


def _pays(call: Call, b: Value, rows: int | None) -> bool:
    """Not under XLA, which chooses layouts itself, nor on GPUs, whose kernels do."""
    shape, most = b.inner_shape, call.loop.total if rows is None else rows
    if not is_static(shape) or _tf.in_xla_context(call.emit.graph):
        return False
    if tf.config.list_logical_devices("GPU"):
        return False
    m, k = shape
    in_range = isinstance(most, int) and most in _ROWS
    return in_range and b.dtype == tf.float32 and m * k >= _LEAST


def _transpose(matrix: tf.Tensor, shape: Any) -> tf.Tensor:
    m, k = shape
    # Not as a matrix: Grappler would fold the Transpose into the MatMul.
    return tf.reshape(tf.transpose(tf.reshape(matrix, [m, k, 1]), [1, 0, 2]), [k, m])


def _same_read(call: Call, tensor: tf.Tensor) -> tuple[tf.Tensor, int]:
    """The first read of the same variable in the graph, and how many there are.

    Only where nothing but reads gets the handle: then all of them give the same.
    """
    op = tensor.op
    if op.type != "ReadVariableOp":
        return tensor, 1
    handle = op.inputs[0]
    readers = _tf.consumers(handle)
    if not all(r.type in (*READS, *QUERIES) for r in readers):
        return tensor, 1
    reads = [r for r in readers if r.type == op.type and r.get_attr("dtype") == tensor.dtype]
    return reads[0].outputs[0], len(reads)
