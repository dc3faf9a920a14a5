"""Samples of tf_pfor/converters/calls.py."""

SAMPLES = []
