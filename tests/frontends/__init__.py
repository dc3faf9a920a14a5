"""Tests of tf_pfor/frontends."""
