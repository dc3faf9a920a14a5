"""Keras 3: layers and models written for one example (docs/keras.md)."""

from tf_pfor._tf import _functions as _functions
from tf_pfor.frontends.keras import (
    Ensemble,
    PerExampleGradientModel,
    Variables,
    Vectorized,
    explain,
    functional_call,
    stack,
)

__all__ = [
    "Ensemble",
    "PerExampleGradientModel",
    "Variables",
    "Vectorized",
    "explain",
    "functional_call",
    "stack",
]

_functions.leave_to_python(globals())
