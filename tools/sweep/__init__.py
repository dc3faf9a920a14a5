"""Endpoints of TensorFlow's public API, each mapped over rows and held against a Python loop."""
