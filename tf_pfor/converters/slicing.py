"""Slices, concatenation, splitting, padding."""
