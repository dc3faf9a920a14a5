"""The cost of the members of an ensemble."""
