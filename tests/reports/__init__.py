"""Tests of tf_pfor/reports: explain, check, and how reports look."""
