"""What no converter takes: loops over rows, in order, and regions that share one.

Ops that cannot be vectorized, updates with an order, values whose sizes differ, and maps in
maps that become one. It may import `layouts`, `core` and `_tf`; `converters/state` and `api`
may import it. Whoever can say what an op does to all rows at once writes a converter.
"""
