"""Softmax family and cross entropies."""
