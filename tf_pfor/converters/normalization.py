"""Batch, instance and local normalization."""
