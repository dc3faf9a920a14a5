"""FunctionDefs in the form in which this package reads them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


def with_calls(definition: Any, find: Callable[[str], Any]) -> Any:
    """``definition`` with calls in place of ops whose type is the name of a function.

    So TensorFlow 1 called a function (``Defun``), and the loops of ``tf.nn.ctc_loss`` still do.

    Args:
      definition: a FunctionDef.
      find: the function of a name, None if there is none.
    """
    found = {node.name: find(node.op) for node in definition.node_def}
    called = {name: f.cached_definition.signature for name, f in found.items() if f is not None}
    if not called:
        return definition
    made = type(definition)()
    made.CopyFrom(definition)
    renamed = {
        f"{name}:{arg.name}:0": f"{name}:output:{k}"
        for name, signature in called.items()
        for k, arg in enumerate(signature.output_arg)
    }
    for node in made.node_def:
        node.input[:] = [renamed.get(x, x) for x in node.input]
        if node.name in called:
            _make_call(node, called[node.name])
    for name, tensor in definition.ret.items():
        made.ret[name] = renamed.get(tensor, tensor)
    return made


def _make_call(node: Any, signature: Any) -> None:
    """Makes a call of a function of the NodeDef whose op type is its name."""
    node.op = "StatefulPartitionedCall" if signature.is_stateful else "PartitionedCall"
    node.attr["f"].func.name = signature.name
    for attr, args in ("Tin", signature.input_arg), ("Tout", signature.output_arg):
        node.attr[attr].list.SetInParent()
        node.attr[attr].list.type.extend(a.type for a in args)
