"""Resource variables."""
