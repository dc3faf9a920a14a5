"""Tests of tf_pfor/converters/sparse."""
