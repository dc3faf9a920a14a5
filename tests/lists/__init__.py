"""Tests of tf_pfor/converters/lists."""
