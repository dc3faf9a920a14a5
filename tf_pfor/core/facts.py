"""Facts of ops: what is true of an op type, whatever its rule is. One row for each.

Whoever decides by such a fact reads it here. Conditionals and loops read which ops may run for rows
that throw the results away. Rows of different shapes read what may stand in their padding.
Derivatives read what is linear, and reports read what an op costs. The families of the elementwise
ops, reductions and scans register their rules from these rows too: a new one is one line.

``tests/core/test_facts.py`` computes values, derivatives and neutral elements, and compares.
"""

from __future__ import annotations

import dataclasses
import enum
from collections.abc import Collection
from typing import Any, Final

import numpy as np
import tensorflow as tf

from tf_pfor import _tf
from tf_pfor._tf._custom_gradients import has_gradient
from tf_pfor.core.errors import CannotVectorize
from tf_pfor.core.matching import group


class Where(enum.IntEnum):
    """The operands for which a number is infinite, or none. Each includes those before it."""

    NOWHERE = 0
    AT_NAN = 1
    AT_INFINITY = 2
    AT_LARGE = 3  # where arithmetic overflows
    SOMEWHERE = 4  # for ordinary numbers too, but not for zero
    AT_ZERO = 5


NOWHERE, AT_NAN, AT_INFINITY, AT_LARGE, SOMEWHERE, AT_ZERO = Where


class Linear(enum.Enum):
    """The inputs that an op is linear in; only inputs that have gradients count."""

    UNKNOWN = enum.auto()
    CURVED = enum.auto()  # not linear
    FIRST = enum.auto()  # in the first one
    SECOND = enum.auto()
    EACH = enum.auto()  # in each alone, as a product is
    TOGETHER = enum.auto()  # in all together, as a sum is


UNKNOWN, CURVED, FIRST, SECOND, EACH, TOGETHER = Linear


class Cost(enum.Enum):
    """The work of an op."""

    ALIAS = enum.auto()  # another name for the same bytes
    MOVE = enum.auto()  # bytes without arithmetic
    PLAIN = enum.auto()  # an addition for each element
    DIVISION = enum.auto()  # the same, but slow for integers
    DEAR = enum.auto()  # several times what an addition takes
    SLOW = enum.auto()  # by kernels without vector instructions
    PRODUCT = enum.auto()  # of matrices
    EINSUM = enum.auto()
    CONVOLUTION = enum.auto()
    CUBIC = enum.auto()  # in the size of a matrix
    TRANSFORM = enum.auto()  # of Fourier


ALIAS, MOVE, PLAIN, DIVISION, DEAR, SLOW, PRODUCT, EINSUM, CONVOLUTION, CUBIC, TRANSFORM = Cost
CHEAP: Final = (ALIAS, MOVE, PLAIN)

# Families whose rules come from the rows; ops of no family have rules of their own.
OWN, ELEMENTWISE, SAME_SHAPE, REDUCTION, SCAN = "", "elementwise", "same_shape", "reduction", "scan"


class _Bound(enum.Enum):
    LOWEST = enum.auto()
    HIGHEST = enum.auto()


LOWEST, HIGHEST = _Bound


@dataclasses.dataclass(frozen=True, slots=True)
class Facts:
    """The facts of an op type. The defaults claim nothing.

    Attributes:
      family: the maker of its rule, OWN if it has rules of its own.
      value: the operands for which a result is infinite, or no number.
      slope: the operands for which a gradient of zero becomes another one on its way back, also in
        second derivatives.
      linear: the inputs that it is linear in.
      cost: the work.
      may_fail: whether some operands are an error. Shapes, places and axes do not count.
      attrs: the attributes that the family keeps.
      neutral: the element that changes no result of a reduction or a scan.
      axes: the inputs that name axes.
      places: the inputs that hold shapes, or places along axes.
      is_of_shapes: whether it reads the shapes of its inputs only.
    """

    family: str = OWN
    value: Where = AT_ZERO
    slope: Where = AT_ZERO
    linear: Linear = UNKNOWN
    cost: Cost = PLAIN
    may_fail: bool = True
    attrs: tuple[str, ...] = ()
    neutral: Any = None
    axes: tuple[str, ...] = ()
    places: tuple[str, ...] = ()
    is_of_shapes: bool = False


def _row(
    family: str,
    value: Where,
    slope: Where,
    linear: Linear,
    cost: Cost,
    *,
    attrs: str = "",
    axes: str = "",
    places: str = "",
    may_fail: bool = False,
    neutral: Any = None,
    is_of_shapes: bool = False,
) -> Facts:
    names = (tuple(x.split()) for x in (attrs, axes, places))
    attributes, axis_inputs, place_inputs = names
    return Facts(
        family,
        value,
        slope,
        linear,
        cost,
        may_fail,
        attributes,
        neutral,
        axis_inputs,
        place_inputs,
        is_of_shapes,
    )


def _some(linear: Linear = UNKNOWN, cost: Cost = PLAIN, axes: str = "") -> Facts:
    """The facts of an op of which nobody asks for more."""
    return Facts(linear=linear, cost=cost, axes=tuple(axes.split()))


def _reduction(value: Where, slope: Where, linear: Linear, neutral: Any = None) -> Facts:
    attrs, axes = "keep_dims", "reduction_indices"
    return _row(REDUCTION, value, slope, linear, PLAIN, attrs=attrs, axes=axes, neutral=neutral)


def _scan(value: Where, slope: Where, linear: Linear, neutral: Any) -> Facts:
    attrs, axes = "exclusive reverse", "axis"
    return _row(SCAN, value, slope, linear, PLAIN, attrs=attrs, axes=axes, neutral=neutral)


FACTS: Final[dict[str, Facts]] = {
    # Elementwise: family, value, slope, linear, cost
    "Abs": _row(ELEMENTWISE, AT_INFINITY, AT_NAN, CURVED, PLAIN),
    "Acos": _row(ELEMENTWISE, SOMEWHERE, SOMEWHERE, CURVED, PLAIN),
    "Acosh": _row(ELEMENTWISE, AT_ZERO, AT_ZERO, CURVED, SLOW),
    "Angle": _row(ELEMENTWISE, AT_NAN, AT_ZERO, CURVED, SLOW),
    "AsString": _row(
        ELEMENTWISE,
        NOWHERE,
        NOWHERE,
        CURVED,
        SLOW,
        attrs="precision scientific shortest width fill",
    ),
    "Asin": _row(ELEMENTWISE, SOMEWHERE, SOMEWHERE, CURVED, PLAIN),
    "Asinh": _row(ELEMENTWISE, AT_INFINITY, AT_INFINITY, CURVED, SLOW),
    "Atan": _row(ELEMENTWISE, AT_NAN, AT_LARGE, CURVED, DEAR),
    "Atan2": _row(ELEMENTWISE, AT_NAN, AT_ZERO, CURVED, DEAR),
    "Atanh": _row(ELEMENTWISE, SOMEWHERE, SOMEWHERE, CURVED, DEAR),
    "BesselI0": _row(ELEMENTWISE, SOMEWHERE, SOMEWHERE, CURVED, DEAR),
    "BesselI0e": _row(ELEMENTWISE, AT_NAN, AT_NAN, CURVED, DEAR),
    "BesselI1": _row(ELEMENTWISE, SOMEWHERE, AT_ZERO, CURVED, DEAR),
    "BesselI1e": _row(ELEMENTWISE, AT_NAN, AT_ZERO, CURVED, DEAR),
    "BesselJ0": _row(ELEMENTWISE, AT_INFINITY, AT_INFINITY, CURVED, DEAR),
    "BesselJ1": _row(ELEMENTWISE, AT_INFINITY, AT_ZERO, CURVED, DEAR),
    "BesselK0": _row(ELEMENTWISE, AT_ZERO, AT_ZERO, CURVED, SLOW),
    "BesselK0e": _row(ELEMENTWISE, AT_ZERO, AT_ZERO, CURVED, SLOW),
    "BesselK1": _row(ELEMENTWISE, AT_ZERO, AT_ZERO, CURVED, SLOW),
    "BesselK1e": _row(ELEMENTWISE, AT_ZERO, AT_ZERO, CURVED, SLOW),
    "BesselY0": _row(ELEMENTWISE, AT_ZERO, AT_ZERO, CURVED, SLOW),
    "BesselY1": _row(ELEMENTWISE, AT_ZERO, AT_ZERO, CURVED, SLOW),
    "BitwiseAnd": _row(ELEMENTWISE, NOWHERE, NOWHERE, CURVED, PLAIN),
    "BitwiseOr": _row(ELEMENTWISE, NOWHERE, NOWHERE, CURVED, PLAIN),
    "BitwiseXor": _row(ELEMENTWISE, NOWHERE, NOWHERE, CURVED, PLAIN),
    "Bucketize": _row(ELEMENTWISE, NOWHERE, NOWHERE, CURVED, DEAR, attrs="boundaries"),
    "Cast": _row(ELEMENTWISE, AT_INFINITY, NOWHERE, FIRST, MOVE, attrs="Truncate"),
    "Ceil": _row(ELEMENTWISE, AT_INFINITY, NOWHERE, CURVED, PLAIN),
    "Complex": _row(ELEMENTWISE, AT_INFINITY, NOWHERE, TOGETHER, MOVE),
    "ComplexAbs": _row(ELEMENTWISE, AT_LARGE, AT_LARGE, CURVED, DEAR),
    "Copy": _row(
        ELEMENTWISE, AT_INFINITY, NOWHERE, FIRST, MOVE, attrs="tensor_name debug_ops_spec"
    ),
    "CopyHost": _row(
        ELEMENTWISE, AT_INFINITY, NOWHERE, FIRST, MOVE, attrs="tensor_name debug_ops_spec"
    ),
    "Cos": _row(ELEMENTWISE, AT_INFINITY, AT_INFINITY, CURVED, DEAR),
    "Cosh": _row(ELEMENTWISE, SOMEWHERE, SOMEWHERE, CURVED, SLOW),
    "DataFormatDimMap": _row(
        ELEMENTWISE, NOWHERE, NOWHERE, CURVED, SLOW, attrs="src_format dst_format"
    ),
    "Dawsn": _row(ELEMENTWISE, AT_NAN, AT_LARGE, CURVED, SLOW),
    "DebugGradientIdentity": _row(ELEMENTWISE, AT_INFINITY, NOWHERE, FIRST, PLAIN),
    "DebugIdentity": _row(
        ELEMENTWISE,
        AT_INFINITY,
        NOWHERE,
        FIRST,
        PLAIN,
        attrs="device_name tensor_name debug_urls gated_grpc",
    ),
    "DecodeBase64": _row(ELEMENTWISE, NOWHERE, NOWHERE, CURVED, SLOW, may_fail=True),
    "DecodeCompressed": _row(
        ELEMENTWISE, NOWHERE, NOWHERE, CURVED, SLOW, attrs="compression_type", may_fail=True
    ),
    "DecodeJSONExample": _row(ELEMENTWISE, NOWHERE, NOWHERE, CURVED, SLOW, may_fail=True),
    "Digamma": _row(ELEMENTWISE, AT_ZERO, AT_ZERO, CURVED, SLOW),
    "Div": _row(ELEMENTWISE, AT_ZERO, AT_ZERO, FIRST, DIVISION, may_fail=True),
    "DivNoNan": _row(ELEMENTWISE, AT_LARGE, AT_LARGE, FIRST, PLAIN),
    "Elu": _row(ELEMENTWISE, AT_INFINITY, NOWHERE, CURVED, DEAR),
    "EncodeBase64": _row(ELEMENTWISE, NOWHERE, NOWHERE, CURVED, SLOW, attrs="pad"),
    "Erf": _row(ELEMENTWISE, AT_NAN, AT_LARGE, CURVED, DEAR),
    "Erfc": _row(ELEMENTWISE, AT_NAN, AT_LARGE, CURVED, DEAR),
    "Erfinv": _row(ELEMENTWISE, SOMEWHERE, SOMEWHERE, CURVED, SLOW),
    "Exp": _row(ELEMENTWISE, SOMEWHERE, SOMEWHERE, CURVED, DEAR),
    "Expint": _row(ELEMENTWISE, AT_ZERO, AT_ZERO, CURVED, SLOW),
    "Expm1": _row(ELEMENTWISE, SOMEWHERE, SOMEWHERE, CURVED, DEAR),
    "FakeQuantWithMinMaxArgs": _row(
        ELEMENTWISE, AT_NAN, NOWHERE, CURVED, PLAIN, attrs="min max num_bits narrow_range"
    ),
    "Floor": _row(ELEMENTWISE, AT_INFINITY, NOWHERE, CURVED, PLAIN),
    "FloorDiv": _row(ELEMENTWISE, AT_ZERO, NOWHERE, CURVED, DIVISION, may_fail=True),
    "FloorMod": _row(ELEMENTWISE, AT_ZERO, AT_ZERO, CURVED, SLOW, may_fail=True),
    "FresnelCos": _row(ELEMENTWISE, AT_NAN, AT_LARGE, CURVED, SLOW),
    "FresnelSin": _row(ELEMENTWISE, AT_NAN, AT_LARGE, CURVED, SLOW),
    "Greater": _row(ELEMENTWISE, NOWHERE, NOWHERE, CURVED, PLAIN),
    "GreaterEqual": _row(ELEMENTWISE, NOWHERE, NOWHERE, CURVED, PLAIN),
    "Igamma": _row(ELEMENTWISE, SOMEWHERE, AT_ZERO, CURVED, SLOW),
    "IgammaGradA": _row(ELEMENTWISE, SOMEWHERE, NOWHERE, CURVED, SLOW),
    "Igammac": _row(ELEMENTWISE, AT_ZERO, AT_ZERO, CURVED, SLOW),
    "Imag": _row(ELEMENTWISE, AT_INFINITY, NOWHERE, FIRST, MOVE),
    "Inv": _row(ELEMENTWISE, AT_ZERO, AT_ZERO, CURVED, PLAIN),
    "Invert": _row(ELEMENTWISE, NOWHERE, NOWHERE, CURVED, PLAIN),
    "IsFinite": _row(ELEMENTWISE, NOWHERE, NOWHERE, CURVED, PLAIN),
    "IsInf": _row(ELEMENTWISE, NOWHERE, NOWHERE, CURVED, PLAIN),
    "IsNan": _row(ELEMENTWISE, NOWHERE, NOWHERE, CURVED, PLAIN),
    "LeakyRelu": _row(ELEMENTWISE, AT_LARGE, NOWHERE, CURVED, PLAIN, attrs="alpha"),
    "LeftShift": _row(ELEMENTWISE, NOWHERE, NOWHERE, CURVED, PLAIN),
    "Less": _row(ELEMENTWISE, NOWHERE, NOWHERE, CURVED, PLAIN),
    "LessEqual": _row(ELEMENTWISE, NOWHERE, NOWHERE, CURVED, PLAIN),
    "Lgamma": _row(ELEMENTWISE, AT_ZERO, AT_ZERO, CURVED, SLOW),
    "Log": _row(ELEMENTWISE, AT_ZERO, AT_ZERO, CURVED, DEAR),
    "Log1p": _row(ELEMENTWISE, SOMEWHERE, SOMEWHERE, CURVED, DEAR),
    "LogicalAnd": _row(ELEMENTWISE, NOWHERE, NOWHERE, CURVED, PLAIN),
    "LogicalNot": _row(ELEMENTWISE, NOWHERE, NOWHERE, CURVED, PLAIN),
    "LogicalOr": _row(ELEMENTWISE, NOWHERE, NOWHERE, CURVED, PLAIN),
    "Maximum": _row(ELEMENTWISE, AT_INFINITY, NOWHERE, CURVED, PLAIN),
    "Mod": _row(ELEMENTWISE, AT_ZERO, NOWHERE, CURVED, SLOW, may_fail=True),
    "Mul": _row(ELEMENTWISE, AT_LARGE, AT_INFINITY, EACH, PLAIN),
    "MulNoNan": _row(ELEMENTWISE, AT_LARGE, AT_INFINITY, EACH, PLAIN),
    "Ndtri": _row(ELEMENTWISE, AT_ZERO, AT_ZERO, CURVED, SLOW),
    "Neg": _row(ELEMENTWISE, AT_INFINITY, NOWHERE, FIRST, PLAIN),
    "NextAfter": _row(ELEMENTWISE, AT_INFINITY, NOWHERE, CURVED, DEAR),
    "Polygamma": _row(ELEMENTWISE, AT_ZERO, AT_ZERO, CURVED, DEAR),
    "PopulationCount": _row(ELEMENTWISE, NOWHERE, NOWHERE, CURVED, PLAIN),
    "Pow": _row(ELEMENTWISE, SOMEWHERE, AT_ZERO, CURVED, SLOW, may_fail=True),
    "PreventGradient": _row(ELEMENTWISE, AT_INFINITY, NOWHERE, FIRST, ALIAS, attrs="message"),
    "RandomGammaGrad": _row(ELEMENTWISE, SOMEWHERE, NOWHERE, CURVED, SLOW),
    "Real": _row(ELEMENTWISE, AT_INFINITY, NOWHERE, FIRST, MOVE),
    "RealDiv": _row(ELEMENTWISE, AT_ZERO, AT_ZERO, FIRST, PLAIN),
    "Reciprocal": _row(ELEMENTWISE, AT_ZERO, AT_ZERO, CURVED, PLAIN),
    "Relu": _row(ELEMENTWISE, AT_INFINITY, NOWHERE, CURVED, PLAIN),
    "Relu6": _row(ELEMENTWISE, AT_NAN, NOWHERE, CURVED, PLAIN),
    "RightShift": _row(ELEMENTWISE, NOWHERE, NOWHERE, CURVED, PLAIN),
    "Rint": _row(ELEMENTWISE, AT_INFINITY, NOWHERE, CURVED, PLAIN),
    "Round": _row(ELEMENTWISE, AT_INFINITY, NOWHERE, CURVED, PLAIN),
    "Rsqrt": _row(ELEMENTWISE, AT_ZERO, AT_ZERO, CURVED, DEAR),
    "Selu": _row(ELEMENTWISE, AT_LARGE, NOWHERE, CURVED, DEAR),
    "Sigmoid": _row(ELEMENTWISE, AT_NAN, AT_NAN, CURVED, DEAR),
    "Sign": _row(ELEMENTWISE, AT_NAN, NOWHERE, CURVED, PLAIN),
    "Sin": _row(ELEMENTWISE, AT_INFINITY, AT_INFINITY, CURVED, DEAR),
    "Sinh": _row(ELEMENTWISE, SOMEWHERE, SOMEWHERE, CURVED, SLOW),
    "Snapshot": _row(ELEMENTWISE, AT_INFINITY, NOWHERE, FIRST, MOVE),
    "Softplus": _row(ELEMENTWISE, AT_INFINITY, AT_NAN, CURVED, DEAR),
    "Softsign": _row(ELEMENTWISE, AT_INFINITY, AT_NAN, CURVED, PLAIN),
    "Spence": _row(ELEMENTWISE, SOMEWHERE, AT_ZERO, CURVED, SLOW),
    "Sqrt": _row(ELEMENTWISE, SOMEWHERE, AT_ZERO, CURVED, DEAR),
    "Square": _row(ELEMENTWISE, AT_LARGE, AT_LARGE, CURVED, PLAIN),
    "SquaredDifference": _row(ELEMENTWISE, AT_LARGE, AT_LARGE, CURVED, PLAIN),
    "StaticRegexFullMatch": _row(ELEMENTWISE, NOWHERE, NOWHERE, CURVED, SLOW, attrs="pattern"),
    "StaticRegexReplace": _row(
        ELEMENTWISE, NOWHERE, NOWHERE, CURVED, SLOW, attrs="pattern rewrite replace_global"
    ),
    "StringLength": _row(ELEMENTWISE, NOWHERE, NOWHERE, CURVED, SLOW, attrs="unit"),
    "StringLower": _row(ELEMENTWISE, NOWHERE, NOWHERE, CURVED, SLOW, attrs="encoding"),
    "StringStrip": _row(ELEMENTWISE, NOWHERE, NOWHERE, CURVED, SLOW),
    "StringToHashBucket": _row(ELEMENTWISE, NOWHERE, NOWHERE, CURVED, SLOW, attrs="num_buckets"),
    "StringToHashBucketFast": _row(
        ELEMENTWISE, NOWHERE, NOWHERE, CURVED, SLOW, attrs="num_buckets"
    ),
    "StringToHashBucketStrong": _row(
        ELEMENTWISE, NOWHERE, NOWHERE, CURVED, SLOW, attrs="num_buckets key"
    ),
    "StringToNumber": _row(
        ELEMENTWISE, NOWHERE, NOWHERE, CURVED, SLOW, attrs="out_type", may_fail=True
    ),
    "StringUpper": _row(ELEMENTWISE, NOWHERE, NOWHERE, CURVED, SLOW, attrs="encoding"),
    "Sub": _row(ELEMENTWISE, AT_LARGE, NOWHERE, TOGETHER, PLAIN),
    "Tan": _row(ELEMENTWISE, AT_INFINITY, AT_INFINITY, CURVED, SLOW),
    "Tanh": _row(ELEMENTWISE, AT_NAN, AT_NAN, CURVED, DEAR),
    "TruncateDiv": _row(ELEMENTWISE, AT_ZERO, NOWHERE, CURVED, DIVISION, may_fail=True),
    "TruncateMod": _row(ELEMENTWISE, AT_ZERO, NOWHERE, CURVED, SLOW, may_fail=True),
    "UnicodeScript": _row(ELEMENTWISE, NOWHERE, NOWHERE, CURVED, DEAR),
    "UnicodeTranscode": _row(
        ELEMENTWISE,
        NOWHERE,
        NOWHERE,
        CURVED,
        SLOW,
        attrs="input_encoding output_encoding errors replacement_char replace_control_characters",
        may_fail=True,
    ),
    "Xdivy": _row(ELEMENTWISE, SOMEWHERE, SOMEWHERE, FIRST, PLAIN),
    "Xlog1py": _row(ELEMENTWISE, SOMEWHERE, SOMEWHERE, CURVED, DEAR),
    "Xlogy": _row(ELEMENTWISE, SOMEWHERE, SOMEWHERE, CURVED, DEAR),
    "Zeta": _row(ELEMENTWISE, AT_ZERO, AT_ZERO, CURVED, SLOW),
    # Elementwise, with rules of their own
    "Add": _row(OWN, AT_LARGE, NOWHERE, TOGETHER, PLAIN),
    "AddV2": _row(OWN, AT_LARGE, NOWHERE, TOGETHER, PLAIN),
    "Betainc": _row(OWN, AT_ZERO, AT_ZERO, CURVED, SLOW),
    "CheckNumerics": _row(OWN, AT_INFINITY, AT_INFINITY, FIRST, DEAR, may_fail=True),
    "CheckNumericsV2": _row(OWN, AT_INFINITY, AT_INFINITY, FIRST, DEAR, may_fail=True),
    "ClipByValue": _row(OWN, AT_INFINITY, NOWHERE, CURVED, PLAIN),
    "Conj": _row(OWN, AT_INFINITY, NOWHERE, FIRST, MOVE),
    "DeepCopy": _row(OWN, AT_INFINITY, NOWHERE, FIRST, MOVE),
    "Equal": _row(OWN, NOWHERE, NOWHERE, CURVED, PLAIN),
    "GuaranteeConst": _row(OWN, AT_INFINITY, NOWHERE, FIRST, ALIAS),
    "Identity": _row(OWN, AT_INFINITY, NOWHERE, FIRST, ALIAS),
    "Minimum": _row(OWN, AT_INFINITY, NOWHERE, CURVED, PLAIN),
    "NotEqual": _row(OWN, NOWHERE, NOWHERE, CURVED, PLAIN),
    "OnesLike": _row(OWN, NOWHERE, NOWHERE, CURVED, MOVE, is_of_shapes=True),
    "PlaceholderWithDefault": _row(OWN, AT_INFINITY, NOWHERE, FIRST, ALIAS),
    "ReluGrad": _row(OWN, AT_INFINITY, NOWHERE, FIRST, PLAIN),
    "Select": _row(OWN, AT_INFINITY, NOWHERE, TOGETHER, MOVE),
    "SelectV2": _row(OWN, AT_INFINITY, NOWHERE, TOGETHER, MOVE),
    "SigmoidGrad": _row(OWN, AT_LARGE, AT_LARGE, SECOND, PLAIN),
    "StopGradient": _row(OWN, AT_INFINITY, NOWHERE, FIRST, ALIAS),
    "TanhGrad": _row(OWN, AT_LARGE, AT_LARGE, SECOND, PLAIN),
    "ZerosLike": _row(OWN, NOWHERE, NOWHERE, CURVED, MOVE, is_of_shapes=True),
    # Kernels that do not broadcast
    "ApproximateEqual": _row(SAME_SHAPE, NOWHERE, NOWHERE, CURVED, PLAIN, attrs="tolerance"),
    "EluGrad": _row(SAME_SHAPE, AT_LARGE, AT_INFINITY, FIRST, PLAIN),
    "FakeQuantWithMinMaxArgsGradient": _row(
        SAME_SHAPE, AT_INFINITY, NOWHERE, FIRST, PLAIN, attrs="min max num_bits narrow_range"
    ),
    "InvGrad": _row(SAME_SHAPE, AT_LARGE, AT_INFINITY, SECOND, PLAIN),
    "LeakyReluGrad": _row(SAME_SHAPE, AT_LARGE, NOWHERE, FIRST, PLAIN, attrs="alpha"),
    "ReciprocalGrad": _row(SAME_SHAPE, AT_LARGE, AT_INFINITY, SECOND, PLAIN),
    "Relu6Grad": _row(SAME_SHAPE, AT_INFINITY, NOWHERE, FIRST, PLAIN),
    "RsqrtGrad": _row(SAME_SHAPE, AT_LARGE, AT_LARGE, SECOND, PLAIN),
    "SeluGrad": _row(SAME_SHAPE, AT_LARGE, AT_INFINITY, FIRST, PLAIN),
    "SoftplusGrad": _row(SAME_SHAPE, AT_INFINITY, SOMEWHERE, FIRST, DEAR),
    "SoftsignGrad": _row(SAME_SHAPE, AT_INFINITY, NOWHERE, FIRST, PLAIN),
    "SqrtGrad": _row(SAME_SHAPE, SOMEWHERE, AT_ZERO, SECOND, PLAIN),
    # Reductions and scans
    "All": _reduction(NOWHERE, NOWHERE, CURVED, True),
    "Any": _reduction(NOWHERE, NOWHERE, CURVED, False),
    "EuclideanNorm": _reduction(AT_LARGE, AT_ZERO, CURVED, 0),
    "Max": _reduction(AT_INFINITY, AT_NAN, CURVED, LOWEST),
    "Mean": _reduction(AT_LARGE, NOWHERE, FIRST),
    "Min": _reduction(AT_INFINITY, AT_NAN, CURVED, HIGHEST),
    "Prod": _reduction(AT_LARGE, AT_LARGE, CURVED, 1),
    "Sum": _reduction(AT_LARGE, NOWHERE, FIRST, 0),
    "Cumprod": _scan(AT_LARGE, AT_LARGE, CURVED, 1),
    "Cumsum": _scan(AT_LARGE, NOWHERE, FIRST, 0),
    "CumulativeLogsumexp": _scan(AT_INFINITY, AT_INFINITY, CURVED, LOWEST),
    # Ops that move elements, and that tell shapes
    "BroadcastTo": _row(OWN, AT_INFINITY, NOWHERE, FIRST, MOVE, places="shape"),
    "Concat": _row(OWN, AT_INFINITY, NOWHERE, TOGETHER, MOVE, axes="concat_dim"),
    "ConcatV2": _row(OWN, AT_INFINITY, NOWHERE, TOGETHER, MOVE, axes="axis"),
    "ConjugateTranspose": _row(OWN, AT_INFINITY, NOWHERE, FIRST, MOVE, axes="perm"),
    "Const": _row(OWN, AT_INFINITY, NOWHERE, CURVED, ALIAS),
    "ExpandDims": _row(OWN, AT_INFINITY, NOWHERE, FIRST, ALIAS, axes="dim"),
    "Fill": _row(OWN, AT_INFINITY, NOWHERE, FIRST, MOVE, places="dims"),
    "Gather": _some(FIRST, MOVE),
    "GatherNd": _some(FIRST, MOVE),
    "GatherV2": _some(FIRST, MOVE, axes="axis"),
    "IdentityN": _row(OWN, AT_INFINITY, NOWHERE, TOGETHER, ALIAS),
    "NoOp": _row(OWN, NOWHERE, NOWHERE, CURVED, ALIAS),
    "OneHot": _some(cost=MOVE),
    "Pack": _row(OWN, AT_INFINITY, NOWHERE, TOGETHER, MOVE),
    "Pad": _row(OWN, AT_INFINITY, NOWHERE, FIRST, MOVE, places="paddings"),
    "PadV2": _row(OWN, AT_INFINITY, NOWHERE, TOGETHER, MOVE, places="paddings"),
    "Placeholder": _row(OWN, AT_INFINITY, NOWHERE, CURVED, ALIAS),
    "QuantizedConcat": _some(cost=MOVE, axes="concat_dim"),
    "Rank": _row(OWN, NOWHERE, NOWHERE, CURVED, ALIAS, is_of_shapes=True),
    "ReadVariableOp": _row(OWN, AT_INFINITY, NOWHERE, CURVED, ALIAS),
    "Reshape": _row(OWN, AT_INFINITY, NOWHERE, FIRST, ALIAS, places="shape"),
    "ResourceGather": _some(cost=MOVE),
    "ReverseV2": _row(OWN, AT_INFINITY, NOWHERE, FIRST, MOVE, axes="axis"),
    "Roll": _row(OWN, AT_INFINITY, NOWHERE, FIRST, MOVE, axes="axis", places="shift"),
    "Shape": _row(OWN, NOWHERE, NOWHERE, CURVED, ALIAS, is_of_shapes=True),
    "ShapeN": _row(OWN, NOWHERE, NOWHERE, CURVED, ALIAS, is_of_shapes=True),
    "Size": _row(OWN, NOWHERE, NOWHERE, CURVED, ALIAS, is_of_shapes=True),
    "Slice": _row(OWN, AT_INFINITY, NOWHERE, FIRST, MOVE, places="begin size"),
    "SparseSplit": _some(axes="split_dim"),
    "Split": _row(OWN, AT_INFINITY, NOWHERE, FIRST, MOVE, axes="split_dim"),
    "SplitV": _row(OWN, AT_INFINITY, NOWHERE, FIRST, MOVE, axes="split_dim", places="size_splits"),
    "Squeeze": _row(OWN, AT_INFINITY, NOWHERE, FIRST, ALIAS),
    "StridedSlice": _row(OWN, AT_INFINITY, NOWHERE, FIRST, MOVE, places="begin end strides"),
    "Tile": _row(OWN, AT_INFINITY, NOWHERE, FIRST, MOVE, places="multiples"),
    "Transpose": _row(OWN, AT_INFINITY, NOWHERE, FIRST, MOVE, axes="perm"),
    "UniqueV2": _some(CURVED, axes="axis"),
    "UniqueWithCountsV2": _some(CURVED, axes="axis"),
    "Unpack": _row(OWN, AT_INFINITY, NOWHERE, FIRST, MOVE),
    "Where": _some(CURVED, MOVE),
    # Others
    "AddN": _row(OWN, AT_LARGE, NOWHERE, TOGETHER, PLAIN),
    "ArgMax": _row(OWN, NOWHERE, NOWHERE, CURVED, PLAIN, neutral=LOWEST, axes="dimension"),
    "ArgMin": _row(OWN, NOWHERE, NOWHERE, CURVED, PLAIN, neutral=HIGHEST, axes="dimension"),
    "BatchMatMul": _row(OWN, AT_LARGE, AT_INFINITY, EACH, PRODUCT),
    "BatchMatMulV2": _row(OWN, AT_LARGE, AT_INFINITY, EACH, PRODUCT),
    "BatchMatMulV3": _row(OWN, AT_LARGE, AT_INFINITY, EACH, PRODUCT),
    "BiasAdd": _row(OWN, AT_LARGE, NOWHERE, TOGETHER, PLAIN),
    "Cholesky": _some(CURVED, CUBIC),
    "ConcatOffset": _some(axes="concat_dim"),
    "Conv2D": _some(EACH, CONVOLUTION),
    "Conv3D": _some(EACH, CONVOLUTION),
    "DepthwiseConv2dNative": _some(EACH, CONVOLUTION),
    "Einsum": _row(OWN, AT_LARGE, AT_INFINITY, EACH, EINSUM),
    "FFT": _some(FIRST, TRANSFORM),
    "FFT2D": _some(FIRST, TRANSFORM),
    "FFTND": _some(FIRST, TRANSFORM, axes="axes"),
    "IFFT": _some(FIRST, TRANSFORM),
    "IFFTND": _some(FIRST, TRANSFORM, axes="axes"),
    "IRFFT": _some(FIRST, TRANSFORM),
    "IRFFTND": _some(FIRST, TRANSFORM, axes="axes"),
    "L2Loss": _some(CURVED),
    "LogSoftmax": _some(CURVED, DEAR),
    "MatMul": _row(OWN, AT_LARGE, AT_INFINITY, EACH, PRODUCT),
    "MatrixDeterminant": _some(CURVED, CUBIC),
    "MatrixInverse": _some(CURVED, CUBIC),
    "MatrixSolve": _some(SECOND, CUBIC),
    "Qr": _some(CURVED, CUBIC),
    "RFFT": _some(FIRST, TRANSFORM),
    "RFFTND": _some(FIRST, TRANSFORM, axes="axes"),
    "ReduceJoin": _some(axes="reduction_indices"),
    "SelfAdjointEigV2": _some(CURVED, CUBIC),
    "Softmax": _some(CURVED, DEAR),
    "SparseMatMul": _some(EACH),
    "SparseReduceMax": _some(axes="reduction_axes"),
    "SparseReduceMaxSparse": _some(axes="reduction_axes"),
    "SparseReduceSum": _some(axes="reduction_axes"),
    "SparseReduceSumSparse": _some(axes="reduction_axes"),
    "Svd": _some(CURVED, CUBIC),
}


_NO_FACTS = Facts()


def facts_of(op_type: str) -> Facts:
    """The facts of an op type; those that claim nothing if it has no row."""
    return FACTS.get(op_type, _NO_FACTS)


def table_of(family: str) -> dict[str, tuple[str, ...]]:
    """The op types of a family, with the attributes that it keeps."""
    return {op_type: f.attrs for op_type, f in FACTS.items() if f.family == family}


def may_fail(op: tf.Operation) -> bool:
    """Whether an op of the body could be an error for other values of its inputs."""
    facts, schema = facts_of(op.type), _tf.schema(op.type)
    if facts.may_fail or schema is None:
        return facts.may_fail
    given = {*facts.axes, *facts.places}
    inputs = group(op, schema, op.inputs) if given else {}
    found = [x for x in map(inputs.get, given) if isinstance(x, tf.Tensor)]
    return any(_tf.static_value(x) is None for x in found) or _needs_a_size(op)


def _needs_a_size(op: tf.Operation) -> bool:
    """Whether an op whose places are constants is an error for some sizes of its operand."""
    if all(x.shape.is_fully_defined() for x in op.inputs):
        return False
    if op.type == "StridedSlice":
        return op.get_attr("shrink_axis_mask") != 0  # x[-1] of a row without elements
    if op.type == "Reshape":
        sizes = _tf.static_value(op.inputs[1])
        return sizes is None or int(np.prod([size for size in sizes if size >= 0])) != 1
    return op.type in _OF_SOME_SIZES


_OF_SOME_SIZES = frozenset(
    ["ArgMax", "ArgMin", "BroadcastTo", "Slice", "Split", "SplitV", "Squeeze", "Unpack"]
)


def operations(op: tf.Operation) -> int | None:
    """Elementary operations for each element; None if the sizes of the operands decide."""
    cost = facts_of(op.type).cost
    is_slow = cost is DIVISION and op.outputs[0].dtype.is_integer
    return _OPERATIONS[SLOW if is_slow else cost] if cost in _OPERATIONS else None


SLOW_OPERATIONS: Final = 16
_OPERATIONS = {ALIAS: 0, MOVE: 0, PLAIN: 1, DIVISION: 1, DEAR: 10, SLOW: SLOW_OPERATIONS}


def lowest(dtype: tf.DType) -> Any:
    """The number that no other one is below."""
    return -np.inf if dtype.is_floating else dtype.min


def highest(dtype: tf.DType) -> Any:
    """The number that no other one is above."""
    return np.inf if dtype.is_floating else dtype.max


def neutral_element(op_type: str, dtype: tf.DType) -> Any:
    """The element that changes no result of a reduction or a scan.

    Raises:
      CannotVectorize: if there is none.
    """
    found = facts_of(op_type).neutral
    if found is None or (dtype.is_bool and isinstance(found, _Bound)):
        raise CannotVectorize(f"it has no neutral element of {dtype.name}")
    return lowest(dtype) if found is LOWEST else highest(dtype) if found is HIGHEST else found


# ---------------------------------------------------------------------------
# Linear functions
# ---------------------------------------------------------------------------


def is_linear_in(op: tf.Operation, depends: Collection[int]) -> bool | None:
    """Whether an op is linear in the inputs that depend on others; None if unknown.

    Args:
      op: the op, of which an input depends.
      depends: the ids of the tensors that depend.
    """
    which = [(id(t) in depends, t) for t in op.inputs if has_gradient(t)]
    count = sum(d for d, _ in which)
    if not count:
        return None  # a list, or another handle
    kind = facts_of(op.type).linear
    if kind is TOGETHER:
        return all(d or _tf.is_zero(t) for d, t in which)
    if kind in (FIRST, SECOND):
        return count == 1 and which[int(kind is SECOND)][0]
    return None if kind is UNKNOWN else count == 1 and kind is EACH


def is_linear(graph: tf.Graph, needed: set[tf.Operation], count: int) -> bool:
    """Whether all outputs of a function graph are linear in its first ``count`` inputs together."""
    depends = {id(t) for t in graph.inputs[:count]}
    for op in graph.get_operations():  # a traced function: in topological order
        if op not in needed or facts_of(op.type).is_of_shapes:
            continue
        if not any(id(t) in depends for t in op.inputs):
            continue
        if not is_linear_in(op, depends) or not all(has_gradient(t) for t in op.outputs):
            return False
        depends.update(id(t) for t in op.outputs)
    return all(id(t) in depends or _tf.is_zero(t) for t in graph.outputs)
