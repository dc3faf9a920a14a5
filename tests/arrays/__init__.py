"""Tests of tf_pfor/converters/arrays."""
