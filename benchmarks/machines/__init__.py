"""Benchmarks of more than one process: engines of data, meshes, and requests."""
