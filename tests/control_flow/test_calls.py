"""Functions called in the body, and tf.custom_gradient."""

import gc

import numpy as np
import pytest
import tensorflow as tf

from tests.cases import case, refuse
from tests.comparisons import (
    assert_close,
    compare,
    gradient_of,
    in_two_maps,
    strict_map,
    two_orders,
)

C = tf.constant([0.3, 0.4, 0.1, -0.9])
W = tf.Variable([1.0, -0.5, 2.0, 0.7])
rows = lambda n=3: tf.random.stateless_normal([n, 4], [3, 4])
loop = lambda fn, x: tf.stack([fn(r) for r in x])


# -- Calls -----------------------------------------------------------------------------------------


scaled = tf.function(lambda x: tf.exp(x) * W)
pair = tf.function(lambda x: (scaled(x), x * 2.0))

CALLS = {
    "variable": scaled,
    "compiled": tf.function(lambda x: x * W, jit_compile=True, autograph=False),
    "nested": lambda x: pair(x)[0] - pair(x * 0.1)[1],
    "invariant": lambda x: scaled(C) * x,
    "closure": lambda x: tf.function(lambda y: y * C + x, autograph=False)(x + 1.0),
}


@pytest.mark.parametrize("name", CALLS)
def test_calls(name):
    fn, x = CALLS[name], rows()
    np.testing.assert_allclose(strict_map(fn, x), loop(fn, x), 1e-6)
    graph = tf.function(lambda x: strict_map(fn, x)).get_concrete_function(x).graph
    assert not [o for o in graph.get_operations() if "PartitionedCall" in o.type]


@case(compare, rows(), rtol=1e-5)
def test_a_gradient_through_a_call_inside_the_body(x):
    return gradient_of(lambda: tf.reduce_sum(pair(x)[0] ** 2), x)


def test_a_call_runs_its_effects_though_nobody_reads_it():
    count = tf.Variable(0)
    counting = tf.function(lambda x: (count.assign_add(1), x * 2.0)[1])
    strict_map(lambda x: (counting(C), x)[1], rows(5))
    assert count.numpy() == 5


def test_a_saved_model(tmp_path):
    module = tf.Module()
    module.w = W
    module.f = tf.function(
        lambda x: clipped(tf.exp(x) * module.w), input_signature=[tf.TensorSpec([4])]
    )
    options = tf.saved_model.SaveOptions(experimental_custom_gradients=True)
    tf.saved_model.save(module, str(tmp_path), options=options)
    loaded = tf.saved_model.load(str(tmp_path))
    compare(loaded.f, rows(), rtol=1e-6)
    compare(lambda x: gradient_of(lambda: tf.reduce_sum(loaded.f(x)), x), rows(), rtol=1e-5)


def test_functions_of_version_1():
    old = lambda x: tf.exp(x) * 2.0
    wrapped = tf.compat.v1.wrap_function(old, [tf.TensorSpec([4])])
    np.testing.assert_allclose(
        strict_map(lambda r: wrapped(r) + 1.0, rows()), old(rows()) + 1.0, 1e-6
    )


# -- Custom gradients ------------------------------------------------------------------------------


@tf.custom_gradient
def clipped(x):
    """Each iteration's gradient is clipped by its own norm."""
    return tf.identity(x), lambda dy: dy * tf.minimum(1.0, 0.5 / tf.norm(dy))


tripled = tf.custom_gradient(lambda x: (tf.identity(x), lambda dy: dy * 3.0))


@tf.custom_gradient
def two(a, b):
    y, z = tf.exp(a * b * 0.1), tf.tanh(a) * b

    def gradient(dy, dz):
        total = tf.reduce_sum(dz)
        return dy * b * y * 2.0 - dz * tf.tanh(a) * total, dy * a + dz * tf.tanh(z)

    return (y, z), gradient


@tf.custom_gradient
def with_variable(x):
    def gradient(dy, variables=None):
        assert variables is not None
        return dy * x * W, [dy * tf.tanh(x) * tf.norm(dy)]

    return tf.tanh(x) * W, gradient


BODIES = {
    "of a row": lambda r, c: clipped(r) * c,
    "of a closure": lambda r, c: r * clipped(c),
    "of a variable": lambda r, c: r * clipped(W * 2.0),
    "invariant result": lambda r, c: clipped(c),
    "linear": lambda r, c: r * tripled(c),
    "several results": lambda r, c: sum(two(r, c)),
    "one result used": lambda r, c: two(r, c)[1],
    "invariant results": lambda r, c: sum(two(c, W * 1.0)) * r,
    "variables": lambda r, c: with_variable(r) * c,
    "silu": lambda r, c: tf.nn.silu(r * c),
    "silu of a closure": lambda r, c: r * tf.nn.silu(c),
    "pass through": lambda r, c: tf.grad_pass_through(tf.tanh)(r) * c,
    "in a function": lambda r, c: in_function(r) * c,
    "inside": lambda r, c: inside(r, c),
}
in_function = tf.function(lambda x: two(x, W)[0])
inside = lambda r, c: gradient_of(lambda: tf.reduce_sum(clipped(r) * c + tf.nn.silu(r) ** 2), r)
EAGER = [(name, "eager") for name in ("of a closure", "several results", "in a function")]


@pytest.mark.parametrize(
    ("name", "compiled"), [(name, c) for c in (None, True) for name in BODIES] + EAGER
)
def test_custom_gradients(name, compiled):
    fn = lambda r: BODIES[name](r, C)
    run = lambda x: two_orders(lambda x: strict_map(fn, x), x, [W, C])
    run = run if compiled == "eager" else tf.function(run, autograph=False, jit_compile=compiled)
    expected = two_orders(lambda x: loop(fn, x), rows(), [W, C])
    assert_close(run(rows()), expected, rtol=1e-4, atol=1e-5)


def first_order(m, x):
    with tf.GradientTape() as tape:
        tape.watch([x, C])
        y = m(x)
        total = tf.reduce_sum(y * y)
    return [y, *tape.gradient(total, [x, W, C], unconnected_gradients="zero")]


def test_recompute_grad():
    again = tf.recompute_grad(lambda a: tf.exp(a * 0.1) * W)
    fn = lambda r: again(r * C) * C
    found = tf.function(lambda x: first_order(lambda x: strict_map(fn, x), x))(rows())
    expected = first_order(lambda x: loop(lambda r: tf.exp(r * C * 0.1) * W * C, x), rows())
    assert_close(found, expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("n", [0, 1, 3])
def test_custom_gradients_when_n_is_unknown(n):
    fn = lambda r: r * clipped(C) + two(r, W * 1.0)[0]
    run = tf.function(
        lambda x: first_order(lambda x: strict_map(fn, x), x),
        input_signature=[tf.TensorSpec([None, 4])],
    )
    expected = first_order(lambda x: loop(fn, x) if n else x, rows(n))
    assert_close(run(rows(n)), expected, 1e-5, 1e-6)


def test_custom_gradients_in_nested_maps():
    fn = lambda r: r * clipped(C)
    x = tf.reshape(rows(6), [2, 3, 4])
    run = tf.function(lambda x: first_order(lambda x: in_two_maps(fn, x), x))
    expected = first_order(lambda x: tf.stack([loop(fn, y) for y in x]), x)
    assert_close(run(x), expected, rtol=1e-5, atol=1e-6)


def test_only_a_gradient_that_is_not_linear_repeats_a_weight():
    def repeats(fn):
        graph = tf.function(lambda x: strict_map(fn, x)).get_concrete_function(rows()).graph
        return [o.type for o in graph.get_operations()].count("BroadcastTo")

    assert repeats(lambda r: r * tripled(C)) == 0
    assert repeats(lambda r: r * clipped(C)) == 1


def test_two_implementations_of_one_name():
    """TensorFlow chooses when the graph runs, also after a tape has been there."""
    name = {"api_implements": "tests of tf_pfor"}
    on_cpu = {**name, "api_preferred_device": "CPU"}
    cpu = tf.function(lambda x: tf.sin(x) * 2.0, experimental_attributes=on_cpu, autograph=False)
    other = tf.function(lambda x: tf.exp(x) * x, experimental_attributes=name, autograph=False)

    @tf.function
    def chosen(x):
        cpu.get_concrete_function(x).add_to_graph()
        return other(x)

    x = tf.constant([0.1, 0.5, -0.9])
    one = tf.function(lambda x: chosen(x))
    expected = np.stack([one(r) for r in tf.unstack(x)])
    for added in (1.0, 2.0, 3.0):  # another body each time, so that it is traced again
        run = tf.function(lambda a=added: strict_map(lambda r: chosen(r) + a, x))
        found = run()
        del run
        gc.collect()  # and so is the graph that called it
        np.testing.assert_allclose(found, expected + added)
        gradient_of(lambda: chosen(x[0]), x)


def twice_taped(cut):
    """TensorFlow gives the results of both branches the shape of the first one."""

    def body(x, sign):
        with tf.GradientTape() as outer, tf.GradientTape() as inner:
            outer.watch(x)
            inner.watch(x)
            made = tf.cond(sign > 0, lambda: x**3, lambda: x[:cut] ** 2)
            y = tf.reduce_sum(made)
        with outer:
            total = tf.reduce_sum(inner.gradient(y, x) ** 2)
        return outer.gradient(total, x)

    return body


@pytest.mark.parametrize("cut", [4, 2])
def test_two_tapes_around_a_conditional(cut):
    args = tf.reshape(tf.range(12.0), [3, 4]), tf.constant([1.0, -1.0, 2.0])
    if cut == 2:
        refuse(twice_taped(cut), *args, match=r"returns \(4,\), but .* \(2,\)")
    else:
        compare(twice_taped(cut), *args)
