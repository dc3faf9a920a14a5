"""Recursive and data-dependent functions of one example, batched by what they record."""

import functools
import threading

import numpy as np
import pytest
import tensorflow as tf

import tf_pfor
from tests import comparisons
from tests.cases import case, grid
from tests.comparisons import assert_close, gradient_of, value_and_gradient
from tf_pfor._tf import _eager_ops

assert_close = functools.partial(comparisons.assert_close, rtol=1e-5, atol=1e-6)  # of float32
SCHEDULES = ["agenda", "depth"]
TREES = [((1, 2), (3, (4, 5))), 7, (2, 2), ((((0, 1), 2), 3), 9), (1, 2), (5, (5, 5))]


class Model:
    """A recursion over binary trees whose leaves are numbers of words."""

    def __init__(self, as_unit=lambda f: f, dtype=np.float32):
        rng = np.random.default_rng(3)
        self.words = tf.Variable(rng.normal(size=(10, 4)).astype(dtype))
        self.weights = tf.Variable(rng.normal(size=(8, 4)).astype(dtype))
        self.variables = [self.words, self.weights]
        self.join = as_unit(self.joined)

    def joined(self, left, right):
        return tf.tanh(
            tf.linalg.matvec(self.weights, tf.concat([left, right], 0), transpose_a=True)
        )

    def vector(self, tree):
        if isinstance(tree, tuple):
            return self.join(self.vector(tree[0]), self.vector(tree[1]))
        return tf.gather(self.words, tree)

    def loss(self, tree):
        return tf.reduce_sum(self.vector(tree) ** 2)


one_by_one = lambda fn, examples: tf.stack([fn(e) for e in examples])


def with_slopes(run, sources):
    """The results of ``run()``, and dense gradients by variables, zeros where there are none."""
    y, slopes = value_and_gradient(run, sources, unconnected_gradients="zero")
    return y, [tf.convert_to_tensor(g) for g in slopes]


def held(fn, examples):
    """A batch has the results of one example after the other."""
    found, expected = tf_pfor.batched(fn)(examples), [fn(e) for e in examples]
    stacked = tf.nest.map_structure(lambda *x: tf.stack(x), *expected)
    tf.nest.map_structure(assert_close, found, stacked)


UNITS = {"ops": lambda f: f, "cell": tf_pfor.cell, "function": tf.function}


@grid(unit=UNITS, schedule=SCHEDULES)
def test_trees(unit, schedule):
    model = Model(UNITS[unit])
    expected = with_slopes(lambda: one_by_one(model.loss, TREES), model.variables)
    fn = tf_pfor.batched(model.loss, schedule=schedule)
    for _ in range(2):
        assert_close(with_slopes(lambda: fn(TREES), model.variables), expected)


@pytest.mark.parametrize("n", [1, 2, 5])
def test_numbers_of_examples(n):
    held(Model(tf_pfor.cell).loss, TREES[:n])


@pytest.mark.parametrize("dtype", [tf.float64, tf.float16, tf.complex64, tf.int32])
def test_dtypes(dtype):
    x = [tf.cast(tf.constant([1, 2, 3]) + i, dtype) for i in range(4)]
    held(lambda a: tf.reduce_sum(a * a) + a[1], x)


@case(held, [tf.constant([k, 1.0, -k]) for k in (0.1, 5.0, 2.0, 9.0)])
def test_a_loop_that_stops_by_value(x):
    count = 0
    while tf.norm(x) > 1.0:
        x = x * 0.7 - 0.01
        count += 1
    return x, count


def test_gradients_through_a_loop_that_stops_by_value():
    scale = tf.Variable(0.8)

    def fn(x):
        while float(tf.reduce_sum(x)) > 1.0:
            x = x * scale
        return tf.reduce_sum(x)

    rows = [tf.constant([3.0, k]) for k in (0.1, 5.0, 2.0)]
    found = value_and_gradient(lambda: tf_pfor.batched(fn)(rows), scale)
    expected = value_and_gradient(lambda: one_by_one(fn, rows), scale)
    tf.nest.map_structure(assert_close, found, expected)


def test_gradients_by_tensors_outside():
    scale, shift = tf.constant(2.0), tf.constant([1.0, 2.0])

    def fn(k):
        y = shift
        for _ in range(k):
            y = y * tf.exp(-scale) + shift
        return y

    derivative = lambda run: value_and_gradient(run, [scale, shift])
    found = derivative(lambda: tf_pfor.batched(fn)([0, 3, 1]))
    expected = derivative(lambda: one_by_one(fn, [0, 3, 1]))
    tf.nest.map_structure(assert_close, found, expected)


def test_equal_numbers_have_gradients_of_their_own():
    scale = tf.constant(2.0)
    fn = tf_pfor.batched(lambda x: x * tf.constant(2.0) + x * scale)
    y, slope = value_and_gradient(lambda: fn([tf.constant(1.0), tf.constant(3.0)]), scale)
    assert y.numpy().tolist() == [4.0, 12.0]
    assert float(slope) == 4.0


def test_values_that_leave_the_function_by_another_way():
    seen = []

    def fn(x):
        seen.append(x * 2.0)
        return x

    tf_pfor.batched(fn)([tf.constant(1.0), tf.constant(3.0)])
    assert [float(x) for x in seen] == [2.0, 6.0]
    assert float(tf.convert_to_tensor(seen[1]) + 1.0) == 7.0
    with pytest.raises(tf_pfor.NotVectorizableError, match="Return it from the function"):
        tf.tanh(seen[0])


def test_values_that_are_asked_for():
    def fn(x):
        y = x * 2.0
        shown = f"{y[0]:.1f}"
        return y[int(y[1])], np.asarray(y).sum(), len(y), shown == f"{2 * x.numpy()[0]:.1f}"

    rows = [tf.constant([1.0, 0.5, 3.0]), tf.constant([4.0, 0.0, 6.0])]
    picked, total, length, is_right = tf_pfor.batched(fn)(rows)
    assert picked.numpy().tolist() == [1.0, 8.0]
    assert total.numpy().tolist() == [9.0, 20.0]
    assert length.numpy().tolist() == [3, 3]
    assert is_right.numpy().all()


def test_ops_whose_shapes_depend_on_values():
    def fn(x):
        kept = tf.boolean_mask(x, x > 0.0)
        parts = tf.split(x, 2)
        return kept, tf.stack([tf.reduce_max(p) for p in parts]), tf.unique(tf.cast(x, tf.int32))[0]

    rows = [tf.constant([1.0, -1.0, 3.0, 3.0]), tf.constant([-4.0, 5.0, -6.0, -7.0])]
    kept, largest, values = tf_pfor.batched(fn)(rows)
    assert kept.to_list() == [[1.0, 3.0, 3.0], [5.0]]
    assert largest.numpy().tolist() == [[1.0, 3.0], [5.0, -6.0]]
    assert values.to_list() == [[1, -1, 3], [-4, 5, -6, -7]]


def test_gradients_of_ops_whose_shapes_depend_on_values():
    w = tf.Variable([1.0, 2.0, 3.0])
    fn = lambda x: tf.reduce_sum(tf.boolean_mask(x * w, x > 0.0) ** 2)
    rows = [tf.constant([1.0, -1.0, 3.0]), tf.constant([-4.0, 5.0, -6.0])]
    assert_close(gradient_of(lambda: tf_pfor.batched(fn)(rows), w), 2 * w * [1.0, 25.0, 9.0])


@case(held, [1, 3, 2])
def test_slices_by_numbers_of_the_example(k):
    x = tf.range(6.0) * 2.0
    return tf.reduce_sum(x[:k]) + x[k], x[k : k + 2]


def test_results_of_different_sizes_are_ragged():
    found = tf_pfor.batched(lambda k: {"row": tf.sqrt(tf.range(float(k))), "none": None})([2, 0, 3])
    assert found["none"] is None
    expected = tf.constant([[0.0, 1.0, 0.0], [0.0] * 3, [0.0, 1.0, 2**0.5]])
    assert_close(found["row"].to_tensor(), expected)
    assert found["row"].row_lengths().numpy().tolist() == [2, 0, 3]


def test_axes_of_one_size_stay_uniform():
    def fn(k):
        x = tf.range(float(12 * k))
        return tf.reshape(x, [k, 3, 4]), tf.reshape(x, [3, k, 4]), tf.reshape(x, [k, 2, 3, 2])

    found = tf_pfor.batched(fn)([2, 0, 3])
    assert [list(f.shape) for f in found] == [[3, None, 3, 4], [3, 3, None, 4], [3, None, 2, 3, 2]]
    for i, k in enumerate((2, 0, 3)):
        for f, e in zip(found, fn(k)):
            assert (
                f[i].to_list() == e.numpy().tolist() if f.ragged_rank > 1 else f[i].shape == e.shape
            )


def test_sizes_that_no_trace_knows():
    fn = tf_pfor.batched(lambda x: tf.boolean_mask(x, x > 0.0))
    for rows in ([[1.0, -1.0], [-1.0, -1.0]], [[1.0, -1.0], [-1.0, 2.0]]):
        assert tf.function(fn)(tf.constant(rows)).to_list() == [
            [x for x in r if x > 0] for r in rows
        ]


def test_zeros_of_both_signs_and_long_lists_of_arrays():
    shifted = tf_pfor.cell(lambda x, zero: 1.0 / (x * 0.0 + zero))
    signs = [0.0, -0.0, 0.0, -0.0]
    for divided in (shifted, lambda x, zero: x / (x * 0.0 * zero + zero)):
        found = tf_pfor.batched(lambda zero, f=divided: f(tf.constant(1.0), zero))(signs)
        assert found.numpy().tolist() == [divided(tf.constant(1.0), s).numpy() for s in signs]

    def fn(k):
        row = np.zeros(2000, np.float32)
        row[1000] = k
        return tf.reduce_sum(tf.ones([1, 2000]) * [row])

    assert tf_pfor.batched(fn)([1, 2, 3]).numpy().tolist() == [1.0, 2.0, 3.0]


def test_layers():
    layers = [tf.keras.layers.Dense(4, "relu"), tf.keras.layers.LayerNormalization()]
    cell = tf.keras.layers.LSTMCell(3)
    x = [tf.random.stateless_normal([k, 1, 4], [k, 1]) for k in (1, 3, 2)]
    for layer in (*layers, cell):
        layer.build([None, 4])

    def fn(steps):
        state = [tf.zeros([1, 3]), tf.zeros([1, 3])]
        for step in tf.unstack(steps):
            for layer in layers:
                step = layer(step)
            y, state = cell(step, state)
        return y[0]

    variables = [v.value for layer in (*layers, cell) for v in layer.trainable_variables]
    found = value_and_gradient(lambda: tf_pfor.batched(fn)(x), variables)
    expected = value_and_gradient(lambda: one_by_one(fn, x), variables)
    tf.nest.map_structure(assert_close, found, expected)


def test_cells_of_layers_nests_and_options():
    dense = tf.keras.layers.Dense(2, use_bias=False)
    dense.build([None, 2])
    layer = tf_pfor.cell(dense)
    step = tf_pfor.cell(
        lambda state, x, *, times: {"h": state["h"] * times + x, "c": (state["c"], x)}
    )

    def fn(k):
        state = {"h": tf.zeros([1, 2]), "c": (tf.zeros([1, 2]), tf.zeros([1, 2]))}
        for i in range(k):
            state = step({"h": state["h"], "c": state["c"][1]}, layer(state["h"] + 1.0), times=i)
        return state

    held(fn, [1, 4, 2])


def test_draws_differ_between_calls_and_examples():
    noisy = tf_pfor.cell(lambda x: x + tf.random.normal([3]))
    fn = lambda x: (noisy(x), noisy(x), tf.random.normal([3]), tf.nn.dropout(x, 0.5))
    found = tf_pfor.batched(fn)([tf.ones([3]), tf.ones([3])])
    drawn = np.concatenate([f.numpy().ravel() for f in found[:3]])
    assert len(set(drawn.tolist())) == drawn.size
    assert set(found[3].numpy().ravel().tolist()) <= {0.0, 2.0}


def test_strings_and_tables():
    table = tf.lookup.StaticHashTable(
        tf.lookup.KeyValueTensorInitializer(["a", "b"], [1, 2]), default_value=0
    )
    fn = lambda words: sum(table.lookup(tf.strings.lower(w)) for w in words)
    assert tf_pfor.batched(fn)([["A", "b"], ["B"], ["c", "b", "a"]]).numpy().tolist() == [3, 2, 3]


@pytest.mark.parametrize("unit", UNITS)
def test_in_a_function(unit):
    model = Model(UNITS[unit])
    batch = tf_pfor.batched(model.loss)
    step = tf.function(lambda scale: with_slopes(lambda: batch(TREES) * scale, model.variables))
    expected = with_slopes(lambda: one_by_one(model.loss, TREES) * 2.0, model.variables)
    assert_close(step(tf.constant(2.0)), expected)


def test_variables_that_change_between_calls():
    v = tf.Variable(1.0)
    fn = tf_pfor.batched(lambda k: v * float(k))
    assert fn([1, 2]).numpy().tolist() == [1.0, 2.0]
    v.assign(3.0)
    assert fn([1, 2]).numpy().tolist() == [3.0, 6.0]


def test_training_lowers_the_loss():
    model = Model(tf_pfor.cell)
    batch = tf_pfor.batched(model.loss)
    optimizer = tf.keras.optimizers.SGD(0.05)
    losses = []
    for _ in range(5):
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(batch(TREES))
        optimizer.apply_gradients(zip(tape.gradient(loss, model.variables), model.variables))
        losses.append(float(loss))
    assert losses == sorted(losses, reverse=True)


# -- What is refused -------------------------------------------------------------------------------


def test_writes_are_refused():
    v = tf.Variable([1.0])
    written = tf_pfor.cell(lambda x: v.assign_add(x))
    for fn in (lambda x: v.assign(x), written):
        with pytest.raises(tf_pfor.NotVectorizableError, match="writes a variable"):
            tf_pfor.batched(fn)([tf.constant([2.0])])
    assert v.numpy().tolist() == [1.0]


def memo():
    table, one = tf.lookup.experimental.MutableHashTable(tf.int64, tf.float32, -1.0), tf.ones([])
    key = tf.constant(3, tf.int64)

    def fn(x):
        old = table.lookup(key)
        table.insert(key, one)
        return old * x, table.lookup(key), table.size()

    return fn


def forgets():
    table = tf.lookup.experimental.DenseHashTable(tf.int64, tf.float32, -1.0, -1, -2)
    cell = tf_pfor.cell(table.lookup)

    def fn(x):
        key = tf.constant([3], tf.int64)
        old = cell(key)
        table.remove(key)
        return old * x

    return fn


def a_function():
    v = tf.Variable(1.0)
    inner = tf.function(lambda: v.assign_add(1.0))
    count = tf.function(lambda: tf.size(inner()))

    def fn(x):
        old = v * x
        return old, count(), v * x

    return fn


def a_dataset():
    v, numbers = tf.Variable(1.0), tf.data.Dataset.from_tensor_slices([1.0, 2.0])
    return lambda x: [v * x, *numbers.map(v.assign_add), v * x]


def a_generator():
    generator = tf.random.Generator.from_seed(3)

    def fn(x):
        old = generator.state[0]
        return old, generator.normal([]) * x

    return fn


@pytest.mark.parametrize("make", [memo, forgets, a_function, a_dataset, a_generator])
def test_writes_of_known_values_are_refused(make):
    with pytest.raises(tf_pfor.NotVectorizableError, match="writes a variable"):
        tf_pfor.batched(make())([tf.constant(5.0)])


def test_new_tables_and_draws_are_not_refused():
    generator = tf.random.Generator.from_seed(3)

    def fn(x):
        values = tf.lookup.KeyValueTensorInitializer(tf.constant([1, 2]), tf.constant([3, 4]))
        return tf.lookup.StaticHashTable(values, 0).lookup(x), generator.normal([])

    found, drawn = tf_pfor.batched(fn)([tf.constant(2), tf.constant(1), tf.constant(0)])
    assert found.numpy().tolist() == [4, 3, 0]
    assert len(set(drawn.numpy().tolist())) == 3


def test_a_cell_takes_the_values_of_its_example():
    def fn(x):
        query = x * 2.0
        return tf_pfor.cell(lambda k: tf.reduce_sum(k * query))(x)

    with pytest.raises(tf_pfor.NotVectorizableError, match="a tf_pfor.cell .* arguments only"):
        tf_pfor.batched(fn)([tf.ones([2])])


def test_custom_gradients_need_a_cell():
    clipped = tf.custom_gradient(lambda x: (x, lambda dy: tf.clip_by_value(dy, -0.1, 0.1)))
    x = [tf.constant(1.0), tf.constant(2.0)]
    with pytest.raises(tf_pfor.NotVectorizableError, match="tf_pfor.cell"):
        tf_pfor.batched(lambda a: clipped(a * 1.0))(x)
    w = tf.Variable(3.0)
    in_cell = tf_pfor.cell(lambda a: clipped(a * w))
    assert_close(gradient_of(lambda: tf_pfor.batched(in_cell)(x), w), tf.constant(0.1 * 3.0))


@pytest.mark.parametrize(
    ("examples", "error", "message"),
    [
        (3, tf_pfor.ArgumentTypeError, "examples must be a sequence, found int"),
        ({0: 1.0}, tf_pfor.ArgumentTypeError, "examples must be a sequence, found dict"),
        ([], tf_pfor.ArgumentError, "at least one example"),
    ],
)
def test_wrong_examples(examples, error, message):
    with pytest.raises(error, match=message):
        tf_pfor.batched(lambda x: x)(examples)


@pytest.mark.parametrize(
    "examples",
    [tf.ones([3, 2]), np.ones([3, 2]), tf.ragged.constant([[1.0, 2.0], [], [3.0]]), range(3)],
    ids=["tensor", "array", "ragged", "range"],
)
def test_kinds_of_sequences(examples):
    found = tf_pfor.batched(lambda x: tf.reduce_sum(tf.cast(x, tf.float32) * 2.0))(examples)
    expected = [2.0 * np.sum(examples[i]) for i in range(3)]
    assert found.numpy().tolist() == expected


def second_derivative(run, weights):
    with tf.GradientTape() as outer:
        slope = tf.reduce_sum(gradient_of(lambda: tf.reduce_sum(run()), weights) ** 2)
    return outer.gradient(slope, weights)


def pushed(run, weights):
    with tf.autodiff.ForwardAccumulator(weights, tf.ones([8, 4])) as accumulator:
        y = run()
    return accumulator.jvp(y)


def forward_over_reverse(run, weights):
    with tf.autodiff.ForwardAccumulator(weights, tf.ones([8, 4])) as accumulator:
        slope = gradient_of(lambda: tf.reduce_sum(run()), weights)
    return slope, accumulator.jvp(slope)


@pytest.mark.parametrize(
    ("derivative", "unit"),
    [
        (second_derivative, "cell"),
        (second_derivative, "ops"),
        (pushed, "ops"),
        (forward_over_reverse, "ops"),  # TensorFlow has none of a function that reads a variable
    ],
)
def test_second_derivatives_and_forward_mode(derivative, unit):
    model = Model(UNITS[unit])
    batch = tf_pfor.batched(model.loss)
    whole = lambda: derivative(lambda: batch(TREES[:3]), model.weights)
    expected = derivative(lambda: one_by_one(model.loss, TREES[:3]), model.weights)
    for found in (whole(), tf.function(whole, autograph=False)()):
        tf.nest.map_structure(assert_close, found, expected)


def test_wrong_arguments():
    with pytest.raises(tf_pfor.ArgumentTypeError, match="fn must be a function"):
        tf_pfor.batched(3)
    with pytest.raises(tf_pfor.ArgumentTypeError, match="fn must be a function"):
        tf_pfor.cell(3)
    with pytest.raises(tf_pfor.ArgumentError, match="schedule must be one of"):
        tf_pfor.batched(tf.sin, schedule="width")
    for size in (0, -1, 2.5, "auto"):
        with pytest.raises(tf_pfor.ArgumentError, match="chunk_size must be a positive"):
            tf_pfor.batched(tf.sin, chunk_size=size)
    with pytest.raises(tf_pfor.ArgumentError, match="inside of batched"):
        tf_pfor.batched(lambda x: tf_pfor.batched(tf.sin)([x]))([1.0])


@pytest.mark.parametrize("asked", [bool, float, np.asarray])
def test_values_in_a_function_are_refused(asked):
    batch = tf_pfor.batched(lambda x: x * asked(tf.reduce_sum(x) * 2.0))
    with pytest.raises(tf_pfor.NotVectorizableError, match="called in a tf.function"):
        tf.function(batch, autograph=False)(tf.ones([2, 3]))


def test_results_that_do_not_fit():
    with pytest.raises(tf_pfor.ArgumentError, match="same structure.*example 1"):
        tf_pfor.batched(lambda k: (k,) if k else k)([0, 1])
    with pytest.raises(tf_pfor.ArgumentError, match="same dtype"):
        tf_pfor.batched(lambda k: k if k else 1.5)([0, 1])
    with pytest.raises(tf_pfor.ArgumentError, match="same rank"):
        tf_pfor.batched(lambda k: tf.zeros([2] * k))([0, 1])


def test_an_error_names_the_example_and_leaves_nothing_behind():
    assert _eager_ops.is_idle()
    threads = threading.active_count()

    def fn(k):
        if tf.constant(float(k)) * 2.0 > 3.0:
            raise KeyError("mine")
        return tf.constant(1.0)

    with pytest.raises(KeyError, match="mine") as found:
        tf_pfor.batched(fn)([0, 1, 2, 3])
    assert "example 2" in str(getattr(found.value, "__notes__", "example 2"))

    def failing(k):
        y = tf.constant(float(k))
        while y < 2.0:
            y = tf.debugging.check_numerics(y / float(k), "bad")
        return y

    with pytest.raises(tf.errors.InvalidArgumentError):
        tf_pfor.batched(failing)([3, 0, 2, 1, 0])
    with pytest.raises(tf.errors.InvalidArgumentError):
        tf_pfor.batched(lambda a: tf.debugging.check_numerics(a * np.inf, "bad"))([tf.ones([])] * 2)
    assert _eager_ops.is_idle()
    assert threading.active_count() <= threads


def test_threads_do_not_see_each_other():
    model = Model(tf_pfor.cell)
    expected = one_by_one(model.loss, TREES)

    def work(i):
        for _ in range(3):
            found = tf_pfor.batched(model.loss)(TREES) if i % 2 else model.loss(TREES[0])
            assert type(found) is type(expected)
        return found

    alone, whole = comparisons.in_threads(work, range(4))[:2]
    assert_close(whole, expected)
    assert_close(alone, expected[0])


# -- Random programs -------------------------------------------------------------------------------


def random_tree(rng, size):
    if size == 1:
        return int(rng.integers(10))
    left = int(rng.integers(1, size))
    return rng.choice(4), random_tree(rng, left), random_tree(rng, size - left)


@pytest.mark.parametrize("seed", range(12))
def test_random_recursions(seed):
    rng = np.random.default_rng(seed)
    words = tf.Variable(rng.normal(size=(10, 3)).astype(np.float32))
    matrix = tf.Variable(rng.normal(size=(3, 3)).astype(np.float32))
    joins = [
        lambda a, b: tf.tanh(tf.linalg.matvec(matrix, a) + b),
        lambda a, b: a * tf.sigmoid(b),
        lambda a, b: tf.where(a > b, a, 0.5 * b),
        lambda a, b: tf.nn.softmax(tf.stack([a, b]), 0)[0] - tf.reduce_mean(b),
    ]
    if seed % 3 == 1:
        joins = [tf_pfor.cell(f) for f in joins]
    if seed % 3 == 2:
        joins[0], joins[3] = tf.function(joins[0]), tf_pfor.cell(joins[3])

    def fold(tree):
        if isinstance(tree, int):
            return tf.gather(words, tree)
        which, left, right = tree
        left, right = fold(left), fold(right)
        if seed % 4 == 3 and which == 2 and tf.reduce_sum(left) > 0.0:
            return right
        return joins[which](left, right)

    trees = [random_tree(rng, int(rng.integers(1, 9))) for _ in range(7)]
    expected = with_slopes(lambda: one_by_one(fold, trees), [words, matrix])
    fn = tf_pfor.batched(fold, schedule=SCHEDULES[seed % 2])
    assert_close(with_slopes(lambda: fn(trees), [words, matrix]), expected)
