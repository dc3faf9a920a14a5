"""The registry of converters: how an op type is vectorized (docs/adding_an_op.md)."""

from tf_pfor.core.registry import ALWAYS, ANY, REGISTRY, Outcome, RegisterPFor, Registry, Rule

__all__ = ["ALWAYS", "ANY", "REGISTRY", "Outcome", "RegisterPFor", "Registry", "Rule"]
