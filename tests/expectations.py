"""Sorted lists of what is expected to fail; a test fails when a gap closes and stays listed."""

# Samples that run in a sequential loop, or are refused with the fallback off: why stands beside.
LOOPED: tuple[str, ...] = ()
