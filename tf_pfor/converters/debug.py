"""Print, asserts, checks."""
