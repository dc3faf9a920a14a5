"""Results of branches: which of them agree, and the form of those that differ in shape."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from tf_pfor import _tf
from tf_pfor.converters.analysis._loop_graphs import input_passed, is_read, place_of, source
from tf_pfor.converters.analysis._variant_types import same_constant
from tf_pfor.converters.control_flow._subgraphs import Converted, Region, stitched
from tf_pfor.converters.control_flow._trials import OWN, SOME_SIZES, Trial, shape_for
from tf_pfor.core.call import Call
from tf_pfor.core.errors import CannotVectorize, Refused
from tf_pfor.core.facts import facts_of
from tf_pfor.core.matching import group
from tf_pfor.core.regions import key
from tf_pfor.core.values import Value, dims, is_static
from tf_pfor.layouts.packing import largest
from tf_pfor.layouts.ragged import Ragged, RowSizes, same_sizes
from tf_pfor.layouts.ragged_parts import Form, in_order, of_one_inner_shape, sizes_of

# Elements from which on nobody looks whether all branches give the same constant.
_SMALL = 16


class Handed:
    """The results that differ in shape, and what branches tell of their sizes.

    Attributes:
      forms: by their positions, how they are handed on.
      kept: by their positions, the values in the branch that was converted last, under XLA.
    """

    def __init__(self, forms: dict[int, Form]):
        self.forms = forms
        self.kept: dict[int, Value] = {}
        self._sizes: dict[int, list[list[Any]]] = {k: [] for k in forms}

    @property
    def n_sizes(self) -> int:
        """The number of tensors of sizes for all results."""
        return sum(form.n_sizes for form in self.forms.values())

    def hand_on(self, made: Sequence[Converted], tensors: list[tf.Tensor]) -> None:
        """Sets the tensors of these results, that a branch has made, and appends their sizes."""
        for k, form in self.forms.items():
            rows = made[k].rows
            self._sizes[k].append(sizes_of(rows, len(form.sizes)))
            tensors[k], *sizes = made[k].ready(form.tensors(rows))
            tensors += sizes

    def refuse_others(self, made: Sequence[Converted]) -> None:
        """Refuses other results of different shapes, beside these, under XLA."""
        others = (m.value for k, m in enumerate(made) if k not in self.forms)
        if self.forms and any(isinstance(v, Ragged) for v in others):
            raise Refused(
                "a conditional in a conditional keeps rows of different shapes for its gradient: "
                "take the mask, or the slice, before them"
            )

    def keep(self, region: Region, made: Sequence[Converted], tensors: list[tf.Tensor]) -> None:
        """Sets the tensors of these results of a branch, padded, and appends their sizes.

        What is kept for the gradient of another branch is a number.
        """
        self.kept = {}
        for k in self.forms:
            tensors[k] = tf.constant(0)
            if _is_made(region, k):
                rows = made[k].rows
                value = self.kept[k] = rows if isinstance(rows, Ragged) else Value.stacked(rows)
                own = [s.tensor for s in _made_in(value)]
                tensors[k], *sizes = made[k].ready([_in_rows(value), *own])
                tensors += sizes

    def take(
        self,
        call: Call,
        mask: tf.Tensor,
        made: list[tf.Tensor],
        found: dict[Any, Any],
    ) -> None:
        """Reads the results that a branch has set, and takes their sizes away.

        ``found`` has what other branches gave, and their sizes; it gets the results by their
        numbers.
        """
        new = [s for v in self.kept.values() for s in _made_in(v)]
        for size, tensor in zip(new, made[len(made) - len(new) :]):
            found.setdefault(size, RowSizes.of(tensor, largest(size)))
        del made[len(made) - len(new) :]
        for k, value in self.kept.items():
            old, tensor, own = found.get(k), made[k], None
            if isinstance(value, Ragged):
                own = [s.whole or found[s] if isinstance(s, RowSizes) else s for s in value.sizes]
            if old is not None and not is_read(call.op.outputs[k], call.walker.is_asked):
                continue
            if old is not None and not _fit(old, tensor, own):
                raise _other_shapes([dims(call.op.outputs[k])])
            rank = tensor.shape.rank
            assert rank is not None
            mine_only = tf.reshape(mask, [-1, *[1] * (rank - 1)])
            other = tf.zeros([], tensor.dtype) if old is None else _in_rows(old)
            tensor = tf.where(mine_only, tensor, other)
            found[k] = Value.stacked(tensor) if own is None else Ragged.from_padded(tensor, own)

    def values(
        self, call: Call, made: Sequence[tf.Tensor], sizes: Iterator[tf.Tensor]
    ) -> dict[int, Value]:
        """These results, where all rows take one branch; ``sizes`` begins with theirs."""
        found: dict[int, Value] = {}
        for k, form in self.forms.items():
            own = [next(sizes) for _ in range(form.n_sizes)]
            for size in own:
                size.set_shape([call.loop.static_length])
            same = self.same(k, by_row=False)
            found[k] = form.value([made[k], *own], same, call.op.outputs[k])
        return found

    def same(self, k: int, *, by_row: bool) -> list[RowSizes | None]:
        """For each axis the sizes of all rows that every branch has, or has selected from."""
        found: list[RowSizes | None] = []
        for sizes in zip(*self._sizes[k]):
            own = [s if isinstance(s, RowSizes) else None for s in sizes]
            if by_row:
                own = [None if s is None else s.whole for s in own]
            found.append(own[0] if all(s is own[0] for s in own) else None)
        return found


def _in_rows(value: Value) -> tf.Tensor:
    return value.in_rows if isinstance(value, Ragged) else value.tensor


def _fit(old: Value, tensor: tf.Tensor, sizes: Sequence[Any] | None) -> bool:
    """Whether a padded tensor of rows of these sizes, None if dense, is like the rows ``old``."""
    own = old.sizes if isinstance(old, Ragged) else None
    is_alike = own is sizes if own is None or sizes is None else same_sizes(own, sizes)
    return is_alike and _in_rows(old).shape == tensor.shape


def _made_in(value: Value) -> list[RowSizes]:
    """The sizes of the rows of a branch that were not selected from the sizes of all rows."""
    sizes = value.sizes if isinstance(value, Ragged) else ()
    return [s for s in sizes if isinstance(s, RowSizes) and s.whole is None]


def agreed(call: Call, regions: Sequence[Region], k: int, args: Sequence[Value]) -> Value | None:
    """Output ``k``, where all branches give the same input or constant, as shapes of gradients."""
    graphs = [r.graph for r in regions]
    passed = {input_passed(graph, k) for graph in graphs}
    i = passed.pop() if len(passed) == 1 else None
    if i is not None and args[i].dtype != tf.variant:
        return args[i]
    if (graphs[0].outputs[k].shape.num_elements() or _SMALL) >= _SMALL:
        return None
    constants = [None if a.is_stacked else a.constant for a in args]
    known = same_constant([_known(graph.outputs[k], constants.__getitem__) for graph in graphs])
    return None if known is None else Value.unstacked(call.emit.constant(known), constant=known)


def _known(tensor: tf.Tensor, given: Callable[[int], np.ndarray | None]) -> np.ndarray | None:
    """The constant that a tensor of a branch is; ``given`` tells the constants of its inputs."""
    tensor = source(tensor)
    op, i = tensor.op, place_of(tensor.graph, tensor)
    if i is not None:
        return given(i)
    if op.type not in _tf.BRANCHES:
        return _tf.static_value(tensor)
    ends = [graph.outputs[tensor.value_index] for graph in _tf.functions_of(op)]
    return same_constant([_known(t, lambda i: _known(op.inputs[i + 1], given)) for t in ends])


def handed_on(
    call: Call, regions: Sequence[Region], args: Sequence[Value], *, by_row: bool
) -> Handed:
    """The outputs whose shape may differ between rows."""
    if call.walker.inner_map is not None:
        if by_row and any(_conflict([r.graph.outputs[k] for r in regions]) for k in _numbers(call)):
            raise CannotVectorize("branches give results of different shapes")
        return Handed({})
    wanted = _numbers(call)
    in_xla = _tf.in_xla_context(call.emit.graph)
    if in_xla:  # what stands in for a kept result has another shape, which the op may show
        wanted = [
            k
            for k in _numbers(call, all_of=True)
            if not (is_static(dims(call.op.outputs[k])) and all(_is_made(r, k) for r in regions))
        ]
    length = None if by_row else call.loop.static_length
    forms = _forms_of_branches(
        regions, args, wanted, lambda r: r.trial(args, length), by_row=by_row
    )
    for k in forms if in_xla else ():
        made = [dims(r.graph.outputs[k]) for r in regions if _is_made(r, k)]
        if not by_row or (len(made) > 1 and all(map(is_static, made))):
            raise _other_shapes(made)
    return Handed(forms)


def _is_made(region: Region, k: int) -> bool:
    """Whether a branch makes output ``k``; else the gradient of another branch alone reads it."""
    return source(region.graph.outputs[k]).op.type != "FakeParam"


def _other_shapes(made: Sequence[Any]) -> Refused:
    return Refused(
        "branches that rows choose between give results of different shapes, "
        f"{' and '.join(dict.fromkeys(map(str, made)))}: give them one shape, e.g. by padding"
    )


def _numbers(call: Call, *, all_of: bool = False) -> list[int]:
    """The outputs that are tensors, and are read, or all of them."""
    return [
        k
        for k, o in enumerate(call.op.outputs)
        if o.dtype not in (tf.variant, tf.resource) and (all_of or is_read(o, call.walker.is_asked))
    ]


def _conflict(tensors: Sequence[tf.Tensor]) -> bool:
    """Whether two static shapes cannot be the same."""
    first, *others = [t.shape for t in tensors]
    return not all(first.is_compatible_with(shape) for shape in others)


def unread_lists(call: Call) -> frozenset[int]:
    """The outputs that are lists, and that nobody reads."""
    return frozenset(
        k
        for k, o in enumerate(call.op.outputs)
        if o.dtype == tf.variant and not is_read(o, call.walker.is_asked)
    )


def _forms_of_branches(
    regions: Sequence[Region],
    args: Sequence[Value],
    wanted: Sequence[int],
    trials: Callable[[Region], list[Trial]],
    *,
    by_row: bool,
) -> dict[int, Form]:
    """The results whose shape may differ between rows, and how they are handed on."""
    known = [[dims(r.graph.outputs[k]) for r in regions] for k in wanted]
    wanted = [
        k
        for k, shapes in zip(wanted, known)
        if not all(is_static(s) for s in shapes) or (by_row and len(set(shapes)) > 1)
    ]
    tried = [trials(region) for region in regions] if wanted else []
    found: dict[int, Form] = {}
    for k in wanted:
        axes = [t[k].axes for t in tried]
        form = _form(regions, args, k, axes, by_row=by_row)
        if form is not None:
            found[k] = form
    return found


def _form(
    regions: Sequence[Region], args: Sequence[Value], k: int, axes: Sequence[Any], *, by_row: bool
) -> Form | None:
    """The form of result ``k``, of these axes (``Trial.axes``); None if it is dense."""
    if any(a is None for a in axes):
        return None
    if len({len(a) for a in axes}) > 1:
        raise CannotVectorize("branches that rows choose between give results of different ranks")
    numbers = range(len(axes[0]))
    differs = [any(a[i] is OWN for a in axes) for i in numbers]
    if by_row:
        seen = [_in_numbers(r, args, k, a) for r, a in zip(regions, axes)]
        differs = [d or len({s[i] for s in seen}) > 1 for i, d in enumerate(differs)]
    if not any(differs):
        return None
    differs = [d or any(isinstance(a[i], tuple) for a in axes) for i, d in enumerate(differs)]
    count = max(i for i in numbers if differs[i]) + 1
    joint = [axes[0][i] if len({a[i] for a in axes}) == 1 else None for i in numbers]
    sizes = tuple(None if differs[i] else joint[i] for i in numbers[:count])
    return Form(sizes, tuple(joint[count:]))


def _in_numbers(region: Region, args: Sequence[Value], k: int, axes: Sequence[Any]) -> list[Any]:
    """The sizes of result ``k`` of a branch, each as it is if all that is unknown has some size.

    They are equal in two branches if these sizes are known to be equal, or nothing is known.
    """
    axes = [a[0] if isinstance(a, tuple) else a for a in axes]
    if None not in axes:
        return [(a,) * len(SOME_SIZES) for a in axes]
    tried = [shape_for(region.graph, args, k, size, region.call.memo) for size in SOME_SIZES]
    return [
        (a,) * len(SOME_SIZES) if isinstance(a, int) else tuple(t and t[i] for t in tried)
        for i, a in enumerate(axes)
    ]


def put_in_order(
    call: Call,
    parts: Sequence[tf.Tensor],
    sizes: Sequence[Sequence[tf.Tensor]],
    sides: Sequence[Sequence[tf.Tensor]],
    handed: Handed,
    results: list[Any],
) -> None:
    """Sets the results whose shape differs between rows, where these chose the branch.

    The ``sizes`` of each branch are those that it has handed on, of all results, and what follows.
    """
    put, at = functools.partial(stitched, call.emit), 0
    for k, form in handed.forms.items():
        tensors = [[side[k], *own[at : at + form.n_sizes]] for side, own in zip(sides, sizes)]
        same, n = handed.same(k, by_row=True), call.loop.static_length
        with call.emit.graph.as_default():
            results[k] = in_order(form, parts, tensors, same, put, n, call.op.outputs[k])
        at += form.n_sizes


def stitched_output(
    call: Call, parts: list[tf.Tensor], pieces: list[tf.Tensor], output: tf.Tensor
) -> tf.Tensor:
    """An output of one shape, of what the branches made of it."""
    is_wanted = is_read(output, call.walker.is_asked)
    with call.emit.graph.as_default():
        pieces = of_one_inner_shape(pieces, output.shape, output, is_read=is_wanted)
    shape = tf.TensorShape([call.loop.static_length]).concatenate(output.shape)
    return stitched(call.emit, parts, pieces, shape)


def sizes_meet(call: Call, regions: list[Region], args: list[Value]) -> bool:
    """Whether inputs of an op of a branch have sizes that may agree only where it is taken.

    Rows that do not take the branch would fail there.
    """
    if _tf.in_xla_context(call.emit.graph) or _tf.in_body(call.emit.graph):
        return False
    return any(isinstance(v, Ragged) for v in args) and any(_meets(r.graph, args) for r in regions)


def _meets(graph: Any, args: list[Value]) -> bool:
    """Whether sizes meet in an op of one branch, which may agree for some rows only.

    A size is an int, or an object that stands for one number alone.
    """
    known: dict[Any, tuple[Any, ...] | None] = {}
    for given, value in zip(graph.inputs, args):
        own = [(size,) for size in value.sizes] if isinstance(value, Ragged) else []
        known[key(given)] = _keys(given, own)
    for op in graph.get_operations():
        facts = facts_of(op.type)
        is_plain = not (facts.axes or facts.places or op.type in ("Pack", "Squeeze", "Unpack"))
        read = (known[key(t)] for t in _data_of(op))
        shapes = [x for x in read if x is not None and (len(x) > 1 or op.type != "ConcatV2")]
        if op.type != "IdentityN" and not all(
            _go_together(a, b) for a, b in itertools.combinations(shapes, 2)
        ):
            return True
        widest = max(shapes, key=len, default=()) if is_plain else ()
        for t in op.outputs:
            known.setdefault(key(t), _keys(t, widest))
    return False


def _data_of(op: tf.Operation) -> list[tf.Tensor]:
    """The inputs of an op that are no axes, shapes or places."""
    facts, schema = facts_of(op.type), _tf.schema(op.type)
    if schema is None or not (facts.axes or facts.places):
        return list(op.inputs)
    given = group(op, schema, list(op.inputs))
    data = [x for name, x in given.items() if name not in (*facts.axes, *facts.places)]
    return [t for x in data for t in (x if isinstance(x, list) else [x])]


def _keys(tensor: tf.Tensor, own: Sequence[Any]) -> tuple[Any, ...] | None:
    """The sizes of a tensor, as ``_meets`` compares them; ``own`` has those that are not known."""
    shape = dims(tensor)
    if shape is None:
        return None
    own = [*own[: len(shape)], *[None] * (len(shape) - len(own))]
    new = [(key(tensor), k) for k in range(len(shape))]
    return tuple(d if d is not None else o or x for d, o, x in zip(shape, own, new))


def _go_together(a: Sequence[Any], b: Sequence[Any]) -> bool:
    """Whether two shapes go together in all rows, if they do in one."""
    pairs = [*zip(reversed(a), reversed(b))]
    return all(x == y or 1 in (x, y) or {type(x), type(y)} == {int} for x, y in pairs)
