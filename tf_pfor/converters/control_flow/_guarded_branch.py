"""Conditionals of one predicate: one branch for all rows, or a side that may have no rows."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import tensorflow as tf

from tf_pfor import _tf
from tf_pfor.converters.control_flow._branch_forms import handed_on
from tf_pfor.converters.control_flow._branch_lists import unset_outputs
from tf_pfor.converters.control_flow._branch_optionals import (
    among,
    left_in,
    one_source,
    optionals_of,
)
from tf_pfor.converters.control_flow._subgraphs import Converted, Region, as_layout, join, one_of
from tf_pfor.converters.lists._optional_values import list_of
from tf_pfor.converters.lists._ragged_optionals import Parts, of_branches
from tf_pfor.converters.lists._row_packs import with_rows
from tf_pfor.converters.lists._unpacked_optionals import as_opened, left_open, tensors_of
from tf_pfor.core.call import Call
from tf_pfor.core.emit import Dim, Emitter
from tf_pfor.core.errors import CannotVectorize
from tf_pfor.core.stacked_lists import Holds, ListRows, received, rows_of
from tf_pfor.core.values import Layout, Value, dims

_GRADIENT = "TfPforBranchResult"


def run_if_any(
    region: Region,
    flag: tf.Tensor,
    run: Callable[..., Any],
    like: Sequence[Any],
    dtypes: Sequence[Any],
    lead: Dim = 0,
) -> list[tf.Tensor]:
    """``run()`` if ``flag``, else zeros: a side without rows costs nothing and cannot fail.

    Args:
      region: the region that ``run`` converts.
      flag: a bool scalar.
      run: makes the list of tensors.
      like: the static shape of the zeros for each tensor; an unknown dimension becomes 0. A tensor
        is passed on instead of zeros. None is for an Optional, which stays empty. It is
        read after ``run``, which may change it.
      dtypes: their dtypes.
      lead: the size of an unknown first dimension.
    """

    def nothing() -> list[Any]:
        return [
            list_of([tf.raw_ops.OptionalNone()])
            if x is None
            else tf.identity(x)
            if isinstance(x, tf.Tensor)
            else tf.zeros([(0 if i else lead) if d is None else d for i, d in enumerate(x)], d_type)
            for x, d_type in zip(like, dtypes)
        ]

    if is_by_loop(lead, [region]):
        made = run_once(flag, run, nothing())
    else:
        made = one_of(
            region.call,
            [run],
            lambda: tf.cond(
                flag,
                apart(lambda: [*run(), tf.constant(0)]),
                lambda: [*nothing(), tf.constant(0)],
            )[:-1],
            (_shape_of_nothing(x, lead) for x in like),
        )
    for tensor, shape in zip(made, like):
        if isinstance(shape, tf.TensorShape) and shape.rank is not None:
            tensor.set_shape(tensor.shape.merge_with(shape) if shape.rank else shape)
    return made


def apart(branch: Callable[[], Sequence[tf.Tensor]]) -> Callable[[], list[tf.Tensor]]:
    """A branch of a conditional, whose results have an EnsureShape in their gradients.

    TensorFlow's optimizer makes a product with a constant of a tensor that is added to itself. If
    the tensor is an input of a branch, the constant may wait for the other side of the switch. Then
    all results are empty tensors. So each gradient passes an EnsureShape, which is kept.
    """

    def run() -> list[tf.Tensor]:
        emit, tensors = Emitter(), branch()
        return [
            emit.identities([t, emit.constant(0)], _GRADIENT)[0] if _has_gradient(t) else t
            for t in tensors
        ]

    return run


def _has_gradient(tensor: tf.Tensor) -> bool:
    return tensor.dtype.is_floating or tensor.dtype.is_complex


@tf.RegisterGradient(_GRADIENT)
def _gradient(op: tf.Operation, grad: tf.Tensor, _: object) -> list[Any]:
    grad = tf.convert_to_tensor(grad)
    return [tf.ensure_shape(grad, grad.shape), None]


def _shape_of_nothing(like: Any, lead: Dim) -> tf.TensorShape:
    """The static shape that ``like`` has in a side without rows."""
    if like is None or isinstance(like, tf.Tensor):
        return tf.TensorShape([]) if like is None else like.shape
    first = lead if isinstance(lead, int) else None
    return tf.TensorShape([(0 if i else first) if d is None else d for i, d in enumerate(like)])


def is_by_loop(rows: object, regions: Sequence[Region]) -> bool:
    """Whether XLA gets loops of at most one trip in place of conditionals.

    The gradient of a conditional keeps zeros for the branch that was not taken. If the number of
    rows is unknown they are zeros of no rows. In a loop XLA takes their shape for the shape of the
    tensors that the other branch keeps. XLA has no list of them either, which a loop in a branch
    would leave.
    """
    if not _tf.in_xla_context(tf.compat.v1.get_default_graph()):
        return False
    return is_unknown_in_loop(rows) or any(_has_loop(region.graph) for region in regions)


def is_unknown_in_loop(rows: object) -> bool:
    """Whether XLA compiles a loop of which the number of rows is unknown."""
    graph = tf.compat.v1.get_default_graph()
    return not isinstance(rows, int) and _tf.in_xla_context(graph) and _tf.in_while(graph)


def _has_loop(graph: tf.Graph) -> bool:
    return any(
        op.type in _tf.LOOPS or any(map(_has_loop, _tf.functions_of(op)))
        for op in graph.get_operations()
    )


def run_once(
    flag: tf.Tensor, run: Callable[..., Any], start: Sequence[tf.Tensor]
) -> list[tf.Tensor]:
    """``run()`` if ``flag``, else ``start``, by a loop of at most one trip."""
    shapes = [tf.TensorShape([]), *(x.shape for x in start)]
    made = tf.while_loop(
        lambda trip, *_: tf.logical_and(flag, trip < 1),
        lambda trip, *_: [trip + 1, *run()],
        [tf.constant(0), *start],
        shape_invariants=shapes,
        maximum_iterations=1,
    )
    return made[1:]


def one_for_all(call: Call, which: Value, regions: list[Region], args: list[Value]) -> list[Value]:
    """An invariant predicate: one conditional, the layouts of its outputs made equal."""
    one = _OneForAll(call, regions, args)
    runs = [one.branch(b) for b in range(len(regions))]
    sides = [apart(run) for run in runs]
    by_loop = is_by_loop(call.loop.length, regions) and not one.kept
    start = unset_outputs(call, regions, args, one.layouts) if by_loop else None
    if start is not None:
        made = _by_loops(call, which, runs, start)
    elif is_unknown_in_loop(call.loop.length):
        raise CannotVectorize(
            "under jit_compile, a conditional in a loop over an unknown number of rows returns a "
            "list, or what has no static shape"
        )
    elif call.op_type in ("If", "StatelessIf"):
        no, yes = sides
        made = one_of(call, runs, lambda: tf.cond(_as_bool(which.tensor), yes, no))
    else:
        made = one_of(call, runs, lambda: tf.switch_case(which.tensor, sides))
    return one.results(made)


class _OneForAll:
    """The outputs of a conditional that takes one branch for all rows.

    Attributes:
      kept: by output, the contents of optionals that branches do not make.
      optionals: by output, the optionals that each branch returns.
      handed: the outputs that differ in shape between rows.
      layouts: the layouts of the outputs.
      rowed: the outputs that are lists of others than the loop's rows.
    """

    def __init__(self, call: Call, regions: Sequence[Region], args: Sequence[Value]):
        self._call, self._regions, self._args = call, regions, args
        opened = left_open(call, [r.graph for r in regions], regions[0].unread)
        self.kept = {k: list(dict.fromkeys(itertools.chain(*each))) for k, each in opened.items()}
        self.optionals = optionals_of(call, regions, opened)
        self.handed = handed_on(call, regions, args, by_row=False)
        self.layouts, self.rowed = _layouts(call, regions, args, self.optionals)
        for k in self.handed.forms:
            self.layouts[k] = Layout.RAGGED
        self._parts: dict[int, list[Parts | None]] = {}

    def branch(self, b: int) -> Callable[[], list[tf.Tensor]]:
        """A function that makes the tensors of branch ``b``."""

        def run() -> list[tf.Tensor]:
            emit = Emitter()
            loop = self._call.loop.inside(emit)
            made = self._regions[b].convert([loop.take(a) for a in self._args], loop, emit)
            tensors = [
                tf.constant(0) if k in self.kept or k in self.handed.forms else m.as_layout(layout)
                for k, (m, layout) in enumerate(zip(made, self.layouts))
            ]
            for k in self.rowed:
                tensors[k], *rows = with_rows(made[k].call, self._list(b, k, made[k]), k)
                tensors += rows
            self.handed.hand_on(made, tensors)
            for k, alternatives in self.kept.items():
                tensors += tensors_of(made[k].call, made[k].value, alternatives)
            return [*tensors, tf.constant(0)]

        return run

    def _list(self, b: int, k: int, made: Converted) -> Value:
        """The list that branch ``b`` returns as output ``k``; of an optional one of all."""
        value = as_layout(made.call, made.value, Layout.STACKED_LIST)
        if k not in self.optionals:
            return value
        left = left_in(value, self._regions[b].graph.outputs[k], self._args, by_row=False)
        self._parts.setdefault(k, []).append(left)
        return among(value, b, self.optionals[k])

    def results(self, made: Sequence[tf.Tensor]) -> list[Value]:
        """The outputs, of the tensors that a branch has made."""
        call, count = self._call, len(self.layouts)
        rows: dict[int, ListRows | None] = {}
        for k, layout in enumerate(self.layouts):
            if layout is Layout.STACKED_LIST and k not in self.rowed:
                source = one_source(self._regions, k)
                rows[k] = None if source is None else rows_of(self._args[source])
        for place, k in enumerate(self.rowed):
            ends, ids = made[count + 2 * place : count + 2 * place + 2]
            ends.set_shape([None])
            ids.set_shape([call.loop.static_length])
            parts = of_branches(self._parts[k]) if k in self._parts else ()
            rows[k] = ListRows(
                call.emit.dim(ends, 0), ids=ids, lengths=ends, holds=Holds(parts=parts)
            )
        rest = iter(made[count + 2 * len(self.rowed) :])
        ragged = self.handed.values(call, made, rest)
        beside = as_opened(call, {k: [x] for k, x in self.kept.items()}, [*rest]) | ragged
        return [
            beside.get(k) or received(tensor, layout, dims(output), rows.get(k))
            for k, (tensor, layout, output) in enumerate(zip(made, self.layouts, call.op.outputs))
        ]


def _by_loops(
    call: Call, which: Value, runs: Sequence[Any], start: list[tf.Tensor]
) -> list[tf.Tensor]:
    """The branch taken, each as a loop of at most one trip."""
    made = [*start, tf.constant(0)]
    for flag, run in zip(masks_of(call, which, len(runs)), runs):
        made = run_once(flag, run, made)
    return made


def _layouts(
    call: Call, regions: Sequence[Region], args: Sequence[Value], optionals: Iterable[int]
) -> tuple[list[Layout], list[int]]:
    """The layouts of the outputs, and which of them are lists of others than the loop's rows."""
    found, rowed = [Layout.UNSTACKED] * len(call.op.outputs), set(optionals)
    for region in regions:
        trials = region.trial(args, call.loop.static_length)
        found = [join(a, t.layout) for a, t in zip(found, trials)]
        rowed |= {k for k, t in enumerate(trials) if t.has_rows}
    lists = [k for k in sorted(rowed) if found[k] is Layout.STACKED_LIST]
    lists = [k for k in lists if one_source(regions, k) is None]
    if lists and _tf.in_xla_context(call.emit.graph):
        raise CannotVectorize("under jit_compile, a branch makes lists of some rows")
    return found, lists


def index_of(call: Call, which: Value, count: int) -> tf.Tensor:
    """int32 [n]: the branch that each row takes."""
    tensor = which.tensor
    if call.op_type in ("If", "StatelessIf"):
        return tf.cast(_as_bool(tensor), tf.int32)
    is_valid = tf.logical_and(tensor >= 0, tensor < count)
    return tf.where(is_valid, tensor, count - 1)


def masks_of(call: Call, which: Value, count: int, *, first: int = 0) -> list[tf.Tensor]:
    """bool [n] for each branch from ``first`` on: the rows that take it."""
    if call.op_type in ("If", "StatelessIf"):
        taken = _as_bool(which.tensor)
        return [taken] if first else [tf.logical_not(taken), taken]
    index = index_of(call, which, count)
    return [tf.equal(index, k) for k in range(first, count)]


def _as_bool(tensor: tf.Tensor) -> tf.Tensor:
    return tensor if tensor.dtype == tf.bool else tf.cast(tensor, tf.bool)
