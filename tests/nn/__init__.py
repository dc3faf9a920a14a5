"""Tests of tf_pfor/converters/nn."""
