"""Eager calls over objects: layers, modules, variables, methods."""

# ruff: noqa: B023, E731  (fresh lambdas in loops are what these tests are about)

import dataclasses

import keras
import numpy as np
import pytest
import tensorflow as tf

import tf_pfor
from tests.comparisons import close, gradient_of, keras_policy
from tests.tracing.counts import counts
from tf_pfor.tracing import fingerprint
from tf_pfor.tracing.identity import Tokens

each = tf_pfor.vectorized_map
X = tf.constant([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]])


# ---------------------------------------------------------------------------
# Variables, modules
# ---------------------------------------------------------------------------


def test_variables_count_by_identity_and_are_read_each_time():
    v = tf.Variable(2.0)
    for k in (2.0, 3.0):
        v.assign(k)
        close(each(lambda x: x * v, X), X * k)
    assert counts() == (1, 1, 0)
    v = tf.Variable(5.0)
    close(each(lambda x: x * v, X), X * 5.0)


def table(kind, **values):
    """A table of words, filled."""
    words, numbers = tf.constant([*values]), tf.constant([*values.values()], tf.int64)
    known = tf.lookup.KeyValueTensorInitializer(words, numbers)
    if kind == "static":
        return tf.lookup.StaticHashTable(known, -1)
    if kind == "vocabulary":
        return tf.lookup.StaticVocabularyTable(known, 1)
    of = tf.lookup.experimental
    options = {"empty_key": "", "deleted_key": "$"} if kind == "dense" else {}
    made = of.DenseHashTable if kind == "dense" else of.MutableHashTable
    made = made(tf.string, tf.int64, -1, **options)
    made.insert(words, numbers)
    return made


@pytest.mark.parametrize("kind", ["static", "vocabulary", "mutable", "dense"])
def test_tables_count_by_identity_and_are_read_each_time(kind):
    words, known = tf.constant(["a", "b", "a"]), table(kind, a=0, b=1)
    for _ in range(2):
        close(each(lambda s: known.lookup(s), words), [0, 1, 0])
    assert counts() == (1, 1, 0)
    if kind in ("mutable", "dense"):
        known.insert(tf.constant(["b"]), tf.constant([5], tf.int64))
        close(each(lambda s: known.lookup(s), words), [0, 5, 0])
        assert counts() == (2, 1, 0)
    known = table(kind, a=1, b=0)
    close(each(lambda s: known.lookup(s), words), [1, 0, 1])
    assert counts()[1:] == (1, 0)


@pytest.mark.parametrize("decode", [tf.io.decode_png, tf.image.decode_jpeg], ids=["png", "jpeg"])
def test_decoders_of_images(decode):
    images = tf.fill([2], tf.io.encode_png(tf.ones([2, 2, 3], tf.uint8)))
    for _ in range(2):
        close(each(lambda s: tf.reduce_sum(decode(s, channels=3)), images), [12, 12])
    assert counts() == (1, 1, 0)


class Module(tf.Module):
    factor = 2.0

    def __init__(self):
        super().__init__()
        self.w = tf.Variable([1.0, 2.0])
        self.scale = 2.0
        self.parts = [1.0]
        self.shift = tf.constant([1.0, 1.0])

    def __call__(self, x):
        return self.inner(x) * self.scale * self.factor + self.parts[0] + self.shift

    def inner(self, x):
        return x * self.w

    def loss(self, x):
        return tf.reduce_sum(self(x))

    @tf.function
    def compiled(self, x):
        return self.inner(x) * 3.0


def of_module(m, x):
    return x * m.w.numpy() * m.scale * m.factor + m.parts[0] + m.shift.numpy()


def test_modules(monkeypatch):
    m = Module()
    check = lambda: close(each(m, X), of_module(m, X))
    check()
    check()
    assert counts() == (1, 1, 0)
    m.w.assign([5.0, 6.0])
    check()
    assert counts() == (1, 2, 0)
    for name, value in (("scale", 7.0), ("shift", tf.constant([3.0, 4.0])), ("factor", 9.0)):
        setattr(m, name, value)
        check()
    m.parts[0] = 8.0
    check()
    monkeypatch.setattr(Module, "factor", 3.0)
    del m.factor
    check()
    m.w = tf.Variable([0.5, 0.5])
    check()
    monkeypatch.setattr(Module, "inner", lambda self, x: x * 100.0)
    close(each(m, X), X * 100.0 * m.scale * 3.0 + 8.0 + m.shift)


def test_methods_and_lambdas_over_modules():
    m = Module()
    for _ in range(2):
        close(each(m.inner, X), X * m.w)
        close(each(lambda x: m.inner(x) * 2.0, X), X * m.w * 2.0)
        grads, _ = tf_pfor.per_example_gradients(m.loss, m.w, X)
        close(grads, X * 4.0)
    assert counts() == (3, 3, 0)


def test_tf_functions():
    m = Module()
    double = tf.function(lambda x: x * 2.0)
    for _ in range(2):
        close(each(double, X), X * 2.0)
        close(each(lambda x: double(x) + 1.0, X), X * 2.0 + 1.0)
        close(each(m.compiled, X), X * m.w * 3.0)
    assert counts()[0] <= 3
    assert counts()[1] >= 2


class Plain:
    def __init__(self, factor):
        self.factor = factor

    def __call__(self, x):
        return x * self.factor


class Slotted:
    __slots__ = ("factor",)

    def __init__(self, factor):
        self.factor = factor

    @property
    def twice(self):
        return self.factor * 2.0


@dataclasses.dataclass
class Settings:
    factor: float = 2.0
    names: tuple = ("a",)


def test_objects_of_the_users_classes():
    for make in (Plain, Slotted, Settings):
        for k in (2.0, 3.0):
            o = make(k)
            f = lambda x: x * o.factor
            close(each(f, X), X * k)
            o.factor = 10.0 * k
            close(each(f, X), X * 10.0 * k)
    assert tf_pfor.cache_info().uncacheable == 0
    o = Slotted(2.0)
    close(each(lambda x: x * o.twice, X), X * 4.0)
    close(each(Plain(6.0), X), X * 6.0)


def test_a_tensor_in_an_object_and_in_a_cell():
    """The gradient would be lost if the one were an input and the other not."""
    o = Plain(tf.constant([1.0, 2.0]))
    w = o.factor
    for _ in range(2):
        grads, _ = tf_pfor.per_example_gradients(lambda x: tf.reduce_sum(o(x)), w, X)
        close(grads, X)
    assert counts()[0] == 0


def test_gradients_of_tensors_in_objects():
    o = Plain(tf.constant([1.0, 2.0]))
    for _ in range(3):
        close(gradient_of(lambda: each(o, X), o.factor), tf.reduce_sum(X, 0))
    assert counts() == (1, 2, 0)


# ---------------------------------------------------------------------------
# Keras
# ---------------------------------------------------------------------------


def model(*layers):
    m = keras.Sequential([keras.layers.Dense(4, activation="tanh"), *layers, keras.layers.Dense(1)])
    m(X)
    return m


def of_rows(m, **kwargs):
    return lambda x: m(x[None], **kwargs)[0]


def test_keras_models():
    m = model()
    for _ in range(2):
        close(each(of_rows(m), X), m(X))
    m.set_weights([w * 2.0 for w in m.get_weights()])
    close(each(of_rows(m), X), m(X))
    assert counts() == (1, 2, 0)
    m.layers[0].activation = keras.activations.relu
    close(each(of_rows(m), X), m(X))
    m.add(keras.layers.Dense(3))
    m(X)
    close(each(of_rows(m), X), m(X))
    other = model()
    close(each(of_rows(other), X), other(X))
    assert counts() == (4, 2, 0)


def test_keras_after_compile_and_fit():
    m = model()
    m.compile(optimizer="sgd", loss="mse")
    for _ in range(2):
        m.fit(X, X[:, :1], verbose=0)
        close(each(of_rows(m), X), m(X))
    close(each(of_rows(m), X), m(X))
    assert counts()[1] >= 1


def test_a_functional_model():
    inputs = keras.Input([2])
    hidden = keras.layers.Dense(3)(inputs)
    m = keras.Model(inputs, keras.layers.Dense(2)(hidden) + hidden[:, :2])
    for _ in range(2):
        close(each(of_rows(m), X), m(X))
    assert counts() == (1, 1, 0)


def test_trainable_flags():
    m = model()
    loss = lambda x: tf.reduce_sum(m(x[None]) ** 2)
    for flag in (True, True, False):
        m.layers[0].trainable = flag
        grads, _ = tf_pfor.per_example_gradients(loss, m.trainable_variables, X)
        assert len(grads) == (4 if flag else 2)

    def count(x):
        return tf.zeros([len(m.trainable_variables)]) + x[0]

    assert each(count, X).shape == (3, 2)
    m.layers[0].trainable = True
    assert each(count, X).shape == (3, 4)


def test_dropout_draws_anew():
    m = model(keras.layers.Dropout(0.5))
    draws = [each(of_rows(m, training=True), tf.ones([50, 2])).numpy() for _ in range(3)]
    assert not np.allclose(draws[0], draws[1])
    assert not np.allclose(draws[1], draws[2])
    assert counts() == (1, 2, 0)


def test_an_unbuilt_model_is_built_and_then_kept():
    m = keras.Sequential([keras.layers.Dense(2)])
    found = [each(of_rows(m), X) for _ in range(3)]
    for y in found:
        close(y, m(X))
    assert counts() == (1, 1, 1)


class Scaled(keras.layers.Layer):
    def __init__(self):
        super().__init__()
        self.dense = keras.layers.Dense(2)
        self.factor = 2.0

    def call(self, x, training=False):
        return self.dense(x) * self.factor * (0.5 if training else 1.0)


def test_a_layer_of_ones_own():
    layer = Scaled()
    layer(X)
    for k in (2.0, 2.0, 3.0):
        layer.factor = k
        close(each(of_rows(layer), X), layer(X))
    assert counts() == (2, 1, 0)
    close(each(of_rows(layer, training=True), X), layer(X, training=True))


def test_inside_a_layer_that_runs_eagerly():
    class Outer(keras.layers.Layer):
        def __init__(self):
            super().__init__()
            self.drop = keras.layers.Dropout(0.9)

        def call(self, x):
            return each(self.drop, x)

    outer = Outer()
    outer.build((None, 2))
    ones = tf.ones([100, 2])
    assert np.any(outer(ones, training=True).numpy() == 0.0)
    close(outer(ones, training=False), ones)
    assert np.any(outer(ones, training=True).numpy() == 0.0)


def test_mixed_precision_is_seen():
    def f(x):
        return keras.ops.cast(x, keras.config.dtype_policy().compute_dtype) * 2.0

    assert each(f, X).dtype == tf.float32
    with keras_policy("mixed_bfloat16"):
        assert each(f, X).dtype == tf.bfloat16


def test_a_tf_function_of_a_mapped_function():
    """It has copies of the attributes of what it wraps; a plain tf.function has none of these."""
    fingerprint._others.clear()  # how a type is visited is decided by the first one seen
    of_mapped = tf.function(tf_pfor.jacrev(lambda x: x**2))
    close = np.testing.assert_allclose
    for fn, expected in ((of_mapped, [2.0, 4.0]), (tf.function(lambda x: x**2), [1.0, 4.0])):
        tf_pfor.clear_cache()
        close(tf_pfor.vectorized_map(fn, tf.constant([1.0, 2.0])), expected)


def test_an_object_at_the_place_of_another_has_a_number_of_its_own():
    class Thing:
        pass

    number_of, first, second = Tokens(), Thing(), Thing()
    number = number_of(first)
    assert number_of(first) == number
    number_of._known[id(second)] = number_of._known[id(first)]  # as if first had been there
    assert number_of(second) != number
    assert number_of(second) == number_of(second)
