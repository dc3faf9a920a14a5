"""Tests of what users of JAX and torch.func look for: tf_pfor/api/functions and products."""
