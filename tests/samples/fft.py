"""Samples of tf_pfor/converters/fft.py."""

SAMPLES = []
