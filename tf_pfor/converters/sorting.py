"""Sorting, top_k, searching, unique."""
