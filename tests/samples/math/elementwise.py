"""Samples of tf_pfor/converters/math/elementwise.py."""

import numpy as np
import tensorflow as tf

from tests.sample import bools, drawn, fixed, ints, normal, sample, uniform
from tf_pfor._tf import schema

raw = tf.raw_ops
BF16 = tf.bfloat16.as_numpy_dtype


def named(op_type, *inputs, label="", attrs=None, **options):
    """A sample of a raw op whose inputs are given in OpDef order."""
    names = [a.name for a in schema(op_type).inputs]

    def fn(*tensors):
        return getattr(raw, op_type)(**dict(zip(names, tensors)), **(attrs or {}))

    return sample(op_type, fn, *inputs, label=label, **options)


def select(condition, t, e):
    return raw.Select(condition=condition, x=t, y=e)


def each(op_types, *inputs, **options):
    return [named(op_type, *inputs, **options) for op_type in op_types.split()]


def no_grad(op_types, *inputs, **options):
    return each(op_types, *inputs, grad=False, **options)


# Floats in (0.1, 0.9) lie in the domain of all of these.
UNARY = [
    *each(
        """
        Abs Acos Asin Asinh Atan Atanh Ceil Cos Cosh Digamma Elu Erf Erfc Erfinv Exp Expm1 Floor
        Inv Lgamma Log Log1p Ndtri Neg Reciprocal Relu Relu6 Rint Rsqrt Selu Sigmoid Sign Sin Sinh
        Softplus Softsign Sqrt Square StopGradient Tan Tanh
        """,
        uniform(2, 3),
    ),
    # XLA has no kernels of these.
    *each(
        """
        BesselI0 BesselI0e BesselI1 BesselI1e BesselJ0 BesselJ1 BesselK0 BesselK0e BesselK1
        BesselK1e BesselY0 BesselY1 Dawsn Expint FresnelCos FresnelSin Spence
        """,
        uniform(2, 3),
        xla=False,
    ),
    *no_grad("IsFinite IsInf IsNan", normal(2, 3)),
    *each("Round", uniform(2, 3, low=-3, high=3)),
    *each("Acosh", uniform(2, 3, low=1.1, high=3)),
    *each("Angle ComplexAbs Conj Imag Real", normal(2, 3, dtype=np.complex64)),
    *no_grad("LogicalNot", bools(2, 3)),
    *no_grad("Invert PopulationCount", ints(2, 3, dtype=np.uint8)),
    *no_grad("Snapshot", normal(2, 3), xla=False),
    named("Bucketize", normal(2, 3), attrs={"boundaries": [-0.5, 0.0, 1.0]}, grad=False),
    named("Cast", normal(2, 3), attrs={"DstT": tf.int32}),
    named("Cast", normal(2), label="half", attrs={"DstT": tf.float16}, rtol=1e-3),
    named("Cast", normal(2), label="truncate", attrs={"DstT": tf.bfloat16, "Truncate": True}),
    named("Cast", normal(2, dtype=np.float64), label="complex", attrs={"DstT": tf.complex128}),
    named("Cast", ints(2), label="bool", attrs={"DstT": tf.bool}),
    named("Copy", normal(2, 3), grad=False, xla=False),
    named("CopyHost", normal(2, 3), grad=False, xla=False),
    named("DataFormatDimMap", ints(3, low=-4, high=4), grad=False),
    named("DebugGradientIdentity", normal(2, 3), grad=False, xla=False),
    named("DebugIdentity", normal(2, 3), attrs={"tensor_name": "x:0"}, grad=False, xla=False),
    named("FakeQuantWithMinMaxArgs", normal(2, 3), attrs={"min": -1.0, "max": 2.0, "num_bits": 4}),
    named("LeakyRelu", normal(2, 3), attrs={"alpha": 0.3}),
    sample("PreventGradient", lambda x: raw.PreventGradient(input=x), normal(2), grad=False),
    # Other dtypes, scalars, high ranks and sizes of zero.
    named("Abs", ints(3, low=-5, dtype=np.int64), label="int64"),
    named("Exp", normal(2, dtype=np.complex128), label="complex128"),
    named("Log", uniform(), label="scalar"),
    named("Neg", normal(2, dtype=np.float64), label="float64"),
    named("Relu", normal(2, 3, dtype=BF16), label="bfloat16", rtol=1e-2),
    named("Sigmoid", normal(2, 3, dtype=np.float16), label="half", rtol=1e-3, atol=1e-3),
    # The reference slices rank 9, whose gradient is uninitialised memory in TensorFlow 2.21.
    named("Sign", normal(2, 1, 2, 1, 2, 1, 2, 1), label="rank 8", grad=False),
    named("Sqrt", uniform(0, 3), label="empty"),
]

POSITIVE, RANK2 = uniform(3), uniform(2, 1)
WORDS = drawn((2,), lambda rng: rng.choice([b"a", b"b"], size=2))

BROADCASTING = [
    *each("Add AddV2 Atan2 Maximum Minimum Mul Pow RealDiv SquaredDifference Sub Xlogy", POSITIVE,
        RANK2),
    *each("Div DivNoNan Igamma Igammac MulNoNan Xdivy Xlog1py", RANK2, POSITIVE),
    *no_grad("Greater GreaterEqual Less LessEqual", ints(2, 3), ints(3)),
    *no_grad("Equal NotEqual", ints(2, 3), ints(3)),
    *no_grad("LogicalAnd LogicalOr", bools(2, 1), bools(3)),
    *no_grad("BitwiseAnd BitwiseOr BitwiseXor", ints(2, 1), ints(3)),
    *no_grad("LeftShift RightShift", ints(2, 1, high=9), ints(3)),
    *no_grad("FloorDiv FloorMod TruncateDiv TruncateMod Mod", ints(2, 1, low=-9, high=9),
        ints(3, low=1)),
    *each("FloorDiv FloorMod", uniform(2, 1, low=-9, high=9), uniform(3, low=1, high=3),
        label="float"),
    *no_grad("NextAfter", normal(2, 1), normal(3)),
    *no_grad("IgammaGradA RandomGammaGrad", uniform(2, 1), uniform(3), rtol=1e-4),
    named("Complex", normal(2, 1), normal(3)),
    named("Zeta", uniform(2, 1, low=2, high=4), uniform(3, low=1, high=3), rtol=1e-4),
    named("Polygamma", fixed(np.float32(2)), uniform(3, low=1, high=3), rtol=1e-4),
    # Ranks that differ, and what the dtypes of the kernels are.
    sample("AddV2", lambda x, y: x + y, normal(2, 3), normal(), label="scalar"),
    sample("AddV2", lambda x, y: x + y, normal(4, 1, 3), normal(2, 1), label="ranks"),
    sample("AddV2", lambda x, y: x + y, normal(1, 4, 3), normal(4, 3), label="a one in front"),
    sample("AddV2", lambda x, y: x + y, normal(), normal(), label="scalars"),
    sample("AddV2", lambda x, y: x + y, normal(0, 3), normal(3), label="empty"),
    named("Add", WORDS, WORDS, label="string", xla=False),
    named("Mul", ints(2, 1, dtype=np.uint8), ints(3, dtype=np.uint8), label="uint8"),
    named("Mul", normal(2, dtype=np.complex64), normal(1, dtype=np.complex64), label="complex64"),
    named(
        "Sub",
        normal(2, dtype=BF16),
        normal(1, dtype=BF16),
        label="bfloat16",
        rtol=1e-2,  # eight bits, and sums of several terms
        atol=2e-2,
    ),
    named("Equal", WORDS, fixed(b"a"), label="string", grad=False, xla=False),
    sample("Equal", lambda x, y: x == y, ints(2, 1), ints(3), label="operator", grad=False),
    sample("NotEqual", lambda x, y: x != y, bools(2), bools(2), label="bool", grad=False),
    # More groups of axes that broadcast alike than a kernel takes.
    named("Mul", normal(2, 1, 2, 1, 2), normal(1, 2, 1, 3, 1), label="groups"),
    named("Mul", normal(1, 2, 1, 2, 1), normal(2, 1, 3, 1, 2), label="groups, other order"),
    named("Less", normal(2, 1, 2, 1, 1, 2), normal(2, 1, 3, 3, 1), label="groups", grad=False),
    sample("SelectV2", tf.where, bools(3), normal(2, 3), normal()),
    named("SelectV2", bools(2, 1), normal(2), normal(1, 2), label="ranks"),
    named("SelectV2", bools(), normal(2), normal(2), label="scalar"),
    sample("SelectV2", tf.where, bools(2), WORDS, fixed(b"z"), label="string", xla=False),
    named(
        "SelectV2",
        bools(2, 1, 2, 1, 2, 1, 2, 1),
        normal(1, 2, 1, 2, 1, 2, 1, 2),
        fixed(np.float32(2)),
        label="groups",
        max_ops=14,
        grad=False,  # as above
    ),
    # The first one, where there is no constant 1 of the same rank.
    *[sample("Select", select, bools(*shape), normal(2, 3), normal(2, 3), label=label)
        for label, shape in (("scalar", ()), ("vector", (2,)), ("", (2, 3)))],
    sample("Select", select, bools(), normal(), normal(), label="scalars"),
]  # fmt: skip

ONE_SHAPE = [
    sample("AddN", lambda x, y, z: tf.add_n([x, y, z]), normal(2, 3), normal(2, 3), normal(2, 3)),
    sample("AddN", lambda x: raw.AddN(inputs=[x]), normal(2), label="one"),
    # AddN takes its place; alone it is rewritten by TensorFlow, and never reaches XLA.
    sample("AccumulateNV2", lambda x, y: raw.AccumulateNV2(inputs=[x, y], shape=[2]), normal(2),
        normal(2)),
    *each("InvGrad", uniform(2, 3), normal(2, 3), xla=False),
    *each("ReciprocalGrad", uniform(2, 3), normal(2, 3)),
    *each("RsqrtGrad SigmoidGrad SqrtGrad TanhGrad", uniform(2, 3), normal(2, 3)),
    *each("EluGrad Relu6Grad ReluGrad SeluGrad SoftplusGrad", normal(2, 3), normal(2, 3)),
    *no_grad("SoftsignGrad", normal(2, 3), normal(2, 3)),
    *each("LeakyReluGrad", normal(2, 3), normal(2, 3), attrs={"alpha": 0.3}),
    *no_grad("FakeQuantWithMinMaxArgsGradient", normal(2, 3), normal(2, 3),
        attrs={"min": -1.0, "max": 2}),
    *each("ReluGrad", normal(), normal(), label="scalars"),
    *no_grad("ApproximateEqual", uniform(3), uniform(3), attrs={"tolerance": 0.3}),
    *no_grad("Betainc", uniform(2, 3), uniform(2, 3), uniform(2, 3), rtol=1e-4),
    *no_grad("Betainc", uniform(), uniform(2, 3), uniform(), label="scalars", rtol=1e-4),
    *each("ClipByValue", normal(2, 3), uniform(low=-1, high=0), uniform()),
    *each("ClipByValue", normal(2, 3), uniform(2, 3, low=-1, high=0), uniform(), label="mixed"),
    *each("ClipByValue", normal(), uniform(low=-1, high=0), uniform(), label="scalars"),
]  # fmt: skip

IDENTITIES = [
    sample("Identity", tf.identity, normal(2)),
    sample("Identity", tf.identity, WORDS, label="string", xla=False),
    sample("PlaceholderWithDefault", lambda x: raw.PlaceholderWithDefault(input=x, shape=[2, 3]),
        normal(2, 3), grad=False),
    *no_grad("DeepCopy", normal(2, 3)),
    *no_grad("GuaranteeConst", normal(2, 3), xla=False),
    *each("CheckNumerics", normal(2, 3), attrs={"message": "here"}),
    *each("CheckNumericsV2", normal(2, 3), attrs={"message": "here"}, xla=False),
    sample("EnsureShape", lambda x: tf.ensure_shape(x, [None, 3]), normal(2, 3)),
    *no_grad("OnesLike ZerosLike", normal(2, 3)),
    *no_grad("ZerosLike", normal(40, 50), label="large"),
    *no_grad("ZerosLike", WORDS, label="string", xla=False),
    *no_grad("OnesLike", bools(2), label="bool"),
    *no_grad("Bitcast", normal(2, 3), attrs={"type": tf.int32}),
    *no_grad("Bitcast", normal(), attrs={"type": tf.uint8}, label="smaller"),
    *no_grad("Bitcast", ints(4, dtype=np.uint8), attrs={"type": tf.float32}, label="larger"),
    *no_grad("ToBool", ints(high=2), xla=False),
    *no_grad("ToBool", normal(2, 0), label="empty", xla=False),
    *no_grad("ToBool", drawn((), lambda rng: rng.choice([b"", b"b"])), label="string", xla=False),
]  # fmt: skip

SAMPLES = UNARY + BROADCASTING + ONE_SHAPE + IDENTITIES
