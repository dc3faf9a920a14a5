"""Products of variable-length rows of two sources: as many in each row, which is checked."""

import numpy as np
import pytest
import tensorflow as tf

import tf_pfor
from tests.comparisons import assert_close, strict_map

LENGTHS = [3, 1, 4, 2]
RNG = np.random.default_rng(0)


def rows(*inner, lengths=LENGTHS):
    return tf.RaggedTensor.from_row_lengths(
        tf.constant(RNG.normal(size=[sum(lengths), *inner])), lengths
    )


EQUATIONS = {
    "ij,ik->jk": (rows(3), rows(2)),
    "i,ij->j": (rows(), rows(3)),
    "ij,ik,i->kj": (rows(3), rows(2), rows()),
    "ijk,ik->ij": (rows(2, 3), rows(3)),
    "i,i->i": (rows(), rows()),
    "...i,...i->...": (rows(3), rows(3)),
}


@pytest.mark.parametrize("equation", EQUATIONS)
def test_einsum(equation):
    check(lambda row: tf.einsum(equation, *row), EQUATIONS[equation])


def test_batches_of_matrices():
    check(lambda row: tf.matmul(row[0], row[1]), (rows(2, 3), rows(3, 2)))


def check(body, elems):
    flat = [x.flat_values for x in elems]
    with tf.GradientTape() as tape:
        tape.watch(flat)
        given = tuple(x.with_flat_values(t) for x, t in zip(elems, flat))
        found = strict_map(body, given)
        loss = tf.reduce_sum(tf.sin(getattr(found, "flat_values", found)))
    with tf.GradientTape() as looped:
        looped.watch(flat)
        given = [x.with_flat_values(t) for x, t in zip(elems, flat)]
        expected = [body(tuple(x[i] for x in given)) for i in range(len(LENGTHS))]
        total = tf.add_n([tf.reduce_sum(tf.sin(x)) for x in expected])
    for i, x in enumerate(expected):
        np.testing.assert_allclose(found[i], x, 1e-12)
    assert_close(tape.gradient(loss, flat), looped.gradient(total, flat), atol=0)


def test_rows_of_other_lengths_are_an_error():
    other = rows(lengths=[3, 2, 3, 2])
    with pytest.raises(tf.errors.InvalidArgumentError, match="differ in some iterations"):
        tf_pfor.vectorized_map(lambda row: tf.einsum("i,i->", *row), (rows(), other))
