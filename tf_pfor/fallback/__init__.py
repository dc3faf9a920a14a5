"""Loops over rows, in order, for ops that no converter takes, and regions that share a loop.

The room has ops that cannot be vectorized, updates with an order, values whose sizes differ, and
maps in maps that become one map. It may import `layouts`, `core` and `_tf`; `converters/state` and
`api` may import it. An op with a formula for all rows at once belongs into a converter.
"""
