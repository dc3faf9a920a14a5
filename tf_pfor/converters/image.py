"""Image ops."""
