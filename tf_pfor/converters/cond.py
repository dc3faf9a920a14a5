"""Conditionals."""
