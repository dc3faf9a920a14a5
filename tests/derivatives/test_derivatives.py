"""Jacobians, hessians and per-example gradients, against closed forms and finite differences."""

import numpy as np
import pytest
import tensorflow as tf

import tf_pfor
from tests.cases import grid
from tests.comparisons import close, gradient_of, pairwise
from tf_pfor.core.errors import ArgumentError, ArgumentTypeError
from tf_pfor.derivatives import functional, jacobians, per_example


def _numerical(fn, x, step=1e-6):
    """Central differences in float64: y.shape + x.shape."""
    x = np.asarray(x, np.float64)
    columns = []
    for k in range(x.size):
        e = np.zeros(x.size)
        e[k] = step
        e = e.reshape(x.shape)
        columns.append(np.asarray(fn(tf.constant(x + e))) - np.asarray(fn(tf.constant(x - e))))
    return np.stack(columns, -1).reshape(*np.shape(columns[0]), *x.shape) / (2 * step)


def _mlp(x):
    w = tf.reshape(tf.sin(tf.range(12, dtype=x.dtype)), [3, 4])
    return tf.tanh(tf.linalg.matvec(w, x, transpose_a=True))


_X = tf.constant([0.3, -0.7, 1.1], tf.float64)


# -- of graph tensors ------------------------------------------------------------------------------


@grid(use_pfor=[True, False], block=[None, 1, 3, 4, 9])
def test_jacobian(block, use_pfor):
    f = tf.function(lambda x: jacobians.jacobian(_mlp(x), x, use_pfor, block))
    close(f(_X), _numerical(_mlp, _X))


def test_jacobian_of_nests_and_unconnected():
    @tf.function
    def f(x, z):
        y = tf.reshape(x * 2, [1, -1])
        return jacobians.jacobian(y, {"a": x, "b": z})

    out = f(tf.ones([2]), tf.ones([3]))
    close(out["a"], 2 * np.eye(2)[None])
    assert out["b"] is None


def test_jacobian_of_a_scalar_and_of_nothing():
    f = tf.function(
        lambda x: (jacobians.jacobian(tf.reduce_sum(x**2), x), jacobians.jacobian(x[:0], x))
    )
    scalar, empty = f(tf.constant([1.0, 2.0]))
    close(scalar, [2, 4])
    assert empty.shape == [0, 2]


def test_jacobian_with_unknown_shapes():
    @tf.function(input_signature=[tf.TensorSpec([None, None], tf.float32)])
    def f(x):
        return jacobians.jacobian(tf.sin(x), x)

    x = tf.constant([[0.1, 0.2, 0.3]])
    assert f.get_concrete_function().structured_outputs.shape.rank == 4
    close(tf.reshape(f(x), [3, 3]), np.diag(np.cos(np.asarray(x)[0])))


def test_batch_jacobian():
    x = tf.random.normal([5, 3], dtype=tf.float64)

    @tf.function
    def f(x):
        y = tf.stack([_mlp(row) for row in tf.unstack(x)])
        return jacobians.batch_jacobian(y, x), jacobians.batch_jacobian(y, x, parallel_iterations=3)

    whole, blocks = f(x)
    expected = np.stack([_numerical(_mlp, row) for row in x])
    close(whole, expected)
    close(blocks, expected)


def test_jacobian_of_jacobian():
    f = tf.function(lambda x: jacobians.jacobian(jacobians.jacobian(_mlp(x), x), x))
    close(f(_X), functional.hessian(_mlp)(_X))


# -- of tapes --------------------------------------------------------------------------------------


@pytest.mark.parametrize("persistent", [True, False])
@pytest.mark.parametrize("wrap", [lambda f: f, tf.function], ids=["eager", "graph"])
def test_tape_jacobian(persistent, wrap):
    v = tf.Variable(2.0, dtype=tf.float64)

    def f(x):
        with tf.GradientTape(persistent=persistent) as tape:
            tape.watch(x)
            y = _mlp(x) * v
        return jacobians.tape_jacobian(tape, y, {"x": x, "v": v})

    out = wrap(f)(_X)
    close(out["x"], 2 * _numerical(_mlp, _X))
    close(out["v"], _mlp(_X))


def test_tape_jacobian_unconnected():
    x, z = tf.ones([2]), tf.ones([3])
    for mode, check in (("none", lambda j: j is None), ("zero", lambda j: j.shape == [2, 3])):
        with tf.GradientTape() as tape:
            tape.watch([x, z])
            y = x * 2
        found = jacobians.tape_jacobian(
            tape, y, [x, z], unconnected_gradients=tf.UnconnectedGradients(mode)
        )
        close(found[0], 2 * np.eye(2))
        assert check(found[1])


def test_tape_batch_jacobian_agrees_with_tensorflow():
    x = tf.random.normal([4, 3])
    layer = tf.keras.layers.Dense(2, activation="tanh")
    with tf.GradientTape(persistent=True) as tape:
        tape.watch(x)
        y = layer(x)
    close(
        jacobians.tape_batch_jacobian(tape, y, x),
        tape.batch_jacobian(y, x, experimental_use_pfor=False),
    )


# -- of functions ----------------------------------------------------------------------------------


@grid(chunk=[None, 2], jac=[functional.jacrev, functional.jacfwd])
def test_functional_jacobian(jac, chunk):
    close(jac(_mlp, chunk_size=chunk)(_X), _numerical(_mlp, _X))


@pytest.mark.parametrize("jac", [functional.jacrev, functional.jacfwd])
def test_functional_nests(jac):
    f = lambda x, y: ({"product": x["a"] * y, "x": x["b"]}, tf.constant(7))
    x = {"a": tf.constant([1.0, 2.0]), "b": tf.constant(3.0)}
    found, aux = jac(f, argnums=(0, 1), has_aux=True)(x, tf.constant(5.0))
    assert int(aux) == 7
    close(found["product"][0]["a"], 5 * np.eye(2))
    close(found["product"][0]["b"], [0, 0])
    close(found["product"][1], [1, 2])
    close(found["x"][0]["b"], 1)


def test_hessian_hvp_diagonal_laplacian():
    f = lambda x: tf.reduce_sum(_mlp(x) ** 2)
    expected = functional.hessian(f)(_X)
    close(expected, _numerical(lambda x: functional.jacrev(f)(x), _X), rtol=1e-4)
    v = tf.constant([1.0, 2.0, -1.0], tf.float64)
    close(functional.hvp(f)(_X, v), tf.linalg.matvec(expected, v))
    close(functional.hessian_diag(f)(_X), np.diag(expected))
    close(functional.laplacian(f)(_X), np.trace(expected))
    close(functional.laplacian(f, chunk_size=2)(_X), np.trace(expected))


def test_second_derivatives_of_vectors():
    expected = functional.hessian(_mlp)(_X)
    assert expected.shape == [4, 3, 3]
    close(functional.hessian_diag(_mlp)(_X), np.einsum("yii->yi", expected))
    close(functional.laplacian(_mlp)(_X), np.einsum("yii->y", expected))


def test_functional_in_a_function_and_in_a_map():
    x = tf.random.normal([4, 3], dtype=tf.float64)
    mapped = tf_pfor.vmap(functional.jacrev(_mlp))
    close(mapped(x), np.stack([functional.jacrev(_mlp)(row) for row in x]))
    lap = tf_pfor.vmap(functional.laplacian(_mlp))
    close(lap(x), np.stack([functional.laplacian(_mlp)(row) for row in x]))


@pytest.mark.parametrize("form", [functional.hessian, functional.laplacian])
def test_second_derivatives_of_no_rows(form):
    """TensorFlow's constant folding divides by the number of rows, if it knows it."""
    products = lambda v: tf.reduce_sum(tf.sin(v) * v**2)
    for f in (products, lambda v: tf.reduce_sum(v**2) ** 3):
        assert tf_pfor.vmap(form(f))(tf.zeros([0, 3])).shape[0] == 0


# -- per example -----------------------------------------------------------------------------------


def _model():
    model = tf.keras.Sequential(
        [tf.keras.layers.Dense(4, activation="tanh"), tf.keras.layers.Dense(1)]
    )
    model.build([None, 3])
    return model


def _reference(loss, variables, x, y):
    rows = []
    for a, b in zip(x, y):
        rows.append(gradient_of(lambda a=a, b=b: loss(a, b), variables))
    return [tf.stack(c) for c in zip(*rows)]


@pytest.mark.parametrize("chunk", [None, 1, 2, 5])
def test_per_example(chunk):
    model = _model()
    x, y = tf.random.normal([5, 3]), tf.random.normal([5, 1])
    loss = lambda a, b: tf.reduce_sum((model(a[None])[0] - b) ** 2)
    variables = model.trainable_variables
    expected = _reference(loss, variables, x, y)
    grads, losses = per_example.per_example_gradients(loss, variables, x, y, chunk_size=chunk)
    pairwise(close, grads, expected, atol=1e-5)
    close(losses, [loss(a, b) for a, b in zip(x, y)])
    norms = tf.sqrt(tf.add_n([tf.reduce_sum(tf.reshape(e, [5, -1]) ** 2, 1) for e in expected]))
    close(per_example.gradient_norms(loss, variables, x, y, chunk_size=chunk), norms)
    sums, again = per_example.clipped_gradient_sum(
        loss, variables, x, y, clip_norm=1.0, chunk_size=chunk
    )
    scale = np.minimum(1.0, 1.0 / np.asarray(norms))
    for s, e in zip(sums, expected):
        close(s, np.einsum("n,n...->...", scale, np.asarray(e)), atol=1e-5)
    close(again, losses)


@grid(is_known=[False, True], jit=[False, True])
def test_blocks_of_images(is_known, jit):
    """Unknown batch sizes, also those that the blocks divide, and none; XLA's static shapes."""
    model = tf.keras.Sequential(
        [tf.keras.layers.Conv2D(3, 3), tf.keras.layers.ReLU(), tf.keras.layers.Conv2D(2, 3)]
    )
    model.build([None, 6, 6, 1])
    loss = lambda image: tf.reduce_sum(model(image[None]) ** 2)
    spec = tf.TensorSpec([None, 6, 6, 1])

    def both(x):
        total, losses = per_example.clipped_gradient_sum(
            loss, model.trainable_variables, x, clip_norm=1.0, chunk_size=2
        )
        grads, _ = per_example.per_example_gradients(
            loss, model.trainable_variables, x, chunk_size=2
        )
        return total, losses, grads

    compiled = tf.function(
        both, autograph=False, jit_compile=jit, input_signature=None if is_known else [spec]
    )
    for n in (1, 2, 3, 4):
        x = tf.random.normal([n, 6, 6, 1])
        total, losses, grads = compiled(x)
        expected = _reference(lambda a, _: loss(a), model.trainable_variables, x, x)
        norms = np.sqrt(sum(np.sum(np.reshape(e, [n, -1]) ** 2, 1) for e in expected))
        scale = np.minimum(1.0, 1.0 / norms)
        for t, g, e in zip(total, grads, expected):
            close(g, e, rtol=1e-4, atol=1e-5)
            close(t, np.einsum("n,n...->...", scale, np.asarray(e)), rtol=1e-4, atol=1e-5)
        close(losses, [loss(a) for a in x], rtol=1e-4)


def test_a_slice_of_a_scalar():
    """The gradient of x[None], second order."""
    f = functional.hessian(lambda t: tf.reduce_sum(t[None] ** 3))
    close(tf_pfor.vmap(f)(tf.constant([1.0, 2.0])), [6, 12])


def test_per_example_aux_and_unused_variables():
    v, unused = tf.Variable(2.0), tf.Variable([1.0, 1.0])
    grads, losses, aux = per_example.per_example_gradients(
        lambda x: (v * x, {"twice": 2 * x}), {"v": v, "u": unused}, tf.range(3.0), has_aux=True
    )
    close(grads["v"], [0, 1, 2])
    close(grads["u"], np.zeros([3, 2]))
    close(losses, [0, 2, 4])
    close(aux["twice"], [0, 2, 4])


# -- bad input -------------------------------------------------------------------------------------


_in_graph = lambda fn: lambda: tf.function(fn, autograph=False)()


@pytest.mark.parametrize(("make", "error", "text"), [
    (lambda: jacobians.jacobian(tf.ones([2]), tf.ones([2])), ArgumentTypeError, "tape_jac"),
    (_in_graph(lambda: jacobians.batch_jacobian(tf.zeros([]), tf.zeros([2]))), ArgumentError,
        "output of a batch jacobian is a scalar"),
    (_in_graph(lambda: jacobians.batch_jacobian(tf.zeros([3]), tf.zeros([2]))), ArgumentError,
        "same number of rows"),
    (lambda: functional.jacrev(tf.abs, argnums=2)(tf.ones([2])), ArgumentError, "argument 2"),
    (lambda: functional.jacrev(3), ArgumentError, "expected a function"),
    (lambda: functional.jacrev(tf.abs, "x"), ArgumentError, "argnums must be an int"),
    (lambda: functional.jacrev(tf.add, (0, -2))(tf.ones([2]), tf.ones([2])), ArgumentError,
        "an argument twice"),
    (lambda: functional.jacfwd(tf.square)(tf.constant([1, 2])), ArgumentError, "int32"),
    (lambda: functional.jacrev(tf.argmax)(tf.ones([2])), ArgumentError, "int64"),
    (lambda: functional.jacrev(lambda x: None)(tf.ones([2])), ArgumentError, "found None"),
    (lambda: functional.hvp(tf.norm)(tf.ones([2]), tf.ones([1])), ArgumentError,
        "must be like the argument"),
    (lambda: jacobians.tape_jacobian(tf.GradientTape(), [tf.ones([2])], tf.ones([2])),
        ArgumentTypeError, "must be one tensor"),
    (
        lambda: per_example.per_example_gradients(
            lambda x: tf.constant(1), tf.Variable(1.0), tf.ones([2])
        ),
        ArgumentError,
        "no gradient",
    ),
    (lambda: per_example.clipped_gradient_sum(tf.abs, tf.Variable(1.0), tf.ones([2]), clip_norm=0),
        ArgumentError, "clip_norm must be a positive number"),
    (lambda: functional.jacrev(tf.abs, has_aux=True)(tf.ones([2])), ArgumentError,
        "must return (outputs, aux)"),
    (lambda: functional.hvp(tf.abs)(tf.ones([2]), tf.ones([2])), ArgumentError, "one scalar"),
    (lambda: per_example.per_example_gradients(lambda x: x, tf.Variable(1.0), tf.ones([2, 3])),
        ArgumentError, "scalar for one example"),
    (lambda: per_example.per_example_gradients(lambda x: x, [], tf.ones([2])), ArgumentError,
        "nothing to differentiate"),
])  # fmt: skip
def test_errors(make, error, text):
    with pytest.raises(error) as caught:
        make()
    assert text in str(caught.value)
