"""tf_pfor.keras: layers and functions of one example, against a Python loop over the examples."""

import importlib
import pathlib
import re
import sys

import keras
import numpy as np
import pytest
import tensorflow as tf

import tf_pfor
from tests.cases import errors
from tests.comparisons import gradient_of

Vectorized = tf_pfor.keras.Vectorized
# Keras' own: numpy 2 on its variables.
pytestmark = pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning")
CLOSE = {"rtol": 1e-4, "atol": 1e-5}

X = np.random.default_rng(0).normal(size=[5, 6, 3]).astype("float32")
FLAT = X[:, 0]
LENGTHS = [2, 6, 0, 3, 1]
MASK = np.arange(6)[None] < np.array(LENGTHS)[:, None]


@keras.saving.register_keras_serializable("tests")
class Attend(keras.layers.Layer):
    """[time, 3] -> [time, 4]."""

    def build(self, shape):
        self.w = self.add_weight(shape=(shape[-1], 4), name="w")

    def call(self, x):
        q = x @ tf.cast(self.w.value, x.dtype)
        return tf.nn.softmax(q @ tf.transpose(q)) @ q


@keras.saving.register_keras_serializable("tests")
class Decides(keras.layers.Layer):
    """[3] -> [2], with Python control flow on tensors."""

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.dense = keras.layers.Dense(2)

    def call(self, x):
        if x[0] > 0:
            x = 2.0 * x
        while tf.reduce_sum(x * x) > 1.0:
            x = x / 2.0
        return self.dense(x[None])[0]


def decided(layer, x):
    """``Decides`` in Python."""
    x = 2 * x if x[0] > 0 else x
    while (x * x).sum() > 1:
        x = x / 2
    return x @ layer.dense.kernel.numpy() + layer.dense.bias.numpy()


def mask_of(y):
    found = getattr(y, "_keras_mask", None)
    return None if found is None else found.numpy()


# -- as a layer ------------------------------------------------------------------------------------


def test_keras_is_imported_when_it_is_asked_for():
    """TensorFlow imports it as well; we do only in this front end, which nobody else imports."""
    for path in pathlib.Path(tf_pfor.__file__).parent.rglob("*.py"):
        if path.name != "keras.py" and path.parent.name != "keras":
            assert not re.search(r"^(import|from) keras", path.read_text(), re.MULTILINE), path
    assert "keras" in str(vars(tf_pfor)["__getattr__"].__code__.co_consts)


def test_another_backend_is_one_error(monkeypatch):
    monkeypatch.setattr(keras.backend, "backend", lambda: "jax")
    for name in ("tf_pfor.keras", "tf_pfor.frontends.keras"):
        monkeypatch.delitem(sys.modules, name)
    with pytest.raises(tf_pfor.ArgumentError, match="KERAS_BACKEND=tensorflow"):
        importlib.import_module("tf_pfor.keras")


def test_control_flow_in_a_layer():
    layer = Vectorized(Decides())
    found = layer(FLAT)
    expected = np.stack([decided(layer.fn, x) for x in FLAT])
    np.testing.assert_allclose(found, expected, **CLOSE)
    assert len(layer.trainable_variables) == 2
    graph = tf.function(layer.__call__, input_signature=[tf.TensorSpec([None, 3])])
    for n in (0, 1, 5):
        np.testing.assert_allclose(graph(FLAT[:n]), expected[:n], **CLOSE)
    batches = tf.data.Dataset.from_tensor_slices(FLAT).batch(2).map(layer)
    np.testing.assert_allclose(np.concatenate(list(batches)), expected, **CLOSE)


def test_eager_calls_keep_their_trace():
    layer = Vectorized(Attend())
    layer(X)
    tf_pfor.clear_cache()
    layer(X)
    layer(X)
    assert tf_pfor.cache_info().hits == 1
    assert not tf_pfor.cache_info().uncacheable


def test_symbolic_shapes_and_summary(capsys):
    a, b = keras.Input([3]), keras.Input([2], batch_size=7)
    found = Vectorized(lambda x: {"sum": tf.reduce_sum(x["a"]), "b": x["b"][0]})({"a": a, "b": [b]})
    assert found["sum"].shape == (7,)
    assert found["b"].shape == (7, 2)
    model = keras.Sequential([keras.Input([3]), Vectorized(Decides())])
    model.summary()
    assert "(None, 2)" in capsys.readouterr().out
    assert Vectorized(Attend()).compute_output_shape((None, 6, 3)) == (None, 6, 4)


def test_structures_and_further_arguments():
    inputs = {"a": keras.Input([3], name="a"), "b": [keras.Input([3], name="b")]}
    layer = Vectorized(lambda d: {"s": d["a"] + d["b"][0], "n": tf.reduce_sum(d["b"][0])})
    model = keras.Model(inputs, layer(inputs))
    found = model({"a": FLAT, "b": [X[:, 1]]})
    np.testing.assert_allclose(found["s"], FLAT + X[:, 1], 1e-6)
    np.testing.assert_allclose(found["n"], X[:, 1].sum(1), **CLOSE)
    several = Vectorized(lambda a, b, c=0.0: a * b + c)
    np.testing.assert_allclose(several(FLAT, X[:, 1]), FLAT * X[:, 1], **CLOSE)
    np.testing.assert_allclose(several(FLAT, X[:, 1], c=X[:, 2]), FLAT * X[:, 1] + X[:, 2], **CLOSE)


def test_training_is_passed_on():
    layer = Vectorized(lambda x, training: x + (1.0 if training else 0.0))
    model = keras.Sequential([keras.Input([3]), layer])
    np.testing.assert_allclose(model(FLAT), FLAT)
    np.testing.assert_allclose(model(FLAT, training=True), FLAT + 1)

    class Drops(keras.layers.Layer):
        def __init__(self):
            super().__init__()
            self.drop = keras.layers.Dropout(0.5, seed=1)

        def call(self, x):  # the flag reaches the layer in it
            return self.drop(x)

    drops = Vectorized(Drops())
    ones = np.ones([4, 8], "float32")
    assert (drops(ones).numpy() == 1).all()
    assert (drops(ones, training=True).numpy() == 0).any()


def test_maps_in_maps():
    class Outer(keras.layers.Layer):
        def __init__(self):
            super().__init__()
            self.inner = Vectorized(Decides())

        def call(self, x):
            return tf.reduce_sum(self.inner(x), 0)

    layer = Vectorized(Outer())
    found = layer(X)
    one = layer.fn.inner.fn
    expected = [sum(decided(one, x) for x in rows) for rows in X]
    np.testing.assert_allclose(found, expected, **CLOSE)
    assert len(layer.weights) == 2


def test_in_layers_that_keras_asks_for_shapes():
    class Outer(keras.layers.Layer):
        def __init__(self):
            super().__init__()
            self.inner = Vectorized(Attend())
            self.drop = Vectorized(keras.layers.Dropout(0.5))

        def call(self, x):
            return self.drop(self.inner(x)) + 1.0

    inputs = keras.Input([6, 3])
    model = keras.Model(inputs, Outer()(inputs))
    assert model.output.shape == (None, 6, 4)
    assert len(model.trainable_weights) == 1
    assert model(X).shape == (5, 6, 4)

    class Parent(Outer):
        def build(self, shape):
            self.inner.build(shape)
            self.drop.build(shape)

    parent = Parent()
    parent.build((None, 6, 3))
    assert len(parent.trainable_weights) == 1


def test_gradients():
    layer = Vectorized(Attend())
    layer(X)
    w = layer.fn.w.value
    found = gradient_of(lambda: tf.reduce_sum(layer(X) ** 2), w)
    by_rows = lambda: tf.add_n([tf.reduce_sum(layer.fn(tf.constant(x)) ** 2) for x in X])
    np.testing.assert_allclose(found, gradient_of(by_rows, w), 1e-4, 1e-4)


def test_seeds_differ_between_examples():
    class Noisy(keras.layers.Layer):
        def __init__(self):
            super().__init__()
            self.seeds = keras.random.SeedGenerator(3)

        def call(self, x):
            return x + keras.random.normal(x.shape, seed=self.seeds)

    zeros = np.zeros([4, 3], "float32")
    alone = Noisy()
    np.testing.assert_allclose(
        Vectorized(Noisy())(zeros), [alone(tf.constant(x)) for x in zeros], 1e-5
    )
    same = Vectorized(Noisy(), randomness="same")(zeros).numpy()
    assert (same == same[0]).all()


def test_losses_are_means_over_examples():
    class Adds(keras.layers.Layer):
        def __init__(self):
            super().__init__()
            self.dense = keras.layers.Dense(
                2, kernel_regularizer="l2", activity_regularizer=keras.regularizers.L1(0.1)
            )

        def call(self, x):
            self.add_loss(tf.reduce_sum(x**2))
            return self.dense(x[None])[0]

    layer = Vectorized(Adds())
    layer(FLAT)
    found = [float(x) for x in layer.losses]
    of_rows = []
    for x in FLAT:
        layer.fn(tf.constant(x))
        of_rows.append([float(x) for x in layer.fn.losses])
    np.testing.assert_allclose(sorted(found), sorted(np.mean(of_rows, 0)), 1e-5)


# -- what is wrapped -------------------------------------------------------------------------------


def test_functions_with_layers():
    dense = keras.layers.Dense(2)
    layer = Vectorized(lambda x: dense(x[None])[0], uses=[dense])
    np.testing.assert_allclose(layer(FLAT), dense(FLAT), 1e-6)
    assert layer.trainable_variables == dense.trainable_variables
    with pytest.raises(tf_pfor.ArgumentError, match="cannot be saved"):
        layer.get_config()
    with pytest.raises(tf_pfor.ArgumentError, match="neither trained nor saved") as error:
        Vectorized(lambda x: dense(x[None])[0])(FLAT)
    assert "kernel" in str(error.value)


def test_batch_of_one():
    with pytest.raises(tf_pfor.ArgumentError, match="batch_of_one=True"):
        Vectorized(keras.layers.LSTM(2))(X)
    layers = [keras.layers.Conv1D(4, 3, padding="same"), keras.layers.GlobalMaxPooling1D()]
    inner = keras.Sequential(layers)
    found = Vectorized(inner, batch_of_one=True)(X)
    np.testing.assert_allclose(found, inner(X), **CLOSE)
    with pytest.raises(tf_pfor.ArgumentError, match=r"Expected:\s*\[1, ...\]"):
        Vectorized(lambda x: tf.repeat(x, 2, 0), batch_of_one=True)(X)


WRONG, NO_TYPE = tf_pfor.ArgumentError, tf_pfor.ArgumentTypeError
of_identity = lambda **options: lambda: Vectorized(lambda x: x, **options)
test_wrong_use = errors(
    (of_identity(masks="no"), WRONG, "masks must be"),
    (of_identity(out_shapes="ragged"), WRONG, "out_shapes must be"),
    (of_identity(randomness="no"), WRONG, "randomness must be"),
    (of_identity(fallback={"NoOpAtAll"}), WRONG, "NoOpAtAll"),
    (of_identity(chunk_size=-1), WRONG, "chunk_size"),
    (of_identity(uses=[tf.Variable(1.0)]), NO_TYPE, "uses holds"),
    (lambda: Vectorized(3), NO_TYPE, "a layer or a function"),
    (lambda: Vectorized(keras.layers.Dense), NO_TYPE, "a layer or a function"),
    (lambda: Vectorized(Attend(), uses=[Attend()]), WRONG, "a layer holds what it uses"),
    (lambda: Vectorized(tf.identity)(tf.zeros([])), WRONG, "one tensor with a batch axis"),
    (lambda: of_identity()()(X, mask=np.ones([5, 6, 3], bool)), WRONG, "an argument `mask`"),
    (lambda: tf_pfor.keras.explain(None), NO_TYPE, "found None"),
    (lambda: tf_pfor.keras.explain(Vectorized(Attend())), WRONG, "not built"),
    (lambda: tf_pfor.keras.explain(keras.layers.Dense(2)), WRONG, "holds no"),
)


def test_options_reach_the_map():
    strict = Vectorized(lambda x: x + tf.random.normal([3]), randomness="error")
    with pytest.raises(tf_pfor.NotVectorizableError, match="RandomStandardNormal"):
        strict(FLAT)
    normed = Vectorized(lambda x: x / tf_pfor.psum(x, "batch"), axis_name="batch")
    np.testing.assert_allclose(normed(FLAT), FLAT / FLAT.sum(0), **CLOSE)
    np.testing.assert_allclose(Vectorized(tf.cumsum, chunk_size=2)(FLAT), FLAT.cumsum(1), 1e-5)


# -- masks and variable lengths --------------------------------------------------------------------


@pytest.mark.parametrize("is_left", [False, True])
def test_a_mask_cuts_each_example(is_left):
    mask = MASK[:, ::-1] if is_left else MASK
    layer = Vectorized(Attend())
    found = layer(X, mask=mask)
    assert found.shape == (5, 6, 4)
    for i, n in enumerate(LENGTHS):
        expected = layer.fn(tf.constant(X[i][mask[i]]))
        np.testing.assert_allclose(found[i, :n], expected, **CLOSE)
        assert not found[i, n:].numpy().any()
    assert (mask_of(found) == MASK).all()


def test_masks_of_a_model():
    """Embedding -> Vectorized -> a sum with what was not cut -> LSTM, of unknown time."""
    keras.utils.set_random_seed(0)
    inputs = keras.Input([None], dtype="int32")
    embedded = keras.layers.Embedding(9, 3, mask_zero=True)(inputs)
    hidden = Vectorized(Attend())(embedded)
    assert hidden.shape == (None, None, 4)
    hidden = keras.layers.Add()([hidden, keras.layers.Dense(4)(embedded)])
    model = keras.Model(inputs, keras.layers.LSTM(2)(hidden))
    ids = np.array([[1, 2, 0, 0, 0], [1, 5, 1, 1, 0]])
    np.testing.assert_allclose(model(ids)[0], model(ids[:1, :2])[0], **CLOSE)


def test_a_mask_is_handed_on():
    class Counts(keras.layers.Layer):
        def compute_mask(self, inputs, previous_mask):
            return None  # as Keras would have it of a layer that takes a mask and returns none

        def call(self, x, mask=None):
            assert mask.shape.rank == 1
            return tf.reduce_sum(tf.where(mask[:, None], x, 0.0), 0)

    layer = Vectorized(Counts())
    found = layer(X, mask=MASK)
    np.testing.assert_allclose(found, (X * MASK[..., None]).sum(1), 1e-5, 1e-5)
    assert mask_of(found) is None
    inner = keras.layers.SimpleRNN(2, return_sequences=True)
    rows = np.delete(np.arange(5), 2)
    found = Vectorized(inner, batch_of_one=True)(X[rows], mask=MASK[rows])
    np.testing.assert_allclose(found, inner(X[rows], mask=MASK[rows]), **CLOSE)
    assert (mask_of(found) == MASK[rows]).all()


def test_results_of_own_length():
    layer = Vectorized(lambda row: row[0][: row[1]])
    lengths = np.array([1, 2, 3, 1, 2])
    found = layer((X, lengths))
    assert found.shape == (5, 3, 3)
    assert mask_of(found).sum(1).tolist() == lengths.tolist()
    for y, x, n in zip(found.numpy(), X, lengths):
        np.testing.assert_array_equal(y[:n], x[:n])
        assert not y[n:].any()
    dense = Vectorized(lambda row: row[0][: row[1]], out_shapes="dense")
    with pytest.raises(tf.errors.InvalidArgumentError):
        dense((X, lengths))


def test_results_longer_than_of_an_uncut_example():
    layer = Vectorized(lambda x: tf.repeat(x, 8 - tf.shape(x)[0], 0))
    with pytest.raises(tf.errors.InvalidArgumentError, match="a row larger than"):
        layer(X, mask=MASK)


def test_ragged_inputs():
    ragged = tf.ragged.constant([[1.0, 2.0], [3.0], []])
    inputs = keras.Input([None], ragged=True)
    model = keras.Model(inputs, Vectorized(lambda x: tf.reduce_sum(x))(inputs))
    assert model(ragged).numpy().tolist() == [3.0, 3.0, 0.0]
    found = Vectorized(lambda x: 2.0 * x)(ragged)
    assert found.numpy().tolist() == [[2.0, 4.0], [6.0, 0.0], [0.0, 0.0]]
    assert mask_of(found).sum(1).tolist() == [2, 1, 0]


# -- saving ----------------------------------------------------------------------------------------


@keras.saving.register_keras_serializable("tests")
def running_sum(x, training=False):
    return tf.cumsum(x) + (1.0 if training else 0.0)


def test_round_trips(tmp_path):
    inputs = keras.Input([6, 3])
    layer = Vectorized(Attend(), fallback={"PyFunc"}, batch_of_one=False, name="attends")
    model = keras.Model(inputs, layer(inputs))
    expected = model(X)
    model.save(tmp_path / "m.keras")
    again = keras.models.load_model(tmp_path / "m.keras")
    np.testing.assert_allclose(again(X), expected, **CLOSE)
    before, after = layer.get_config(), again.get_layer("attends").get_config()
    assert {k: v for k, v in before.items() if k != "fn"} == {
        k: v for k, v in after.items() if k != "fn"
    }
    clone = keras.models.clone_model(model)
    clone.set_weights(model.get_weights())
    np.testing.assert_allclose(clone(X), expected, **CLOSE)
    model.export(tmp_path / "exported", verbose=False)
    loaded = tf.saved_model.load(tmp_path / "exported")
    for n in (2, 5):
        np.testing.assert_allclose(loaded.serve(X[:n]), expected[:n], **CLOSE)


def test_functions_are_saved_by_name_and_lambdas_as_unsafe(tmp_path):
    model = keras.Sequential([keras.Input([3]), Vectorized(running_sum)])
    model.save(tmp_path / "m.keras")
    again = keras.models.load_model(tmp_path / "m.keras")
    np.testing.assert_allclose(again(FLAT, training=True), FLAT.cumsum(1) + 1, **CLOSE)
    model.add(Vectorized(lambda x: x * 2.0))
    with pytest.warns(UserWarning, match="lambda"):
        model.save(tmp_path / "m.keras")
    with pytest.raises(ValueError, match="lambda"):
        keras.models.load_model(tmp_path / "m.keras")
    again = keras.models.load_model(tmp_path / "m.keras", safe_mode=False)
    np.testing.assert_allclose(again(FLAT), 2 * FLAT.cumsum(1), **CLOSE)


def test_weights_alone(tmp_path):
    first, second = (keras.Sequential([keras.Input([3]), Vectorized(Decides())]) for _ in "ab")
    first.save_weights(tmp_path / "w.weights.h5")
    second.load_weights(tmp_path / "w.weights.h5")
    np.testing.assert_allclose(first(FLAT), second(FLAT), 1e-6)


# -- explain ---------------------------------------------------------------------------------------


def test_explain(capsys):
    model = keras.Sequential([keras.Input([6, 3]), Vectorized(Attend(), name="attends")])
    reports = tf_pfor.keras.explain(model)
    assert "Softmax" in str(reports["attends"])
    assert capsys.readouterr().out == ""
    assert reports["attends"].totals["vectorized"] == 5
    report = tf_pfor.explain(model.get_layer("attends"), tf.TensorSpec([None, 6, 3]))
    assert report.totals == reports["attends"].totals


def test_products_with_numbers_are_dense():
    """Keras calls ``2.0 * x`` sparse."""
    inputs = keras.Input([5])
    layer = Vectorized(keras.layers.Dense(3), batch_of_one=True)
    assert layer(2.0 * inputs).shape == (None, 3)
    sparse = keras.Input([5], sparse=True)
    assert Vectorized(tf.sparse.to_dense)(sparse).shape[0] is None


def test_masks_of_layers_in_layers():
    ids = np.array([[1, 2, 0], [1, 1, 1]])
    steps = keras.layers.Embedding(9, 4, mask_zero=True)(ids)
    inner = Vectorized(tf.nn.softmax)
    for layer in (Vectorized(inner), keras.layers.TimeDistributed(inner)):
        found = layer(steps)
        np.testing.assert_allclose(found[0, :2], tf.nn.softmax(steps)[0, :2], rtol=1e-6)
        np.testing.assert_allclose(found[1], tf.nn.softmax(steps)[1], rtol=1e-6)
    rows = keras.layers.Masking()(np.ones([3, 4]))  # a mask [batch]
    np.testing.assert_allclose(inner(rows), np.full([3, 4], 0.25), rtol=1e-6)


def test_explain_knows_the_axis():
    layer = Vectorized(lambda x: x - tf_pfor.pmean(x, "batch"), axis_name="batch")
    keras.Sequential([keras.Input([5]), layer])
    assert layer.explain().totals["rejected"] == 0


class Positions(keras.layers.Layer):
    """Its table is a tensor that ``build`` makes."""

    def build(self, input_shape):
        self.table = tf.range(10.0) * 2.0

    def call(self, x):
        return x + self.table[: x.shape[-1]]


@pytest.mark.parametrize(
    "layer", [Positions, lambda: keras.layers.Normalization(mean=[1.0] * 3, variance=[4.0] * 3)]
)
def test_layers_that_make_tensors_when_they_are_built(layer):
    x = tf.reshape(tf.range(6.0), [2, 3])
    found = keras.Sequential([keras.Input([3]), Vectorized(layer())])
    np.testing.assert_allclose(found(x), layer()(x), 1e-6)
    np.testing.assert_allclose(Vectorized(layer())(x), layer()(x), 1e-6)


@pytest.mark.parametrize(
    "layer",
    [lambda: keras.layers.StringLookup(vocabulary=["a", "b"]), lambda: keras.layers.Hashing(5)],
)
@pytest.mark.parametrize("dtype", [str, bytes, object])
def test_strings_of_numpy(layer, dtype):
    words = np.array([["a", "b"], ["b", "c"]]).astype(dtype)
    found = Vectorized(layer(), batch_of_one=True)(words)
    np.testing.assert_array_equal(found, layer()(tf.constant(words)))
