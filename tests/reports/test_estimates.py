"""Estimates in reports, and what ``explain`` takes from signatures."""

import numpy as np
import pytest
import tensorflow as tf

import tf_pfor
from tf_pfor.reports import estimates
from tf_pfor.reports.explain import explain

W = tf.Variable(tf.ones([4, 5]))


def dense(x):
    return tf.nn.relu(tf.reshape(x, [1, 4]) @ W)


def test_products_and_elementwise_ops():
    report = explain(dense, tf.TensorSpec([8, 4], tf.float32))
    found = {r.op_type: r for r in report.records}
    assert (found["MatMul"].flops, found["MatMul"].bytes) == (2 * 4 * 5, 20)
    assert (found["Relu"].flops, found["Relu"].bytes) == (5, 20)
    assert (found["Reshape"].flops, found["Reshape"].bytes) == (0, 0)
    assert sum(report.time_shares) == pytest.approx(1.0)
    text = str(report)
    assert "Estimated for n = 8: results of 320 B, 360 operations" in " ".join(text.split())
    assert "estimates" in report.html()
    (one,) = [op for op in report.to_dict()["ops"] if op["op_type"] == "MatMul"]
    assert one["estimate"]["flops"] == 40.0


CASES = {
    "Conv2D": (lambda x: tf.nn.conv2d(x[None], tf.ones([3, 3, 2, 7]), 1, "SAME"), [5, 5, 2],
               2 * 25 * 7 * 9 * 2),
    "DepthwiseConv2dNative": (
        lambda x: tf.nn.depthwise_conv2d(x[None], tf.ones([3, 3, 2, 1]), [1] * 4, "SAME"),
        [5, 5, 2], 2 * 25 * 2 * 9),
    "Einsum": (lambda x: tf.einsum("ij,kj->ik", x, x), [3, 4], 2 * 3 * 4 * 3),
    "Sum": (tf.reduce_sum, [3, 4], 12),
    "Exp": (tf.exp, [3], 30),
}  # fmt: skip


@pytest.mark.parametrize("op_type", CASES)
def test_arithmetic(op_type):
    fn, shape, wanted = CASES[op_type]
    report = explain(fn, tf.TensorSpec([2, *shape], tf.float32))
    (found,) = [r for r in report.records if r.op_type == op_type]
    assert found.flops == wanted


def test_loops_take_most_of_the_time():
    report = explain(
        lambda x: tf.numpy_function(np.sin, [tf.exp(x)], tf.float32), tf.TensorSpec([99, 3])
    )
    shares = dict(zip([r.op_type for r in report.records], report.time_shares))
    assert max(shares, key=lambda k: shares[k]) in ("PyFunc", "EagerPyFunc")


def test_unknown_sizes_are_not_guessed():
    report = explain(tf.exp, tf.TensorSpec([None, None], tf.float32))
    (found,) = [r for r in report.records if r.op_type == "Exp"]
    assert found.flops is None
    assert "Estimated for one row" in str(report)


def test_text():
    assert estimates.text_of_bytes(12) == "12 B"
    assert estimates.text_of_bytes(1_500_000) == "1.5 MB"
    assert estimates.text_of_flops(2e12) == "2 trillion"


# Signatures -------------------------------------------------------------------


def test_concrete_functions_and_signatures(tmp_path):
    module = tf.Module()
    module.w = W
    module.one = tf.function(lambda x: {"y": dense(x)})
    concrete = module.one.get_concrete_function(tf.TensorSpec([4], tf.float32, "x"))
    report = explain(concrete)
    assert {r.op_type for r in report.records} >= {"MatMul", "Relu"}
    assert report.n is None
    assert explain(concrete, tf.TensorSpec([6, 4])).n == 6
    tf.saved_model.save(module, str(tmp_path), signatures=concrete)
    loaded = tf.saved_model.load(str(tmp_path))
    report = explain(loaded.signatures["serving_default"])
    assert {r.op_type for r in report.records} >= {"MatMul", "Relu"}
    assert not report.totals["rejected"]
    report = explain(loaded.signatures["serving_default"], {"x": tf.ones([3, 4])})
    assert report.n == 3


def test_functions_with_an_input_signature():
    one = tf.function(dense, input_signature=[tf.TensorSpec([4], tf.float32)])
    assert {r.op_type for r in explain(one).records} >= {"MatMul", "Relu"}
    assert explain(one, tf.ones([2, 4])).n == 2
    with pytest.raises(tf_pfor.ArgumentError, match="takes no arguments"):
        explain(tf.function(lambda: 1.0).get_concrete_function())
    with pytest.raises(tf_pfor.ArgumentError, match="number of iterations"):
        explain(tf.function(dense))
