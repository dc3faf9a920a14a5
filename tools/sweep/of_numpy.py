"""Sweep of tf.experimental.numpy."""

from __future__ import annotations

import numpy as np
import tensorflow as tf

from tools.sweep.cases import (
    Case,
    ascending,
    body,
    bools,
    call,
    each,
    floats,
    integers,
    permutations,
    positive,
)

TNP = "tf.experimental.numpy"
_np = tf.experimental.numpy

NUMPY: list[Case] = [
    *each(TNP,
        "abs absolute angle arccos arcsin arcsinh arctan arctanh around array asanyarray asarray "
        "ascontiguousarray atleast_1d atleast_2d atleast_3d cbrt ceil conj conjugate copy cos cosh "
        "deg2rad diag diagflat empty_like exp exp2 expm1 fabs fix flatten floor imag iscomplex "
        "iscomplexobj isfinite isinf isnan isneginf isposinf isreal isrealobj log log10 log1p log2 "
        "ndim negative ones_like positive rad2deg ravel real reciprocal round shape sign signbit "
        "sin sinc sinh size sort argsort sqrt square squeeze std sum tan tanh transpose var vander "
        "zeros_like all any amax amin argmax argmin average count_nonzero cumprod cumsum max mean "
        "min nanmean nanprod nansum prod ptp nonzero flip", positive(4)),
    *each(TNP, "array", integers(4), label="integers"),
    call(f"{TNP}.arccosh", positive(4, low=1.1, high=3.0)),
    *each(TNP,
        "add allclose arctan2 array_equal divide divmod dot equal float_power floor_divide greater "
        "greater_equal heaviside hypot inner isclose kron less less_equal logaddexp logaddexp2 "
        "maximum minimum mod multiply nextafter not_equal outer polyval power remainder subtract "
        "true_divide vdot append", positive(4), positive(4)),
    *each(TNP, "bitwise_and bitwise_or bitwise_xor gcd lcm", integers(4, low=1),
        integers(4, low=1)),
    call(f"{TNP}.bitwise_not", integers(4)),
    *each(TNP, "logical_and logical_or logical_xor", bools(4), bools(4)),
    call(f"{TNP}.logical_not", bools(4)),
    *each(TNP, "amax amin max mean min std var sum prod all", floats(3, 4), axis=0, label="axis"),
    *each(TNP, "sort argsort argmax cumsum average", floats(3, 4), axis=0, label="axis"),
    *each(TNP, "fliplr flipud rot90 trace tril triu diagonal diff", floats(3, 4)),
    *each(TNP, "matmul cross", floats(3, 3), floats(3, 3)),
    *each(TNP, "concatenate stack vstack hstack dstack", [floats(2, 3), floats(2, 3)]),
    *each(TNP, "split hsplit", floats(4, 4), 2),
    call(f"{TNP}.vsplit", floats(4, 2), 2),
    call(f"{TNP}.dsplit", floats(1, 2, 4), 2),
    call(f"{TNP}.broadcast_arrays", floats(3, 1), floats(1, 2)),
    call(f"{TNP}.broadcast_to", floats(3), [2, 3]),
    call(f"{TNP}.clip", floats(4), -0.5, 0.5),
    call(f"{TNP}.clip", floats(4), positive(low=-1.0, high=-0.5), 0.5, label="bound of the row"),
    call(f"{TNP}.compress", [True, False, True], floats(3, 2), axis=0),
    call(f"{TNP}.einsum", "ij,jk->ik", floats(2, 3), floats(3, 2)),
    call(f"{TNP}.expand_dims", floats(3), 0),
    call(f"{TNP}.full_like", floats(3), positive()),
    call(f"{TNP}.full", [3], positive()),
    *each(TNP, "geomspace logspace linspace", positive(), positive(low=2.0, high=3.0), 4),
    body(f"{TNP}.arange", lambda x: _np.arange(4) + tf.cast(x, tf.int64), integers()),
    *[body(f"{TNP}.{k}", lambda x, k=k: getattr(_np, k)(3, dtype=np.float32) * x, floats())
        for k in ("eye", "identity", "ones", "zeros", "tri")],
    body(f"{TNP}.diag_indices", lambda x: [tf.cast(i, tf.float32) + x for i in _np.diag_indices(3)],
        floats()),
    call(f"{TNP}.ix_", integers(2), integers(3)),
    call(f"{TNP}.meshgrid", floats(2), floats(3)),
    call(f"{TNP}.moveaxis", floats(2, 3, 4), 0, 2),
    call(f"{TNP}.pad", floats(3), [[1, 2]], "constant"),
    call(f"{TNP}.pad", floats(3), [[1, 2]], "reflect", label="reflect"),
    call(f"{TNP}.repeat", floats(3), 2),
    call(f"{TNP}.reshape", floats(3, 4), [4, 3]),
    call(f"{TNP}.roll", floats(5), 2),
    call(f"{TNP}.roll", floats(5), integers(), label="shift of the row"),
    call(f"{TNP}.select", [bools(4), bools(4)], [floats(4), floats(4)]),
    call(f"{TNP}.swapaxes", floats(2, 3), 0, 1),
    call(f"{TNP}.take", floats(5), integers(3)),
    call(f"{TNP}.take", floats(5, 2), integers(3), axis=0, label="axis"),
    call(f"{TNP}.take_along_axis", floats(3, 4), integers(3, 2, high=4), 1),
    call(f"{TNP}.tensordot", floats(2, 3), floats(3, 2), 1),
    call(f"{TNP}.tile", floats(3), [2]),
    call(f"{TNP}.where", bools(4), floats(4), floats(4)),
    call(f"{TNP}.where", bools(4), label="places"),
    call(f"{TNP}.array_equal", ascending(4), permutations(4), label="integers"),
    *each(f"{TNP}.random", "rand randn", 3, random=True),
    *each(f"{TNP}.random", "standard_normal", [3], random=True),
    call(f"{TNP}.random.uniform", positive(), 2.0, [3], random=True),
    call(f"{TNP}.random.poisson", positive(), [3], random=True),
    call(f"{TNP}.random.randint", 0, 7, [3], random=True),
]  # fmt: skip
