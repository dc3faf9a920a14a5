"""Ops that draw random numbers, and the variables that are their seeds: ``randomness``.

Three kinds of state move on with each draw: the state inside of TensorFlow's stateful random ops, a
``tf.random.Generator``, and seed variables. A seed variable is assigned in the body and is the seed
of a stateless op (the ``SeedGenerator`` of Keras). With "same" each draw moves the state on once
for all rows.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import tensorflow as tf

from tf_pfor import _tf
from tf_pfor.core.accesses import accesses, draws_from_generator, handle_key
from tf_pfor.core.conversion import Conversion
from tf_pfor.core.errors import CannotVectorize, Refused
from tf_pfor.core.regions import key

_SEEDS = ("counter", "key", "seed")
_MARK = "_tf_pfor_seed"  # an attribute of ops that read a seed: ops like any other draw from it


def draws(op: tf.Operation) -> bool:
    """Whether an op itself draws numbers and moves a state of its own, or a generator's, on."""
    return _tf.draws_randomly(op.type) or draws_from_generator(op.type)


def why_not_drawn(
    walker: Conversion, varying: Iterable[str] = (), what: str = "it draws random numbers"
) -> str:
    """Why there must not be a draw, of which the inputs ``varying`` differ; "" if it may be."""
    chosen = walker.settings.randomness
    if chosen == "error":
        return f"{what}, and randomness is 'error'"
    if chosen == "same" and walker.loop.is_block:
        return "randomness is 'same', and replicas or blocks would each draw: all at once only"
    names = ", ".join(f"'{name}'" for name in sorted(varying))
    if chosen == "same" and names:
        return f"randomness is 'same', and {names} differs between iterations"
    return ""


def moves_once(op: tf.Operation, walker: Conversion) -> bool:
    """Whether an op reads or assigns a seed that is to move on once for all iterations.

    Raises:
      Refused: if nothing must be drawn.
    """
    if walker.settings.randomness == "different":
        return False
    if handle_key(op.inputs[0]) not in seeds(op.graph, walker):
        return False
    why = why_not_drawn(walker, what="it is the seed of random numbers")
    if why:
        raise Refused(why)
    return True


def check_looped(ops: Iterable[tf.Operation], walker: Conversion) -> None:
    """Refuses ops that would draw in each iteration of a loop where they must not.

    Raises:
      CannotVectorize: with the op that draws.
    """
    chosen = walker.settings.randomness
    if chosen == "different":
        return
    for op in ops:
        graphs = _tf.functions_of(op)
        for graph in graphs:
            check_looped(graph.get_operations(), walker)
        known = seeds(op.graph, walker) if any(t.dtype == tf.resource for t in op.inputs) else ()
        if not graphs and (draws(op) or any(handle_key(t) in known for t in op.inputs)):
            where = f"{op.type} ({_tf.user_line(op) or 'line unknown'})"
            raise CannotVectorize(
                f"randomness is '{chosen}', and {where} would draw in each iteration of a loop"
            )


# ---------------------------------------------------------------------------
# Seeds
# ---------------------------------------------------------------------------


def seeds(graph: tf.Graph, walker: Conversion) -> frozenset[Any]:
    """The keys of the handles of the variables that ``graph`` draws from and assigns to."""
    name = ("seeds", graph)
    if name not in walker.memo:
        known = accesses(graph, walker.memo)
        written = {a.handle for a in known.all if a.writes}
        handles = known.handles().items()
        walker.memo[name] = frozenset(
            k for k, handle in handles if k in written and _is_seed(handle, walker)
        )
    return walker.memo[name]


def marks(read: tf.Operation, walker: Conversion) -> dict[str, Any]:
    """Attributes for the op that a read became, in the body of another map: see ``_MARK``."""
    in_body = _tf.in_body(walker.emit.graph)
    known = in_body and handle_key(read.inputs[0]) in seeds(read.graph, walker)
    return {_MARK: _tf.attr_value("bool", True)} if known else {}


def _is_seed(handle: tf.Tensor, walker: Conversion) -> bool:
    """Whether a stateless random op has its seed, key or counter from a variable.

    Args:
      handle: the handle, in the graph that ``walker`` converts, or in a function of that.
      walker: the walker; its callers may read the variable, or the returned tensors.
    """
    callers: dict[Any, tf.Operation] = {}
    around: Conversion | None = walker
    while around is not None and not around.is_root:
        if around.entered_by is not None and around.graph is not None:
            callers.setdefault(around.graph, around.entered_by)
        around = around.parent
    todo, seen = [handle], set[Any]()
    for tensor in todo:  # grows
        if key(tensor) in seen:
            continue
        seen.add(key(tensor))
        for op in tensor.consumers():
            places = [i for i, x in enumerate(op.inputs) if x is tensor]
            if any(_draws_from(op, i) for i in places):
                return True
            todo += _made_of(op, places, callers)
        caller = callers.get(tensor.graph)
        if caller is not None:
            todo += _around(tensor, caller)
    return False


def _draws_from(op: tf.Operation, position: int) -> bool:
    """Whether an input is what an op draws from."""
    if _MARK in _tf.attr_map(op):
        return True
    schema = _tf.schema(op.type)
    is_random = op.type.startswith("Stateless") or op.type == "RandomIndexShuffle"
    if not is_random or schema is None or _tf.functions_of(op):
        return False
    return schema.inputs[position].name in _SEEDS


def _made_of(op: tf.Operation, places: list[int], callers: dict[Any, Any]) -> list[tf.Tensor]:
    """The tensors made of some inputs of an op: its outputs, or the inputs of its functions."""
    graphs = _tf.functions_of(op)
    if not graphs:
        return list(op.outputs)
    callers.update((graph, op) for graph in graphs)
    skipped = [(g, len(op.inputs) - len(g.inputs)) for g in graphs]
    return [g.inputs[i - skip] for g, skip in skipped for i in places if i >= skip]


def _around(tensor: tf.Tensor, caller: tf.Operation) -> list[tf.Tensor]:
    """The tensors that a function's tensor is to the caller, or in the next trip of a loop."""
    graph: tf.Graph = tensor.graph
    found = [i for i, t in enumerate(graph.outputs) if key(t) == key(tensor)]
    again = [graph.inputs[i] for i in found if caller.type in _tf.LOOPS and i < len(graph.inputs)]
    skip = len(caller.inputs) - len(graph.inputs)
    given = [i for i, t in enumerate(graph.inputs) if t is tensor and tensor.dtype == tf.resource]
    outer = [caller.inputs[i + skip] for i in given if i + skip >= 0]
    return [*again, *outer, *(caller.outputs[i] for i in found if i < len(caller.outputs))]
