"""Samples of tf_pfor/converters/cond.py."""

SAMPLES = []
