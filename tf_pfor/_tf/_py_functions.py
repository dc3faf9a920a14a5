"""What TensorFlow keeps of Python functions that a graph calls."""

from __future__ import annotations

from typing import Any

from tensorflow.python.ops import script_ops


def is_gradient(op: Any) -> bool:
    """Whether an op is the gradient of a ``tf.py_function``: it asks what that left behind."""
    if op.type != "EagerPyFunc":
        return False
    registry: Any = script_ops._py_funcs
    function = registry._funcs.get(op.get_attr("token").decode())
    return bool(getattr(function, "_is_grad_func", False))
