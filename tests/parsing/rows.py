"""Maps over text and bytes at call sites, against a Python loop over rows; nothing may warn."""

import warnings

import numpy as np
import tensorflow as tf

import tf_pfor


def text(*values):
    return tf.train.Feature(bytes_list=tf.train.BytesList(value=values))


def floats(*values):
    return tf.train.Feature(float_list=tf.train.FloatList(value=values))


def ints(*values):
    return tf.train.Feature(int64_list=tf.train.Int64List(value=values))


SITES = ("eager", "function", "unknown n", "dataset")


def mapped(body, texts, site, **options):
    """The results of all rows of ``texts`` [n, ...], as lists of what each row gives."""

    def run(x):
        return tf_pfor.vectorized_map(body, x, **options)

    with warnings.catch_warnings():
        warnings.simplefilter("error", tf_pfor.FallbackWarning)
        if site == "eager":
            return of_rows(run(texts), texts.shape[0])
        if site == "dataset":  # the last batch is smaller
            batches = tf.data.Dataset.from_tensor_slices(texts).batch(2).map(run)
            sizes = [min(2, texts.shape[0] - k) for k in range(0, texts.shape[0], 2)]
            return [row for made, n in zip(batches, sizes, strict=True) for row in of_rows(made, n)]
        shape = [None, *texts.shape[1:]] if site == "unknown n" else texts.shape
        spec = tf.TensorSpec(shape, texts.dtype)
        return of_rows(tf.function(run, input_signature=[spec])(texts), texts.shape[0])


def looped(body, texts):
    """The same by a Python loop."""
    return [[plain(x) for x in leaves(tf.function(body)(row))] for row in texts]


def leaves(nest):
    """Tensors, ragged and sparse ones as they are."""
    return tf.nest.flatten(nest)


def of_rows(nest, n):
    """The leaves of each of n rows."""
    return [[plain(x, row) for x in leaves(nest)] for row in range(n)]


def plain(x, row=None):
    """A tensor, or one of its rows, as dtype and nested lists; a sparse one as its entries."""
    if isinstance(x, tf.SparseTensor):
        places, values = x.indices.numpy(), x.values.numpy()
        if row is not None:
            mine = places[:, 0] == row
            places, values = places[mine][:, 1:], values[mine]
        return x.dtype, "sparse", places.tolist(), values.tolist()
    own = x if row is None else x[row]
    lists = own.to_list() if isinstance(own, tf.RaggedTensor) else np.asarray(own).tolist()
    return own.dtype, lists


def check(body, texts, site, **options):
    """Compares a map with the loop."""
    assert mapped(body, texts, site, **options) == looped(body, texts)
