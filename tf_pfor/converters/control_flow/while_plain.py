"""A loop whose rows all make the same number of trips: one loop over stacked variables."""

from __future__ import annotations

from collections.abc import Sequence

import tensorflow as tf

from tf_pfor.converters.control_flow._carries import Plan
from tf_pfor.converters.control_flow._subgraphs import while_loop
from tf_pfor.core.emit import Emitter
from tf_pfor.core.values import Layout, Value


def convert(plan: Plan) -> list[Value]:
    """One trip count for all rows: the loop as it is, over stacked variables."""
    call = plan.call
    length = call.loop.static_length
    start = plan.start()

    def unpack(flat: Sequence[tf.Tensor]) -> list[list[tf.Tensor]]:
        supply = iter(flat)
        return [[next(supply) for _ in tensors] for tensors in start]

    def cond(*flat: tf.Tensor) -> tf.Tensor:
        emit = Emitter()
        loop = call.loop.inside(emit)
        (made,) = plan.cond.convert(plan.inside(loop, emit, unpack(flat)), loop, emit)
        return made.as_layout(Layout.UNSTACKED)

    def body(*flat: tf.Tensor) -> list[tf.Tensor]:
        emit = Emitter()
        loop = call.loop.inside(emit)
        args = plan.inside(loop, emit, unpack(flat))
        made = plan.convert_body(args, loop, emit)
        return [t for c, m in zip(plan.carries, made) for t in plan.tensors_of(c, m)]

    shapes = [s for c in plan.carries for s in c.shapes(length)]
    flat = [t for tensors in start for t in tensors]
    final = unpack(while_loop(call, cond, body, flat, shapes, plan.options()))
    found: dict[int, Value] = {}
    for c, tensors in zip(plan.carries, final):
        found[c.index] = plan.after(c, tensors)
    return plan.results(found)
