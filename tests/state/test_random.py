"""Randomness in a vectorized loop: independent rows, the loop's numbers and state."""

import itertools

import numpy as np
import pytest
import tensorflow as tf

import tf_pfor
from tests.cases import grid, refuse
from tests.comparisons import pairwise, strict_map
from tests.state.maps import MAPS
from tf_pfor import NotVectorizableError
from tf_pfor.converters.state import _normal
from tf_pfor.converters.state import _philox as philox
from tf_pfor.core.errors import ArgumentError
from tf_pfor.core.registry import REGISTRY

N = 5
SEEDS = tf.constant(np.random.default_rng(0).integers(-(2**31), 2**31, [N, 2]), tf.int32)


def _same_as_the_loop(fn, rows=SEEDS):
    """Bit for bit."""
    found = tf.nest.flatten(tf_pfor.vectorized_map(fn, rows))
    one = tf.function(fn)
    expected = [tf.nest.flatten(one(r)) for r in tf.unstack(rows)]
    pairwise(np.testing.assert_array_equal, found, zip(*expected))


# -- A seed for each row ---------------------------------------------------------------------------

DRAWS = {
    "binomial": lambda s: tf.random.stateless_binomial([7], s, 9.0, 0.3),
    "categorical": lambda s: tf.random.stateless_categorical([[0.1, 0.9]], 7, s),
    "full int": lambda s: tf.random.stateless_uniform([7], s, None, None, tf.uint64),
    "gamma": lambda s: tf.random.stateless_gamma([7], s, 1.5),
    "int": lambda s: tf.random.stateless_uniform([3, 3], s, -5, 17, tf.int32),
    "large": lambda s: tf.random.stateless_uniform([100], s),
    "normal": lambda s: tf.random.stateless_normal([7], s),
    "parameterized": lambda s: tf.random.stateless_parameterized_truncated_normal(
        [7], s, 0.0, 1.0, -1.0, 2.0
    ),
    "poisson": lambda s: tf.random.stateless_poisson([7], s, 2.0, tf.float32),
    "shuffle": lambda s: tf.random.experimental.stateless_shuffle(tf.range(9), s),
    "split": lambda s: tf.random.split(s, 3),
    "truncated": lambda s: tf.random.stateless_truncated_normal([7], s),
    "uniform": lambda s: tf.random.stateless_uniform([7], s),
    "double": lambda s: tf.random.stateless_uniform([2, 2], s, dtype=tf.float64),
}


@pytest.mark.parametrize("name", sorted(DRAWS))
def test_a_seed_for_each_row(name):
    _same_as_the_loop(DRAWS[name])


def test_a_million_normal_numbers():
    """The logarithm, sine and cosine of the kernel's C library, to the last bit."""
    if not _normal.is_exact():
        pytest.skip("this C library has other last bits: rows run in the kernel")
    key, counter = philox.scramble(tf.constant([[3, 4]]))
    for dtype in (tf.float32, tf.half, tf.bfloat16):
        ours = _normal.drawn(philox.numbers(key, counter, 2**18), dtype, 2**20)[0]
        kernel = tf.raw_ops.StatelessRandomNormalV2(
            shape=[2**20], key=key[0], counter=counter[0], alg=1, dtype=dtype
        )
        np.testing.assert_array_equal(ours, kernel)


def test_normal_numbers_of_another_library_come_from_the_kernel(monkeypatch):
    monkeypatch.setattr(_normal, "is_exact", lambda: False)
    report = tf_pfor.explain(DRAWS["normal"], SEEDS)
    assert report.totals["looped"] == 1
    _same_as_the_loop(DRAWS["normal"])


@pytest.mark.filterwarnings("ignore::tf_pfor.FallbackWarning")
@pytest.mark.parametrize("name", ["normal", "uniform"])
def test_compiled_draws_are_those_of_a_compiled_loop(name):
    """XLA has algorithms of its own."""
    one_by_one = lambda seeds: tf.stack([DRAWS[name](s) for s in tf.unstack(seeds)])
    expected = tf.function(one_by_one, jit_compile=True, autograph=False)(SEEDS)
    np.testing.assert_array_equal(tf_pfor.vmap(DRAWS[name], jit_compile=True)(SEEDS), expected)


def test_fold_in_and_explicit_philox():
    seed = tf.constant([3, 4])
    _same_as_the_loop(
        lambda i: tf.random.stateless_uniform([3], tf.random.fold_in(seed, i), alg="philox"),
        tf.range(N),
    )


@pytest.mark.parametrize(("name", "most"), [("int", 240), ("uniform", 240), ("normal", 360)])
def test_a_draw_is_few_ops(name, most):
    """A new iterator of a tf.data pipeline takes its time for each of them."""
    mapped = tf.function(lambda seeds: tf_pfor.vectorized_map(DRAWS[name], seeds))
    graph = mapped.get_concrete_function(tf.TensorSpec([None, 2], tf.int32)).graph
    assert not [op for op in graph.get_operations() if "MapDefun" in op.type]
    assert len(graph.get_operations()) <= most


def test_an_invariant_seed_is_one_draw():
    found = tf_pfor.vectorized_map(
        lambda x: x + tf.random.stateless_normal([3], [1, 2]), tf.zeros([N])
    )
    assert (found == found[0]).numpy().all()
    np.testing.assert_array_equal(found[0], tf.random.stateless_normal([3], [1, 2]))


def test_an_unknown_number_of_seeds():
    spec = tf.TensorSpec([None, 2], tf.int32)
    draw = lambda s: strict_map(DRAWS["uniform"], s)
    draw = tf.function(draw, input_signature=[spec], autograph=False)
    np.testing.assert_array_equal(draw(SEEDS)[1], DRAWS["uniform"](SEEDS[1]))
    assert draw(SEEDS[:0]).shape == (0, 7)


# -- Generators ------------------------------------------------------------------------------------


OF_GENERATORS = {
    "all kinds": lambda g, _: (
        g.uniform([3]), g.normal([5]), g.uniform([2, 2], 0, 10, tf.int32), g.uniform_full_int([3]),
        g.truncated_normal([3])),
    "binomial": lambda g, _: g.binomial([3], 5.0, 0.5),
    "binomial, several": lambda g, _: (g.binomial([], 5.0, 0.5), g.binomial([2], 5.0, 0.5)),
    "binomial, with others": lambda g, _: (g.normal([]), g.binomial([], 5.0, 0.5)),
    "nothing read": lambda g, x: (g.normal([4]), x)[1],
    "one": lambda g, _: g.normal([3, 2]),
    "seeds": lambda g, _: tf.random.stateless_normal([2], g.make_seeds(1)[:, 0]),
    "skips": lambda g, _: (g.skip(3), g.uniform([2]))[1],
}  # fmt: skip


@pytest.mark.filterwarnings("ignore::tf_pfor.FallbackWarning")
@grid(alg=["philox", "state that carries"], name=OF_GENERATORS)
def test_a_generator_draws_what_the_loop_draws(name, alg):
    """The same numbers, and the same state afterwards."""
    body = OF_GENERATORS[name]

    def make():
        if alg == "philox":
            return tf.random.Generator.from_seed(5)
        return tf.random.Generator.from_state([2**63 - 700, 7, 9], alg="philox")

    a, b = make(), make()
    rows = tf.range(4)
    found = tf.nest.flatten(tf_pfor.vectorized_map(lambda x: body(a, x), rows))
    expected = [tf.nest.flatten(body(b, x)) for x in rows]
    pairwise(np.testing.assert_array_equal, found, zip(*expected))
    np.testing.assert_array_equal(a.state, b.state)


def test_a_generator_in_a_branch_draws_for_the_active_rows():
    a, b = tf.random.Generator.from_seed(5), tf.random.Generator.from_seed(5)

    def body(g, x):
        y = 0.0
        if x % 2 == 0:
            y = g.normal([])
        return y

    found = tf_pfor.vectorized_map(lambda x: body(a, x), tf.range(6))
    expected = np.zeros([6], np.float32)
    expected[::2] = [b.normal([]).numpy() for _ in range(3)]
    np.testing.assert_array_equal(found, expected)
    np.testing.assert_array_equal(a.state, b.state)


def test_a_draw_whose_size_depends_on_a_draw_is_refused():
    g = tf.random.Generator.from_seed(5)
    body = lambda x: tf.reduce_sum(g.normal([g.uniform([], 1, 5, tf.int32)])) + x
    refuse(body, tf.zeros([3]), fallback="loop", match="drawn before")


@pytest.mark.parametrize("move", [lambda v: v.assign_add(1), lambda v: v.assign(v + 1)])
def test_a_counter_as_seed_moves_on_once(move):
    count = tf.Variable(0)

    def body(x):
        move(count)
        return x + tf.random.stateless_normal([], tf.stack([count, 0])), count.read_value()

    found, counts = tf_pfor.vectorized_map(body, tf.zeros([3]), randomness="same")
    assert len({*found.numpy().tolist()}) == 1
    assert (counts.numpy().tolist(), int(count)) == ([1, 1, 1], 1)


def test_state_that_is_drawn_from_and_read():
    g, h = tf.random.Generator.from_seed(5), tf.random.Generator.from_seed(5)
    body = lambda x, g: x + g.normal([]) + tf.cast(g.state[0], tf.float32)
    rows = tf.zeros([3])
    with pytest.warns(tf_pfor.FallbackWarning, match="a row reads it"):
        found = tf_pfor.vectorized_map(lambda x: body(x, g), rows)
    np.testing.assert_array_equal(found, [body(x, h) for x in rows])


# -- Stateful randomness ---------------------------------------------------------------------------


def test_rows_are_independent():
    found = tf_pfor.vectorized_map(lambda x: x + tf.random.normal([100]), tf.zeros([N]))
    correlation = np.corrcoef(found)
    assert np.abs(correlation - np.eye(N)).max() < 0.6


each_map = pytest.mark.parametrize("name", ["pfor", "vectorized_map", "vmap"])


@each_map
def test_randomness_same(name):
    found = MAPS[name](lambda x: x + tf.random.normal([3]), tf.zeros([N]), randomness="same")
    assert (found == found[0]).numpy().all()
    with pytest.raises(NotVectorizableError, match="'same'"):
        MAPS[name](lambda p: tf.random.categorical(p, 3), tf.zeros([N, 1, 2]), randomness="same")


@each_map
def test_randomness_same_in_functions_and_branches(name):
    draw = tf.function(lambda: tf.random.normal([3]))

    def body(x):
        y = draw()
        if tf.size(y) > 2:
            y += tf.random.normal([3])
        return x + y

    found = MAPS[name](body, tf.zeros([N]), randomness="same")
    assert (found == found[0]).numpy().all()


@each_map
def test_randomness_error(name):
    with pytest.raises(NotVectorizableError, match="randomness is 'error'"):
        MAPS[name](lambda x: x + tf.random.normal([3]), tf.zeros([N]), randomness="error")


@each_map
def test_options_are_checked(name):
    with pytest.raises(ArgumentError, match="randomness must be"):
        MAPS[name](lambda x: x, tf.zeros([N]), randomness="some")
    with pytest.raises(ArgumentError, match="fallback must be"):
        MAPS[name](lambda x: x, tf.zeros([N]), fallback="some")


@each_map
@pytest.mark.filterwarnings("ignore::tf_pfor.FallbackWarning")
def test_fallback_of_some_op_types(name):
    with REGISTRY.temporary():
        REGISTRY._rules = {k: v for k, v in REGISTRY._rules.items() if k not in ("Erf", "Sinh")}
        rows = tf.range(float(N))
        found = MAPS[name](lambda x: tf.sinh(x) + 1.0, rows, fallback={"Sinh"})
        np.testing.assert_allclose(found, tf.sinh(rows) + 1.0, rtol=1e-6)
        with pytest.raises(NotVectorizableError, match="Erf.*the fallback loop is off"):
            MAPS[name](lambda x: tf.sinh(x) + tf.math.erf(x), rows, fallback={"Sinh"})


def test_the_two_ways_to_forbid_loops_agree():
    with pytest.raises(ArgumentError, match="Leave one of them out"):
        tf_pfor.vectorized_map(tf.abs, tf.zeros([N]), False, fallback="loop")
    tf_pfor.vectorized_map(tf.abs, tf.zeros([N]), False, fallback="error")


def test_each_row_is_shuffled_in_an_order_of_its_own():
    """All orders of three come up, as often as each other, also where all rows hold the same."""
    same = tf_pfor.vectorized_map(lambda _: tf.random.shuffle([0, 1, 2]), tf.zeros([600]))
    own = tf_pfor.vectorized_map(tf.random.shuffle, tf.tile([[0, 1, 2]], [600, 1]))
    for found in (same, own):
        orders, counts = np.unique(found, axis=0, return_counts=True)
        assert orders.tolist() == sorted(map(list, itertools.permutations(range(3))))
        assert counts.min() > 50  # 100 are expected, with a deviation of 9


# -- Functions that are compiled by themselves -----------------------------------------------------


@tf.function(jit_compile=True)
def _compiled_noise(seed):
    integers = tf.random.stateless_uniform([2], seed, 0, 100, tf.int64)
    return integers, tf.random.stateless_normal([], seed)


COMPILED = {
    "rows": _compiled_noise,
    "branch": lambda s: tf.cond(s[0] > 0, lambda: _compiled_noise(s)[1] * 2.0, lambda: 0.0),
    "loop": lambda s: tf.while_loop(
        lambda t, _: t < 2, lambda t, a: (t + 1, a + _compiled_noise(s + t)[1]), (0, 0.0)
    )[1],
}


@pytest.mark.parametrize("name", COMPILED)
def test_compiled_functions_draw_the_numbers_of_xla(name):
    """The body drew the numbers of TensorFlow's kernels: XLA draws others, in a loop too."""
    with pytest.warns(tf_pfor.FallbackWarning, match="random numbers, of which XLA has others"):
        _same_as_the_loop(COMPILED[name])


def test_a_compiled_map_of_compiled_functions():
    found = tf_pfor.vmap(_compiled_noise, jit_compile=True)(SEEDS)
    pairwise(np.testing.assert_array_equal, found, zip(*map(_compiled_noise, SEEDS)))
