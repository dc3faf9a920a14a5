"""Scripts for those who work on tf_pfor. Nothing here is installed."""
