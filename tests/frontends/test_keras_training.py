"""tf_pfor.keras under fit: layers of one example, and models that clip the gradient of each."""

import subprocess
import sys

import keras
import numpy as np
import pytest
import tensorflow as tf

import tf_pfor
from examples import keras_sequences
from tests.cases import grid
from tests.comparisons import close, gradient_of, keras_policy, pairwise, value_and_gradient

PerExample = tf_pfor.keras.PerExampleGradientModel
Vectorized = tf_pfor.keras.Vectorized
# Keras' own: numpy 2 on its variables.
pytestmark = pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning")

RNG = np.random.default_rng(0)
X = RNG.normal(size=[6, 3]).astype("float32")
Y = RNG.normal(size=[6, 2]).astype("float32")
WEIGHTS = np.array([1, 2, 0, 0.5, 1, 3], "float32")
RATE, CLIP = 0.1, 0.3


def small(regularizer=None):
    keras.utils.set_random_seed(0)
    return keras.Sequential([
        keras.Input([3]),
        keras.layers.Dense(4, activation="tanh", kernel_regularizer=regularizer),
        keras.layers.Dense(2),
    ])  # fmt: skip


def looped(model, size=1, weights=None):
    """The weights after one step, and the loss: gradients one after the other."""
    variables = [v.value for v in model.trainable_variables]
    total, losses = [0.0] * len(variables), []
    for start in range(0, len(X), size):
        some = slice(start, start + size)
        scales = 1.0 if weights is None else weights[some, None]
        mean = lambda s=some, w=scales: tf.reduce_mean((model(X[s]) - Y[s]) ** 2 * w)
        loss, gradients = value_and_gradient(mean, variables)
        scale = min(1.0, CLIP / max(float(tf.linalg.global_norm(gradients)), 1e-9))
        total = [t + g * scale for t, g in zip(total, gradients)]
        losses.append(float(loss))
    moved = [v - RATE * t * (size / len(X)) for v, t in zip(variables, total)]
    return moved, np.mean(losses)


def fitted(model, weights=None, **options):
    compiled = {k: options.pop(k) for k in ("jit_compile",) if k in options}
    whole = PerExample(model, clip_norm=CLIP, **options)
    whole.compile(keras.optimizers.SGD(RATE), "mse", metrics=["mae"], **compiled)
    history = whole.fit(X, Y, 6, sample_weight=weights, shuffle=False, verbose=0).history
    return whole, {name: values[0] for name, values in history.items()}


@pytest.mark.parametrize(("size", "weights", "jit_compile"), [(1, WEIGHTS, True), (2, None, False)])
def test_a_step_is_that_of_a_loop(size, weights, jit_compile):
    model = small()
    expected, loss = looped(model, size, weights)
    mae = np.abs(model(X) - Y).mean()
    whole, logs = fitted(
        model, weights, microbatch_size=size, chunk_size=2, jit_compile=jit_compile
    )
    assert whole.jit_compile is jit_compile
    pairwise(close, [v.numpy() for v in whole.trainable_variables], expected, 1e-4, 1e-5)
    np.testing.assert_allclose(logs["loss"], loss, 1e-4)
    np.testing.assert_allclose(logs["mae"], mae, 1e-4)


def test_penalties_are_not_clipped():
    model = small(keras.regularizers.L2(0.1))
    kernel, penalty = model.trainable_variables[0], float(sum(model.losses))
    expected, loss = looped(model)
    expected[0] = expected[0] - RATE * 2 * 0.1 * kernel.numpy()
    whole, logs = fitted(model, jit_compile=False)
    pairwise(close, [v.numpy() for v in whole.trainable_variables], expected, 1e-4, 1e-5)
    np.testing.assert_allclose(logs["loss"], loss + penalty, 1e-4)


def test_without_clipping_it_is_fit(tmp_path):
    histories = []
    models = [small(), small()]
    whole = PerExample(models[0], clip_norm=1e9)
    for model in (whole, models[1]):
        model.compile(keras.optimizers.SGD(RATE), "mse", metrics=["mae"], jit_compile=False)
        histories.append(model.fit(X, Y, 3, shuffle=False, verbose=0).history)
    for name, values in histories[0].items():
        np.testing.assert_allclose(values, histories[1][name], 1e-5)
    pairwise(close, *(m.get_weights() for m in models), 1e-4, 1e-5)
    mse, mae = np.mean((model(X) - Y) ** 2), np.abs(model(X) - Y).mean()
    np.testing.assert_allclose(whole.evaluate(X, Y, verbose=0), [mse, mae], 1e-4)
    whole.save(tmp_path / "m.keras")
    again = keras.models.load_model(tmp_path / "m.keras")
    np.testing.assert_allclose(again(X), whole(X), 1e-6)
    assert again.clip_norm == 1e9


def test_mixed_precision():
    """Gradients are clipped as without the scale of the loss."""
    expected, _ = looped(small())
    with keras_policy("mixed_float16"):
        whole, _ = fitted(small(), jit_compile=False)
    assert isinstance(whole.optimizer, keras.optimizers.LossScaleOptimizer)
    pairwise(close, [v.numpy() for v in whole.trainable_variables], expected, 1e-2, 1e-4)


def test_noise_is_as_large_as_said():
    keras.utils.set_random_seed(0)
    model = keras.Sequential([keras.Input([3]), keras.layers.Dense(300), keras.layers.Dense(2)])
    noisy = PerExample(model, clip_norm=CLIP, noise_multiplier=2.0, seed=3)
    clean = PerExample(model, clip_norm=CLIP)
    found = []
    for whole in (noisy, clean):
        whole.compile("sgd", "mse")
        found.append(np.concatenate([np.ravel(g) for g in whole.gradients(X, Y)[0]]))
    noise = found[0] - found[1]  # of 1802 weights
    np.testing.assert_allclose(np.std(noise), 2.0 * CLIP / len(X), rtol=0.07)
    assert abs(np.mean(noise)) < 0.01


def test_outputs_and_losses_in_nests():
    inputs = [keras.Input([3], name="a"), keras.Input([3], name="b")]
    hidden = keras.layers.Add()(inputs)
    outputs = {"u": keras.layers.Dense(2, name="u")(hidden), "v": keras.layers.Dense(1)(hidden)}
    model = keras.Model(inputs, outputs)
    whole = PerExample(model)
    whole.compile("sgd", {"u": "mse", "v": "mae"}, jit_compile=False)
    y_pred = model([X, X])
    logs = whole.fit([X, X], {"u": Y, "v": Y[:, :1]}, 6, verbose=0).history
    u, v = np.mean((y_pred["u"] - Y) ** 2), np.abs(y_pred["v"] - Y[:, :1]).mean()
    np.testing.assert_allclose(logs["loss"][0], u + v, 1e-4)


def test_what_is_refused():
    with pytest.raises(tf_pfor.ArgumentTypeError, match="keras.Model"):
        PerExample(keras.layers.Dense(2))
    for options in ({"clip_norm": 0}, {"noise_multiplier": -1.0}, {"microbatch_size": 0}):
        with pytest.raises(tf_pfor.ArgumentError, match=next(iter(options))):
            PerExample(small(), **options)
    whole = PerExample(small(), microbatch_size=4)
    whole.compile("sgd", "mse")
    with pytest.raises(tf_pfor.ArgumentError, match="6 examples"):
        whole.gradients(X, Y)
    whole.compile("sgd", keras.losses.MeanSquaredError(reduction="none"))
    with pytest.raises(tf_pfor.ArgumentError, match="The compiled loss has shape"):
        whole.gradients(X[:4], Y[:4])
    normed = PerExample(keras.Sequential([keras.Input([3]), keras.layers.BatchNormalization()]))
    normed.compile("sgd", "mse")
    with pytest.raises(tf_pfor.ArgumentError, match="normalizes over the batch"):
        normed.gradients(X, X)
    normed.model.layers[0].trainable = False
    normed.model.add(keras.layers.Dense(2))
    assert len(normed.gradients(X, Y)[0]) == 2


# -- layers of one example -------------------------------------------------------------------------


def test_the_example_trains_as_by_hand():
    """A layer of one example, with masks, and the same layer written for batches."""
    by_example, by_hand = keras_sequences.main(count=16, longest=4, epochs=3, batch=8, units=4)
    np.testing.assert_allclose(by_example, by_hand, 1e-4)
    assert by_example[-1] < by_example[0]


def test_mixed_precision_and_xla():
    with keras_policy("mixed_bfloat16"):
        layer = Vectorized(keras_sequences.Pooled(2), supports_jit=True)
        inputs = keras.Input([4, 3])
        model = keras.Model(inputs, layer(keras.layers.Masking()(inputs)))
    assert model.output.dtype == "bfloat16"
    assert layer.weights[0].dtype == "float32"
    rows = np.repeat(X[:, None], 4, 1)
    rows[::2, 2:] = 0
    model.compile(keras.optimizers.SGD(0.1), "mse", jit_compile=True)
    assert model.jit_compile
    losses = model.fit(rows, Y, 6, epochs=3, verbose=0).history["loss"]
    assert losses[-1] < losses[0]
    assert not keras.Sequential([Vectorized(tf.cumsum)]).layers[0].supports_jit


def test_dropout_and_moving_averages_under_fit():
    model = keras.Sequential([
        keras.Input([2, 3]),
        Vectorized(keras.layers.BatchNormalization(momentum=0.5)),
        Vectorized(keras.layers.Dropout(0.5, seed=1)),
        keras.layers.Flatten(),
        keras.layers.Dense(2),
    ])  # fmt: skip
    model.compile("sgd", "mse")
    rows = np.stack([X, X + 1], 1)
    model.fit(rows, Y, 6, shuffle=False, verbose=0)
    average = np.zeros(3)
    for row in rows:  # each example moves it on, one after the other
        average = 0.5 * average + 0.5 * row.mean(0)
    np.testing.assert_allclose(model.layers[0].fn.moving_mean.numpy(), average, 1e-4, 1e-5)


def test_replicas_take_the_step_of_one():
    """Gradients are of the whole batch, and so is the noise."""
    ran = subprocess.run(
        [sys.executable, "-m", "tests.frontends.replicas"],
        capture_output=True, text=True, check=False, timeout=300,
    )  # fmt: skip
    assert ran.stdout.strip().endswith("the same"), ran.stderr[-2000:]


def test_it_is_exported(tmp_path):
    net = keras.Sequential([keras.layers.Dense(3)])
    model = PerExample(net)
    model.compile("sgd", "mse")
    x = np.random.default_rng(0).normal(size=[8, 5]).astype("float32")
    model.fit(x, np.zeros([8, 3]), verbose=0)
    for number, each in enumerate((model, PerExample(net))):
        each(x)
        each.export(str(tmp_path / str(number)), verbose=False)
        served = tf.saved_model.load(str(tmp_path / str(number)))
        np.testing.assert_allclose(served.serve(x), net(x), rtol=1e-5, atol=1e-6)


class MeanOfWords(keras.Model):
    """Scores texts of any number of words."""

    def __init__(self):
        super().__init__()
        self.words, self.score = keras.layers.Embedding(10, 4), keras.layers.Dense(1)
        self.words.build([None])
        self.score.build([None, 4])
        self.built = True

    def call(self, texts):
        return self.score(tf.reduce_mean(tf.ragged.map_flat_values(self.words, texts), 1))


TEXTS = tf.ragged.constant([[1, 2, 3], [4], [5, 6], [7, 8, 9, 1]])
SCORES = tf.constant([[1.0], [0.0], [1.0], [-1.0]])


@grid(size=[1, 2], as_data=[False, True])
def test_ragged_batches(size, as_data):
    keras.utils.set_random_seed(0)
    net, clip = MeanOfWords(), 0.05
    weights = [w.value for w in net.trainable_weights]
    wanted = [tf.zeros_like(w) for w in weights]
    for i in range(0, 4, size):
        rows = slice(i, i + size)
        loss = lambda rows=rows: tf.reduce_mean((net(TEXTS[rows]) - SCORES[rows]) ** 2)
        found = [tf.convert_to_tensor(g) for g in gradient_of(loss, weights)]
        scale = tf.minimum(1.0, clip / tf.linalg.global_norm(found))
        wanted = [a + scale * g * size / 4 for a, g in zip(wanted, found)]
    wanted = [w - 0.1 * g for w, g in zip(weights, wanted)]
    model = PerExample(net, clip_norm=clip, microbatch_size=size)
    model.compile(keras.optimizers.SGD(0.1), "mse")
    given = {"x": TEXTS, "y": SCORES, "batch_size": 4}
    if as_data:
        given = {"x": tf.data.Dataset.from_tensor_slices((TEXTS, SCORES)).batch(4)}
    model.fit(**given, verbose=0, shuffle=False)
    pairwise(close, weights, wanted, 1e-4, 1e-6)


def test_ragged_batches_that_groups_do_not_divide():
    model = PerExample(MeanOfWords(), microbatch_size=3)
    model.compile("sgd", "mse")
    with pytest.raises((tf.errors.InvalidArgumentError, tf_pfor.ArgumentError), match="size is 3"):
        model.fit(TEXTS, SCORES, verbose=0)


def test_sparse_batches_are_refused():
    model = PerExample(keras.Sequential([keras.layers.Dense(1)]))
    model.model.build([None, 2])
    model.compile("sgd", "mse")
    data = tf.data.Dataset.from_tensors((tf.sparse.from_dense(tf.ones([3, 2])), tf.ones([3, 1])))
    with pytest.raises(tf_pfor.ArgumentTypeError, match="dense and ragged batches.*SparseTensor"):
        model.fit(data, verbose=0, shuffle=False)


@pytest.mark.filterwarnings("ignore:.*structure of `inputs`")  # Keras', of its own dicts
@pytest.mark.parametrize("kind", ["sequential", "functional", "named inputs"])
def test_an_export_has_the_inputs_of_the_model_inside(tmp_path, kind):
    """Keras takes all inputs of a subclass for floats."""
    ids, x = keras.Input([4], dtype="int32", name="ids"), keras.Input([3], name="x")
    words = [keras.layers.Embedding(10, 3), keras.layers.Flatten(), keras.layers.Dense(2)]
    given = {"ids": np.ones([2, 4], np.int32), "x": np.ones([2, 3], np.float32)}
    if kind == "sequential":
        net, given = keras.Sequential([ids, *words]), given["ids"]
    else:
        y = keras.layers.Concatenate()([keras.Sequential(words)(ids), x])
        net = keras.Model({"ids": ids, "x": x} if kind == "named inputs" else [ids, x], y)
        given = given if kind == "named inputs" else [*given.values()]
    model = PerExample(net)
    model.export(str(tmp_path / "m"), verbose=False)
    loaded = tf.saved_model.load(str(tmp_path / "m"))
    specs = loaded.signatures["serving_default"].structured_input_signature[1]
    expected = {tf.int32} if kind == "sequential" else {tf.int32, tf.float32}
    assert {spec.dtype for spec in specs.values()} == expected
    served = loaded.serve(tf.nest.map_structure(tf.constant, given))
    np.testing.assert_allclose(served, net(given), rtol=1e-5, atol=1e-6)
