"""Tests of tf_pfor/core and tf_pfor/_tf."""
