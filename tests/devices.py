"""Choices of tests that depend on the devices of this machine."""

import pytest
import tensorflow as tf

HAS_GPU = bool(tf.config.list_physical_devices("GPU"))

of_cpus = pytest.mark.skipif(HAS_GPU, reason="what is done so on CPUs only")
