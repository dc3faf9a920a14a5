"""Samples of tf_pfor/converters/conv.py."""

SAMPLES = []
