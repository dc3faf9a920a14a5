"""Sorted lists of what is expected to fail; a test fails when a gap closes and stays listed."""

# Samples that run in a sequential loop, or are refused with the fallback off: why stands beside.
LOOPED: tuple[str, ...] = (
    # Boxes are suppressed one after the other.
    "NonMaxSuppressionV4[0,1]",
    "NonMaxSuppressionV4[0]",
    "NonMaxSuppressionV4[1]",
    "NonMaxSuppressionV5[0,1]",
    "NonMaxSuppressionV5[0]",
    "NonMaxSuppressionV5[1]",
)
