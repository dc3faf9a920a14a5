"""The canonical form of a graph: a line for each op that counts, without any name.

A line has the number of the op, its type, its attributes, its inputs by number and output, and its
control inputs. Of a constant it has a digest of dtype, shape and bytes; of a function that an op
calls, the digest of its own form. Names, devices, places in the source and ids leave no trace.
A name may be an identity: two ops share a resource, or call one Python function. It becomes a
number, in the order of first use. Ops without effects that no result needs are left out.

A walk from the results over inputs gives the order, so it does not depend on the order in which
ops were made. Control inputs, control outputs and ops that nobody reads are sets. They are visited
in the order of their digests; equal digests are visited in the order of creation.
"""

from __future__ import annotations

import collections
import dataclasses
import functools
import hashlib
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from tf_pfor._tf import schema

# Only where an op came from, where and on which machine it runs, or how it is called.
IGNORED = frozenset(
    [
        "_class",
        "_has_manual_control_dependencies",
        "_output_shapes",
        "_user_specified_name",
        "backward_function_name",
        "config_proto",
        "container",
        "forward_function_name",
    ]
)
# Names that say which resource, Python function, gradient or implementation is meant.
IDENTITIES = frozenset(
    [
        "_backward_func_name",
        "_forward_func_name",
        "_gradient_op_type",
        "api_implements",
        "shared_name",
        "stack_name",
        "tensor_array_name",
        "token",
    ]
)
RECURSION = "calls itself"


def canonical(graph: Any) -> list[str]:
    """The canonical form of a graph, line by line.

    Args:
      graph: a ``ConcreteFunction``, its graph, or a ``tf.Graph``. Of a ``ConcreteFunction`` the
        form also has the values of captured tensors, which are a part of what it computes.
        Of a ``tf.Graph`` every op counts, because any of them may be asked for.

    Returns:
      Inputs, ops and results, each a line; then the same of each function that is called.
    """
    captured: list[str] = []
    if isinstance(graph, tf.types.experimental.ConcreteFunction):
        captured = [f"captured {_value_of(x)}" for x in graph.captured_inputs]
        graph = graph.graph
    made = graph.as_graph_def()
    library = _Library(made.library)
    if not hasattr(graph, "outputs"):
        return _Form(_Body(made.node), library).lines + library.lines
    body = _Body(
        made.node,
        [x.op.name for x in graph.inputs],
        [_tensor_name(x) for x in graph.outputs],
        [op.name for op in graph.control_outputs],
    )
    return captured + _Form(body, library).lines + library.lines


def digest(graph: Any) -> str:
    """The digest of the canonical form, 32 hexadecimal digits."""
    return digest_of(canonical(graph))


def digest_of(lines: Iterable[str]) -> str:
    """The digest of lines, 32 hexadecimal digits."""
    return hashlib.blake2b("\n".join(lines).encode(), digest_size=16).hexdigest()


def counts(lines: Iterable[str]) -> collections.Counter[str]:
    """The number of ops of each type in a canonical form; ops of a function count once."""
    ops = (line.split() for line in lines if line.lstrip().startswith("%"))
    return collections.Counter(words[2] for words in ops)


def _tensor_name(x: tf.Tensor) -> str:
    return x.op.name if x.value_index == 0 else f"{x.op.name}:{x.value_index}"


def _value_of(x: Any) -> str:
    """A captured tensor: its value, but of a resource or a variant the dtype only."""
    if not isinstance(x, tf.__internal__.EagerTensor) or x.dtype in (tf.resource, tf.variant):
        return f"{x.dtype.name} {x.shape}"
    return _array(x.numpy(), x.dtype.name)


@dataclasses.dataclass(frozen=True)
class _Body:
    """Nodes with inputs, results and effects, by name.

    Attributes:
      nodes: the ops.
      inputs: names of the arguments; in a function they are no ops.
      outputs: names of the results, as ops name their inputs; None if everything is a result.
      controls: names of the ops that run in any case.
    """

    nodes: Sequence[Any]
    inputs: Sequence[str] = ()
    outputs: Sequence[str] | None = None
    controls: Sequence[str] = ()


class _Library:
    """The functions that a graph may call, with the digests of those that were asked for.

    Attributes:
      lines: the forms of functions that were asked for, each under its digest.
    """

    def __init__(self, library: Any):
        self._functions = {f.signature.name: f for f in library.function}
        self._known: dict[str, tuple[str, list[str]]] = {}
        self._bodies: dict[str, list[str]] = {}
        self._alternatives: dict[str, list[str]] = {}
        for name, function in self._functions.items():
            if "api_implements" in function.attr:
                kind = function.attr["api_implements"].s.decode()
                self._alternatives.setdefault(kind, []).append(name)

    def __contains__(self, name: str) -> bool:
        return name in self._functions

    def of(self, name: str) -> tuple[str, list[str]]:
        """The digest of a function, and the identities that it names, in the order of use."""
        if name not in self._known:
            if name not in self._functions:
                raise ValueError(
                    f"The graph calls the function '{name}', which is not in its library. Expected:"
                    " a graph with the functions that it calls."
                )
            self._known[name] = (RECURSION, [])
            form = self._form(name)
            lines = [*form.lines, *self._others(self._functions[name])]
            self._known[name] = (digest_of(lines), [*form.identities])
            self._bodies.setdefault(self._known[name][0], lines)
        return self._known[name]

    @property
    def lines(self) -> list[str]:
        bodies = self._bodies.items()
        return [x for key, body in bodies for x in (f"function {key}", *(f"  {b}" for b in body))]

    def _form(self, name: str) -> _Form:
        function = self._functions[name]
        body = _Body(
            function.node_def,
            [a.name for a in function.signature.input_arg],
            [function.ret[a.name] for a in function.signature.output_arg],
            [*function.control_ret.values()],
        )
        form = _Form(body, self)
        for k, a in enumerate(function.signature.input_arg):  # they have no op that says it
            kinds = f"{a.type} {a.type_attr} {a.number_attr} {a.type_list_attr}"
            form.lines.insert(k, f"argument {kinds}")
        attributes = form.attributes(function.attr)
        form.lines.append(f"attributes {attributes} {function.signature.is_stateful}")
        return form

    def _others(self, function: Any) -> list[str]:
        """Digests of functions that TensorFlow may run in place of this one."""
        kind = (
            function.attr["api_implements"].s.decode() if "api_implements" in function.attr else ""
        )
        names = self._alternatives.get(kind, [])
        return [f"or {x}" for x in sorted(digest_of(self._form(name).lines) for name in names)]


class _Form:
    """The lines of one graph or function.

    Attributes:
      lines: the canonical form.
      identities: names that are identities, each with its number.
    """

    def __init__(self, body: _Body, library: _Library):
        self._library = library
        self._body = body
        self._nodes = {node.name: node for node in body.nodes}
        self._numbers = {name: k for k, name in enumerate(body.inputs)}
        self._made = {name: k for k, name in enumerate(self._nodes)}
        self.identities: dict[str, int] = {}
        self._walk()
        self.lines = [self._line(name) for name in self._numbers if name in self._nodes]
        if body.outputs is not None:
            self.lines += [f"result {self._edge(x)}" for x in body.outputs]
        effects = sorted(self._numbers[name] for name in body.controls)
        self.lines += [f"effects {effects}"] if effects else []

    # The order of ops -------------------------------------------------------

    def _walk(self) -> None:
        """Numbers the ops: each after what it needs, but for what a loop hands back."""
        body = self._body
        for root in map(_op_of, body.outputs or ()):
            self._visit(root)
        rest = [*body.controls, *(n for n in self._nodes.values() if _acts(n.op))]
        names = [x if isinstance(x, str) else x.name for x in rest]
        if body.outputs is None:
            read = {_op_of(x) for node in body.nodes for x in node.input}
            names += [name for name in self._nodes if name not in read]
        for root in self._sorted(names):
            self._visit(root)
        back = [n for n in self._numbers if n in self._nodes and self._nodes[n].op in _MERGES]
        for name in back:  # grows while it is walked over
            for source in map(_op_of, self._nodes[name].input):
                known = len(self._numbers)
                self._visit(source)
                new = [*self._numbers][known:]
                back += [n for n in new if n in self._nodes and self._nodes[n].op in _MERGES]

    def _visit(self, root: str) -> None:
        todo = [root]
        while todo:
            name = todo[-1]
            if name in self._numbers:
                todo.pop()
                continue
            missing = [x for x in self._needs(name) if x not in self._numbers]
            if missing:
                todo += reversed(missing)
            else:
                self._numbers[todo.pop()] = len(self._numbers)

    def _needs(self, name: str) -> list[str]:
        """The ops that an op needs: its inputs in order, then ops that only run before it."""
        read, before = self._edges(name)
        return [*map(_op_of, read), *self._sorted(map(_op_of, before))]

    def _edges(self, name: str) -> tuple[list[str], list[str]]:
        """The inputs of an op, and its control inputs; of a loop, not those that come back."""
        node = self._nodes.get(name)
        if node is None:
            return [], []
        edges = [x for x in node.input if node.op not in _MERGES or not self._comes_back(x)]
        return [x for x in edges if x[0] != "^"], [x for x in edges if x[0] == "^"]

    def _comes_back(self, edge: str) -> bool:
        node = self._nodes.get(_op_of(edge))
        return node is not None and node.op in ("NextIteration", "RefNextIteration")

    def _sorted(self, names: Iterable[str]) -> list[str]:
        """Ops of a set: those that have numbers first, then by what they compute."""
        found = [*dict.fromkeys(names)]
        if len(found) < 2:
            return found
        numbers, made = self._numbers, self._made
        order = {
            x: (0, numbers[x], "") if x in numbers else (1, 0, self._computes(x)) for x in found
        }
        return sorted(found, key=lambda x: (order[x], made.get(x, -1)))

    @functools.cached_property
    def _computed(self) -> dict[str, str]:
        return {name: f"input {k}" for k, name in enumerate(self._body.inputs)}

    def _computes(self, root: str) -> str:
        """A digest of an op and all that it needs, which knows of no order of creation."""
        known, todo = self._computed, [root]
        while todo:
            name = todo[-1]
            read, before = self._edges(name)
            missing = [x for x in map(_op_of, [*read, *before]) if x not in known]
            todo += missing
            if missing:
                continue
            if todo.pop() not in known:
                inputs = [f"{known[_op_of(x)]} {_output_of(x)}" for x in read]
                controls = sorted(known[_op_of(x)] for x in before)
                node = self._nodes[name]
                text = f"{node.op} {self.attributes(node.attr, {})}"
                known[name] = digest_of([text, *inputs, "after", *controls])
        return known[root]

    # Lines ------------------------------------------------------------------

    def _line(self, name: str) -> str:
        node = self._nodes[name]
        edges = [self._edge(x) for x in node.input if x[0] != "^"]
        before = sorted(self._numbers[_op_of(x)] for x in node.input if x[0] == "^")
        after = f" after {before}" if before else ""
        text = self.attributes(node.attr)
        return f"%{self._numbers[name]} = {node.op} ({', '.join(edges)}) {text}{after}"

    def _edge(self, edge: str) -> str:
        output = _output_of(edge)
        return f"%{self._numbers[_op_of(edge)]}" + (f":{output}" if output else "")

    def attributes(self, attrs: Any, identities: dict[str, int] | None = None) -> str:
        """Attributes by name; identities are numbered here, or in ``identities``."""
        known = self.identities if identities is None else identities
        names = sorted(key for key in attrs if key not in IGNORED)
        return " ".join(f"{key}={self._attribute(key, attrs[key], known)}" for key in names)

    def _attribute(self, key: str, value: Any, identities: dict[str, int]) -> str:
        kind = value.WhichOneof("value")
        if kind == "tensor":
            return _constant(value.tensor)
        if kind == "func":
            return self._function(value.func, identities)
        if kind == "list" and value.list.func:
            return "[" + ", ".join(self._function(f, identities) for f in value.list.func) + "]"
        if kind == "list" and value.list.tensor:
            return "[" + ", ".join(map(_constant, value.list.tensor)) + "]"
        if kind == "s":
            return self._text(key, value.s, identities)
        return _plain(value.SerializeToString(deterministic=True))

    def _text(self, key: str, value: bytes, identities: dict[str, int]) -> str:
        """A string: the digest of the function of that name, a number, or as it is."""
        name = value.decode("utf-8", "replace")
        if key in IDENTITIES:
            return f"#{identities.setdefault(name, len(identities))}" if name else "''"
        if name in self._library:
            return self._called(name, identities)
        return repr(value)

    def _function(self, function: Any, identities: dict[str, int]) -> str:
        made = self._called(function.name, identities) if function.name else "none"
        return f"{made}({self.attributes(function.attr, identities)})" if function.attr else made

    def _called(self, name: str, identities: dict[str, int]) -> str:
        """The digest of a function; its identities have the numbers of the caller's."""
        made, inside = self._library.of(name)
        numbers = [identities.setdefault(x, len(identities)) for x in inside]
        return made + (f"{numbers}" if numbers else "")


_MERGES = ("Merge", "RefMerge")


def _op_of(edge: str) -> str:
    return edge.lstrip("^").partition(":")[0]


def _output_of(edge: str) -> str:
    """The output that an input is: ``""`` for the first of an op that is not in a function."""
    return edge.partition(":")[2]


def _acts(op_type: str) -> bool:
    """Whether an op runs in a function although nobody reads it."""
    known = schema(op_type)
    return known is not None and known.is_stateful


@functools.lru_cache(4096)
def _plain(serialized: bytes) -> str:
    """An attribute that is a number, a dtype, a shape or a list of such, in one line."""
    value = tf.compat.v1.AttrValue.FromString(serialized)
    return " ".join(str(value).split()) or "empty"


def _constant(tensor: Any) -> str:
    """A constant by its value: one value may be written in several ways."""
    if tensor.dtype in (tf.resource.as_datatype_enum, tf.variant.as_datatype_enum):
        return digest_of([tensor.SerializeToString(deterministic=True).hex()])
    dtype, shape = tf.as_dtype(tensor.dtype), [d.size for d in tensor.tensor_shape.dim]
    array = np.zeros(shape, dtype.as_numpy_dtype) if 0 in shape else tf.make_ndarray(tensor)
    return _array(array, dtype.name)


def _array(array: Any, dtype: str) -> str:
    """Dtype and shape, and the numbers of a few elements or a digest of the bytes of more."""
    if dtype == "string":
        items = [x if isinstance(x, bytes) else str(x).encode() for x in array.reshape([-1])]
        data = b"".join(b"%d:%s" % (len(x), x) for x in items)
    else:
        data = array.tobytes()
    text = data.hex() if len(data) <= 16 else hashlib.blake2b(data, digest_size=16).hexdigest()
    return f"{dtype}{[*array.shape]}:{text}"
