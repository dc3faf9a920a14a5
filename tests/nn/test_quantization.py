"""Gradients of quantization, which are cut off at bounds that the kernel is not given."""

import tensorflow as tf

from tests.ways import table_of

ROWS = tf.constant([[0.1, 0.5, 0.9], [0.2, -0.6, 1.3], [0.0, -1.0, 1.0]])
COUNTS = tf.constant([2, 0, 1])
WEIGHTS = tf.Variable([0.3, 1.4, -2.0])
_rounded = tf.quantization.quantize_and_dequantize_v2
_cut = lambda x, low=-1.0, high=1.0, **options: _rounded(
    x, low, high, **{"range_given": False, **options}
)


def _in_branch(x, count):
    return _cut(x) if count > 0 else 2.0 * x


def _in_loop(x, count):
    for _ in tf.range(count):
        tf.autograph.experimental.set_loop_options(maximum_iterations=2)
        x = _cut(1.5 * x)
    return x


test_table_of_bounds = table_of(
    {
        "found": lambda x, count: _cut(x),
        "found, of an axis": lambda x, count: _cut(x, [-1.0] * 3, [1.0] * 3, axis=0),
        "found, of the rows": lambda x, count: _cut(x, -tf.abs(x[1]), tf.abs(x[1])),
        "found, unsigned": lambda x, count: _cut(x, signed_input=False, narrow_range=True),
        "found, of weights": lambda x, count: _cut(WEIGHTS) * x + _cut(WEIGHTS * x),
        "given": lambda x, count: _cut(x, range_given=True),
        "in a branch": _in_branch,
        "in a loop": _in_loop,
    },
    ROWS, COUNTS, ways=["function", "function inside", "function around"], by=(WEIGHTS,),
)  # fmt: skip
