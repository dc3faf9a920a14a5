"""Tests of rows whose shapes differ."""
