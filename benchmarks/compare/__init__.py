"""Two sets of results, side by side."""
