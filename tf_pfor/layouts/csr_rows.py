"""The CSR layout: a sparse matrix of each row, stored as one batch of matrices.

A ``CSRSparseMatrix`` of TensorFlow is the handle of a matrix [r, c] or of a batch [b, r, c]. It is
a scalar of dtype variant in both cases. The matrices [r, c] of the iterations are one batch of n.
The kernels refuse a batch without matrices, so where there is no iteration it has one matrix, of
zeros.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import tensorflow as tf

from tf_pfor.core.emit import Emitter
from tf_pfor.core.errors import CannotVectorize
from tf_pfor.core.values import Cell, Gather, Hold, Layout, Rows, Value

READERS = frozenset(
    [
        "CSRSparseMatrixComponents",
        "CSRSparseMatrixToDense",
        "CSRSparseMatrixToSparseTensor",
        "Conj",
        "Identity",
        "SparseMatrixMatMul",
        "SparseMatrixNNZ",
        "SparseMatrixOrderingAMD",
        "SparseMatrixSparseCholesky",
        "SparseMatrixSparseMatMul",
        "SparseMatrixTranspose",
        "StopGradient",
    ]
)
"""Op types whose rules take the layout."""


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class CsrRows(Value):
    """A sparse matrix [r, c] of each row; its tensor is the handle of the batch [n, r, c]."""

    layout = Layout.CSR
    is_standard = False
    readers = READERS

    @classmethod
    def of(cls, handle: tf.Tensor) -> CsrRows:
        """The matrices of the batch with this handle."""
        return cls(Cell(handle), (), tf.variant)

    def standard(self, emit: Emitter) -> Value:
        """An error: no other form exists, and a handle for each row would take a loop.

        Raises:
          CannotVectorize: always.
        """
        raise CannotVectorize("it has no converter for a batch of sparse matrices (CSR)")

    def select(self, loop: Rows, hold: Hold | None = None, gather: Gather | None = None) -> Value:
        """No kernel takes some matrices of a batch: it is an error to read them."""

        def read() -> tf.Tensor:
            raise CannotVectorize("some sparse matrices (CSR) of a batch cannot be selected")

        return dataclasses.replace(self, cell=Cell(None, read))


def check_readers(op: tf.Operation, is_asked: Callable[..., Any]) -> None:
    """Checks that rules read all matrices that are made of the output of an op.

    Args:
      op: makes a matrix, in the body.
      is_asked: tells whether a tensor is a result that was asked for.

    Raises:
      CannotVectorize: if another op reads one: it needs a handle for each row.
    """
    todo, seen = [t for t in op.outputs if t.dtype == tf.variant], set[int]()
    while todo:
        matrix = todo.pop()
        if id(matrix) in seen:
            continue
        seen.add(id(matrix))
        results = getattr(matrix.graph, "outputs", ())
        if is_asked(matrix) or any(matrix is t for t in results):
            raise CannotVectorize("the sparse matrix (CSR) is a result by itself")
        for reader in matrix.consumers():
            if reader.type not in READERS:
                raise CannotVectorize(f"{reader.type} reads the sparse matrix (CSR) of one row")
            todo += [t for t in reader.outputs if t.dtype == tf.variant]
