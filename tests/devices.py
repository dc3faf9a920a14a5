"""Choices of tests that depend on the devices of this machine."""

import sys

import pytest
import tensorflow as tf

HAS_GPU = bool(tf.config.list_physical_devices("GPU"))

of_cpus = pytest.mark.skipif(HAS_GPU, reason="what is done so on CPUs only")


def run_on_two_replicas(checks):
    """Prints the name of each check that holds on two virtual CPUs, and other errors on stderr.

    TensorFlow makes its devices once in a process, so checks run in a process of their own.
    """
    (cpu,) = tf.config.list_physical_devices("CPU")
    two = [tf.config.LogicalDeviceConfiguration()] * 2
    tf.config.set_logical_device_configuration(cpu, two)
    strategy = tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
    for check in checks:
        try:
            check(strategy)
        except Exception as why:  # the other checks run
            print(f"{check.__name__}: {why}"[:2000], file=sys.stderr, flush=True)
        else:
            print(check.__name__, flush=True)
