"""Samples of tf_pfor/converters/segment.py."""

SAMPLES = []
