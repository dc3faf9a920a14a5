"""Models of one architecture at once: ``stack``, ``functional_call``, ``Ensemble``."""

import keras
import numpy as np
import pytest
import tensorflow as tf

import tf_pfor
from tests.cases import grid
from tests.comparisons import close, pairwise
from tf_pfor import ArgumentError, ArgumentTypeError
from tf_pfor.keras import Ensemble, Variables, functional_call, stack

pytestmark = pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning")
RNG = np.random.default_rng(0)
X = RNG.normal(size=[24, 4]).astype(np.float32)
Y = RNG.normal(size=[24, 2]).astype(np.float32)
K = 3


def dense(seed, rate=0.3):
    """Weights, penalties, statistics and draws: all that differs between members."""
    start = keras.initializers.GlorotUniform
    return keras.Sequential(
        [
            keras.Input([4]),
            keras.layers.Dense(5, "relu", kernel_regularizer="l2", kernel_initializer=start(seed)),
            keras.layers.BatchNormalization(),
            keras.layers.Dropout(rate, seed=seed),
            keras.layers.Dense(2, kernel_initializer=start(seed + 50)),
        ]
    )


@keras.saving.register_keras_serializable("tests")
class Gate(keras.Model):
    """A subclassed model with a nest of inputs and outputs."""

    def __init__(self, units=2, **kwargs):
        super().__init__(**kwargs)
        self.units = units
        self.first, self.second = keras.layers.Dense(units), keras.layers.Dense(units)

    def get_config(self):
        return {**super().get_config(), "units": self.units}

    def call(self, inputs):
        gate = tf.sigmoid(self.first(inputs["a"]))
        return {"product": gate * self.second(inputs["b"]), "gate": gate}


def gate(units=2):
    model = Gate(units)
    model({"a": X, "b": X})
    return model


def fitted(model, x=X, y=Y, **options):
    model.compile(keras.optimizers.Adam(1e-2), "mse")
    return model.fit(x, y, batch_size=8, epochs=2, shuffle=False, verbose=0, **options)


# -- stack and functional_call ---------------------------------------------------------------------


def test_a_map_over_stacked_variables_calls_all_models():
    models = [dense(i) for i in range(K)]
    found = tf_pfor.vmap(lambda v, x: functional_call(models[0], v, x), (0, None))(stack(models), X)
    close(found, np.stack([m(X) for m in models]))


def test_updates_are_returned_and_models_stay():
    models = [dense(i) for i in range(K)]
    before = [m.get_weights() for m in models]

    def call(variables, x):
        return functional_call(models[0], variables, x, updates=True, training=True)

    outputs, after = tf_pfor.vmap(call, in_axes=(0, None))(stack(models), X)
    for held, model in zip(before, models):
        pairwise(np.testing.assert_array_equal, held, model.get_weights())
    for i, model in enumerate(models):
        close(outputs[i], model(X, training=True))
        assert isinstance(after, Variables)
        for found, variable in zip(after.non_trainable, model.non_trainable_variables, strict=True):
            close(found[i], variable)


def test_gradients_of_all_models():
    models = [dense(i) for i in range(K)]
    variables = stack(models)

    def loss(trainable, fixed, x):
        return tf.reduce_sum(functional_call(models[0], (trainable, fixed), x) ** 2)

    found = tf_pfor.vmap(tf_pfor.grad(loss), in_axes=(0, 0, None))(*variables, X)
    for i, model in enumerate(models):
        with tf.GradientTape() as tape:
            y = tf.reduce_sum(model(X) ** 2)
        for a, b in zip(found, tape.gradient(y, model.trainable_variables), strict=True):
            close(a[i], b, rtol=1e-4, atol=1e-4)


def test_values_of_the_trainable_variables_alone():
    """Statistics and seeds come from the model, which keeps all its values."""
    model = dense(0)
    model.layers[1].moving_mean.assign(np.linspace(-1.0, 1.0, 5))
    weights = [w + 0.5 for w in model.trainable_variables]
    run = lambda w, x: tf.reduce_sum(functional_call(model, w, x[None], training=False) ** 2)
    found = tf_pfor.vmap(tf_pfor.grad(run), in_axes=(None, 0))(weights, X)
    for variable, w in zip(model.trainable_variables, weights):
        variable.assign(w)
    for i, x in enumerate(X):
        with tf.GradientTape() as tape:
            y = tf.reduce_sum(model(x[None], training=False) ** 2)
        for a, b in zip(found, tape.gradient(y, model.trainable_variables), strict=True):
            close(a[i], b, rtol=1e-4, atol=1e-4)


def test_a_nest_and_a_subclass():
    models = [gate() for _ in range(K)]
    x = {"a": X, "b": 2 * X}
    found = tf_pfor.vmap(lambda v: functional_call(models[0], v, x))(stack(models))
    for i, model in enumerate(models):
        for name, y in model(x).items():
            close(found[name][i], y)


def test_wrong_values():
    model = dense(0)
    variables = stack([model])
    with pytest.raises(ArgumentError, match="members of a stack are mapped"):
        functional_call(model, variables, X)
    with pytest.raises(ArgumentError, match="a pair of lists"):
        functional_call(model, model.trainable_variables[:1], X)
    with pytest.raises(ArgumentError, match="was not built"):
        functional_call(keras.layers.Dense(2), ([], []), X)
    with pytest.raises(ArgumentTypeError, match="a Keras model or layer"):
        stack([tf.exp])


class NoConfig(keras.layers.Layer):
    def __init__(self, fn):
        super().__init__()
        self.fn = fn

    def call(self, x):
        return self.fn(x)


@pytest.mark.parametrize(
    ("models", "text"),
    [
        (list, "at least one model"),
        (lambda: dense(0), "at least one model"),
        (lambda: [dense(0), keras.layers.Dense(2)], "was not built"),
        (lambda: [dense(0), dense(1, rate=0.5)], "differ in their class or config"),
        (lambda: [dense(0), gate()], "differ in their class or config"),
        (lambda: [gate(2), gate(3)], "differ in their class or config"),
    ],
)
def test_models_that_are_not_alike(models, text):
    made = models()
    for function in (stack, Ensemble):
        with pytest.raises(ArgumentError, match=text):
            function(made)


def test_models_with_other_frozen_layers():
    models = [dense(0), dense(1)]
    models[1].layers[0].trainable = False
    with pytest.raises(ArgumentError, match="others are trainable"):
        stack(models)


class MadeUpConfig(keras.Model):
    """Keras has scale=1 in its config, whatever it is."""

    def __init__(self, scale=1.0):
        super().__init__()
        self.scale = scale
        self.dense = keras.layers.Dense(2)

    def call(self, x):
        return self.dense(x) * self.scale


def test_models_without_a_config():
    for models in (
        [NoConfig(tf.exp), NoConfig(tf.sin)],
        [MadeUpConfig(1.0), MadeUpConfig(2.0)],
        [keras.Sequential([MadeUpConfig(1.0)]), keras.Sequential([MadeUpConfig(2.0)])],
    ):
        for model in models:
            model(X)
        with pytest.raises(ArgumentError, match="no config"):
            stack(models)


# -- Ensemble --------------------------------------------------------------------------------------


def test_each_member_is_trained_as_if_alone():
    ensemble = Ensemble([dense(i) for i in range(K)])
    history = fitted(ensemble)
    alone = [dense(i) for i in range(K)]
    losses = [fitted(model).history["loss"] for model in alone]
    close(history.history["loss"], np.mean(losses, 0))
    for i, model in enumerate(alone):
        member = ensemble.member(i)
        pairwise(close, member.get_weights(), model.get_weights())
        close(ensemble.members(X)[i], model(X))
        close(member(X), model(X))
    close(ensemble.predict(X, verbose=0), np.mean([m(X) for m in alone], 0))
    close(ensemble.evaluate(X, Y, verbose=0), np.mean([m.evaluate(X, Y, verbose=0) for m in alone]))


def test_weights_of_examples_and_metrics():
    weights = RNG.uniform(size=[24]).astype(np.float32)
    ensemble = Ensemble([dense(i) for i in range(K)])
    ensemble.compile(keras.optimizers.SGD(0.1), "mse", metrics=["mae"])
    history = ensemble.fit(X, Y, 24, sample_weight=weights, shuffle=False, verbose=0).history
    alone = [dense(i) for i in range(K)]
    for model in alone:
        model.compile(keras.optimizers.SGD(0.1), "mse")
        model.fit(X, Y, 24, sample_weight=weights, shuffle=False, verbose=0)
    assert set(history) == {"loss", "mae"}
    for i, model in enumerate(alone):
        close(ensemble.members(X)[i], model(X), rtol=1e-4, atol=1e-5)
    mae = ensemble.evaluate(X, Y, verbose=0, return_dict=True)["mae"]
    close(mae, np.abs(np.mean([m(X) for m in alone], 0) - Y).mean(), rtol=1e-4)


def test_data_of_each_member():
    picks = RNG.integers(0, 24, size=[24, K])  # bootstrap samples
    ensemble = Ensemble([dense(i) for i in range(K)], data="own")
    fitted(ensemble, X[picks], Y[picks])
    for i in range(K):
        model = dense(i)
        fitted(model, X[picks[:, i]], Y[picks[:, i]])
        pairwise(close, ensemble.member(i).get_weights(), model.get_weights())


def test_data_of_each_member_without_weights():
    """The first losses, with and without weights of examples: Keras gives None for no weights."""
    models = [keras.Sequential([keras.Input([4]), keras.layers.Dense(2)]) for _ in range(K)]
    x, y = (tf.stack([t[i : i + 8] for i in range(K)], 1) for t in (X, Y))
    for weights in (None, np.ones([8, K], np.float32)):
        ensemble = Ensemble(models, data="own")
        ensemble.compile("sgd", "mse", run_eagerly=True)
        found = ensemble.train_on_batch(x, y, weights)
        close(found, np.mean([(m(x[:, i]) - y[:, i]) ** 2 for i, m in enumerate(models)]))


def test_a_loss_that_is_not_reduced():
    """Gradients of its sum and the mean of what Keras reports, as of each model alone."""
    loss = keras.losses.MeanSquaredError(reduction="none")
    weights = RNG.uniform(size=[24]).astype(np.float32)
    models = [keras.Sequential([keras.Input([4]), keras.layers.Dense(2)]) for _ in range(K)]
    ensemble = Ensemble(models)
    reports = []
    for model in (ensemble, *models):
        model.compile(keras.optimizers.SGD(0.01), loss)
        history = model.fit(X, Y, 9, sample_weight=weights, shuffle=False, verbose=0).history
        reports.append([*history["loss"], model.evaluate(X, Y, 9, verbose=0)])
    close(reports[0], np.mean(reports[1:], 0))
    for i, model in enumerate(models):
        pairwise(close, ensemble.member(i).get_weights(), model.get_weights())
    ensemble = Ensemble([dense(i) for i in range(K)])  # with penalties, which Keras does not add
    ensemble.compile("sgd", loss)
    found = ensemble.evaluate(X, Y, 24, verbose=0)
    ensemble.compile("sgd", "mse")
    close(found, ensemble.evaluate(X, Y, 24, verbose=0))


def test_data_that_is_of_no_member():
    ensemble = Ensemble([dense(i) for i in range(K)], data="own")
    own = np.stack([X] * K, 1)
    with pytest.raises(ArgumentError, match=r'With data="own" inputs must be \[batch, 3, ...\]'):
        ensemble.predict(X, verbose=0)
    ensemble.compile("sgd", "mse")
    with pytest.raises(ArgumentError, match="targets must be"):
        ensemble.fit(own, Y, verbose=0)
    with pytest.raises(ArgumentError, match="sample_weight must be"):
        ensemble.fit(own, np.stack([Y] * K, 1), sample_weight=np.ones([24]), verbose=0)


def test_nests_of_inputs_and_outputs():
    models = [gate() for _ in range(K)]
    starts = [model.get_weights() for model in models]
    ensemble = Ensemble(models)
    x, y = {"a": X, "b": 2 * X}, {"product": Y, "gate": 0 * Y}
    losses = {"product": "mse", "gate": "mae"}
    ensemble.compile(keras.optimizers.SGD(0.1), losses)
    ensemble.fit(x, y, 24, verbose=0)
    for i, start in enumerate(starts):
        model = gate()
        model.set_weights(start)
        model.compile(keras.optimizers.SGD(0.1), losses)
        model.fit(x, y, 24, verbose=0)
        close(ensemble.members(x)["product"][i], model(x)["product"])
    assert {k: v.shape for k, v in ensemble.predict(x, verbose=0).items()} == {
        "product": (24, 2),
        "gate": (24, 2),
    }


def test_convolutions_and_recurrences():
    def make():
        return keras.Sequential(
            [
                keras.Input([8, 3]),
                keras.layers.Conv1D(4, 3, padding="same"),
                keras.layers.LSTM(3),
                keras.layers.Dense(2),
            ]
        )

    models = [make() for _ in range(K)]
    x = RNG.normal(size=[5, 8, 3]).astype(np.float32)
    close(Ensemble(models).members(x), np.stack([m(x) for m in models]), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("build", [dense, gate], ids=["sequential", "subclass"])
def test_saved_and_loaded(build, tmp_path):
    models = [build(2) for _ in range(K)]
    x = X if build is dense else {"a": X, "b": X}
    ensemble = Ensemble(models, name="several")
    ensemble.compile("sgd", "mse")
    if build is dense:
        ensemble.fit(X, Y, verbose=0)
    ensemble.save(tmp_path / "model.keras")
    loaded = keras.saving.load_model(tmp_path / "model.keras")
    assert (loaded.count, loaded.data, loaded.name) == (K, "shared", "several")
    pairwise(np.testing.assert_array_equal, ensemble.get_weights(), loaded.get_weights())
    pairwise(close, tf.nest.flatten(ensemble.members(x)), tf.nest.flatten(loaded.members(x)))
    if build is dense:
        loaded.fit(X, Y, verbose=0)
    ensemble.save_weights(tmp_path / "w.weights.h5")
    other = Ensemble([build(2) for _ in range(K)])
    other.load_weights(tmp_path / "w.weights.h5")
    pairwise(close, tf.nest.flatten(ensemble.members(x)), tf.nest.flatten(other.members(x)))


def test_equal_seeds_become_different_ones():
    model = keras.Sequential([keras.Input([100]), keras.layers.Dropout(0.5, seed=1)])
    drawn = Ensemble([model] * K).members(tf.ones([1, 100]), training=True).numpy()
    assert len({row.tobytes() for row in drawn}) == K


def test_calls_in_training_keep_statistics_and_seeds():
    ensemble = Ensemble([dense(i) for i in range(K)])
    alone = [dense(i) for i in range(K)]
    for _ in range(2):
        y = ensemble(X, training=True)
        close(y, np.mean([m(X, training=True) for m in alone], 0))
    close(ensemble(X), np.mean([m(X) for m in alone], 0))


def test_inside_of_other_models():
    ensemble = Ensemble([dense(i) for i in range(K)])
    inputs = keras.Input([4])
    whole = keras.Model(inputs, keras.layers.Dense(1)(ensemble(inputs)))
    assert whole(X).shape == (24, 1)
    assert len(whole.trainable_weights) == 2 + len(ensemble.trainable_weights)


def test_compiled_by_xla():
    ensemble = Ensemble([dense(i, rate=0.0) for i in range(K)], supports_jit=True)
    ensemble.compile(keras.optimizers.SGD(0.1), "mse", jit_compile=True)
    ensemble.fit(X, Y, 24, shuffle=False, verbose=0)
    plain = Ensemble([dense(i, rate=0.0) for i in range(K)])
    plain.compile(keras.optimizers.SGD(0.1), "mse")
    plain.fit(X, Y, 24, shuffle=False, verbose=0)
    close(ensemble.members(X), plain.members(X), rtol=1e-4, atol=1e-5)


linear = lambda **options: keras.Sequential([keras.Input([4]), keras.layers.Dense(2, **options)])


@keras.saving.register_keras_serializable("tests")
class Centred(keras.optimizers.SGD):
    """Takes off the mean of a gradient, which all members share in an ensemble."""

    def update_step(self, gradient, variable, learning_rate):
        centred = gradient - keras.ops.mean(gradient)
        super().update_step(centred, variable, learning_rate)


@keras.saving.register_keras_serializable("tests")
class Halted(keras.optimizers.SGD):
    """Skips a step where a gradient is not finite, or too large for any trial."""

    def update_step(self, gradient, variable, learning_rate):
        size = keras.ops.sum(gradient * gradient)
        super().update_step(
            keras.ops.where(size < 1e30, gradient, 0.0 * variable), variable, learning_rate
        )


class Unknown(keras.optimizers.SGD):
    """It has no config."""

    def __init__(self, rate):
        super().__init__(rate)


@keras.saving.register_keras_serializable("tests")
class Plain(keras.optimizers.Adam):
    """It updates each element by itself."""


OF = keras.optimizers
REFUSED = {
    "clipnorm": (lambda: OF.SGD(clipnorm=0.1), "SGD has clipnorm=0.1"),
    "global": (lambda: OF.Adam(global_clipnorm=1e9), "Adam has global_clipnorm"),
    "lamb": (OF.Lamb, "Lamb updates a member"),
    "adafactor": (OF.Adafactor, "Adafactor updates a member"),
    "muon": (getattr(OF, "Muon", OF.Lamb), "(Muon|Lamb) updates a member"),
    "loss scale": (lambda: OF.LossScaleOptimizer(OF.SGD()), "LossScaleOptimizer skips"),
    "subclass": (Centred, "Centred updates a member"),
    "limit": (Halted, "Halted updates a member"),
    "no config": (lambda: Unknown(0.1), "Unknown cannot be copied"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_optimizers_that_mix_members(name):
    make, text = REFUSED[name]
    ensemble = Ensemble([linear(), linear()])
    with pytest.raises(ArgumentError, match=text):
        ensemble.compile(make(), "mse")


def test_optimizers_that_do_not_mix_members():
    rate = keras.optimizers.schedules.CosineDecay(0.0, 10, warmup_target=0.1, warmup_steps=5)
    for optimizer in (
        Plain(rate, weight_decay=0.1, use_ema=True, gradient_accumulation_steps=2),
        keras.optimizers.SGD(clipvalue=0.1),
        "rmsprop",
    ):
        Ensemble([linear(), linear()]).compile(optimizer, "mse")
    with tf.distribute.MirroredStrategy(["CPU:0"]).scope():
        Ensemble([linear(), linear()]).compile(Plain(), "mse")


def test_weight_decay_of_each_member():
    models = [linear(), linear()]
    starts = [model.get_weights() for model in models]
    for names in (["bias"], ["dense[_0-9]*/kernel"]):  # the slash is in the name of no stack
        made = [keras.optimizers.SGD(0.1, weight_decay=0.5) for _ in range(2)]
        for optimizer in made:
            optimizer.exclude_from_weight_decay(var_names=names)
        ensemble = Ensemble(models)
        ensemble.compile(made[0], "mse")
        ensemble.fit(X, Y, 24, epochs=2, verbose=0)
        models[1].set_weights(starts[1])
        models[1].compile(made[1], "mse")
        models[1].fit(X, Y, 24, epochs=2, verbose=0)
        pairwise(close, ensemble.member(1).get_weights(), models[1].get_weights())
        models[1].set_weights(starts[1])


def test_scaled_losses():
    keras.config.set_dtype_policy("mixed_float16")
    try:
        ensemble = Ensemble([linear(), linear()])
    finally:
        keras.config.set_dtype_policy("float32")
    with pytest.raises(ArgumentError, match="loss_scale_factor"):
        ensemble.compile("sgd", "mse")
    ensemble.compile(keras.optimizers.SGD(loss_scale_factor=64.0), "mse", auto_scale_loss=False)


def test_constraints_of_each_member():
    def make():
        return linear(kernel_constraint=keras.constraints.MaxNorm(0.5), bias_constraint="NonNeg")

    models = [make(), make()]
    starts = [model.get_weights() for model in models]
    ensemble = Ensemble(models)
    fitted(ensemble)
    for i, start in enumerate(starts):
        alone = make()
        alone.set_weights(start)
        fitted(alone)
        pairwise(close, ensemble.member(i).get_weights(), alone.get_weights())


@grid(build=[linear, gate], data=["shared", "own"])
def test_exported(build, data, tmp_path):
    x = X if build is linear else {"a": X, "b": X}
    if data == "own":
        x = tf.nest.map_structure(lambda a: np.stack([a, 2 * a], 1), x)
    ensemble = Ensemble([build(), build()], data=data)
    if build is gate:
        with pytest.raises(ArgumentError, match="inputs of the ensemble are unknown"):
            ensemble.export(str(tmp_path / "m"), verbose=False)
        for count in (3, 5):
            ensemble(tf.nest.map_structure(lambda a, count=count: a[:count], x))
    ensemble.export(str(tmp_path / "m"), verbose=False)
    loaded = tf.saved_model.load(str(tmp_path / "m"))
    served = loaded.serve(tf.nest.map_structure(tf.constant, x))
    tf.nest.map_structure(close, served, ensemble(x))


def test_wrong_use():
    with pytest.raises(ArgumentError, match="data must be"):
        Ensemble([dense(0)], data="mine")
    ensemble = Ensemble([dense(0)])
    with pytest.raises(ArgumentError, match="number must be"):
        ensemble.member(1)


METRICS = [
    keras.metrics.AUC,
    keras.metrics.BinaryAccuracy,
    keras.metrics.Precision,
    lambda: keras.metrics.SensitivityAtSpecificity(0.5),
]


@pytest.mark.parametrize("make", METRICS)
def test_replicates_of_a_metric_are_metrics_alone(make):
    metric, rng = make(), np.random.default_rng(0)
    labels, scores = rng.integers(0, 2, [2, 30]), rng.random([2, 30])
    weights = rng.poisson(1.0, [4, 2, 30]).astype(np.float32)

    def update(state, weights, labels, scores):
        return metric.stateless_update_state(state, labels, scores, sample_weight=weights)

    state = [tf.repeat(v[None], 4, 0) for v in metric.stateless_reset_state()]
    for k in range(2):
        over = tf_pfor.vmap(update, in_axes=(0, 0, None, None), fallback="error")
        state = over(state, weights[:, k], labels[k], scores[k])
    found = tf_pfor.vmap(metric.stateless_result, fallback="error")(state)
    for row, own in zip(found, weights, strict=True):
        alone = make()
        for k in range(2):
            alone.update_state(labels[k], scores[k], sample_weight=own[k])
        np.testing.assert_allclose(row, alone.result(), 1e-6)
