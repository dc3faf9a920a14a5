"""What the devices of this machine decide in tests."""

import pytest
import tensorflow as tf

HAS_GPU = bool(tf.config.list_physical_devices("GPU"))

of_cpus = pytest.mark.skipif(HAS_GPU, reason="what is done so on CPUs only")
