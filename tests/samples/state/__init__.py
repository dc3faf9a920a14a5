"""Samples of tf_pfor/converters/state."""
