"""Derivatives of functions: nests with Nones, argnums, dtypes, complex numbers, unknown shapes."""

import collections
import dataclasses
from collections.abc import Mapping

import numpy as np
import pytest
import tensorflow as tf

import tf_pfor
from tests.cases import grid
from tests.comparisons import close, gradient_of, pairwise
from tf_pfor.core.errors import ArgumentError, ArgumentTypeError

X = tf.constant([1.0, 2.0])
JACOBIANS = {"rev": tf_pfor.jacrev, "fwd": tf_pfor.jacfwd}
ALL = {
    **JACOBIANS,
    "hessian": tf_pfor.hessian,
    "diagonal": tf_pfor.hessian_diag,
    "laplacian": tf_pfor.laplacian,
}
of_jacobians = pytest.mark.parametrize("jac", JACOBIANS.values(), ids=JACOBIANS)
of_all = pytest.mark.parametrize("form", ALL.values(), ids=ALL)


# -- nests ---------------------------------------------------------------------------------


@of_all
def test_nones_stay_where_they_are(form):
    def f(d):
        assert d["none"] is None
        return {"y": tf.sin(d["x"]) * d["x"], "none": None}

    found = form(f)({"x": X, "none": None})
    expected = form(lambda x: tf.sin(x) * x)(X)
    assert found["none"] is None
    found = found["y"]
    if form is tf_pfor.hessian:
        assert found["none"] is None
        assert found["x"]["none"] is None
        found = found["x"]["x"]
    elif form is not tf_pfor.laplacian:
        assert found["none"] is None
        found = found["x"]
    close(found, expected)


def test_structures_are_kept():
    pair = collections.namedtuple("pair", "a b")

    @dataclasses.dataclass
    class Point:
        x: tf.Tensor
        rest: None = None

    found = tf_pfor.jacrev(lambda p: pair(p.x * 2, [p.x]))(Point(X))
    assert isinstance(found, pair)
    assert isinstance(found.a, Point)
    close(found.a.x, 2 * np.eye(2))
    close(found.b[0].x, np.eye(2))


class Ends(tf.experimental.ExtensionType):
    """A tensor of any shape."""

    a: tf.Tensor


class Line(tf.experimental.ExtensionType):
    """Another extension type, in a dict, and a name beside it."""

    slope: tf.Tensor
    rest: Mapping[str, Ends]
    name: str = "line"


DERIVATIVES = {
    **ALL,
    "grad": lambda f: tf_pfor.grad(lambda x: tf.reduce_sum(f(x))),
    "vjp": lambda f: lambda x: tf_pfor.vjp(f, x)[1](X)[0],
    "jvp": lambda f: lambda x: tf_pfor.jvp(f, (x,), (x,))[1],
    "linearize": lambda f: lambda x: tf_pfor.linearize(f, x)[1](x),
    "hvp": lambda f: lambda x: tf_pfor.hvp(lambda x: tf.reduce_sum(f(x)))(x, x),
    "rows": lambda f: tf_pfor.vmap(tf_pfor.grad(f)),
}


@pytest.mark.parametrize("kind", DERIVATIVES)
def test_extension_types_are_nests(kind):
    """Arguments and results, of any shape; the same of dicts is right."""
    form = DERIVATIVES[kind]

    def plain(x):
        if isinstance(x, Line):
            assert x.name == "line"
            return {"slope": plain(x.slope), "x": plain(x.rest["x"].a)}
        return {k: plain(v) for k, v in x.items()} if isinstance(x, dict) else x

    line = Line(X, {"x": Ends(3.0 * X)})
    found = plain(form(lambda line: line.slope * line.rest["x"].a ** 2)(line))
    expected = form(lambda d: d["slope"] * d["x"] ** 2)({"slope": X, "x": 3.0 * X})
    tf.nest.map_structure(close, found, expected)
    made = tf_pfor.jacrev(lambda x: Line(2.0 * x, {"x": Ends(x)}, name="made"))(X)
    assert made.name == "made"
    close(made.rest["x"].a, np.eye(2))


@of_all
def test_aux(form):
    value, aux = form(lambda x: (x**3, {"x": x, "none": None}), has_aux=True)(X)
    close(value, form(lambda x: x**3)(X))
    close(aux["x"], X)
    assert aux["none"] is None


@of_all
def test_nothing_to_differentiate(form):
    """The derivative by an empty nest is an empty nest, and the laplacian is zero."""
    found = form(lambda d: tf.ones([2]))({})
    if form is tf_pfor.laplacian:
        close(found, [0, 0])
    else:
        assert found == {}
    assert form(lambda x: {})(X) == {}


def test_several_arguments():
    f = lambda x, scale, y: scale * tf.reduce_sum(x**2 * y**3)
    y, scale = tf.constant([3.0, -1.0]), tf.constant(2.0)
    full = tf_pfor.hessian(f, (0, 2))(X, scale, y)
    diagonal = tf_pfor.hessian_diag(f, (0, -1))(X, scale, y)
    for k in (0, 1):
        close(diagonal[k], np.diag(full[k][k]))
    trace = sum(np.trace(full[k][k]) for k in (0, 1))
    close(tf_pfor.laplacian(f, range(0, 3, 2))(X, scale, y), trace)
    v = (tf.constant([1.0, -1.0]), tf.constant([0.5, 2.0]))
    found = tf_pfor.hvp(f, [np.int64(0), 2])(X, scale, y, v)
    for k in (0, 1):
        close(found[k], sum(np.asarray(full[k][j]) @ np.asarray(v[j]) for j in (0, 1)))


def test_slices_of_a_table():
    table = tf.constant(np.random.default_rng(0).normal(size=[6, 2]), tf.float32)
    f = lambda p, ids: tf.gather(p["table"], ids) ** 2 * p["scale"]
    p, ids = {"table": table, "scale": X}, tf.constant([4, 1, 4])
    dense = tf_pfor.jacrev(f)(p, ids)
    for chunk in (None, 1, 4):
        found = tf_pfor.jacrev(f, chunk_size=chunk, sparse=True)(p, ids)
        assert isinstance(found["table"], tf_pfor.BatchedIndexedSlices)
        assert found["table"].values.shape == [3, 2, 3, 2]
        close(found["table"].to_dense(), dense["table"])
        close(found["scale"], dense["scale"])


@pytest.mark.parametrize("form", [*ALL.values(), tf_pfor.hvp], ids=[*ALL, "hvp"])
def test_a_derivative_made_anew_is_not_traced_anew(form):
    args = (X, X) if form is tf_pfor.hvp else (X,)
    tf_pfor.clear_cache()
    for _ in range(3):
        form(lambda x: tf.reduce_sum(x**3))(*args)
    info = tf_pfor.cache_info()
    assert (info.misses, info.hits, info.size) == (1, 2, 1)


# -- dtypes --------------------------------------------------------------------------------

Z = tf.constant([1 + 2j, -0.5 + 1j], tf.complex128)


@of_jacobians
def test_holomorphic(jac):
    """The complex derivative, in both modes."""
    found = jac(lambda z: z**3 * tf.reduce_sum(z), holomorphic=True)(Z)
    z = Z.numpy()
    close(found, np.diag(3 * z**2 * z.sum()) + (z**3)[:, None])
    twice = tf_pfor.hessian(lambda z: tf.reduce_sum(z**3), holomorphic=True)(Z)
    close(twice, np.diag(6 * z))


# A complex function of reals.
wave = lambda x: tf.exp(tf.complex(-tf.reduce_sum(x**2), tf.reduce_sum(x)))


@pytest.mark.parametrize("shape", [[], [1]])
def test_complex_functions_of_reals(shape):
    f = lambda x: tf.reshape(wave(x), shape)
    real, imaginary = (lambda x: tf.math.real(f(x))), (lambda x: tf.math.imag(f(x)))
    for form in (tf_pfor.jacfwd, tf_pfor.hessian_diag, tf_pfor.laplacian):
        found = form(f)(X)
        close(tf.math.real(found), form(real)(X))
        close(tf.math.imag(found), form(imaginary)(X))


@pytest.mark.parametrize("dtype", [tf.float16, tf.bfloat16, tf.float64])
@of_all
def test_precisions(form, dtype):
    found = form(lambda x: tf.sin(x) * x)(tf.cast(X, dtype))
    assert found.dtype == dtype
    tolerance = {tf.float16: 1e-2, tf.bfloat16: 5e-2, tf.float64: 1e-5}[dtype]
    close(tf.cast(found, tf.float32), form(lambda x: tf.sin(x) * x)(X), tolerance, tolerance)


def test_mixed_precisions():
    """jacrev has the dtype of the input, the others have the dtype of the output."""
    f = lambda p: tf.reduce_sum(p["a"] ** 2 * tf.cast(p["b"], tf.float32) ** 2)
    p = {"a": X, "b": tf.cast(X, tf.float64)}
    assert [x.dtype for x in tf_pfor.jacrev(f)(p).values()] == [tf.float32, tf.float64]
    assert [x.dtype for x in tf_pfor.jacfwd(f)(p).values()] == [tf.float32, tf.float32]
    assert [x.dtype for x in tf_pfor.hessian_diag(f)(p).values()] == [tf.float32, tf.float32]
    close(tf_pfor.laplacian(f)(p), 20.0)


# -- shapes --------------------------------------------------------------------------------


@pytest.mark.filterwarnings("ignore::tf_pfor.FallbackWarning")  # ranks that are not known
@pytest.mark.parametrize(
    ("shape", "chunk"), [([None, None], None), ([None, None], 3), (None, None)], ids=str
)
@of_all
def test_unknown_shapes(form, shape, chunk):
    derivative = form(lambda x: tf.sin(x) * x, chunk_size=chunk)
    spec = [tf.TensorSpec(shape)]
    compiled = tf.function(lambda x: derivative(x), input_signature=spec, autograph=False)
    for n in (0, 2):
        x = tf.random.stateless_normal([n, 2], [n, 1])
        found, expected = compiled(x), derivative(x)
        assert found.shape == expected.shape
        close(found, expected)


@pytest.mark.filterwarnings("error::tf_pfor.FallbackWarning")
@grid(form=[tf_pfor.jacrev, tf_pfor.hessian], chunk=[2, 7])
def test_chunks_of_unknown_shapes_under_jit_compile(form, chunk):
    """Also more than there are; jacfwd of a jacrev reshapes to an unknown rank."""
    f = lambda x: tf.reduce_sum(tf.sin(x) * tf.reduce_sum(x**2))
    compiled = tf.function(
        lambda x: form(f, chunk_size=chunk)(x),
        input_signature=[tf.TensorSpec([None])], jit_compile=True, autograph=False,
    )  # fmt: skip
    for x in (X, tf.range(5.0)):
        close(compiled(x), form(f)(x), rtol=1e-4)


def test_a_map_that_knows_more_shapes_than_its_body():
    """TensorFlow does not say how many segments there are; the map of it does."""
    f = lambda x: tf.math.segment_sum(x**2, [0, 0, 1])
    x = tf.reshape(tf.range(12.0), [2, 3, 2])
    found = tf_pfor.vectorized_map(tf_pfor.jacfwd(f), x)
    close(found, tf.stack([tf_pfor.jacrev(f)(row) for row in x]))


# -- second derivatives --------------------------------------------------------------------


@pytest.mark.filterwarnings("ignore::tf_pfor.FallbackWarning")  # ranks that are not known
def test_a_tape_around_blocks_in_a_graph():
    """TensorFlow's tapes do not see that tf.gradients rewrites the loops over the blocks."""
    v = tf.Variable([1.0, 2.0])

    def gradients(**options):
        f = lambda x: tf.sin(x * v) * tf.reduce_sum(x**2)
        return gradient_of(lambda: tf.reduce_sum(tf_pfor.hessian(f, **options)(X) ** 2), [X, v])

    expected = gradients()
    found = tf.function(gradients)(chunk_size=1)
    pairwise(close, found, expected, rtol=1e-4)


resized = lambda x: tf.image.resize(tf.reshape(x, [1, 2, 1]), [2, 2])[..., 0]


@pytest.mark.parametrize("wrap", [lambda f: f, tf.function], ids=["plain", "function"])
def test_second_derivatives_that_tensorflow_leaves_out(wrap):
    """The gradient of its ResizeBilinearGrad is a constant to TensorFlow: nothing, or a part."""
    image = wrap(resized)
    assert tf_pfor.jacrev(image)(X).shape == [2, 2, 2]
    energy = lambda x: tf.reduce_sum(image(x) ** 3) + tf.reduce_sum(x**3)
    for run in (
        lambda: tf_pfor.jacfwd(image)(X),
        lambda: tf_pfor.hessian(energy)(X),
        lambda: tf_pfor.laplacian(energy)(X),
        lambda: tf_pfor.hvp(energy)(X, X),
    ):
        with pytest.raises(ArgumentError, match="ResizeBilinearGrad"):
            run()


@pytest.mark.parametrize("wrap", [lambda f: f, tf.function], ids=["plain", "function"])
def test_constants_that_are_meant(wrap):
    """Ops that depend on the argument only by tf.stop_gradient or by integers are allowed."""
    x = tf.constant([[0.1, 0.4], [0.2, 0.7]])
    softmax = tf.nn.softmax(x)
    f = wrap(lambda x: tf.reduce_sum(tf.reduce_logsumexp(x, 1)))  # holds a tf.stop_gradient
    close(tf_pfor.jacrev(f)(x), softmax)
    close(tf_pfor.jacfwd(f)(x), softmax)
    close(tf_pfor.hessian_diag(f)(x), softmax * (1 - softmax))
    scale = wrap(
        lambda x: x * resized(tf.stop_gradient(x[0])) + tf.one_hot(tf.cast(x[0], tf.int32), 2)
    )
    close(tf_pfor.jacfwd(scale)(x), tf_pfor.jacrev(scale)(x))


@pytest.mark.parametrize(
    ("op", "f"),
    [
        ("PyFunc", lambda x: tf.numpy_function(np.sin, [x], tf.float32)),
        ("HSVToRGB", lambda x: tf.image.hsv_to_rgb(tf.stack([x, x, x], 1))),
        ("OneHot", lambda x: tf.one_hot(1, 2, on_value=x[0])),
    ],
)
def test_derivatives_that_tensorflow_leaves_out(op, f):
    inside = tf.function(lambda x: tf.cond(tf.reduce_sum(x) > 0, lambda: f(x), lambda: f(-x)))
    for run in (tf_pfor.jacrev(f), tf_pfor.jacfwd(f), tf_pfor.jacrev(inside)):
        with pytest.raises(
            ArgumentError, match=f"through {op} .*tests/derivatives/test_functional.py"
        ):
            run(X)


def test_what_tensorflow_cannot_differentiate():
    again = tf.recompute_grad(lambda x: tf.sin(x) * tf.reduce_sum(x))
    close(tf_pfor.jacrev(again)(X), tf_pfor.jacrev(lambda x: tf.sin(x) * tf.reduce_sum(x))(X))
    for run in (
        lambda: tf_pfor.jacfwd(again)(X),
        lambda: tf_pfor.hvp(lambda x: tf.reduce_sum(again(x)))(X, X),
        lambda: tf_pfor.jacrev(lambda x: tf.linalg.lu(x[:, None] * x + tf.eye(2))[0])(X),
    ):
        with pytest.raises(ArgumentError, match="no derivative of the function: .*(recompute|Lu)"):
            run()


# -- errors --------------------------------------------------------------------------------


cube = lambda x: tf.reduce_sum(x**3)


@pytest.mark.parametrize(("run", "error", "text"), [
    (lambda: tf_pfor.jacrev(wave)(X), ArgumentError, "output has dtype complex64, expected a"),
    (lambda: tf_pfor.hessian(wave)(X), ArgumentError, "Use jacfwd"),
    (lambda: tf_pfor.jacrev(cube)(Z), ArgumentError, "holomorphic=True"),
    (lambda: tf_pfor.jacfwd(cube)({"z": [Z]}), ArgumentError, r"argument 0\['z'\]\[0\] has"),
    (lambda: tf_pfor.jacfwd(tf.abs, holomorphic=True)(Z), ArgumentError, "output has dtype fl"),
    (lambda: tf_pfor.jacrev(cube, holomorphic=True)(X), ArgumentError, "expected a complex"),
    (lambda: tf_pfor.laplacian(cube)(Z), ArgumentError, "real and imaginary"),
    (lambda: tf_pfor.hvp(cube)(Z, Z), ArgumentError, "expected a real"),
    (lambda: tf_pfor.hvp(wave)(X, X), ArgumentError, "output has dtype complex64"),
    (lambda: tf_pfor.hvp(cube)(X, tf.complex(X, X)), ArgumentError, "found complex64"),
    (lambda: tf_pfor.hvp(cube)(X, {"a": X}), ArgumentError, "vector of hvp must be like"),
    (lambda: tf_pfor.hvp(cube)(X), ArgumentError, "in front of the vector"),
    (lambda: tf_pfor.jacrev(cube, True), ArgumentError, "argnums must be"),
    (lambda: tf_pfor.jacrev(cube, 1.0), ArgumentError, "argnums must be"),
    (lambda: tf_pfor.jacrev(lambda x: {"n": tf.argmax(x)})(X), ArgumentError,
        r"output\['n'\] has dtype int64"),
    (lambda: tf_pfor.jacrev(lambda r: r.values)(tf.ragged.constant([[1.0], []])), ArgumentTypeError,
        "argument 0 holds a RaggedTensor"),
])  # fmt: skip
def test_errors(run, error, text):
    with pytest.raises(error, match=text):
        run()


@pytest.mark.parametrize("size", [1, 2, "auto"])
def test_hessian_in_blocks_mapped_and_compiled(size):
    f = lambda a: tf.sin(a) * tf.reduce_sum(a**2)
    x = tf.constant(np.random.default_rng(0).normal(size=(4, 3)), tf.float32)
    blocks, expected = tf_pfor.hessian(f, chunk_size=size), tf_pfor.vmap(tf_pfor.hessian(f))(x)
    for xla in (False, True):
        for found, rows in ((tf_pfor.vmap(blocks), x), (blocks, x[0])):
            wanted = expected if rows is x else expected[0]
            compiled = tf.function(found, jit_compile=xla)
            np.testing.assert_allclose(compiled(rows), wanted, rtol=1e-4, atol=1e-5)


def test_holomorphic_derivatives_of_a_table_stay_sparse():
    parts = np.random.default_rng(0).normal(size=(2, 5, 2)).astype(np.float32)
    table = tf.complex(*parts)
    squares = lambda w: tf.gather(w, [1, 3, 1]) ** 2
    found = tf_pfor.jacrev(squares, holomorphic=True, sparse=True)(table)
    assert isinstance(found, tf_pfor.BatchedIndexedSlices)
    expected = tf_pfor.jacrev(squares, holomorphic=True)(table)
    np.testing.assert_allclose(found.to_dense(), expected, rtol=1e-6)
