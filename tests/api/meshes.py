"""Vectorized graphs on a DTensor mesh of two virtual CPUs, rows sharded: results stay sharded.

It is a process, since TensorFlow's devices are made once. It prints each check's name.
"""

import collections
import pathlib
import re
import tempfile

import keras
import numpy as np
import tensorflow as tf
from tensorflow.experimental import dtensor

import tf_pfor
from benchmarks import models
from tests.comparisons import gradient_of
from tf_pfor import vmap

N = 4
RNG = np.random.default_rng(0)
MIXED = re.compile(rb"Collective\w+V2|DTensorAll\w+Op")  # ops that join devices
floats = lambda *shape: RNG.normal(size=shape).astype(np.float32)


def shared(x, mesh):
    return dtensor.copy_to_mesh(tf.constant(x), dtensor.Layout.replicated(mesh, np.ndim(x)))


def sharded(x, mesh):
    layout = dtensor.Layout(["rows"] + [dtensor.UNSHARDED] * (np.ndim(x) - 1), mesh)
    return dtensor.relayout(shared(x, mesh), layout)


def joins(run):
    """The result of a function's first call, and the ops of its graphs that join devices."""
    with tempfile.TemporaryDirectory() as folder:
        writer = tf.summary.create_file_writer(folder)
        tf.summary.trace_on(graph=True)
        made = run()
        with writer.as_default():
            tf.summary.trace_export("graph", 0)
        writer.close()
        records = [p.read_bytes() for p in pathlib.Path(folder).iterdir()]
    return made, collections.Counter(x for r in records for x in MIXED.findall(r))


def keeps_rows(mesh, body, x, *weights):
    """Checks that results are right and sharded by rows, and that no op joins the devices."""
    mapped = lambda x, *weights: vmap(lambda row: body(row, *weights), fallback="error")(x)
    expected = tf.function(mapped)(tf.constant(x), *map(tf.constant, weights))
    given = [sharded(x, mesh), *(shared(w, mesh) for w in weights)]
    found, joined = joins(lambda: tf.function(mapped)(*given))
    assert not joined, joined
    for a, b in zip(tf.nest.flatten(found), tf.nest.flatten(expected), strict=True):
        specs = dtensor.fetch_layout(a).sharding_specs
        assert specs == ["rows"] + [dtensor.UNSHARDED] * (b.shape.rank - 1), specs
        parts = [part.numpy() for part in dtensor.unpack(a)]
        np.testing.assert_allclose(np.concatenate(parts), b, 1e-4, 1e-5)


def elementwise(mesh):
    keeps_rows(mesh, lambda x: tf.nn.softmax(tf.sin(x)), floats(N, 3))


def moves(mesh):
    keeps_rows(mesh, lambda x: (tf.concat([x[1:], x[:1]], 0), tf.sort(x)), floats(N, 3))


def uniform_loops(mesh):
    def body(x, w):
        return tf.while_loop(
            lambda i, h: i < 3, lambda i, h: (i + 1, tf.tanh(tf.linalg.matvec(w, h))), [0, x]
        )[1]

    keeps_rows(mesh, body, floats(N, 3), floats(3, 3))


def derivatives(mesh):
    loss = lambda x, w: tf.reduce_sum(tf.tanh(tf.linalg.matvec(w, x)) ** 2)
    keeps_rows(mesh, lambda x, w: tf_pfor.grad(loss, (0, 1))(x, w), floats(N, 3), floats(3, 3))
    keeps_rows(mesh, lambda x, w: tf_pfor.hessian(loss)(x, w), floats(N, 3), floats(3, 3))


def collectives(mesh):
    """A sum over rows joins the devices; its result is whole on each, and rows stay sharded."""
    share = lambda x: x / tf_pfor.psum(x)
    x = np.abs(floats(N, 3))
    mapped = tf.function(lambda x: vmap(share)(x))
    given = sharded(x, mesh)
    found, joined = joins(lambda: mapped(given))
    assert any(b"Reduce" in name for name in joined)
    assert dtensor.fetch_layout(found).sharding_specs == ["rows", dtensor.UNSHARDED]
    parts = [part.numpy() for part in dtensor.unpack(found)]
    np.testing.assert_allclose(np.concatenate(parts), x / x.sum(0), 1e-5)


def the_models_of_the_benchmarks(mesh):
    for name in models.MODELS:
        _, one, data = models.build(name, N)
        (model,) = [
            cell.cell_contents
            for cell in one.__closure__
            if isinstance(cell.cell_contents, keras.Model)
        ]
        keeps_rows(
            mesh,
            gradients_of(model) if name.endswith("gradients") else outputs_of(model),
            data.numpy(),
            *(v.value.numpy() for v in model.trainable_variables),
        )


def outputs_of(model):
    def outputs(x, *weights):
        values = tf_pfor.keras.Variables(list(weights), [])
        return tf_pfor.keras.functional_call(model, values, x[tf.newaxis])[0]

    return outputs


def gradients_of(model):
    outputs = outputs_of(model)

    def gradients(x, *weights):
        return gradient_of(lambda: tf.reduce_sum(outputs(x, *weights) ** 2), weights)

    return gradients


CHECKS = [
    elementwise, moves, uniform_loops, derivatives, collectives, the_models_of_the_benchmarks,
]  # fmt: skip


def main():
    """Prints the name of each check that holds, or fails."""
    (cpu,) = tf.config.list_physical_devices("CPU")
    two = [tf.config.LogicalDeviceConfiguration()] * 2
    tf.config.set_logical_device_configuration(cpu, two)
    mesh = dtensor.create_mesh([("rows", 2)], devices=["CPU:0", "CPU:1"])
    for check in CHECKS:
        check(mesh)
        print(check.__name__, flush=True)


if __name__ == "__main__":
    main()
