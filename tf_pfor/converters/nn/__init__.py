"""Converters of neural network ops: convolutions, pools, losses, images.

The loop is folded into the batch or the channels of the kernels. It may import
`converters/math` and below; nobody but control flow may import it. Products of matrices
belong into `converters/math`.
"""

from tf_pfor.converters.nn import (
    cells,
    conv,
    cudnn_rnn,
    distortion,
    fractional,
    image,
    losses,
    normalization,
    pool,
    quantization,
    quantized,
)

__all__ = [
    "cells",
    "conv",
    "cudnn_rnn",
    "distortion",
    "fractional",
    "image",
    "losses",
    "normalization",
    "pool",
    "quantization",
    "quantized",
]
