"""Optionals that conditionals return: each row has the optional of the branch it took.

The optionals that branches return under one name are one list of optionals (``optional.py``), in
the order of the branches. A branch may return several, if it returns the optionals of another
conditional.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Iterable, Sequence
from typing import Any

import tensorflow as tf

from tf_pfor.converters.analysis._loop_graphs import input_before, source
from tf_pfor.converters.analysis._variant_types import kind_of
from tf_pfor.converters.control_flow._subgraphs import Region
from tf_pfor.converters.control_flow._trials import sizes_in
from tf_pfor.converters.lists._optional_values import item_at, joined, list_of
from tf_pfor.converters.lists._ragged_optionals import Parts, leaving, of_branches
from tf_pfor.core.call import Call
from tf_pfor.core.errors import CannotVectorize
from tf_pfor.core.stacked_lists import Holds, ListRows, StackedList, known_rows, rows_of
from tf_pfor.core.values import Value
from tf_pfor.layouts import quick
from tf_pfor.layouts.row_sizes import RowSizes


@dataclasses.dataclass(frozen=True, slots=True)
class Returned:
    """The optionals that a branch returns under one name.

    Attributes:
      count: the number of optionals in the list.
      is_own: whether the branch has made the optional for its rows.
    """

    count: int
    is_own: bool


def optionals_of(
    call: Call, regions: Sequence[Region], opened: Collection[int]
) -> dict[int, list[Returned]]:
    """The outputs that are Optionals and not ``opened``, and what each branch returns there."""
    made, found = ("OptionalFromValue", "OptionalNone"), dict[int, list[Returned]]()
    for k, output in enumerate(call.op.outputs):
        ends = [r.graph.outputs[k] for r in regions]
        if output.dtype != tf.variant or k in opened or k in regions[0].unread:
            continue
        if one_source(regions, k) is not None:
            continue
        kinds = [kind_of(call, t) for t in ends]
        if any(isinstance(kind, tuple) for kind in kinds):
            counts = [len(kind) if isinstance(kind, tuple) else 1 for kind in kinds]
            found[k] = [Returned(c, t.op.type in made) for c, t in zip(counts, ends)]
    return found


def refuse_reads(call: Call, optionals: Iterable[int]) -> None:
    """Refuses outputs that are Optionals of which not only a branch of rows reads a value."""
    todo = [call.op.outputs[k] for k in optionals]
    for tensor in todo:  # grows
        for op in tensor.consumers():
            if op.type in ("OptionalGetValue", "OptionalHasValue"):
                raise CannotVectorize("rows may differ in whether an optional has a value")
            todo += op.outputs if op.type == "Identity" else ()


def refuse_carried(call: Call, made: Iterable[tf.Tensor]) -> None:
    """Refuses a loop of which a trip makes optionals, or chooses between some, for the next one."""
    if any(t.dtype == tf.variant and isinstance(kind_of(call, t), tuple) for t in made):
        raise CannotVectorize("a loop changes an optional: carry its values")


def by_branch(
    call: Call,
    index: tf.Tensor,
    parts: list[tf.Tensor],
    made: Sequence[Sequence[tf.Tensor]],
    optionals: Sequence[Returned],
    held: Sequence[Parts | None],
) -> Value:
    """Optionals that branches made, each for the rows that take it: all of them in a list.

    Args:
      call: the conditional.
      index: int32 [n], the branch of each row.
      parts: int32 [k_b], the rows of each branch.
      made: for each branch a list of optionals, and the rows in them (``list_with_rows``).
      optionals: the ``Returned`` of each branch.
      held: for each optional the parts of ragged rows in it.
    """
    emit, key = call.emit, ("by branch", index.ref())
    if key not in emit.memo:
        emit.memo[key] = quick.op("InvertPermutation", quick.concat(parts))
    place, count, before = emit.memo[key], 0, 0
    all_made: tf.Tensor | None = None
    numbers, ids = list[Any](), list[Any]()
    for (handle, ends, rows), known in zip(made, optionals):
        ids.append(quick.add(rows, count))  # rows are numbered through all, and so are optionals
        numbers.append(quick.add(ends, before))
        count = quick.add(count, quick.dim(ends, 0))
        if known.is_own:
            all_made, before = list_of([item_at(handle, 0)], all_made), quick.add(before, 1)
        else:
            all_made = handle if all_made is None else joined(all_made, handle)
            before = quick.add(before, quick.op("TensorListLength", handle))
    ids, numbers = quick.gather(quick.concat(ids), place), quick.concat(numbers)
    own = tuple(
        (p, m[0], h or ()) for p, m, h, known in zip(parts, made, held, optionals) if known.is_own
    )
    ids.set_shape([call.loop.static_length])
    holds = Holds(by_branch=own, parts=of_branches(held))
    rows = ListRows(emit.dim(numbers, 0), ids=ids, lengths=numbers, holds=holds)
    assert all_made is not None  # there is more than one branch
    return StackedList.of(all_made, rows)


def among(value: Value, branch: int, optionals: Sequence[Returned]) -> Value:
    """The optional that one branch returns, as one of all that branches may return."""
    rows = rows_of(value)
    if rows is None:  # in a trial
        return value
    assert rows.lengths is not None
    counts, none = [known.count for known in optionals], tf.raw_ops.OptionalNone()
    before, after = sum(counts[:branch]), sum(counts[branch + 1 :])
    handle = joined(list_of([none] * before), value.tensor) if before else value.tensor
    handle = list_of([none] * after, handle)
    rows = dataclasses.replace(rows, lengths=rows.lengths + before, is_even=False)
    return StackedList.of(handle, rows.holding(by_branch=()))


def one_source(regions: Sequence[Region], k: int, *, may_grow: bool = False) -> int | None:
    """The input of which all branches make output ``k``, a list, of its length or a larger one."""
    sources = {input_before(region.graph, k, may_grow=may_grow) for region in regions}
    return sources.pop() if len(sources) == 1 else None


def left_in(value: Value, made: tf.Tensor, args: Sequence[Value], *, by_row: bool) -> Parts | None:
    """The parts of an optional outside of the branch that returns it; None if it has no value.

    The body calls the optional ``made``. ``by_row`` says whether rows choose the branch.
    """
    if source(made).op.type == "OptionalNone":
        return None
    known = [s for a in args for s in sizes_in(a) if isinstance(s, RowSizes)]
    return leaving(known_rows(value).holds.parts, known, by_row=by_row)
