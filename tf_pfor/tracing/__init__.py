"""From a user's function to a traced body, and the cache of traces of eager calls.

Fingerprints of functions and objects, and the functions rebuilt with placeholders. It may
import `core` and `_tf`; `api` and all above it may import it. Nothing here knows how the
traced graph is vectorized.
"""
