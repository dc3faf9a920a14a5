"""Agreement with JAX, where it is installed: in float32, which is what JAX computes in by default.

The tolerance, 1e-4 relative and 1e-5 absolute, is some hundred roundings of float32.
"""

import numpy as np
import pytest
import tensorflow as tf

import tf_pfor
from tests.cases import grid

jax: object = pytest.importorskip("jax")


def given(*shape, seed=0):
    return np.random.default_rng([seed, *shape]).normal(size=shape).astype(np.float32)


def close(found, expected):
    for f, e in zip(tf.nest.flatten(found), jax.tree_util.tree_leaves(expected), strict=True):
        assert f.shape == e.shape
        np.testing.assert_allclose(f, e, rtol=1e-4, atol=1e-5)


def model(x, w, b, np_like):
    """[3], [3, 4], [4] -> {"a": [4], "b": []}."""
    h = np_like.tanh(np_like.einsum("i,ij->j", x, w) + b)
    return {"a": np_like.exp(-(h**2)), "b": np_like.einsum("j,j->", h, h**2)}


X, W, B = given(3), given(3, 4), given(4)
of_tf = lambda x, w, b: model(x, w, b, tf)
of_jax = lambda x, w, b: model(x, w, b, jax.numpy)


@grid(name=["jacrev", "jacfwd", "hessian"], argnums=[0, (0, 2), (1,)])
def test_jacobians_and_hessians(name, argnums):
    ours, theirs = getattr(tf_pfor, name)(of_tf, argnums), getattr(jax, name)(of_jax, argnums)
    close(ours(*map(tf.constant, (X, W, B))), theirs(X, W, B))


def test_hvp_and_laplacian():
    scalar = lambda x, np_like: model(x, W, B, np_like)["b"]
    v = given(3, seed=1)
    expected = jax.hessian(lambda x: scalar(x, jax.numpy))(X)
    found = tf_pfor.hvp(lambda x: scalar(x, tf))(tf.constant(X), tf.constant(v))
    close(found, expected @ v)
    close(tf_pfor.hessian_diag(lambda x: scalar(x, tf))(tf.constant(X)), np.diag(expected))
    close(tf_pfor.laplacian(lambda x: scalar(x, tf))(tf.constant(X)), np.trace(expected))


def test_per_example_gradients():
    x, w, b = given(5, 3, seed=2), tf.Variable(W), tf.Variable(B)
    expected = jax.vmap(
        jax.grad(lambda w, b, row: of_jax(row, w, b)["b"], argnums=(0, 1)), in_axes=(None, None, 0)
    )(W, B, x)
    found, _ = tf_pfor.per_example_gradients(lambda row: of_tf(row, w, b)["b"], (w, b), x)
    close(found, expected)
    flat = np.concatenate([np.reshape(e, [5, -1]) for e in expected], 1)
    norms = tf_pfor.gradient_norms(lambda row: of_tf(row, w, b)["b"], (w, b), x)
    close(norms, np.linalg.norm(flat, axis=1))


def test_recurrent_network():
    def lstm(x, w, u, np_like):
        h = c = np_like.zeros([1, 3], x.dtype)
        for t in range(4):
            i, f, g, o = ((x[t][None] @ w + h @ u)[:, k : k + 3] for k in range(0, 12, 3))
            i, f, o = (1 / (1 + np_like.exp(-z)) for z in (i, f, o))
            c = c * f + np_like.tanh(g) * i
            h = np_like.tanh(c) * o
        return h[0]

    arguments = (given(4, 2), given(2, 12), given(3, 12))
    expected = jax.jacrev(lambda *a: lstm(*a, jax.numpy), argnums=(0, 1, 2))(*arguments)
    for jac in (tf_pfor.jacrev, tf_pfor.jacfwd):
        close(jac(lambda *a: lstm(*a, tf), (0, 1, 2))(*map(tf.constant, arguments)), expected)


scalar_of_tf = lambda x, w, b: of_tf(x, w, b)["b"]
scalar_of_jax = lambda x, w, b: of_jax(x, w, b)["b"]


@grid(name=["grad", "value_and_grad"], argnums=[0, (0, 2)])
def test_gradients(name, argnums):
    ours, theirs = getattr(tf_pfor, name), getattr(jax, name)
    found = ours(scalar_of_tf, argnums)(*map(tf.constant, (X, W, B)))
    close(found, theirs(scalar_of_jax, argnums)(X, W, B))


def test_gradients_of_rows():
    x = given(5, 3, seed=3)
    found = tf_pfor.vmap(tf_pfor.grad(scalar_of_tf, (0, 1)), (0, None, None))(x, W, B)
    close(found, jax.vmap(jax.grad(scalar_of_jax, (0, 1)), (0, None, None))(x, W, B))


def test_pullbacks_and_pushforwards():
    tangents = (given(3, seed=4), given(3, 4, seed=5), given(4, seed=6))
    cotangents = {"a": given(4, seed=7), "b": np.float32(0.7)}
    primals = tuple(map(tf.constant, (X, W, B)))
    value, pullback = tf_pfor.vjp(of_tf, *primals)
    expected, pullback_of_jax = jax.vjp(of_jax, X, W, B)
    close(value, expected)
    close(pullback(tf.nest.map_structure(tf.constant, cotangents)), pullback_of_jax(cotangents))
    pushed = jax.jvp(of_jax, (X, W, B), tangents)
    close(tf_pfor.jvp(of_tf, primals, tuple(map(tf.constant, tangents))), pushed)
    value, linear = tf_pfor.linearize(of_tf, *primals)
    close(value, pushed[0])
    close(linear(*map(tf.constant, tangents)), pushed[1])


@grid(n=[1, 2, 7], reverse=[False, True])
def test_associative_scans(n, reverse):
    a, b = given(n, 2), given(n, 2, seed=1)
    combined = lambda left, right: (left[0] * right[0], left[1] * right[0] + right[1])
    expected = jax.lax.associative_scan(combined, (a, b), reverse=reverse)
    close(tf_pfor.associative_scan(combined, (a, b), reverse=reverse), expected)


ROWS = given(4, 8, seed=8)
COLLECTIVES = {
    "psum": lambda p, x: p.psum(x, "i"),
    "pmean": lambda p, x: p.pmean(x, "i"),
    "pmax": lambda p, x: p.pmax(x, "i"),
    "pmin": lambda p, x: p.pmin(x, "i"),
    "all_gather": lambda p, x: p.all_gather(x, "i"),
    "all_gather, tiled": lambda p, x: p.all_gather(x, "i", tiled=True),
    "all_gather, axis 1": lambda p, x: p.all_gather(x, "i", axis=1),
    "psum_scatter": lambda p, x: p.psum_scatter(x[:4], "i"),
    "psum_scatter, tiled": lambda p, x: p.psum_scatter(x, "i", tiled=True),
    "all_to_all": lambda p, x: p.all_to_all(x[:4], "i", 0, 0),
    "all_to_all, tiled": lambda p, x: p.all_to_all(x, "i", 0, 0, tiled=True),
    "ppermute": lambda p, x: p.ppermute(x, "i", [(0, 1), (1, 3), (3, 2), (2, 0)]),
    "axis_index": lambda p, x: p.axis_index("i") + 0 * p.psum(1, "i"),
}


@pytest.mark.parametrize("name", COLLECTIVES)
def test_collectives(name):
    fn = COLLECTIVES[name]
    expected = jax.vmap(lambda x: fn(jax.lax, x), axis_name="i")(ROWS)
    close(tf_pfor.vmap(lambda x: fn(tf_pfor, x), axis_name="i")(ROWS), expected)


def test_conjugate_gradients():
    m = given(6, 6)
    a, b = m @ m.T + 6 * np.eye(6, dtype=np.float32), given(6, seed=1)
    expected, _ = jax.scipy.sparse.linalg.cg(lambda x: a @ x, b, tol=1e-7)
    found = tf_pfor.conjugate_gradient(lambda x: tf.linalg.matvec(a, x), tf.constant(b))
    close(tf.nest.flatten(found)[0], expected)
