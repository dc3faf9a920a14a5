"""Matrices of ragged rows: many of one size in each row, or one whose size differs per row.

Where the last axes are the same in all rows, the packed form is a batch of matrices. A square
matrix whose size differs per row is padded with ones on the diagonal. That is a block-diagonal
matrix, of the matrix of the row and the identity beside it. So are its factors, inverse,
determinant and solutions. Where results come in an order, as eigenvalues do, the number on the
diagonal is larger than any number of the row.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import tensorflow as tf

from tf_pfor import _tf
from tf_pfor.converters.math._families import table
from tf_pfor.converters.ragged._forms import (
    agreed,
    aligned,
    all_packed,
    from_padded,
    of_equal_room,
    of_room,
    row_sizes,
    squared,
    with_room,
)
from tf_pfor.converters.ragged._windows import Moved, size_plus
from tf_pfor.core.call import Call
from tf_pfor.core.errors import CannotVectorize
from tf_pfor.core.values import Value
from tf_pfor.layouts.packing import largest, mask_of, masked
from tf_pfor.layouts.ragged import Ragged, RowSizes, same_sizes
from tf_pfor.layouts.ragged_rules import ragged_rule
from tf_pfor.layouts.row_sizes import as_number, dims_of

_OF_MATRICES = """
    Cholesky LogMatrixDeterminant MatrixDeterminant MatrixInverse
    Eig Lu MatrixExponential MatrixLogarithm MatrixSquareRoot Qr SelfAdjointEigV2 Svd
    FFT2D IFFT2D
"""
_OF_VECTORS = "FFT IFFT"
_BY_LENGTH = "RFFT IRFFT"

# For a block-diagonal matrix with the identity below, these ops give the row's result above. The
# table has, for each result, the number of last axes that have the size of the row.
_BLOCKWISE = {
    "Cholesky": (2,),
    "LogMatrixDeterminant": (0, 0),
    "Lu": (2, 1),
    "MatrixDeterminant": (0,),
    "MatrixExponential": (2,),
    "MatrixInverse": (2,),
    "MatrixLogarithm": (2,),
    "MatrixSquareRoot": (2,),
    "Qr": (2, 2),
}


@ragged_rule(table(_OF_MATRICES))
def of_matrices(call: Call, input: Value) -> Any:
    """Packed, if the matrices are of one size; else beside the identity."""
    if not isinstance(input, Ragged):
        raise CannotVectorize("it is not a tensor that differs in shape")
    name = next(iter(call.inputs))
    if input.n_leading <= input.rank - 2 and call.uses_packed:
        made = call.rebuild(**{name: input.tensor})
        if any(flag in call.attrs and not call.attr(flag) for flag in ("compute_v", "compute_uv")):
            first, *none = made
            return [Ragged.packed(first, input.sizes), *map(Value.unstacked, none)]
        return all_packed(made, input.sizes)
    if call.op_type in ("Eig", "SelfAdjointEigV2"):
        return _eigen(call, squared(call, input))
    if call.op_type == "Svd":
        return _singular(call, input)
    if call.op_type == "Qr" and isinstance(input.size_at(input.rank - 1), int):
        return _factors_of_columns(call, input)
    if call.op_type not in _BLOCKWISE:
        raise CannotVectorize("the matrices differ in size")
    input = squared(call, input)
    made = call.rebuild(**{name: _beside_identity(input)})
    made = made if isinstance(made, list) else [made]
    return [_corner(t, input, n) for t, n in zip(made, _BLOCKWISE[call.op_type], strict=True)]


def _factors_of_columns(call: Call, input: Ragged) -> list[Value]:
    """Q and R of matrices that differ in the number of rows: zeros below change neither.

    Where there are more columns than rows, the identity in the block below makes R regular.
    """
    rank = input.rank
    *leading, rows, columns = (input.size_at(k) for k in range(rank))
    if not isinstance(rows, RowSizes) or not all(isinstance(s, int) for s in leading):
        raise CannotVectorize("not the number of rows alone differs")
    x = with_room(input.in_rows, rank - 1, columns)
    at = tf.range(tf.shape(x)[-2])
    outside = tf.reshape(
        at >= rows.tensor[:, None], tf.stack([-1, *[1] * (rank - 2), tf.size(at), 1])
    )
    ones = tf.equal(at[:, None], tf.range(columns)) & outside
    q, r = call.rebuild(input=tf.where(ones, tf.ones([], x.dtype), x))
    inner = rows
    if not call.attr("full_matrices"):
        most = columns if rows.most is None else min(rows.most, columns)
        inner = RowSizes.of(tf.minimum(rows.tensor, columns), most)
    found: list[Value] = []
    for made, sizes in ((q, [*leading, rows, inner]), (r, [*leading, inner, columns])):
        for axis, size in enumerate(sizes):
            made = of_room(made, axis + 1, largest(size))
        found.append(from_padded(made, sizes))
    return found


def _eigen(call: Call, input: Ragged) -> list[Value]:
    """Eigenvalues come in order: the row's first, then the larger ones of the padding."""
    is_symmetric = call.op_type == "SelfAdjointEigV2"  # its kernel reads one half
    number = _bound(input, of_lower=is_symmetric)
    values, vectors = call.rebuild(input=_beside(input, number))
    if not call.attr("compute_v"):
        return [_corner(values, input, 1), Value.unstacked(vectors)]
    return [_corner(values, input, 1), _corner(vectors, input, 2)]


def _singular(call: Call, input: Ragged) -> list[Value]:
    """Singular values: zeros beside a matrix add zeros, behind the values of the row.

    Singular vectors of zeros could be mixed. So the numbers beside a square matrix are larger than
    any number of the row, and come in front.
    """
    rank = input.rank
    if not call.attr("compute_uv"):
        s, *none = call.rebuild(input=input.in_rows)
        leading = [input.size_at(k) for k in range(rank - 2)]
        found = from_padded(s, [*leading, _smaller(input)])
        return [found, *map(Value.unstacked, none)]
    input = squared(call, input)
    s, u, v = call.rebuild(input=_beside(input, _bound(input)))
    room = tf.shape(s)[-1]
    at = tf.minimum(room - _square(input).tensor[:, None] + tf.range(room)[None], room - 1)
    s, u, v = (tf.gather(t, at, axis=len(t.shape) - 1, batch_dims=1) for t in (s, u, v))
    return [_corner(t, input, n) for t, n in ((s, 1), (u, 2), (v, 2))]


def _smaller(input: Ragged) -> Any:
    """The number of singular values."""
    rank = input.rank
    rows, columns = input.size_at(rank - 2), input.size_at(rank - 1)
    if rows is columns:
        return rows
    first, second = (tf.convert_to_tensor(as_number(s)) for s in (rows, columns))
    return RowSizes.of(tf.minimum(first, second))


@ragged_rule(_OF_VECTORS)
def of_vectors(call: Call, input: Value) -> Any:
    """Packed: the last axis must be the same in all rows."""
    if not isinstance(input, Ragged) or input.n_leading == input.rank or not call.uses_packed:
        raise CannotVectorize("the length of the transform differs between iterations")
    return all_packed(call.rebuild(input=input.tensor), input.sizes)


@ragged_rule(_BY_LENGTH)
def of_length(call: Call, input: Value, fft_length: Value) -> Any:
    """The length of the transform must be the same in all rows; the kernel cuts the last axis.

    Packed, if the last axis is the same as well. Else padded: each row must have what is read.
    """
    if not isinstance(input, Ragged) or fft_length.is_stacked:
        raise CannotVectorize("the length of the transform differs between iterations")
    last = input.size_at(input.rank - 1)
    if not isinstance(last, RowSizes):
        call.require_packed("rows that differ in shape")
        return all_packed(call.rebuild(input=input.tensor), input.sizes)
    if _tf.in_xla_context(call.emit.graph):
        raise CannotVectorize("rows may be shorter than the transform, under jit_compile")
    length = tf.reshape(fft_length.tensor, [])
    count = length if call.op_type == "RFFT" else length // 2 + 1
    rows = with_room(input.in_rows, input.rank, count)
    text = "a row has fewer elements than the transform reads. The sizes are"
    rows = call.after_check(last.tensor >= count, text, [last.tensor], rows)
    sizes = [input.size_at(k) for k in range(input.rank - 1)]
    return from_padded(call.rebuild(input=rows), sizes)


@ragged_rule("MatrixSolve MatrixTriangularSolve")
def solve(call: Call, matrix: Value, rhs: Value) -> Any:
    """Packed, if both are of one size; else the matrix beside the identity, zeros on the right."""
    rank = matrix.rank
    if rhs.rank != rank or not isinstance(rhs, Ragged):
        raise CannotVectorize("the two sides differ in rank, or one has the same shape in all rows")
    if not isinstance(matrix, Ragged):
        raise CannotVectorize("the matrix has the same shape in all iterations")
    if rhs.n_leading <= rank - 2 and matrix.n_leading <= rank - 2 and call.uses_packed:
        both = [aligned(call, v, rhs.sizes, rank) for v in (matrix, rhs)]
        if all(t is not None for t in both):
            return all_packed(call.rebuild(matrix=both[0], rhs=both[1]), rhs.sizes)
    matrix = squared(call, matrix)
    size = _square(matrix)
    if len(rhs.sizes) < rank - 1 or not isinstance(rhs.sizes[rank - 2], RowSizes):
        raise CannotVectorize("the sizes of the two sides are not known to be the same")
    if rhs.sizes[rank - 2] is not size:  # both axes of the matrix agree with the other side
        matrix, _ = agreed(call, (matrix, rank - 2), (rhs, rank - 2))
        matrix, rhs = agreed(call, (matrix, rank - 1), (rhs, rank - 2))
    wide = _beside_identity(matrix)
    return from_padded(call.rebuild(matrix=wide, rhs=rhs.in_rows), rhs.sizes)


@ragged_rule("MatrixBandPart")
def band_part(call: Call, input: Value, num_lower: Value, num_upper: Value) -> Any:
    """Zeros outside of the band stay zeros beside the row."""
    if not isinstance(input, Ragged) or num_lower.is_stacked or num_upper.is_stacked:
        raise CannotVectorize("the band differs between iterations")
    if input.n_leading <= input.rank - 2 and call.uses_packed:
        return all_packed(call.rebuild(input=input.tensor), input.sizes)
    rows = input.in_rows
    for limit, axis in (("num_lower", -2), ("num_upper", -1)):
        size, known = input.size_at(input.rank + axis), call.maybe_constant(limit)
        is_open = known is not None and known <= 0
        if is_open or not isinstance(size, RowSizes):
            continue
        is_right = tf.cast(call.value(limit).tensor, tf.int32) <= size.tensor
        text = "the band is wider than the matrix in some iterations. The sizes are"
        rows = call.after_check(is_right, text, [size.tensor], rows)
    return from_padded(call.rebuild(input=rows), input.sizes)


@ragged_rule("MatrixDiagV3", is_source=True)
def matrix_diag(
    call: Call, diagonal: Value, k: Value, num_rows: Value, num_cols: Value, padding_value: Value
) -> Any:
    """A diagonal of a square matrix whose size differs per row."""
    if not all(call.maybe_constant(name) == -1 for name in ("num_rows", "num_cols")):
        raise CannotVectorize("the matrix is of a size that is given")
    rank = diagonal.rank
    is_shared = not k.is_stacked and not padding_value.is_stacked and call.uses_packed
    if isinstance(diagonal, Ragged) and is_shared and diagonal.n_leading < rank:
        return all_packed(call.rebuild(diagonal=diagonal.tensor), diagonal.sizes)
    if isinstance(diagonal, Ragged) and _is_plain(call, "k", "padding_value"):
        made = call.rebuild(diagonal=diagonal.in_rows)
        return from_padded(made, [*diagonal.sizes, diagonal.sizes[-1]])
    which, sizes = _one_diagonal(call, k), _all_sizes(diagonal)
    size = size_plus(sizes[-1], abs(which))
    moved = Moved(call, diagonal, [*sizes[:-1], size, size], 0)
    *front, row, column = moved.places
    offset = moved.of(which)
    at = tf.where(offset < 0, column, row)
    return moved.read([*front, at], tf.equal(column - row, offset), padding_value.tensor)


@ragged_rule("MatrixDiagPartV3", is_source=True)
def diag_part(call: Call, input: Value, k: Value, padding_value: Value) -> Any:
    """A diagonal: the main one of a square matrix, or any of any."""
    if isinstance(input, Ragged) and not k.is_stacked:
        if input.n_leading <= input.rank - 2 and call.uses_packed:
            return all_packed(call.rebuild(input=input.tensor), input.sizes)
        if _is_plain(call, "k") and _is_square(input):
            made = call.rebuild(input=input.in_rows)
            return from_padded(made, input.sizes[:-1])
    which = _one_diagonal(call, k)
    *front, height, width = _all_sizes(input)
    rows, columns = (as_number(s) for s in (height, width))
    is_right = tf.equal(which, 0) | ((which > -rows) & (which < columns))
    text = "the matrix does not have such a diagonal in some iterations. They are"
    below, above = tf.maximum(-which, 0), tf.maximum(which, 0)
    length = tf.minimum(rows - below, columns - above)
    n = call.loop.length
    length = tf.broadcast_to(call.after_check(is_right, text, [which], length), tf.stack([n]))
    moved = Moved(call, input, [*front, row_sizes(call, length)], 0)
    *front, at = moved.places
    return moved.read([*front, at + moved.of(below), at + moved.of(above)])


def _one_diagonal(call: Call, k: Value) -> Any:
    """The number of the diagonal: an int, or int32 [n]."""
    known = call.maybe_constant("k")
    if known is not None and known.size == 1:
        return int(known.reshape([-1])[0])
    if not k.is_stacked or k.inner_shape not in ((), (1,)):
        raise CannotVectorize("several diagonals")
    return tf.reshape(k.tensor, [-1])


def _all_sizes(value: Value) -> list[Any]:
    """The sizes of all axes, which must be known."""
    sizes = [value.size_at(i) for i in range(value.rank)]
    if None in sizes:
        raise CannotVectorize("the size of an axis is not known before running")
    return sizes


@ragged_rule("MatrixSetDiagV3", is_source=True)
def set_diag(call: Call, input: Value, diagonal: Value, k: Value) -> Any:
    """One diagonal, of as many numbers as that has."""
    sizes, numbers = _all_sizes(input), _all_sizes(diagonal)
    is_whole = sizes[-1] is numbers[-1] and _is_plain(call, "k")
    if (
        isinstance(input, Ragged)
        and isinstance(diagonal, Ragged)
        and is_whole
        and _is_square(input)
    ):
        made = call.rebuild(input=input.in_rows, diagonal=diagonal.in_rows)
        return from_padded(made, sizes)
    which: Any = _one_diagonal(call, k)
    if not call.uses_packed or not same_sizes(sizes[:-2], numbers[:-1]):
        raise CannotVectorize("diagonals whose lengths cannot be checked, or several of them")
    rows, columns, own = (as_number(s) for s in (*sizes[-2:], numbers[-1]))
    below, above = tf.maximum(-which, 0), tf.maximum(which, 0)
    is_right = tf.equal(own, tf.minimum(rows - below, columns - above))
    text = "the diagonal is not as long as the matrix's in some iterations. Lengths are"
    below = call.after_check(is_right, text, [own], below)
    x, line = (v.in_rows if isinstance(v, Ragged) else call.stacked(v) for v in (input, diagonal))
    x, line = of_equal_room([x, line], sizes[:-2])
    at = tf.range(tf.shape(x)[-2])
    ones = [1] * (len(sizes) - 2)
    below, which = (tf.reshape(t, [-1, *ones, 1]) for t in (below, which))
    line = with_room(line, len(numbers), 1)
    place = tf.clip_by_value(at - below, 0, tf.shape(line)[-1] - 1)
    shape = tf.concat([tf.shape(x)[:-2], tf.shape(at)], 0)
    each = tf.gather(
        line, tf.broadcast_to(place, shape), axis=len(numbers), batch_dims=len(numbers)
    )
    offset = tf.range(tf.shape(x)[-1]) - at[:, None]
    made = tf.where(tf.equal(offset, which[..., None]), each[..., None], x)
    return from_padded(made, sizes)


def _is_plain(call: Call, *names: str) -> bool:
    """Whether some inputs are zero: the main diagonal, and nothing else beside it."""
    found = [call.maybe_constant(name) for name in names]
    return all(x is not None and np.all(np.asarray(x) == 0) for x in found)


def _corner(made: tf.Tensor, input: Ragged, axes: int) -> Value:
    """A result of square matrices, so many of whose last axes are as large as the row's are."""
    return from_padded(made, [*input.sizes[:-2], *input.sizes[-2:][:axes]])


def _is_square(input: Ragged) -> bool:
    """Whether the last two axes, the only ones that differ, are known to have one size."""
    last = input.sizes[-2:]
    is_own = len(input.sizes) == input.rank and len(input.ragged_axes) == 2
    return is_own and isinstance(last[-1], RowSizes) and last[0] is last[-1]


def _square(input: Ragged) -> RowSizes:
    """The size of the square matrices, the only axes that differ.

    Raises:
      CannotVectorize: if they are not known to be square.
    """
    if not _is_square(input):
        raise CannotVectorize("the matrices are not known to be square")
    size = input.sizes[-1]
    assert isinstance(size, RowSizes)
    return size


def _beside_identity(input: Ragged) -> tf.Tensor:
    """[n, ..., L, L]: the matrices, and the identity in the block below, to the largest size."""
    return _beside(input, tf.ones([1], input.dtype))


def _beside(input: Ragged, number: tf.Tensor) -> tf.Tensor:
    """The matrices, and a number on the diagonal of the block below, to the largest size.

    Args:
      input: square matrices.
      number: [..., 1], one number for each matrix, or for all of them.
    """
    _square(input)
    x = input.in_rows
    below = tf.where(tf.eye(tf.shape(x)[-1], dtype=tf.bool), tf.expand_dims(number, -1), 0)
    return tf.where(mask_of(input.sizes, dims_of(x, 1)), x, below)


def _bound(input: Ragged, *, of_lower: bool = False) -> tf.Tensor:
    """[n, ..., 1]: a little more than all singular values of the matrices, or all eigenvalues.

    The kernels lose as many digits as it is larger.

    Args:
      input: square matrices.
      of_lower: whether only their lower triangle counts, for both.
    """
    x = tf.abs(tf.stop_gradient(masked(input.in_rows, input.sizes)))
    if of_lower:
        x = tf.linalg.band_part(x, -1, 0)
        x = tf.maximum(x, tf.linalg.matrix_transpose(x))
    along, across = (tf.sqrt(tf.reduce_max(tf.reduce_sum(x, k), -1)) for k in (-1, -2))
    found = tf.where(along > 0, 1.1 * along * across, tf.ones([], x.dtype))
    return tf.cast(tf.expand_dims(found, -1), input.dtype)
