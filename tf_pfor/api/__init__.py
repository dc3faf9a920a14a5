"""The public functions of maps: arguments, axes, options, and from there to results.

`maps` (pfor, for_loop, vectorized_map), `vmap`, and `run`, which traces and converts. It may import
`tracing`, `fallback`, `layouts`, `core` and `_tf`; `reports`, `derivatives` and `frontends` may
import it. What changes a graph does not belong here.
"""
