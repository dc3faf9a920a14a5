"""XLA's own ops, which exist only under jit_compile: a map against each row compiled by itself."""

import itertools

import numpy as np
import pytest
import tensorflow as tf
from tensorflow.compiler.tf2xla.ops import gen_xla_ops as ops
from tensorflow.compiler.tf2xla.python import xla
from tensorflow.compiler.xla import xla_data_pb2 as protos

import tf_pfor
from tests.comparisons import strict_map

_RANDOM = np.random.default_rng(0)
ROWS = 3


def normal(*shape):
    return _RANDOM.normal(size=[ROWS, *shape]).astype(np.float32)


def integers(low, high, *shape):
    return _RANDOM.integers(low, high, [ROWS, *shape]).astype(np.int32)


def scalars(function, *dtypes):
    """A function of scalars that an op takes as an attribute."""
    specs = [tf.TensorSpec([], dtype) for dtype in dtypes]
    return tf.function(function).get_concrete_function(*specs)


def add():
    return scalars(tf.add, tf.float32, tf.float32)


def dot_numbers(lhs, rhs, lhs_batch=(), rhs_batch=()):
    return protos.DotDimensionNumbers(
        lhs_contracting_dimensions=lhs,
        rhs_contracting_dimensions=rhs,
        lhs_batch_dimensions=lhs_batch,
        rhs_batch_dimensions=rhs_batch,
    )


def dot(numbers, **options):
    return lambda lhs, rhs: xla.dot_general(lhs, rhs, numbers, **options)


def conv(images="bxyc", filters="xyio", result="bxyc", **options):
    """A convolution of two spatial axes; the letters say in which order the axes come."""
    numbers = protos.ConvolutionDimensionNumbers(
        input_batch_dimension=images.index("b"),
        input_feature_dimension=images.index("c"),
        input_spatial_dimensions=[images.index(c) for c in "xy"],
        kernel_input_feature_dimension=filters.index("i"),
        kernel_output_feature_dimension=filters.index("o"),
        kernel_spatial_dimensions=[filters.index(c) for c in "xy"],
        output_batch_dimension=result.index("b"),
        output_feature_dimension=result.index("c"),
        output_spatial_dimensions=[result.index(c) for c in "xy"],
    )
    given = dict(
        window_strides=[2, 1],
        padding=[[1, 0], [0, 2]],
        lhs_dilation=[1, 2],
        rhs_dilation=[2, 1],
        dimension_numbers=numbers,
    )
    return lambda lhs, rhs: xla.conv(lhs, rhs, **{**given, **options})


def gather(sizes, vector, is_sorted=False, **numbers):
    numbers = protos.GatherDimensionNumbers(index_vector_dim=vector, **numbers)

    def body(operand, start_indices):
        return xla.gather(operand, start_indices, numbers, sizes, is_sorted)

    return body


def scatter(vector, is_sorted=False, **numbers):
    numbers = protos.ScatterDimensionNumbers(index_vector_dim=vector, **numbers)

    def body(operand, indices, updates):
        return xla.scatter(operand, indices, updates, add(), numbers, is_sorted)

    return body


def symmetric(a):
    return a + tf.linalg.matrix_transpose(a)


def eigen(a):
    w, v = xla.self_adjoint_eig(symmetric(a), True, 100, 1e-6)
    return w, tf.matmul(
        v * w[..., None, :], v, transpose_b=True
    )  # vectors have no sign of their own


def svd(a):
    s, u, v = xla.svd(a, 100, 1e-6)
    u = tf.ensure_shape(u, [4, 4])
    return s, tf.matmul(u[:, :3] * s, v, transpose_b=True)


def variadic_sort(keys, values):
    less = scalars(lambda a, b, c, d: a > b, tf.int32, tf.int32, tf.float32, tf.float32)
    return xla.variadic_sort([keys, values], 0, less, True)


def largest():
    """The larger of two pairs of a number and its place."""

    def pick(x, i, y, j):
        return tf.where(x >= y, x, y), tf.where(x >= y, i, j)

    return scalars(pick, tf.float32, tf.int32, tf.float32, tf.int32)


def argmax(x, places):
    return xla.variadic_reduce([x, places], [-np.inf, np.int32(0)], [1], largest())


def argmax_of_one_type(x, y):
    function = scalars(lambda a, b, c, d: (tf.maximum(a, c), b + d), *[tf.float32] * 4)
    low = tf.constant(-np.inf)
    return ops.xla_variadic_reduce([x, y], [low, tf.constant(0.0)], [0], function)


def windows(x):
    return xla.reduce_window(
        x,
        1.0,
        scalars(tf.multiply, tf.float32, tf.float32),
        [2, 3],
        window_strides=[1, 2],
        window_dilations=[2, 1],
        padding=[[0, 1], [1, 1]],
    )


def select_and_scatter(operand, source):
    ge = scalars(tf.greater_equal, tf.float32, tf.float32)
    return ops.xla_select_and_scatter(
        operand, [2, 2], [2, 2], [[0, 0], [0, 0]], source, 0.0, ge, add()
    )


def helper(lhs, rhs):
    return ops.xla_broadcast_helper(lhs, rhs, tf.constant([1], tf.int64))


def sharding(x):
    tiles = protos.OpSharding(
        type=protos.OpSharding.OTHER,
        tile_assignment_dimensions=[1, 1],
        tile_assignment_devices=[0],
    )
    result = ops.xla_sharding(x, tiles.SerializeToString())
    text = tf.compat.v1.AttrValue(s=tiles.SerializeToString())
    result.op._set_attr("_XlaSharding", text)  # as TensorFlow does
    return result


def dynamic_sizes(x):
    """The sum of the first two rows of three."""
    short = xla.set_dynamic_dimension_size(x, 0, 2)
    return tf.reduce_sum(short, 0), tf.shape(xla.remove_dynamic_dimension_size(short, 0))


def pad(x, value):
    return xla.pad(x, value, [1, 0], [0, -1], [0, 2])


BATCH = {"operand_batching_dims": [0], "start_indices_batching_dims": [0]}
SCATTER_BATCH = {"input_batching_dims": [0], "scatter_indices_batching_dims": [0]}
PLACES = [[[0, 1], [1, 2]], [[2, 2], [-1, 0]], [[0, 0], [9, 1]]]

# The body, and its inputs for all rows.
CASES = {
    "XlaBroadcastHelper": (helper, normal(4, 3), normal(3)),
    "XlaBroadcastHelper of a smaller left side": (helper, normal(3), normal(4, 3)),
    "XlaBroadcastHelper of scalars": (xla.add, normal(4), normal()),
    "XlaConcatND": (lambda a, b: tf.raw_ops.XlaConcatND(inputs=[a, b], num_concats=[1, 2],
        paddings=[0, 1]), normal(2, 3), normal(2, 3)),
    "XlaConv": (conv(), normal(2, 6, 5, 4), normal(2, 3, 4, 6)),
    "XlaConv in another order": (conv("cxby", "oxyi", "xbyc"), normal(4, 6, 2, 5),
        normal(6, 2, 3, 4)),
    "XlaConv of groups": (conv(feature_group_count=2), normal(2, 6, 5, 4), normal(2, 3, 2, 6)),
    "XlaConvV2": (conv(use_v2=True), normal(2, 6, 5, 4), normal(2, 3, 4, 6)),
    "XlaConvV2 of groups of the batch": (conv(batch_group_count=2), normal(4, 6, 5, 3),
        normal(2, 3, 3, 4)),
    "XlaDot": (dot(dot_numbers([1], [0])), normal(4, 5), normal(5, 2)),
    "XlaDot of batches": (dot(dot_numbers([1], [2], [2], [0])), normal(4, 5, 3), normal(3, 2, 5)),
    "XlaDot of vectors": (dot(dot_numbers([0], [0])), normal(5), normal(5)),
    "XlaDotV2": (dot(dot_numbers([0], [1], [1], [0]), preferred_element_type=tf.int32),
        integers(-9, 9, 5, 3).astype(np.int8), integers(-9, 9, 3, 5, 2).astype(np.int8)),
    "XlaDynamicSlice": (lambda x, start: xla.dynamic_slice(x, start, [2, 3]), normal(4, 5),
        np.int32([[0, 1], [-2, 4], [3, 1]])),
    "XlaEinsum": (lambda a, b: xla.einsum(a, b, "abn,nbc->cab"), normal(2, 3, 4), normal(4, 3, 5)),
    "XlaEinsum to a scalar": (lambda a, b: xla.einsum(a, b, "a,a->"), normal(4), normal(4)),
    "XlaGather": (gather([1, 2], 1, offset_dims=[1], collapsed_slice_dims=[0],
        start_index_map=[0, 1]), normal(3, 4), np.int32(PLACES)),
    "XlaGather of batches": (gather([1, 2], 2, offset_dims=[2], start_index_map=[1], **BATCH),
        normal(3, 4), integers(0, 4, 3, 2, 1)),
    "XlaGather of single numbers": (gather([1, 3], 2, True, offset_dims=[1],
        collapsed_slice_dims=[0], start_index_map=[0]), normal(5, 4),
        np.sort(integers(0, 5, 2, 6).reshape(ROWS, -1)).reshape(ROWS, 2, 6)),
    "XlaGather with numbers in front": (gather([1, 2], 0, offset_dims=[0, 2],
        start_index_map=[1, 0]), normal(3, 4), np.int32(PLACES)),
    "XlaKeyValueSort": (ops.xla_key_value_sort, normal(2, 5), normal(2, 5)),
    "XlaOptimizationBarrier": (xla.optimization_barrier, normal(2), integers(0, 9), normal(3, 1)),
    "XlaOptimizationBarrier of one": (xla.optimization_barrier, normal(2)),
    "XlaPad": (pad, normal(2, 3), normal()),
    "XlaReduce": (lambda x: xla.reduce(x, 2.0, [0, 2], add()), normal(2, 3, 4)),
    "XlaReducePrecision": (lambda x: xla.reduce_precision(x, 5, 3), normal(4)),
    "XlaReduceWindow": (windows, normal(5, 6)),
    "XlaRemoveDynamicDimensionSize": (dynamic_sizes, normal(3, 2)),
    "XlaScatter": (scatter(1, update_window_dims=[1], inserted_window_dims=[0],
        scatter_dims_to_operand_dims=[0, 1]), normal(3, 4), np.int32(PLACES), normal(2, 2)),
    "XlaScatter of batches": (scatter(2, update_window_dims=[2], scatter_dims_to_operand_dims=[1],
        **SCATTER_BATCH), normal(3, 4), integers(0, 4, 3, 2, 1), normal(3, 2, 2)),
    "XlaScatter of single numbers": (scatter(1, True, update_window_dims=[0],
        inserted_window_dims=[1], scatter_dims_to_operand_dims=[1]), normal(3, 4),
        np.int32([[0, 1], [2, 2], [3, 9]]), normal(3, 2)),
    "XlaSelectAndScatter": (select_and_scatter, normal(4, 6), normal(2, 3)),
    "XlaSelfAdjointEig": (eigen, normal(2, 3, 3)),
    "XlaSetBound": (lambda x: xla.set_bound(x, 9) * 2, integers(0, 9)),
    "XlaSharding": (sharding, normal(4, 3)),
    "XlaSort": (xla.sort, normal(2, 5)),
    "XlaSplitND": (lambda x: tf.raw_ops.XlaSplitND(input=x, N=4, num_splits=[2, 2]), normal(4, 6)),
    "XlaSplitND of padded blocks": (lambda x: tf.raw_ops.XlaSplitND(input=x, N=2, num_splits=[1, 2],
        paddings=[1, 1]), normal(2, 3)),
    "XlaSvd": (svd, normal(4, 3)),
    "XlaVariadicReduce": (argmax_of_one_type, normal(4, 3), normal(4, 3)),
    "XlaVariadicReduceV2": (argmax, normal(4, 3), integers(0, 99, 4, 3)),
    "XlaVariadicSort": (variadic_sort, integers(0, 3, 5, 2), normal(5, 2)),
}  # fmt: skip


def mapped(body, args, stacked):
    """The body for all rows: inputs that are not stacked are the inputs of the last row."""
    fixed = [None if i in stacked else arg[-1] for i, arg in enumerate(args)]

    def one(rows):
        given = [rows.get(i, x) for i, x in enumerate(fixed)]
        return tf.nest.flatten(body(*given))

    rows = {i: args[i] for i in stacked}
    return strict_map(one, rows)


def expected(compiled, args, stacked):
    rows = [
        compiled(*(arg[r if i in stacked else -1] for i, arg in enumerate(args)))
        for r in range(len(args[0]))
    ]
    return [np.stack(parts) for parts in zip(*rows, strict=True)]


def patterns(args):
    """Every set of inputs that may be stacked."""
    numbers = range(len(args))
    return [s for k in numbers for s in itertools.combinations(numbers, k + 1)]


def compare(found, wanted):
    for a, b in zip(found, wanted, strict=True):
        assert a.dtype == b.dtype
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-4)


OF_KNOWN_LENGTH = ("XlaConvV2 of groups of the batch",)  # the number of groups is an attribute
OF_UNKNOWN_SIZE = ("XlaRemoveDynamicDimensionSize",)


@pytest.mark.parametrize("name", CASES)
def test_nothing_loops(name):
    """And what later ops may know of the shapes is right."""
    body, *args = CASES[name]
    sizes = [ROWS] if name in OF_KNOWN_LENGTH else [ROWS, None]
    for stacked, n in itertools.product(patterns(args), sizes):
        with tf.Graph().as_default():
            given = [tf.compat.v1.placeholder(a.dtype, [n, *a.shape[1:]]) for a in args]
            one = tf.nest.flatten(body(*(x[0] for x in given)))
            for row, result in zip(one, mapped(body, given, stacked), strict=True):
                assert result.shape.rank is not None
                assert row.shape.is_compatible_with(result.shape[1:])
                assert result.shape[1:].is_fully_defined() or name in OF_UNKNOWN_SIZE


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("n", [1, ROWS])
def test_values(name, n):
    body, *args = CASES[name]
    args = [arg[-n:] for arg in args]
    compiled = tf.function(lambda *a: tf.nest.flatten(body(*a)), jit_compile=True)
    shapes = []

    @tf.function(jit_compile=True)
    def all_patterns(*given):
        found = [mapped(body, given, stacked) for stacked in patterns(args)]
        shapes.extend(t.shape for t in tf.nest.flatten(found))
        return found

    found = all_patterns(*map(tf.constant, args))
    for stacked, results in zip(patterns(args), found, strict=True):
        compare(results, expected(compiled, args, stacked))
    for shape, result in zip(shapes, tf.nest.flatten(found), strict=True):
        assert shape.is_compatible_with(result.shape)


def signature(args, way):
    """The specs of inputs of which n, or all sizes, are known when it runs."""
    inner = lambda a: a.shape[1:] if way == "unknown n" else [None] * (a.ndim - 1)  # noqa: E731
    n = None if way == "unknown n" else ROWS
    return [tf.TensorSpec([n, *inner(a)], a.dtype) for a in args]


OTHER_WAYS = ("no rows", "unknown n", "unknown sizes")


@pytest.mark.parametrize("way", OTHER_WAYS)
@pytest.mark.parametrize("name", CASES)
def test_other_numbers(name, way):
    """Ranks alone are known when the map of unknown sizes is traced."""
    if way == "unknown n" and name in OF_KNOWN_LENGTH:
        pytest.skip("the number of groups is an attribute")
    body, *args = CASES[name]
    compiled = tf.function(lambda *a: tf.nest.flatten(body(*a)), jit_compile=True)
    every = patterns(args) if way == "unknown sizes" else [tuple(range(len(args)))]
    specs = None if way == "no rows" else signature(args, way)

    @tf.function(jit_compile=True, input_signature=specs)
    def all_patterns(*given):
        return [mapped(body, given, stacked) for stacked in every]

    if way != "no rows":
        for stacked, found in zip(every, all_patterns(*args), strict=True):
            compare(found, expected(compiled, args, stacked))
        return
    (none,) = all_patterns(*(a[:0] for a in args))
    for found, row in zip(none, compiled(*(a[0] for a in args)), strict=True):
        assert found.dtype == row.dtype
        assert found.shape == [0, *row.shape]


@pytest.mark.parametrize("name", CASES)
def test_nested(name):
    """The outer map has all inputs stacked, the inner one the first input or all but that."""
    body, *args = CASES[name]
    args = [np.stack([arg, arg[::-1]]) for arg in args]
    compiled = tf.function(lambda *a: tf.nest.flatten(body(*a)), jit_compile=True)
    inner = [(0,), tuple(range(1, len(args)))][: len(args)]

    @tf.function(jit_compile=True)
    def run(*given):
        return [
            strict_map(lambda rows, stacked=stacked: mapped(body, rows, stacked), given)
            for stacked in inner
        ]

    for stacked, found in zip(inner, run(*map(tf.constant, args)), strict=True):
        rows = [expected(compiled, pair, stacked) for pair in zip(*args, strict=True)]
        compare(found, [np.stack(parts) for parts in zip(*rows, strict=True)])


def test_start_values_of_the_row_loop():
    """XLA takes scalars only."""
    x, start = normal(4), normal()

    def body(rows):
        return xla.reduce(*rows, [0], add())

    def run(**options):
        return tf_pfor.vectorized_map(body, (x, start), **options)

    with pytest.raises(tf_pfor.NotVectorizableError, match="init_value"), tf.Graph().as_default():
        run(fallback_to_while_loop=False)
    with pytest.warns(tf_pfor.FallbackWarning, match="XlaReduce"):
        found = tf.function(run, jit_compile=True)()
    np.testing.assert_allclose(found, x.sum(1) + start, rtol=1e-5)
