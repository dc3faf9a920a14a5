"""Samples of tf_pfor/converters/sorting.py."""

SAMPLES = []
