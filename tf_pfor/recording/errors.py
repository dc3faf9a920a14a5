"""Errors of recorded calls, which happen later than the calls."""

from __future__ import annotations

import contextlib
from typing import Final

import tensorflow as tf

from tf_pfor.core.nests import Nest

OF_VALUES: Final = (
    tf.errors.DataLossError,
    tf.errors.FailedPreconditionError,
    tf.errors.InvalidArgumentError,
    tf.errors.NotFoundError,
    tf.errors.OutOfRangeError,
    tf.errors.UnknownError,
)
"""Errors that an op has for some values, and not for others."""


def with_text(error: Exception, text: str) -> Exception:
    """The error with one more line: another error, or the same one with a note."""
    found: Nest = error
    if isinstance(error, tf.errors.OpError):
        with contextlib.suppress(TypeError):
            return type(found)(found.node_def, found.op, f"{found.message}\n{text}")
    if hasattr(found, "add_note"):
        found.add_note(text)
    return error
