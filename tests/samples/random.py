"""Samples of tf_pfor/converters/random.py."""

SAMPLES = []
