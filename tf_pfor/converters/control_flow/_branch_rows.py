"""One branch of a conditional on the rows that take it."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

import tensorflow as tf

from tf_pfor.converters.control_flow._branch_forms import Handed
from tf_pfor.converters.control_flow._branch_lists import Items, Threads, ends_of, items_of
from tf_pfor.converters.control_flow._branch_optionals import left_in
from tf_pfor.converters.control_flow._guarded_branch import run_if_any
from tf_pfor.converters.control_flow._subgraphs import Converted, Region
from tf_pfor.converters.lists._list_rows import known_lengths, lengths_of
from tf_pfor.converters.lists._ragged_optionals import Parts
from tf_pfor.converters.lists._row_packs import with_rows
from tf_pfor.converters.lists._unpacked_optionals import flat, tensors_of, zeros
from tf_pfor.core.call import Call
from tf_pfor.core.emit import Emitter
from tf_pfor.core.loop import Loop, PaddedRows
from tf_pfor.core.stacked_lists import Kept
from tf_pfor.core.values import Layout, Value, dims, full_shape, known_dims

Gather = Callable[[tf.Tensor], tf.Tensor]


@dataclasses.dataclass(frozen=True, slots=True)
class Outputs:
    """The outputs of a conditional that are not just tensors.

    Attributes:
      threads: the lists that all branches write into.
      lists: the lists that each branch makes.
      ragged: the outputs whose shape differs between rows.
      uneven: the lists whose rows are known to differ in length; branches add to it.
      optionals: the outputs that are optionals.
      kept: the content that a branch would put into optionals that are not made
        (``_unpacked_optionals``).
      parts: the parts of rows in the optionals that each branch returns, by output; branches add
        to it.
    """

    threads: Threads
    lists: Mapping[int, Items]
    ragged: Handed
    optionals: Collection[int] = ()
    kept: Mapping[int, Sequence[Kept]] = dataclasses.field(default_factory=dict)
    uneven: set[int] = dataclasses.field(default_factory=set)
    parts: dict[int, list[Parts | None]] = dataclasses.field(default_factory=dict)

    @property
    def all_kept(self) -> list[Kept]:
        """The content of all unmade optionals."""
        return [kept for alternatives in self.kept.values() for kept in alternatives]


def on_some_rows(
    call: Call,
    region: Region,
    args: list[Value],
    rows: tf.Tensor,
    flag: tf.Tensor,
    outputs: Outputs,
    gather: Gather,
) -> list[tf.Tensor]:
    """A branch on ``rows``, stacked outputs; zeros if ``flag`` is False.

    Four kinds of tensors follow. First come the rows of outputs that are optionals, two tensors for
    each. Then come the sizes of ragged outputs, the lengths of growing lists, and the ends of rows
    in lists that the branch has made.
    """
    emit, growing = call.emit, outputs.threads.growing

    def run() -> list[tf.Tensor]:
        inside = Emitter()
        loop = Loop(emit.dim(rows, 0), inside, rows=rows, parent=call.loop)
        take = functools.partial(loop.take, gather=gather)
        made = outputs.threads.convert(region, args, loop, take)
        ends = [ends_of(made[k], k, outputs.uneven) for k in outputs.lists]
        tensors = _tensors(made, outputs, may_differ=True)
        for k in outputs.optionals:
            tensors[k], *more = with_rows(made[k].call, made[k].value, k)
            tensors += more
            held = left_in(made[k].value, region.graph.outputs[k], args, by_row=True)
            outputs.parts.setdefault(k, []).append(held)
        outputs.ragged.hand_on(made, tensors)
        tensors += [lengths_of(made[k].call, made[k].value) for k in growing]
        return [*tensors, *ends]

    like, dtypes = _like(call, rows, outputs)
    like += [tf.TensorShape([None])] * (2 * len(outputs.optionals) + outputs.ragged.n_sizes)
    like += [known_lengths(outputs.threads.lists[k]) for k in growing]
    like += [tf.TensorShape([None])] * len(outputs.lists)
    dtypes += [tf.int32] * (len(like) - len(dtypes))
    return run_if_any(region, flag, run, like, dtypes)


def on_all_rows(
    call: Call,
    region: Region,
    args: list[Value],
    rows: PaddedRows,
    flag: tf.Tensor,
    outputs: Outputs,
) -> list[tf.Tensor]:
    """A branch on the rows of a mask and on those that stand in for the others.

    Then comes what stands beside optionals that are not made, and the sizes of ragged outputs.
    """

    def run() -> list[tf.Tensor]:
        del like[count:], dtypes[count:]
        loop = call.loop.padded(rows, Emitter())
        made = outputs.threads.convert(region, args, loop, loop.take)
        outputs.ragged.refuse_others(made)
        tensors = _tensors(made, outputs, may_differ=False)
        for k, alternatives in outputs.kept.items():
            tensors += tensors_of(made[k].call, made[k].value, alternatives)
        outputs.ragged.keep(region, made, tensors)
        for k in (*outputs.ragged.forms, *range(count, len(tensors))):  # zeros are as large
            like[k : k + 1], dtypes[k : k + 1] = [tensors[k].shape], [tensors[k].dtype]
        return tensors

    like, dtypes = _like(call, rows.rows, outputs)
    for dtype, shape in flat(outputs.all_kept):
        is_list = dtype == tf.variant
        lead = known_dims(dims(rows.rows))[0]
        given = zeros(call, dtype, shape) if is_list else full_shape(Layout.STACKED, shape, lead)
        like.append(given)
        dtypes.append(dtype)
    count = len(like)
    lead = call.emit.dim(rows.rows, 0)
    return run_if_any(region, flag, run, like, dtypes, lead)


def _tensors(made: Sequence[Converted], outputs: Outputs, *, may_differ: bool) -> list[tf.Tensor]:
    """The outputs; those that are optionals or ragged come in another way."""
    return [
        items_of(m, outputs.lists[k], may_differ=may_differ)
        if k in outputs.lists
        else tf.constant(0)
        if k in outputs.optionals or k in outputs.kept or k in outputs.ragged.forms
        else m.as_layout(Layout.STACKED_LIST if m.value.dtype == tf.variant else Layout.STACKED)
        for k, m in enumerate(made)
    ]


def _like(call: Call, rows: tf.Tensor, outputs: Outputs) -> tuple[list[Any], list[tf.DType]]:
    """The results of ``run_if_any`` for the outputs of a side without rows, and their dtypes."""
    lead = known_dims(dims(rows))[0]
    like: list[Any] = [full_shape(Layout.STACKED, dims(o), lead) for o in call.op.outputs]
    dtypes = [o.dtype for o in call.op.outputs]
    for k, output in enumerate(call.op.outputs):
        if k in outputs.lists:
            items = outputs.lists[k]
            dtypes[k], like[k] = items.dtype, tf.TensorShape([lead, items.count, *items.shape])
        elif k in outputs.threads.lists:
            like[k] = outputs.threads.lists[k].tensor
        elif k in outputs.ragged.forms:
            like[k] = outputs.ragged.forms[k].shapes()[0]
        elif k in outputs.kept:
            like[k], dtypes[k] = tf.TensorShape([]), tf.int32
        elif output.dtype == tf.variant:
            like[k] = None
    return like, dtypes
