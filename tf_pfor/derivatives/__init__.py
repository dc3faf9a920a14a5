"""Jacobians, functional derivatives and per-example gradients, as maps.

They differentiate a function once and map its pullback over unit cotangents or examples. It
may import `api` and all below; `frontends` may import it. Gradients inside of bodies do not
belong here: those are ops, which converters take.
"""
