"""TensorFlow's knowledge of the devices of this process, and of strategies over them."""

from __future__ import annotations

import contextlib
from collections.abc import Generator

import tensorflow as tf
from tensorflow.python import pywrap_tfe
from tensorflow.python.client import pywrap_tf_session
from tensorflow.python.eager import context


def memory_limit(name: str) -> int:
    """Bytes that TensorFlow may take of the device whose name ends so; 0 if it has no such one."""
    current = context.context()
    current.ensure_initialized()
    devices = pywrap_tfe.TFE_ContextListDevices(current._handle)
    try:
        for i in range(pywrap_tfe.TF_DeviceListCount(devices)):
            if pywrap_tfe.TF_DeviceListName(devices, i).endswith(f":{name}"):
                return int(pywrap_tf_session.TF_DeviceListMemoryBytes(devices, i))
        return 0
    finally:
        pywrap_tfe.TF_DeleteDeviceList(devices)


@contextlib.contextmanager
def outside_of_strategies() -> Generator[None]:
    """A scope in which ops run eagerly, under no ``tf.distribute`` strategy."""
    with tf.Graph().as_default(), context.eager_mode():  # a new graph has no strategy
        yield
