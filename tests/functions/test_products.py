"""vjp, jvp and linearize: against closed forms, in all contexts, and what is refused."""

import numpy as np
import pytest
import tensorflow as tf

import tf_pfor
from tests.api.test_errors import table_of_errors
from tests.comparisons import strict, strict_map
from tf_pfor import ArgumentError, ArgumentTypeError, jvp, linearize, vjp

A, B = tf.constant([0.5, -1.0, 2.0]), tf.constant([3.0, 0.25, -0.5])
V, U = tf.constant([1.0, -2.0, 0.5]), tf.constant([0.3, 0.7, -4.0])


def f(a, d):
    """[3], {x: [3]} -> {y: [3], z: []}."""
    return {"y": tf.sin(a) * d["x"], "z": tf.reduce_sum(a * d["x"] ** 2), "none": None}


def close(found, expected):
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)


def by_vjp(a, b, v):
    """The gradient for the cotangents v, 2."""
    y, pull = vjp(f, a, {"x": b})
    by_a, by_d = pull({"y": v, "z": tf.constant(2, a.dtype), "none": None})
    return y["y"], by_a, by_d["x"]


def by_jvp(a, b, v):
    y, dy = jvp(f, (a, {"x": b}), (v, {"x": 3 * v}))
    assert dy["none"] is None
    return y["y"], dy["y"], dy["z"]


def by_linearize(a, b, v):
    y, push = linearize(f, a, {"x": b})
    dy = push(v, {"x": 3 * v})
    return y["y"], dy["y"], dy["z"]


def pulled(a, b, v):
    return np.sin(a) * b, v * np.cos(a) * b + 2 * b**2, v * np.sin(a) + 4 * a * b


def pushed(a, b, v):
    dy = np.cos(a) * v * b + np.sin(a) * 3 * v
    return np.sin(a) * b, dy, (v * b**2 + 2 * a * b * 3 * v).sum(-1)


FORMS = {"vjp": (by_vjp, pulled), "jvp": (by_jvp, pushed), "linearize": (by_linearize, pushed)}
of_forms = pytest.mark.parametrize("form", FORMS)


def rows(n, dtype=tf.float32):
    seeds = tf.random.stateless_normal([3, n, 3], [1, 2], dtype=dtype)
    return tf.unstack(seeds)


@of_forms
@pytest.mark.parametrize("jit_compile", [None, False, True])
def test_one_call(form, jit_compile):
    fn, expected = FORMS[form]
    run = fn if jit_compile is None else tf.function(fn, jit_compile=jit_compile)
    for found, wanted in zip(run(A, B, V), expected(A.numpy(), B.numpy(), V.numpy())):
        close(found, wanted)


@of_forms
@pytest.mark.parametrize("n", [0, 1, 4])
def test_each_example(form, n):
    fn, expected = FORMS[form]
    given = rows(n, tf.float64)
    wanted = expected(*[x.numpy() for x in given])
    for way in (strict(fn), tf.function(strict(fn)), strict(fn, jit_compile=True)):
        for found, value in zip(way(*given), wanted):
            assert found.dtype == tf.float64
            close(found, value)
    of_row = strict_map(lambda r: fn(*r), tuple(given))
    close(of_row[1], wanted[1])


@of_forms
def test_second_derivatives(form):
    fn, expected = FORMS[form]
    step = 1e-3
    a, b, v = (tf.cast(x, tf.float64) for x in (A, B, V))
    found = tf_pfor.jacrev(lambda a: fn(a, b, v)[1])(a)
    taped = tf.function(lambda a: tf_pfor.vmap(tf_pfor.jacrev(lambda a: fn(a, b, v)[1]))(a[None]))
    with tf.GradientTape() as tape:
        tape.watch(a)
        y = fn(a, b, v)[1]
    at, *rest = (x.numpy() for x in (a, b, v))
    differences = [
        (expected(at + e, *rest)[1] - expected(at - e, *rest)[1]) / (2 * step)
        for e in step * np.eye(3)
    ]
    close(found, np.transpose(differences))
    close(taped(a)[0], found)
    close(tape.gradient(y, a), tf.reduce_sum(found, 0))
    close(tf_pfor.jacfwd(lambda a: fn(a, b, v)[1])(a), found)


@pytest.mark.parametrize("in_function", [False, True])
def test_products_with_many_vectors(in_function):
    def run(a):
        _, push = linearize(f, a, {"x": B})
        _, pull = vjp(f, a, {"x": B})
        columns = strict(push)(tf.eye(3), {"x": tf.zeros([3, 3])})
        (of_rows, _) = strict(pull)({"y": tf.eye(3), "z": tf.zeros([3]), "none": None})
        again = pull({"y": V, "z": tf.constant(0.0), "none": None})[0]
        return columns["y"], of_rows, again

    columns, of_rows, again = (tf.function(run) if in_function else run)(A)
    expected = np.diag(np.cos(A) * B)
    close(tf.transpose(columns), expected)
    close(of_rows, expected)
    close(again, V.numpy() @ expected)


def test_the_function_runs_once():
    """Random numbers are drawn once, and state changes once."""
    count = tf.Variable(0)
    generator = tf.random.Generator.from_seed(1)

    def noisy(x):
        count.assign_add(1)
        return x * generator.normal([3])

    for run in (lambda g: g(), lambda g: tf.function(g)()):
        for form, derivative in (
            (vjp, lambda push: push(tf.ones([3]))[0]),
            (linearize, lambda push: push(tf.ones([3]))),
        ):
            count.assign(0)
            y, dy = run(lambda form=form, d=derivative: (lambda r: (r[0], d(r[1])))(form(noisy, A)))
            close(dy, y / A)
            assert int(count) == 1


def test_loops_with_a_number_of_trips_for_each_example():
    def grown(x):
        return tf.while_loop(lambda y: tf.reduce_sum(y) < 10.0, lambda y: [y * 2.0], [x])[0]

    x, v = tf.constant([[1.0, 2.0], [9.0, 3.0]]), tf.constant([[1.0, 5.0], [2.0, 7.0]])
    scale = np.array([[4.0], [1.0]])
    close(strict(lambda x, v: vjp(grown, x)[1](v)[0])(x, v), scale * v)
    close(strict(lambda x, v: linearize(grown, x)[1](v))(x, v), scale * v)
    close(strict(lambda x, v: jvp(grown, (x,), (v,))[1])(x, v), scale * v)


def in_loops_and_branches(x):
    """Products that are asked for in other graphs than the graph of the function."""
    _, push = linearize(tf.sin, x)
    _, pull = vjp(tf.sin, x)
    solved, _ = tf_pfor.conjugate_gradient(lambda v: pull(push(v))[0], x)
    return (
        tf.map_fn(push, tf.eye(3)),
        tf.map_fn(lambda v: pull(v)[0], tf.eye(3)),
        tf.cond(x[0] > 0, lambda: push(x), lambda: x),
        solved,
    )


def test_products_in_loops_and_branches():
    c = np.cos(A)
    expected = (np.diag(c), np.diag(c), c * A, A / c**2)
    eager = in_loops_and_branches(A)
    compiled = tf.function(in_loops_and_branches)(A)
    rows = strict(in_loops_and_branches)(A[None])
    for wanted, *found in zip(expected, eager, compiled, [r[0] for r in rows]):
        for one in found:
            np.testing.assert_allclose(one, wanted, rtol=1e-4, atol=1e-4)


def test_products_of_an_eager_call_in_a_function():
    _, push = linearize(tf.sin, A)
    _, pull = vjp(tf.sin, A)
    found = tf.function(lambda v: (push(v), pull(v)[0]))(V)
    for one in found:
        close(one, np.cos(A) * V)


def test_aux_and_complex_outputs():
    y, pull, aux = vjp(lambda x: (x**2, {"x": x}), A, has_aux=True)
    close(pull(V)[0], 2 * A * V)
    close(aux["x"], A)
    y, dy, aux = jvp(lambda x: (x**2, {"x": x}), [A], [V], has_aux=True)
    close(dy, 2 * A * V)
    close(aux["x"], A)
    y, push, aux = linearize(lambda x: (tf.complex(x, x**2), {"x": x}), A, has_aux=True)
    close(push(V), V.numpy() * (1 + 2j * A.numpy()))
    close(jvp(lambda x: tf.complex(x, x**2), (A,), (V,))[1], V.numpy() * (1 + 2j * A.numpy()))
    assert y.dtype == tf.complex64


def test_what_is_not_connected_is_zero():
    _, pull = vjp(lambda a, b: (a, tf.ones([2])), A, B)
    by_a, by_b = pull((V, tf.ones([2])))
    close(by_a, V)
    close(by_b, np.zeros(3))
    _, push = linearize(lambda a, b: (a, tf.ones([2])), A, B)
    close(push(V, U)[0], V)
    close(push(V, U)[1], [0, 0])
    close(jvp(lambda a: tf.ones([2]), (A,), (V,))[1], [0, 0])
    assert vjp(lambda a: {}, A)[1]({})[0].numpy().tolist() == [0] * 3


@tf.custom_gradient
def clipped(x):
    return x * 2.0, lambda g: tf.clip_by_value(g, -1.0, 1.0)


WRONG = {
    "cotangent": (lambda: vjp(f, A, {"x": B})[1](V), ArgumentError, "must be like the output"),
    "shape": (lambda: vjp(tf.sin, A)[1](tf.ones([2])), ArgumentError, "float32(2,)"),
    "tangents": (lambda: linearize(tf.sin, A)[1](V, V), ArgumentError, "like the arguments"),
    "tangent": (lambda: jvp(tf.sin, (A,), (V, V)), ArgumentError, "tangents must be like"),
    "no tuple": (lambda: jvp(tf.sin, A, V), ArgumentTypeError, "primals must be a tuple or list"),
    "integers": (lambda: vjp(tf.abs, tf.range(3)), ArgumentError, "argument 0 has dtype int32"),
    "output": (lambda: linearize(tf.size, A), ArgumentError, "output has dtype int32"),
    "complex": (lambda: vjp(lambda x: tf.complex(x, x), A), ArgumentError, "Use jvp"),
    "ragged": (lambda: vjp(tf.abs, tf.ragged.constant([[1.0]])), ArgumentTypeError, "RaggedTensor"),
    "function": (lambda: vjp(3, A), ArgumentError, "expected a function"),
    "aux": (lambda: vjp(tf.sin, A, has_aux=True), ArgumentError, "(outputs, aux)"),
    "clipped": (lambda: linearize(clipped, A), ArgumentError, "not linear in its cotangent"),
    "clipped jvp": (lambda: jvp(clipped, (A,), (V,)), ArgumentError, "not linear"),
    "numpy": (lambda: vjp(lambda x: tf.numpy_function(np.sin, [x], tf.float32), A), ArgumentError,
        "would be left out"),
    "resized": (lambda: linearize(lambda x: tf.image.resize(x[None, :, None], [1, 6]), A),
        ArgumentError, "TensorFlow"),
}  # fmt: skip
test_errors = table_of_errors(WRONG)


def test_vjp_takes_a_clipped_gradient_as_it_is_written():
    close(vjp(clipped, A)[1](V)[0], np.clip(V, -1, 1))
