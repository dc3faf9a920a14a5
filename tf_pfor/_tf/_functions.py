"""Functions: what ``tf.function`` makes, AutoGraph, and Python functions that a graph calls."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tensorflow as tf
from tensorflow.python.autograph.core import ag_ctx as _ag_ctx
from tensorflow.python.autograph.core import converter as _ag_converter
from tensorflow.python.eager.polymorphic_function import autograph_util as _autograph_util
from tensorflow.python.eager.polymorphic_function import concrete_function as _concrete
from tensorflow.python.eager.polymorphic_function import polymorphic_function as _polymorphic
from tensorflow.python.ops import script_ops

PolymorphicFunction: Any = _polymorphic.Function  # the class of what tf.function returns


def autographed(function: Any) -> Any:
    """``function`` with Python control flow on tensors converted, as tf.function does.

    Also where the caller is not converted itself, as our own entry points are not.
    """
    converted = _autograph_util.py_func_from_autograph(function)
    options = _ag_converter.ConversionOptions(recursive=True)

    def call(*args: Any, **kwargs: Any) -> Any:
        with _ag_ctx.ControlStatusCtx(status=_ag_ctx.Status.ENABLED, options=options):
            return converted(*args, **kwargs)

    vars(call)["__tf_pfor_autographed__"] = (call, function)
    return call


def call_flat(concrete: Any, inputs: Sequence[tf.Tensor], captured: Sequence[tf.Tensor]) -> Any:
    """Calls a concrete function with tensors, and with other ones than it captured."""
    return concrete._call_flat(inputs, captured)


def is_gradient(op: Any) -> bool:
    """Whether an op is the gradient of a ``tf.py_function``: it asks what that left behind."""
    if op.type != "EagerPyFunc":
        return False
    registry: Any = script_ops._py_funcs
    function = registry._funcs.get(op.get_attr("token").decode())
    return bool(getattr(function, "_is_grad_func", False))


def signature_of(function: Any) -> tuple[tuple[Any, ...] | None, dict[str, Any]]:
    """Positional and named arguments of a function that is made for some: (None, {}) for others.

    Those of a concrete function, or the ``input_signature`` of a ``tf.function``.
    """
    if isinstance(function, _concrete.ConcreteFunction):
        found: Any = function.structured_input_signature
        return tuple(found[0]), dict(found[1])
    if type(function) is PolymorphicFunction and function.input_signature is not None:
        return tuple(function.input_signature), {}
    return None, {}
