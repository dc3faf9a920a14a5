"""Lists that all branches of a conditional write into, each in the rows that take it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import tensorflow as tf

from tf_pfor.converters.analysis._loop_graphs import input_passed
from tf_pfor.converters.control_flow._subgraphs import Converted, Region
from tf_pfor.converters.lists._list_rows import lengths_of, with_base, with_lengths
from tf_pfor.converters.lists._lists import stack_list
from tf_pfor.core.call import Call
from tf_pfor.core.loop import Loop
from tf_pfor.core.stacked_lists import StackedList, rows_of
from tf_pfor.core.values import Value


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

        Args:
          region: the branch.
          args: its arguments, as ``seen``.
          loop: its rows.
          take: gives the value of an argument in the branch.
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
        """Tells what a branch has left.

        Args:
          call: the conditional.
          made: its outputs.
          lengths: int32 [size], of the lists that are growing.
        """
        for k, before in self.lists.items():
            self.lists[k] = StackedList.of(made[k], rows_of(before))
        for k, each in zip(self.growing, lengths, strict=True):
            self.lists[k] = with_lengths(call, self.lists[k], each)
