"""vectorize: loop dimensions broadcast as in NumPy, core dimensions are checked."""

import numpy as np
import pytest
import tensorflow as tf

import tf_pfor
from tests.api.test_errors import Untraced, table_of_errors
from tests.comparisons import gradient_of, strict_map
from tf_pfor import ArgumentError, ArgumentTypeError, vectorize

SIGNATURE = "(m,n),(n)->(m)"


def given(*shape, dtype=np.float32):
    return np.random.default_rng(shape).normal(size=shape).astype(dtype)


def close(found, expected):
    found = tf.convert_to_tensor(found)
    assert found.shape == np.shape(expected)
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)


def strict(fn, *args, **options):
    return vectorize(fn, *args, fallback="error", **options)


def product(a, x):
    assert (a.shape.rank, x.shape.rank) == (2, 1)
    return tf.linalg.matvec(a, x)


LOOPS = [
    ((), ()),
    ((4,), (4,)),
    ((4,), ()),
    ((), (4,)),
    ((5, 1), (4,)),
    ((5, 4), (1, 4)),
    ((1,), (1,)),
    ((2, 1, 3), (4, 1)),
    ((0,), (1,)),
    ((2, 0), (2, 1)),
]


@pytest.mark.parametrize("loops", LOOPS, ids=str)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_against_numpy(loops, dtype):
    a, x = given(*loops[0], 2, 3, dtype=dtype), given(*loops[1], 3, dtype=dtype)
    expected = np.vectorize(np.matmul, signature=SIGNATURE, otypes=[dtype])(a, x)
    if not expected.size:  # where NumPy is not sure of core dimensions
        expected = np.zeros([*np.broadcast_shapes(*loops), 2], dtype)
    fn = strict(product, SIGNATURE)
    for way in (fn, tf.function(fn), tf.function(fn, jit_compile=True)):
        found = way(a, x)
        assert found.dtype == dtype
        close(found, expected)


@pytest.mark.parametrize("loops", LOOPS, ids=str)
def test_unknown_sizes(loops):
    a, x = given(*loops[0], 2, 3), given(*loops[1], 3)
    specs = [tf.TensorSpec([None] * t.ndim) for t in (a, x)]
    run = tf.function(strict(product, SIGNATURE), input_signature=specs)
    close(run(a, x), strict(product, SIGNATURE)(a, x))


def test_unknown_core_sizes_are_checked_as_they_run():
    specs = [tf.TensorSpec([None, None, None]), tf.TensorSpec([None, None])]
    run = tf.function(strict(lambda a, x: a[0] + x, SIGNATURE.replace("(m)", "(n)")))
    run = run.get_concrete_function(*specs)
    close(run(tf.ones([4, 2, 3]), tf.ones([4, 3])), 2 * np.ones([4, 3]))
    with pytest.raises(tf.errors.InvalidArgumentError, match="core dimension n must have one size"):
        run(tf.ones([4, 2, 3]), tf.ones([4, 1]))
    with pytest.raises(tf.errors.InvalidArgumentError):
        run(tf.ones([4, 2, 3]), tf.ones([5, 3]))


def test_scalars_without_a_signature():
    def f(x, y):
        if x > y:
            return x - y, x
        return x * y, y

    x, y = given(3, 1), given(4)
    first, second = strict(f)(x, y)
    close(first, np.where(x > y, x - y, x * y))
    close(second, np.maximum(x, y))
    close(vectorize(f)(2.0, 1.0)[0], 1.0)


def test_several_outputs_numbers_and_new_dimensions():
    x = given(4, 5, 3)
    total, twice = strict(lambda x: (tf.reduce_sum(x), tf.concat([x, x], 0)), "(3)->(),(k)")(x)
    close(total, x.sum(-1))
    close(twice, np.concatenate([x, x], -1))


def test_excluded():
    def scaled(x, how, scale, *, shift):
        return (x if how == "up" else -x) * scale + shift

    x, scale = given(5, 3), tf.constant(2.0)
    fn = strict(scaled, "(n)->(n)", excluded={1, 2, "shift"})
    close(fn(x, "up", scale, shift=1.0), 2 * x + 1)
    close(fn(x, "down", scale, shift=tf.ones([3])), -2 * x + 1)


def test_gradients_and_maps():
    a, x = tf.constant(given(5, 1, 2, 3)), tf.constant(given(4, 3))

    def total(a, x):
        return tf.reduce_sum(strict(product, SIGNATURE)(a, x) ** 2)

    def whole(a, x):
        return tf.reduce_sum(tf.linalg.matvec(a, x) ** 2)

    for found, expected in zip(
        tf_pfor.grad(total, (0, 1))(a, x), tf_pfor.grad(whole, (0, 1))(a, x)
    ):
        close(found, expected)
    close(gradient_of(lambda: total(a, x), x), tf_pfor.grad(whole, 1)(a, x))
    mapped = tf_pfor.vmap(strict(product, SIGNATURE), in_axes=(0, None), fallback="error")
    close(mapped(a, x), tf.linalg.matvec(a, x))
    rows = strict_map(lambda m: strict(product, SIGNATURE)(m, x), a)
    close(rows, tf.linalg.matvec(a, x))


def test_nothing_is_repeated():
    """Shared arguments, and arguments of size 1, are not broadcast."""
    fn = tf.function(strict(product, SIGNATURE))
    graph = fn.get_concrete_function(tf.TensorSpec([5, 1, 2, 3]), tf.TensorSpec([1, 4, 3])).graph
    assert {"BroadcastTo", "Tile"}.isdisjoint(op.type for op in graph.get_operations())


def test_calls_share_a_trace():
    tf_pfor.clear_cache()
    fn = vectorize(lambda a, x: tf.linalg.matvec(a, x), SIGNATURE)
    for _ in range(3):
        fn(given(4, 2, 3), given(3))
    assert tf_pfor.cache_info().misses == 1


A, B = np.ones([4, 2, 3], np.float32), np.ones([4, 3], np.float32)
WRONG = {
    "signature": (lambda: vectorize(product, "(m,n)"), "signature must be core dimensions"),
    "no string": (lambda: vectorize(product, 3), "found 3"),
    "excluded": (lambda: vectorize(product, excluded=[-1]), "excluded must be"),
    "a string": (lambda: vectorize(product, excluded="ab"), "excluded must be"),
    "number": (lambda: vectorize(Untraced(), SIGNATURE)(A), "has 2 arguments"),
    "keyword": (lambda: vectorize(Untraced(), SIGNATURE)(A, x=B), "keyword argument x"),
    "core": (lambda: vectorize(Untraced(), SIGNATURE)(A, B[:, :2]),
        "core dimension n must have one size, found [2, 3]"),
    "fixed": (lambda: vectorize(Untraced(), "(4)->()")(B), "core dimension 4 must have one size"),
    "rank": (lambda: vectorize(Untraced(), SIGNATURE)(A[0, 0], B),
        "argument 0 has shape (3,), and its core dimensions are (m,n)"),
    "loops": (lambda: vectorize(Untraced(), SIGNATURE)(A, B[:3]), "must broadcast. Found"),
    "outputs": (lambda: vectorize(lambda x: (x, x), "(n)->(n)")(B), "returned 2"),
    "output": (lambda: vectorize(lambda x: x, "(n)->()")(B), "output 0 of the function has shape"),
    "output rank": (lambda: vectorize(lambda x: x[0], "(n)->(n)")(B), "output 0 has shape ()"),
    "output size": (lambda: vectorize(lambda x: x[1:], "(n)->(n)")(B), "found [2, 3]"),
    "scalar": (lambda: vectorize(lambda x: x[None])(B), "core dimensions are ()"),
}  # fmt: skip

TYPES = {
    "no function": (lambda: vectorize(3), "expects a function"),
    "no tensor": (lambda: vectorize(Untraced())(object()), "argument 0 is a object"),
    "no result": (lambda: vectorize(lambda x: None)(B), "output 0 is a NoneType"),
}
test_errors = table_of_errors(WRONG, ArgumentError)
test_what_is_no_tensor = table_of_errors(TYPES, ArgumentTypeError)


def test_unknown_rank():
    fn = tf.function(vectorize(Untraced(), "(n)->()"), autograph=False)
    with pytest.raises(ArgumentError, match="unknown rank"):
        fn.get_concrete_function(tf.TensorSpec(None))


def test_a_lambda_in_the_call_is_not_named_by_autograph(caplog):
    found = tf_pfor.vectorize(lambda a: a * 2.0, "()->()")(tf.constant([1.0, 2.0]))
    np.testing.assert_array_equal(found, [2.0, 4.0])
    assert "could not transform" not in caplog.text
