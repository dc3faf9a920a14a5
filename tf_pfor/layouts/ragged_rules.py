"""The rules for rows of different shapes, by op type (DESIGN 10): converters add theirs."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from tf_pfor.core.registry import REGISTRY

Rule = Callable[..., Any]
RULES: dict[str, Rule] = {}
"""``RULES[op_type](call, *inputs)``, in the order of the OpDef, of which some are ``Ragged``."""
FAMILIES: dict[str, Rule] = {}
"""The same, by the family of the op's rules for stacked inputs."""
OF_SHAPES = frozenset([
    "BroadcastGradientArgs", "BroadcastTo", "Cast", "ConcatOffset", "ConcatV2", "Cumsum",
    "DenseBincount", "DynamicStitch", "ExpandDims", "Fill", "GatherV2", "Identity", "Minimum",
    "Mul", "Pack",
    "Prod", "RandomStandardNormal", "RandomUniform", "RandomUniformInt", "Reshape", "Slice",
    "StatelessRandomNormalV2", "StatelessRandomUniformFullIntV2", "StatelessRandomUniformIntV2",
    "StatelessRandomUniformV2", "StatelessTruncatedNormalV2", "StridedSlice", "StridedSliceGrad",
    "Tile", "TruncatedNormal", "UnsortedSegmentMax", "UnsortedSegmentMin",
    "UnsortedSegmentProd", "UnsortedSegmentSum",
])  # fmt: skip
"""Those that know what to do where only shapes, or sizes, of ragged rows are given."""
TAKERS = frozenset([
    "Case", "If", "PartitionedCall", "StatefulPartitionedCall", "StatelessCase", "StatelessIf",
    "StatelessWhile", "While",
])  # fmt: skip
"""Ops that hand ragged rows on to functions of theirs, which are converted for them."""
OF_ONE_AXIS = frozenset(["GatherV2", "Slice"])
"""Ops whose rules take rows that differ along one axis only, in general."""
ROW_KERNELS = frozenset([
    "DecodeAndCropJpeg", "DecodeBmp", "DecodeGif", "DecodeImage", "DecodeJpeg",
    "DecodePng", "DecodeWav", "DecodeWebP", "EncodeJpeg", "EncodeJpegVariableQuality", "EncodePng",
    "EncodeWav", "ExtractJpegShape", "MatchingFiles", "ParseTensor", "ReadFile", "SerializeTensor",
    "StatelessSampleDistortedBoundingBox",
])  # fmt: skip
"""Ops that have no kernel for batches: one for all rows in parallel is the best there is."""
BY_KERNEL = "it has no kernel for batches: its kernel for one runs for all rows in parallel"
SOURCES: dict[str, Rule] = {}
"""By op type: what makes rows of different shapes of others."""


LARGE: dict[str, int] = {}
"""By op type: elements of a dense row from which on the kernel, row by row, beats the rule."""


def rule_of(op_type: str) -> Rule | None:
    """The rule for ops of a type, None if there is none."""
    return RULES.get(op_type) or FAMILIES.get(REGISTRY.family_of(op_type))


def family_rule(family: str) -> Callable[[Rule], Rule]:
    """A decorator: registers a rule for all ops of a family."""

    def register(rule: Rule) -> Rule:
        FAMILIES[family] = rule
        return rule

    return register


def source(op_types: str) -> Callable[[Rule], Rule]:
    """A decorator: registers what makes ragged rows, for op types with spaces between."""

    def register(rule: Rule) -> Rule:
        SOURCES.update(dict.fromkeys(op_types.split(), rule))
        return rule

    return register


def ragged_rule(op_types: str | Iterable[str]) -> Callable[[Rule], Rule]:
    """A decorator: registers a rule for op types.

    Args:
      op_types: one or more, in a string with spaces between.
    """
    names = op_types.split() if isinstance(op_types, str) else list(op_types)

    def register(rule: Rule) -> Rule:
        for name in names:
            assert name not in RULES, f"{name} has a rule"
            RULES[name] = rule
        return rule

    return register
