"""Samples of tf_pfor/converters/lists."""
