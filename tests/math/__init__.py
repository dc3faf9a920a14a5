"""Tests of tf_pfor/converters/math."""
