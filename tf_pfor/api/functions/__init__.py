"""Functions of JAX's that are made of maps: vectorize, associative_scan, exchanges, custom_vmap.

Part of `api`, with its imports.
"""
