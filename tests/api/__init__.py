"""Tests of tf_pfor/api: every way to call a map, its results, and errors."""
