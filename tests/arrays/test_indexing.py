"""Reading by the number of the iteration: no gather, and the same values and errors as a loop."""

import numpy as np
import pytest
import tensorflow as tf

import tf_pfor
from tests.comparisons import gradient_of, strict_map
from tests.devices import HAS_GPU, of_cpus
from tests.harness import LOOP_OPS
from tests.ways import errors_of, table_of


def _run(fn, n, *arrays, unknown=False):
    """The result of ``pfor(i -> fn(i, *arrays))`` and the types of the ops of its graph."""
    specs = [tf.TensorSpec([None, *x.shape[1:]] if unknown else x.shape, x.dtype) for x in arrays]
    if unknown:
        specs.append(tf.TensorSpec([], tf.int32))

    def build(*given):
        xs = given[: len(arrays)]
        count = given[-1] if unknown else n
        return tf_pfor.pfor(lambda i: fn(i, *xs), count, fallback_to_while_loop=False)

    concrete = tf.function(build, autograph=False).get_concrete_function(*specs)
    types = {op.type for op in concrete.graph.get_operations()}
    assert not types & set(LOOP_OPS)
    given = [tf.constant(x) for x in arrays]
    return concrete(*given, *([tf.constant(n)] if unknown else [])), types


def _check(fn, n, *arrays, unknown=False):
    """Compares with a Python loop; returns the types of the ops."""
    found, types = _run(fn, n, *arrays, unknown=unknown)
    expected = np.stack([fn(tf.constant(i), *[tf.constant(x) for x in arrays]) for i in range(n)])
    np.testing.assert_allclose(found, expected)
    return types


def _array(*shape):
    return np.arange(np.prod(shape), dtype=np.float32).reshape(shape)


READS = {
    "x[i]": lambda i, x: x[i],
    "x[i, ...]": lambda i, x: x[i, ...],
    "tf.gather(x, i)": lambda i, x: tf.gather(x, i),
    "tf.gather(x, int64)": lambda i, x: tf.gather(x, tf.cast(i, tf.int64)),
    "x[tf.identity(i)]": lambda i, x: x[tf.identity(i)],
}
PLAIN = {"Const", "Identity", "Placeholder", "Pack", "AddV2", "Cast", "Range", "NoOp"}


@pytest.mark.parametrize("read", READS)
def test_all_rows_are_the_tensor_itself(read):
    assert _check(READS[read], 5, _array(5, 3)) <= PLAIN


@pytest.mark.parametrize("read", READS)
def test_first_rows_are_a_slice(read):
    types = _check(READS[read], 3, _array(5, 3))
    assert types <= PLAIN | {"Slice"}
    assert "Slice" in types


@pytest.mark.parametrize("read", READS)
@pytest.mark.parametrize("n", [0, 2, 5])
def test_length_known_only_when_running(read, n):
    found, types = _run(READS[read], n, _array(5, 3), unknown=True)
    assert "GatherV2" not in types
    np.testing.assert_array_equal(found, _array(5, 3)[:n])


@pytest.mark.parametrize("read", READS)
@pytest.mark.parametrize("unknown", [False, True])
def test_too_many_iterations_are_an_error(read, unknown):
    if HAS_GPU and "gather" in read:
        pytest.skip("tf.gather makes zeros of what is out of range there")
    with pytest.raises((tf.errors.InvalidArgumentError, ValueError)):
        _run(READS[read], 6, _array(5, 3), unknown=unknown)


NOT_GATHERED = {
    "neighbours": (lambda i, x: x[i + 1] - x[i], 4, _array(5, 3)),
    "another axis": (lambda i, x: x[:, i], 5, _array(4, 5, 2)),
    "an axis between": (lambda i, x: x[1:3, i, tf.newaxis, 0], 3, _array(4, 5, 2)),
    "gathered": (lambda i, x: tf.gather(x, i, axis=1), 5, _array(4, 5, 2)),
    "turned": (lambda i, x: x[i][::-1], 4, _array(4, 5, 2)),
}
PLACES = np.array([3, -1, 0, 2, 1], np.int32)
OTHER_READS = {
    "two indices": (lambda i, x, j: x[i, j[i]], 5, _array(5, 4, 2), PLACES),
    "two indices, from the end": (lambda i, x, j: x[j[i], i - 4], 4, _array(5, 4, 2), PLACES),
    "the same index twice": (lambda i, x: x[i, i], 4, _array(5, 4, 2)),
    "from the end": (lambda i, x: x[-i], 4, _array(5, 3)),
    "before the end": (lambda i, x: x[i - 5], 5, _array(5, 3)),
    "from the last": (lambda i, x: x[-1 - i, 0], 5, _array(5, 3)),
    "window": (lambda i, x: x[i : i + 3], 5, _array(7, 2)),
    "window with a stride": (lambda i, x: x[i + 1 : i + 5 : 2, 1], 3, _array(7, 2)),
    "sized window": (lambda i, x: tf.slice(x, [i, 0], [3, 2]), 5, _array(7, 2)),
    "window before the end": (lambda i, x: x[i - 7 : i - 5], 5, _array(7, 2)),
}


@pytest.mark.parametrize("name", [*NOT_GATHERED, *OTHER_READS])
def test_other_reads(name):
    types = _check(*{**NOT_GATHERED, **OTHER_READS}[name])
    assert name not in NOT_GATHERED or "GatherV2" not in types


def test_window_beyond_the_end_is_an_error():
    """The rows of a loop would differ in shape."""
    with pytest.raises(tf.errors.InvalidArgumentError, match="reaches past the edge"):
        _run(lambda i, x: x[i : i + 3], 6, _array(7, 2))


X = tf.constant(_array(7, 2))
test_table_of_ragged_slices = table_of(
    {"from": lambda i: X[i:], "to": lambda i: X[:i], "between": lambda i: X[i : 2 * i]},
    tf.range(3), ways=["eager"],
)  # fmt: skip


OF_CPUS = {
    **{
        f"segments {bad}": lambda i, bad=bad: tf.math.unsorted_segment_sum(
            tf.constant(_array(2, 3))[i], tf.constant(bad)[i], 2)
        for bad in ([[0, 2, 1], [0, 0, 0]], [[0, 0, 0], [2, 0, 0]])
    },
    **{
        f"sparse segments {bad}": lambda i, bad=bad: tf.sparse.segment_sum(
            tf.constant(_array(2, 3, 1))[i], tf.constant(bad)[i], [0, 1])
        for bad in ([[0, 3], [0, 0]], [[0, 0], [-1, 0]])
    },
}  # fmt: skip
# Numbers do not leak into the next row.
test_segments_beyond_the_end = of_cpus(errors_of(OF_CPUS, tf.range(2)))
test_a_broken_permutation_is_an_error = errors_of({
    str(bad): (tf.math.invert_permutation, tf.constant(bad))
    for bad in ([[0, 2], [0, 1]], [[0, 1], [-1, 0]], [[0, 0], [1, 1]], [[0, 2], [1, -1]])
})  # fmt: skip


@of_cpus
def test_segment_ids_do_not_leak_into_the_next_row():
    data, ids = _array(2, 3), np.array([[0, -1, 1], [-1, 0, -1]], np.int32)
    _check(lambda i, data, ids: tf.math.unsorted_segment_sum(data[i], ids[i], 2), 2, data, ids)


def test_gradient_of_a_read_is_not_a_scatter():
    x = tf.constant(_array(5, 3))

    @tf.function(autograph=False)
    def run(x):
        return gradient_of(lambda: tf_pfor.pfor(lambda i: tf.square(x[i]), 5), x)

    np.testing.assert_allclose(run(x), 2 * x)
    types = {op.type for op in run.get_concrete_function(x).graph.get_operations()}
    assert not {t for t in types if "Scatter" in t or "Segment" in t or "Gather" in t}


def test_gradient_inside_the_body():
    x = _array(5, 3)

    def fn(i, x):
        return tf.convert_to_tensor(
            gradient_of(lambda: tf.reduce_sum(tf.square(x[i])) + x[0, i % 3], x)
        )

    _check(fn, 5, x)


def test_a_batch_of_one_costs_nothing():
    """x[tf.newaxis] -> layer -> [0] is the layer on all rows."""
    w = tf.constant(_array(3, 4))

    @tf.function(autograph=False)
    def run(x):
        return tf_pfor.vectorized_map(lambda r: tf.nn.relu(r[tf.newaxis] @ w)[0], x)

    types = [op.type for op in run.get_concrete_function(tf.zeros([5, 3])).graph.get_operations()]
    assert sorted(t for t in types if t not in PLAIN) == ["MatMul", "Relu"]


def _gradient_of_slice(x, begin, size):
    return gradient_of(lambda: tf.reduce_sum(tf.slice(x, begin, size) ** 3), x)


@pytest.mark.parametrize("n", [0, 1, 4])
@pytest.mark.parametrize("begins", ["one", "of each row"])
def test_gradients_of_slices_under_jit_compile(begins, n):
    """Assignments are an op of XLA's own there, XlaDynamicUpdateSlice."""
    x = np.random.default_rng(0).normal(size=[n, 5, 3]).astype(np.float32)
    begin = np.array([[0, 1], [3, 0], [1, 1], [2, 0]], np.int32)[:n]

    def one(row):
        x, b = row
        return _gradient_of_slice(x, b if begins == "of each row" else [2, 1], [2, 2])

    expected = [one((tf.constant(a), tf.constant(b))) for a, b in zip(x, begin)]
    found = tf.function(tf_pfor.vectorized_map, jit_compile=True)(one, (x, begin))
    np.testing.assert_allclose(found, np.array(expected).reshape([n, 5, 3]), 1e-6)


def test_derivatives_of_slices_under_jit_compile():
    def f(x):  # the gradient of a concat slices
        return tf.reduce_sum(tf.concat([x**3, tf.sin(x)], 0) * tf.concat([x, x[::-1]], 0))

    x = np.random.default_rng(1).normal(size=[4, 5])
    expected = [tf_pfor.hessian(f)(tf.constant(row)) for row in x]
    second = tf_pfor.vmap(tf_pfor.jacrev(tf_pfor.jacrev(f)))
    found = tf.function(second, jit_compile=True)(tf.constant(x))
    np.testing.assert_allclose(found, expected, 1e-9, 1e-9)


@pytest.mark.parametrize("stacked", ["input", "update", "indices"])
def test_xla_dynamic_update_slice(stacked):
    """Slices that reach over the end are moved, as XLA does."""
    rng = np.random.default_rng(2)
    given = {
        "input": rng.normal(size=[3, 4, 5]),
        "update": rng.normal(size=[3, 2, 3]),
        "indices": np.array([[0, 1], [-2, 4], [3, 1]], np.int64),
    }
    apply = tf.function(lambda **a: tf.raw_ops.Identity(input=_update_slice(**a)), jit_compile=True)
    inputs = {k: v if k == stacked else v[1] for k, v in given.items()}

    def one(x):
        return _update_slice(**{**inputs, stacked: x})

    rows = [{**inputs, stacked: row} for row in given[stacked]]
    found = tf.function(tf_pfor.vectorized_map, jit_compile=True)(one, given[stacked])
    np.testing.assert_array_equal(found, [apply(**row) for row in rows])


def _update_slice(input, update, indices):
    """TensorFlow has no public function for it: the op of the graph of a gradient."""
    graph = tf.compat.v1.get_default_graph()
    tensors = [tf.convert_to_tensor(t) for t in (input, update, indices)]
    return graph.create_op("XlaDynamicUpdateSlice", tensors, [tensors[0].dtype]).outputs[0]


TABLE = tf.random.stateless_uniform([4, 5, 3], [1, 2])
AT = tf.constant([[0, 2], [1, 1], [2, 0], [2, 2]])
OF_ANY_RANK = {
    "from behind": lambda x, i: tf.gather(x, i, axis=-1),
    "one from behind": lambda x, i: tf.gather(x, i[0], axis=-2),
    "the same from behind": lambda x, i: tf.gather(x, [0, 2, 1], axis=-1),
    "from the front": lambda x, i: tf.gather(x, i, axis=1),
}
test_table_of_any_rank = table_of(
    OF_ANY_RANK, TABLE, AT, ways=["unknown"], tolerance=(0.0, 0.0),
    specs=(tf.TensorSpec(None), tf.TensorSpec([None, None], tf.int32)),
)  # fmt: skip
test_table_of_vectors_of_unknown_length = table_of(
    {"gather_nd": tf.gather_nd}, TABLE, AT, ways=["unknown sizes"], tolerance=(0.0, 0.0)
)


@pytest.mark.parametrize("name", OF_ANY_RANK)
def test_what_all_rows_index_may_have_any_rank(name):
    @tf.function(input_signature=[tf.TensorSpec(None), tf.TensorSpec([None, None], tf.int32)])
    def run(x, places):
        return strict_map(lambda at: OF_ANY_RANK[name](x, at), places)

    rows = [OF_ANY_RANK[name](TABLE[0], at) for at in AT]
    np.testing.assert_array_equal(run(TABLE[0], AT), tf.stack(rows))


def test_segments_whose_number_the_body_declares():
    """The number is known before the ids are, and the size of the result too."""
    ids = tf.Variable([0, 0, 1, 2])

    def one(x):
        made = tf.math.segment_sum(x, ids.read_value())
        made.set_shape([3, 2])
        return made

    x = tf.reshape(tf.range(16.0), [2, 4, 2])
    run = tf.function(tf_pfor.vmap(one), autograph=False)
    assert run.get_concrete_function(x).structured_outputs.shape == [2, 3, 2]
    np.testing.assert_array_equal(run(x), tf.stack([one(row) for row in x]))
