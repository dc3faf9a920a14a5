"""Batches of a dataset, row by row, beside what a Python loop over its elements gives."""

import numpy as np
import tensorflow as tf

Dataset = tf.data.Dataset


def plain(x):
    """A leaf as numpy or lists."""
    if isinstance(x, tf.SparseTensor):
        return tf.sparse.to_dense(x).numpy()
    return x.to_list() if isinstance(x, tf.RaggedTensor) else x.numpy()


def _row(x, i):
    if isinstance(x, tf.SparseTensor):
        return tf.sparse.to_dense(x)[i]
    return x[i]


def rows(dataset):
    """The rows of all batches: lists of leaves."""
    found = []
    for batch in dataset:
        leaves = [x for x in tf.nest.flatten(batch) if x is not None]
        sizes = {int(x.nrows() if isinstance(x, tf.RaggedTensor) else x.shape[0]) for x in leaves}
        assert len(sizes) == 1, sizes
        found += [[plain(_row(x, i)) for x in leaves] for i in range(sizes.pop())]
    return found


def results(fn, dataset):
    """The results of ``fn`` for each element alone: lists of leaves."""
    made = [fn(*x) if type(x) is tuple else fn(x) for x in dataset]
    return [
        [plain(x) if tf.is_tensor(x) else np.asarray(x) for x in tf.nest.flatten(one)]
        for one in made
    ]


def assert_rows(found, wanted):
    """Both have the same leaves."""
    assert len(found) == len(wanted)
    for got, want in zip(found, wanted):
        assert len(got) == len(want)
        for a, b in zip(got, want):
            if isinstance(a, list) and isinstance(b, np.ndarray) and not b.size:
                assert a == b.tolist()  # a ragged row without elements has no inner sizes
            elif isinstance(b, np.ndarray) and b.dtype.kind in "fc":
                np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)
            else:
                assert np.array_equal(a, b) if not isinstance(b, list) else a == b, (a, b)
