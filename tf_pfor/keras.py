"""Keras 3: layers and models written for one example (docs/keras.md)."""

from tf_pfor.frontends.keras import PerExampleGradientModel, Vectorized, explain

__all__ = ["PerExampleGradientModel", "Vectorized", "explain"]
