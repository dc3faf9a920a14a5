"""vmap: axes, nests, sizes, chunks, errors."""

import collections
import dataclasses

import numpy as np
import pytest
import tensorflow as tf

from tests.comparisons import gradient_of, pairwise
from tf_pfor.api.vmap import vmap
from tf_pfor.core.errors import ArgumentError, ArgumentTypeError


def _close(found, expected):
    np.testing.assert_allclose(np.asarray(found), np.asarray(expected), rtol=1e-6)


def test_axes_in_and_out():
    x = tf.random.normal([3, 4])
    row = lambda v: tf.cumsum(v)
    _close(vmap(row, in_axes=1, out_axes=1)(x), np.cumsum(x, 0))
    _close(vmap(row, in_axes=-1, out_axes=-1)(x), np.cumsum(x, 0))
    _close(vmap(row)(x), np.cumsum(x, 1))


def test_prefix_and_keywords():
    fn = lambda tree, *, k: {"sum": tree["a"] + tree["b"][0] + k, "b": tree["b"][1]}
    mapped = vmap(fn, in_axes=({"a": 0, "b": None},), out_axes={"sum": 0, "b": None})
    a, k = tf.range(3.0), tf.constant([10.0, 20.0, 30.0])
    out = mapped({"a": a, "b": (tf.constant(1.0), tf.constant(5.0))}, k=k)
    _close(out["sum"], a + 1 + k)
    assert out["b"].shape == []


def test_outer_product_by_nesting():
    x, y = tf.range(3.0), tf.range(2.0)
    outer = vmap(vmap(lambda a, b: a * b, (0, None)), (None, 0), 1)
    _close(outer(x, y), np.outer(x, y))
    graph = tf.function(outer).get_concrete_function(x, y).graph
    assert "BroadcastTo" not in [op.type for op in graph.get_operations()]


@pytest.mark.parametrize("chunk", [1, 2, 3, 5, 8])
def test_chunks(chunk):
    x = tf.random.normal([5, 2])
    _close(vmap(lambda v: v * 2, chunk_size=chunk)(x), x * 2)
    _close(vmap(lambda v: v * 2, chunk_size=chunk)(x[:, 0]), x[:, 0] * 2)  # scalars


def test_decorator_and_methods():
    @vmap(in_axes=1)
    def double(v):
        """Doubles."""
        return v * 2

    assert double.__doc__ == "Doubles."
    _close(double(tf.ones([2, 3])), np.full([3, 2], 2.0))

    class Model(tf.Module):
        def __init__(self):
            self.w = tf.Variable(3.0)

        def apply(self, v):
            return self.w * v

    model = Model()
    mapped = vmap(model.apply)
    _close(mapped(tf.range(3.0)), [0, 3, 6])
    model.w.assign(1.0)
    _close(mapped(tf.range(3.0)), [0, 1, 2])


def test_keras_layer():
    layer = tf.keras.layers.Dense(3)
    x = tf.random.normal([5, 1, 2])
    _close(vmap(layer)(x)[:, 0], layer(x[:, 0]))


def test_keras_models():
    model = tf.keras.Sequential(
        [tf.keras.layers.Dense(4, "relu"), tf.keras.layers.Dropout(0.5), tf.keras.layers.Dense(2)]
    )
    x = tf.random.stateless_normal([5, 6, 3], [1, 2])
    found = vmap(model, fallback="error")(x)  # builds it
    _close(found, tf.reshape(model(tf.reshape(x, [30, 3])), [5, 6, 2]))
    _close(vmap(model.call)(x), found)
    _close(vmap(model)(x, training=False), found)
    assert np.any(vmap(model)(x, training=True).numpy() != found.numpy())
    inputs = tf.keras.Input([3])
    functional = tf.keras.Model(inputs, {"out": model(inputs)})
    _close(vmap(functional)(x)["out"], found)


def test_modules_and_functions():
    class Scale(tf.Module):
        def __init__(self):
            super().__init__()
            self.w = tf.Variable(2.0)

        @tf.function
        def __call__(self, v):
            return self.w * v

        @vmap(in_axes=(None, -1))
        def columns(self, v):
            return self(v)

    scale = Scale()
    _close(vmap(scale)(tf.range(3.0)), [0, 2, 4])
    _close(scale.columns(tf.ones([2, 3])), np.full([3, 2], 2.0))
    assert vmap(scale).__name__ == "vmap_Scale"


def test_axis_size_and_constants_of_the_trace():
    _close(vmap(lambda x: x * 2, in_axes=None, axis_size=3)(tf.constant(2.0)), [4, 4, 4])
    fn = vmap(lambda x, mode: x if mode == "same" else -x, in_axes=(0, None))
    _close(fn(tf.range(2.0), "same"), [0, 1])
    _close(fn(tf.range(2.0), "other"), [0, -1])


def test_traces_once_for_each_signature():
    calls = []

    def fn(x):
        calls.append(1)
        return x + 1

    mapped = vmap(fn)
    for _ in range(3):
        mapped(tf.zeros([4]))
    assert len(calls) == 1


def test_unknown_sizes():
    mapped = tf.function(
        vmap(tf.reduce_sum, in_axes=1), input_signature=[tf.TensorSpec([None, None], tf.float32)]
    )
    _close(mapped(tf.ones([2, 5])), np.full([5], 2.0))


def test_jit_compile():
    x = tf.random.normal([4, 3])
    _close(vmap(lambda v: tf.tanh(v) * 2, jit_compile=True)(x), np.tanh(x) * 2)


@pytest.mark.parametrize(
    ("make", "error", "text"),
    [
        (lambda: vmap(3), ArgumentTypeError, "expects a function"),
        (lambda: vmap(tf.abs, chunk_size=0), ArgumentError, "chunk_size must be"),
        (lambda: vmap(tf.abs, fallback="never"), ArgumentError, "fallback must be"),
        (lambda: vmap(tf.abs, fallback={"NoSuchOp"}), ArgumentError, "NoSuchOp"),
        (lambda: vmap(tf.abs, fallback=["NoSuchOp", 3]), ArgumentError, "['3', 'NoSuchOp']"),
        (lambda: vmap(tf.abs, randomness="Same"), ArgumentError, "randomness must be"),
        (lambda: vmap(tf.abs, in_axes="0"), ArgumentError, "in_axes must be an int"),
        (lambda: vmap(tf.abs, in_axes=({"a": 1.0},)), ArgumentError, "found 1.0"),
        (lambda: vmap(tf.abs, out_axes=True), ArgumentError, "out_axes must be an int"),
        (lambda: vmap(tf.abs, in_axes=-2)(tf.zeros([3])), ArgumentError, "no axis -2"),
        (lambda: vmap(tf.abs)(x=tf.zeros([])), ArgumentError, "keyword argument x has shape ()"),
        (lambda: vmap(tf.add)(tf.zeros([3]), tf.zeros([2])), ArgumentError, "args[1]: shape (2,)"),
        (lambda: vmap(tf.abs, in_axes=2)(tf.zeros([3])), ArgumentError, "no axis 2"),
        (lambda: vmap(tf.abs, in_axes=(0, 0))(tf.zeros([3])), ArgumentError, "2 entries"),
        (lambda: vmap(tf.abs, in_axes=None)(tf.zeros([3])), ArgumentError, "axis_size"),
        (lambda: vmap(tf.abs, out_axes=None)(tf.zeros([3])), ArgumentError, "out_axes is None"),
        (lambda: vmap(tf.abs, out_axes=3)(tf.zeros([3])), ArgumentError, "axis 3"),
        (lambda: vmap(tf.abs, out_axes=(0, 0))(tf.zeros([3])), ArgumentError, "out_axes is"),
        (lambda: vmap(lambda x, o: x)(tf.zeros([3]), object()), ArgumentTypeError, "args[1]"),
    ],
)
def test_errors(make, error, text):
    with pytest.raises(error) as caught:
        make()
    assert text in str(caught.value)


@pytest.mark.parametrize("is_pair", [False, True])
def test_chunks_of_unknown_batches_under_jit_compile(is_pair):
    """XLA compiles blocks that are not run, and has no empty arrays."""
    k = tf.random.stateless_normal([3, 3, 1, 2], [1, 2])

    def fn(x, y):
        made = tf.nn.conv2d(x[None], k, 1, "SAME")[0]
        return (made, y) if is_pair else tf.reduce_sum(made) * tf.cast(y, tf.float32)

    compiled = tf.function(
        vmap(fn, chunk_size=2),
        jit_compile=True,
        input_signature=[tf.TensorSpec([None, 4, 4, 1]), tf.TensorSpec([None], tf.int32)],
    )
    for n in (0, 1, 2, 5):
        x, y = tf.random.stateless_normal([n, 4, 4, 1], [3, n]), tf.range(n)
        expected = (
            vmap(fn)(x, y) if n else (tf.zeros([0, 4, 4, 2]), y) if is_pair else tf.zeros([0])
        )
        for a, b in zip(tf.nest.flatten(compiled(x, y)), tf.nest.flatten(expected), strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("chunk", [1, 2, 7])
def test_gradients_of_chunks_of_unknown_batches_under_jit_compile(chunk):
    w = tf.constant([1.0, 2.0, 3.0])
    gradients = lambda x, f: gradient_of(lambda: tf.reduce_sum(f(x) ** 2), [x, w])
    fn = lambda x: tf.sin(x * w) / x
    compiled = tf.function(
        lambda x: gradients(x, vmap(fn, chunk_size=chunk)),
        jit_compile=True, input_signature=[tf.TensorSpec([None, 3])], autograph=False,
    )  # fmt: skip
    for n in (0, 1, 2, 5):
        x = tf.random.stateless_uniform([n, 3], [3, n], 1.0, 2.0)
        pairwise(np.testing.assert_allclose, compiled(x), gradients(x, fn), rtol=1e-4, atol=1e-5)


def test_dataclasses_without_a_kept_trace():
    """A local class in the function keeps its trace from being kept; arguments are as always."""

    @dataclasses.dataclass
    class Point:
        x: tf.Tensor

    pair = collections.namedtuple("pair", "a b")

    found = vmap(lambda p: pair(Point(p.x * 2.0), None))(Point(tf.range(3.0)))
    assert isinstance(found.a, Point)
    assert found.a.x.numpy().tolist() == [0.0, 2.0, 4.0]


@pytest.mark.parametrize("x", [
    tf.ragged.constant([[[1.0], []], [[2.0, 3.0]]]).with_values(
        tf.ragged.constant([[1.0], [], [2.0, 3.0]])
    ),
    tf.sparse.from_dense([[1.0], [0.0]]),
], ids=type)  # fmt: skip
def test_composites_that_all_rows_share(x):
    flat = x.values
    shared = vmap(lambda a, i: tf.reduce_sum(a.values) * i, (None, 0))(x, tf.range(2.0))
    _close(shared, [0, tf.reduce_sum(flat)])


@pytest.mark.parametrize("jit_compile", [False, True])
def test_numbers_of_rows_that_are_unknown_must_agree(jit_compile):
    """A row too few would be broadcast to all, without a word."""
    specs = [tf.TensorSpec([None, 2]), tf.TensorSpec([None])]

    @tf.function(input_signature=specs, jit_compile=jit_compile)
    def mapped(x, t):
        return vmap(lambda a, b: (a * b, 2.0 * b))(x, t)

    for n in (0, 1, 3):
        products, doubled = mapped(tf.ones([n, 2]), tf.ones([n]))
        assert (products.shape, doubled.shape) == ([n, 2], [n])
    with pytest.raises(tf.errors.InvalidArgumentError) as why:
        mapped(tf.ones([5, 2]), tf.ones([1]))
    assert jit_compile or "args[0], args[1] have:] [5 1]" in str(why.value)
