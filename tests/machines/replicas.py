"""Variables, gradients, shapes and options of maps over two replicas, compared with plain maps.

It is a process of its own, since TensorFlow's devices are made once. It prints each check's name.
"""

import contextlib

import keras
import numpy as np
import tensorflow as tf

import tf_pfor
from tests.api.distribution import close, refused, rows
from tests.devices import run_on_two_replicas
from tf_pfor import psum, vmap


def made(make, strategy):
    """Calls ``make`` in the scope of a strategy, if there is one."""
    with contextlib.nullcontext() if strategy is None else strategy.scope():
        return make()


def value(variable):
    """The value of a variable, of which all copies must be equal."""
    if isinstance(variable, keras.Variable):
        variable = variable.value
    first, *others = [v.numpy() for v in getattr(variable, "values", (variable,))]
    for other in others:
        np.testing.assert_array_equal(first, other)
    return first


def gradients(strategy):
    x = rows(5, 3)
    found = []
    for s in (strategy, None):
        v = made(lambda: tf.Variable([1.0, 2.0, 3.0]), s)

        def loss(x, v=v, s=s):
            return tf.reduce_sum(vmap(lambda r: tf.sin(r * v), strategy=s)(x) ** 2)

        def step(v=v, loss=loss):
            with tf.GradientTape() as tape:
                tape.watch(x)
                y = loss(x)
            return tape.gradient(y, [v, x])

        found.append((step(), tf.function(step)(), tf_pfor.grad(loss, variables=v)(x)))
    close(*found)


def gradients_that_leave_the_map(strategy):
    x, w = rows(5, 3), tf.Variable([1.0, 2.0, 3.0])
    found = []
    for s in (strategy, None):
        with tf.GradientTape(persistent=True) as tape:
            y = tf.sin(x * w)

            def one(r, tape=tape):
                return tape.gradient(tf.reduce_sum(r**2), w)

            found.append(vmap(one, strategy=s)(y))
    close(*found)


def gradients_of_a_model(strategy):
    x = rows(5, 3)
    found = []
    for s in (strategy, None):
        layer = made(lambda: keras.layers.Dense(2, kernel_initializer="ones"), s)
        made(lambda layer=layer: layer.build([None, 3]), s)

        @tf.function
        def step(layer=layer, s=s):
            with tf.GradientTape() as tape:
                y = tf.reduce_sum(vmap(lambda r: layer(r[None])[0], strategy=s)(x) ** 2)
            return tape.gradient(y, layer.trainable_variables)

        found.append(step())
    close(*found)


def updates(strategy):
    def total(v, r):
        v.assign_add(r)
        return r

    def average(v, r):
        before = v.read_value()
        v.assign(0.5 * v + r)
        return before

    def some(v, r):
        if r > 1.5:
            v.assign_sub(r)
        return r

    kinds = [tf.VariableAggregation.NONE, tf.VariableAggregation.SUM]
    for body, aggregation in ((total, kinds[0]), (average, kinds[0]), (some, kinds[1])):
        for n in (5, 1, 0):
            found = []
            for s in (strategy, None):
                v = made(lambda a=aggregation: tf.Variable(1.0, aggregation=a), s)
                made_of = vmap(lambda r, v=v, body=body: body(v, r), strategy=s)(tf.range(float(n)))
                found.append((made_of, value(v)))
            close(*found)


def updates_in_the_order_of_rows(strategy):
    found = []
    for s in (strategy, None):
        weight, velocity = (made(lambda: tf.Variable(1.0), s) for _ in range(2))

        def step(r, weight=weight, velocity=velocity):
            velocity.assign(0.5 * velocity + weight * r)
            weight.assign_sub(0.125 * velocity)
            return r

        vmap(step, strategy=s, warn=False)(tf.range(5.0))
        found.append((value(weight), value(velocity)))
    close(*found)


def batch_normalization(strategy):
    x = rows(6, 3)
    found = []
    for s in (strategy, None):
        layer = made(keras.layers.BatchNormalization, s)
        made(lambda layer=layer: layer.build([None, 3]), s)

        def one(r, layer=layer):
            return layer(r[None], training=True)[0]

        y = tf.function(vmap(one, strategy=s))(x)
        found.append((y, value(layer.moving_mean), value(layer.moving_variance)))
    close(*found)


def draws(strategy):
    found = []
    for s in (strategy, None):
        layer = made(lambda: keras.layers.Dropout(0.5, seed=3), s)
        generator = made(lambda: tf.random.Generator.from_seed(3), s)

        def one(r, layer=layer, generator=generator):
            return layer(r, training=True) + generator.normal([16])

        drawn = tf.concat([vmap(one, strategy=s)(tf.ones([6, 16])) for _ in range(2)], 0)
        assert len(np.unique(drawn, axis=0)) == 12
        found.append((drawn, value(layer.seed_generator.state), value(generator.state)))
    close(*found)


def functions_of_the_user(strategy):
    """A function that one map has traced changes all copies where it is called without a map."""
    v = made(lambda: tf.Variable(0.0), strategy)

    @tf.function
    def add(r):
        return v.assign(v + r)

    for call in (vmap(add, strategy=strategy), vmap(add)):
        call(tf.ones([4]))
        add(1.0)
    assert value(v) == 10.0


def plain_maps(strategy):
    layer = made(lambda: keras.layers.Dropout(0.5), strategy)
    drawn = vmap(lambda r: layer(r, training=True))(tf.ones([6, 16]))
    assert len(np.unique(drawn, axis=0)) == 6
    w = made(lambda: tf.Variable(tf.ones([16])), strategy)

    def loss(r):
        return tf.reduce_sum(w * layer(r, training=True))

    tf_pfor.clipped_gradient_sum(loss, w, tf.ones([6, 16]), clip_norm=1.0)
    assert value(layer.seed_generator.state)[1] > 0
    v = made(lambda: tf.Variable(0.0, aggregation=tf.VariableAggregation.SUM), strategy)
    add = vmap(lambda r: v.assign_add(r))
    refused(lambda: strategy.run(add, (tf.ones([3]),)), "waits for the other replicas")


def sums_that_rows_read_and_refused_updates(strategy):
    x = tf.ones([4])
    v = made(lambda: tf.Variable(0.0, name="sum_of_rows"), strategy)

    def share(r):
        v.assign_add(r)
        return r / v

    def count(r):
        before = v.read_value()
        v.assign_add(1.0)
        return before + r

    for body, start in ((share, 0.0), (tf.function(share), 4.0), (count, 8.0)):
        found = vmap(body, strategy=strategy)(x)
        so_far = start + np.arange(1.0, 5.0)
        np.testing.assert_allclose(found, so_far if body is count else 1 / so_far, rtol=1e-6)
    own = made(
        lambda: tf.Variable(
            0.0,
            synchronization=tf.VariableSynchronization.ON_READ,
            aggregation=tf.VariableAggregation.SUM,
        ),
        strategy,
    )
    refused(lambda: vmap(lambda r: r * own, strategy=strategy)(x), "ON_READ")

    def both(r):
        v.assign(v * 2.0 + r)
        return psum(r)

    refused(lambda: vmap(both, strategy=strategy)(x), "calls a collective")
    assert value(v) == 12.0


def shapes(strategy):
    sizes = tf.constant([1, 3, 0])
    for out_axes, chunk_size in ((0, None), (1, None), (0, 1)):
        options = {"out_axes": out_axes, "out_shapes": "padded", "chunk_size": chunk_size}
        close(*(vmap(tf.range, strategy=s, **options)(sizes) for s in (strategy, None)))
    x = rows(4, 3)

    def of_python(r):
        return tf.numpy_function(lambda a: a.sum(), [r], tf.float32)

    np.testing.assert_allclose(vmap(of_python, strategy=strategy)(x), vmap(of_python)(x), 1e-5)
    sparse = vmap(tf.sparse.from_dense, strategy=strategy)(tf.eye(3))
    np.testing.assert_array_equal(tf.sparse.to_dense(sparse), np.eye(3))


def options(strategy):
    x = rows(4, 3)
    default = tf.distribute.get_strategy()
    close(vmap(tf.sin, strategy=default, per_replica=True)(x), tf.sin(x))
    same = vmap(lambda r: tf.random.normal([]), strategy=strategy, randomness="same")(x)
    assert len({*same.numpy().tolist()}) == 1
    parts = strategy.run(lambda: 2.0 * x)
    refused(lambda: vmap(tf.sin, strategy=strategy)(parts), "args[0] is a PerReplica")
    refused(lambda: vmap(tf.sin)(parts), "strategy.run")


CHECKS = [
    gradients, gradients_that_leave_the_map, gradients_of_a_model, updates,
    updates_in_the_order_of_rows, batch_normalization, draws, functions_of_the_user,
    plain_maps, sums_that_rows_read_and_refused_updates, shapes, options,
]  # fmt: skip


if __name__ == "__main__":
    run_on_two_replicas(CHECKS)
