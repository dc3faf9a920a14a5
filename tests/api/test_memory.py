"""Blocks that fit: estimates, budgets, blocks of one, what blocks must not change, advice."""

import gc

import numpy as np
import pytest
import tensorflow as tf

import tf_pfor
from tests.cases import errors, grid
from tests.comparisons import close, gradient_of, jacobian_of, value_and_gradient
from tf_pfor import vmap
from tf_pfor.core.errors import ArgumentError, NotVectorizableError
from tf_pfor.tracing import memory

KIB = 1024


def _blocks(fn, *args, **options):
    """The number of trips of the loop over blocks, None if there is no loop."""
    graph = tf.function(vmap(fn, chunk_size="auto", **options)).get_concrete_function(*args).graph
    loops = [op for op in graph.get_operations() if op.type in ("While", "StatelessWhile")]
    if not loops:
        return None
    return int(tf.get_static_value(loops[0].inputs[1]))


# [k] -> scalar, over a [k, 256] tensor: 1 KiB for each k.
wide = lambda x: tf.reduce_sum(tf.sin(x[:, None] * tf.range(256.0)))


def test_peak_of_a_graph():
    graph = tf.Graph()
    with graph.as_default():
        x = tf.compat.v1.placeholder(tf.float32, [256])  # what comes in is there already
        a = tf.sin(x)  # 1 KiB
        b = tf.reshape(a, [16, 16])  # shares it
        c = tf.cos(b)  # a and c: 2 KiB
        d = tf.reduce_sum(c)  # a is free: c and 4 bytes
        tf.cast(tf.fill([256], d), tf.float64)  # 1 KiB, then 2 KiB more
    assert memory.peak(graph, 1) == 3 * KIB
    loop = tf.function(
        lambda x: tf.while_loop(lambda y: y[0] < 9.0, lambda y: [tf.sin(y) + tf.cos(y)], [x])[0]
    )
    outer = loop.get_concrete_function(tf.TensorSpec([256])).graph
    assert 3 * KIB <= memory.peak(outer, 1) <= 6 * KIB


def test_the_largest_block_that_fits():
    x = tf.ones([64, 8])  # 8 KiB for each of two tensors of a row
    expected = [wide(row) for row in x]
    assert _blocks(wide, x) is None
    assert _blocks(wide, x, memory_budget=10**9) is None
    for budget, least, most in ((800 * KIB, 3, 4), (200 * KIB, 8, 16), (36 * KIB, 64, 64)):
        trips = _blocks(wide, x, memory_budget=budget)
        assert least - 1 <= trips <= most, budget
        close(vmap(wide, chunk_size="auto", memory_budget=budget)(x), expected)


def test_the_block_is_near_the_budget():
    """It fits, and one of twice the size would not; half is left to the allocator."""
    x = tf.ones([100, 8])
    sizes = {}
    for rows in (10, 20):
        with tf.Graph().as_default():
            graph = tf.function(vmap(wide)).get_concrete_function(tf.TensorSpec([rows, 8])).graph
        sizes[rows] = memory.peak(graph, rows)
    trips = _blocks(wide, x, memory_budget=sizes[10] + sizes[20])
    assert 100 // 20 < trips <= 100 // 10


def test_costs_that_are_linear():
    """The block is the largest one that fits."""
    for n in (100, None):
        assert memory.largest_block(n, lambda b: 7 + 3 * b, 100) == 31
        assert memory.largest_block(n, lambda b: 5 * b, 400) == 80


def test_costs_that_are_not_linear():
    for n in (100, None):
        found = memory.largest_block(n, lambda b: b * b, 400)
        assert 2 <= found <= 20  # it fits; a line through two costs finds no more
        assert memory.largest_block(n, lambda b: 10 + (b > 3) * 1000, 400) in (1, 2, 3)
    assert memory.largest_block(100, lambda b: 5, 5) is None


def test_unknown_size():
    @tf.function(input_signature=[tf.TensorSpec([None, 8])])
    def run(x):
        return vmap(wide, chunk_size="auto", memory_budget=100 * KIB)(x)

    for n in (0, 3, 40):
        x = tf.random.stateless_normal([n, 8], [1, 2])
        close(run(x), [wide(row) for row in x])


def test_derivatives():
    x = tf.constant([1.0, 2.0, 3.0])
    expected = np.diag([3.0, 12.0, 27.0])
    close(tf_pfor.jacrev(lambda v: v**3, chunk_size="auto")(x), expected)
    close(tf_pfor.hessian_diag(lambda v: tf.reduce_sum(v**3), chunk_size="auto")(x), 6 * x)
    close(jacobian_of(lambda: x**3, x, parallel_iterations="auto"), expected)
    close(tf_pfor.pfor(lambda i: i * i, 5, parallel_iterations="auto"), [0, 1, 4, 9, 16])


def of_one_variable(derivative, **options):
    return lambda: derivative(tf.sin, tf.Variable(1.0), tf.ones([2]), memory_budget=5, **options)


within = lambda budget, fn: vmap(fn, chunk_size="auto", memory_budget=budget)
FIXED = "memory_budget is for chunk_size='auto'"
test_errors = errors(
    (lambda: vmap(wide, chunk_size="most"), "chunk_size must be a positive int or None or"),
    (lambda: within(0, wide), "number of bytes"),
    (lambda: within("1GB", wide), "number of bytes"),
    (lambda: vmap(wide, memory_budget=5), "which is not set"),
    (lambda: tf_pfor.pfor(lambda i: i, 3, memory_budget=5), "parallel_iterations='auto'"),
    (lambda: tf_pfor.for_loop(lambda i: i, tf.int32, 3, "auto"), "positive int or None"),
    (lambda: within(100, wide)(tf.ones([4, 8])), "One iteration needs about .* KiB"),
    (lambda: tf_pfor.jacrev(tf.sin, chunk_size=2, memory_budget=5), FIXED),
    (of_one_variable(tf_pfor.gradient_norms), FIXED),
    (of_one_variable(tf_pfor.clipped_gradient_sum, clip_norm=1.0), FIXED),
    (lambda: within(100 * KIB, lambda x: x * 2.0)(tf.ones([64, 256])), "with the results of all"),
    error=ArgumentError,
)


def test_default_budget():
    assert 2**20 < memory.default_budget() < 2**50


# Blocks change nothing ------------------------------------------------------------------------


def test_blocks_of_one_run_the_plain_function():
    def fn(x, y):
        z = tf.raw_ops.AudioSpectrogram(input=x[:, None], window_size=4, stride=2)
        return {"z": z, "none": None, "python": 3, "y": y}

    x = tf.random.stateless_normal([5, 8], [1, 2])
    mapped = vmap(fn, in_axes=(0, None), chunk_size=1, fallback="error")
    found = mapped(x, tf.constant(2.0))
    close(found["z"], tf.stack([fn(row, 0)["z"] for row in x]))
    assert found["none"] is None
    assert found["python"].numpy().tolist() == [3] * 5
    assert found["y"].numpy().tolist() == [2.0] * 5
    graph = tf.function(mapped).get_concrete_function(x, tf.constant(2.0)).graph
    assert "While" in "".join(op.type for op in graph.get_operations())

    state = tf.Variable(0.0)

    def in_order(i):
        state.assign(state * 2.0 + tf.cast(i, tf.float32))
        return tf.identity(state)

    close(tf_pfor.pfor(in_order, 4, parallel_iterations=1), [0, 1, 4, 11])


@pytest.mark.parametrize("chunk", [1, 2, 5])
def test_shared_outputs_in_blocks(chunk):
    mapped = vmap(lambda x, w: (x * w, w * 2), (0, None), out_axes=(0, None), chunk_size=chunk)
    x, w = tf.range(5.0), tf.constant([3.0, 4.0])
    y, shared = mapped(x, w[0])
    close(y, 3 * x)
    assert shared.numpy() == 6.0
    with pytest.raises(ArgumentError, match="depends on the mapped arguments"):
        vmap(lambda x: x * 2, out_axes=None, chunk_size=chunk)(x)


@grid(chunk=[1, 2, 3, 5], jit_compile=[False, True])
def test_one_draw_for_all_blocks(chunk, jit_compile):
    def fn(x, scale):
        noise = tf.random.normal([3]) * tf.random.uniform([], scale, 2.0)
        return x + noise, noise

    mapped = vmap(
        fn, (0, None), (0, None), randomness="same", chunk_size=chunk, jit_compile=jit_compile
    )
    x = tf.reshape(tf.range(15.0), [5, 3])
    first, noise = mapped(x, tf.constant(1.0))
    close(first, x + noise)
    again, _ = mapped(x, tf.constant(1.0))
    assert np.abs(first - again).max() > 0


def test_one_draw_for_blocks_of_results_that_differ_in_shape():
    fn = lambda k: tf.random.uniform([])[None] * tf.ones([k])
    found = vmap(fn, randomness="same", chunk_size=2)(tf.constant([1, 3, 0, 2, 2]))
    assert found.row_lengths().numpy().tolist() == [1, 3, 0, 2, 2]
    assert len(set(found.flat_values.numpy().tolist())) == 1


def test_gradients_of_one_draw_for_all_blocks():
    x = tf.Variable(tf.ones([5, 3]))
    mapped = vmap(lambda x: tf.nn.dropout(x * x, 0.5), randomness="same", chunk_size=2)
    y, slopes = value_and_gradient(lambda: mapped(x), x)
    close(slopes, 2 * y)
    assert (y.numpy() == y.numpy()[:1]).all()


def test_draws_that_blocks_would_make_are_refused():
    bodies = [
        lambda x: x + tf.cond(x > 0, lambda: tf.random.normal([]), lambda: 0.0),
        lambda x: tf.random.shuffle(tf.stack([x, 2 * x])),
        lambda x: x + GENERATOR.normal([]),
    ]
    for fn in bodies:
        with pytest.raises(NotVectorizableError, match="blocks would each draw"):
            vmap(fn, randomness="same", chunk_size=2)(tf.zeros([5]))


GENERATOR = tf.random.Generator.from_seed(1)


def test_different_draws_in_blocks():
    for chunk in (1, 2):
        drawn = vmap(lambda x: x + tf.random.normal([]), chunk_size=chunk)(tf.zeros([5])).numpy()
        assert len(set(drawn.tolist())) == 5


@pytest.mark.parametrize("seed", [None, 7])
def test_the_remainder_draws_numbers_of_its_own(seed):
    """Also where a seed is set: the remainder is a second copy of the body's ops."""

    def fn(x):
        one = tf.random.normal([])
        many = tf.while_loop(
            lambda k, _: k < 2, lambda k, s: (k + 1, s + tf.random.uniform([], seed=3)), (0, 0.0)
        )[1]
        return x + one, many

    tf.random.set_seed(seed)
    try:
        for found in vmap(fn, chunk_size=2)(tf.zeros([5])):
            assert len(set(found.numpy().tolist())) == 5
    finally:
        tf.random.set_seed(None)


@pytest.mark.parametrize("jit", [None, True])
@pytest.mark.parametrize("spec", [tf.TensorSpec([None, None]), tf.TensorSpec(None)], ids=str)
def test_blocks_of_unknown_shapes(spec, jit):
    """Also where all rows fit into the remainder: an array of no blocks does not tell its shape."""

    @tf.function(input_signature=[spec], autograph=False, jit_compile=jit)
    def compiled(x):
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = vmap(lambda row: tf.reshape(row, [1, -1]) ** 2, chunk_size=4)(x)
        return y, None if jit else tape.gradient(y, x)

    for n in (0, 2, 4, 5, 9):
        x = tf.random.stateless_normal([n, 3], [1, n])
        y, gradient = compiled(x)
        assert y.shape == [n, 1, 3]
        close(y[:, 0], x**2)
        if not jit:  # XLA cannot compile TensorFlow's gradient of a conditional here
            close(gradient, 2 * x)


# Advice -----------------------------------------------------------------------------------------


def test_out_of_memory_says_how_to_chunk():
    huge = lambda x: tf.reduce_sum(tf.fill([2**22, 2**22], x))

    def without_memory(_):
        raise MemoryError  # TensorFlow waits ten seconds for memory before it says the same

    small = lambda x: tf.numpy_function(without_memory, [x], tf.float32)
    x = tf.constant([1.0, 2.0])
    for run in (
        lambda: tf_pfor.vectorized_map(huge, x),
        lambda: vmap(small)(x),
        lambda: tf_pfor.pfor(lambda i: small(x[i]), 2),
    ):
        with pytest.raises(tf.errors.ResourceExhaustedError, match="chunk_size='auto'") as caught:
            run()
        assert str(caught.value).count("chunk_size='auto'") == 1
    gc.collect()


# Budgets ----------------------------------------------------------------------------------------


def test_budgets_of_derivatives():
    """Blocks by a budget change nothing, in all forms."""
    w = tf.Variable(tf.random.stateless_normal([8, 8], [1, 2]))
    x = tf.random.stateless_normal([20, 8], [3, 4])
    loss = lambda row: tf.reduce_sum(tf.tanh(tf.linalg.matvec(w, row)) ** 2)
    options = {"chunk_size": "auto", "memory_budget": 24 * KIB}
    plain, _ = tf_pfor.per_example_gradients(loss, w, x)
    close(tf_pfor.per_example_gradients(loss, w, x, **options)[0], plain)
    norms = tf.linalg.norm(tf.reshape(plain, [20, -1]), axis=1)
    close(tf_pfor.gradient_norms(loss, w, x, **options), norms)
    sums, _ = tf_pfor.clipped_gradient_sum(loss, w, x, clip_norm=1e9, **options)
    np.testing.assert_allclose(sums, tf.reduce_sum(plain, 0), rtol=1e-4, atol=1e-4)
    for form in (tf_pfor.jacrev, tf_pfor.jacfwd, tf_pfor.hessian, tf_pfor.laplacian):
        close(form(loss, chunk_size="auto", memory_budget=48 * KIB)(x[0]), form(loss)(x[0]))
    auto = {"parallel_iterations": "auto", "memory_budget": 4 * KIB}
    close(tf_pfor.pfor(lambda i: tf.tanh(x[i]), 20, **auto), tf.tanh(x))
    with tf.GradientTape(persistent=True) as tape:
        y = tf.tanh(x[:2] @ w)
    expected = tape.jacobian(y, w, experimental_use_pfor=False)
    close(
        tf_pfor.tape_jacobian(tape, y, w, parallel_iterations="auto", memory_budget=48 * KIB),
        expected,
    )


def test_a_budget_counts_the_results():
    x = tf.ones([64, 256])  # 64 KiB of results: test_errors has too small a budget for them
    assert _blocks(lambda row: row * 2.0, x, memory_budget=200 * KIB) is None


def test_a_budget_counts_what_a_loop_keeps():
    """A gradient of a loop keeps the states of all trips."""

    def cost(trips):
        step = lambda i, s: (i + 1, tf.sin(s))
        loop = lambda x: tf.while_loop(lambda i, _: i < trips, step, (0, x))[1]
        fn = lambda x: tf.reduce_sum(gradient_of(lambda: loop(x), x))
        graph = tf.function(vmap(fn)).get_concrete_function(tf.TensorSpec([4, 256])).graph
        return memory.peak(graph, 4)

    assert 80 * 4 * KIB <= cost(100) - cost(20) <= 3 * 80 * 4 * KIB
