"""Maps in maps of bodies that no outer map can convert twice: one map over the pairs."""

import numpy as np
import pytest
import tensorflow as tf

import tf_pfor
from tests.cases import grid
from tests.comparisons import gradient_of, in_threads, pairwise, strict_map, value_and_gradient
from tests.container_programs import D
from tests.core.test_late_gradients import W, of_a_variable, of_results

RNG = np.random.default_rng(0)

LEAVES = {
    "plain": lambda s: tf.tanh(tf.linalg.matvec(W, s)),
    "custom gradient": of_results,
    "custom gradient of a variable": of_a_variable,
}


def of_pair(leaf):
    """Pushes in some trips, in some rows only; then reads what is there."""

    def one(k, x, shared):
        empty = tf.raw_ops.EmptyTensorList(element_shape=[3], max_num_elements=-1, element_dtype=D)

        def body(i, q, s):
            pushed = lambda: tf.raw_ops.TensorListPushBack(input_handle=q, tensor=leaf(s))
            q = tf.cond(s[0] > 0, pushed, lambda: q)
            return i + 1, q, leaf(s) * 1.1 + tf.sin(shared) * 0.3

        _, q, s = tf.while_loop(lambda i, *_: i < k, body, (0, empty, x))
        count = tf.raw_ops.TensorListLength(input_handle=q)

        def add(j, z):
            item = tf.raw_ops.TensorListGetItem(
                input_handle=q, index=j, element_shape=[3], element_dtype=D
            )
            item.set_shape([3])
            return j + 1, z * 0.5 + item

        z = tf.while_loop(lambda j, _: j < count, add, (0, s))[1]
        return tf.reduce_sum(z * [1.0, 2.0, 3.0]) + tf.cast(count, D)

    return one


def in_two_maps(one, k, x, shared):
    row = lambda r: strict_map(lambda q: one(q[0], q[1], r[2]), (r[0], r[1]))
    return strict_map(row, (k, x, shared))


def one_by_one(one, k, x, shared):
    found = [one(k[i, j], x[i, j], shared[i]) for i, j in np.ndindex(*k.shape)]
    return tf.reshape(tf.stack(found) if found else tf.zeros([0], D), k.shape)


def gradients(run, one, k, x, shared):
    y, found = value_and_gradient(
        lambda: run(one, k, x, shared), [x, shared, W], unconnected_gradients="zero"
    )
    return [y, *map(tf.convert_to_tensor, found)]


def data(n, m):
    k = tf.constant(RNG.integers(0, 4, [n, m]), tf.int32)
    return k, tf.constant(RNG.normal(size=[n, m, 3])), tf.constant(RNG.normal(size=[n, 3]))


UNKNOWN = [
    tf.TensorSpec([None, None], tf.int32),
    tf.TensorSpec([None, None, 3], D),
    tf.TensorSpec([None, 3], D),
]


@pytest.mark.parametrize("known", [True, False], ids=["known", "unknown"])
@pytest.mark.parametrize("leaf", LEAVES)
def test_a_tape_around(leaf, known):
    one = of_pair(LEAVES[leaf])
    options = {} if known else {"input_signature": UNKNOWN}
    run = tf.function(lambda *d: gradients(in_two_maps, one, *d), autograph=False, **options)
    for shape in [(3, 4), (1, 1), (0, 3), (2, 0), (1, 5)][: 2 if known else None]:
        given = data(*shape)
        for f, e in zip(run(*given), gradients(one_by_one, one, *given), strict=True):
            assert f.shape == e.shape
            np.testing.assert_allclose(f, e, rtol=1e-9, atol=1e-10)


def test_three_maps():
    one, given = of_pair(tf.tanh), data(4, 3)
    expected = tf.reshape(one_by_one(one, *given), [2, 2, 3])
    given = [tf.reshape(x, [2, 2, *x.shape[1:]]) for x in given]
    found = strict_map(lambda rows: in_two_maps(one, *rows), given)
    np.testing.assert_allclose(found, expected, rtol=1e-12)


def test_the_numbers_of_both_maps():
    one = of_pair(tf.tanh)

    def of_numbers(i, j):
        x = tf.cast(tf.stack([i, j, i - j]), D) * 0.3
        return one(j % 4, x, tf.ones([3], D) * tf.cast(j, D))

    found = tf_pfor.pfor(lambda i: tf_pfor.pfor(lambda j: of_numbers(i, j), 5), 4)
    expected = [[of_numbers(tf.constant(i), tf.constant(j)) for j in range(5)] for i in range(4)]
    np.testing.assert_allclose(found, expected, rtol=1e-12)


def test_out_axes_and_shared_arguments():
    one, (k, x, shared) = of_pair(tf.tanh), data(3, 4)
    inner = tf_pfor.vmap(one, in_axes=(0, 0, None), fallback="error")
    found = tf_pfor.vmap(inner, out_axes=1, fallback="error")(k, x, shared)
    np.testing.assert_allclose(tf.transpose(found), one_by_one(one, k, x, shared), rtol=1e-12)


def test_the_loops_of_the_pairs_are_all_that_is_read():
    one = of_pair(tf.tanh)
    concrete = tf.function(lambda *d: in_two_maps(one, *d), autograph=False)
    graph = concrete.get_concrete_function(*UNKNOWN).graph
    loops = [op for op in graph.get_operations() if op.type in ("StatelessWhile", "While")]
    assert len([op for op in loops if any(t.consumers() for t in op.outputs)]) == 2


def test_reports_say_so():
    one = of_pair(tf.tanh)
    report = tf_pfor.explain(
        lambda r: strict_map(lambda q: one(q[0], q[1], r[2]), (r[0], r[1])), data(3, 4)
    )
    assert any("one over all pairs of iterations" in r.reason for r in report.records)


def test_a_gradient_in_the_outer_body_is_looped():
    """It reads more of the inner map than its results: no pairs."""
    one, given = of_pair(tf.tanh), data(3, 4)

    def row(k, x, shared):
        return gradient_of(
            lambda: tf_pfor.vectorized_map(lambda q: one(q[0], q[1], shared), (k, x)), x
        )

    with pytest.warns(tf_pfor.FallbackWarning, match="StatelessWhile .* in a sequential loop"):
        found = tf_pfor.vectorized_map(lambda r: row(*r), given)
    expected = gradients(one_by_one, one, *given)[1]
    np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-10)


def test_in_threads():
    one, given = of_pair(tf.tanh), data(3, 4)
    run = tf.function(lambda *d: in_two_maps(one, *d), autograph=False)
    for found in in_threads(lambda _: run(*given), range(3)):
        np.testing.assert_allclose(found, one_by_one(one, *given), rtol=1e-12)


# -- Doubly ragged rows ----------------------------------------------------------------------------

WAVES = tf.RaggedTensor.from_nested_row_lengths(
    tf.random.stateless_normal([36], [1, 2]), [[2, 0, 3, 1], [3, 5, 9, 6, 1, 12]]
)
two_channels = lambda x: tf.stack([x, x * x])
# All from there on where ``size`` is -1.
window = lambda x, size: tf.slice(two_channels(x), [0, 1], tf.stack([-1, size]))
OF_WAVES = {
    "rfft": lambda x: tf.abs(tf.signal.rfft(x, fft_length=[8])),
    "rfft of channels": lambda x: tf.abs(tf.signal.rfft(two_channels(x), fft_length=[8])),
    "irfft": lambda x: tf.signal.irfft(tf.cast(two_channels(x), tf.complex64), fft_length=[8]),
    "own length": lambda x: tf.abs(tf.signal.rfft(x)),
    "frames": lambda x: tf.signal.frame(two_channels(x), 3, 2, pad_end=True),
    "stft": lambda x: tf.abs(tf.signal.stft(x, 3, 2, pad_end=True)),
    "slice": lambda x: window(x, -1),
    "slice by a number": lambda x: window(x, tf.where(tf.size(x) > 5, -1, tf.size(x) - 1)),
}


@pytest.mark.parametrize("name", OF_WAVES)
def test_doubly_ragged_rows(name):
    found = tf_pfor.vectorized_map(
        lambda rows: tf_pfor.vectorized_map(OF_WAVES[name], rows, warn=False), WAVES, warn=False
    )
    assert found.shape[0] == 4
    for got, rows in zip(found, WAVES, strict=True):
        assert got.shape[0] == rows.shape[0]
        for a, row in zip(got, rows):
            a = a.to_tensor() if isinstance(a, tf.RaggedTensor) else a
            np.testing.assert_allclose(a, OF_WAVES[name](row), rtol=1e-4, atol=1e-5)


def test_slices_that_reach_out_of_ragged_rows_say_so():
    with pytest.raises(tf.errors.InvalidArgumentError, match="reaches out of the tensor"):
        tf_pfor.vectorized_map(lambda x: window(x, 2 - tf.size(x)), WAVES.values)
    with pytest.raises(tf.errors.InvalidArgumentError, match="reaches out of the tensor"):
        tf_pfor.vectorized_map(lambda x: window(x, tf.size(x)), WAVES.values)


def test_elements_of_two_maps_that_differ_in_number_are_an_error():
    others = tf.RaggedTensor.from_row_lengths(WAVES.values, [2, 1, 2, 1])

    def summed(a, b):
        return tf_pfor.vectorized_map(lambda p: tf.reduce_sum(p[0]) + tf.reduce_sum(p[1]), (a, b))

    with pytest.raises(tf.errors.InvalidArgumentError):
        tf_pfor.vectorized_map(lambda both: summed(*both), (WAVES, others), warn=False)


def test_a_branch_of_a_ragged_inner_map_is_differentiated_twice():
    """TensorFlow differentiates a copy of a branch: gradients must not read the first one."""
    table = tf.Variable(tf.reshape(tf.range(18.0), [6, 3]) / 10)
    documents = tf.ragged.constant([[[1, 2], [3]], [], [[4], [5, 1, 2]]])

    def sentence(s):
        return tf.cond(
            tf.size(s) > 1, lambda: tf.reduce_max(tf.gather(table, s), 0), lambda: tf.zeros([3])
        )

    def gradient(run, d):
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(tf.reduce_sum(run(sentence, d), 0) ** 2)
        return tf.convert_to_tensor(tape.gradient(loss, table))

    def inner_loop(fn, d):
        return tf.stack([fn(s) for s in d]) if d.shape[0] else tf.zeros([0, 3])

    with tf.GradientTape() as tape:
        found = tf_pfor.vectorized_map(
            lambda d: gradient(tf_pfor.vectorized_map, d), documents, warn=False
        )
        total = tf.reduce_sum(tf.sin(found.to_tensor()))
    slope = tf.convert_to_tensor(tape.gradient(total, table))
    with tf.GradientTape() as tape:
        rows = [gradient(inner_loop, documents[i]) for i in (0, 2)]
        total = tf.add_n([tf.reduce_sum(tf.sin(row)) for row in rows])
    assert np.allclose(found[0], rows[0])
    assert np.allclose(found[2], rows[1])
    assert np.allclose(slope, tf.convert_to_tensor(tape.gradient(total, table)), rtol=1e-5)


@grid(is_variable=[False, True], counts=[[1, 0, 1, 0], [0, 1, 2, 1], [0, 0, 0, 0]])
def test_gradients_of_inner_maps_of_no_rows(counts, is_variable):
    """The gradient of what an inner map shares has its shape, also where no inner row asks."""
    values = [0.3, 0.5, 0.7, 0.9]
    table = tf.Variable(values) if is_variable else tf.constant(values)
    flat, counts = tf.linspace(-1.0, 1.0, 10), tf.constant(counts)

    def with_slope(run, r, k):
        def total(e):
            parts = tf.map_fn(
                lambda q: tf.reduce_sum(tf.sin(q * tf.gather(table, tf.range(e + 2)))), r
            )
            return tf.reduce_sum(parts)

        y, slope = value_and_gradient(
            lambda: tf.reduce_sum(run(total, tf.range(k))), r, unconnected_gradients="zero"
        )
        return y + tf.reduce_sum(tf.sin(slope))

    by_loop = lambda fn, rows: tf.map_fn(fn, rows, fn_output_signature=tf.float32)

    def result(run):
        with tf.GradientTape() as tape:
            tape.watch(flat)
            rows = tf.RaggedTensor.from_row_lengths(tf.identity(flat), [3, 1, 4, 2])
            found = run(rows)
            total = tf.reduce_sum(found * tf.range(1.0, 5.0))
        slope = tape.gradient(total, flat, unconnected_gradients="zero")
        return found, tf.convert_to_tensor(slope)

    inner = lambda fn, rows: tf_pfor.vectorized_map(fn, rows, warn=False)
    found = result(
        lambda rows: tf_pfor.vectorized_map(
            lambda e: with_slope(inner, *e), (rows, counts), warn=False
        )
    )
    wanted = result(lambda r: tf.stack([with_slope(by_loop, r[i], counts[i]) for i in range(4)]))
    pairwise(np.testing.assert_allclose, found, wanted, rtol=1e-4, atol=1e-5)


def test_a_gradient_of_products_in_an_inner_map():
    """Slices with no new axis keep all axes, also axes of size one."""
    documents = tf.ragged.constant([[[1.0, 2.0], [3.0]], [[4.0, 5.0, 6.0]]])

    def slope(run, d):
        with tf.GradientTape() as tape:
            tape.watch(d.flat_values)
            parts = run(lambda r: tf.reduce_sum(tf.sin(r[:, None] @ r[None])), d)
            total = tf.reduce_sum(parts)
        return tape.gradient(total, d.flat_values)

    inner = tf_pfor.vectorized_map
    found = inner(lambda d: slope(inner, d), documents, warn=False)
    for one, d in zip(found, documents, strict=True):
        want = slope(lambda f, rows: tf.stack([f(r) for r in rows]), d)
        np.testing.assert_allclose(one, want, rtol=1e-5)


def test_text_that_is_split_twice():
    """A region of which nobody reads a result does not run."""

    def sums(t):
        parts = tf.strings.split(tf.strings.split(t, ";"), ",")
        return tf.reduce_sum(tf.ragged.map_flat_values(tf.strings.to_number, parts), 1)

    text = tf.constant([["1,2;3", "4"], ["5;6,7", "8"]])
    found = tf_pfor.vmap(tf_pfor.vmap(sums, warn=False), warn=False)(text)
    assert found.to_list() == [[[3.0, 3.0], [4.0]], [[5.0, 13.0], [8.0]]]
