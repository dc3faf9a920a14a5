"""Gauss-Newton and Fisher products, tangent kernels, conjugate gradients: against matrices."""

import numpy as np
import pytest
import tensorflow as tf

import tf_pfor
from tests.api.test_errors import table_of_errors
from tests.comparisons import gradient_of, strict
from tf_pfor import (
    ArgumentError,
    ArgumentTypeError,
    conjugate_gradient,
    fisher_vector_product,
    gauss_newton_vector_product,
    ntk,
)


def given(*shape, seed=0):
    return tf.random.stateless_normal(shape, [seed, 7])


INPUTS, PARAMS = given(5, 3), {"w": given(3, 2, seed=1), "b": given(2, seed=2)}
VECTOR = {"w": given(3, 2, seed=3), "b": given(2, seed=4)}


def close(found, expected, rtol=1e-4):
    found = tf.convert_to_tensor(found)
    assert found.shape == np.shape(expected)
    np.testing.assert_allclose(found, expected, rtol=rtol, atol=1e-5)


def one(params, x):
    """The outputs [2] of one example."""
    return tf.tanh(tf.linalg.matvec(params["w"], x, transpose_a=True) + params["b"])


def model(params):
    return strict(one, in_axes=(None, 0))(params, INPUTS)


def cross_entropy(logits):
    return tf.reduce_mean(tf.nn.softmax_cross_entropy_with_logits(TARGETS, logits))


TARGETS = tf.one_hot([0, 1, 1, 0, 1], 2)


def flat(params):
    """[..., 8] of a nest [..., parameter]."""
    first = tf.shape(params["b"])[:-1]
    return tf.concat(
        [tf.reshape(params["w"], tf.concat([first, [6]], 0)), tf.cast(params["b"], tf.float32)], -1
    )


def jacobian(fn):
    """[size of the outputs, 8]."""
    found = tf_pfor.jacrev(fn)(PARAMS)
    return tf.reshape(flat(found), [-1, 8])


def of_vectors(product, vectors):
    """A product for several vectors, whatever shape they have in front."""
    return strict(lambda v: product(PARAMS, v))(vectors)


PRODUCTS = {
    "gauss_newton": lambda: gauss_newton_vector_product(model, cross_entropy),
    "fisher": lambda: fisher_vector_product(lambda p: log_likelihood(model(p))),
}


def log_likelihood(logits):
    return -tf.nn.softmax_cross_entropy_with_logits(TARGETS, logits)


def matrix(kind):
    if kind == "fisher":
        j = jacobian(lambda p: log_likelihood(model(p)))
        return tf.linalg.matmul(j, j, transpose_a=True) / 5
    j = jacobian(model)
    h = tf.reshape(tf_pfor.hessian(cross_entropy)(model(PARAMS)), [10, 10])
    return tf.linalg.matmul(j, h @ j, transpose_a=True)


@pytest.mark.parametrize("kind", PRODUCTS)
def test_products(kind):
    product, expected = PRODUCTS[kind](), tf.linalg.matvec(matrix(kind), flat(VECTOR))
    for way in (product, tf.function(product), tf.function(product, jit_compile=True)):
        close(flat(way(PARAMS, VECTOR)), expected)


@pytest.mark.parametrize("kind", PRODUCTS)
@pytest.mark.parametrize("n", [0, 1, 8])
def test_products_with_many_vectors(kind, n):
    units = tf.eye(8)[:n]
    vectors = {"w": tf.reshape(units[:, :6], [n, 3, 2]), "b": units[:, 6:]}
    close(flat(of_vectors(PRODUCTS[kind](), vectors)), matrix(kind)[:n])


def test_gauss_newton_of_nests_aux_and_float64():
    def fn(x, scale):
        return {"y": x**2 * scale, "none": None}, scale

    product = gauss_newton_vector_product(
        fn, lambda d: tf.reduce_sum(d["y"] ** 3), (0,), has_aux=True
    )
    x, v = tf.constant([1.0, -2.0], tf.float64), tf.constant([1.0, 0.5], tf.float64)
    (found,), aux = product(x, tf.constant(2.0, tf.float64), (v,))
    assert found.dtype == tf.float64
    close(found, (4 * x) ** 2 * 6 * (2 * x**2) * v)  # J = 4 x, H = 6 y
    assert float(aux) == 2


def test_gauss_newton_of_each_example_and_its_gradient():
    x, v = given(4, 3), given(4, 3, seed=1)
    product = gauss_newton_vector_product(tf.sin, lambda y: tf.reduce_sum(y**4))
    expected = np.cos(x) ** 2 * 12 * np.sin(x) ** 2 * v
    close(strict(product)(x, v), expected)
    slope = tf_pfor.grad(lambda x: tf.reduce_sum(product(x, v[0])))(x[0])
    close(slope, 12 * v[0] * np.sin(2 * x[0]) * np.cos(2 * x[0]))


def test_fisher_of_a_normal_distribution():
    """The mean of (x - mean)^2 over draws is its information, 1."""
    x = tf.random.stateless_normal([4000], [1, 2], dtype=tf.float64)
    product = fisher_vector_product(lambda mean: -((x - mean) ** 2) / 2)
    found = product(tf.constant(0.0, tf.float64), tf.constant(1.0, tf.float64))
    close(found, np.mean(x**2))
    empty = fisher_vector_product(lambda mean: mean * tf.zeros([0]))
    close(empty(tf.constant(1.0), tf.constant(1.0)), 0)


# -- tangent kernels -----------------------------------------------------------------------


def kernel(x1, x2):
    """By the jacobians of all examples."""
    first, second = (
        flat(strict(tf_pfor.jacrev(one), in_axes=(None, 0))(PARAMS, x)) for x in (x1, x2)
    )
    return np.einsum("nip,mjp->nmij", first, second)


@pytest.mark.parametrize("chunk_size", [None, 2, "auto"])
@pytest.mark.parametrize(("n", "m"), [(5, 5), (1, 4), (4, 1), (0, 3), (3, 0)])
def test_tangent_kernel(n, m, chunk_size):
    x1, x2 = given(n, 3, seed=5), given(m, 3, seed=6)
    close(ntk(one, PARAMS, x1, x2, chunk_size=chunk_size), kernel(x1, x2))


@pytest.mark.parametrize("jit_compile", [False, True])
def test_tangent_kernel_in_functions(jit_compile):
    run = tf.function(lambda x: ntk(one, PARAMS, x), jit_compile=jit_compile)
    close(run(INPUTS), kernel(INPUTS, INPUTS))
    if not jit_compile:
        spec = [tf.TensorSpec([None, 3])]
        unknown = tf.function(lambda x: ntk(one, PARAMS, x), input_signature=spec)
        close(unknown(INPUTS), kernel(INPUTS, INPUTS))


def test_tangent_kernel_is_vectorized(recwarn):
    inner = strict(lambda x: ntk(one, PARAMS, x, INPUTS))
    close(inner(INPUTS[:, None]), kernel(INPUTS, INPUTS)[:, None])
    assert not [w for w in recwarn if issubclass(w.category, tf_pfor.FallbackWarning)]


def test_tangent_kernel_of_scalars_and_variables():
    w = tf.Variable([1.0, 2.0], dtype=tf.float64)
    x = tf.constant([[1.0, 2.0], [3.0, 4.0]], tf.float64)
    found = ntk(lambda w, x: tf.reduce_sum(w**2 * x), w, x)
    scaled = x * 2 * w
    close(found, tf.linalg.matmul(scaled, scaled, transpose_b=True))
    assert found.dtype == tf.float64
    slope = tf_pfor.grad(lambda w: tf.reduce_sum(ntk(lambda w, x: tf.reduce_sum(w**2 * x), w, x)))
    total = tf.reduce_sum(x, 0)
    close(slope(tf.convert_to_tensor(w)), 8 * w * total**2)


def test_calls_share_a_trace():
    ntk(one, PARAMS, INPUTS)
    tf_pfor.clear_cache()
    for _ in range(3):
        ntk(one, PARAMS, INPUTS)
    assert tf_pfor.cache_info().misses == 1


# -- solves --------------------------------------------------------------------------------


def positive(n, seed=0):
    m = given(n, n, seed=seed)
    return tf.cast(tf.linalg.matmul(m, m, transpose_b=True) + tf.eye(n), tf.float64)


@pytest.mark.parametrize("n", [0, 1, 6])
def test_solves(n):
    a, b = positive(n), tf.cast(given(n), tf.float64)

    def solve(b):
        return conjugate_gradient(lambda v: tf.linalg.matvec(a, v), b, tol=1e-10)

    for way in (solve, tf.function(solve), tf.function(solve, jit_compile=True)):
        x, steps = way(b)
        assert x.dtype == tf.float64
        assert int(steps) <= n + 2
        close(x, np.linalg.solve(a, b))


def test_each_example_stops_on_its_own():
    scales = tf.constant([[1.0, 1.0, 1.0], [1.0, 2.0, 2.0], [1.0, 2.0, 3.0]])
    b = tf.constant([[1.0, 2.0, 3.0], [1.0, 2.0, 3.0], [1.0, 2.0, 3.0]])
    x, steps = strict(lambda s, b: conjugate_gradient(lambda v: s * v, b))(scales, b)
    close(x, b / scales)
    assert steps.numpy().tolist() == [1, 2, 3]
    rows, _ = strict(lambda s, b: conjugate_gradient(lambda v: s * v, b))(scales[:0], b[:0])
    assert rows.shape == [0, 3]


def test_nests_start_preconditioner_and_limits():
    diagonal = {"a": tf.constant([1.0, 100.0]), "b": tf.constant(10.0), "none": None}
    b = {"a": tf.constant([3.0, 50.0]), "b": tf.constant(20.0), "none": None}

    def times(v):
        return {"a": v["a"] * diagonal["a"], "b": v["b"] * diagonal["b"], "none": None}

    def inverse(v):
        return {"a": v["a"] / diagonal["a"], "b": v["b"] / diagonal["b"], "none": None}

    x, steps = conjugate_gradient(times, b, preconditioner=inverse)
    close(x["a"], [3, 0.5])
    close(x["b"], 2)
    assert x["none"] is None
    assert int(steps) == 1
    assert int(conjugate_gradient(times, b, x0=x)[1]) == 0
    assert int(conjugate_gradient(times, b, maxiter=2)[1]) == 2
    assert int(conjugate_gradient(times, b, atol=100.0)[1]) == 0
    zeros = tf.nest.map_structure(tf.zeros_like, {"a": b["a"], "b": b["b"]})
    close(conjugate_gradient(times, {**zeros, "none": None})[0]["a"], [0, 0])


def test_gradient_of_a_solve():
    a, b = positive(4), tf.cast(given(4), tf.float64)

    def loss(a):
        x, _ = conjugate_gradient(lambda v: tf.linalg.matvec(a, v), b, tol=1e-12)
        return tf.reduce_sum(x**2)

    expected = tf_pfor.grad(lambda a: tf.reduce_sum(tf.linalg.solve(a, b[:, None]) ** 2))(a)
    symmetric = expected + tf.transpose(expected)
    found = tf_pfor.grad(loss)(a)
    close(found + tf.transpose(found), symmetric)
    taped = gradient_of(lambda: loss(a), a)
    close(taped + tf.transpose(taped), symmetric)


def symmetric(a):
    return (a + tf.transpose(a)) / 2


def by_steps(a, b):
    return conjugate_gradient(lambda v: tf.linalg.matvec(symmetric(a), v), b, tol=1e-13)[0]


def directly(a, b):
    return tf.linalg.solve(symmetric(tf.convert_to_tensor(a)), b[:, None])[:, 0]


def by_tapes(f):
    """First and second gradients by eager tapes."""

    def run(a, b):
        sources = [a, b]
        with tf.GradientTape() as outer, tf.GradientTape() as inner:
            outer.watch(sources)
            inner.watch(sources)
            y = f(a, b)
            first = inner.gradient(y, sources)
            total = tf.add_n([tf.reduce_sum(tf.cos(x)) for x in first])
        return first, outer.gradient(total, sources)

    return run


def sine(solve):
    return lambda a, b: b[0] + tf.reduce_sum(tf.sin(solve(a, b)))


DERIVATIVES = {
    "tapes": lambda solve: by_tapes(sine(solve)),
    "function": lambda solve: by_tapes(tf.function(sine(solve))),
    "grad": lambda solve: tf_pfor.grad(sine(solve), (0, 1)),
    "jacrev": lambda solve: tf_pfor.jacrev(solve, (0, 1)),
    "jacfwd": lambda solve: tf_pfor.jacfwd(solve, (0, 1)),
    "hessian": lambda solve: tf_pfor.hessian(sine(solve), (0, 1)),
    "compiled": lambda solve: tf.function(tf_pfor.grad(sine(solve), (0, 1)),
        jit_compile=solve is by_steps),
}  # fmt: skip


@pytest.mark.parametrize("kind", DERIVATIVES)
def test_derivatives_are_of_the_solution(kind):
    """By what the product reads and by the right side, also after no step."""
    run = DERIVATIVES[kind]
    a, rows = positive(3), [tf.cast(given(3), tf.float64), tf.zeros([3], tf.float64)]
    for b in rows:
        tf.nest.map_structure(close, run(by_steps)(a, b), run(directly)(a, b))
    if kind not in ("tapes", "function", "compiled"):
        found = strict(run(by_steps), in_axes=(None, 0))(a, tf.stack(rows))
        expected = tf_pfor.vmap(run(directly), in_axes=(None, 0))(a, tf.stack(rows))
        tf.nest.map_structure(close, found, expected)


def test_derivatives_by_a_variable_of_the_product():
    weights, rows = tf.Variable(positive(3)), tf.cast(given(2, 3), tf.float64)

    def gradients(solve):
        of_row = lambda b: tf.reduce_sum(tf.sin(solve(weights, b)))  # noqa: E731
        with tf.GradientTape() as tape:
            y = tf.reduce_sum(strict(of_row)(rows))
        mapped = strict(tf_pfor.grad(of_row, variables=weights))(rows)
        table = tf_pfor.grad(
            lambda x: tf.reduce_sum(
                x * solve(tf.linalg.diag(tf.gather(weights[0] ** 2, [1, 0])), x)
            ),
            variables=weights,
        )
        return tape.gradient(y, weights), mapped, table(rows[0, :2])

    tf.nest.map_structure(close, gradients(by_steps), gradients(directly))


def test_natural_gradient():
    """(F + 0.1)^-1 g: the pieces together, compiled."""
    product = PRODUCTS["fisher"]()

    @tf.function
    def step(params):
        g = tf_pfor.grad(lambda p: -tf.reduce_mean(log_likelihood(model(p))))(params)
        damped = lambda v: tf.nest.map_structure(  # noqa: E731
            lambda a, b: a + 0.1 * b, product(params, v), v
        )
        return g, conjugate_gradient(damped, g, tol=1e-6)[0]

    g, found = step(PARAMS)
    close(flat(found), np.linalg.solve(matrix("fisher") + 0.1 * np.eye(8), flat(g)), rtol=1e-3)


X = tf.ones([2])
WRONG = {
    "loss": (lambda: gauss_newton_vector_product(tf.sin, tf.sin)(X, X), "returns one scalar"),
    "vector": (lambda: gauss_newton_vector_product(tf.sin, tf.reduce_sum)(X, tf.ones([3])),
        "the vector of gauss_newton_vector_product must be like the argument"),
    "tensors": (lambda: fisher_vector_product(lambda x: (x, x))(X, X), "found 2 tensors"),
    "complex": (lambda: fisher_vector_product(lambda x: tf.complex(x, x))(X, X),
        "expected a real one"),
    "kernel": (lambda: ntk(lambda p, x: (x, x), X, X), "returns one tensor, found"),
    "integers": (lambda: ntk(lambda p, x: p * x, tf.range(2), X), "no derivative"),
    "chunk": (lambda: ntk(lambda p, x: p * x, X, X, chunk_size=0), "chunk_size"),
    "b": (lambda: conjugate_gradient(tf.abs, tf.range(3)), "b must hold real tensors"),
    "nothing": (lambda: conjugate_gradient(tf.abs, []), "b must hold real tensors"),
    "matvec": (lambda: conjugate_gradient(tf.reduce_sum, X), "what matvec returns must be like b"),
    "x0": (lambda: conjugate_gradient(tf.abs, X, tf.ones([3])), "x0 must be like b"),
    "tol": (lambda: conjugate_gradient(tf.abs, X, tol=-1.0), "tol must be a number"),
    "maxiter": (lambda: conjugate_gradient(tf.abs, X, maxiter=1.5), "maxiter must be"),
}  # fmt: skip
FUNCTIONS = {
    "Gauss and Newton": lambda: gauss_newton_vector_product(tf.sin, 3),
    "kernel": lambda: ntk(3, X, X),
    "conjugate gradient": lambda: conjugate_gradient(3, X),
    "preconditioner": lambda: conjugate_gradient(tf.abs, X, preconditioner=3),
}
test_errors = table_of_errors(WRONG, ArgumentError)
test_what_is_no_function = table_of_errors(
    {name: (run, "must be a function") for name, run in FUNCTIONS.items()}, ArgumentTypeError
)
