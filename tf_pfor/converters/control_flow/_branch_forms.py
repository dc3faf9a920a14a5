"""Results of branches whose shape differs between rows, and the form that hands them on."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import tensorflow as tf

from tf_pfor.converters.control_flow._subgraphs import Converted, Region, stitched
from tf_pfor.converters.control_flow._trials import OWN, SOME_SIZES, Trial, shape_for
from tf_pfor.core.call import Call
from tf_pfor.core.errors import CannotVectorize
from tf_pfor.core.values import Value, dims, is_static
from tf_pfor.layouts.ragged import RowSizes
from tf_pfor.layouts.ragged_parts import Form, in_order, sizes_of


class Handed:
    """The results that differ in shape, and what branches tell of their sizes.

    Attributes:
      forms: by their positions, how they are handed on.
    """

    def __init__(self, forms: dict[int, Form]):
        self.forms = forms
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

    def values(
        self, call: Call, made: Sequence[tf.Tensor], sizes: Iterator[tf.Tensor]
    ) -> dict[int, Value]:
        """These results, where all rows take one branch.

        Args:
          call: the conditional.
          made: the results of the branch.
          sizes: the sizes of all of them, and what follows.
        """
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


def forms_of_branches(
    call: Call,
    regions: Sequence[Region],
    args: Sequence[Value],
    wanted: Sequence[int],
    trials: Callable[[Region], list[Trial]],
    *,
    by_row: bool,
) -> dict[int, Form]:
    """The results whose shape may differ between rows, and how they are handed on.

    Args:
      call: the conditional.
      regions: its branches.
      args: the inputs of the regions.
      wanted: the results that are read, and are tensors.
      trials: tries a branch.
      by_row: whether rows choose the branch.
    """
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

    Args:
      call: the conditional.
      parts: the rows of each branch.
      sizes: the sizes of all of them that each branch has handed on, and what follows.
      sides: the results of each branch.
      handed: the forms of these results.
      results: the results of all rows.
    """
    put, at = functools.partial(stitched, call.emit), 0
    for k, form in handed.forms.items():
        tensors = [[side[k], *own[at : at + form.n_sizes]] for side, own in zip(sides, sizes)]
        same, n = handed.same(k, by_row=True), call.loop.static_length
        with call.emit.graph.as_default():
            results[k] = in_order(form, parts, tensors, same, put, n, call.op.outputs[k])
        at += form.n_sizes
