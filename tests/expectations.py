"""Sorted lists of what is expected to fail; a test fails when a gap closes and stays listed."""

# Samples that run in a sequential loop, or are refused with the fallback off: why stands beside.
LOOPED: tuple[str, ...] = (
    # There is no kernel for batches: that for one runs for all rows in parallel.
    "DecodeAndCropJpeg[0,1]",
    "DecodeAndCropJpeg[0]",
    "DecodeAndCropJpeg[1]",
    "DecodeBmp[0]",
    "DecodeGif[0]",
    "DecodeImage-floats[0]",
    "DecodeImage[0]",
    "DecodeJpeg[0]",
    "DecodePng[0]",
    "DecodeWav[0]",
    "DecodeWebP[0]",
    # Python is called for each iteration in its turn.
    "EagerPyFunc[0]",
    # There is no kernel for batches: that for one runs for all rows in parallel.
    "EncodeJpegVariableQuality[0,1]",
    "EncodeJpegVariableQuality[0]",
    "EncodeJpegVariableQuality[1]",
    "EncodeJpeg[0]",
    "EncodePng-several[0]",
    "EncodePng[0]",
    "EncodeWav[0,1]",
    "EncodeWav[0]",
    "EncodeWav[1]",
    "ExtractJpegShape[0]",
    # There is no kernel for batches: that for one runs for all rows in parallel.
    "ParseTensor[0]",
    # Python is called for each iteration in its turn.
    "PyFuncStateless[0]",
    "PyFunc[0]",
    # The kernels' own arithmetic draws what a loop would draw, bit for bit.
    # There is no kernel for batches: that for one runs for all rows in parallel.
    "SerializeTensor[0]",
    # The kernels' own arithmetic draws what a loop would draw, bit for bit.
    "SobolSample[0]",
    # Each draw moves the generator on.
    "StatefulRandomBinomial[0]",
    "StatefulStandardNormalV2[0]",
    "StatefulTruncatedNormal[0]",
    "StatefulUniformFullInt[0]",
    "StatefulUniformInt[0]",
    "StatefulUniform[0]",
    # The kernels' own arithmetic draws what a loop would draw, bit for bit.
    "StatelessMultinomial[0,1]",
    "StatelessMultinomial[0]",
    "StatelessMultinomial[1]",
    "StatelessParameterizedTruncatedNormal[0,1]",
    "StatelessParameterizedTruncatedNormal[0]",
    "StatelessParameterizedTruncatedNormal[1]",
    "StatelessRandomBinomial[0]",
    "StatelessRandomGammaV2[0]",
    "StatelessRandomGammaV3[0,1]",
    "StatelessRandomGammaV3[0]",
    "StatelessRandomGammaV3[1]",
    "StatelessRandomNormal-float64[0]",
    "StatelessRandomPoisson[0,1]",
    "StatelessRandomPoisson[0]",
    "StatelessRandomPoisson[1]",
    "StatelessRandomUniformV2-large[0,1]",
    "StatelessRandomUniformV2-large[0]",
    "StatelessRandomUniformV2-large[1]",
    # There is no kernel for batches: that for one runs for all rows in parallel.
    "StatelessSampleDistortedBoundingBox[0]",
    # The kernels' own arithmetic draws what a loop would draw, bit for bit.
    "StatelessShuffle[0,1]",
    "StatelessShuffle[0]",
    "StatelessShuffle[1]",
    "StatelessTruncatedNormalV2[0,1]",
    "StatelessTruncatedNormalV2[0]",
    "StatelessTruncatedNormalV2[1]",
    "StatelessTruncatedNormal[0]",
)

# Samples with invariants of an origin at a site of the call that are refused with the fallback
# off. Their values are compared with the fallback on. Without any shape they would need to know
# the number of axes, of channels or of rows, or the shape of a filter.
SITES_LOOPED: tuple[tuple[str, str, str], ...] = (
    ("All-own-axis-both", "outer", "all None"),
    ("BatchMatMulV2-unknown_by_matrix", "argument", "all None"),
    ("BatchToSpace", "outer", "all None"),
    ("BatchToSpaceND", "argument", "all None"),
    ("BroadcastArgs", "numpy", "all None"),
    ("Conv2D", "variable", "all None"),
    ("Conv2D-dilated", "numpy", "all None"),
    ("Conv2D-explicit", "argument", "all None"),
    ("Conv2DBackpropFilter-1x1-stride", "captured", "all None"),
    ("Conv2DBackpropFilter-strides-1x2", "constant", "all None"),
    ("Conv2DBackpropInput-dilated", "argument", "all None"),
    ("Conv2DBackpropInput-stride", "captured", "all None"),
    ("Conv2DBackpropInput-valid", "outer", "all None"),
    ("Conv3D", "captured", "all None"),
    ("DepthwiseConv2dNative-explicit-f64", "numpy", "all None"),
    ("DepthwiseConv2dNativeBackpropFilter-valid-stride", "outer", "all None"),
    ("Dilation2D", "captured", "all None"),
    ("Dilation2DBackpropFilter", "variable", "all None"),
    ("EditDistance", "argument", "all None"),
    ("EditDistance", "outer", "all None"),
    ("FusedBatchNorm-inference", "variable", "all None"),
    ("FusedBatchNormGrad-inference", "argument", "all None"),
    ("FusedBatchNormV2-training", "numpy", "all None"),
    ("FusedBatchNormV3-inference-half", "numpy", "all None"),
    ("FusedBatchNormV3-training-space", "outer", "all None"),
    ("FusedPadConv2D-REFLECT", "numpy", "all None"),
    ("FusedPadConv2D-REFLECT", "outer", "all None"),
    ("MatrixSetDiagV3", "constant", "saved"),
    ("Min-own-axis-both", "captured", "all None"),
    ("Prod-own-axis-both", "variable", "all None"),
    ("RaggedBincount", "variable", "all None"),
    ("ScatterNd-shape", "captured", "all None"),
    ("SparseBincount", "captured", "all None"),
    ("SparseDenseCwiseMul", "argument", "all None"),
    ("SparseReduceSum-all", "argument", "all None"),
    ("SparseReorder", "variable", "all None"),
    ("SparseSoftmax", "outer", "all None"),
    ("Sum-own-axis-both", "constant", "all None"),
)

# The same that fail, with a part of the error. These are faults of TensorFlow. It cannot save a
# function whose gradient captures an Optional of the outer graph. It infers another shape of
# MatrixDiagV2 when it loads a function, and cannot infer the shape of ApproxTopK. It declares other
# shapes of ExtractVolumePatches, and of FusedBatchNormGrad's reserved outputs, than the kernels
# give. It broadcasts few groups of axes. Operands of a softmax cross entropy that broadcast need a
# static shape.
SITES_FAIL: dict[tuple[str, str, str], str] = {
    ("ApproxTopK", "outer", "functional"): "last dimension >= k",
    ("ExtractVolumePatches", "argument", "all None"): "Input to reshape",
    ("FractionalMaxPoolGrad", "constant", "functional"): "tensor_out_dup is not the same",
    ("FusedBatchNormGrad-training", "captured", "all None"): "Mismatch in function retval shape",
    ("FusedBatchNormGradV2-inference", "constant", "all None"): "Mismatch in function retval shape",
    ("Less-groups", "argument", "all None"): "is not supported yet",
    ("MatrixDiagV2", "variable", "saved"): "Binding inputs to tf.function failed",
    ("OptionalFromValue", "outer", "saved"): "Failed to add concrete function",
    ("OptionalGetValue", "constant", "saved"): "Failed to add concrete function",
    ("OptionalGetValue", "numpy", "saved"): "Failed to add concrete function",
    ("OptionalGetValue", "variable", "saved"): "Failed to add concrete function",
    ("OptionalHasValue", "captured", "saved"): "Failed to add concrete function",
    ("SoftmaxCrossEntropyWithLogits-broadcast", "argument", "all None"): "must be broadcastable",
}
