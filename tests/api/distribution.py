"""Maps over the replicas of a strategy on two virtual CPUs, compared with maps on one.

It is a process of its own, since TensorFlow's devices are made once. It prints each check's name.
"""

import numpy as np
import tensorflow as tf

import tf_pfor
from tests.comparisons import gradient_of
from tests.devices import run_on_two_replicas
from tf_pfor import psum, vmap

RNG = np.random.default_rng(0)
W = RNG.normal(size=[3, 3]).astype(np.float32)
rows = lambda *shape: tf.constant(RNG.normal(size=shape).astype(np.float32))
plain = lambda x: (tf.nn.softmax(tf.linalg.matvec(W, x)), tf.reduce_sum(x))
place = lambda x: (x[0] + 10.0 * tf.cast(tf_pfor.axis_index(), tf.float32), tf_pfor.axis_size())


def reductions(x):
    shared = tf.constant(2.0)
    return (
        *(f(x) for f in (psum, tf_pfor.pmean, tf_pfor.pmax, tf_pfor.pmin)),
        psum(shared) + tf_pfor.pmean(shared) * x,
        tf_pfor.pmean(tf.cast(x, tf.int32)),
        psum(x, "rows") / tf_pfor.pmax(x, "rows"),
    )


moves = lambda x: (tf_pfor.all_gather(x), tf_pfor.all_gather(x, axis=1), tf_pfor.pargmax(x))
nested = lambda x: vmap(lambda v: psum(v, "inner") * v + psum(v, "rows"), axis_name="inner")(x)
gradient_inside = lambda x: gradient_of(lambda: psum(x) * x, x)
BODIES = [plain, place, reductions, moves, nested, gradient_inside]


def close(found, wanted):
    tf.nest.assert_same_structure(found, wanted)
    for a, b in zip(tf.nest.flatten(found), tf.nest.flatten(wanted)):
        assert a.shape == b.shape, (a.shape, b.shape)
        np.testing.assert_allclose(a, b, 1e-5, 1e-6)


def values(strategy):
    for body in BODIES:
        for n in (0, 1, 2, 7):
            x = rows(n, 3)
            close(
                vmap(body, axis_name="rows", strategy=strategy)(x), vmap(body, axis_name="rows")(x)
            )
        made = tf.function(
            vmap(body, axis_name="rows", strategy=strategy),
            input_signature=[tf.TensorSpec([None, 3])],
        )
        for n in (0, 1, 5):
            x = rows(n, 3)
            for a, b in zip(
                tf.nest.flatten(made(x)), tf.nest.flatten(vmap(body, axis_name="rows")(x))
            ):
                np.testing.assert_allclose(a, b, 1e-5, 1e-6)


def exchanges(strategy):
    def body(x):
        swap = tf_pfor.ppermute(x, perm=[(0, 1), (4, 0)])
        return swap, tf_pfor.all_to_all(x), tf_pfor.psum_scatter(x)

    x = rows(5, 5)
    close(vmap(body, strategy=strategy)(x), vmap(body)(x))


def axes(strategy):
    x, y = rows(3, 5), rows(5)
    for out_axes in (1, (1, -1)):
        both = [
            vmap(lambda a, b: (a * b, a + b), (1, 0), out_axes, strategy=s)(x, y)
            for s in (strategy, None)
        ]
        close(*both)
    shared = [
        vmap(lambda a: (a, psum(a)), out_axes=(0, None), strategy=s)(x) for s in (strategy, None)
    ]
    close(*shared)
    named = [
        vmap(lambda d, *, k: d["x"] * d["s"] + k, ({"x": 0, "s": None},), strategy=s)(
            {"x": x, "s": y}, k=tf.range(3.0)
        )
        for s in (strategy, None)
    ]
    close(*named)
    assert vmap(lambda: tf_pfor.axis_index(), axis_size=4, strategy=strategy)().shape == [4]


def shapes_that_differ(strategy):
    sizes = tf.constant([1, 3, 0, 2, 2])
    found = vmap(tf.range, strategy=strategy)(sizes)
    assert found.to_list() == [[0], [0, 1, 2], [], [0, 1], [0, 1]]
    ragged = tf.ragged.constant([[1, 2], [3], [], [4, 5, 6], [7]])
    assert vmap(tf.reduce_sum, strategy=strategy)(ragged).numpy().tolist() == [3, 3, 0, 15, 7]


def random_numbers(strategy):
    for chunk_size in (None, 2):
        for seed in (None, 1):
            tf.random.set_seed(seed)
            draw = vmap(
                lambda x: tf.random.normal([]) + x, strategy=strategy, chunk_size=chunk_size
            )
            assert len(set(draw(tf.zeros([11])).numpy().tolist())) == 11
    seeds = tf.range(14)
    seeds = tf.reshape(seeds, [7, 2])
    of_seed = [
        vmap(lambda s: tf.random.stateless_normal([2], s), strategy=s)(seeds)
        for s in (strategy, None)
    ]
    close(*of_seed)


def gradients(strategy):
    v = tf.Variable([1.0, 2.0, 3.0], dtype=tf.float64)
    x = tf.constant(RNG.normal(size=[5, 3]))
    for body in (lambda a: tf.sin(a * v), lambda a: tf.sin(a * psum(a * v)) + tf_pfor.pmax(a * v)):
        found = []
        for s in (strategy, None):
            total = lambda s=s, body=body: tf.reduce_sum(vmap(body, strategy=s)(x))
            found.append(gradient_of(total, [v, x]))
        close(*found)


def blocks(strategy):
    x = rows(9, 3)
    both = [vmap(place, strategy=s, chunk_size=2)(x) for s in (strategy, None)]
    close(*both)
    refused(lambda: vmap(psum, strategy=strategy, chunk_size=2)(x), "in blocks")


def results_of_replicas(strategy):
    made = vmap(lambda x: 2.0 * x, strategy=strategy, per_replica=True)(tf.range(3.0))
    parts = strategy.experimental_local_results(made)
    assert [p.numpy().tolist() for p in parts] == [[0.0], [2.0, 4.0]]


def variables(strategy):
    with strategy.scope():
        w = tf.Variable(2.0)
        assert vmap(lambda x: x * w, strategy=strategy)(tf.ones([3])).numpy().tolist() == [2.0] * 3
    assert vmap(lambda x: x * w, strategy=strategy)(tf.ones([3])).numpy().tolist() == [2.0] * 3


def settings(strategy):
    body = lambda x: vmap(lambda y: y + tf.random.normal([]))(x)
    with tf_pfor.settings(randomness="error"):
        refused(lambda: vmap(body, strategy=strategy)(rows(3, 2)), "randomness is 'error'")


def wrong_use(strategy):
    x = rows(3, 2)
    refused(lambda: vmap(tf.abs, strategy=3), "must be a tf.distribute.Strategy")
    refused(lambda: vmap(tf.abs, per_replica=True), "needs a strategy")
    refused(lambda: vmap(tf.abs, strategy=strategy, jit_compile=True), "neither jit_compile")
    refused(lambda: strategy.run(lambda: vmap(tf.abs, strategy=strategy)(x)), "in one of them")
    inner = vmap(tf.abs, strategy=strategy)
    refused(lambda: vmap(inner)(x), "in the function of another map")
    loop = vmap(
        lambda a: tf.while_loop(lambda q: tf.reduce_sum(psum(q)) < 9.0, lambda q: [q + 1.0], [a]),
        strategy=strategy,
    )
    refused(lambda: loop(x), "call it outside, for all")


def refused(call, text):
    try:
        call()
    except tf_pfor.PforError as why:
        said = str(why)
    else:
        said = "nothing was refused"
    assert text in said, said


CHECKS = [
    values, exchanges, axes, shapes_that_differ, random_numbers, gradients, blocks,
    results_of_replicas, variables, settings, wrong_use,
]  # fmt: skip


if __name__ == "__main__":
    run_on_two_replicas(CHECKS)
