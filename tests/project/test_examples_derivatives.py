"""The examples of derivatives at small sizes: their numbers, and that they do what they say."""

import keras
import numpy as np
import pytest
import tensorflow as tf

import tf_pfor
from examples import demo_digits, dp_sgd, heat_equation, rnn_fixed_points

# -- fixed points of a recurrent network -----------------------------------------------------------


def test_jacobians_are_numerical_ones():
    gru = rnn_fixed_points.make_gru(4)
    points = np.random.default_rng(3).uniform(-1, 1, [3, 4])
    found = rnn_fixed_points.jacobians(gru, points)
    for point, jacobian in zip(points, found):
        columns = [
            rnn_fixed_points.step(gru, tf.constant(point + e))
            - rnn_fixed_points.step(gru, tf.constant(point - e))
            for e in np.eye(4) * 1e-6
        ]
        np.testing.assert_allclose(jacobian, np.stack(columns, 1) / 2e-6, rtol=1e-6, atol=1e-8)


def test_points_stay_where_they_are(tmp_path, capsys):
    picture = tmp_path / "eigenvalues.png"
    points, eigenvalues = rnn_fixed_points.main(state=6, count=16, steps=300, picture=picture)
    gru = rnn_fixed_points.make_gru(6)
    assert len(points) >= 1
    assert picture.read_bytes().startswith(b"\x89PNG")
    assert f"{len(points)} fixed points" in capsys.readouterr().out
    for point, values in zip(points, eigenvalues, strict=True):
        moved = rnn_fixed_points.step(gru, tf.constant(point))
        np.testing.assert_allclose(moved, point, atol=1e-9)
        # What the eigenvalues say: a small error grows or decays as the largest does.
        error = np.random.default_rng(0).normal(size=6) * 1e-7
        state = point + error
        for _ in range(20):
            state = rnn_fixed_points.step(gru, tf.constant(state)).numpy()
        grown = np.linalg.norm(state - point) / np.linalg.norm(error)
        assert (grown > 1) == (np.abs(values).max() > 1)


# -- the heat equation -----------------------------------------------------------------------------


def test_residual_is_numerical():
    """Second differences of the temperature, in float64."""
    weights = [tf.Variable(tf.cast(w, tf.float64)) for w in heat_equation.make_weights(5)]
    weights[-1].assign([0.3])
    point, time, h = np.array([0.3, 0.6]), 0.4, 1e-4

    def at(p, t):
        return float(heat_equation.temperature(weights, tf.constant(p), tf.constant(t, tf.float64)))

    rate = (at(point, time + h) - at(point, time - h)) / (2 * h)
    bend = sum(at(point + e, time) + at(point - e, time) for e in np.eye(2) * h)
    bend = (bend - 4 * at(point, time)) / h**2
    residual = tf.function(lambda p, t: heat_equation.residual(weights, p, t), autograph=False)
    found = residual(tf.constant(point), tf.constant(time, tf.float64))
    np.testing.assert_allclose(found, rate - heat_equation.DIFFUSIVITY * bend, rtol=1e-5)


def test_the_solution_is_one():
    """The equation's residual of the exact solution, which has the edges and the start."""
    point, time, h = np.array([[0.3, 0.6]]), np.array([0.4]), 1e-4
    u = heat_equation.solution
    rate = (u(point, time + h) - u(point, time - h)) / (2 * h)
    bend = sum(u(point + e, time) + u(point - e, time) for e in np.eye(2) * h)
    bend = (bend - 4 * u(point, time)) / h**2
    np.testing.assert_allclose(rate, heat_equation.DIFFUSIVITY * bend, rtol=1e-6)


def test_the_network_learns_the_solution(capsys):
    first, last, error = heat_equation.main(width=8, n=64, steps=150)
    assert last < first / 20
    assert error < 0.2
    assert "largest difference" in capsys.readouterr().out


# -- DP-SGD --------------------------------------------------------------------------------


def dp_model(chunk_size=None, clip_norm=0.5, noise_multiplier=0.0):
    keras.utils.set_random_seed(1)
    model = tf_pfor.keras.PerExampleGradientModel(
        demo_digits.make_model(),
        clip_norm=clip_norm,
        noise_multiplier=noise_multiplier,
        chunk_size=chunk_size,
    )
    model.compile(
        keras.optimizers.SGD(1.0), keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    )
    return model


def digits(n):
    images, labels = demo_digits.load()
    return tf.constant(images[:n]), tf.constant(labels[:n])


@pytest.mark.parametrize("chunk_size", [None, 4, 6])
def test_clipped_sums(chunk_size):
    """Against gradients of one image at a time; one alone never has more than the bound."""
    model = dp_model(chunk_size)
    x, y = digits(12)
    expected = [np.zeros(v.shape) for v in model.trainable_variables]
    for image, label in zip(x, y):
        with tf.GradientTape() as tape:
            loss = model.compute_loss(y=label[None], y_pred=model(image[None]))
        grads = tape.gradient(loss, [v.value for v in model.trainable_variables])
        scale = min(1.0, 0.5 / float(tf.linalg.global_norm(grads)))
        expected = [e + scale * g.numpy() for e, g in zip(expected, grads)]
        alone, *_ = model.gradients(image[None], label[None])
        assert float(tf.linalg.global_norm(alone)) <= 0.5 * (1 + 1e-5)
    found, losses, outputs = model.gradients(x, y)
    for f, e in zip(found, expected):
        np.testing.assert_allclose(12 * f, e, rtol=1e-4, atol=1e-5)
    assert losses.shape == [12]
    np.testing.assert_allclose(outputs, model(x), rtol=1e-4, atol=1e-5)


def test_noise_has_the_size_that_was_asked_for():
    """SGD with rate 1: the weights move by the noise, of deviation clip * multiplier / batch."""
    moved = []
    for multiplier in (0.0, 100.0):
        model = dp_model(noise_multiplier=multiplier)
        x, y = digits(8)
        model.fit(x, y, batch_size=8, epochs=1, verbose=0)
        moved.append(np.concatenate([np.ravel(v) for v in model.trainable_variables]))
    np.testing.assert_allclose(np.std(moved[1] - moved[0]), 0.5 * 100 / 8, rtol=0.05)


def test_training_learns_digits(capsys):
    losses, accuracy = dp_sgd.main(count=512, epochs=4, batch=32, noise_multiplier=0.1)
    assert losses[-1] < losses[0] / 2
    assert accuracy > 0.7
    assert "digits held out" in capsys.readouterr().out
