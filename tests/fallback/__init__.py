"""Tests of tf_pfor/fallback: loops over rows, sizes that differ, maps in maps."""
