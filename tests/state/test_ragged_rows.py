"""State and Python functions meet rows of different lengths: each equals a loop over rows."""

import numpy as np
import pytest
import tensorflow as tf

import tf_pfor
from tests.comparisons import gradient_of, of_unknown_n, pairwise, rows_of, strict_map
from tests.state.maps import var

LENGTHS = [2, 1, 0, 3]
ROWS = tf.ragged.constant([[1.0, 2.0], [3.0], [], [5.0, 6.0, 7.0]])
PLACES = tf.ragged.constant([[1, 2], [3], [], [0, 2, 1]], dtype=tf.int32)
rows_of = lambda ragged: [ragged[i] for i in range(ragged.shape[0])]


@pytest.fixture(params=["eager", "function", "unknown n", "chunks"])
def mapped(request):
    """vectorized_map of ragged rows: eagerly, in tf.function, of unknown n, in chunks."""

    def run(body, x, **options):
        if request.param == "chunks":
            options["chunk_size"] = 2

        call = lambda rows: tf_pfor.vectorized_map(body, rows, **options)
        if request.param in ("eager", "chunks"):
            return call(x)
        spec_of = of_unknown_n if request.param == "unknown n" else tf.RaggedTensorSpec.from_value
        return tf.function(call, input_signature=[spec_of(x)], autograph=False)(x)

    return run


def as_lists(found):
    return found.to_list() if isinstance(found, tf.RaggedTensor) else found.numpy().tolist()


# -- Python functions ------------------------------------------------------------------------------


@pytest.mark.parametrize("function", [tf.py_function, tf.numpy_function])
def test_a_python_function_of_a_row_is_called_in_order(mapped, function):
    seen = []

    def python(r):
        seen.append(np.asarray(r).tolist())
        return np.float32(np.sum(r) + len(r))

    found = mapped(lambda r: tf.ensure_shape(function(python, [r], tf.float32), []), ROWS)
    np.testing.assert_allclose(found, [5.0, 4.0, 0.0, 21.0])
    assert seen == ROWS.to_list()


@pytest.mark.parametrize("function", [tf.py_function, tf.numpy_function])
def test_a_python_function_gives_as_many_as_the_row_has(mapped, function):
    def body(r):
        made = function(lambda x: np.asarray(x)[::-1] * np.float32(2), [r], tf.float32)
        return tf.ensure_shape(made, [None]) + tf.reduce_sum(r)

    want = [np.asarray(r)[::-1] * 2 + np.sum(r) for r in rows_of(ROWS)]
    assert as_lists(mapped(body, ROWS)) == [w.tolist() for w in want]


def test_a_python_function_without_rows():
    made = lambda r: tf.numpy_function(lambda x: np.float32(x.sum()), [r], tf.float32)
    assert tf_pfor.vectorized_map(lambda r: tf.ensure_shape(made(r), []), ROWS[:0]).shape == [0]


@pytest.mark.parametrize("is_traced", [False, True])
def test_gradients_go_through_a_python_function_of_each_row(is_traced):
    x, squares = var(ROWS.values), lambda a: tf.reduce_sum(a * a)
    body = lambda r: tf.ensure_shape(tf.py_function(squares, [r], tf.float32), [])
    gradient = lambda: gradient_of(lambda: tf_pfor.vectorized_map(body, ROWS.with_values(x)), x)
    found = tf.function(gradient, autograph=False)() if is_traced else gradient()
    np.testing.assert_allclose(found, 2 * ROWS.values)


def test_a_python_function_in_an_input_pipeline():
    def body(r):
        made = tf.numpy_function(lambda x: np.float32([x.sum(), x.size]), [r], tf.float32)
        return tf.ensure_shape(made, [2])

    data = tf.data.Dataset.from_tensor_slices(ROWS)
    batches = data.apply(tf_pfor.data.map_and_batch(body, 3))
    got = np.concatenate([b.numpy() for b in batches])
    np.testing.assert_allclose(got, [[3, 2], [3, 1], [0, 0], [18, 3]])


# -- Asserts and prints ----------------------------------------------------------------------------


def test_an_assert_of_rows(mapped):
    def body(r, limit=8.0):
        tf.debugging.Assert(tf.reduce_all(r < limit), [r])
        return tf.reduce_sum(r)

    np.testing.assert_allclose(mapped(body, ROWS, fallback="error"), [3.0, 3.0, 0.0, 18.0])
    with pytest.raises(tf.errors.InvalidArgumentError):
        mapped(lambda r: body(r, 6.5), ROWS, fallback="error")


def test_a_print_of_rows_shows_each_row(capfd):
    def body(r):
        tf.print("row", r, summarize=-1)
        return tf.reduce_sum(r)

    strict_map(body, ROWS)
    assert "[[1.000000, 2.000000], [3.000000], [], [5.000000" in capfd.readouterr().err


# -- Variables -------------------------------------------------------------------------------------


@pytest.mark.parametrize("change", ["scatter_add", "scatter_sub", "scatter_max", "scatter_min"])
def test_scatters_by_the_places_of_a_row(mapped, change):
    start = np.arange(4, dtype=np.float32)
    v, w = var(start), var(start)

    def updated(variable, r):
        getattr(variable, change)(tf.IndexedSlices(tf.cast(r * r, tf.float32), r))
        return tf.size(r)

    assert mapped(lambda r: updated(v, r), PLACES, fallback="error").numpy().tolist() == LENGTHS
    for r in rows_of(PLACES):
        updated(w, r)
    np.testing.assert_allclose(v, w)


def test_scatters_of_rows_of_vectors():
    v, w = var(tf.zeros([4, 2])), var(tf.zeros([4, 2]))

    def updated(variable, r):
        updates = tf.stack([tf.cast(r, tf.float32), tf.ones_like(r, tf.float32)], -1)
        variable.scatter_add(tf.IndexedSlices(updates, r))
        variable.scatter_nd_add(r[:, None], 2 * updates)
        return tf.size(r)

    strict_map(lambda r: updated(v, r), PLACES)
    for r in rows_of(PLACES):
        updated(w, r)
    np.testing.assert_allclose(v, w)


def test_a_scatter_of_rows_without_elements_or_without_rows():
    v = var(tf.ones([4]))

    def body(r):
        v.scatter_add(tf.IndexedSlices(tf.ones_like(r, tf.float32), r))
        return tf.size(r)

    strict_map(body, PLACES[:0])
    strict_map(body, PLACES[2:3])
    np.testing.assert_allclose(v, [1, 1, 1, 1])


# -- Random numbers --------------------------------------------------------------------------------


def test_a_generator_draws_as_many_as_the_row_has(mapped):
    a, b = (tf.random.Generator.from_seed(7) for _ in range(2))

    def drawn(generator, r):
        first = generator.normal(tf.shape(r))
        return r + first, generator.uniform([]), generator.uniform(tf.shape(r), 0, 9, tf.int32)

    found = mapped(lambda r: drawn(a, r), ROWS, fallback="error")
    want = [drawn(b, r) for r in rows_of(ROWS)]
    for column, wanted in zip(found, zip(*want)):
        pairwise(np.testing.assert_allclose, as_lists(column), wanted, rtol=1e-5)
    np.testing.assert_array_equal(a.state, b.state)


def test_a_shuffled_row_has_its_elements(mapped):
    found = mapped(tf.random.shuffle, ROWS, fallback="error")
    assert [sorted(r) for r in found.to_list()] == ROWS.to_list()


@pytest.mark.filterwarnings("ignore::tf_pfor.FallbackWarning")  # its kernel takes one at a time
def test_a_row_is_shuffled_by_its_seed(mapped):
    body = lambda r: tf.random.experimental.stateless_shuffle(r, [3, tf.size(r)])
    found = mapped(body, ROWS)
    assert found.to_list() == [body(r).numpy().tolist() for r in rows_of(ROWS)]


# -- State in maps over variable-length rows -------------------------------------------------------


def test_an_inner_map_over_a_row_draws_as_loops_do():
    a, b = (tf.random.Generator.from_seed(3) for _ in range(2))

    found = strict_map(lambda r: tf_pfor.vectorized_map(lambda e: e + a.normal([2]), r), ROWS)
    want = [[(e + b.normal([2])).numpy().tolist() for e in r] for r in rows_of(ROWS)]
    pairwise(np.testing.assert_allclose, found.to_list(), want, rtol=1e-5)
    np.testing.assert_array_equal(a.state, b.state)


def test_an_inner_map_over_a_row_scatters_and_assigns():
    v, w = var(tf.zeros([4])), var(1.0)

    def body(r):
        def inner(e):
            v.scatter_add(tf.IndexedSlices(1.0, e))
            return w.assign(0.5 * w + tf.cast(e, tf.float32))

        return tf.reduce_sum(tf_pfor.vectorized_map(inner, r))

    found = tf_pfor.vectorized_map(body, PLACES)
    state, want = 1.0, []
    for r in PLACES.to_list():
        total = 0.0
        for e in r:
            state = 0.5 * state + e
            total += state
        want.append(total)
    np.testing.assert_allclose(found, want)
    np.testing.assert_allclose(w, state)
    np.testing.assert_allclose(v, np.bincount(PLACES.values, minlength=4))
