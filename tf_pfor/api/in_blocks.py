"""Blocks of iterations, which run one after the other (Agarwal, 2019)."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from tf_pfor import _tf
from tf_pfor.api.blocks import Kind, followed_by, in_turn, join, of_one_shape, several, sized, split
from tf_pfor.api.bodies import convert_body
from tf_pfor.api.inputs import Element, mapped, stand_ins, with_mapped
from tf_pfor.api.options import Job
from tf_pfor.core.collectives import has_collective
from tf_pfor.core.emit import Dim, salted
from tf_pfor.core.loop import Block
from tf_pfor.core.report import Recorder
from tf_pfor.tracing import memory
from tf_pfor.tracing.trace import Body, leaves_of


def fitting(body: Body, elements: Sequence[Element], n: Dim, job: Job) -> int | None:
    """The largest block that fits into the budget, from the sizes in throw-away conversions."""

    def build(rows: int) -> list[tf.Tensor]:
        kept = convert_body(body, stand_ins(elements, rows), rows, job.settings, Recorder())
        kept = [x for x in kept if isinstance(x, (tf.Tensor, tf.RaggedTensor))]
        return tf.nest.flatten(kept, expand_composites=True)

    return memory.fitting_block(n if isinstance(n, int) else None, build, job.budget)


@dataclasses.dataclass(frozen=True, slots=True)
class Blocks:
    """Blocks of iterations one after the other, then the remainder.

    Attributes:
      block: the number of iterations in a block.
      shared: the leaves that all iterations share.
    """

    body: Body
    elements: Sequence[Element]
    n: Dim
    block: int
    job: Job
    recorder: Recorder
    shared: frozenset[int]

    def run(self) -> list[Any]:
        """The leaves; those that all iterations share unstacked."""
        n, block = self.n, self.block
        # A remainder of no rows is not run: fused kernels of TensorFlow's fail on empty batches.
        full = n // block if isinstance(n, int) else tf.maximum((n - 1) // block, 0)
        done = full * block
        given, kinds = mapped(self.elements), self._kinds()
        signature = [spec for kind in kinds for spec in kind.specs]
        signature = signature or [tf.TensorSpec([], tf.int32)]

        def step(rows: list[tf.Tensor], _: object) -> Any:
            made = self._handed(kinds, rows[0], rows[1:], block) or rows[:1]
            return _after(self.job, made, rows[0] + block, n, block), []

        blocks, _ = in_turn(
            step,
            [tf.range(full) * block, *[split(x, full, block) for x in given]],
            signature,
            full,
            are_joined=[x for kind in kinds for x in kind.are_joined],
        )
        supply = iter(blocks)
        made = [[next(supply) for _ in kind.specs] for kind in kinds]
        made = [[join(t, block) for t in x] if k.flat is None else x for k, x in zip(kinds, made)]
        if not (isinstance(n, int) and n == done):
            with tf.control_dependencies(blocks), salted(1):  # or both need memory at once
                first = tf.identity(tf.convert_to_tensor(done, tf.int32))
                last = [tf.identity(x[done:]) for x in given]
                made_last = self._handed(kinds, first, last, n - done)
                ended = tf.convert_to_tensor(n, tf.int32)
                rest = iter(_after(self.job, made_last, ended, n, block))
            made = [[followed_by(t, next(rest)) for t in x] for x in made]
        outputs = iter([self._whole(*x) for x in zip(kinds, made, self.body.outputs)])
        leaves: list[Any] = [
            next(outputs) if isinstance(x, tf.Tensor) else None for x in self.body.leaves
        ]
        return [x[0] if i in self.shared else x for i, x in enumerate(leaves)]

    def _kinds(self) -> list[Kind]:
        """The kind of each result of a block; seen in a conversion that is thrown away."""
        specs = [several(t, self.block) for t in self.body.outputs]
        graph = tf.compat.v1.get_default_graph()
        if _tf.in_xla_context(graph) or all(s.shape.is_fully_defined() for s in specs):
            return [Kind(s) for s in specs]
        with _tf.FuncGraph("pfor_results").as_default():
            first = tf.compat.v1.placeholder(tf.int32, [])
            rows = mapped(stand_ins(self.elements, self.block))
            made = self._convert(first, rows, self.block, Recorder())
        return [Kind.of(x, s) for x, s in zip(made, specs, strict=True)]

    def _handed(
        self, kinds: Sequence[Kind], first: tf.Tensor, rows: Sequence[tf.Tensor], size: Dim
    ) -> list[tf.Tensor]:
        """The tensors that one block hands on of its results."""
        recorder = Recorder() if self.recorder.entries else self.recorder
        made = self._convert(first, rows, size, recorder)
        return [t for kind, x in zip(kinds, made, strict=True) for t in kind.tensors(x)]

    def _convert(
        self, first: tf.Tensor, rows: Sequence[tf.Tensor], size: Dim, recorder: Recorder
    ) -> list[Any]:
        """The results of one block, stacked; a RaggedTensor where their shape may differ."""
        settings, is_known = self.job.settings, _tf.in_xla_context(tf.compat.v1.get_default_graph())
        if settings.out_shapes != "ragged" and not is_known:
            settings = dataclasses.replace(settings, out_shapes="parts")
        leaves = convert_body(
            self.body,
            with_mapped(self.elements, rows),
            size,
            settings,
            recorder,
            self._place(first),
            self.shared,
        )
        return [
            tf.repeat(x[None], size, 0) if i in self.shared else x
            for i, x in enumerate(leaves)
            if isinstance(x, (tf.Tensor, tf.RaggedTensor))
        ]

    def _place(self, first: tf.Tensor) -> Block:
        part = self.job.part
        return Block(first, self.n) if part is None else Block(part.first + first, part.total)

    def _whole(self, kind: Kind, tensors: Sequence[tf.Tensor], output: tf.Tensor) -> Any:
        """A result, of what all blocks handed on, as the caller wants it."""
        made = kind.whole(tensors, self.n)
        if isinstance(made, tf.Tensor):
            return sized(made, self.n)
        if self.job.settings.out_shapes in ("ragged", "parts"):
            return made
        if self.job.settings.out_shapes == "padded":
            return sized(made.to_tensor(), self.n)
        name = f"{output.op.type} ({_tf.user_line(output.op) or 'line unknown'})"
        return sized(of_one_shape(made, name), self.n)


def _after(
    job: Job, results: list[tf.Tensor], done: tf.Tensor, n: Dim, block: int
) -> list[tf.Tensor]:
    """``results``, which show that so many of n iterations are done, if the caller asked for it."""
    return results if job.shown is None else job.shown.after(results, done, n, block)


def may_run_plain(body: Body, elements: Sequence[Element], job: Job) -> bool:
    """Whether the body means the same when it runs by itself, once for each iteration.

    Not under XLA: it captures what is outside as it is (see ``gradients.own_constants``).
    """
    may_repeat = not job.once and job.part is None and job.settings.randomness == "different"
    is_xla = _tf.in_xla_context(tf.compat.v1.get_default_graph())
    is_linked = any(e.is_link for e in elements)
    if not all(t.shape.is_fully_defined() for t in body.outputs):  # rows may differ in shape
        return False
    return may_repeat and not is_xla and not is_linked and not has_collective(body.graph)


def one_by_one(body: Body, elements: Sequence[Element], n: Dim, job: Job) -> list[Any]:
    """Blocks of one: the plain function, in a loop."""

    def one(given: list[tf.Tensor], _: object) -> Any:
        rows = with_mapped(elements, given[1:])
        leaves = leaves_of(job.fn(*[given[0] if e.tensor is None else e.tensor for e in rows]))
        with tf.control_dependencies([x for x in leaves if isinstance(x, tf.Operation)]):
            made = [tf.identity(x) for x in leaves if isinstance(x, tf.Tensor)]
            made = _after(job, [*made, tf.identity(given[0])], given[0] + 1, n, 1)
            return made, []

    signature = [*(several(t, None) for t in body.outputs), tf.TensorSpec([], tf.int32)]
    supply = iter(in_turn(one, [tf.range(n), *mapped(elements)], signature, n)[0])
    return [sized(next(supply), n) if isinstance(x, tf.Tensor) else None for x in body.leaves]
