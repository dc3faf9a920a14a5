"""Programs that use tf_pfor on real data: ``python -m examples.demo_digits``."""
