"""Sparse matrices in compressed rows (CSR), one for each row: what people do with them."""

import numpy as np
import tensorflow as tf

import tf_pfor
from tests.comparisons import gradient_of
from tests.ways import errors_of, table_of

raw = tf.raw_ops
F = tf.float32
RNG = np.random.default_rng(0)
GRAPHS = ((RNG.random((4, 5, 5)) < 0.4) * RNG.normal(size=(4, 5, 5))).astype(np.float32)
NODES = RNG.normal(size=(4, 5, 3)).astype(np.float32)
WEIGHTS = RNG.normal(size=(3, 2)).astype(np.float32)


def _csr(dense):
    return raw.DenseToCSRSparseMatrix(dense_input=dense, indices=tf.where(dense != 0))


def _dense(matrix):
    return raw.CSRSparseMatrixToDense(sparse_input=matrix, type=F)


def _times(a, b, **options):
    return raw.SparseMatrixMatMul(a=a, b=b, **options)


def _convolution(graph, nodes):
    return tf.nn.relu(_times(_csr(graph), nodes @ tf.constant(WEIGHTS)))


def _attention(graph, nodes):
    """Softmax along the edges of the graph, then a product with what stands at their ends."""
    edges = raw.CSRSparseMatrixToSparseTensor(sparse_matrix=_csr(graph), type=F)
    weights = tf.sparse.softmax(tf.SparseTensor(edges.indices, edges.values, [5, 5]))
    matrix = raw.SparseTensorToCSRSparseMatrix(
        indices=weights.indices, values=weights.values, dense_shape=weights.dense_shape
    )
    return _times(matrix, nodes)


def _two_steps(graph, nodes):
    matrix = _csr(graph)
    twice = raw.SparseMatrixSparseMatMul(a=matrix, b=matrix, type=F, adjoint_b=True)
    return _dense(twice), _times(twice, nodes)


def _transposed(graph, nodes):
    matrix = raw.SparseMatrixTranspose(input=_csr(graph), type=F)
    return _dense(matrix), _times(matrix, nodes), raw.SparseMatrixNNZ(sparse_matrix=matrix)


def _shared(graph, nodes):
    one = _csr(tf.constant(GRAPHS[0]))
    both = raw.SparseMatrixSparseMatMul(a=one, b=_csr(graph), type=F, transpose_a=True)
    return _times(one, nodes), _times(_csr(graph), tf.constant(NODES[0])), _dense(both)


def _solved(graph, nodes):
    matrix = _csr(graph @ tf.transpose(graph) + 5.0 * tf.eye(5))
    order = raw.SparseMatrixOrderingAMD(input=matrix)
    factor = raw.SparseMatrixSparseCholesky(input=matrix, permutation=order, type=F)
    return tf.linalg.cholesky_solve(_dense(factor), tf.gather(nodes, order))


def _gradients(graph, nodes):
    return gradient_of(lambda: tf.reduce_sum(tf.sin(_convolution(graph, nodes))), [graph, nodes])


USES = {
    "attention": _attention,
    "convolution": _convolution,
    "gradients": _gradients,
    "shared": _shared,
    "solved": _solved,
    "transposed": _transposed,
    "two_steps": _two_steps,
}


@tf.function  # TensorFlow asks for shapes that an eager matrix does not have
def _of_sparse_product(graph, nodes):
    """The gradient of a product of sparse matrices gathers from rows of different sizes."""

    def loss():
        right = _csr(tf.linalg.matmul(nodes, nodes, transpose_b=True))
        made = raw.SparseMatrixSparseMatMul(a=_csr(graph), b=right, type=F)
        return tf.reduce_sum(tf.sin(_dense(made)))

    return tf.ensure_shape(gradient_of(loss, graph), [5, 5])


# A batch in the body, and a matrix that a branch, a loop or a function reads.
ROW_BY_ROW = {
    "batch": lambda g, x, m: _times(_csr(tf.stack([g, 2 * g])), tf.stack([x, x])),
    "branch": lambda g, x, m: tf.cond(g[0, 0] > 0, lambda: _times(m, x), lambda: -x),
    "call": lambda g, x, m: tf.function(lambda m: _times(m, x))(m),
    "nested": lambda g, x, m: tf_pfor.vectorized_map(lambda r: _times(_csr(g * r[0]), x), x),
    "stacked": lambda g, x, m: _dense(tf.stack([m, m])[1]),
    "loop": lambda g, x, m: tf.while_loop(
        lambda i, x: i < 3, lambda i, x: (i + 1, _times(m, x)), (0, x))[1],
}  # fmt: skip


def _components(graph, index):
    made = raw.CSRSparseMatrixComponents(csr_sparse_matrix=_csr(graph), index=index, type=F)
    return made.row_ptrs


def _indexed(is_dense):
    def use(graph, at):
        if is_dense:
            return _dense(raw.DenseToCSRSparseMatrix(dense_input=graph, indices=at))
        return _dense(raw.SparseTensorToCSRSparseMatrix(
            indices=at, values=graph[0, :1], dense_shape=[5, 5]))  # fmt: skip

    return use


CLOSE = {"tolerance": (1e-4, 1e-4)}
DIFFERENTIATED = ["attention", "convolution"]
test_table_of_uses = table_of(
    {
        **USES,
        "sparse product": (_of_sparse_product, (tf.constant(GRAPHS + 2.0), tf.constant(NODES))),
        "components": (_components, (tf.constant(GRAPHS[:2]), tf.constant([0, 0]))),
    },
    tf.constant(GRAPHS), tf.constant(NODES),
    # TensorFlow cannot differentiate a tf.function with such matrices from outside of a graph.
    ways=["eager", "one row", "no rows", "unknown n, few rows", "function around"],
    only={"function around": DIFFERENTIATED, "unknown n, few rows": USES}, eager=True, **CLOSE,
    slopes=(1e-4, 1e-5),
)  # fmt: skip
test_table_of_what_runs_row_by_row = table_of(
    {name: lambda g, x, use=use: use(g, x, _csr(g)) for name, use in ROW_BY_ROW.items()},
    tf.constant(GRAPHS), tf.constant(NODES), ways=["eager"], looped=["eager"], **CLOSE,
)  # fmt: skip
# An index outside of the matrix must not be one of the next row.
test_errors = errors_of({
    **{
        f"{place}, {'dense' if is_dense else 'sparse'}": (
            _indexed(is_dense),
            (tf.constant(GRAPHS[:3]), tf.constant(np.int64([[[0, 1]], [place], [[2, 3]]]))))
        for place in ([5, 0], [0, 5], [-1, 0], [0, -1])
        for is_dense in (True, False)
    },
    # There is only one matrix.
    "components": (_components, (tf.constant(GRAPHS[:2]), tf.constant([0, 1])), "must be 0"),
})  # fmt: skip
