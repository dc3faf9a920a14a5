"""The inputs, attributes, facts and rules of an op type: ``python -m tools.op Cumsum``."""

from __future__ import annotations

import dataclasses
import sys

from tf_pfor import _tf
from tf_pfor.core.facts import FACTS
from tf_pfor.core.registry import REGISTRY, describe, source_of
from tf_pfor.layouts.ragged_rules import rule_of


def describe_op(op_type: str) -> str:
    """Inputs, attributes with defaults, facts, and the registered rules of an op type."""
    import tf_pfor  # noqa: F401  (registers all converters)

    schema = _tf.schema(op_type)
    if schema is None:
        return f"This TensorFlow has no op {op_type}."
    lines = [op_type + (" (stateful)" if schema.is_stateful else "")]
    for arg in schema.inputs:
        lines.append(f"  input      {arg.name}{' (a list)' if arg.is_list else ''}")
    for name in schema.output_names:
        lines.append(f"  output     {name}")
    for name, kind in schema.attr_types.items():
        if name in schema.inferred_attrs:
            continue
        default = ""
        if name in schema.attr_defaults:
            default = f" = {_tf.python_value(kind, schema.attr_defaults[name])!r}"
        lines.append(f"  attribute  {name}: {kind}{default}")
    if op_type in FACTS:
        facts = dataclasses.asdict(FACTS[op_type])
        told = {k: getattr(v, "name", v) for k, v in facts.items() if v not in ((), None, "")}
        lines.append("  facts      " + ", ".join(f"{k}: {v}" for k, v in told.items()))
    for rule in REGISTRY.rules(op_type):
        lines.append(
            f"  converter  {rule.family} for stacked {describe(rule.stacked)}, "
            f"reads {sorted(rule.attrs)}"
        )
    rule = rule_of(op_type)
    told = "none: they run in a loop over rows" if rule is None else source_of(rule)
    lines.append(f"  variable-length rows: {told}")
    if op_type not in REGISTRY:
        lines.append("  no converter: it runs in a sequential loop, or is refused")
    return "\n".join(lines)


if __name__ == "__main__":
    for op_type in sys.argv[1:]:
        print(describe_op(op_type))
