"""Random ops, stateless and stateful."""
