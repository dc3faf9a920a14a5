"""A loop whose rows all make the same number of trips: one loop over stacked variables."""

from __future__ import annotations

import tensorflow as tf

from tf_pfor.converters.control_flow._carries import Plan
from tf_pfor.converters.control_flow._subgraphs import while_loop
from tf_pfor.core.emit import Emitter
from tf_pfor.core.values import Layout, Value


def convert(plan: Plan) -> list[Value]:
    """One trip count for all rows: the loop as it is, over stacked variables."""
    call = plan.call

    def cond(*state: list[tf.Tensor]) -> tf.Tensor:
        emit = Emitter()
        loop = call.loop.inside(emit)
        (made,) = plan.cond.convert(plan.inside(loop, emit, state), loop, emit)
        return made.as_layout(Layout.UNSTACKED)

    def body(*state: list[tf.Tensor]) -> list[list[tf.Tensor]]:
        emit = Emitter()
        loop = call.loop.inside(emit)
        made = plan.convert_body(plan.inside(loop, emit, state), loop, emit)
        return [plan.tensors_of(c, m) for c, m in zip(plan.carries, made)]

    start = plan.start()
    shapes = [c.shapes(call.loop.static_length) for c in plan.carries]
    final = while_loop(call, cond, body, start, shapes, plan.options())
    return plan.results({c.index: plan.after(c, t) for c, t in zip(plan.carries, final)})
