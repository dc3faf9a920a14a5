"""Tests of tf_pfor/converters/parsing."""
