"""Facts of ops, computed: where values and gradients are finite, what is linear, neutral, moved.

Each claim is compared in both directions: a fact that is too weak fails as one that is wrong does.
"""

import contextlib
import itertools

import numpy as np
import pytest
import tensorflow as tf

from tests.samples import ALL as SAMPLES
from tf_pfor import _tf
from tf_pfor.core import facts as table
from tf_pfor.core.facts import FACTS, Cost, Linear, Where, facts_of
from tf_pfor.core.registry import REGISTRY

RAW = tf.raw_ops
LIMIT = float(np.finfo(np.float32).max)
POINTS = [0.0, 1.0, -1.0, 0.5, -2.5, 3.0, 100.0, -100.0, LIMIT, -LIMIT, np.inf, -np.inf, np.nan]
FAMILIES = (table.ELEMENTWISE, table.SAME_SHAPE)
ELEMENTWISE = sorted(x for x in REGISTRY.op_types() if REGISTRY.family_of(x) in FAMILIES)
NO_KERNEL = ("DebugGradientIdentity", "DebugIdentity")  # their kernels ask for a debugger


def _pairs(x, y):
    return tf.stack([x, y], 1)


def _odd(x):
    return tf.range(x.shape[0]) % 2 == 1


def _triples(x, y):
    return tf.stack([x, y, y], 1)


# Ops that are not elementwise, as functions of two vectors with a result for each pair; and ops
# whose samples leave out what matters.
OTHERS = {
    "Add": lambda x, y: RAW.Add(x=x, y=y),
    "AddN": lambda x, y: RAW.AddN(inputs=[x, y]),
    "All": lambda x, y: RAW.All(input=_pairs(x, y) > 0, axis=1),
    "Any": lambda x, y: RAW.Any(input=_pairs(x, y) > 0, axis=1),
    "ArgMax": lambda x, y: RAW.ArgMax(input=_pairs(x, y), dimension=1),
    "ArgMin": lambda x, y: RAW.ArgMin(input=_pairs(x, y), dimension=1),
    "BatchMatMul": lambda x, y: RAW.BatchMatMul(x=x[:, None, None], y=y[:, None, None]),
    "BatchMatMulV2": lambda x, y: RAW.BatchMatMulV2(x=x[:, None, None], y=y[:, None, None]),
    "BatchMatMulV3": lambda x, y: RAW.BatchMatMulV3(
        x=x[:, None, None], y=y[:, None, None], Tout=tf.float32
    ),
    "BiasAdd": lambda x, y: RAW.BiasAdd(value=x[None], bias=y)[0],
    "BroadcastTo": lambda x: RAW.BroadcastTo(input=x[:, None], shape=[x.shape[0], 2]),
    "Cast": lambda x: tf.cast(x, tf.float64),
    "Concat": lambda x, y: RAW.Concat(concat_dim=1, values=[x[:, None], y[:, None]]),
    "ConcatV2": lambda x, y: RAW.ConcatV2(values=[x[:, None], y[:, None]], axis=1),
    "ConjugateTranspose": lambda x, y: RAW.ConjugateTranspose(x=_pairs(x, y), perm=[0, 1]),
    "Cumprod": lambda x, y: RAW.Cumprod(x=_triples(x, y), axis=1),
    "Cumsum": lambda x, y: RAW.Cumsum(x=_pairs(x, y), axis=1),
    "CumulativeLogsumexp": lambda x, y: RAW.CumulativeLogsumexp(x=_pairs(x, y), axis=1),
    "Einsum": lambda x, y: RAW.Einsum(inputs=[x, y], equation="a,a->a"),
    "EuclideanNorm": lambda x, y: RAW.EuclideanNorm(input=_pairs(x, y), axis=1),
    "ExpandDims": lambda x: RAW.ExpandDims(input=x, axis=1),
    "Fill": lambda x: tf.stack([RAW.Fill(dims=[1], value=v) for v in tf.unstack(x)]),
    "IdentityN": lambda x, y: _pairs(*RAW.IdentityN(input=[x, y])),
    "MatMul": lambda x, y: tf.stack(
        [tf.reshape(RAW.MatMul(a=a[None, None], b=b[None, None]), [])
         for a, b in zip(tf.unstack(x), tf.unstack(y))]
    ),
    "Max": lambda x, y: RAW.Max(input=_pairs(x, y), axis=1),
    "Mean": lambda x, y: RAW.Mean(input=_pairs(x, y), axis=1),
    "Min": lambda x, y: RAW.Min(input=_pairs(x, y), axis=1),
    "Pack": lambda x, y: RAW.Pack(values=[x, y], axis=1),
    "Pad": lambda x, y: RAW.Pad(input=_pairs(x, y), paddings=[[0, 0], [1, 0]]),
    "PadV2": lambda x, y: tf.concat(
        [RAW.PadV2(input=a[None], paddings=[[0, 1]], constant_values=b)[None]
         for a, b in zip(tf.unstack(x), tf.unstack(y))], 0
    ),
    "Prod": lambda x, y: RAW.Prod(input=_triples(x, y), axis=1),
    "Reshape": lambda x, y: RAW.Reshape(tensor=_pairs(x, y), shape=[-1, 1, 2]),
    "ReverseV2": lambda x, y: RAW.ReverseV2(tensor=_pairs(x, y), axis=[1]),
    "Roll": lambda x, y: RAW.Roll(input=_pairs(x, y), shift=[1], axis=[1]),
    "Select": lambda x, y: RAW.Select(condition=_odd(x), x=x, y=y),
    "SelectV2": lambda x, y: RAW.SelectV2(condition=_odd(x), t=x, e=y),
    "Slice": lambda x, y: RAW.Slice(input=_pairs(x, y), begin=[0, 1], size=[-1, 1]),
    "Split": lambda x, y: RAW.Split(axis=1, value=_pairs(x, y), num_split=2)[0],
    "SplitV": lambda x, y: RAW.SplitV(
        value=_pairs(x, y), size_splits=[1, 1], axis=1, num_split=2
    )[0],
    "Squeeze": lambda x: RAW.Squeeze(input=x[:, None], axis=[1]),
    "StridedSlice": lambda x, y: _pairs(x, y)[:, 0],
    "Sum": lambda x, y: RAW.Sum(input=_pairs(x, y), axis=1),
    "Tile": lambda x, y: RAW.Tile(input=_pairs(x, y), multiples=[1, 2]),
    "Transpose": lambda x, y: RAW.Transpose(x=_pairs(x, y), perm=[0, 1]),
    "Unpack": lambda x, y: RAW.Unpack(value=_pairs(x, y), num=2, axis=1)[1],
}  # fmt: skip
# What the samples of these leave out: other attributes, and other dtypes.
MORE = {
    "DecodeCompressed": lambda text: RAW.DecodeCompressed(bytes=text, compression_type="ZLIB"),
    "LeakyRelu": lambda x: RAW.LeakyRelu(features=x, alpha=3.0),
    "LeakyReluGrad": lambda x, y: RAW.LeakyReluGrad(gradients=x, features=y, alpha=3.0),
    "Mod": lambda x, y: RAW.Mod(x=x, y=y),
    "TruncateDiv": lambda x, y: RAW.TruncateDiv(x=x, y=y),
    "TruncateMod": lambda x, y: RAW.TruncateMod(x=x, y=y),
    "UnicodeTranscode": lambda text: RAW.UnicodeTranscode(
        input=text, input_encoding="UTF-8", output_encoding="UTF-8", errors="strict"
    ),
}
SOURCES = ("Const", "NoOp", "Placeholder", "Rank", "ReadVariableOp", "Shape", "ShapeN", "Size")


def _functions(op_type):
    """Functions of vectors that run an op on their elements, with the dtypes of the vectors."""
    fn = OTHERS.get(op_type) or MORE.get(op_type)
    found = []
    if fn is not None:
        names = fn.__code__.co_varnames[: fn.__code__.co_argcount]
        found = [(fn, [tf.string if x == "text" else tf.float32 for x in names])]
    if op_type in OTHERS:
        return found
    rng = np.random.default_rng(0)
    return found + [
        (s.fn, [tf.as_dtype(x.make(rng, None).dtype) for x in s.inputs])
        for s in SAMPLES
        if s.op_type == op_type
    ]


def _operands(dtypes, points=POINTS):
    """Vectors with all combinations of points."""
    choices = []
    for dtype in dtypes:
        if dtype.is_floating or dtype.is_complex:
            some = points if len(dtypes) < 3 else [0.0, 0.5, -2.5, 100.0, LIMIT, np.inf, np.nan]
            choices.append(
                some if dtype.is_floating else [complex(x, y) for x in some for y in some]
            )
        elif dtype.is_bool:
            choices.append([False, True])
        elif dtype == tf.string:
            choices.append([b"", b"1", b"a b", b"\xff"])
        else:
            choices.append([-1, 0, 1, 2, 3])
    with np.errstate(all="ignore"):
        columns = [
            np.asarray(c).astype(d.as_numpy_dtype if d != tf.string else object)
            for c, d in zip(zip(*itertools.product(*choices)), dtypes)
        ]
    return [tf.constant(c, d) for c, d in zip(columns, dtypes)]


def _numbers(tensors):
    """[points, ...]: what they hold, of numbers with a gradient only."""
    kept = [t for t in tensors if t is not None and (t.dtype.is_floating or t.dtype.is_complex)]
    return [np.asarray(tf.cast(t, tf.complex128)).reshape(t.shape[0], -1) for t in kept]


def _worst(operands, results):
    """The first Where of which all results outside are finite."""
    x = np.concatenate(_numbers(operands) or [np.zeros([operands[0].shape[0], 1])], 1)
    parts = np.abs(np.concatenate([x.real, x.imag], 1))
    wrong = np.zeros(len(x), bool)
    for r in _numbers(results):
        wrong |= ~np.isfinite(r).all(1)
    kinds = [
        (Where.AT_ZERO, (parts == 0).all(1)),
        (Where.SOMEWHERE, (parts <= 100).all(1)),
        (Where.AT_LARGE, np.isfinite(parts).all(1)),
        (Where.AT_INFINITY, ~np.isnan(parts).any(1)),
        (Where.AT_NAN, np.ones(len(x), bool)),
    ]
    return next((kind for kind, where in kinds if wrong[where].any()), Where.NOWHERE)


def _returned(fn, operands):
    """Gradients that zero comes back as, also in second derivatives; none without a gradient."""
    floats = [x for x in operands if x.dtype.is_floating or x.dtype.is_complex]
    found = []
    with tf.GradientTape(persistent=True) as outer, tf.GradientTape() as inner:
        outer.watch(floats)
        inner.watch(floats)
        y = fn(*operands)
        try:
            with inner.stop_recording():
                zero = tf.zeros_like(y)
            found = [g for g in inner.gradient(y, floats, zero) if g is not None]
        except LookupError:
            return []
    for g in list(found):
        with contextlib.suppress(LookupError):
            found += outer.gradient(g, floats, tf.zeros_like(g))
    return found


FULL = sorted(
    x
    for x, f in FACTS.items()
    if (x in ELEMENTWISE or x in OTHERS or not f.may_fail) and x not in (*SOURCES, *NO_KERNEL)
)


@pytest.mark.parametrize("op_type", ELEMENTWISE)
def test_each_elementwise_op_has_a_row(op_type):
    facts = FACTS[op_type]
    assert facts.linear is not Linear.UNKNOWN
    assert isinstance(facts.cost, Cost)


def test_families_register_what_the_rows_say():
    for op_type, facts in FACTS.items():
        if facts.family:
            assert op_type in REGISTRY, op_type
            if facts.family != table.SCAN:
                families = {r.family for r in REGISTRY.rules(op_type)}
                assert facts.family in families, op_type


@pytest.mark.parametrize("op_type", FULL)
def test_values_and_gradients_are_finite_where_the_facts_say(op_type):
    facts, value, slope = FACTS[op_type], Where.NOWHERE, Where.NOWHERE
    functions = _functions(op_type)
    assert functions, "add a sample, or a function to OTHERS"
    for fn, dtypes in functions:
        operands = _operands(dtypes)
        try:
            made = fn(*operands)
        except tf.errors.OpError:
            assert facts.may_fail
            continue
        value = max(value, _worst(operands, tf.nest.flatten(made)))
        slope = max(slope, _worst(operands, _returned(fn, operands)))
    assert (value.name, slope.name) == (facts.value.name, facts.slope.name)


@pytest.mark.parametrize("op_type", sorted(x for x in FULL if FACTS[x].may_fail))
def test_ops_that_may_fail_do(op_type):
    """Errors of integers mostly, and of text that cannot be read."""
    fails = False
    for fn, dtypes in _functions(op_type) + _of_integers(op_type):
        try:
            fn(*_operands(dtypes, [-1.0, 0.0, np.nan]))
        except tf.errors.OpError:
            fails = True
    assert fails


def _of_integers(op_type):
    names = [a.name for a in _tf.schema(op_type).inputs]
    if names != ["x", "y"]:
        return []
    return [(lambda x, y: getattr(RAW, op_type)(x=x, y=y), [tf.int32, tf.int32])]


NEARLY = ("NextAfter", "OnesLike", "ZerosLike")  # linear but for one bit, and constants
KNOWN = sorted(x for x in FULL if x not in NEARLY)


@pytest.mark.parametrize("op_type", KNOWN)
def test_linear_ops_are_linear_in_what_the_facts_say(op_type):
    """f(2 x - 3 y) = 2 f(x) - 3 f(y), of one input at a time, or of all."""
    kind = FACTS[op_type].linear
    for fn, dtypes in _functions(op_type):
        floats = [i for i, d in enumerate(dtypes) if d.is_floating or d.is_complex]
        if tf.string in dtypes or not floats or not _numbers([_flat(fn(*_draw(dtypes, 0)))]):
            continue
        is_one = {"_pairs", "_triples"}.intersection(fn.__code__.co_names)
        inputs = [floats] if is_one else [[i] for i in floats]  # of the op
        alone = {k for k, which in enumerate(inputs) if _is_linear(fn, dtypes, which)}
        expected = {Linear.FIRST: {0}, Linear.SECOND: {1}, Linear.EACH: {*range(len(inputs))}}
        if kind is Linear.TOGETHER:
            assert _is_linear(fn, dtypes, floats)
        else:
            assert alone == expected.get(kind, set())
            assert len(inputs) == 1 or not _is_linear(fn, dtypes, floats)


def _flat(made):
    (only,) = tf.nest.flatten(made)
    return only


def _draw(dtypes, seed):
    rng = np.random.default_rng(seed)
    return [
        tf.cast(rng.normal(size=64) * 2, d)
        if d.is_floating
        else tf.complex(*rng.normal(size=[2, 64]).astype(np.float32))
        if d.is_complex
        else tf.constant(rng.integers(0, 2, 64), d)
        for d in dtypes
    ]


def _is_linear(fn, dtypes, which):
    x, y = _draw(dtypes, 1), _draw(dtypes, 2)
    y = [b if i in which else a for i, (a, b) in enumerate(zip(x, y))]
    both = [2 * a - 3 * b if i in which else a for i, (a, b) in enumerate(zip(x, y))]
    made = [_flat(fn(*v)) for v in (both, x, y)]
    of_both, of_x, of_y = (_numbers([t])[0] for t in made)
    room = 1e-4 if made[0].dtype.size > 2 else 0.1
    with np.errstate(invalid="ignore"):
        return np.allclose(of_both, 2 * of_x - 3 * of_y, room, room)


def _reduced(op_type, x):
    names = [a.name for a in _tf.schema(op_type).inputs]
    axis = "axis" if "reduction_indices" in names else names[1]
    return getattr(RAW, op_type)(**{names[0]: x, axis: 0})


@pytest.mark.parametrize("dtype", ["bool", "float16", "float32", "int32", "int64", "uint8"])
@pytest.mark.parametrize("op_type", sorted(x for x, f in FACTS.items() if f.neutral is not None))
def test_neutral_elements_change_nothing(op_type, dtype):
    dtype = tf.as_dtype(dtype)
    if dtype.is_bool and op_type not in ("All", "Any"):
        pytest.skip("nobody asks: the rule refuses bools")
    try:
        _reduced(op_type, tf.ones([1], dtype))
    except (tf.errors.OpError, TypeError):
        pytest.skip("no kernel for this dtype")
    added = tf.cast(table.neutral_element(op_type, dtype), dtype)
    lists = [[False], [True, False], [True]] if dtype.is_bool else [[3, 1, 2], [5], [0, 0], [7, 7]]
    if not dtype.is_bool and not dtype.is_unsigned:
        lists += [[-2, -1]]
    if dtype.is_floating:
        lists += [[np.inf, 1], [-np.inf, 1]]
    for numbers in lists:
        x = tf.constant(numbers, dtype)
        expected = _reduced(op_type, x)
        found = _reduced(op_type, tf.concat([x, added[None]], 0))
        found = found[: len(numbers)] if FACTS[op_type].family == table.SCAN else found
        np.testing.assert_array_equal(found, expected)


MOVES = sorted(x for x in FULL if FACTS[x].cost in (Cost.ALIAS, Cost.MOVE))


@pytest.mark.parametrize("op_type", MOVES)
def test_ops_that_move_make_no_new_numbers(op_type):
    """Each element of a result is one of an input, or of its dtype's zero and one."""
    for fn, dtypes in _functions(op_type):
        if tf.string in dtypes:
            continue
        operands = _draw(dtypes, 3)
        parts = [[x.real, x.imag, -x.imag] for x in _numbers(operands)]
        known = np.unique(np.concatenate([np.ravel(p) for p in sum(parts, [])] + [[0.0, 1.0]]))
        for made in _numbers(tf.nest.flatten(fn(*operands))):
            assert np.isin(made.real, known).all()
            assert np.isin(made.imag, known).all()


AXES = ("axes", "axis", "concat_dim", "dimension", "perm", "reduction_axes", "reduction_indices",
        "split_dim")  # fmt: skip


def test_inputs_that_name_axes_are_known():
    """Each op with such an input has it in its row, and each row names inputs that there are."""
    for op_type in _tf.op_types():
        names = {a.name for a in _tf.schema(op_type).inputs}
        assert names.intersection(AXES) <= {*facts_of(op_type).axes}, op_type
    for op_type, facts in FACTS.items():
        schema = _tf.schema(op_type)
        if schema is not None:
            assert {*facts.axes, *facts.places} <= {a.name for a in schema.inputs}, op_type


def test_rows_name_ops():
    """A misspelt op type would claim nothing; other versions of TensorFlow have other ops."""
    unknown = [x for x in FACTS if _tf.schema(x) is None]
    if tf.__version__.startswith("2.21."):
        assert not unknown, unknown
