"""Samples of tf_pfor/converters/math."""
