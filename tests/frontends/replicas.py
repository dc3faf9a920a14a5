"""Trains on one replica and on two, and says whether both are the same.

It is a process of its own, since TensorFlow's devices are made once.
"""

import keras
import numpy as np
import tensorflow as tf

import tf_pfor

X = np.random.default_rng(0).normal(size=[12, 200]).astype("float32")
Y = np.zeros([12, 50], "float32")


def step(devices, noise):
    """The loss, and the change of the kernel in one step of SGD."""
    keras.utils.set_random_seed(0)
    with tf.distribute.MirroredStrategy(devices).scope():
        net = keras.Sequential(
            [keras.Input([200]), keras.layers.Dense(50, kernel_regularizer="l2")]
        )
        model = tf_pfor.keras.PerExampleGradientModel(
            net, clip_norm=1.0, noise_multiplier=noise, seed=1
        )
        model.compile(keras.optimizers.SGD(1.0), "mse")
    before = net.get_weights()[0]
    (loss,) = model.fit(X, Y, batch_size=12, verbose=0).history["loss"]
    return loss, net.get_weights()[0] - before


def main():
    """Prints "the same", or fails."""
    (cpu,) = tf.config.list_physical_devices("CPU")
    two = [tf.config.LogicalDeviceConfiguration()] * 2
    tf.config.set_logical_device_configuration(cpu, two)
    loss, change = step(["CPU:0"], 0.0)
    loss_of_both, change_of_both = step(["CPU:0", "CPU:1"], 0.0)
    np.testing.assert_allclose(loss_of_both, loss, rtol=1e-5)
    np.testing.assert_allclose(change_of_both, change, rtol=1e-4, atol=1e-6)
    noise = step(["CPU:0", "CPU:1"], 3.0)[1] - change
    np.testing.assert_allclose(noise.std(), 3.0 / 12, rtol=0.05)  # of 10,000 numbers
    print("the same")


if __name__ == "__main__":
    main()
