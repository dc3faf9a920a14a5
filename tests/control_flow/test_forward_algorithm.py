"""Second derivatives of a hidden Markov model's likelihood, of variable-length sequences.

The gradients of a gather along axis 1, and of a transposition, keep permutations for each trip.
These are the same in all trips, and constants.
"""

import numpy as np
import pytest
import tensorflow as tf

import tf_pfor
from tests.comparisons import gradient_of, mapped

STATES, STEPS, SYMBOLS = 3, 5, 4
RANDOM = np.random.default_rng(0)
SEQUENCES = tf.constant(RANDOM.integers(0, SYMBOLS, (4, STEPS)), tf.int32)
LENGTHS = tf.constant([1, 3, 5, 2])
THETA = tf.constant(RANDOM.normal(size=(4, STATES, STATES)))
EMISSION = tf.constant(RANDOM.normal(size=(STATES, SYMBOLS)))


def with_gather(theta, sequence, length):
    """Log space; the emissions of a symbol are gathered along axis 1."""
    transition, emission = tf.nn.log_softmax(theta, axis=1), tf.nn.log_softmax(EMISSION, axis=1)
    alpha, t = tf.gather(emission, sequence[0], axis=1), tf.constant(1)
    while t < length:
        alpha = tf.reduce_logsumexp(alpha[:, None] + transition, axis=0)
        alpha += tf.gather(emission, sequence[t], axis=1)
        t += 1
    return tf.reduce_logsumexp(alpha)


def with_transposition(theta, sequence, length):
    """Probabilities; the transition matrix is transposed in the loop, the emission sliced."""
    transition, emission = tf.nn.softmax(theta, axis=1), tf.nn.softmax(EMISSION, axis=1)
    alpha, t = emission[:, sequence[0]], tf.constant(1)
    while t < length:
        alpha = tf.linalg.matvec(tf.transpose(transition), alpha) * emission[:, sequence[t]]
        t += 1
    return tf.math.log(tf.reduce_sum(alpha))


FORMS = {
    "hessian": tf_pfor.hessian,
    "reverse of reverse": lambda f: tf_pfor.jacrev(tf_pfor.jacrev(f)),
    "reverse of forward": lambda f: tf_pfor.jacrev(tf_pfor.jacfwd(f)),
}


def differences(likelihood, row, step=1e-5):
    """The hessian of one row by differences of gradients, without tf_pfor."""
    likelihood = tf.function(likelihood)

    def gradient(theta):
        return gradient_of(lambda: likelihood(theta, SEQUENCES[row], LENGTHS[row]), theta)

    moves = step * np.eye(STATES * STATES).reshape(-1, STATES, STATES)
    columns = [gradient(THETA[row] + d) - gradient(THETA[row] - d) for d in moves]
    return tf.reshape(tf.stack(columns) / (2 * step), [STATES] * 4)


CALLED = (FORMS["reverse of reverse"], tf.function(with_gather), with_gather)
CASES = {
    f"{likelihood.__name__}, {name}": (form, likelihood, likelihood)
    for name, form in FORMS.items()
    for likelihood in (with_gather, with_transposition)
} | {"a function that is called keeps its constants": CALLED}


@pytest.mark.parametrize("name", CASES)
def test_hessians_of_sequences_of_own_length(name):
    form, likelihood, plain = CASES[name]
    found = mapped(form(likelihood), THETA, SEQUENCES, LENGTHS)
    expected = [differences(plain, row) for row in range(4)]
    np.testing.assert_allclose(found, expected, rtol=1e-6, atol=1e-8)
