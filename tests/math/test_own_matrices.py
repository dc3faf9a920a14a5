"""Square matrices whose size differs: factors, eigenvalues, singular values, functions."""

import tensorflow as tf

import tf_pfor
from tests.ways import errors_of, table_of

linalg = tf.linalg
R = tf.random.stateless_uniform
ROWS = tf.RaggedTensor.from_row_lengths(R([16], [1, 2], dtype=tf.float64) + 0.1, [3, 5, 1, 0, 4, 3])
FULL = tf.RaggedTensor.from_row_lengths(R([16], [1, 2], dtype=tf.float64) + 0.1, [3, 5, 1, 4, 3])


def matrix(r):
    return tf.exp(-((r[:, None] - r[None]) ** 2)) * (1.0 + 0.3 * r[:, None])


def symmetric(r):
    return tf.cos(5.0 * (r[:, None] + r[None]))


def positive(r):
    return symmetric(r) @ symmetric(r) + tf.eye(tf.size(r), dtype=r.dtype)


def signless(x):
    return tf.abs(x)


OF_ANY = {  # rows of no elements too
    "eigvals": lambda r: linalg.eigvals(matrix(r)),
    "eigvalsh": lambda r: linalg.eigvalsh(symmetric(r)),
    "eigenvalues of both signs": lambda r: linalg.eigvalsh(-positive(r)),
    "eigenvalues of one half": lambda r: linalg.eigvalsh(linalg.band_part(symmetric(r), -1, 0)),
    "eigenvalues of zeros": lambda r: linalg.eigh(0.0 * symmetric(r))[0],
    "singular values": lambda r: linalg.svd(matrix(r), compute_uv=False),
    "several matrices": lambda r: linalg.eigvalsh(tf.stack([symmetric(r), positive(r)])),
    # In float32 the map is as near to float64 as the loop is, 2e-4, and they differ by 5e-6.
    "expm": lambda r: linalg.expm(matrix(r)),
    "sqrtm": lambda r: linalg.sqrtm(positive(r)),
    "lu": lambda r: linalg.lu(matrix(r)),
    "slogdet": lambda r: linalg.slogdet(matrix(r)),
}
OF_FULL = {
    "eigh": lambda r: signless(linalg.eigh(positive(r) * (1.0 + r))[1]),
    "eig": lambda r: signless(linalg.eig(matrix(r))[1]),
    "svd": lambda r: [signless(t) for t in linalg.svd(matrix(r))],
    "svd of few ranks": lambda r: linalg.svd(r[:, None] * r[None])[1][:, :1] ** 2,
    "pinv": lambda r: linalg.pinv(positive(r)),
    "qr": lambda r: linalg.qr(matrix(r)),
    "logm": lambda r: linalg.logm(tf.cast(positive(r), tf.complex128)),
    "matrix_rank": lambda r: linalg.matrix_rank(r[:, None] * r[None]),
    "spectral norm": lambda r: tf.norm(matrix(r), ord=2, axis=[-2, -1]),
    "spectral norm of a rectangle": lambda r: tf.norm(matrix(r)[:, :2], ord=2, axis=[-2, -1]),
    "rectangle": lambda r: linalg.svd(matrix(r)[:2], compute_uv=False),
}
CASES = {k: (f, ROWS) for k, f in OF_ANY.items()} | {k: (f, FULL) for k, f in OF_FULL.items()}
SLOPES = {
    "eigvalsh": lambda r: tf.reduce_sum(linalg.eigvalsh(symmetric(r)) ** 3),
    "eigh": lambda r: tf.reduce_sum(linalg.eigh(positive(r) * (1.0 + r))[1][:, -1] ** 2 * r),
    "singular values": lambda r: tf.reduce_sum(linalg.svd(matrix(r), compute_uv=False) ** 3),
    "spectral norm": lambda r: tf.norm(matrix(r), ord=2, axis=[-2, -1]),
}
CLOSE = {"tolerance": (1e-6, 1e-8)}
test_table_of_matrices = table_of(
    CASES, ways=["eager", "unknown n, few rows"],
    only={"unknown n, few rows": [
        "eigvals", "eigvalsh", "singular values", "spectral norm", "svd"]},
    **CLOSE,
)  # fmt: skip
test_table_of_slopes = table_of(
    SLOPES, FULL, ways=["around", "inside"], only={"inside": ["eigvalsh"]}, **CLOSE
)
test_table_of_cut_rows = table_of(
    {"eigvalsh": lambda x, k: SLOPES["eigvalsh"](x[:k])},
    R([4, 5], [1, 2], dtype=tf.float64), tf.constant([2, 5, 1, 3]), ways=["compiled"],
)  # fmt: skip

# Both operands have one size in each row, which is checked at run time; else there is an error.
UNEVEN = {
    "product": lambda a, b: tf.linalg.matvec(a, b, transpose_a=True),
    "least squares": lambda a, b: linalg.lstsq(a, b[:, None]),
    "solution": lambda a, b: linalg.solve(a @ tf.transpose(a) + tf.eye(tf.size(b)), b[:, None]),
    "sum of a product": lambda a, b: tf.reduce_sum(tf.transpose(a) @ b[:, None]),
}
PADDED = {
    f"{name}, padded": lambda a, b, f=f: f(tf.nn.softmax(a, 0), tf.nn.softmax(b))
    for name, f in UNEVEN.items()
}
A = tf.RaggedTensor.from_row_lengths(tf.cast(R([14, 2], [3, 4]), tf.float32), [3, 5, 2, 4])
B = tf.RaggedTensor.from_row_lengths(R([14], [5, 6]), [3, 5, 2, 4])
test_table_of_two_operands = table_of(
    {**UNEVEN, **PADDED}, A, B, ways=["eager"], tolerance=(2e-3, 2e-4)
)
test_operands_of_other_sizes = errors_of(
    {**UNEVEN, **PADDED}, A, tf.RaggedTensor.from_row_lengths(B.values, [3, 5, 3, 3]),
    match="differ in some iterations",
)  # fmt: skip


def test_least_squares_are_not_many_ops():
    specs = [
        tf.RaggedTensorSpec([None, None, 2], ragged_rank=1),
        tf.RaggedTensorSpec([None, None, 1], ragged_rank=1),
    ]
    mapped = tf.function(lambda *rows: tf_pfor.vectorized_map(lambda r: linalg.lstsq(*r), rows))
    graph = mapped.get_concrete_function(*specs).graph.as_graph_def()
    inside = [node for function in graph.library.function for node in function.node_def]
    assert len(graph.node) + len(inside) <= 960
