"""Samples of tf_pfor/converters/arrays."""
