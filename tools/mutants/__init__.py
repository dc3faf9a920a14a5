"""Faults that are put into copies of the package, to see whether the tests see them."""
