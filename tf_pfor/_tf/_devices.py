"""TensorFlow's knowledge of the devices of this process, and of strategies over them."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Generator

import tensorflow as tf
from tensorflow.python import pywrap_tfe
from tensorflow.python.client import pywrap_tf_session
from tensorflow.python.eager import context
from tensorflow.python.framework import kernels

from tf_pfor import _tf


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


def why_not_compiled(op: tf.Operation) -> str:
    """The reason if XLA cannot compile an op, or one in a function of it; "" if it may."""
    context.context().ensure_initialized()  # XLA's kernels are registered with the devices
    if not _may_compile("AddV2"):
        return ""
    inner = (o for graph in _tf.functions_of(op) for o in graph.get_operations())
    if reason := next(filter(None, map(why_not_compiled, filter(_is_left, inner))), ""):
        return reason
    where = f"{op.type} '{op.name}' ({_tf.user_line(op) or 'line unknown'})"
    if op.type in _tf.PYTHON_OPS:
        return f"it calls Python, and under jit_compile XLA cannot: {where}"
    return "" if _may_compile(op.type) else f"under jit_compile, XLA has no kernel for {where}"


def _is_left(op: tf.Operation) -> bool:
    """Whether a kernel is needed: XLA computes what it knows without its own."""
    schema = _tf.schema(op.type)
    is_stateful = schema is not None and schema.is_stateful
    return is_stateful or any(t.op.type != "Const" for t in op.inputs)


@functools.cache
def _may_compile(op_type: str) -> bool:
    """Whether XLA has a kernel for an op, or nobody has."""
    devices = {k.device_type for k in kernels.get_registered_kernels_for_op(op_type).kernel}
    is_rewritten = op_type in ("Enter", "Exit", "LoopCond", "Merge", "NextIteration", "Switch")
    return is_rewritten or not devices or any(device.startswith("XLA") for device in devices)
