"""Samples of tf_pfor/converters/normalization.py."""

SAMPLES = []
