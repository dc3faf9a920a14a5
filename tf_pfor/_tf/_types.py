"""Composite types that say how many of one kind become one that is batched."""

from __future__ import annotations

from typing import Any

import tensorflow as tf
from tensorflow.python.framework import type_spec as _type_spec

COMPOSITE: Any = tf.__internal__.CompositeTensor


def batch_encoder(x: Any, *, of_rows: bool = False) -> Any:
    """What turns a composite into tensors to stack, None if these are simply its parts.

    Args:
      x: a composite.
      of_rows: whether it is one that is batched, to be taken apart into rows. The encoders of
        old types (operators) do that by their parts.
    """
    if isinstance(x, (tf.data.Dataset, tf.IndexedSlices)):
        return None
    found = getattr(tf.type_spec_from_value(x), "__batch_encoder__", None)
    is_old = isinstance(found, _type_spec.LegacyTypeSpecBatchEncoder)
    if type(found) is tf.experimental.ExtensionTypeBatchEncoder or (of_rows and is_old):
        return None
    return found
