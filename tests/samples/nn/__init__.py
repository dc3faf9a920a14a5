"""Samples of tf_pfor/converters/nn."""
