"""Samples of tf_pfor/converters/sparse/sparse.py."""

import numpy as np
import tensorflow as tf

from tests.sample import drawn, fixed, ints, normal, sample

raw = tf.raw_ops


def places(count, *shape, is_sorted=True, dtype=np.int64):
    """Indices [count, m] of different places of a tensor of this shape."""

    def draw(r):
        chosen = r.permutation(int(np.prod(shape)))[:count]
        chosen = np.sort(chosen) if is_sorted else chosen
        return np.stack(np.unravel_index(chosen, shape), 1).astype(dtype)

    return drawn((count, len(shape)), draw)


def _fixed_places(count, *shape):
    return fixed(places(count, *shape).draw(np.random.default_rng(1), ()))


def _dense(shape, **options):
    def fn(at, values, default):
        return raw.SparseToDense(
            sparse_indices=at, output_shape=np.asarray(shape, at.dtype.as_numpy_dtype),
            sparse_values=values, default_value=default, **options,
        )  # fmt: skip

    return fn


def _reduce(name, axes, **options):
    def fn(at, values):
        return getattr(raw, name)(
            input_indices=at, input_values=values, input_shape=[3, 4],
            reduction_axes=axes, **options,
        )  # fmt: skip

    return fn


def _matmul(shape, **options):
    def fn(at, values, b):
        return raw.SparseTensorDenseMatMul(
            a_indices=at, a_values=values, a_shape=np.int64(shape), b=b, **options
        )

    return fn


def _concat(a, x, b, y):
    return raw.SparseConcat(
        indices=[a, b], values=[x, y], shapes=[np.int64([3, 4]), np.int64([3, 2])], concat_dim=1
    )


_OPTIONS = {"xla": False, "max_ops": 40}  # XLA has no such kernels

SAMPLES = [
    sample("SparseConcat", _concat, places(4, 3, 4), normal(4), places(3, 3, 2), normal(3),
           grad=False, **_OPTIONS),
    *[sample(name, lambda at, x, d, name=name: getattr(raw, name)(sp_indices=at, sp_values=x,
        sp_shape=[3, 4], dense=d), places(5, 3, 4), normal(5), normal(4), **_OPTIONS)
        for name in ("SparseDenseCwiseDiv", "SparseDenseCwiseMul")],
    sample("SparseDenseCwiseAdd",
        lambda at, x, d: raw.SparseDenseCwiseAdd(sp_indices=at, sp_values=x, sp_shape=[3, 4],
        dense=d), places(5, 3, 4), normal(5), normal(3, 4), grad=False, **_OPTIONS),  # it has none
    sample("SparseReduceMax", _reduce("SparseReduceMax", [1]), places(5, 3, 4), normal(5),
           grad=False, **_OPTIONS),  # it has none
    sample("SparseReduceSum", _reduce("SparseReduceSum", [-1]), places(5, 3, 4), normal(5),
           **_OPTIONS),
    sample("SparseReduceSum", _reduce("SparseReduceSum", [0, 1], keep_dims=True),
           places(5, 3, 4, is_sorted=False), normal(5, dtype=np.float64), label="all", **_OPTIONS),
    sample("SparseReorder",
           lambda at, x: raw.SparseReorder(input_indices=at, input_values=x, input_shape=[3, 4]),
           places(5, 3, 4, is_sorted=False), normal(5), **_OPTIONS),
    sample("SparseReshape",
           lambda at: raw.SparseReshape(input_indices=at, input_shape=[3, 4], new_shape=[2, -1, 2]),
           places(5, 3, 4), label="", unknown=True, **_OPTIONS),
    sample("SparseSoftmax",
           lambda at, x: raw.SparseSoftmax(sp_indices=at, sp_values=x, sp_shape=[3, 4]),
           places(5, 3, 4), normal(5), **_OPTIONS),
    sample("SparseTensorDenseAdd",
        lambda at, x, b: raw.SparseTensorDenseAdd(a_indices=at, a_values=x,
        a_shape=np.int64([3, 4]), b=b), places(5, 3, 4), normal(5), normal(3, 4), **_OPTIONS),
    sample("SparseTensorDenseMatMul", _matmul([3, 4]), places(5, 3, 4), normal(5), normal(4, 2),
           **_OPTIONS),
    sample("SparseTensorDenseMatMul", _matmul([3, 4], adjoint_a=True, adjoint_b=True),
           places(5, 3, 4, is_sorted=False), normal(5, dtype=np.complex64),
           normal(2, 3, dtype=np.complex64), label="adjoint", **_OPTIONS),
    sample("SparseTensorDenseMatMul", _matmul([3, 4], adjoint_b=True), _fixed_places(6, 3, 4),
           normal(6, dtype=np.float64), normal(2, 4, dtype=np.float64), label="transposed",
           **_OPTIONS),
    sample("SparseToDense", _dense([3, 4]), places(5, 3, 4), normal(5), normal(), max_ops=40),
    sample("SparseToDense", _dense([9]), drawn((3,), lambda r: np.sort(r.permutation(9)[:3])
                                               .astype(np.int32)),
           ints(), fixed(np.int32(-1)), label="vector", max_ops=40),
    sample("SparseToDense", _dense([9]), ints(dtype=np.int64), normal(), fixed(np.float32(2)),
           label="scalar", grad=False, max_ops=40),  # its gradient takes vectors only
    sample("SparseToDense", _dense([3, 4], validate_indices=False),
           places(5, 3, 4, is_sorted=False), normal(5), fixed(np.float32(0)), label="unsorted",
           max_ops=40),
]  # fmt: skip
