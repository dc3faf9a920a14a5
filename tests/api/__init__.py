"""Tests of tf_pfor/api: every way to call a map, what comes back, and errors."""
