"""Protocol buffers: FunctionDefs in the form in which this package reads them, SavedModels."""

from __future__ import annotations

import pathlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tensorflow.core.protobuf import saved_model_pb2


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


def copy_defaults(source: str, target: str, own: Mapping[str, Sequence[str]]) -> None:
    """Copies the default values of signatures from one SavedModel to another.

    TensorFlow does not load default values, and so does not save them either.

    Args:
      source: the folder of the SavedModel that has the values.
      target: the folder of the SavedModel that gets them.
      own: for a signature whose inputs have changed the names of the unchanged inputs.
    """
    path = pathlib.Path(source, "saved_model.pb")
    if not path.exists():  # a text file, which TensorFlow writes for tests only
        return
    old = saved_model_pb2.SavedModel.FromString(path.read_bytes())
    found = {k: s.defaults for k, s in old.meta_graphs[0].signature_def.items() if s.defaults}
    if not found:
        return
    path = pathlib.Path(target, "saved_model.pb")
    new = saved_model_pb2.SavedModel.FromString(path.read_bytes())
    for key, signature in new.meta_graphs[0].signature_def.items():
        for name, value in found.get(key, {}).items():
            if name in own.get(key, [name]):
                signature.defaults[name].CopyFrom(value)
    path.write_bytes(new.SerializeToString(deterministic=True))
