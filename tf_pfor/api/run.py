"""From checked arguments to results: trace once, convert, in one go or in blocks."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

from tf_pfor import _tf
from tf_pfor._tf import _patience
from tf_pfor.api import composites, in_blocks, progress
from tf_pfor.api.bodies import convert_body
from tf_pfor.api.draws import drawn_once
from tf_pfor.api.function import called, is_pushed_forward, numbers, with_dense_gradient
from tf_pfor.api.inputs import Element, check_strings, with_tensors, with_unknown_number
from tf_pfor.api.options import Job
from tf_pfor.core import nests
from tf_pfor.core.axes import Axis
from tf_pfor.core.emit import Dim
from tf_pfor.core.errors import ArgumentError, ArgumentTypeError
from tf_pfor.core.report import Recorder, warn_of_loops
from tf_pfor.tracing import row_links
from tf_pfor.tracing.trace import Body, trace, trace_for_all_copies, update_copies


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

    All replicas share the first copies of variables; ``update_copies`` ends the job. ``outside``
    has the caller's tensors whose rows the arguments are.
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
        inner = with_tensors(elements, supply)
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

    ``outside`` has the caller's tensors whose rows the arguments are, if these are not the
    tensors of ``elements``.
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
    block = in_blocks.fitting(body, elements, n, job) if isinstance(job.block, str) else job.block
    if block is None or (isinstance(n, int) and n <= block):
        leaves = _at_once(body, elements, n, job, recorder, shared)
    elif block == 1 and not shared and in_blocks.may_run_plain(body, elements, job):
        leaves = in_blocks.one_by_one(body, elements, n, job)
    else:
        if job.settings.randomness == "same":
            body = drawn_once(body)
        leaves = in_blocks.Blocks(body, elements, n, block, job, recorder, shared).run()
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
    shapes: frozenset[int] = frozenset()
    if not _tf.in_body(tf.compat.v1.get_default_graph()):  # whose maps convert it again for pairs
        shapes = composites.shapes_in(body.structure, len(body.leaves))
    leaves = convert_body(body, elements, n, job.settings, recorder, job.part, shared, shapes)
    for i, leaf in enumerate(leaves if none else []):
        if isinstance(leaf, tf.Tensor) and i not in shared | shapes and leaf.shape.rank:
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
