"""Samples of tf_pfor/converters/sparse."""
