"""Samples of tf_pfor/converters/math/matmul.py."""

import numpy as np
import tensorflow as tf

from tests.sample import fixed, ints, normal, sample

raw = tf.raw_ops
HALF = {"rtol": 2e-2, "atol": 2e-2}  # eps of bfloat16 is 8e-3, and sums are ordered otherwise


def matmul(**flags):
    return lambda a, b: raw.MatMul(a=a, b=b, **flags)


def batched(**flags):
    return lambda x, y: raw.BatchMatMulV2(x=x, y=y, **flags)


def einsum(equation):
    return lambda *inputs: raw.Einsum(inputs=list(inputs), equation=equation)


def unknown_dims(fn):
    """``fn(x, y)`` of an x and a y of which only the rank is known; their shapes are inputs."""
    return lambda x, y, sx, sy: fn(tf.reshape(x, sx), tf.reshape(y, sy))


MATMULS = [
    sample("MatMul", tf.matmul, normal(2, 3), normal(3, 4)),
    sample("MatMul", matmul(transpose_a=True), normal(3, 2), normal(3, 4), label="ta"),
    sample("MatMul", matmul(transpose_b=True), normal(2, 3), normal(4, 3), label="tb"),
    sample("MatMul", matmul(transpose_a=True, transpose_b=True), normal(3, 2), normal(4, 3),
        label="ta_tb"),
    sample("MatMul", tf.matmul, normal(1, 3), normal(3, 4), label="row"),
    sample("MatMul", matmul(transpose_b=True), normal(1, 3), normal(4, 3), label="row_tb"),
    sample("MatMul", matmul(transpose_a=True), normal(3, 1), normal(3, 4), label="row_ta"),
    sample("MatMul", tf.matmul, normal(2, 3), normal(3, 1), label="column"),
    sample("MatMul", matmul(transpose_a=True), normal(3, 2), normal(3, 1), label="column_ta"),
    sample("MatMul", matmul(transpose_b=True), normal(2, 3), normal(1, 3), label="column_tb"),
    sample("MatMul", tf.matmul, normal(2, 1), normal(1, 4), label="outer"),
    sample("MatMul", matmul(transpose_a=True), normal(1, 2), normal(1, 4), label="outer_ta"),
    sample("MatMul", tf.matmul, normal(1, 3), normal(3, 1), label="dot"),
    sample("MatMul", matmul(transpose_a=True), normal(3, 1), normal(3, 1), label="dot_ta"),
    sample("MatMul", tf.matmul, normal(2, 0), normal(0, 4), label="empty_sum"),
    sample("MatMul", tf.matmul, normal(2, 3), normal(3, 0), label="no_columns"),
    sample("MatMul", tf.linalg.matvec, normal(2, 3), normal(3), label="matvec"),
    sample("MatMul", matmul(transpose_a=True, transpose_b=True), normal(3, 2, dtype=np.complex64),
        normal(4, 3, dtype=np.complex64), label="complex"),
    sample("MatMul", matmul(transpose_a=True), normal(3, 1, dtype=np.complex64),
        normal(3, 1, dtype=np.complex64), label="complex_dot"),
    sample("MatMul", tf.matmul, ints(2, 3), ints(3, 4), label="int32"),
    sample("MatMul", tf.matmul, ints(2, 3, dtype=np.int64), ints(3, 1, dtype=np.int64),
           label="int64"),
    sample("MatMul", tf.matmul, normal(2, 3, dtype=np.float64), normal(3, 4, dtype=np.float64),
           label="float64"),
    sample("MatMul", tf.matmul, normal(2, 3, dtype=np.float16), normal(3, 4, dtype=np.float16),
           label="half", **HALF),
    sample("MatMul", tf.matmul, normal(1, 3, dtype=tf.bfloat16.as_numpy_dtype),
           normal(3, 1, dtype=tf.bfloat16.as_numpy_dtype), label="bfloat16", **HALF),
    sample("MatMul", unknown_dims(tf.matmul), normal(2, 3), normal(3, 4), fixed([2, 3]),
        fixed([3, 4]), label="unknown", max_ops=25),
    sample("MatMul", unknown_dims(matmul(transpose_a=True)), normal(3, 2), normal(3, 4),
        fixed([3, 2]), fixed([3, 4]), label="unknown_ta", max_ops=25),
    sample("SparseMatMul", lambda a, b: raw.SparseMatMul(a=a, b=b, a_is_sparse=True), normal(2, 3),
        normal(3, 4), xla=False),
    sample("SparseMatMul",
        lambda a, b: raw.SparseMatMul(a=a, b=b, transpose_a=True, transpose_b=True),
        normal(3, 2, dtype=tf.bfloat16.as_numpy_dtype), normal(4, 3), label="bfloat16", xla=False,
        grad=False, **HALF),
]  # fmt: skip

COMPLEX = {"dtype": np.complex64}
BATCHED = [
    sample("BatchMatMulV2", batched(), normal(2, 3, 4), normal(2, 4, 5)),
    sample("BatchMatMulV2", batched(), normal(2, 4, 2, 3), normal(3, 4), label="rank4_by_2"),
    sample("BatchMatMulV2", batched(), normal(2, 3), normal(2, 4, 3, 4), label="rank2_by_4"),
    sample("BatchMatMulV2", batched(), normal(2, 4, 2, 3), normal(4, 3, 4), label="rank4_by_3"),
    sample("BatchMatMulV2", batched(), normal(2, 1, 2, 3), normal(1, 4, 3, 4), label="ones"),
    sample("BatchMatMulV2", batched(), normal(2, 1, 2, 3), normal(1, 1, 3, 4), label="all_ones"),
    sample("BatchMatMulV2", batched(), normal(2, 3), normal(1, 1, 3, 4), label="ones_only"),
    sample("BatchMatMulV2", batched(), normal(2, 3, 1), normal(2, 1, 4), label="outer"),
    sample("BatchMatMulV2", batched(adj_x=True), normal(2, 4, 1, 3), normal(4, 1, 4),
           label="outer_broadcast"),
    sample("BatchMatMulV2", batched(adj_x=True), normal(2, 4, 3), normal(4, 5), label="adj_x"),
    sample("BatchMatMulV2", batched(adj_y=True), normal(3, 4), normal(2, 5, 4), label="adj_y"),
    sample("BatchMatMulV2", batched(adj_x=True, adj_y=True), normal(2, 4, 3), normal(2, 5, 4),
        label="adj_both"),
    sample("BatchMatMulV2", batched(adj_x=True, adj_y=True), normal(2, 4, 3, **COMPLEX),
        normal(2, 5, 4, **COMPLEX), label="complex"),
    sample("BatchMatMulV2", batched(adj_x=True, adj_y=True), normal(2, 4, 3, **COMPLEX),
        normal(5, 4, **COMPLEX), label="complex_right_matrix"),
    sample("BatchMatMulV2", batched(adj_x=True, adj_y=True), normal(4, 3, **COMPLEX),
        normal(2, 5, 4, **COMPLEX), label="complex_left_matrix"),
    sample("BatchMatMulV2", batched(adj_x=True, adj_y=True), normal(2, 1, 3, **COMPLEX),
        normal(5, 1, **COMPLEX), label="complex_outer"),
    sample("BatchMatMulV2", batched(), normal(2, 3), normal(3, 4), label="no_batch"),
    sample("BatchMatMulV2", batched(), normal(4, 2, 3), normal(3, 1), label="columns"),
    sample("BatchMatMulV2", batched(), normal(2, 3), normal(4, 3, 1), label="left_columns"),
    sample("BatchMatMulV2", batched(), ints(2, 3, 4), ints(4, 5), label="int32"),
    sample("BatchMatMulV2", batched(), ints(2, 3, 4, dtype=np.int16), ints(4, 5, dtype=np.int16),
        label="int16", xla=False),
    sample("BatchMatMulV2", batched(), normal(0, 3, 4), normal(4, 5), label="empty_batch"),
    sample("BatchMatMulV2", unknown_dims(batched()), normal(2, 3, 4), normal(1, 4, 5),
        fixed([2, 3, 4]), fixed([1, 4, 5]), label="unknown_batch", max_ops=16),
    sample("BatchMatMulV2", unknown_dims(batched()), normal(2, 2, 3, 4), normal(4, 5),
        fixed([2, 2, 3, 4]), fixed([4, 5]), label="unknown_by_matrix", max_ops=30),
    sample("BatchMatMul", lambda x, y: raw.BatchMatMul(x=x, y=y, adj_x=True), normal(2, 4, 3),
        normal(2, 4, 5)),
    sample("BatchMatMulV3", lambda x, y: raw.BatchMatMulV3(x=x, y=y, Tout=tf.float32),
        normal(2, 3, 4), normal(4, 5)),
    sample("BatchMatMulV3", lambda x, y: raw.BatchMatMulV3(x=x, y=y, Tout=tf.int32),
        ints(2, 3, 4, dtype=np.int8), ints(2, 4, 5, dtype=np.int8), label="int8", xla=False),
]  # fmt: skip

EINSUMS = [
    sample("Einsum", einsum("ij,jk->ik"), normal(2, 3), normal(3, 4)),
    sample("Einsum", einsum("ij->ji"), normal(2, 3), label="transpose"),
    sample("Einsum", einsum("ii->"), normal(3, 3), label="trace"),
    sample("Einsum", einsum("i,j->ij"), normal(2), normal(3), label="outer"),
    sample("Einsum", einsum("i,i->"), normal(3), normal(3), label="dot"),
    sample("Einsum", einsum("bij,jk->bik"), normal(2, 2, 3), normal(3, 4), label="dense"),
    sample("Einsum", einsum("abij,jk->abik"), normal(2, 2, 2, 3), normal(3, 4), label="rank4"),
    sample("Einsum", einsum("...ij,...jk->...ik"), normal(2, 2, 3), normal(3, 4), label="ellipsis"),
    sample("Einsum", einsum("...ij,...jk->...ik"), normal(4, 1, 2, 3), normal(2, 3, 4),
           label="ellipsis_broadcast"),
    sample("Einsum", einsum("btnh,bsnh->bnts"), normal(2, 3, 2, 4), normal(2, 5, 2, 4),
           label="attention"),
    sample("Einsum", einsum("Zij,jY->Yi"), normal(2, 3, 2), normal(2, 4), label="letters"),
    sample("Einsum", einsum("ij,jk->ik"), ints(2, 3), ints(3, 4), label="int32"),
    sample("Einsum", einsum("ij,jk->ki"), normal(2, 3, dtype=np.complex64),
           normal(3, 4, dtype=np.complex64), label="complex"),
    sample("Einsum", einsum("ij,jk->ki"), normal(2, 3, dtype=np.float16),
           normal(3, 4, dtype=np.float16), label="half", **HALF),
    sample("Einsum", lambda a, b, c: tf.einsum("ij,jk,kl->il", a, b, c), normal(2, 3),
           normal(3, 4), normal(4, 2), label="three"),
]  # fmt: skip


def bias_grad(data_format="NHWC"):
    return lambda x: raw.BiasAddGrad(out_backprop=x, data_format=data_format)


BIASES = [
    sample("BiasAdd", tf.nn.bias_add, normal(2, 3), normal(3)),
    sample("BiasAdd", tf.nn.bias_add, normal(2, 4, 5, 3), normal(3), label="images"),
    sample("BiasAdd", lambda v, b: tf.nn.bias_add(v, b, "NCHW"), normal(2, 3, 4, 5), normal(3),
        label="nchw"),
    sample("BiasAdd", lambda x, w, b: tf.nn.bias_add(x @ w, b), normal(2, 3), normal(3, 4),
           normal(4), label="after_matmul"),
    sample("BiasAdd", lambda x, w, b: tf.nn.bias_add(tf.reshape(x @ w, [2, 2, 4]), b), normal(4, 3),
        normal(3, 4).fixed, normal(4).fixed, label="after_reshape"),
    sample("BiasAdd", tf.nn.bias_add, ints(2, 3), ints(3), label="int32"),
    sample("BiasAdd", unknown_dims(tf.nn.bias_add), normal(2, 4, 3), normal(3), fixed([2, 4, 3]),
        fixed([3]), label="unknown", max_ops=20),
    sample("BiasAddV1", lambda v, b: raw.BiasAddV1(value=v, bias=b), normal(2, 4, 3), normal(3)),
    sample("BiasAddGrad", bias_grad(), normal(2, 3)),
    sample("BiasAddGrad", bias_grad(), normal(1, 3), label="one_row"),
    sample("BiasAddGrad", bias_grad(), normal(2, 4, 5, 3), label="images"),
    sample("BiasAddGrad", bias_grad("NCHW"), normal(2, 3, 4, 5), label="nchw"),
    sample("BiasAddGrad", bias_grad("NCHW"), normal(1, 3, 1, 1), label="nchw_one"),
    sample("BiasAddGrad", bias_grad(), normal(2, 3, dtype=np.float16), label="half", **HALF),
]  # fmt: skip

SAMPLES = [*MATMULS, *BATCHED, *EINSUMS, *BIASES]
