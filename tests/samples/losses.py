"""Samples of tf_pfor/converters/losses.py."""

SAMPLES = []
