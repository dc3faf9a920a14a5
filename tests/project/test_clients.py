"""Libraries that call TensorFlow's vectorizer, under ``drop_in`` (extra "clients").

Each is compared with itself where a Python loop stands in the place of the vectorizer, and
TensorFlow's own is closed.
"""

import contextlib
import importlib
import importlib.util
import sys
import types
import warnings
from unittest import mock

import numpy as np
import pytest
import tensorflow as tf

from tests.comparisons import gradient_of
from tests.peer import DROP_IN, peer
from tf_pfor import FallbackWarning, drop_in

__all__ = ["peer"]  # a fixture

pytestmark = [
    pytest.mark.usefixtures("peer"),
    pytest.mark.filterwarnings("default"),  # theirs; ours are errors, see ``agree``
]


def part_of(name, *packages):
    """A module of a library, without running the ``__init__`` of ``packages``.

    Theirs import what does not exist with this TensorFlow, and is not needed here. Skips the test
    where the library, or what it needs, is not installed.
    """
    for package in packages:
        if package in sys.modules:
            continue
        root = importlib.util.find_spec(package)
        if root is None:
            pytest.skip(f"{package} is not installed (extra 'clients')")
        stub = types.ModuleType(package)
        stub.__path__ = list(root.submodule_search_locations)
        sys.modules[package] = stub
    try:
        return importlib.import_module(name)
    except ImportError as why:
        pytest.skip(f"{name} needs what is not installed (extra 'clients'): {why}")


def _stacked(rows):
    def join(*leaves):
        dense = [tf.convert_to_tensor(x) for x in leaves]
        return tf.stack(dense)

    return tf.nest.map_structure(join, *rows)


def _looped_map(fn, elems, *_, **__):
    leaves = [tf.convert_to_tensor(x) for x in tf.nest.flatten(elems)]
    n = max(int(x.shape[0]) for x in leaves)
    one = tf.function(lambda *row: fn(tf.nest.pack_sequence_as(elems, row)), autograph=False)
    return _stacked([one(*[x[i if x.shape[0] == n else 0] for x in leaves]) for i in range(n)])


def _looped_pfor(loop_fn, iters, *_, **__):
    one = tf.function(loop_fn, autograph=False)
    return _stacked([one(tf.constant(i)) for i in range(int(tf.get_static_value(iters)))])


@contextlib.contextmanager
def _looping():
    flow = "control_flow_ops"
    ours = {(flow, "vectorized_map"): _looped_map, (flow, "pfor"): _looped_pfor}
    calls = []
    counted = lambda fn: lambda *args, **kwargs: (calls.append(1), fn(*args, **kwargs))[1]
    counted_ours = {place: counted(fn) for place, fn in ours.items()}
    with mock.patch.dict(DROP_IN._OURS, counted_ours), drop_in():
        yield
    assert calls, "the client never called the vectorizer"


def agree(run, rtol=1e-4, atol=1e-5, *, may_loop=False):
    """``run()`` under drop_in gives what it gives with a loop."""
    with _looping():
        expected = tf.nest.flatten(run(), expand_composites=True)
    with drop_in(), warnings.catch_warnings():
        warnings.simplefilter("ignore" if may_loop else "error", FallbackWarning)
        found = tf.nest.flatten(run(), expand_composites=True)
    assert len(found) == len(expected) > 0
    for a, b in zip(found, expected):
        assert np.shape(a) == np.shape(b)
        np.testing.assert_allclose(a, b, rtol, atol)


# TensorFlow Probability -------------------------------------------------------------------------


@pytest.fixture
def tfp():
    return pytest.importorskip("tensorflow_probability", reason="extra 'clients'")


def _model(tfp, prior="Gamma"):
    tfd = tfp.distributions

    def model():
        scale = yield getattr(tfd, prior)(2.0, 1.0, name="scale")
        weights = yield tfd.Sample(tfd.Normal(0.0, scale), 3, name="weights")
        yield tfd.MultivariateNormalDiag(weights * 2.0, scale * tf.ones([3]), name="x")

    return tfd.JointDistributionCoroutineAutoBatched(model)


@pytest.mark.parametrize("batch", [[4], [2, 3]])
def test_joint_distribution_log_prob(tfp, batch):
    model = _model(tfp)
    rng = np.random.default_rng(0)
    values = [rng.uniform(0.5, 2.0, batch), *rng.normal(size=[2, *batch, 3])]
    values = [tf.constant(v, tf.float32) for v in values]
    agree(lambda: model.log_prob(values))
    agree(lambda: tf.function(model.log_prob)(values))
    with drop_in():
        found = model.log_prob(values)
    one = [v[(0,) * len(batch)] for v in values]
    np.testing.assert_allclose(found[(0,) * len(batch)], model.log_prob(one), 1e-5)


@pytest.mark.parametrize("batch", [[4], [2, 3]])
def test_joint_distribution_sample(tfp, batch):
    # TensorFlow chooses another algorithm for gammas in a function than for gammas in line.
    model = _model(tfp, "LogNormal")
    agree(lambda: model.sample(batch, seed=[1, 2]))
    with drop_in():
        gammas = _model(tfp).sample(batch, seed=1)
    assert gammas.x.shape == [*batch, 3]
    assert len(np.unique(gammas.scale)) == np.prod(batch)


def test_sequential_and_named(tfp):
    tfd = tfp.distributions
    named = tfd.JointDistributionNamedAutoBatched(
        {"m": tfd.Normal(0.0, 1.0), "x": lambda m: tfd.Laplace(m, 1.0)}
    )
    agree(lambda: named.sample(5, seed=[3, 4]))
    values = {"m": tf.range(5.0), "x": tf.ones([5])}
    agree(lambda: named.log_prob(values))


def test_gradient_of_a_joint_log_prob(tfp):
    model = _model(tfp)
    values = [tf.constant([0.5, 1.0, 2.0]), tf.ones([3, 3]), 2 * tf.ones([3, 3])]
    run = lambda: gradient_of(lambda: model.log_prob(values), values)
    agree(run)


def test_batch_jacobian_of_probability(tfp):
    x = tf.random.stateless_normal([4, 3], [1, 2])
    gradient = importlib.import_module("tensorflow_probability.python.math.gradient")
    agree(lambda: gradient.batch_jacobian(lambda v: tf.sin(v) * tf.reduce_sum(v, -1, True), x))


# TensorFlow Privacy -------------------------------------------------------------------------------

_PRIVACY = "tensorflow_privacy"


@pytest.mark.parametrize("threshold", [-1, 1])
def test_clip_and_aggregate(threshold):
    module = part_of(f"{_PRIVACY}.privacy.optimizers.clip_and_aggregate_gradients", _PRIVACY)
    w = tf.Variable(tf.random.stateless_normal([3, 2], [1, 2]))
    table = tf.Variable(tf.random.stateless_normal([5, 3], [3, 4]))
    ids = tf.constant([0, 3, 3, 4])

    def run():
        with tf.GradientTape(persistent=True) as tape:
            losses = tf.reduce_sum(tf.tanh(tf.gather(table, ids) @ w) ** 2, 1)
        found = module.clip_and_aggregate_gradients(
            tape, losses, [w, table], l2_norm_clip=0.1, keep_sparse_threshold=threshold
        )
        return [tf.convert_to_tensor(g) for g in found]

    agree(run)


def test_vectorized_dp_optimizer():
    name = f"{_PRIVACY}.privacy.optimizers.dp_optimizer_vectorized"
    module = part_of(name, _PRIVACY)

    def run():
        with tf.Graph().as_default():
            v = tf.compat.v1.get_variable("v", initializer=tf.constant([1.0, -2.0, 0.5]))
            x = tf.constant(np.random.default_rng(1).normal(size=[6, 3]), tf.float32)
            losses = tf.reduce_sum((x * v) ** 2, 1)
            optimizer = module.VectorizedDPSGD(
                l2_norm_clip=0.3, noise_multiplier=0.0, num_microbatches=3, learning_rate=0.1
            )
            grads = optimizer.compute_gradients(losses, [v])
            with tf.compat.v1.Session() as session:
                session.run(tf.compat.v1.global_variables_initializer())
                return session.run([g for g, _ in grads])

    agree(run)


# Two more -----------------------------------------------------------------------------------------


def test_jacobian_of_quant_finance():
    module = part_of("tf_quant_finance.math.jacobian", "tf_quant_finance", "tf_quant_finance.math")
    x = tf.random.stateless_normal([4, 3], [1, 2])
    agree(lambda: module.jacobian(lambda v: tf.math.cumsum(tf.exp(v), -1), x))
    agree(lambda: module.value_and_jacobian(tf.sin, x))


@pytest.mark.parametrize(
    ("file", "name", "options"),
    [
        ("equalization", "Equalization", {"value_range": (0, 255)}),
        ("random_channel_shift", "RandomChannelShift", {"value_range": (0, 255), "factor": 0.0}),
        ("random_gaussian_blur", "RandomGaussianBlur", {"kernel_size": 3, "factor": (1.0, 1.0)}),
    ],
)
def test_layers_of_keras_cv(file, name, options):
    parts = ["keras_cv", "keras_cv.src", "keras_cv.src.layers", "keras_cv.src.layers.preprocessing"]
    module = part_of(f"{parts[-1]}.{file}", *parts)
    images = tf.random.stateless_uniform([3, 16, 12, 3], [1, 2], 0, 255)
    layer = getattr(module, name)(**options)
    agree(lambda: layer(images, training=True), may_loop=True)
