"""docs/pfor_from_scratch.py: its examples hold, and it gives what the package and a loop give."""

import importlib.util
import pathlib

import numpy as np
import pytest
import tensorflow as tf

import tf_pfor
from tests.cases import grid

PAGE = pathlib.Path(__file__).resolve().parents[2] / "docs" / "pfor_from_scratch.py"


@pytest.fixture(scope="module")
def page():
    """The page as a module: its examples are checked as it is loaded."""
    spec = importlib.util.spec_from_file_location("pfor_from_scratch", PAGE)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


_normal = lambda *shape: tf.random.stateless_normal(shape, seed=[len(shape), sum(shape)])
W = tf.Variable(_normal(3, 2))
TABLE = _normal(6, 2)
IMAGE = tf.reshape(tf.range(12.0), [4, 3])


def _loss_gradient(x):
    with tf.GradientTape() as tape:
        tape.watch(x)
        hidden = tf.nn.softmax(tf.linalg.matvec(W, x, transpose_a=True) * 2.0)
        loss = tf.reduce_mean(tf.sigmoid(hidden) ** 2) + tf.reduce_max(x)
    return tape.gradient(loss, {"x": x, "w": W})


def _row_of_each(elems):
    table, index = elems
    return tf.gather(table, index), tf.gather(table, [0, 2], axis=1), tf.gather(TABLE, index)


# What is mapped over what, and the op types that are looped.
CASES = {
    "dense": (lambda x: tf.tanh(x @ W + 0.5), (4, 3), ()),
    "transposed": (lambda x: tf.matmul(x, W, transpose_a=True), (3, 4), ()),
    "shared first": (lambda x: tf.matmul(IMAGE, x), (3, 2), ()),
    "two stacked": (lambda x: tf.matmul(x, x, transpose_b=True), (4, 3), ()),
    "ranks": (lambda x: IMAGE - x * tf.ones([2, 1, 1]), (3,), ()),
    "axes": (lambda x: (tf.reduce_sum(x, [0, -1]), tf.reduce_max(x, 1, True)), (2, 3, 4), ()),
    "scalars": (lambda x: tf.reduce_sum(x) * tf.ones([2]), (), ()),
    "order": (
        lambda x: tf.reshape(tf.transpose(x, [2, 0, 1])[..., None], [3, -1]),
        (2, 2, 3),
        None,
    ),
    "moved": (lambda x: tf.transpose(tf.expand_dims(tf.tile(x, [2, 1]), 0)), (2, 3), ()),
    "unused": (lambda x: (tf.constant([1, 2]), W + 0.0), (2,), ()),
    "gradient": (_loss_gradient, (3,), ()),
    "no rule": (lambda x: tf.sort(x) + tf.math.cumsum(x, reverse=True), (3,), None),
}


@grid(name=CASES, n=[1, 3])
def test_it_gives_what_the_package_and_a_loop_give(page, name, n):
    fn, inner, looped = CASES[name]
    _check(page, fn, _normal(n, *inner), looped)


@pytest.mark.parametrize("n", [1, 4])
def test_elements_in_a_structure(page, n):
    elems = (_normal(n, 5, 3), tf.constant([4, 0, 2, 3][:n]))
    _check(page, _row_of_each, elems, ())


def _check(page, fn, elems, looped):
    report = []
    found = page.vectorized_map(fn, elems, report)
    n = len(tf.nest.flatten(elems)[0])
    rows = [fn(tf.nest.map_structure(lambda t: t[i], elems)) for i in range(n)]  # noqa: B023
    expected = tf.nest.map_structure(lambda *parts: tf.stack(parts), *rows)
    package = tf_pfor.vectorized_map(fn, elems, fallback_to_while_loop=looped is None)
    compiled = tf.function(lambda e: page.vectorized_map(fn, e), jit_compile=looped == ())(elems)
    for other in (expected, package, compiled):
        tf.nest.assert_same_structure(found, other)
        for a, b in zip(tf.nest.flatten(found), tf.nest.flatten(other), strict=True):
            assert a.dtype == b.dtype
            np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)
    assert any(outcome == "looped" for _, outcome in report) == (looped is None)


def test_no_rows(page):
    found = page.vectorized_map(lambda x: (tf.tanh(x @ W), tf.ones([2])), tf.zeros([0, 4, 3]))
    assert [t.shape for t in found] == [[0, 4, 2], [0, 2]]


def test_a_shared_weight_is_one_product(page):
    def count(fn, *inner):
        spec = tf.TensorSpec([8, *inner])
        graph = tf.function(lambda x: page.vectorized_map(fn, x)).get_concrete_function(spec).graph
        return [op.type for op in graph.get_operations() if "MatMul" in op.type]

    assert count(lambda x: x @ W, 4, 3) == ["MatMul"]
    assert count(lambda x: page.vectorized_map(lambda y: y @ W, x), 5, 4, 3) == ["MatMul"]
    assert count(lambda x: x @ x, 3, 3) == ["BatchMatMulV2"]


def test_outcomes(page):
    report = []
    page.vectorized_map(lambda x: tf.gather(x, [0, 1]) * tf.exp(W[0, 0]), _normal(3, 4), report)
    assert {"GatherV2": "tiled", "Exp": "kept", "Mul": "vectorized"}.items() <= dict(report).items()


def test_maps_in_maps(page):
    def outer(vectorized_map):
        def products(x):
            return vectorized_map(lambda a: vectorized_map(lambda b: _loss_gradient(a * b), x), x)

        return vectorized_map(products, _normal(2, 4, 3))

    tf.nest.map_structure(
        lambda a, b: tf.debugging.assert_near(a, b, rtol=1e-5, atol=1e-6),
        outer(page.vectorized_map),
        outer(tf_pfor.vectorized_map),
    )


def test_results_can_be_differentiated(page):
    def derivative(vectorized_map):
        x = _normal(3, 4, 3)
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = vectorized_map(lambda e: tf.reduce_sum(tf.tanh(e @ W) ** 2, axis=0), x)
        return tape.gradient(y, x)

    found, expected = derivative(page.vectorized_map), derivative(tf_pfor.vectorized_map)
    tf.debugging.assert_near(found, expected)


def test_what_is_beyond_the_page_is_refused(page):
    counter = tf.Variable(0.0)
    for fn in (
        lambda x: counter.assign_add(x[0]),
        lambda x: tf.random.uniform([]) + x,
        lambda x: tf.cond(x[0] > 0, lambda: x, lambda: -x),
        lambda x: tf.boolean_mask(x, x > 0),
        lambda x: tf.grad_pass_through(tf.round)(x),
    ):
        with pytest.raises(NotImplementedError, match="beyond this page"):
            page.vectorized_map(fn, _normal(3, 2))
    assert counter.numpy() == 0.0


def test_a_wrong_rule_is_found(page, monkeypatch):
    not_shifted = lambda call, x, axes: call.rebuild(x.tensor, axes.tensor)
    monkeypatch.setitem(page.RULES, "Sum", {page.ANY: not_shifted})
    with pytest.raises(AssertionError, match="Sum"):
        page.vectorized_map(tf.reduce_sum, _normal(3, 2))


def test_it_stands_alone_on_one_page():
    text = PAGE.read_text()
    assert len(text.splitlines()) <= 300
    assert "import tf_pfor" not in text
    assert "tensorflow.python" not in text
