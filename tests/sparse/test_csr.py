"""Sparse matrices in compressed rows (CSR), one for each row: what people do with them."""

import numpy as np
import pytest
import tensorflow as tf

import tf_pfor
from tests.comparisons import gradient_of, mapped

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
each_use = pytest.mark.parametrize("use", list(USES.values()), ids=list(USES))


def _check(found, use, *elems, tolerance=1e-4):
    rows = [tf.nest.flatten(use(*map(tf.constant, row))) for row in zip(*elems)]
    found = tf.nest.flatten(found)
    for i, value in enumerate(found):
        if rows:
            expected = np.stack([row[i] for row in rows])
            np.testing.assert_allclose(value, expected, tolerance, tolerance)
        else:
            assert value.shape[0] == 0


@each_use
@pytest.mark.parametrize("n", [0, 1, 4])
def test_uses(use, n):
    elems = tf.constant(GRAPHS[:n]), tf.constant(NODES[:n])
    _check(mapped(use, *elems), use, *elems)


@each_use
def test_unknown_number_of_rows(use):
    specs = [tf.TensorSpec([None, 5, 5]), tf.TensorSpec([None, 5, 3])]
    run = tf.function(lambda *elems: mapped(use, *elems), input_signature=specs)
    for n in (3, 0):
        elems = tf.constant(GRAPHS[:n]), tf.constant(NODES[:n])
        _check(run(*elems), use, *elems)


@pytest.mark.parametrize("use", [_attention, _convolution], ids=["attention", "convolution"])
def test_gradients_of_a_map(use):
    graphs, nodes = tf.constant(GRAPHS), tf.constant(NODES)

    def gradients(of):
        return gradient_of(lambda: tf.reduce_sum(tf.sin(of(use, graphs, nodes))), [graphs, nodes])

    # TensorFlow cannot differentiate a tf.function with such matrices from outside of a graph
    found = [tf.function(gradients)(of) for of in (mapped, _looped)]
    for one, other in zip(*found):
        np.testing.assert_allclose(one, other, 1e-4, 1e-5)


def _looped(use, *elems):
    return tf.stack([use(*row) for row in zip(*map(tf.unstack, elems))])


def test_the_gradient_of_a_product_of_sparse_matrices():
    """It gathers from rows of different sizes."""

    @tf.function  # TensorFlow asks for shapes that an eager matrix does not have
    def gradient(graph, nodes):
        with tf.GradientTape() as tape:
            tape.watch(graph)
            right = _csr(tf.linalg.matmul(nodes, nodes, transpose_b=True))
            made = raw.SparseMatrixSparseMatMul(a=_csr(graph), b=right, type=F)
            loss = tf.reduce_sum(tf.sin(_dense(made)))
        return tf.ensure_shape(tape.gradient(loss, graph), [5, 5])

    full = GRAPHS + 2.0
    found = mapped(gradient, tf.constant(full), tf.constant(NODES))
    _check(found, gradient, full, NODES)


@pytest.mark.filterwarnings("ignore::tf_pfor.FallbackWarning")
@pytest.mark.parametrize("kind", ["batch", "branch", "call", "loop", "nested", "stacked"])
def test_what_runs_row_by_row(kind):
    """A batch in the body, and a matrix that a branch, a loop or a function reads."""

    def use(graph, nodes):
        matrix = _csr(graph)
        if kind == "batch":
            return _times(_csr(tf.stack([graph, 2 * graph])), tf.stack([nodes, nodes]))
        if kind == "branch":
            return tf.cond(graph[0, 0] > 0, lambda: _times(matrix, nodes), lambda: -nodes)
        if kind == "call":
            return tf.function(lambda m: _times(m, nodes))(matrix)
        if kind == "nested":
            return tf_pfor.vectorized_map(lambda x: _times(_csr(graph * x[0]), nodes), nodes)
        if kind == "stacked":
            return _dense(tf.stack([matrix, matrix])[1])
        return tf.while_loop(lambda i, x: i < 3, lambda i, x: (i + 1, _times(matrix, x)),
                             (0, nodes))[1]  # fmt: skip

    one = tf.function(use)
    _check(
        mapped(one, tf.constant(GRAPHS), tf.constant(NODES), fallback="loop"), one, GRAPHS, NODES
    )


@pytest.mark.parametrize("place", [[5, 0], [0, 5], [-1, 0], [0, -1]])
@pytest.mark.parametrize("is_dense", [True, False])
def test_an_index_outside_of_the_matrix_is_an_error(place, is_dense):
    """It must not be one of the next row."""
    at = np.int64([[[0, 1]], [place], [[2, 3]]])

    def use(graph, at):
        if is_dense:
            return _dense(raw.DenseToCSRSparseMatrix(dense_input=graph, indices=at))
        return _dense(raw.SparseTensorToCSRSparseMatrix(
            indices=at, values=graph[0, :1], dense_shape=[5, 5]))  # fmt: skip

    with pytest.raises(tf.errors.InvalidArgumentError):
        mapped(use, tf.constant(GRAPHS[:3]), tf.constant(at))


def test_only_one_matrix_has_components():
    def use(graph, index):
        return raw.CSRSparseMatrixComponents(
            csr_sparse_matrix=_csr(graph), index=index, type=F
        ).row_ptrs

    elems = tf.constant(GRAPHS[:2]), tf.constant([0, 0])
    _check(mapped(use, *elems), use, *elems)
    with pytest.raises(tf.errors.InvalidArgumentError, match="must be 0"):
        mapped(use, elems[0], tf.constant([0, 1]))
