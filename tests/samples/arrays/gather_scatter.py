"""Samples of tf_pfor/converters/arrays/gather_scatter.py."""

import numpy as np
import tensorflow as tf

from tests.sample import bools, drawn, fixed, ints, normal, sample

raw = tf.raw_ops
_TABLE = tf.Variable(np.arange(20, dtype=np.float32).reshape(5, 4))


def _permutation(size):
    return drawn((size,), lambda r: r.permutation(size).astype(np.int32))


def _scatters(name, *, first="tensor", **options):
    """Samples of an op that scatters updates into a tensor."""

    def fn(x, indices, updates):
        return getattr(raw, name)(**{first: x}, indices=indices, updates=updates)

    rows = drawn((2, 1), lambda r: r.permutation(5)[:2, None].astype(np.int32))
    return sample(name, fn, normal(5, 3), rows, normal(2, 3), **options)


SAMPLES = [
    sample("DataFormatVecPermute",
           lambda x: raw.DataFormatVecPermute(x=x, src_format="NHWC", dst_format="NCHW"), ints(4)),
    sample("DataFormatVecPermute",
           lambda x: raw.DataFormatVecPermute(x=x, src_format="NCHW", dst_format="NHWC"),
           ints(4, 2), label="pairs"),
    sample("DynamicStitch", lambda a, b: tf.dynamic_stitch([[0, 3], [[2, 1], [3, 4]]], [a, b]),
        normal(2, 3), normal(2, 2, 3)),
    sample("Gather", lambda p, i: raw.Gather(params=p, indices=i), normal(5, 2), ints(3)),
    sample("GatherNd", tf.gather_nd, normal(5, 5, 2), ints(3, 2)),
    sample("GatherNd", tf.gather_nd, bools(5, 5), ints(2, dtype=np.int64), label="scalar"),
    sample("GatherV2", tf.gather, normal(5, 2), ints(3)),
    sample("GatherV2", lambda p, i: tf.gather(p, i, axis=-1), normal(2, 5), ints(2, 2),
           label="axis"),
    sample("GatherV2", lambda p, i: tf.gather(p, i, axis=2, batch_dims=1), normal(2, 3, 5),
           ints(2, 4), label="batch"),
    sample("GatherV2", lambda p, i: tf.gather(p, i, axis=1), normal(3, 5), ints(dtype=np.int64),
           label="scalar"),
    sample("GatherV2", lambda p, i: tf.gather(p, i[None]), normal(5, 2), ints(3), label="folded",
           max_ops=2),
    sample("InvertPermutation", tf.math.invert_permutation, _permutation(5)),
    sample("OneHot", lambda i: tf.one_hot(i, 4), ints(2, 3)),
    sample("OneHot", lambda i, a, b: tf.one_hot(i, 4, a, b, axis=0), ints(2, 3), normal(),
           normal(), label="values", grad=False),  # OneHot has no gradient
    sample("OneHot", lambda i: tf.one_hot(i[None], 4, axis=1), ints(2, low=-1, high=6),
           label="axis"),
    sample("ParallelDynamicStitch",
           lambda a, b: raw.ParallelDynamicStitch(indices=[[0, 3], [2, 1]], data=[a, b]),
           normal(2, 3), normal(2, 3), xla=False),
    sample("ResourceGather", lambda i: tf.gather(_TABLE, i), ints(3), label="table"),
    sample("ResourceGather",
        lambda i: raw.ResourceGather(resource=_TABLE.handle, indices=i, dtype=tf.float32,
        batch_dims=1), ints(5, 2, high=4), label="table batch", xla=False),
    sample("ResourceGatherNd", lambda i: _TABLE.gather_nd(i), ints(3, 2, high=4),
           label="table", xla=False),
    sample("ScatterNd", lambda i, u: tf.scatter_nd(i, u, [5, 3]), ints(4, 1), normal(4, 3)),
    sample("ScatterNd", lambda i, u, s: tf.scatter_nd(i, u, s), ints(4, 2, dtype=np.int64),
           normal(4), fixed(np.asarray([5, 5])), label="shape", xla=False),
    sample("ScatterNdNonAliasingAdd",
           lambda x, i, u: raw.ScatterNdNonAliasingAdd(input=x, indices=i, updates=u),
           normal(5, 3), ints(4, 1), normal(4, 3), xla=False),
    _scatters("TensorScatterAdd"),
    _scatters("TensorScatterMax"),
    _scatters("TensorScatterMin"),
    _scatters("TensorScatterSub"),
    _scatters("TensorScatterUpdate"),
    sample("UnravelIndex", lambda i: tf.unravel_index(i, [3, 4]), ints(5, high=12), xla=False),
    sample("UnravelIndex", lambda i: tf.unravel_index(i, [3, 4]), ints(high=12), label="scalar",
           xla=False),
    sample("UnravelIndex", lambda i, d: tf.unravel_index(i, d), ints(5, high=12),
           ints(2, low=4, high=6), label="own", xla=False, max_ops=24),
    *[sample("GatherV2", lambda x, i, a: tf.gather(x, i, axis=a), normal(3, 3, 3), at,
        ints(low=-3, high=3), label=f"own-axis-{label}", max_ops=40, xla=False)
        for label, at in (("one", ints(high=3)), ("three", ints(3, high=3)))],
    *[sample(name, lambda x, i, v, name=name: getattr(raw, name)(x=x + 0.0, i=i, v=v), normal(4, 2),
        drawn((2,), lambda r: r.permutation(4)[:2].astype(np.int32)), normal(2, 2), grad=False,
        xla=False, max_ops=20) for name in ("InplaceAdd", "InplaceSub", "InplaceUpdate")],
    sample("DynamicPartition", lambda x: tf.dynamic_partition(x, [0, 1, 0, 2], 3), normal(4, 2),
           xla=False),
    sample("DynamicPartition", lambda x: tf.dynamic_partition(x, [[0, 1], [1, 1]], 2),
           normal(2, 2, dtype=np.float64), label="matrix", xla=False),
]  # fmt: skip
