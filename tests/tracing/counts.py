"""What the cache did."""

import tf_pfor


def counts():
    """How many calls traced, how many found a trace, and how many none that can be kept."""
    info = tf_pfor.cache_info()
    return info.misses, info.hits, info.uncacheable
