"""Lists that conditionals return, of which each row chooses the branch."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import tensorflow as tf

from tf_pfor import _tf
from tf_pfor.converters.analysis._loop_graphs import input_passed, source
from tf_pfor.converters.analysis._variant_types import declared_item, item_shape, kind_of
from tf_pfor.converters.control_flow._branch_optionals import one_source
from tf_pfor.converters.control_flow._subgraphs import (
    Converted,
    Region,
    as_layout,
    nothing,
    stitched,
)
from tf_pfor.converters.lists._list_lengths import declared_length
from tf_pfor.converters.lists._list_rows import (
    dense,
    from_zero,
    known_lengths,
    lengths_of,
    pick,
    with_base,
    with_lengths,
)
from tf_pfor.converters.lists._lists import size_of_rows, stack_list, swap
from tf_pfor.core.call import Call
from tf_pfor.core.errors import CannotVectorize, Refused
from tf_pfor.core.loop import Loop
from tf_pfor.core.stacked_lists import StackedList, known_rows, list_with_rows, rows_of
from tf_pfor.core.values import Layout, Value, as_shape, is_static
from tf_pfor.layouts.padded_lists import equally_long


@dataclasses.dataclass(frozen=True, slots=True)
class Items:
    """The items of a list: their dtype, their static shape, and how many (None if unknown)."""

    dtype: tf.DType
    shape: tuple[int, ...]
    count: int | None


NOTHING = Items(tf.float32, (0,), 0)  # in place of a list that nobody reads


def lists_of_branches(
    call: Call, regions: Sequence[Region], optionals: Mapping[int, Any], *, may_grow: bool = False
) -> tuple[dict[int, int], dict[int, Items]]:
    """The outputs that are lists: those that every branch makes of one argument, and others.

    Branches that write into one list do so one after the other, each in its own rows. Of lists that
    branches make by themselves the items are put together.
    """
    threads: dict[int, int] = {}
    made: dict[int, Items] = {}
    for k, output in enumerate(call.op.outputs):
        if output.dtype != tf.variant or k in optionals:
            continue
        if k in regions[0].unread:
            made[k] = NOTHING
            continue
        thread = one_source(regions, k, may_grow=may_grow)
        if thread is not None:
            threads[k] = thread
            continue
        known = [_element(call, region.graph.outputs[k]) for region in regions]
        first = next((e for e in known if e is not None and e[1].is_fully_defined()), None)
        # Where nobody was seen to put something in, the shape is checked when it runs.
        is_clear = first is not None and first[0] != tf.variant
        if first is None or not (is_clear and all(e and _may_be(e, first) for e in known)):
            what = "other items" if is_clear else "items of unknown shape"
            raise CannotVectorize(f"branches that rows choose between make lists of {what}")
        lengths = {declared_length(call, region.graph.outputs[k]) for region in regions}
        if len(lengths - {None}) > 1:
            raise CannotVectorize("branches that rows choose between make lists of other lengths")
        length = next(iter(lengths)) if len(lengths) == 1 else None
        item = as_shape(first[1])
        assert is_static(item)
        made[k] = Items(first[0], item, length)
    return threads, made


def _may_be(
    element: tuple[tf.DType, tf.TensorShape], known: tuple[tf.DType, tf.TensorShape]
) -> bool:
    shape = element[1]
    return element[0] == known[0] and (shape.rank is None or shape.as_list() == known[1].as_list())


def refuse_lists_for_gradients(call: Call, regions: Sequence[Region]) -> None:
    """Refuses a list that one branch only makes, for a gradient, where XLA is to compile it."""
    lists = {k for k, o in enumerate(call.op.outputs) if o.dtype == tf.variant}
    made = [source(r.graph.outputs[k]) for r in regions for k in lists - regions[0].unread]
    if call.is_for(_tf.in_xla_context) and any(t.op.type == "FakeParam" for t in made):
        raise Refused(
            "under jit_compile, a branch has a loop of which a gradient is asked, which XLA cannot "
            "do for one row either: put the condition into that of the loop, or leave out "
            "jit_compile"
        )


def _element(call: Call, made: tf.Tensor) -> tuple[tf.DType, tf.TensorShape] | None:
    """Dtype and static shape of the items of a list that a branch makes, None if not known."""
    known = _tf.list_element(made)
    if known is not None and known[1].is_fully_defined():
        return known
    kind = kind_of(call, made)
    if not isinstance(kind, tf.DType):
        return known
    declared = declared_item(call, made)
    return kind, declared if declared.rank is not None else item_shape(call, made)


def unset_outputs(
    call: Call, regions: Sequence[Region], args: list[Value], layouts: Sequence[Layout]
) -> list[tf.Tensor] | None:
    """For each output zeros, or the list that all branches write; None if that is unknown."""
    made: list[tf.Tensor] = []
    for k, (output, layout) in enumerate(zip(call.op.outputs, layouts)):
        if k in regions[0].unread:
            made.append(nothing(call.emit).tensor)
            continue
        source = one_source(regions, k)
        if output.dtype == tf.variant and source is not None:
            made.append(as_layout(call, args[source], layout).tensor)
            continue
        if output.dtype == tf.variant or not output.shape.is_fully_defined():
            return None
        lead = [call.loop.length] * (layout is Layout.STACKED)
        made.append(tf.zeros([*lead, *output.shape], output.dtype))
    return made


def put_together(
    call: Call,
    parts: Sequence[tf.Tensor],
    pieces: Sequence[tf.Tensor],
    ends: Sequence[tf.Tensor],
    items: Items,
    is_uneven: bool,
) -> Value:
    """The list of what branches made: ``pieces`` [k, T, ...] of each, of the lengths ``ends`` [k].

    ``is_uneven`` says whether rows are known to differ in length.
    """
    emit, n = call.emit, call.loop.static_length
    shape = tf.TensorShape([n, items.count, *items.shape])
    if items.count is not None:
        return list_of_items(call, stitched(emit, parts, pieces, shape), items)
    pieces = equally_long(emit, pieces, axis=1)
    made = list_of_items(call, stitched(emit, parts, pieces, shape), items)
    made = with_lengths(call, made, stitched(emit, parts, ends, tf.TensorShape([n])))
    return list_with_rows(made, dataclasses.replace(known_rows(made), may_agree=not is_uneven))


def list_of_items(call: Call, whole: tf.Tensor, items: Items) -> Value:
    """The list of [n, T, ...]."""
    shape = call.emit.shape_vector([call.loop.length, *items.shape])
    return StackedList.of(call.emit("TensorListFromTensor", swap(call, whole), shape))


def items_of(made: Converted, items: Items, *, may_differ: bool) -> tf.Tensor:
    """All items of a list that a branch made for its rows: [k, T, ...]."""
    call, value = made.call, from_zero(made.call, made.value)
    if known_lengths(value) is not None and not may_differ:
        raise CannotVectorize("a branch makes lists whose length differs between iterations")
    shape = call.emit.shape_vector([size_of_rows(call, value), *items.shape])
    whole = dense(call, value, shape, items.dtype, may_pad=False)
    found = swap(call, pick(call, value, whole, axis=1))
    found.set_shape([None, items.count, *items.shape])
    return found


def ends_of(made: Converted, k: int, uneven: set[int]) -> tf.Tensor:
    """int32 [k]: how long the lists are that a branch made as output ``k``."""
    value = from_zero(made.call, made.value)
    assert isinstance(value, StackedList)
    if known_lengths(value) is not None and not (rows_of(value) and known_rows(value).may_agree):
        uneven.add(k)
    return pick(made.call, value, lengths_of(made.call, value))


class Threads:
    """Outputs that all branches make of one argument: it goes through one branch after the other.

    Several outputs may be made of the same argument. Branches see the first output that is written,
    and write into it in place. Once another output is no longer the same list, the rows of a branch
    are copied into it.

    Attributes:
      sources: for each output the argument that it is made of.
      growing: the outputs that may grow.
      lists: the outputs, as the branches so far have left them.
    """

    def __init__(
        self,
        call: Call,
        regions: Sequence[Region],
        sources: Mapping[int, int],
        args: Sequence[Value],
        growing: Sequence[int] = (),
    ):
        self.sources = sources
        self.growing = growing
        written = [k for k in sources if any(input_passed(r.graph, k) is None for r in regions)]
        self._seen = {sources[k]: k for k in reversed([*written, *sources])}
        whole = {i: stack_list(call, args[i]) for i in self._seen}
        for i in {sources[k] for k in growing}:
            whole[i] = with_lengths(call, whole[i], lengths_of(call, whole[i]))
        self.lists = {k: whole[i] for k, i in sources.items()}

    def seen(self, args: Sequence[Value]) -> list[Value]:
        """The arguments of the next branch."""
        return [self.lists[self._seen[i]] if i in self._seen else a for i, a in enumerate(args)]

    def convert(
        self, region: Region, args: list[Value], loop: Loop, take: Callable[[Value], Value]
    ) -> list[Converted]:
        """The next branch; its outputs that are such lists hold the rows of the others as well.

        ``take`` gives the value of an argument in the branch.
        """
        args = [take(a) for a in args]
        for i in self._seen:
            args[i] = with_base(args[i])
        made = region.convert(args, loop, loop.emit)
        for k, i in self.sources.items():
            seen = self.lists[self._seen[i]]
            is_same = self.lists[k].tensor is seen.tensor
            before = args[i] if is_same else with_base(take(self.lists[k]))
            is_passed = input_passed(region.graph, k) is not None
            made[k] = made[k].being(before) if is_passed else made[k].carrying_on(before)
        return made

    def left(self, call: Call, made: Sequence[tf.Tensor], lengths: Sequence[tf.Tensor]) -> None:
        """Tells what a branch has left, and int32 [size], the lengths of the lists that grow."""
        for k, before in self.lists.items():
            self.lists[k] = StackedList.of(made[k], rows_of(before))
        for k, each in zip(self.growing, lengths, strict=True):
            self.lists[k] = with_lengths(call, self.lists[k], each)
