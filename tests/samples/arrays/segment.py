"""Samples of tf_pfor/converters/arrays/segment.py."""

import numpy as np
import tensorflow as tf

from tests.sample import drawn, fixed, ints, normal, sample, uniform

raw = tf.raw_ops
_SORTED = [0, 0, 2, 3]
_IDS = fixed(np.asarray(_SORTED, np.int32))


def _sorted_ids(size, high):
    return drawn((size,), lambda r: np.sort(r.integers(0, high, size)).astype(np.int32))


def _texts(*shape):
    return drawn(shape, lambda r: r.choice(np.asarray([b"a", b"", b"bc"], object), shape))


def _sparse(name, **options):
    """Samples of a reduction of indexed rows: ids constant, and ids of each row."""

    def plain(data, indices):
        return getattr(raw, name)(data=data, indices=indices, segment_ids=_SORTED)

    def counted(data, indices, ids):
        return getattr(raw, f"{name}WithNumSegments")(
            data=data, indices=indices, segment_ids=ids, num_segments=4
        )

    def grad(dy, indices, ids):
        return getattr(raw, f"{name}Grad")(grad=dy, indices=indices, segment_ids=ids, output_dim0=5)

    options = {"xla": False, "max_ops": 20, **options}  # XLA has none of these kernels
    return [
        sample(name, plain, normal(5, 2), ints(4), **options),
        sample(f"{name}Grad", grad, normal(4, 2), ints(4), _sorted_ids(4, 4), grad=False,
               **options),
        sample(f"{name}WithNumSegments", counted, normal(5, 2), ints(4), _sorted_ids(4, 4),
               **options),
    ]  # fmt: skip


SAMPLES = [
    sample("Bincount", lambda a, w: raw.Bincount(arr=a, size=4, weights=w), ints(2, 3),
           normal(2, 3), grad=False),
    sample("Bincount", lambda a: raw.Bincount(arr=a, size=4, weights=tf.zeros([0], tf.int32)),
           ints(3), label="counts", grad=False),
    sample("DenseBincount",
           lambda a, w: raw.DenseBincount(input=a, size=4, weights=w, binary_output=False),
           ints(4), normal(4), grad=False),
    sample("DenseBincount",
        lambda a: raw.DenseBincount(input=a, size=np.int64(4), weights=tf.zeros([0]),
        binary_output=True), ints(2, 4, dtype=np.int64), label="binary", grad=False),
    sample("HistogramFixedWidth",
           lambda x, r: tf.histogram_fixed_width(x, r, nbins=4), normal(2, 9),
           drawn((2,), lambda r: np.asarray([-r.uniform(0, 1), r.uniform(0, 1)], np.float32)),
           max_ops=20, grad=False, xla=False),
    sample("HistogramFixedWidth",
        lambda x, r: tf.histogram_fixed_width(x, r, nbins=3, dtype=tf.int64), ints(9),
        fixed(np.asarray([1, 4], np.int32)), label="int", max_ops=20, grad=False, xla=False),
    *[sample(name, lambda x, i, name=name: getattr(raw, name)(data=x, segment_ids=i), uniform(4, 3),
        _IDS, xla=False, max_ops=20)
        for name in ("SegmentMax", "SegmentMean", "SegmentMin", "SegmentProd", "SegmentSum")],
    sample("SegmentSum", lambda x: tf.math.segment_sum(x, _SORTED), normal(4, 3),
           label="constant", xla=False, max_ops=3),
    *[s for name in ("SparseSegmentMean", "SparseSegmentSqrtN", "SparseSegmentSum")
        for s in _sparse(name)],
    *[sample(name, lambda x, i, name=name: getattr(raw, name)(data=x, segment_ids=i,
        num_segments=3), uniform(2, 3, 2), ints(2, 3, low=-1, high=3), max_ops=20)
        for name in ("UnsortedSegmentMax", "UnsortedSegmentMin", "UnsortedSegmentProd",
        "UnsortedSegmentSum")],
    sample("UnsortedSegmentJoin", lambda x, i: tf.strings.unsorted_segment_join(x, i, 5, "-"),
           _texts(4, 2), ints(4), grad=False, xla=False, max_ops=20),
    sample("UnsortedSegmentJoin",
           lambda x, i, k: tf.strings.unsorted_segment_join(x, i, k), _texts(2, 3), ints(2, 3),
           fixed(np.int64(6)), label="count", grad=False, xla=False, max_ops=20),
    sample("UnsortedSegmentSum", lambda x, i, k: tf.math.unsorted_segment_sum(x, i, k),
           normal(4, dtype=np.float64), ints(4, dtype=np.int64), fixed(5), label="count",
           xla=False, max_ops=20),
    sample("UnsortedSegmentSum", lambda x: tf.math.unsorted_segment_sum(x, [1, -1, 0, 1], 2),
           normal(4, 2), label="constant", max_ops=3),
]  # fmt: skip
