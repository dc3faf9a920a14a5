"""The graphs of matrix products: the number of products, no loop, nothing repeated."""

import functools

import numpy as np
import pytest
import tensorflow as tf

from tests.comparisons import needed_ops, strict_map
from tests.harness import LOOP_OPS

PRODUCTS = ("BatchMatMul", "BatchMatMulV2", "BatchMatMulV3", "Einsum", "MatMul", "Mul")
N = 3


def emitted(fn, *rows, reference=None):
    """The op types that ``fn`` mapped over ``rows`` needs, without constants.

    The values are compared with ``reference``, which is ``fn`` if it is not given.
    """
    concrete = tf.function(
        lambda *xs: strict_map(lambda x: fn(*x), xs),
        autograph=False,
    ).get_concrete_function(*[tf.TensorSpec(x.shape, x.dtype) for x in rows])
    needed = needed_ops(concrete.outputs)
    found = [op.type for op in needed if op.type not in ("Const", "Placeholder", "Identity")]
    expected = np.stack([np.asarray((reference or fn)(*[x[i] for x in rows])) for i in range(N)])
    np.testing.assert_allclose(concrete(*map(tf.constant, rows)), expected, rtol=1e-4, atol=1e-5)
    assert not set(found) & set(LOOP_OPS), found
    return sorted(found)


def normal(*shape):
    rng = np.random.default_rng(sum(shape))
    return rng.normal(size=shape).astype(np.float32)


def products(types):
    return [t for t in types if t in PRODUCTS]


W = tf.constant(normal(4, 5))
B = tf.constant(normal(5))


def test_dense_on_one_example_is_three_kernels():
    def dense(x):
        return tf.nn.relu(tf.nn.bias_add(x[None] @ W, B))[0]

    # [n, 1, 4] and [n, 4] have the same elements: no Reshape either.
    assert emitted(dense, normal(N, 4)) == ["BiasAdd", "MatMul", "Relu"]


def test_dense_by_matvec_is_one_product():
    types = emitted(lambda x: tf.linalg.matvec(W, x, transpose_a=True), normal(N, 4))
    assert products(types) == ["MatMul"]
    assert "Transpose" not in types


@pytest.mark.parametrize("flag", [False, True])
@pytest.mark.parametrize("rows", [1, 3])
def test_right_invariant_is_one_matmul(rows, flag):
    w = tf.transpose(W) if flag else W
    types = emitted(lambda x: tf.matmul(x, w, transpose_b=flag), normal(N, rows, 4))
    assert products(types) == ["MatMul"]
    assert set(types) <= {"MatMul", "Reshape", "Transpose"}
    assert types.count("Transpose") == 0


@pytest.mark.parametrize("flag", [False, True])
@pytest.mark.parametrize("columns", [1, 3])
def test_left_invariant_is_one_matmul(columns, flag):
    shape = (columns, 5) if flag else (5, columns)
    types = emitted(lambda y: tf.matmul(W, y, transpose_b=flag), normal(N, *shape))
    assert products(types) == ["MatMul"]
    assert set(types) <= {"MatMul", "Reshape", "Transpose"}
    assert types.count("Transpose") == (0 if columns == 1 else 1 if flag else 2)


def test_batch_of_rows_by_a_shared_matrix_is_one_matmul():
    types = emitted(lambda x: tf.matmul(x, W), normal(N, 2, 3, 4))
    assert products(types) == ["MatMul"]
    assert "BroadcastTo" not in types


def test_shared_batch_of_matrices_is_one_einsum():
    y = tf.constant(normal(2, 4, 5))
    types = emitted(lambda x: tf.matmul(x, y), normal(N, 2, 3, 4))
    assert types == ["Einsum"]


def test_outer_product_is_one_multiplication():
    types = emitted(lambda x, y: x[:, None] @ y[None], normal(N, 4), normal(N, 5))
    assert products(types) == ["Mul"]


def test_products_of_rows_are_one_batch_matmul():
    types = emitted(tf.matmul, normal(N, 3, 4), normal(N, 4, 5))
    assert types == ["BatchMatMulV2"]


@pytest.mark.parametrize(
    ("left", "right"),
    [
        ((2, 3, 3, 4), (4, 5)),
        ((2, 3, 4), (4, 5)),
        ((3, 4), (2, 2, 4, 5)),
        ((2, 1, 3, 4), (2, 4, 5)),
    ],
)
def test_kernels_never_broadcast_batches(left, right):
    """BatchMatMulV2 of rank 4 by rank 2 ends the process (TensorFlow 2.21, CPU)."""
    for vary in ((0,), (1,), (0, 1)):
        shapes = (left, right)
        fixed = [tf.constant(normal(*s)) for s in shapes]
        rows = [normal(N, *shapes[i]) for i in vary]

        def product(*xs, matmul=tf.matmul, vary=vary, fixed=fixed):
            both = list(fixed)
            for i, x in zip(vary, xs):
                both[i] = x
            return matmul(*both)

        # In numpy, since the kernel on one example may be what ends the process.
        types = emitted(product, *rows, reference=functools.partial(product, matmul=np.matmul))
        assert not {"BatchMatMulV2", "BatchMatMulV3", "BroadcastTo"} & set(types), types


def test_einsum_takes_the_loop_as_one_more_label():
    types = emitted(lambda x: tf.einsum("btd,dhk->bthk", x, normal(4, 2, 3)), normal(N, 2, 5, 4))
    assert products(types) == ["Einsum"]


def test_bias_gradient_of_one_row_is_no_sum():
    def gradient(x):
        return tf.raw_ops.BiasAddGrad(out_backprop=x[None])

    assert set(emitted(gradient, normal(N, 4))) <= {"Reshape"}
