"""Samples of tf_pfor/converters/while_loop.py."""

SAMPLES = []
