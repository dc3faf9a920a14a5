"""Sweep of tf.raw_ops: kernels that few endpoints, or gradients only, are made of."""

from __future__ import annotations

from typing import Any

import numpy as np
import tensorflow as tf

from tools.sweep.cases import (
    Case,
    ascending,
    body,
    bools,
    call,
    floats,
    integers,
    positive,
    spd,
    words,
)

R = "tf.raw_ops"
_MAP, _OUT = floats(1, 6, 6, 2), floats(1, 3, 3, 2)
_POOL: dict[str, Any] = {"ksize": [1, 2, 2, 1], "strides": [1, 2, 2, 1], "padding": "VALID"}


def _cell(size: int = 3) -> dict[str, Any]:
    """Weights and states of an LSTM cell of inputs of 2."""
    return {
        "x": floats(1, 2),
        "cs_prev": floats(1, size),
        "h_prev": floats(1, size),
        "w": np.ones([2 + size, 4 * size], np.float32),
        "wci": np.ones([size], np.float32),
        "wcf": np.ones([size], np.float32),
        "wco": np.ones([size], np.float32),
        "b": np.ones([4 * size], np.float32),
    }


RAW: list[Case] = [
    *[call(f"{R}.{k}", gradients=floats(4), features=floats(4))
        for k in words("ReluGrad Relu6Grad SoftplusGrad SoftsignGrad LeakyReluGrad")],
    *[call(f"{R}.{k}", gradients=floats(4), outputs=floats(4)) for k in words("EluGrad SeluGrad")],
    *[call(f"{R}.{k}", y=positive(4), dy=floats(4))
        for k in words("InvGrad ReciprocalGrad RsqrtGrad SigmoidGrad SqrtGrad TanhGrad")],
    *[call(f"{R}.{k}", x=floats(2, 3, 3), y=floats(2, 3, 3))
        for k in words("AddV2 BatchMatMul BatchMatMulV2 Mul RealDiv Sub")],
    call(f"{R}.BatchMatMulV3", x=floats(2, 3, 3), y=floats(2, 3, 3), Tout=tf.float32),
    *[call(f"{R}.{k}", x=floats(4)) for k in words("Inv OnesLike ZerosLike Rint Sign")],
    call(f"{R}.PopulationCount", x=integers(4)),
    call(f"{R}.BiasAddGrad", out_backprop=floats(2, 3)),
    call(f"{R}.Bucketize", input=floats(4), boundaries=[-1.0, 0.0, 1.0]),
    call(f"{R}.ClipByValue", t=floats(4), clip_value_min=-0.5, clip_value_max=0.5),
    call(f"{R}.Cross", a=floats(3), b=floats(3)),
    call(f"{R}.DenseBincount", input=integers(6), size=5, weights=floats(6)),
    call(f"{R}.Bincount", arr=integers(6), size=5, weights=floats(6)),
    *[call(f"{R}.{k}", sorted_inputs=ascending(1, 6), values=integers(1, 3))
        for k in words("LowerBound UpperBound")],
    call(f"{R}.MirrorPadGrad", input=floats(6), paddings=[[1, 2]], mode="REFLECT"),
    call(f"{R}.StridedSliceGrad", shape=[6], begin=[1], end=[5], strides=[2], dy=floats(2)),
    call(f"{R}.TensorStridedSliceUpdate", input=floats(6), begin=[1], end=[5], strides=[2],
        value=floats(2)),
    call(f"{R}.InplaceAdd", x=floats(4, 2), i=[0, 2], v=floats(2, 2)),
    call(f"{R}.InplaceUpdate", x=floats(4, 2), i=[0, 2], v=floats(2, 2)),
    call(f"{R}.ScatterNdNonAliasingAdd", input=floats(5), indices=integers(3, 1),
        updates=floats(3)),
    call(f"{R}.SelectV2", condition=bools(4), t=floats(4), e=floats(4)),
    call(f"{R}.Select", condition=bools(4), x=floats(4), y=floats(4)),
    call(f"{R}.SoftmaxCrossEntropyWithLogits", features=floats(2, 4), labels=positive(2, 4)),
    call(f"{R}.SparseSoftmaxCrossEntropyWithLogits", features=floats(2, 4),
        labels=integers(2, high=4)),
    call(f"{R}.TopKV2", input=floats(5), k=2),
    call(f"{R}.UniqueV2", x=integers(6), axis=[0]),
    call(f"{R}.ListDiff", x=integers(6), y=integers(3)),
    *[call(f"{R}.{k}", data=floats(5, 2), indices=integers(3), segment_ids=[0, 0, 2],
        num_segments=4)
        for k in words("SparseSegmentMeanWithNumSegments SparseSegmentSqrtNWithNumSegments "
        "SparseSegmentSumWithNumSegments")],
    *[call(f"{R}.{k}", grad=floats(2, 2), indices=integers(3), segment_ids=[0, 0, 1], output_dim0=5)
        for k in words("SparseSegmentMeanGrad SparseSegmentSqrtNGrad SparseSegmentSumGrad")],
    # Linear algebra.
    call(f"{R}.CholeskyGrad", l=spd(3), grad=floats(3, 3)),
    call(f"{R}.LogMatrixDeterminant", input=spd(3)),
    call(f"{R}.MatrixSquareRoot", input=spd(3)),
    call(f"{R}.MatrixDiagV3", diagonal=floats(3), k=0, num_rows=-1, num_cols=-1, padding_value=0.0),
    call(f"{R}.MatrixSetDiagV3", input=floats(3, 3), diagonal=floats(3), k=0),
    call(f"{R}.TridiagonalMatMul", superdiag=floats(1, 4), maindiag=floats(1, 4),
        subdiag=floats(1, 4), rhs=floats(4, 2)),
    # Networks.
    call(f"{R}.MaxPoolGrad", orig_input=_MAP, orig_output=_OUT, grad=_OUT, **_POOL),
    call(f"{R}.MaxPoolGradGrad", orig_input=_MAP, orig_output=_OUT, grad=_MAP, **_POOL),
    call(f"{R}.AvgPoolGrad", orig_input_shape=[1, 6, 6, 2], grad=_OUT, **_POOL),
    call(f"{R}.LRNGrad", input_grads=_MAP, input_image=_MAP, output_image=_MAP),
    call(f"{R}.FusedBatchNormV3", x=_MAP, scale=floats(2), offset=floats(2), mean=[], variance=[]),
    body(
        f"{R}.FusedBatchNormGradV3",
        lambda dy, x, scale, mean, variance: tf.raw_ops.FusedBatchNormGradV3(
            y_backprop=dy,
            x=x,
            scale=scale,
            reserve_space_1=mean,
            reserve_space_2=variance,
            reserve_space_3=[],
        )[:3],  # what else it returns, nobody reads, and has another shape than it says
        _MAP,
        _MAP,
        floats(2),
        positive(2),
        positive(2),
    ),
    call(f"{R}.Dilation2DBackpropInput", input=_MAP, filter=floats(2, 2, 2), out_backprop=_MAP,
        strides=[1] * 4, rates=[1] * 4, padding="SAME"),
    call(f"{R}.Dilation2DBackpropFilter", input=_MAP, filter=floats(2, 2, 2), out_backprop=_MAP,
        strides=[1] * 4, rates=[1] * 4, padding="SAME"),
    call(f"{R}.LSTMBlockCell", **_cell()),
    body(f"{R}.GRUBlockCell",
        lambda x, h: tf.raw_ops.GRUBlockCell(x=x, h_prev=h, w_ru=tf.ones([5, 6]),
        w_c=tf.ones([5, 3]), b_ru=tf.ones([6]), b_c=tf.ones([3])), floats(1, 2), floats(1, 3)),
    call(f"{R}.NearestNeighbors", points=floats(3, 2), centers=np.ones([4, 2], np.float32), k=2),
    # Images.
    call(f"{R}.CropAndResize", image=_MAP, boxes=positive(2, 4), box_ind=[0, 0], crop_size=[3, 3]),
    call(f"{R}.CropAndResizeGradImage", grads=floats(2, 3, 3, 2), boxes=positive(2, 4),
        box_ind=[0, 0], image_size=[1, 6, 6, 2], T=tf.float32),
    call(f"{R}.CropAndResizeGradBoxes", grads=floats(2, 3, 3, 2), image=_MAP, boxes=positive(2, 4),
        box_ind=[0, 0]),
    call(f"{R}.ResizeBilinearGrad", grads=_OUT, original_image=_MAP),
    call(f"{R}.ResizeBicubicGrad", grads=_OUT, original_image=_MAP),
    call(f"{R}.ResizeNearestNeighborGrad", grads=_OUT, size=[6, 6]),
    call(f"{R}.ScaleAndTranslate", images=_MAP, size=[4, 4], scale=positive(2),
        translation=positive(2)),
    call(f"{R}.ImageProjectiveTransformV3", images=_MAP, transforms=positive(1, 8),
        output_shape=[4, 4], fill_value=0.0, interpolation="BILINEAR"),
    # Ragged and sparse.
    call(f"{R}.RaggedRange", starts=[0, 1], limits=integers(2, low=1), deltas=[1, 1]),
    call(f"{R}.RaggedTensorToTensor", shape=[3, 4], values=floats(5), default_value=0.0,
        row_partition_tensors=[[0, 2, 2, 5]], row_partition_types=["ROW_SPLITS"]),
    call(f"{R}.SparseToDense", sparse_indices=[1, 3], output_shape=[5], sparse_values=floats(2),
        default_value=0.0),
    call(f"{R}.SparseTensorDenseMatMul", a_indices=[[0, 1], [1, 0]], a_values=floats(2),
        a_shape=[2, 3], b=floats(3, 2)),
    # Random numbers by the row's seed.
    *[call(f"{R}.{k}", shape=[4], seed=integers(2))
        for k in words("StatelessRandomNormal StatelessRandomUniform")],
    call(f"{R}.StatelessRandomUniformInt", shape=[4], seed=integers(2), minval=0, maxval=9),
]  # fmt: skip
