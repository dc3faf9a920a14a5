"""Converters of arithmetic: elementwise, reductions, products, algebra.

`_families` has the makers of one-line rules, which all rooms of converters use. It may import
`converters/lists` and below (sums of lists are sums); the rooms beside and above may import
it. What only moves elements belongs into `converters/arrays`.
"""

from tf_pfor.converters.math import elementwise as elementwise
from tf_pfor.converters.math import fft as fft
from tf_pfor.converters.math import linalg as linalg
from tf_pfor.converters.math import matmul as matmul
from tf_pfor.converters.math import reductions as reductions
from tf_pfor.converters.math import sums as sums
from tf_pfor.converters.math import xla_products as xla_products
from tf_pfor.converters.math import xla_reductions as xla_reductions
