"""Sampling, filtering, and sums over paths."""

import collections

import numpy as np
import tensorflow as tf

from tests.programs.program import F8, chances, given, integers, normal, program

NEVER = -1e3  # a logarithm of a probability
State = collections.namedtuple("State", "mean covariance")


def row_number(rng, n):
    return np.arange(n, dtype=np.int32)


@program(x=normal(3), seed=row_number, weights={"precision": given([1.0, 0.5, 2.0])})
def hamiltonian_monte_carlo(x, seed, precision):
    """Leapfrog steps in a loop, which a draw accepts or not."""

    def log_density(x):
        return -0.5 * tf.reduce_sum(precision * x * x) - 0.1 * tf.reduce_sum(x**4)

    def force(x):
        with tf.GradientTape() as tape:
            tape.watch(x)
            value = log_density(x)
        return tape.gradient(value, x)

    accepted = 0
    for s in tf.range(4):
        momentum = tf.random.stateless_normal([3], tf.stack([seed, s]), dtype=F8)
        draw = tf.random.stateless_uniform([], tf.stack([seed, s + 100]), dtype=F8)
        y, p = x, momentum + 0.05 * force(x)
        for _ in tf.range(5):
            y = y + 0.1 * p
            p = p + 0.1 * force(y)
        p = p - 0.05 * force(y)
        change = log_density(y) - log_density(x)
        change += 0.5 * (tf.reduce_sum(momentum * momentum) - tf.reduce_sum(p * p))
        if tf.math.log(draw) < change:
            x = y
            accepted += 1
    return x, accepted


@program(seed=row_number, mean=normal())
def rejection_sampling(seed, mean):
    """Seeds are split until a draw is accepted."""
    state, x = tf.stack([seed, 7]), tf.constant(0.0, F8)
    tries, accepted = tf.constant(0), tf.constant(False)
    while not accepted and tries < 30:
        seeds = tf.random.experimental.stateless_split(state, 3)
        state = seeds[0]
        x = tf.random.stateless_normal([], seeds[1], dtype=F8) + mean
        draw = tf.random.stateless_uniform([], seeds[2], dtype=F8)
        accepted = draw < tf.exp(-x * x)
        tries += 1
    return x, tries


@program(
    observed=normal(6),
    present=chances(0.6, 6),
    noise=normal(),
    weights={"transition": given([[1.0, 0.1], [0.0, 1.0]])},
)
def kalman_filter(observed, present, noise, transition):
    """tf.scan over a namedtuple; some observations are missing."""

    def step(state, now):
        observed, present = now
        mean = tf.linalg.matvec(transition, state.mean)
        covariance = transition @ state.covariance @ tf.transpose(transition)
        covariance += 0.01 * tf.eye(2, dtype=F8)

        def update():
            gain = covariance[:, 0] / (covariance[0, 0] + noise * noise + 0.1)
            outer = tf.tensordot(gain, covariance[0], 0)
            return State(mean + gain * (observed - mean[0]), covariance - outer)

        return tf.cond(present, update, lambda: State(mean, covariance))

    start = State(tf.zeros([2], F8), tf.eye(2, dtype=F8))
    states = tf.scan(step, (observed, present), initializer=start)
    return states.mean, tf.linalg.trace(states.covariance)


@program(emission=normal(5, 3), present=chances(0.7, 5), weights={"transition": normal(3, 3)})
def forward_backward(emission, present, transition):
    """A hidden Markov model: tf.scan in both directions."""
    transition = tf.nn.log_softmax(transition)

    def forward(alpha, now):
        emission, present = now
        moved = tf.reduce_logsumexp(alpha[:, None] + transition, 0)
        return tf.cond(present, lambda: moved + emission, lambda: moved)

    def backward(beta, emission):
        return tf.reduce_logsumexp(transition + (beta + emission)[None], 1)

    start = tf.zeros([3], F8)
    alphas = tf.scan(forward, (emission, present), initializer=start)
    return alphas, tf.scan(backward, emission, initializer=start, reverse=True)


@program(
    emission=normal(6, 3),
    length=given(5, 2, 4, 6, 1, 3, dtype=np.int32),
    weights={"transition": normal(3, 3)},
)
def viterbi(emission, length, transition):
    """The most likely path, read backwards from an array of pointers."""
    score = emission[0]
    pointers = tf.TensorArray(tf.int32, 6, element_shape=[3], clear_after_read=False)
    pointers = pointers.write(0, tf.zeros([3], tf.int32))
    for t in tf.range(1, length):
        candidates = score[:, None] + transition
        pointers = pointers.write(t, tf.argmax(candidates, 0, output_type=tf.int32))
        score = tf.reduce_max(candidates, 0) + emission[t]
    path = tf.TensorArray(tf.int32, 6, element_shape=[]).unstack(tf.fill([6], -1))
    state = tf.argmax(score, output_type=tf.int32)
    for t in tf.range(length - 1, -1, -1):
        path = path.write(t, state)
        state = tf.gather(pointers.read(t), state)
    return tf.reduce_max(score), path.stack()


@program(
    logits=normal(6, 4),
    label=integers(1, 4, 3),
    label_length=given(2, 0, 3, 1, 3, 2, dtype=np.int32),
    length=given(4, 2, 6, 3, 5, 6, dtype=np.int32),
)
def ctc_loss(logits, label, label_length, length):
    """Connectionist temporal classification: the sum over all alignments."""
    logits = tf.nn.log_softmax(logits)
    blanks = tf.zeros([3], tf.int32)
    extended = tf.concat([tf.reshape(tf.stack([blanks, label], 1), [-1]), [0]], 0)
    last = 2 * label_length
    never = tf.constant(NEVER, F8)
    alpha = tf.where(tf.range(7) < 2, tf.gather(logits[0], extended), never)
    differs = (extended[2:] != 0) & (extended[2:] != extended[:-2])
    may_skip = tf.concat([[False, False], differs], 0)
    for t in tf.range(1, length):
        moved = tf.concat([[never], alpha[:-1]], 0)
        skipped = tf.where(may_skip, tf.concat([[never, never], alpha[:-2]], 0), never)
        paths = tf.reduce_logsumexp(tf.stack([alpha, moved, skipped]), 0)
        alpha = paths + tf.gather(logits[t], extended)
    before = tf.where(label_length > 0, alpha[tf.maximum(last - 1, 0)], never)
    return -tf.reduce_logsumexp(tf.stack([alpha[last], before]))


@program(x=normal(5, 2), y=normal(5, 2), smoothness=normal())
def soft_dtw(x, y, smoothness):
    """Dynamic time warping with a soft minimum: two loops write to a matrix."""
    costs = tf.fill([6, 6], tf.constant(1e6, F8))
    costs = tf.tensor_scatter_nd_update(costs, [[0, 0]], tf.zeros([1], F8))
    gamma = 0.5 + smoothness * smoothness
    for i in tf.range(1, 6):
        for j in tf.range(1, 6):
            distance = tf.reduce_sum((x[i - 1] - y[j - 1]) ** 2)
            before = tf.stack([costs[i - 1, j], costs[i, j - 1], costs[i - 1, j - 1]])
            cost = distance - gamma * tf.reduce_logsumexp(-before / gamma)
            costs = tf.tensor_scatter_nd_update(costs, [[i, j]], [cost])
    return costs[5, 5]
