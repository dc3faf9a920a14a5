"""Samples of tf_pfor/converters/gather_scatter.py."""

SAMPLES = []
