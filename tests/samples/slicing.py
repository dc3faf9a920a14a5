"""Samples of tf_pfor/converters/slicing.py."""

SAMPLES = []
