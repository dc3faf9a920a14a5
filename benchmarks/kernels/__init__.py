"""Timings of the forms that single kernels may take."""
