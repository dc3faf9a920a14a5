"""Sorted lists of what is expected to fail; a test fails when a gap closes and stays listed."""

# Samples that run in a sequential loop, or are refused with the fallback off: why stands beside.
LOOPED: tuple[str, ...] = (
    # Python is called for each iteration in its turn.
    "EagerPyFunc[0]",
    # Boxes are suppressed one after the other.
    "NonMaxSuppressionV4[0,1]",
    "NonMaxSuppressionV4[0]",
    "NonMaxSuppressionV4[1]",
    "NonMaxSuppressionV5[0,1]",
    "NonMaxSuppressionV5[0]",
    "NonMaxSuppressionV5[1]",
    # Python is called for each iteration in its turn.
    "PyFuncStateless[0]",
    "PyFunc[0]",
    # The kernels' own arithmetic draws what a loop would draw, bit for bit.
    "RandomIndexShuffle[0]",
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
    "StatelessShuffle[0,1]",
    "StatelessShuffle[0]",
    "StatelessShuffle[1]",
    "StatelessTruncatedNormalV2[0,1]",
    "StatelessTruncatedNormalV2[0]",
    "StatelessTruncatedNormalV2[1]",
    "StatelessTruncatedNormal[0]",
)

# Samples with invariants of an origin at a site of the call that are refused with the fallback
# off; their values are compared with the fallback on.
SITES_LOOPED: tuple[tuple[str, str, str], ...] = (
    ("BatchToSpace", "outer", "all None"),  # the batch size must be known
    ("Dilation2D", "captured", "all None"),  # the number of channels must be known
    ("SparseTensorDenseMatMul", "captured", "all None"),  # and here the number of axes
)

# The same that fail: a part of the error.
SITES_FAIL: dict[tuple[str, str, str], str] = {
    # TensorFlow cannot save a function whose gradient captures an Optional of the graph around.
    ("OptionalFromValue", "outer", "saved"): "Failed to add concrete function",
}
