"""The question whether kernels for rows of different lengths run: on CPUs, and not under XLA."""

from __future__ import annotations

import functools

import tensorflow as tf

from tf_pfor import _tf


def may_run() -> bool:
    """Whether these kernels run here, and nobody has to convert them."""
    return not is_converted() and not _has_gpu()


def is_converted() -> bool:
    """Whether XLA, or an outer map, converts the ops that are emitted."""
    graph = tf.compat.v1.get_default_graph()
    return _tf.in_xla_context(graph) or _tf.in_body(graph)


@functools.cache
def _has_gpu() -> bool:
    return bool(tf.config.list_physical_devices("GPU"))
