"""Linear algebra with native batch dimensions: factorizations, solvers, determinants."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from tf_pfor.converters.math._families import native_batch, table
from tf_pfor.core.call import Call
from tf_pfor.core.registry import ANY, RegisterPFor
from tf_pfor.core.shapes import expand_to_rank, product, stacked_dims, transpose
from tf_pfor.core.values import Value

native_batch(
    {
        **table(
            """Cholesky CholeskyGrad Cross LogMatrixDeterminant Lu MatrixDeterminant
            MatrixLogarithm MatrixSquareRoot"""
        ),
        **table("MatrixInverse", "adjoint"),
        **table("Qr", "full_matrices"),
    }
)


# ---------------------------------------------------------------------------
# Vectors on request
# ---------------------------------------------------------------------------


@RegisterPFor("Eig SelfAdjointEigV2", ANY, attrs=("compute_v",))
def eigen(call: Call, input: Value) -> Any:
    """Native batch; vectors that are not asked for are an empty tensor without a loop axis."""
    return _wanted(call.rebuild(), call.attr("compute_v"))


@RegisterPFor("Svd", ANY, attrs=("compute_uv", "full_matrices"))
def svd(call: Call, input: Value) -> Any:
    """Native batch; vectors that are not asked for are an empty tensor without a loop axis."""
    return _wanted(call.rebuild(), call.attr("compute_uv"))


def _wanted(outputs: list[tf.Tensor], has_vectors: bool) -> list[Value]:
    values, *vectors = outputs
    wrap = Value.stacked if has_vectors else Value.unstacked
    return [Value.stacked(values), *map(wrap, vectors)]


# ---------------------------------------------------------------------------
# Solvers
# ---------------------------------------------------------------------------


@RegisterPFor("MatrixSolve", ("rhs",), attrs=("adjoint",))
@RegisterPFor("MatrixSolveLs", ("rhs",), attrs=("fast",))
@RegisterPFor("TridiagonalMatMul", ("rhs",))
@RegisterPFor("TridiagonalSolve", ("rhs",), attrs=("partial_pivoting", "perturb_singular"))
def by_columns(call: Call, *inputs: Value) -> Any:
    """Invariant matrices: the columns of all iterations side by side, factorized once.

    rhs [n, b..., m, k] -> [b..., m, n*k] -> [b..., p, n*k] -> [n, b..., p, k].
    """
    return _side_by_side(call, call.value("rhs"))


def _side_by_side(call: Call, rhs: Value) -> tf.Tensor:
    rank = call.require_rank(rhs)
    n, *inner = stacked_dims(call, rhs)
    one_column = isinstance(inner[-1], int) and inner[-1] == 1
    to_front = [rank - 1, *range(rank - 1)]  # [b..., p, n] -> [n, b..., p]
    if one_column:
        source = call.emit.reshape(rhs.any_form, [n, *inner[:-1]])
        wide = transpose(call, source, [*range(1, rank), 0])  # [b..., m, n]
    else:
        wide = transpose(call, rhs.tensor, [*range(1, rank), 0, rank])  # [b..., m, n, k]
        wide = call.emit.reshape(wide, [*inner[:-1], product(call, [n, inner[-1]])])
    made = call.rebuild(rhs=wide)  # [b..., p, n*k]
    rows = [call.emit.dim(made, rank - 2)]
    if one_column:
        made = transpose(call, made, to_front)
        return call.emit.reshape(made, [n, *inner[:-2], *rows, 1])
    made = call.emit.reshape(made, [*inner[:-2], *rows, n, inner[-1]])
    return transpose(call, made, [*to_front, rank])


@RegisterPFor("MatrixSolve", ("matrix", "rhs"), attrs=("adjoint",))
@RegisterPFor("MatrixSolveLs", ("matrix", "rhs"), attrs=("fast",))
@RegisterPFor(
    "TridiagonalSolve", ("diagonals", "rhs"), attrs=("partial_pivoting", "perturb_singular")
)
def solve(call: Call, *inputs: Value) -> Any:
    """One system for each iteration: native batch, which does not broadcast."""
    return call.rebuild()


@RegisterPFor("TridiagonalMatMul", ANY)
def tridiagonal_matmul(
    call: Call, superdiag: Value, maindiag: Value, subdiag: Value, rhs: Value
) -> Any:
    """Native batch; what is invariant is repeated."""
    return call.rebuild(**{k: call.stacked(v) for k, v in call.values().items()})


@RegisterPFor("MatrixTriangularSolve", ANY, attrs=("lower", "adjoint"))
def triangular_solve(call: Call, matrix: Value, rhs: Value) -> Any:
    """The kernel broadcasts batch dimensions; one invariant matrix takes all columns at once."""
    rank = max(call.require_rank(matrix), call.require_rank(rhs))
    if not matrix.is_stacked and call.require_rank(matrix) == 2 and rank == 2:
        return _side_by_side(call, rhs)
    matrix_tensor, rhs_tensor = (
        expand_to_rank(call, v, rank) if v.is_stacked else v.tensor for v in (matrix, rhs)
    )
    return call.rebuild(matrix=matrix_tensor, rhs=rhs_tensor)


@RegisterPFor("BandedTriangularSolve", ANY, attrs=("lower", "adjoint"))
def banded_solve(call: Call, matrix: Value, rhs: Value) -> Any:
    """The kernel broadcasts batch dimensions, but refuses to have no systems.

    Where there may be none, one more is solved and dropped: its bands are all ones.
    """
    rank = max(call.require_rank(matrix), call.require_rank(rhs))
    may_be_none = not call.loop.static_length
    operands: list[tf.Tensor] = []
    for value in (matrix, rhs):
        tensor = expand_to_rank(call, value, rank) if value.is_stacked else value.tensor
        if value.is_stacked and may_be_none:
            tail = [call.emit.dim(tensor, i) for i in range(1, rank + 1)]
            one = call.emit.constant(1, tensor.dtype)
            more = call.emit("BroadcastTo", one, call.emit.shape_vector([1, *tail]))
            tensor = call.emit("ConcatV2", [tensor, more], 0)
        operands.append(tensor)
    made = call.rebuild(matrix=operands[0], rhs=operands[1])
    if not may_be_none:
        return made
    size = call.emit.shape_vector([call.loop.length, *[-1] * rank])
    return call.emit("Slice", made, [0] * (rank + 1), size)
