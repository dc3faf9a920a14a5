"""Collectives: values, gradients inside and outside, nests, state of the loop, errors."""

import numpy as np
import pytest
import tensorflow as tf

import tf_pfor
from tests.comparisons import gradient_of, pairwise
from tf_pfor import all_gather, axis_index, axis_size, pmax, pmean, pmin, ppermute, psum, vmap
from tf_pfor.core.errors import ArgumentError, ArgumentTypeError, NotVectorizableError

X = np.array([[1.0, -2.0], [3.0, 0.5], [3.0, -7.0]], np.float32)
ROLL = [(0, 1), (1, 2), (2, 0)]

# What each does with all rows at once.
WHOLE = {
    "psum": (psum, lambda x: tf.broadcast_to(tf.reduce_sum(x, 0), tf.shape(x))),
    "pmean": (pmean, lambda x: tf.broadcast_to(tf.reduce_mean(x, 0), tf.shape(x))),
    "pmax": (pmax, lambda x: tf.broadcast_to(tf.reduce_max(x, 0), tf.shape(x))),
    "pmin": (pmin, lambda x: tf.broadcast_to(tf.reduce_min(x, 0), tf.shape(x))),
    "all_gather": (all_gather, lambda x: tf.tile(x[None], [3, 1, 1])),
    "all_gather_1": (lambda x: all_gather(x, axis=-1),
        lambda x: tf.tile(tf.transpose(x)[None], [3, 1, 1])),
    "roll": (lambda x: ppermute(x, perm=ROLL), lambda x: tf.roll(x, 1, 0)),
    "shift": (lambda x: ppermute(x, perm=[(1, 0), (2, 1)]),
        lambda x: tf.concat([x[1:], tf.zeros([1, 2])], 0)),
}  # fmt: skip
KINDS = pytest.mark.parametrize("kind", WHOLE)


def _close(found, expected):
    found, expected = tf.convert_to_tensor(found), tf.convert_to_tensor(expected)  # of slices
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)


_strict = lambda fn, **options: vmap(fn, fallback="error", **options)


@KINDS
def test_values(kind):
    fn, whole = WHOLE[kind]
    found = _strict(lambda x: fn(x * 2))(X)
    _close(found, whole(tf.constant(X) * 2))
    assert found.shape == whole(tf.constant(X)).shape


@KINDS
def test_unknown_size(kind):
    fn, whole = WHOLE[kind]

    @tf.function(input_signature=[tf.TensorSpec([None, 2])])
    def run(x):
        return tf_pfor.vectorized_map(fn, x, fallback_to_while_loop=False)

    if kind in ("roll", "shift"):
        with pytest.raises(NotVectorizableError, match="known before running"):
            run(X)
    else:
        _close(run(X), whole(tf.constant(X)))


@KINDS
def test_gradients_outside(kind):
    fn, whole = WHOLE[kind]
    x = tf.constant(X)
    weights = tf.random.stateless_normal(whole(x).shape, [1, 2])
    gradient = lambda f: gradient_of(lambda: tf.reduce_sum(f(x) * weights), x)
    _close(gradient(_strict(fn)), gradient(whole))


@KINDS
def test_gradients_inside(kind):
    """The gradient of one example's result is the gradient of the sum of all results."""
    fn, whole = WHOLE[kind]
    x = tf.constant(X)
    weights = tf.random.stateless_normal(whole(x).shape, [1, 2])
    taped = lambda row, weight: gradient_of(lambda: tf.reduce_sum(fn(tf.sin(row)) * weight), row)
    by_graph = lambda row, weight: tf.gradients(tf.reduce_sum(fn(tf.sin(row)) * weight), row)[0]
    expected = gradient_of(lambda: tf.reduce_sum(whole(tf.sin(x)) * weights), x)
    _close(_strict(taped)(x, weights), expected)
    _close(_strict(by_graph)(x, weights), expected)


def test_second_order_and_forward_mode():
    total = lambda row: tf.reduce_sum(psum(row**2) ** 2)
    second = lambda row: gradient_of(lambda: gradient_of(lambda: total(row), row), row)
    x = tf.constant(X)
    s = tf.reduce_sum(x**2, 0)
    # g_i = 3 * 4 x_i s; the gradient of the sum of all g_j by x_i.
    expected = 12 * s + 24 * x * tf.reduce_sum(x, 0)
    _close(_strict(second)(x), expected)

    def pushed(row):
        with tf.autodiff.ForwardAccumulator(row, tf.ones_like(row)) as acc:
            y = psum(row * row)
        return acc.jvp(y)

    _close(_strict(pushed)(x), np.tile(2 * X.sum(0), [3, 1]))


def test_jacobian_of_a_body_means_the_map_of_the_user():
    x = tf.constant(X)

    def fn(row):
        with tf.GradientTape(persistent=True) as tape:
            tape.watch(row)
            y = psum(row**2) * 2.0
        return tf_pfor.tape_jacobian(tape, y, row), tf_pfor.jacrev(lambda v: psum(v**2))(row)

    taped, compiled = _strict(fn)(x)
    _close(taped, 12 * X[:, None] * np.eye(2, dtype=np.float32))
    _close(compiled, 6 * X[:, None] * np.eye(2, dtype=np.float32))


def test_invariant_values_and_numbers():
    w = tf.constant([2.0, 5.0])
    fn = lambda _: (psum(w), pmean(w), pmax(w), all_gather(w), ppermute(w, perm=[(0, 2)]))
    found = _strict(fn)(X)
    _close(found[0], np.tile([6.0, 15.0], [3, 1]))
    _close(found[1], np.tile(w, [3, 1]))
    _close(found[2], np.tile(w, [3, 1]))
    _close(found[3], np.tile(w, [3, 3, 1]))
    _close(found[4], [[0, 0], [0, 0], [2, 5]])
    found = _strict(lambda x: {"n": psum(1), "i": axis_index(), "size": axis_size(), "x": x})(X)
    assert found["n"].numpy().tolist() == [3, 3, 3]
    assert found["i"].numpy().tolist() == [0, 1, 2]
    assert found["size"].numpy().tolist() == [3, 3, 3]
    assert found["i"].dtype == found["size"].dtype == tf.int32


def test_a_sum_is_not_repeated():
    """A value that all examples share is stored once, and may leave so."""
    total = _strict(psum, out_axes=None)
    assert total(X).shape == [2]
    graph = tf.function(total).get_concrete_function(tf.TensorSpec([3, 2])).graph
    assert {"BroadcastTo", "Tile"}.isdisjoint(op.type for op in graph.get_operations())


def test_nests_of_maps():
    x = tf.reshape(tf.range(24.0), [2, 3, 4])

    def inner(row):
        own = psum(row)
        return own, psum(row, "i"), all_gather(row, "i", axis=1), axis_index("i"), axis_size("i")

    both = _strict(lambda m: _strict(inner, axis_name="j")(m), axis_name="i")
    own, other, gathered, index, size = both(x)
    _close(own, np.broadcast_to(x.numpy().sum(1, keepdims=True), [2, 3, 4]))
    _close(other, np.broadcast_to(x.numpy().sum(0, keepdims=True), [2, 3, 4]))
    assert gathered.shape == [2, 3, 4, 2]
    _close(gathered[1, 2], x[:, 2].numpy().T)
    assert index.numpy().tolist() == [[0] * 3, [1] * 3]
    assert size.numpy().tolist() == [[2] * 3] * 2


def test_an_outer_value_in_an_inner_map():
    x = tf.reshape(tf.range(6.0), [2, 3])

    def outer(row):
        inner = _strict(lambda v: v * psum(row, "i") + psum(psum(v, "i"), "j"), axis_name="j")
        return inner(row)

    found = _strict(outer, axis_name="i")(x).numpy()
    column = x.numpy().sum(0)
    expected = [[[v * c + column.sum() for c in column] for v in row] for row in x.numpy()]
    _close(found, expected)


@pytest.mark.parametrize("site", ["eager", "tf.function", "jit_compile"])
def test_a_name_means_the_innermost_axis(site):
    shared = tf.function(lambda v: psum(v, "i"))
    inner = lambda v: (psum(v, "i"), shared(v), gradient_of(lambda: psum(v, "i") * v, v))

    def outer(row):
        return (*vmap(inner, axis_name="i")(row), psum(row, "i"), shared(row), axis_size("i"))

    x = tf.reshape(tf.range(6.0), [2, 3])
    mapped = vmap(outer, axis_name="i", jit_compile=site == "jit_compile")
    made = tf.function(mapped)(x) if site == "tf.function" else mapped(x)
    rows = np.repeat(x.numpy().sum(1, keepdims=True), 3, 1)
    columns = np.tile(x.numpy().sum(0), [2, 1])
    pairwise(_close, made, [rows, rows, 2 * rows, columns, columns, [2, 2]])


def test_gradient_in_a_nest_keeps_its_axis():
    x = tf.reshape(tf.range(6.0), [2, 3])
    inner = lambda v: gradient_of(lambda: psum(v, "i") * v, v)
    found = vmap(vmap(inner, axis_name="j"), axis_name="i")(x)
    _close(found, np.tile(2 * x.numpy().sum(0), [2, 1]))


def test_control_flow_that_all_examples_share():
    def fn(x, flag):
        y = tf.cond(flag, lambda: psum(x), lambda: x)
        z = tf.cond(flag, lambda: tf.cast(axis_index(), tf.float32), lambda: 0.0)
        steps = tf.while_loop(
            lambda v: tf.reduce_sum(psum(v)) < 100.0, lambda v: [v + pmean(v)], [tf.abs(x)]
        )
        return y, z, steps[0]

    mapped = _strict(fn, in_axes=(0, None))
    y, z, steps = mapped(X, tf.constant(True))
    _close(y, np.tile(X.sum(0), [3, 1]))
    _close(z, [0, 1, 2])
    expected = np.abs(X)
    while expected.sum() < 100:
        expected = expected + expected.mean(0)
    _close(steps, expected)
    y, z, _ = mapped(X, tf.constant(False))
    _close(y, X)
    _close(z, [0, 0, 0])


def test_numbers_where_some_examples_are_active():
    def fn(x):
        return tf.cond(x[0] > 2, lambda: tf.math.log(x[0]) + tf.cast(axis_index(), tf.float32),
                       lambda: tf.sqrt(x[0]) * tf.cast(axis_size(), tf.float32))  # fmt: skip

    expected = [3.0, np.log(3.0) + 1, np.log(3.0) + 2]
    _close(_strict(fn)(X), expected)
    _close(_strict(fn, chunk_size=2)(X), expected)


SQUARE = tf.reshape(tf.range(9.0), [3, 3])
BY_NUMBER = {
    "an index": lambda r, i: r[i],
    "an index of others": lambda r, i: SQUARE[i, 0] + r,
    "the next, in int64": lambda r, i: r[tf.cast((i + 1) % 3, tf.int64)],
    "an index from the end": lambda r, i: r[-1 - i],
    "an end": lambda r, i: r[: i + 1],
    "a begin": lambda r, i: r[i:],
    "a sum of the rows before": lambda r, i: tf.reduce_sum(SQUARE[: i + 1, 0]) * r,
    "a slice": lambda r, i: tf.slice(r, [i], [1]),
    "a size": lambda r, i: tf.fill([i], r[0]),
    "a range": lambda r, i: tf.cast(tf.range(i), tf.float32) * r[0],
    "a padding": lambda r, i: tf.pad(r, [[0, i]]),
    "a number of copies": lambda r, i: tf.tile(r[:1], [i + 1]),
    "a shape": lambda r, i: tf.reshape(r[:i], [i, 1]),
    "a place in texts": lambda r, i: tf.strings.split("1 2 3")[i] + tf.strings.as_string(r),
}
WHERE = {
    "eager": lambda fn: _strict(fn),
    "blocks": lambda fn: _strict(fn, chunk_size=2),
    "unknown n": lambda fn: tf.function(
        _strict(fn), autograph=False, input_signature=[tf.TensorSpec([None, 3])]),
    "named": lambda fn: _strict(lambda r: _strict(
        lambda _: fn(r, "outer"), axis_name="inner", out_axes=None)(SQUARE), axis_name="outer"),
}  # fmt: skip


@pytest.mark.parametrize("where", WHERE)
@pytest.mark.parametrize("use", BY_NUMBER)
def test_the_number_of_an_example(use, where):
    """It differs per example, also where a number that is known would shape the result."""
    one = BY_NUMBER[use]
    found = WHERE[where](lambda r, name=None: one(r, axis_index(name)))(SQUARE)
    for k, row in enumerate(found):
        expected = one(SQUARE[k], tf.constant(k))
        assert row.shape == expected.shape
        np.testing.assert_array_equal(row, expected)


@pytest.mark.parametrize("jit", [False, True])
def test_gradients_by_the_number_of_an_example(jit):
    slope = tf_pfor.grad(lambda r: tf.reduce_sum(r[axis_index()] ** 2))
    _close(_strict(slope, jit_compile=jit)(SQUARE), np.diag([0.0, 8.0, 16.0]))


@pytest.mark.parametrize("options", [{}, {"jit_compile": True}])
def test_some_examples_only_is_refused(options):
    x = tf.constant([1.0, 2.0, 3.0])
    branch = lambda v: tf.cond(v > 1.5, lambda: psum(v), lambda: v)
    loop = lambda v: tf.while_loop(lambda u: u < 9.0, lambda u: [u + pmax(tf.tanh(u))], [v])[0]
    for fn in (branch, loop):
        with pytest.raises(NotVectorizableError, match="before the branch or the loop"):
            vmap(fn, **options)(x)


def test_a_nested_branch_for_some_is_refused_for_outer_axes():
    x = tf.ones([2, 3])
    inner = vmap(lambda v: tf.cond(v > 1.0, lambda: psum(tf.math.log(v), "i"), lambda: v))
    with pytest.raises(NotVectorizableError, match="before the branch or the loop"):
        vmap(inner, axis_name="i")(x)


def test_blocks_are_refused():
    for run in (
        lambda: vmap(psum, chunk_size=2)(X),
        lambda: tf_pfor.pfor(lambda i: psum(i), 3, parallel_iterations=2),
    ):
        with pytest.raises(NotVectorizableError, match="in blocks"):
            run()
    _close(vmap(lambda x: x + psum(x), chunk_size=8)(X), X + X.sum(0))  # one block is all


def test_compiled_by_xla():
    fn = lambda x: (psum(x), pmean(x), all_gather(x), ppermute(x, perm=ROLL), axis_index())
    pairwise(_close, vmap(fn, jit_compile=True)(X), vmap(fn)(X))


def test_pfor_and_vectorized_map():
    _close(tf_pfor.pfor(lambda i: psum(i) - i, 4), [6, 5, 4, 3])
    _close(tf_pfor.vectorized_map(lambda x: x - pmean(x), X), X - X.mean(0))


def test_a_name_holds_in_every_map_that_reuses_a_function():
    share = tf.function(lambda x: x / psum(x, "batch") * tf.cast(axis_size("batch"), tf.float32))
    mapped = vmap(share, axis_name="batch")
    for n in (2, 5):
        _close(mapped(tf.ones([n, 3])), np.ones([n, 3]))
    with pytest.raises(tf.errors.InvalidArgumentError, match="outside of the map"):
        share.get_concrete_function(tf.TensorSpec([3]))(tf.ones([3]))


def test_without_a_name_a_reused_function_is_refused():
    total = tf.function(lambda x: psum(x))
    _close(vmap(total)(X), np.tile(X.sum(0), [3, 1]))
    with pytest.raises(NotVectorizableError, match="give the axis a name"):
        vmap(lambda x: total(x) + 1)(X)
    named = tf.function(lambda x: psum(x, "i"))
    vmap(named, axis_name="i")(X)
    with pytest.raises(NotVectorizableError, match="no map around it has that name"):
        vmap(named)(X)


@pytest.mark.parametrize(
    ("run", "error", "words"),
    [
        (lambda: psum(1.0), ArgumentError, "outside of a mapped function"),
        (lambda: tf.function(lambda: psum(1.0))(), ArgumentError, "outside of a mapped function"),
        (lambda: vmap(lambda x: psum(x, "a"), axis_name="b")(X), ArgumentError, "'b'"),
        (lambda: vmap(lambda x: psum(x, "a"))(X), ArgumentError, "none has a name"),
        (lambda: vmap(psum, axis_name="#1"), ArgumentError, "axis_name must be"),
        (lambda: vmap(psum, axis_name=3), ArgumentError, "axis_name must be"),
        (lambda: vmap(lambda x: pmean(x > 0))(X), ArgumentTypeError, "dtype bool"),
        (lambda: vmap(lambda x: psum("a"))(X), ArgumentTypeError, "dtype string"),
        (lambda: vmap(lambda x: psum(object()))(X), ArgumentTypeError, "nest of tensors"),
        (lambda: vmap(lambda x: pmax(tf.complex(x, x)))(X), ArgumentTypeError, "real"),
        (lambda: vmap(lambda x: all_gather(x, axis=3))(X), ArgumentError, "from -2 to 1"),
        (lambda: vmap(lambda x: ppermute(x, perm=[(0, 3)]))(X), NotVectorizableError, "3 entries"),
        (lambda: vmap(lambda x: ppermute(x, perm=[(0, 1), (0, 2)]))(X), ArgumentError, "source"),
        (lambda: vmap(lambda x: ppermute(x, perm=3))(X), ArgumentTypeError, "pairs of ints"),
        (
            lambda: tf_pfor.pfor(lambda j: tf_pfor.for_loop(psum, tf.int32, 3), 2),
            ArgumentError,
            "one iteration after the other",
        ),
    ],
)
def test_errors(run, error, words):
    with pytest.raises(error, match=words):
        run()


@pytest.mark.parametrize(
    ("fn", "end"),
    [(lambda x: ppermute(x, perm=[(0, 9)]), "pass numbers below 3"), (psum, r"\(chunk_size\) out")],
)
def test_advice_is_not_to_move_a_collective(fn, end):
    with pytest.raises(NotVectorizableError, match=f"{end}$") as caught:
        vmap(fn, chunk_size=2 if fn is psum else None)(X)
    assert type(caught.value) is NotVectorizableError


def test_the_loop_as_reference_has_no_collectives():
    with pytest.raises(ArgumentError, match="Use pfor"):
        tf_pfor.for_loop(lambda i: psum(i), tf.int32, 3)


@pytest.mark.parametrize("kind", ["psum", "pmean", "pmax", "pmin"])
def test_reductions_of_rows_whose_length_may_differ(kind):
    """They are right where all rows are equally long, and an error where they are not."""
    reduce = getattr(tf_pfor, kind)
    rows = tf.ragged.constant([[1.0, 4.0], [2.0, 3.0]])
    dense = tf_pfor.vmap(lambda r: reduce(r, "i"), axis_name="i")(rows.to_tensor())
    for function, given in (
        (lambda r: reduce(r, "i"), rows),
        (lambda r: reduce(r[0][: r[1]], "i"), (rows.to_tensor(), tf.constant([2, 2]))),
    ):
        np.testing.assert_array_equal(tf_pfor.vmap(function, axis_name="i")(given), dense)
    with pytest.raises(tf.errors.InvalidArgumentError, match="differ"):
        tf_pfor.vmap(lambda r: reduce(r, "i"), axis_name="i")(tf.ragged.constant([[1.0], []]))
