"""Op types that treat each element alone, independent of all other elements.

The ops are total, and linear where they have a gradient: their derivatives are finite for all
operands. So they may run on elements that are thrown away later: no infinite derivative meets the
zero gradient of such elements.
"""

ELEMENTWISE = frozenset(
    [
        "Add",
        "AddV2",
        "Cast",
        "Equal",
        "Floor",
        "Greater",
        "GreaterEqual",
        "Identity",
        "IsFinite",
        "IsInf",
        "IsNan",
        "Less",
        "LessEqual",
        "LogicalAnd",
        "LogicalNot",
        "LogicalOr",
        "Maximum",
        "Minimum",
        "Neg",
        "NotEqual",
        "OnesLike",
        "Relu",
        "Relu6",
        "Round",
        "SelectV2",
        "Sign",
        "StopGradient",
        "Sub",
        "ZerosLike",
    ]
)
