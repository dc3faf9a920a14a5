"""From checked arguments to results: trace once, convert, in one go or in blocks."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from tf_pfor import _tf, nests
from tf_pfor.axes import Axis
from tf_pfor.convert import Failed, Settings, Walker
from tf_pfor.emit import Dim, Emitter
from tf_pfor.errors import ArgumentError, ArgumentTypeError
from tf_pfor.loop import Loop
from tf_pfor.report import Recorder, refusal, warn_of_loops
from tf_pfor.trace import Body, trace
from tf_pfor.values import Layout, Value, dims


@dataclasses.dataclass(frozen=True, slots=True)
class Element:
    """One argument of the body.

    Attributes:
      tensor: None for the iteration number.
      is_mapped: axis 0 of ``tensor`` is the loop; otherwise every iteration sees all of it.
    """

    tensor: tf.Tensor | None
    is_mapped: bool = True

    @property
    def spec(self) -> tf.TensorSpec:
        """What one iteration sees."""
        if self.tensor is None:
            return tf.TensorSpec([], tf.int32)
        shape = self.tensor.shape
        return tf.TensorSpec(shape[1:] if self.is_mapped else shape, self.tensor.dtype)


@dataclasses.dataclass(frozen=True, slots=True)
class Job:
    """A call of the public API after its arguments were checked.

    Attributes:
      fn: the user function, of one flat tensor for each element.
      settings: what the caller chose.
      block: iterations to run at once; None for all.
      warn: whether to warn of ops that run in a sequential loop.
      out_axes: where the loop axis goes in each output: an int, None for an output that must be
        loop-invariant, or a nest of these that is a prefix of the outputs' nest.
      axis_name: by which collectives may name the loop; "" for none; None where it is not the
        user's: collectives mean one around it.
    """

    fn: Callable[..., Any]
    settings: Settings
    block: int | None = None
    warn: bool = True
    out_axes: Any = 0
    axis_name: str | None = ""


def run(job: Job, elements: Sequence[Element], n: Dim) -> Any:
    """Runs a job in the current graph, or eagerly through a compiled function.

    Returns:
      The nest that the body returns, every tensor with the loop on axis 0.
    """
    if not tf.executing_eagerly():
        return _build(job, elements, n)
    tensors = [e.tensor for e in elements if e.tensor is not None]
    if isinstance(n, tf.Tensor):
        tensors.append(n)
    kept: dict[str, Any] = {}

    def build(*given: tf.Tensor) -> list[tf.Tensor]:
        supply = iter(given)
        inner = [
            e if e.tensor is None else dataclasses.replace(e, tensor=next(supply)) for e in elements
        ]
        result = _build(job, inner, next(supply) if isinstance(n, tf.Tensor) else n)
        result = nests.from_user(result)
        leaves = nests.flatten(result)
        kept["result"] = nests.pack(result, [None] * len(leaves))
        kept["present"] = [isinstance(x, tf.Tensor) for x in leaves]
        return [x for x in leaves if isinstance(x, tf.Tensor)]

    compiled = tf.function(build, autograph=False)
    concrete = compiled.get_concrete_function(*[tf.TensorSpec(t.shape, t.dtype) for t in tensors])
    outputs = iter(concrete(*tensors))
    leaves = [next(outputs) if is_tensor else None for is_tensor in kept["present"]]
    return nests.to_user(nests.pack(kept["result"], leaves))


def _build(job: Job, elements: Sequence[Element], n: Dim) -> Any:
    """Traces and converts a job in the current graph."""
    known = n if isinstance(n, int) else _tf.static_value(n)
    hidden = job.axis_name is None
    axis = Axis(job.axis_name or "", None if known is None else int(known), hidden)
    body = trace(job.fn, [e.spec for e in elements], axis)
    _check_outputs(body)
    recorder = Recorder()
    job = dataclasses.replace(job, settings=dataclasses.replace(job.settings, warn=job.warn))
    axes = nests.spread(job.out_axes, body.structure, "out_axes")
    shared = frozenset(i for i, axis in enumerate(axes) if axis is None)
    if job.block is None or (isinstance(n, int) and n <= job.block):
        leaves = convert_body(body, elements, n, job.settings, recorder, invariant=shared)
    else:
        leaves = _in_blocks(body, elements, n, job, recorder)
        leaves = [x[0] if i in shared else x for i, x in enumerate(leaves)]
    leaves = [_placed(x, axis, i) for i, (x, axis) in enumerate(zip(leaves, axes))]
    if job.warn:
        warn_of_loops(recorder)
    return nests.to_user(nests.pack(body.structure, leaves))


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
    block: tuple[tf.Tensor, Dim] | None = None,
    invariant: frozenset[int] = frozenset(),
) -> list[Any]:
    """Converts a traced body in the current graph.

    Args:
      body: the body.
      elements: what its placeholders are.
      n: the number of iterations.
      settings: what the caller chose.
      recorder: told what happened to each op.
      block: when this is one block of several, the number of its first iteration and how many
        iterations there are in all.
      invariant: the leaves that must be loop-invariant and are returned unstacked.

    Returns:
      For each leaf of the body's structure: a stacked tensor, an operation or None.

    Raises:
      NotVectorizableError: if ops cannot be converted; the message lists all of them.
    """
    walker = bound_walker(body, elements, n, settings, recorder, block)
    try:
        values = iter(walker.convert(body.outputs, body.operations))
        return [
            _result(walker, next(values), i in invariant, i)
            if isinstance(leaf, tf.Tensor)
            else walker.group(leaf)
            if isinstance(leaf, tf.Operation)
            else None
            for i, leaf in enumerate(body.leaves)
        ]
    except Failed:
        raise refusal(recorder) from None


def bound_walker(
    body: Body,
    elements: Sequence[Element],
    n: Dim,
    settings: Settings,
    recorder: Recorder,
    block: tuple[tf.Tensor, Dim] | None = None,
) -> Walker:
    """A walker in the current graph that knows what the body's inputs are."""
    emit = Emitter()
    loop = Loop(n, emit, axes=body.axes, block=block)
    walker = Walker(loop, emit, settings, recorder)
    for placeholder, element in zip(body.placeholders, elements, strict=True):
        walker.bind(placeholder, _element_value(element, loop))
    for outside, inside in body.captures:
        walker.bind(inside, Value.unstacked(outside))
    return walker


def _result(walker: Walker, value: Value, is_invariant: bool, position: int) -> tf.Tensor:
    """A result as it leaves: stacked, or unstacked where the caller asked for that."""
    if not is_invariant:
        return walker.tile(value).tensor
    if value.is_stacked:
        raise ArgumentError(
            f"out_axes is None for output {position} (in the order of tf.nest.flatten), which "
            "depends on the mapped arguments. Give it an axis."
        )
    return value.tensor


def _placed(leaf: Any, axis: int | None, position: int) -> Any:
    """Moves axis 0 of an output to ``axis``."""
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


def _element_value(element: Element, loop: Loop) -> Value:
    if element.tensor is None:
        if not loop.is_block:
            return loop.index_value()
        return Value.deferred(Layout.STACKED, lambda: loop.numbers, (), tf.int32)
    if not element.is_mapped:
        return Value.unstacked(element.tensor)
    return Value.stacked(element.tensor)


# ---------------------------------------------------------------------------
# Blocks (papers/001 section 4.7)
# ---------------------------------------------------------------------------


def _in_blocks(
    body: Body, elements: Sequence[Element], n: Dim, job: Job, recorder: Recorder
) -> list[Any]:
    """Blocks of ``job.block`` iterations one after the other, then the remainder."""
    block = job.block
    assert block is not None
    full = n // block
    done = full * block
    mapped = [e.tensor for e in elements if e.tensor is not None and e.is_mapped]

    def with_mapped(tensors: Sequence[tf.Tensor]) -> list[Element]:
        supply = iter(tensors)
        return [
            dataclasses.replace(e, tensor=next(supply))
            if e.tensor is not None and e.is_mapped
            else e
            for e in elements
        ]

    def one_block(given: tuple[tf.Tensor, ...]) -> tuple[tf.Tensor, ...]:
        first, *rows = given
        inner = Recorder() if recorder.entries else recorder
        leaves = convert_body(body, with_mapped(rows), block, job.settings, inner, (first, n))
        return tuple(x for x in leaves if isinstance(x, tf.Tensor)) or (first,)

    blocks = tf.map_fn(
        one_block,
        (tf.range(full) * block, *[_split(x, full, block) for x in mapped]),
        fn_output_signature=tuple(
            tf.TensorSpec([block, *t.shape] if t.shape.rank is not None else None, t.dtype)  # pyright: ignore[reportArgumentType]
            for t in body.outputs
        )
        or (tf.TensorSpec([], tf.int32),),
        parallel_iterations=1,
    )
    outputs = [_join(t, block) for t in blocks[: len(body.outputs)]]
    if not (isinstance(n, int) and n == done):
        rest = convert_body(
            body, with_mapped([x[done:] for x in mapped]), n - done, job.settings, Recorder(),
            (tf.convert_to_tensor(done, tf.int32), n),
        )  # fmt: skip
        outputs = [
            _sized(tf.concat([a, b], 0), n)
            for a, b in zip(outputs, (x for x in rest if isinstance(x, tf.Tensor)))
        ]
    supply = iter(outputs)
    return [next(supply) if isinstance(x, tf.Tensor) else None for x in body.leaves]


def _split(x: tf.Tensor, full: Dim, block: int) -> tf.Tensor:
    """The rows of the full blocks: [n, ...] -> [full, block, ...]."""
    shape = dims(x)
    inner: Any = tf.shape(x)[1:]
    if shape is not None and None not in shape[1:]:
        inner = tf.constant(np.asarray(shape[1:], np.int32))
    out = tf.reshape(x[: full * block], tf.concat([[full, block], inner], 0))
    if shape is not None:
        out.set_shape([full if isinstance(full, int) else None, block, *shape[1:]])
    return out


def _join(x: tf.Tensor, block: int) -> tf.Tensor:
    """[full, block, ...] -> [full * block, ...]."""
    shape = dims(x)
    if shape is not None and None not in shape:
        return tf.reshape(x, [shape[0] * block, *shape[2:]])  # type: ignore[operator]
    dynamic = tf.shape(x)
    out = tf.reshape(x, tf.concat([dynamic[:1] * block, dynamic[2:]], 0))
    if shape is not None:
        out.set_shape([None, *shape[2:]])
    return out


def _sized(x: tf.Tensor, n: Dim) -> tf.Tensor:
    if isinstance(n, int):
        x.set_shape([n, *x.shape[1:]] if x.shape.rank is not None else None)
    return x
