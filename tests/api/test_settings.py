"""``settings`` and ``set_settings``: options for all calls that do not say others."""

import contextlib
import threading
import warnings

import numpy as np
import pytest
import tensorflow as tf

import tf_pfor
from tests.cases import errors
from tests.comparisons import in_threads
from tests.fallback.test_fallback import UNREGISTERED, unregistered
from tf_pfor.core import settings as core_settings


@pytest.fixture
def program():
    """The program's settings, put back."""
    before = core_settings.current()
    yield
    core_settings.change_program({f: getattr(before, f) for f in before.__dataclass_fields__})


def draws_are_equal(draw):
    found = draw(tf.zeros([4])).numpy()
    return bool(np.all(found == found[0]))


def maps():
    body = lambda x: x + tf.random.normal([])
    return {
        "vmap": tf_pfor.vmap(body),
        "vectorized_map": lambda x: tf_pfor.vectorized_map(body, x),
        "pfor": lambda x: tf_pfor.pfor(lambda i: body(x[i]), 4),
        "vectorize": tf_pfor.vectorize(body),
        "vmap, compiled": tf_pfor.vmap(lambda x: x + tf.random.normal([]), jit_compile=True),
    }


@pytest.mark.parametrize("name", maps())
def test_a_made_function_follows_what_holds_when_it_is_called(name):
    draw = maps()[name]
    for randomness in ("different", "same", "different"):
        with tf_pfor.settings(randomness=randomness):
            assert draws_are_equal(draw) == (randomness == "same")
    assert not draws_are_equal(draw)


def test_what_a_call_says_wins():
    draw = tf_pfor.vmap(lambda x: x + tf.random.normal([]), randomness="different")
    with tf_pfor.settings(randomness="same"):
        assert not draws_are_equal(draw)


def test_blocks_nest_and_are_left_by_errors():
    inside = lambda: core_settings.current().fallback
    with tf_pfor.settings(fallback="error"):
        with tf_pfor.settings(warn=False) as now:
            assert (now.fallback, now.warn) == ("error", False)
        with contextlib.suppress(ZeroDivisionError), tf_pfor.settings(fallback={"Betainc"}):
            assert inside() == {"Betainc"}
            raise ZeroDivisionError
        assert (inside(), core_settings.current().warn) == ("error", True)
    assert inside() == "loop"


@unregistered()
@pytest.mark.filterwarnings("ignore::tf_pfor.FallbackWarning")
def test_fallback_of_all_functions():
    x = tf.ones([3, 2])
    mapped = tf_pfor.vmap(UNREGISTERED)
    calls = {
        "vmap": lambda: mapped(x),
        "vectorized_map": lambda: tf_pfor.vectorized_map(UNREGISTERED, x),
        "pfor": lambda: tf_pfor.pfor(lambda i: UNREGISTERED(x[i]), 3),
        "vectorize": lambda: tf_pfor.vectorize(UNREGISTERED, "(n)->(n)")(x),
        "data": lambda: [
            *tf.data.Dataset.from_tensors(x).map(tf_pfor.data.vectorize(UNREGISTERED))
        ],
        "in a tf.function": lambda: tf.function(lambda: mapped(x))(),
    }
    for call in calls.values():
        with tf_pfor.settings(fallback="error"), pytest.raises(tf_pfor.NotVectorizableError):
            call()
        with tf_pfor.settings(fallback={"Betainc"}):
            call()
        call()
    with tf_pfor.settings(fallback="error"):
        assert tf_pfor.explain(UNREGISTERED, x).totals["rejected"] == 1
        tf_pfor.vmap(UNREGISTERED, fallback="loop")(x)
        with pytest.raises(tf_pfor.NotVectorizableError):
            tf_pfor.check(UNREGISTERED, x)
    with tf_pfor.settings(fallback="loop"), pytest.raises(tf_pfor.NotVectorizableError):
        tf_pfor.vectorized_map(UNREGISTERED, x, fallback_to_while_loop=False)


@unregistered()
def test_warn():
    x = tf.ones([5, 2])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with tf_pfor.settings(warn=False):
            tf_pfor.vmap(UNREGISTERED)(x)
            tf_pfor.vectorized_map(UNREGISTERED, x)
        tf_pfor.vmap(UNREGISTERED, warn=False)(x)
        tf_pfor.pfor(lambda i: UNREGISTERED(x[i]), 5, warn=False)
        with tf_pfor.settings(warn=False), pytest.raises(tf_pfor.FallbackWarning):
            tf_pfor.vmap(UNREGISTERED, warn=True)(x)
    with pytest.warns(tf_pfor.FallbackWarning, match="Betainc"):
        tf_pfor.vmap(UNREGISTERED)(x)


def test_out_shapes():
    rows = tf_pfor.vmap(lambda k: tf.range(k))
    assert isinstance(rows(tf.constant([1, 3])), tf.RaggedTensor)
    with tf_pfor.settings(out_shapes="padded"):
        assert rows(tf.constant([1, 3])).numpy().tolist() == [[0, 0, 0], [0, 1, 2]]
    with tf_pfor.settings(out_shapes="dense"), pytest.raises(tf.errors.InvalidArgumentError):
        rows(tf.constant([1, 3]))


@unregistered()
@pytest.mark.filterwarnings("ignore::tf_pfor.FallbackWarning")
def test_derivatives_follow_and_keep_their_form():
    w = tf.Variable([1.0, 2.0])

    def of_loops():
        loss = lambda x: tf.reduce_sum(UNREGISTERED(x)) + tf.reduce_sum(w * x)
        return tf_pfor.per_example_gradients(loss, w, tf.ones([4, 2]))[0]

    with tf_pfor.settings(fallback="error"), pytest.raises(tf_pfor.NotVectorizableError):
        of_loops()
    assert of_loops().numpy().tolist() == [[1.0, 1.0]] * 4
    jacobian = tf_pfor.jacrev(lambda x: x * x + tf.random.normal([2]))
    for randomness in ("different", "same", "error"):
        with tf_pfor.settings(randomness=randomness):  # nothing is drawn for each row
            assert jacobian(tf.constant([1.0, 2.0])).numpy().tolist() == [[2.0, 0.0], [0.0, 4.0]]
    rows = tf.ragged.constant([[1.0, 2.0], [3.0]])
    for out_shapes in ("ragged", "padded", "dense"):
        with tf_pfor.settings(out_shapes=out_shapes):
            found, _ = tf_pfor.per_example_gradients(lambda x: tf.reduce_sum(x) * w[0], w, rows)
        assert found.numpy().tolist() == [[3.0, 0.0], [3.0, 0.0]]


def test_cache_size():
    call = lambda k: tf_pfor.vectorized_map(lambda x: x + k, tf.zeros([2]))
    tf_pfor.clear_cache()
    with tf_pfor.settings(cache_size=2):
        for k in range(4):
            call(k)
        assert (tf_pfor.cache_info().size, tf_pfor.cache_info().max_size) == (2, 2)
    with tf_pfor.settings(cache_size=0):
        assert call(3).numpy().tolist() == [3.0, 3.0]
        assert tf_pfor.cache_info().uncacheable == 1
    assert tf_pfor.cache_info().hits == 0
    call(3)
    assert tf_pfor.cache_info().hits == 1


def test_the_whole_program_and_one_thread(program):
    seen = {}

    def look(name):
        seen[name] = core_settings.current().randomness

    in_thread = lambda name: in_threads(look, [name])
    with tf_pfor.settings(randomness="same"):
        in_thread("beside a block")
        look("in a block")
    assert tf_pfor.set_settings(randomness="error", warn=False).randomness == "error"
    in_thread("after set_settings")
    with tf_pfor.settings(randomness="same"):
        look("a block over set_settings")
        assert not core_settings.current().warn
    assert seen == {
        "beside a block": "different",
        "in a block": "same",
        "after set_settings": "error",
        "a block over set_settings": "same",
    }


def test_threads_have_their_own():
    both = threading.Barrier(2)
    draw = tf_pfor.vmap(lambda x: x + tf.random.normal([]))

    def run(randomness):
        with tf_pfor.settings(randomness=randomness):
            for _ in range(20):
                both.wait(300)
                assert draws_are_equal(draw) == (randomness == "same")

    in_threads(run, ("same", "different"))


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"fallback": "no"}, "fallback must be"),
        ({"fallback": ["NoSuchOp"]}, "NoSuchOp"),
        ({"randomness": "none"}, "randomness must be"),
        ({"out_shapes": "any"}, "out_shapes must be"),
        ({"cache_size": -1}, "cache_size must be"),
        ({"cache_size": True}, "cache_size must be"),
    ],
)
def test_wrong_options(options, text):
    for function in (tf_pfor.settings, tf_pfor.set_settings):
        with pytest.raises(tf_pfor.ArgumentError, match=text):
            function(**options)
    with pytest.raises(TypeError):
        tf_pfor.settings("error")


NO_BOOL = (tf_pfor.ArgumentTypeError, "warn must be a bool, found")
test_bools_are_bools = errors(
    (lambda: tf_pfor.settings(warn="no"), *NO_BOOL),
    (lambda: tf_pfor.set_settings(warn=0), *NO_BOOL),
    (lambda: tf_pfor.vmap(tf.sin, warn="no"), *NO_BOOL),
    (lambda: tf_pfor.vectorized_map(tf.sin, tf.ones([2]), warn="no"), *NO_BOOL),
)


def test_options_are_keywords():
    for function in (tf_pfor.jacrev, tf_pfor.jacfwd, tf_pfor.hessian, tf_pfor.laplacian):
        with pytest.raises(TypeError):
            function(tf.exp, 0, False, True)  # holomorphic in JAX
