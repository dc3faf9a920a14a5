"""Samples of tf_pfor/converters/debug.py."""

SAMPLES = []
