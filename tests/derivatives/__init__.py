"""Tests of tf_pfor/derivatives, and of derivatives around and inside of maps."""
