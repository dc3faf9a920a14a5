"""The sum of the gradients of examples, each clipped by its global norm, in blocks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from tf_pfor.api import composites
from tf_pfor.api.blocks import followed_by, in_turn, join, readable, several
from tf_pfor.api.bodies import convert_body
from tf_pfor.api.inputs import Element, mapped, stand_ins, with_mapped
from tf_pfor.api.mapped_arguments import Plan
from tf_pfor.core import nests
from tf_pfor.core.axes import Axis
from tf_pfor.core.emit import Dim, salted
from tf_pfor.core.loop import Block
from tf_pfor.core.nests import Nest
from tf_pfor.core.report import Recorder, warn_of_loops
from tf_pfor.core.settings import current
from tf_pfor.derivatives.example_gradients import (
    LossFn,
    check_batch,
    example_gradients,
    factored,
    flattened,
    global_norm,
    parts_of,
    scaled_sum,
    squares,
    tensors_of,
    whole,
)
from tf_pfor.tracing.memory import fitting_block
from tf_pfor.tracing.trace import trace_for_all_copies, update_copies


class ClippedSum:
    """The examples traced once, their gradients in blocks, clipped and added up."""

    def __init__(
        self,
        loss_fn: LossFn,
        variables: Nest,
        batch: tuple[Any, ...],
        clip_norm: tf.Tensor,
        has_aux: bool,
    ):
        one = example_gradients(loss_fn, variables, has_aux)
        check_batch(batch)
        self._variables = tensors_of(variables)
        self._clip_norm = clip_norm
        opened, cut = composites.opened(tuple(batch), in_blocks=True)
        self._plan = plan = Plan(opened, {}, 0, None)

        def parts(*example: Nest) -> Any:
            grads, loss, aux = one(*cut(example))
            return [parts_of(factored(g)) for g in grads], (loss, aux)

        size = plan.n if isinstance(plan.n, int) else None
        specs = [e.spec for e in plan.elements]
        self._body = trace_for_all_copies(plan.of_rows(parts), specs, Axis("", size))
        self._recorder = Recorder()

    def run(self, block: int | str | None, budget: int | None) -> tuple[list[tf.Tensor], Any]:
        """The sums for the variables; (losses, aux), stacked."""
        plan, n = self._plan, self._plan.n
        if isinstance(block, str):
            block = fitting_block(
                n if isinstance(n, int) else None,
                lambda rows: self._results(stand_ins(plan.elements, rows), rows),
                budget,
                are_sums=True,
            )
        if block is None or (isinstance(n, int) and n <= block):
            result = self._chunk(plan.elements, n)
        else:
            result = self._in_blocks(n, block)
        update_copies(self._body)
        if current().warn:
            warn_of_loops(self._recorder)
        return result

    def _results(self, elements: Sequence[Element], n: Dim) -> list[tf.Tensor]:
        sums, stacked = self._chunk(elements, n)
        return [*sums, *_only_tensors(stacked)]

    def _chunk(
        self, elements: Sequence[Element], n: Dim, place: Block | None = None
    ) -> tuple[list[tf.Tensor], Any]:
        """The sums of some examples; their losses and aux.

        ``place`` is for one of several blocks: its first example and how many there are in all.
        """
        recorder = Recorder() if self._recorder.entries else self._recorder
        # slices of a table are as many as an example has ids: what is padded is zero, and adds none
        padded = current().settings("padded")
        made = convert_body(self._body, elements, n, padded, recorder, place)
        grads, stacked = nests.pack(self._body.structure, made)
        grads = [whole(g, v) for g, v in zip(grads, self._variables)]
        grads = [flattened(g, n) for g in grads]
        norms = global_norm([squares(g) for g in grads])
        limit = tf.minimum(tf.cast(self._clip_norm, norms.dtype), norms.dtype.max)
        scales = limit / tf.maximum(norms, limit)  # [n], 1 where the norm is small enough
        return [scaled_sum(g, scales, v) for g, v in zip(grads, self._variables)], stacked

    def _in_blocks(self, n: Dim, block: int) -> tuple[list[tf.Tensor], Any]:
        """Adds up blocks of examples, one after the other; the last has what is left, or all."""
        elements = self._plan.elements
        full = max((n - 1) // block, 0) if isinstance(n, int) else tf.maximum((n - 1) // block, 0)

        sources = [readable(x, n) for x in mapped(elements)]

        def step(given: list[tf.Tensor], sums: list[tf.Tensor]) -> Any:
            ids = given[0] + tf.range(block)  # a slice has no static size under XLA
            rows = with_mapped(elements, [tf.gather(x, ids) for x in sources])
            more, stacked = self._chunk(rows, block, Block(given[0], n))
            return _only_tensors(stacked), [a + b for a, b in zip(sums, more)]

        _, like = nests.pack(self._body.structure, list(self._body.leaves))
        signature = [several(x, block) for x in _only_tensors(like)]
        zeros = [tf.zeros(tf.shape(v), v.dtype) for v in self._variables]
        blocks, sums = in_turn(step, [tf.range(full) * block], signature, full, zeros)
        done = full * block
        with tf.control_dependencies(sums), salted(1):  # or both need memory at once
            rest = with_mapped(elements, [tf.identity(x[done:]) for x in mapped(elements)])
            first = tf.identity(tf.convert_to_tensor(done, tf.int32))
            more, stacked = self._chunk(rest, n - done, Block(first, n))
        pairs = zip(blocks, _only_tensors(stacked))
        supply = iter([followed_by(join(a, block), b) for a, b in pairs])
        leaves = [next(supply) if isinstance(x, tf.Tensor) else x for x in nests.flatten(stacked)]
        return [a + b for a, b in zip(sums, more)], nests.pack(stacked, leaves)


def _only_tensors(structure: Nest) -> list[tf.Tensor]:
    return [x for x in nests.flatten(structure) if isinstance(x, tf.Tensor)]
