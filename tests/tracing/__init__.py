"""Tests of tf_pfor/tracing: the cache of eager calls."""
