"""Samples of tf_pfor/converters/variables.py."""

SAMPLES = []
