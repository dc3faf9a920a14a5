"""Keras 3: layers and models written for one example (docs/keras.md).

``_layer`` is the layer. ``_example`` runs the wrapped layer or function on one example. ``_rows``
cuts rows by masks, and makes tensors and masks of results. ``_specs`` has shapes and dtypes.
``_gradients`` is the model of clipped gradients. ``_ensemble`` has several models at once.
``_scopes`` is all that we use of Keras beyond its API.
"""

from tf_pfor.core.errors import ArgumentError as _ArgumentError
from tf_pfor.frontends.keras._scopes import keras as _keras

if _keras.backend.backend() != "tensorflow":
    raise _ArgumentError(
        "tf_pfor.keras works with the TensorFlow backend of Keras. Found: the backend "
        f"{_keras.backend.backend()!r}. Set the environment variable KERAS_BACKEND=tensorflow "
        "before Keras is imported."
    )

from tf_pfor.frontends.keras._ensemble import Ensemble, Variables, functional_call, stack
from tf_pfor.frontends.keras._gradients import PerExampleGradientModel
from tf_pfor.frontends.keras._layer import Vectorized, explain

__all__ = [
    "Ensemble",
    "PerExampleGradientModel",
    "Variables",
    "Vectorized",
    "explain",
    "functional_call",
    "stack",
]
