"""tf_pfor: TensorFlow code written for one example runs on a whole batch at once."""

from tf_pfor import converters as converters
from tf_pfor.api import for_loop, pfor, vectorized_map
from tf_pfor.errors import (
    ArgumentError,
    ArgumentTypeError,
    CannotVectorize,
    ConversionError,
    FallbackWarning,
    NotVectorizableError,
    PforError,
    RegistrationError,
)
from tf_pfor.registry import RegisterPFor

__all__ = [
    "ArgumentError",
    "ArgumentTypeError",
    "CannotVectorize",
    "ConversionError",
    "FallbackWarning",
    "NotVectorizableError",
    "PforError",
    "RegisterPFor",
    "RegistrationError",
    "for_loop",
    "pfor",
    "vectorized_map",
]
