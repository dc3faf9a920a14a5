"""From checked arguments to results: trace once, convert, in one go or in blocks."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

from tf_pfor import _tf
from tf_pfor._tf import _patience
from tf_pfor.api import composites, progress
from tf_pfor.api.blocks import Kind, followed_by, in_turn, join, of_one_shape, several, sized, split
from tf_pfor.api.draws import drawn_once
from tf_pfor.api.function import called, is_pushed_forward, numbers, with_dense_gradient
from tf_pfor.api.inputs import (
    Element,
    bound_walker,
    check_strings,
    mapped,
    stand_ins,
    with_mapped,
    with_unknown_number,
)
from tf_pfor.core import nests
from tf_pfor.core.axes import Axis
from tf_pfor.core.collectives import has_collective
from tf_pfor.core.emit import Dim, salted
from tf_pfor.core.errors import ArgumentError, ArgumentTypeError, NotVectorizableError
from tf_pfor.core.loop import Block
from tf_pfor.core.nests import Nest
from tf_pfor.core.report import Recorder, refusal, warn_of_loops
from tf_pfor.core.values import Value
from tf_pfor.fallback import nested_maps
from tf_pfor.layouts.ragged import Ragged
from tf_pfor.tracing import memory, row_links
from tf_pfor.tracing.trace import Body, leaves_of, trace, trace_for_all_copies, update_copies
from tf_pfor.walker.walker import Failed, Settings, Walker


@dataclasses.dataclass(frozen=True, slots=True)
class Job:
    """A call of the public API after its arguments were checked.

    Attributes:
      fn: the user function, of one flat tensor for each element.
      settings: the settings that the caller chose.
      block: the number of iterations to run at once; None for all; "auto" for as many as fit.
      budget: bytes for "auto"; None for half of the free memory.
      shown: the bar or lines that show how many iterations are done; None for nothing.
      once: whether ``fn`` must not be called again after it was traced.
      part: the place of the iterations among all, where replicas have the others.
      out_axes: the place of the loop axis in each output. It is an int, None for an output that
        must be loop-invariant, or a nest of these that is a prefix of the outputs' nest.
      axis_name: the name of the loop for collectives; "" for none. None is a loop that is not the
        user's: collectives mean an outer loop.
    """

    fn: Callable[..., Any]
    settings: Settings
    block: int | str | None = None
    out_axes: Nest = 0
    axis_name: str | None = ""
    budget: int | None = None
    once: bool = False
    part: Block | None = None
    shown: progress.Bar | progress.Lines | None = None


def run(job: Job, elements: Sequence[Element], n: Dim) -> Any:
    """Runs a job in the current graph, or eagerly through a compiled function.

    Returns:
      The nest that the body returns, every tensor with the loop on axis 0.
    """
    is_eager = tf.executing_eagerly()
    build = _in_function if is_eager else _build
    name = getattr(job.fn, "__name__", "a function")
    job = dataclasses.replace(job, fn=composites.by_parts(job.fn))
    if not job.settings.progress:
        with _patience.watched(name):
            return composites.assembled(build(job, elements, n))
    shown = progress.Bar(name) if is_eager else progress.Lines(name)
    try:
        job = dataclasses.replace(job, shown=shown)
        return composites.assembled(build(job, elements, n))
    finally:
        shown.close()


def traced(
    job: Job, elements: Sequence[Element], n: Dim, outside: Sequence[tf.Tensor | None]
) -> tuple[Body, Sequence[Element]]:
    """The body of a job whose parts run on replicas (``run_part``), and the body's elements.

    All replicas share the first copies of variables; ``update_copies`` ends the job.

    Args:
      job: the job.
      elements: the arguments of the body.
      n: the number of iterations.
      outside: the caller's tensors whose rows the arguments are.
    """
    job = dataclasses.replace(job, fn=composites.by_parts(job.fn))
    with _patience.watched(getattr(job.fn, "__name__", "a function")):
        return _traced(job, elements, outside, _axis(job, n), first_copies=True)


def run_part(job: Job, elements: Sequence[Element], n: Dim, body: Body) -> Any:
    """Runs a job in the current graph, with a body that was traced before."""
    with _patience.watched(getattr(job.fn, "__name__", "a function")):
        return composites.assembled(_build(job, elements, n, body))


def _in_function(job: Job, elements: Sequence[Element], n: Dim, body: Body | None = None) -> Any:
    """Builds a job, of which the body may be known, in the graph of a function, and calls that."""
    inputs = [t for t in (*(e.tensor for e in elements), n) if isinstance(t, tf.Tensor)]
    captured = [] if body is None else numbers(body)

    def build(*given: tf.Tensor) -> Any:
        supply = iter(given if body is None else map(with_dense_gradient, given))
        inner = [
            e if e.tensor is None else dataclasses.replace(e, tensor=next(supply)) for e in elements
        ]
        size = next(supply) if isinstance(n, tf.Tensor) else n
        if body is None:
            return _build(job, inner, size, outside=[e.whole for e in elements])
        seen = {id(t): x for t, x in zip(captured, supply, strict=True)}
        known = tuple((seen.get(id(t), t), inside) for t, inside in body.captures)
        return _build(job, inner, size, dataclasses.replace(body, captures=known))

    return called(build, [*inputs, *captured])


def _build(
    job: Job,
    elements: Sequence[Element],
    n: Dim,
    known_body: Body | None = None,
    outside: Sequence[tf.Tensor | None] | None = None,
) -> Any:
    """Traces (unless that was done) and converts a job in the current graph.

    Args:
      job: the job.
      elements: the arguments of the body.
      n: the number of iterations.
      known_body: the body, if it was traced before, of these elements.
      outside: the caller's tensors whose rows the arguments are; None for ``elements``' tensors.
    """
    if known_body is None:
        body, elements = _traced(job, elements, outside, _axis(job, n))
    else:
        body = known_body
    if known_body is None and is_pushed_forward(body, [e.tensor for e in elements]):
        return _in_function(job, elements, n, body)
    _check_outputs(body)
    check_strings(body, elements)
    recorder = Recorder()
    axes = nests.spread(job.out_axes, body.structure, "out_axes")
    composites.check_axes(body.structure, axes)
    shared = frozenset(i for i, axis in enumerate(axes) if axis is None)
    block = _fitting(body, elements, n, job) if isinstance(job.block, str) else job.block
    if block is None or (isinstance(n, int) and n <= block):
        leaves = _at_once(body, elements, n, job, recorder, shared)
    elif block == 1 and not shared and _may_run_plain(body, elements, job):
        leaves = _one_by_one(body, elements, n, job)
    else:
        if job.settings.randomness == "same":
            body = drawn_once(body)
        leaves = _Blocks(body, elements, n, block, job, recorder, shared).run()
    leaves = [placed(x, axis, i) for i, (x, axis) in enumerate(zip(leaves, axes))]
    if job.part is None:
        update_copies(body)
    if job.settings.warn:
        warn_of_loops(recorder)
    return nests.to_user(nests.pack(body.structure, leaves))


def _axis(job: Job, n: Dim) -> Axis:
    """The loop of a job, for collectives."""
    total = n if job.part is None else job.part.total
    known = total if isinstance(total, int) else _tf.static_value(total)
    return Axis(job.axis_name or "", None if known is None else int(known), job.axis_name is None)


def _at_once(
    body: Body,
    elements: Sequence[Element],
    n: Dim,
    job: Job,
    recorder: Recorder,
    shared: frozenset[int],
) -> list[Any]:
    """Converts in one go; of no rows as if it were not known how many there are.

    TensorFlow's constant folding of no elements may divide by zero, as in the hessian of
    ``tf.reduce_sum(x**2) ** 3``, which ends the process. XLA does without it.
    """
    none = n == 0 if isinstance(n, int) else False
    if none and not _tf.in_xla_context(tf.compat.v1.get_default_graph()):
        elements, n = with_unknown_number(elements)
    leaves = convert_body(body, elements, n, job.settings, recorder, job.part, shared)
    for i, leaf in enumerate(leaves if none else []):
        if isinstance(leaf, tf.Tensor) and i not in shared and leaf.shape.rank:
            leaf.set_shape([0, *leaf.shape[1:]])
    return leaves


def _traced(
    job: Job,
    elements: Sequence[Element],
    outside: Sequence[tf.Tensor | None] | None,
    axis: Axis,
    *,
    first_copies: bool = False,
) -> tuple[Body, Sequence[Element]]:
    """The body, and its elements: one more where rows are linked with what they are rows of."""
    outside = [e.whole for e in elements] if outside is None else outside
    link: Callable[[Sequence[tf.Tensor]], Sequence[tf.Tensor]] | None = None
    if row_links.may_be_needed(job.fn, outside):
        elements = [*elements, Element(None, is_link=True)]

        def linked(inputs: Sequence[tf.Tensor]) -> list[tf.Tensor]:
            *rows, index = inputs
            return [row_links.linked(r, x, index) for r, x in zip(rows, outside, strict=True)]

        link = linked

    specs = [e.spec for e in elements]
    if first_copies or job.once:
        body = trace(job.fn, specs, axis, link, first_copies=first_copies)
    else:
        body = trace_for_all_copies(job.fn, specs, axis, link)
    return body, elements


def _check_outputs(body: Body) -> None:
    """Handles (of variables, lists, iterators) cannot be stacked."""
    for tensor in body.outputs:
        if tensor.dtype in (tf.resource, tf.variant):
            raise ArgumentTypeError(
                f"The body returned a handle of dtype {tensor.dtype.name} ({tensor.op.type}, "
                f"{_tf.user_line(tensor.op) or 'line unknown'}), expected tensors that can be "
                "stacked. Return what it holds: TensorArray.stack(), variable.read_value()."
            )


def convert_body(
    body: Body,
    elements: Sequence[Element],
    n: Dim,
    settings: Settings,
    recorder: Recorder,
    block: Block | None = None,
    invariant: frozenset[int] = frozenset(),
) -> list[Any]:
    """Converts a traced body in the current graph.

    Args:
      body: the body.
      elements: the elements of its placeholders.
      n: the number of iterations.
      settings: the settings that the caller chose.
      recorder: told what happened to each op.
      block: the place of the iterations among all; None when these are all.
      invariant: the leaves that must be loop-invariant and are returned unstacked.

    Returns:
      For each leaf of the body's structure: a stacked tensor, an operation or None.

    Raises:
      NotVectorizableError: if ops cannot be converted; the message lists all of them.
    """

    def attempt(settings: Settings, recorder: Recorder) -> list[Any]:
        walker = bound_walker(body, elements, n, settings, recorder, block)
        try:
            values = iter(walker.convert(body.outputs, body.operations))
            return [
                _result(walker, next(values), i in invariant, i)
                if isinstance(leaf, tf.Tensor)
                else (walker.group(leaf) if isinstance(leaf, tf.Operation) else None)
                for i, leaf in enumerate(body.leaves)
            ]
        except Failed:
            raise refusal(recorder) from None
        except RecursionError:
            raise NotVectorizableError(
                "The body has so many loops, conditionals and ragged operations that wait for each "
                "other that Python's recursion limit ends the conversion. Take fewer derivatives "
                "of them in one map, or call the function for each row in a Python loop."
            ) from None

    if block is not None or invariant:
        return attempt(settings, recorder)
    return nested_maps.convert_body(body, elements, n, settings, recorder, attempt)


def _result(walker: Walker, value: Value, is_invariant: bool, position: int) -> Any:
    """A result as it leaves: stacked, or unstacked where the caller asked for that."""
    if not is_invariant:
        return _tensor_of(walker, value)
    if value.is_stacked:
        raise ArgumentError(
            f"out_axes is None for output {position} (in the order of tf.nest.flatten), which "
            "depends on the mapped arguments. Give it an axis."
        )
    return value.tensor


def _tensor_of(walker: Walker, value: Value) -> Any:
    """A stacked result; one whose shape differs between iterations as the caller wants it."""
    chosen = walker.settings.out_shapes
    if isinstance(value, Ragged):
        if chosen != "padded" and _tf.in_xla_context(walker.emit.graph):
            raise NotVectorizableError(
                f"{value.name} is a result whose shape may differ between iterations, which XLA "
                "does not know. Reduce it, say its shape with tf.ensure_shape, choose "
                'out_shapes="padded", or leave out jit_compile.'
            )
        with walker.emit.graph.as_default():
            if chosen == "padded":
                return value.trimmed()
            if chosen == "parts" or (chosen == "ragged" and not value.is_full):
                return value.ragged_tensor()
    return walker.tile(value).tensor


def placed(leaf: object, axis: int | None, position: int) -> Any:
    """Moves axis 0 of an output to ``axis``."""
    if isinstance(leaf, tf.RaggedTensor) and axis:
        raise ArgumentError(
            f"out_axes asks for axis {axis} of output {position} (in the order of "
            "tf.nest.flatten), whose shape differs between iterations. Expected: 0; or choose "
            'out_shapes="dense" or "padded".'
        )
    if not isinstance(leaf, tf.Tensor) or not axis or leaf.shape.rank is None:
        return leaf
    rank = leaf.shape.rank
    if not -rank <= axis < rank:
        raise ArgumentError(
            f"out_axes asks for axis {axis} of output {position} (in the order of "
            f"tf.nest.flatten), which has {rank} axes with the mapped one."
        )
    perm = list(range(1, rank))
    perm.insert(axis % rank, 0)
    return tf.transpose(leaf, perm)


# ---------------------------------------------------------------------------
# Blocks (Agarwal, 2019)
# ---------------------------------------------------------------------------


def _fitting(body: Body, elements: Sequence[Element], n: Dim, job: Job) -> int | None:
    """The largest block that fits into the budget, from the sizes in throw-away conversions."""

    def build(rows: int) -> list[tf.Tensor]:
        kept = convert_body(body, stand_ins(elements, rows), rows, job.settings, Recorder())
        kept = [x for x in kept if isinstance(x, (tf.Tensor, tf.RaggedTensor))]
        return tf.nest.flatten(kept, expand_composites=True)

    return memory.fitting_block(n if isinstance(n, int) else None, build, job.budget)


class _Blocks:
    """Blocks of iterations one after the other, then the remainder."""

    def __init__(
        self,
        body: Body,
        elements: Sequence[Element],
        n: Dim,
        block: int,
        job: Job,
        recorder: Recorder,
        shared: frozenset[int],
    ):
        self.body, self.elements, self.n, self.block = body, elements, n, block
        self.job, self.recorder, self.shared = job, recorder, shared

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
            return after(self.job, made, rows[0] + block, n, block), []

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
                rest = iter(after(self.job, made_last, ended, n, block))
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


def after(
    job: Job, results: list[tf.Tensor], done: tf.Tensor, n: Dim, block: int
) -> list[tf.Tensor]:
    """``results``, which show that so many of n iterations are done, if the caller asked for it."""
    return results if job.shown is None else job.shown.after(results, done, n, block)


def _may_run_plain(body: Body, elements: Sequence[Element], job: Job) -> bool:
    """Whether the body means the same when it runs by itself, once for each iteration.

    Not under XLA: it captures what is outside as it is (see ``gradients.own_constants``).
    """
    may_repeat = not job.once and job.part is None and job.settings.randomness == "different"
    is_xla = _tf.in_xla_context(tf.compat.v1.get_default_graph())
    is_linked = any(e.is_link for e in elements)
    if not all(t.shape.is_fully_defined() for t in body.outputs):  # rows may differ in shape
        return False
    return may_repeat and not is_xla and not is_linked and not has_collective(body.graph)


def _one_by_one(body: Body, elements: Sequence[Element], n: Dim, job: Job) -> list[Any]:
    """Blocks of one: the plain function, in a loop."""

    def one(given: list[tf.Tensor], _: object) -> Any:
        rows = with_mapped(elements, given[1:])
        leaves = leaves_of(job.fn(*[given[0] if e.tensor is None else e.tensor for e in rows]))
        with tf.control_dependencies([x for x in leaves if isinstance(x, tf.Operation)]):
            made = [tf.identity(x) for x in leaves if isinstance(x, tf.Tensor)]
            made = after(job, [*made, tf.identity(given[0])], given[0] + 1, n, 1)
            return made, []

    signature = [*(several(t, None) for t in body.outputs), tf.TensorSpec([], tf.int32)]
    supply = iter(in_turn(one, [tf.range(n), *mapped(elements)], signature, n)[0])
    return [sized(next(supply), n) if isinstance(x, tf.Tensor) else None for x in body.leaves]
