"""Helpers that the tests of state share: a batch, maps in three settings, variables."""

import pytest
import tensorflow as tf

import tf_pfor
from tests.comparisons import of_unknown_n
from tf_pfor import NotVectorizableError

X = tf.constant([1.0, 2.0, 4.0])


@pytest.fixture(params=["eager", "function", "unknown n"])
def mapped(request):
    """vectorized_map, eagerly, in tf.function, and there with an unknown number of rows."""

    def run(body, elems=X):
        def call(rows):
            return tf_pfor.vectorized_map(body, rows, fallback_to_while_loop=False)

        if request.param == "eager":
            return call(elems)
        spec_of = of_unknown_n if request.param == "unknown n" else tf.TensorSpec.from_tensor
        spec = tf.nest.map_structure(spec_of, elems)
        return tf.function(call, input_signature=[spec], autograph=False)(elems)

    return run


def var(value, **options):
    return tf.Variable(value, **options)


def refused(body, *texts):
    with pytest.raises(NotVectorizableError) as caught:
        tf_pfor.vectorized_map(body, X)
    for text in texts:
        assert text in str(caught.value), str(caught.value)
