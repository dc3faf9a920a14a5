"""Maps over the replicas of MultiWorkerMirroredStrategy: one of two processes on the loopback.

Each process gets the ports of both and its number. It runs the same maps as the other, and compares
results with maps on one machine. It prints the name of each check that holds.
"""

import json
import os
import sys

import numpy as np
import tensorflow as tf

import tf_pfor
from tests.api.distribution import close, refused, rows
from tests.comparisons import gradient_of
from tf_pfor import psum, vmap


def body(x):
    return (
        tf.reduce_sum(x),
        x / psum(x),
        tf_pfor.axis_index(),
        tf_pfor.all_gather(x),
        tf_pfor.pmax(x),
        tf_pfor.pmean(x),
    )


def values(strategy):
    for n in (7, 1, 0):
        x = rows(n, 3)
        close(vmap(body, strategy=strategy)(x), vmap(body)(x))


def unknown_numbers_of_rows(strategy):
    made = tf.function(
        vmap(lambda x: (2.0 * x, tf_pfor.all_gather(x)), strategy=strategy),
        input_signature=[tf.TensorSpec([None, 3])],
    )
    for n in (5, 0):
        x = rows(n, 3)
        doubled, gathered = made(x)
        np.testing.assert_array_equal(doubled, 2.0 * x)
        np.testing.assert_array_equal(gathered, np.broadcast_to(x, [n, n, 3]))


def no_elements(strategy):
    assert vmap(tf.identity, strategy=strategy)(rows(4, 0)).shape == [4, 0]


def random_numbers(strategy):
    tf.random.set_seed(1)
    drawn = vmap(lambda x: x + tf.random.normal([]), strategy=strategy)(tf.zeros([9]))
    assert len(set(drawn.numpy().tolist())) == 9
    seeds = tf.reshape(tf.range(10), [5, 2])
    close(
        *(vmap(lambda s: tf.random.stateless_normal([2], s), strategy=s)(seeds)
          for s in (strategy, None))
    )  # fmt: skip


def variables_and_parts(strategy):
    with strategy.scope():
        w = tf.Variable([1.0, 2.0, 3.0])
    x = rows(5, 3)
    close(vmap(lambda r: r * w, strategy=strategy)(x), x * w)
    made = vmap(lambda r: 2.0 * r, strategy=strategy, per_replica=True)(x)
    (part,) = strategy.experimental_local_results(made)
    first, end = ((0, 2), (2, 5))[TASK]
    np.testing.assert_array_equal(part, 2.0 * x[first:end])


def clipped_gradients(strategy):
    """A step of DP-SGD: each machine has rows of its own, and the sums are added up."""
    with strategy.scope():
        w = tf.Variable([1.0, 2.0, 3.0])
    x = rows(8, 3)

    def clipped(part):
        loss = lambda row: tf.reduce_sum(w * row) ** 2
        gradients, _ = tf_pfor.per_example_gradients(loss, w, part)
        return tf.reduce_sum(tf.clip_by_norm(gradients, 1.0, axes=[1]), 0)

    @tf.function
    def step():
        def replica():
            context = tf.distribute.get_replica_context()
            part = x[4 * TASK : 4 * TASK + 4]
            return context.all_reduce(tf.distribute.ReduceOp.SUM, clipped(part))

        return strategy.run(replica)

    close(step(), clipped(x))


def jacobians(strategy):
    jacobian = lambda x: tf_pfor.jacrev(lambda v: tf.sin(v) * tf.reduce_sum(v))(x)
    x = rows(5, 3)
    close(vmap(jacobian, strategy=strategy)(x), vmap(jacobian)(x))


def wrong_use(strategy):
    sizes = tf.constant([1, 3])
    refused(lambda: vmap(tf.range, strategy=strategy)(sizes), "cannot be gathered")
    padded = vmap(tf.range, strategy=strategy, out_shapes="dense")
    assert padded(tf.constant([2, 2])).numpy().tolist() == [[0, 1]] * 2


def padded_rows(strategy):
    sizes = tf.constant([1, 3, 0, 2])
    close(*(vmap(tf.range, strategy=s, out_shapes="padded")(sizes) for s in (strategy, None)))


def refused_on_machines(strategy):
    with strategy.scope():
        v, generator = tf.Variable(1.0), tf.random.Generator.from_seed(1)
    x = rows(5)
    refused(lambda: vmap(lambda r: v.assign_add(r), strategy=strategy)(x), "each machine")
    refused(lambda: vmap(lambda r: r + generator.normal([]), strategy=strategy)(x), "stateless")
    same = vmap(lambda r: tf.random.normal([]), strategy=strategy, randomness="same")
    refused(lambda: same(x), "each machine")
    gradient = lambda: gradient_of(lambda: vmap(lambda r: r * v, strategy=strategy)(x), v)
    for call in (gradient, tf.function(gradient)):
        refused(call, "its own rows only")


CHECKS = [
    values, unknown_numbers_of_rows, no_elements, random_numbers, variables_and_parts,
    clipped_gradients, jacobians, padded_rows, refused_on_machines, wrong_use,
]  # fmt: skip
TASK = 0


def main(ports, task):
    """Prints the name of each check that holds, or fails."""
    global TASK
    TASK = int(task)
    os.environ["TF_CONFIG"] = json.dumps(
        {
            "cluster": {"worker": [f"localhost:{port}" for port in ports.split(",")]},
            "task": {"type": "worker", "index": TASK},
        }
    )
    strategy = tf.distribute.MultiWorkerMirroredStrategy()
    assert strategy.num_replicas_in_sync == 2
    for check in CHECKS:
        check(strategy)
        print(check.__name__, flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
