"""Samples of tf_pfor/converters/math/linalg.py.

Factors are determined up to signs or phases only, so the samples of QR, SVD and eigenvectors
return well-defined functions of them.
"""

import numpy as np
import tensorflow as tf

from tests.sample import drawn, normal, sample

raw = tf.raw_ops
LOOSE = {"rtol": 1e-3, "atol": 1e-3}  # float32 condition numbers; other algorithms under XLA
C64 = np.complex64


def matrices(*shape, dtype=np.float32):
    """Well-conditioned matrices: the diagonal dominates."""

    def draw(rng):
        x = rng.normal(size=shape)
        if np.issubdtype(dtype, np.complexfloating):
            x = x + 1j * rng.normal(size=shape)
        return (0.5 * x + 3 * np.eye(*shape[-2:])).astype(dtype)

    return drawn(shape, draw)


def symmetric(*shape, dtype=np.float32):
    """Positive definite matrices with eigenvalues far apart."""

    def draw(rng):
        q = np.linalg.qr(rng.normal(size=shape))[0]
        scaled = q * np.arange(1, shape[-1] + 1)
        return (scaled @ np.swapaxes(q, -1, -2)).astype(dtype)

    return drawn(shape, draw)


def triangular(*shape, dtype=np.float32):
    """Lower triangular matrices, garbage above the diagonal, which must not be read."""
    return matrices(*shape, dtype=dtype)


def op(name, **attrs):
    """The raw op as a function of its inputs in order."""
    names = {
        "MatrixSolve": "matrix rhs", "MatrixTriangularSolve": "matrix rhs",
        "BandedTriangularSolve": "matrix rhs", "TridiagonalSolve": "diagonals rhs",
        "TridiagonalMatMul": "superdiag maindiag subdiag rhs", "CholeskyGrad": "l grad",
        "Cross": "a b",
    }.get(name, "input").split()  # fmt: skip
    return lambda *inputs: getattr(raw, name)(**dict(zip(names, inputs)), **attrs)


def least_squares(fast=True):
    return lambda a, b: raw.MatrixSolveLs(
        matrix=a, rhs=b, l2_regularizer=tf.constant(0.1, tf.float64), fast=fast
    )


def qr(full):
    def fn(x):
        q, r = tf.linalg.qr(x, full_matrices=full)
        return tf.matmul(q, r), tf.abs(q)

    return fn


def svd(full):
    def fn(x):
        s, u, v = tf.linalg.svd(x, full_matrices=full)
        return s, tf.abs(u[..., :2, :2]), tf.abs(v[..., :2, :2])

    return fn


def projectors(x):
    e, v = tf.linalg.eigh(x)
    return e, tf.abs(v)


def eigenvalues(x):
    """Sorted, since their order is not defined."""
    e = tf.linalg.eigvals(x)
    return tf.reduce_sum(e, -1), tf.reduce_prod(e, -1)


def eigenvectors(x):
    e, v = tf.linalg.eig(x)
    return tf.matmul(v * e[..., None, :], tf.linalg.inv(v))


FACTORS = [
    sample("Cholesky", tf.linalg.cholesky, symmetric(3, 3)),
    sample("Cholesky", tf.linalg.cholesky, symmetric(2, 3, 3, dtype=np.float64), label="batch"),
    sample("Cholesky", tf.linalg.cholesky, symmetric(3, 3, dtype=C64), label="complex"),
    sample("CholeskyGrad", op("CholeskyGrad"), symmetric(3, 3), normal(3, 3), grad=False,
           xla=False),
    sample("Cross", op("Cross"), normal(2, 3), normal(2, 3), xla=True),
    sample("Cross", op("Cross"), normal(3), normal(3), label="vectors"),
    sample("Eig", eigenvectors, matrices(3, 3), xla=False, **LOOSE),
    sample("Eig", eigenvectors, matrices(2, 3, 3, dtype=C64), label="complex", xla=False, **LOOSE),
    sample("Eig", eigenvalues, matrices(3, 3), label="values_only", xla=False, **LOOSE),
    sample("LogMatrixDeterminant", lambda x: tuple(tf.linalg.slogdet(x)), matrices(3, 3),
           xla=False, **LOOSE),
    sample("Lu", lambda x: tuple(tf.linalg.lu(x)), matrices(3, 3), grad=False, xla=False),
    sample("Lu", lambda x: tuple(tf.linalg.lu(x, tf.int64)), matrices(2, 3, 3, dtype=C64),
           label="complex", grad=False, xla=False),
    sample("MatrixDeterminant", tf.linalg.det, matrices(3, 3), xla=False, **LOOSE),
    sample("MatrixDeterminant", tf.linalg.det, matrices(2, 3, 3, dtype=C64), label="complex",
           xla=False, **LOOSE),
    sample("MatrixInverse", tf.linalg.inv, matrices(3, 3)),
    sample("MatrixInverse", op("MatrixInverse", adjoint=True), matrices(2, 3, 3, dtype=C64),
           label="adjoint", xla=False),
    sample("MatrixInverse", tf.linalg.inv, matrices(0, 0), label="empty"),
    sample("MatrixLogarithm", op("MatrixLogarithm"), matrices(3, 3, dtype=C64), grad=False,
           xla=False, **LOOSE),
    sample("MatrixSquareRoot", tf.linalg.sqrtm, matrices(3, 3), xla=False, **LOOSE),
    sample("Qr", qr(False), normal(4, 3), **LOOSE),
    sample("Qr", qr(True), normal(3, 3), label="full", **LOOSE),
    sample("SelfAdjointEigV2", projectors, symmetric(3, 3), **LOOSE),
    sample("SelfAdjointEigV2", tf.linalg.eigvalsh, symmetric(3, 3), label="values_only", **LOOSE),
    sample("Svd", svd(False), normal(4, 2), **LOOSE),
    sample("Svd", svd(True), normal(2, 2, 2), label="full", **LOOSE),
    sample("Svd", lambda x: tf.linalg.svd(x, compute_uv=False), normal(4, 3),
           label="values_only", **LOOSE),
]  # fmt: skip

SOLVERS = [
    sample("MatrixSolve", op("MatrixSolve"), matrices(3, 3), normal(3, 2)),
    sample("MatrixSolve", op("MatrixSolve"), matrices(3, 3), normal(3, 1), label="one_column"),
    sample("MatrixSolve", op("MatrixSolve"), matrices(2, 3, 3), normal(2, 3, 1),
           label="batch_one_column"),
    sample("MatrixSolve", op("MatrixSolve", adjoint=True), matrices(2, 3, 3, dtype=C64),
           normal(2, 3, 2, dtype=C64), label="adjoint", xla=False),
    sample("MatrixSolve", op("MatrixSolve"), matrices(3, 3), normal(3, 0), label="no_columns"),
    sample("MatrixSolve", lambda m, r, s: tf.linalg.solve(m, tf.reshape(r, s)), matrices(3, 3),
        normal(3, 2), drawn((2,), lambda _: np.asarray([3, 2], np.int32)).fixed,
        label="unknown_dims", max_ops=20, xla=False),
    sample("MatrixSolveLs", least_squares(), normal(4, 3), normal(4, 2), xla=False, **LOOSE),
    sample("MatrixSolveLs", least_squares(fast=False), normal(2, 4, 3), normal(2, 4, 2),
           label="slow", xla=False, grad=False, **LOOSE),
    sample("MatrixTriangularSolve", op("MatrixTriangularSolve"), triangular(3, 3), normal(3, 2)),
    sample("MatrixTriangularSolve", op("MatrixTriangularSolve", lower=False, adjoint=True),
           triangular(3, 3, dtype=C64), normal(3, 1, dtype=C64), label="upper_adjoint"),
    sample("MatrixTriangularSolve", op("MatrixTriangularSolve"), triangular(2, 3, 3),
           normal(2, 3, 2), label="batch"),
    sample("MatrixTriangularSolve", op("MatrixTriangularSolve"), triangular(3, 3),
           normal(2, 3, 2), label="broadcast_matrix"),
    sample("MatrixTriangularSolve", op("MatrixTriangularSolve"), triangular(2, 1, 3, 3),
           normal(4, 3, 2), label="broadcast_both"),
    sample("BandedTriangularSolve", op("BandedTriangularSolve"), drawn_bands := normal(2, 4),
           normal(4, 2), xla=False, **LOOSE),
    sample("BandedTriangularSolve", op("BandedTriangularSolve", lower=False, adjoint=True),
           drawn_bands, normal(2, 4, 2), label="upper_broadcast", xla=False, **LOOSE),
    sample("TridiagonalSolve", op("TridiagonalSolve"), normal(3, 4), normal(4, 2), xla=False,
           **LOOSE),
    sample("TridiagonalSolve", op("TridiagonalSolve", partial_pivoting=False), normal(2, 3, 4),
           normal(2, 4, 1), label="no_pivoting", xla=False, **LOOSE),
    sample("TridiagonalMatMul", op("TridiagonalMatMul"), normal(1, 4), normal(1, 4),
           normal(1, 4), normal(4, 2), xla=False),
    sample("TridiagonalMatMul", op("TridiagonalMatMul"), normal(2, 1, 4), normal(2, 1, 4),
           normal(2, 1, 4), normal(2, 4, 1), label="batch", xla=False),
]  # fmt: skip

SAMPLES = [*FACTORS, *SOLVERS]
