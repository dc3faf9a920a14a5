"""Tests of tf_pfor/converters/state."""
