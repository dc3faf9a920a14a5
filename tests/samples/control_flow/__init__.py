"""Samples of tf_pfor/converters/control_flow."""
