"""Values whose size differs between iterations: one loop over rows, until sizes are equal again."""

import numpy as np
import pytest
import tensorflow as tf

import tf_pfor
from tests.cases import grid
from tests.comparisons import compare_around, compare_rows, value_and_gradient

X = np.random.default_rng(0).normal(size=(3, 4)).astype(np.float32)
LENGTHS = np.int32([[1, 2, 1], [2, 1, 1], [0, 1, 3]])
SUMS = np.maximum(X, 0).sum(1)
TABLE = tf.Variable(np.arange(10, dtype=np.float32).reshape(5, 2))

pytestmark = pytest.mark.filterwarnings("ignore::tf_pfor.FallbackWarning")
_positive = lambda x: tf.boolean_mask(x, x > 0)
_positive_function = tf.function(lambda x: tf.boolean_mask(x, x > 0))


def _centered(x, _):
    """A path leaves the uneven values (the mean is a scalar) and comes back."""
    v = _positive(x)
    v -= tf.reduce_mean(v)
    return tf.reduce_sum(v * v) * x


def _two_sources(x, lengths):
    grid = _positive(x)[:, None] * tf.cast(tf.range(lengths[1]), tf.float32)
    return tf.reduce_sum(_positive(x)) + tf.reduce_sum(grid)


def _asserted(x, _):
    v = _positive(x)
    with tf.control_dependencies([tf.debugging.assert_positive(v)]):
        return tf.reduce_sum(tf.identity(v))


def _in_a_while(x, lengths):
    step = lambda k, total: (k + 1, total + tf.reduce_sum(tf.boolean_mask(x, x > total)))
    return tf.while_loop(lambda k, _: k < lengths[0], step, (0, 0.0))[1]


_in_a_cond = lambda x, _: tf.reduce_sum(tf.cond(x[0] > 0, lambda: _positive(x), lambda: x[1:]) ** 2)


def _array(x, lengths):
    array = tf.TensorArray(tf.float32, 3, infer_shape=False, element_shape=[None])
    for k in range(3):
        array = array.write(k, x[: lengths[k]])
    return tf.reduce_sum(array.concat() ** 2)


_ragged = lambda x, lengths: tf.RaggedTensor.from_row_lengths(x, lengths)
BODIES = {
    "array": _array,
    "assert": _asserted,
    "called": lambda x, _: tf.reduce_sum(_positive_function(x) ** 2),
    "cond": _in_a_cond,
    "dynamic_partition": lambda x, _: tf.stack(
        [tf.reduce_sum(p) for p in tf.dynamic_partition(x * x, tf.cast(x > 0, tf.int32), 2)]),
    "dynamic_stitch": lambda x, _: tf.dynamic_stitch([tf.argsort(x)], [x]),
    "map_fn": lambda x, n: tf.map_fn(
        lambda r: tf.reduce_sum(r * r), _ragged(x, n), fn_output_signature=tf.float32),
    "map_fn to ragged": lambda x, n: tf.map_fn(
        lambda r: r * r, _ragged(x, n),
        fn_output_signature=tf.RaggedTensorSpec([None], tf.float32)).to_tensor(shape=[3, 2]),
    "mask": lambda x, _: tf.reduce_sum(_positive(x) ** 2),
    "path": _centered,
    "ragged concat": lambda x, n: tf.reduce_sum(
        tf.concat([_ragged(x, n), _ragged(x * x, n)], 1), 1),
    "ragged gather": lambda x, n: tf.reduce_sum(tf.gather(_ragged(x, n), [0, 2]), 1),
    "ragged mean": lambda x, n: tf.reduce_mean(_ragged(x, n + 1 - n // 3), 1),
    "ragged range": lambda x, n: tf.cast(tf.reduce_sum(tf.ragged.range(n), 1), tf.float32) * x[0],
    "ragged square": lambda x, n: tf.reduce_sum(_ragged(x, n) * _ragged(x, n), 1),
    "sparse sum": lambda x, _: tf.sparse.to_dense(
        tf.sparse.add(tf.sparse.from_dense(tf.nn.relu(x)), tf.sparse.from_dense(x))),
    "table": lambda x, n: tf.reduce_sum(tf.gather(TABLE, tf.range(n[1])), 0) * x[0],
    "to_tensor": lambda x, n: tf.reduce_sum(_ragged(x, n).to_tensor() ** 2),
    "two sources": _two_sources,
    "unique": lambda x, n: tf.reduce_sum(tf.unique(n)[0]),
    "unique places": lambda x, n: tf.unique(n)[1],
    "while": _in_a_while,
}  # fmt: skip


def _each(body, *elems):
    return tf.stack([body(*map(tf.convert_to_tensor, row)) for row in zip(*elems)])


def _mapped(body, *elems, **options):
    options = {"out_shapes": "dense", **options}
    return tf_pfor.vectorized_map(lambda row: body(*row), elems, **options)


@pytest.mark.parametrize("name", [name for name in BODIES if name != "ragged mean"])
def test_values_and_gradients(name):
    options = {"rtol": 1e-5, "atol": 1e-6, "fallback": "loop", "out_shapes": "dense"}
    compare_rows(BODIES[name], tf.constant(X), tf.constant(LENGTHS), **options)
    compare_around(BODIES[name], tf.constant(X), tf.constant(LENGTHS), **options)


@grid(n=[0, 1, 3], name=["mask", "map_fn", "ragged square", "cond", "path"])
def test_unknown_numbers_and_shapes(name, n):
    run = lambda x, lengths: _mapped(BODIES[name], x, lengths)
    specs = [tf.TensorSpec([None, None]), tf.TensorSpec([None, 3], tf.int32)]
    for function in (tf.function(run, input_signature=specs), run):
        found = function(tf.constant(X[:n]), tf.constant(LENGTHS[:n]))
        assert found.shape[0] == n
        if n:
            expected = _each(BODIES[name], X[:n], LENGTHS[:n])
            np.testing.assert_allclose(found, expected, 1e-5, 1e-6)


@pytest.mark.parametrize("name", ["mask", "path", "called", "unique places"])
def test_a_map_in_a_map(name):
    body = BODIES[name]
    x, n = np.stack([X, -X]), np.stack([LENGTHS, LENGTHS[::-1]])
    found = tf_pfor.vectorized_map(lambda rows: _mapped(body, *rows), (x, n))
    expected = tf.stack([_each(body, *rows) for rows in zip(x, n)])
    np.testing.assert_allclose(found, expected, 1e-5, 1e-6)


def test_jacobians():
    fn = lambda x: tf.reduce_sum(_positive(x) ** 3)
    found = tf_pfor.vmap(tf_pfor.jacrev(fn))(X)
    np.testing.assert_allclose(found, 3 * np.maximum(X, 0) ** 2, 1e-5)
    hessian = tf_pfor.hessian(fn)(X[0])
    np.testing.assert_allclose(hessian, np.diag(6 * np.maximum(X[0], 0)), 1e-5)


def test_jit_compile():
    run = lambda x: tf_pfor.vectorized_map(lambda row: tf.reduce_sum(_positive(row)), x)
    np.testing.assert_allclose(tf.function(run, jit_compile=True)(X), SUMS, 1e-5)


# -- Ragged elements -------------------------------------------------------------------------------


@pytest.mark.parametrize("shape", [(), (2,)], ids=["scalars", "vectors"])
@pytest.mark.parametrize("lengths", [[2, 0, 3], [1], []], ids=str)
def test_ragged_elements(shape, lengths):
    values = np.random.default_rng(1).normal(size=(sum(lengths), *shape)).astype(np.float32)
    scale = np.arange(1, len(lengths) + 1, dtype=np.float32)
    body = lambda e: (tf.reduce_sum(e["r"] ** 3, 0) * e["x"], tf.shape(e["r"])[0])
    run = lambda elems: tf_pfor.vectorized_map(body, elems)
    for call in (run, tf.function(run)):
        x = tf.constant(values)
        with tf.GradientTape() as tape:
            tape.watch(x)
            rows = tf.RaggedTensor.from_row_lengths(x, lengths)
            sums, sizes = call({"r": rows, "x": tf.constant(scale)})
        ends = np.cumsum(lengths, dtype=np.int32)
        parts = [values[e - k : e] for k, e in zip(lengths, ends)]
        expected = [(p**3).sum(0) * s for p, s in zip(parts, scale)]
        assert sizes.numpy().tolist() == lengths
        assert sums.shape == (len(lengths), *shape)
        np.testing.assert_allclose(sums, np.reshape(expected, sums.shape), 1e-4, 1e-6)
        slopes = 3 * values**2 * np.repeat(scale, lengths).reshape([-1, *[1] * len(shape)])
        found = tf.convert_to_tensor(tape.gradient(sums, x))
        np.testing.assert_allclose(found, slopes, 1e-4, 1e-6)


# -- Results, effects, errors ----------------------------------------------------------------------


def test_results_of_one_shape_after_all():
    x = np.abs(X)
    dense = tf_pfor.vectorized_map(_positive, x, out_shapes="dense")
    np.testing.assert_allclose(dense, x)
    ragged = tf_pfor.vectorized_map(_positive, x)
    np.testing.assert_allclose(ragged.to_tensor(), x)


def test_results_that_differ_in_shape():
    with pytest.raises(tf.errors.InvalidArgumentError, match="differs between iterations") as info:
        tf_pfor.vectorized_map(_positive, X, out_shapes="dense")
    for part in ("GatherV2", "test_uneven_regions.py", "Pad it", "[[3][3][1]]"):
        assert part in str(info.value)


def test_an_assert_in_the_loop():
    def body(x):
        v = _positive(x)
        with tf.control_dependencies([tf.debugging.assert_less(v, 1.0)]):
            return tf.reduce_sum(tf.identity(v))

    assert X.max() > 1
    with pytest.raises(tf.errors.InvalidArgumentError):
        tf_pfor.vectorized_map(body, X)
    tf_pfor.vectorized_map(body, X / 9)


def test_what_depends_on_them_outside():
    total = tf.Variable(0.0)

    def body(x):
        total.assign_add(tf.reduce_sum(_positive(x)))
        return x

    tf_pfor.vectorized_map(body, X)
    np.testing.assert_allclose(total, SUMS.sum(), 1e-5)


def test_results_of_python_code():
    """Readers of rows of unknown rank run with them; as a result they are an error with a cure."""
    body = lambda x: tf.numpy_function(lambda v: v, [_positive(x)], tf.float32)
    known = lambda x: tf.ensure_shape(body(x), [None])
    for rows in (body, known):
        found = tf_pfor.vectorized_map(lambda x, rows=rows: tf.reduce_sum(rows(x)), X)
        np.testing.assert_allclose(found, SUMS, 1e-5)
    with pytest.raises(tf.errors.InvalidArgumentError) as info:
        tf_pfor.vectorized_map(body, X)
    for part in ("test_uneven_regions.py:", "differs between iterations", "tf.ensure_shape"):
        assert part in str(info.value)


def test_prints(capfd):
    def body(x):
        v = _positive(x)
        tf.print(v)
        return tf.reduce_sum(v)

    np.testing.assert_allclose(tf_pfor.vectorized_map(body, X), SUMS, 1e-5)
    printed = capfd.readouterr().err  # all rows at once, as a RaggedTensor is shown
    rows = "[[0.125730, 0.640423, 0.104900], [0.361595, 1.304000, 0.947081], [0.041326]]"
    assert rows in printed


def test_custom_gradients():
    inside = tf.custom_gradient(lambda v: (2.0 * v, lambda dy: 100.0 * dy))
    around = tf.custom_gradient(
        lambda x: (tf.reduce_sum(_positive(x)), lambda dy: 7.0 * tf.ones_like(x))
    )

    def gradient(body):
        x = tf.constant(X)
        y, slopes = value_and_gradient(lambda: tf_pfor.vectorized_map(body, x), x)
        np.testing.assert_allclose(y, _each(body, X), 1e-5)
        return slopes

    np.testing.assert_allclose(gradient(around), np.full(X.shape, 7))
    found = gradient(lambda x: tf.reduce_sum(inside(_positive(x))))
    np.testing.assert_allclose(found, np.where(X > 0, 100, 0))
