"""Samples of tf_pfor/converters/linalg.py."""

SAMPLES = []
