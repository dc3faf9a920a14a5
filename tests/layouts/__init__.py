"""Tests of tf_pfor/layouts: items by row, repeated lists, selections."""
