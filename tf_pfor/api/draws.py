"""Blocks of iterations with ``randomness="same"``: what all of them draw is drawn once, before."""

from __future__ import annotations

import dataclasses

import tensorflow as tf

from tf_pfor import _tf
from tf_pfor.core.regions import Region, in_order
from tf_pfor.tracing.trace import Body


def drawn_once(body: Body) -> Body:
    """The body with its draws made in the current graph; each block captures them.

    Draws that depend on the iteration, or on state, stay: no block may make them. So do draws in
    branches, loops and functions, and draws from a generator.
    """
    captured = {inside.op: outside for outside, inside in body.captures}
    free: set[tf.Operation] = set(captured)
    drawn: list[tf.Operation] = []
    for op in body.graph.get_operations():
        schema = _tf.schema(op.type)
        is_draw = _tf.draws_randomly(op.type)
        may_move = op.type != "Placeholder" and schema is not None
        may_move &= is_draw or not (schema and schema.is_stateful)
        if may_move and all(o in free for o in (*[t.op for t in op.inputs], *op.control_inputs)):
            free.add(op)
            drawn += [op] * is_draw
    if not drawn:
        return body
    needed, todo = set[tf.Operation](), list(drawn)
    while todo:
        op = todo.pop()
        if op not in needed and op not in captured:
            needed.add(op)
            todo += [*(t.op for t in op.inputs), *op.control_inputs]
    outputs = [t for op in drawn for t in op.outputs]
    region = Region.of(in_order(needed), outputs)
    outside = {inside.name: outer for outer, inside in body.captures}
    made = region.copy(*[outside[t.name] for t in region.inputs])
    return dataclasses.replace(body, captures=(*body.captures, *zip(made, outputs)))
