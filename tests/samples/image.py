"""Samples of tf_pfor/converters/image.py."""

SAMPLES = []
