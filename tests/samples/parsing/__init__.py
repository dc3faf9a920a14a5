"""Samples of tf_pfor/converters/strings."""
