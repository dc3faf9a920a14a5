"""Settings that the caller of a public function chose."""

from __future__ import annotations

import dataclasses


@dataclasses.dataclass(frozen=True, slots=True)
class Settings:
    """The settings that the caller chose.

    Attributes:
      fallback: "loop", "error", or the set of op types that may run in a sequential loop.
      while_strategy: the strategy for a while loop whose iterations make different numbers of
        trips: "compact", "mask", or "auto" to choose by cost.
      warn: whether to warn of ops that run in the fallback loop.
      randomness: the behaviour of TensorFlow's stateful random ops, generators, and variables that
        are a seed. "different": each iteration draws other numbers. "same": one draw for all.
        "error": such an op is refused.
      out_shapes: the form of results whose shape may differ between iterations. "ragged": a
        RaggedTensor. "dense": a tensor, after a check that shapes are equal. "padded": a tensor
        with zeros behind shorter rows.
      progress: whether blocks of iterations show how many are done.
    """

    fallback: str | frozenset[str] = "loop"
    while_strategy: str = "auto"
    warn: bool = True
    randomness: str = "different"
    out_shapes: str = "dense"
    progress: bool = False

    def may_loop(self, op_type: str) -> bool:
        """Whether ops of this type may run in a sequential loop."""
        if isinstance(self.fallback, frozenset):
            return op_type in self.fallback
        return self.fallback == "loop"
