"""Samples of tf_pfor/converters/pool.py."""

SAMPLES = []
