"""Counts of the cache."""

import tf_pfor


def counts():
    """The numbers of calls that traced, that found a trace, and that found none to keep."""
    info = tf_pfor.cache_info()
    return info.misses, info.hits, info.uncacheable
