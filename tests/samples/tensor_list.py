"""Samples of tf_pfor/converters/tensor_list.py."""

SAMPLES = []
