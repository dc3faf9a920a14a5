"""Converters of neural network ops: convolutions, pools, losses, images.

The loop is folded into the batch or the channels of the kernels. It may import
`converters/math` and below; nobody but control flow may import it. Products of matrices
belong into `converters/math`.
"""

from tf_pfor.converters.nn import cells as cells
from tf_pfor.converters.nn import conv as conv
from tf_pfor.converters.nn import cudnn_rnn as cudnn_rnn
from tf_pfor.converters.nn import distortion as distortion
from tf_pfor.converters.nn import fractional as fractional
from tf_pfor.converters.nn import image as image
from tf_pfor.converters.nn import losses as losses
from tf_pfor.converters.nn import normalization as normalization
from tf_pfor.converters.nn import pool as pool
from tf_pfor.converters.nn import quantization as quantization
from tf_pfor.converters.nn import quantized as quantized
