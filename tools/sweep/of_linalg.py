"""Sweep of tf.linalg."""

from __future__ import annotations

import tensorflow as tf

from tools.sweep.cases import Case, body, call, each, floats, integers, positive, spd

BANDED = positive(3, 5)
LINALG: list[Case] = [
    *each("tf.linalg",
        "cholesky det logdet inv slogdet svd eigh eigvalsh lu qr expm sqrtm trace pinv "
        "matrix_transpose adjoint diag_part matrix_rank normalize norm", spd(3)),
    call("tf.linalg.eig", spd(3)),
    body("tf.linalg.logm", lambda x: tf.linalg.logm(tf.complex(x, 0.0 * x)), spd(3)),
    call("tf.linalg.global_norm", [floats(3), floats(2)]),
    call("tf.linalg.eigvals", spd(3)),
    *each("tf.linalg", "solve lstsq triangular_solve matmul", spd(3), floats(3, 2)),
    call("tf.linalg.lstsq", floats(4, 2), floats(4, 1), fast=False, label="slow"),
    call("tf.linalg.cholesky_solve", spd(3), floats(3, 2)),
    call("tf.linalg.matvec", spd(3), floats(3)),
    call("tf.linalg.band_part", spd(3), 1, 0),
    call("tf.linalg.band_part", spd(4), integers(high=3), integers(high=3),
        label="bounds of the row"),
    call("tf.linalg.banded_triangular_solve", BANDED, floats(5, 2)),
    call("tf.linalg.tridiagonal_solve", positive(3, 5, low=1.0, high=2.0), floats(5, 2)),
    call("tf.linalg.tridiagonal_matmul", floats(3, 5), floats(5, 2)),
    call("tf.linalg.cross", floats(3), floats(3)),
    call("tf.linalg.diag", floats(3)),
    call("tf.linalg.diag", floats(3), k=1, label="k"),
    call("tf.linalg.diag", floats(3), k=integers(low=-1, high=2), label="k of the row"),
    call("tf.linalg.diag_part", floats(3, 3), k=(-1, 1), label="k"),
    call("tf.linalg.diag_part", floats(3, 3), k=1, padding_value=floats(),
        label="padding of the row"),
    call("tf.linalg.tensor_diag", floats(3)),
    call("tf.linalg.tensor_diag_part", floats(3, 3)),
    call("tf.linalg.set_diag", floats(3, 3), floats(3)),
    call("tf.linalg.einsum", "ij,j->i", floats(3, 2), floats(2)),
    call("tf.linalg.l2_normalize", floats(3)),
    call("tf.linalg.tensordot", floats(3), floats(3), 1),
    call("tf.linalg.lu_solve", spd(3), [0, 1, 2], floats(3, 1)),
    call("tf.linalg.lu_matrix_inverse", spd(3), [0, 1, 2]),
    call("tf.linalg.lu_reconstruct", spd(3), [0, 1, 2]),
    call("tf.linalg.experimental.conjugate_gradient", tf.linalg.LinearOperatorIdentity(3),
        floats(3)),
    call("tf.linalg.eigh_tridiagonal", positive(4), positive(3)),
    body("tf.linalg.LinearOperatorFullMatrix",
        lambda a, x: tf.linalg.LinearOperatorFullMatrix(a).solvevec(x), spd(3), floats(3)),
    body("tf.linalg.LinearOperatorToeplitz",
        lambda a, b, x: tf.linalg.LinearOperatorToeplitz(a, b).matvec(x), floats(3), floats(3),
        floats(3)),
    body("tf.linalg.LinearOperatorCirculant",
        lambda a, x: tf.linalg.LinearOperatorCirculant(tf.complex(a, a)).matvec(tf.complex(x, x)),
        floats(4), floats(4)),
]  # fmt: skip
