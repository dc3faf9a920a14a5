"""Tests of tf_pfor/converters/control_flow, and of converters/analysis."""
