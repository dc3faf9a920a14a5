"""Bad input: one clear error each, tested by its text, before anything ran."""

import dataclasses
import os
import re
import traceback
import warnings

import keras
import numpy as np
import pytest
import tensorflow as tf

import tf_pfor
from tests.cases import grid
from tests.comparisons import strict_map
from tests.devices import of_cpus
from tf_pfor.core.errors import UnsupportedStateError

X = np.ones([3, 2], np.float32)


class Untraced:
    """A body that must not be traced."""

    def __call__(self, *args):
        raise AssertionError("the body was traced before the arguments were checked")


# Ways to run a function: the error must be the same.
CALLS = {
    "eager": lambda fn: fn(),
    "function": lambda fn: tf.function(fn)(),
    "function without autograph": lambda fn: tf.function(fn, autograph=False)(),
}


@pytest.fixture(params=CALLS)
def call(request):
    return CALLS[request.param]


def check(call, fn, error, *texts):
    """``fn`` raises exactly this type, and its message holds all texts."""
    with pytest.raises(tf_pfor.PforError) as caught:
        call(fn)
    assert type(caught.value) is error, type(caught.value)
    for text in texts:
        assert text in str(caught.value), str(caught.value)
    shown = "".join(traceback.format_exception_only(caught.value))
    assert "in user code" not in shown, shown


def table_of_errors(rows, error=None):
    """A test of calls that raise, in all ways: a row has the call, its error and what that says.

    Where ``error`` is given, it is the one of all rows, which do not have it.
    """

    @grid(name=rows, how=CALLS)
    def test(name, how):
        run, *texts = rows[name]
        check(CALLS[how], run, *([error] if error else []), *texts)

    return test


@dataclasses.dataclass
class Unknown:
    tag: object


mapped = lambda *elems: lambda: tf_pfor.vectorized_map(Untraced(), *elems)
returns = lambda value: lambda: tf_pfor.pfor(lambda i: (i, value), 3)
TENSORS = ("Expected: tensors", "Return the tensors")
looped = lambda body, types: lambda: tf_pfor.for_loop(body, types, 3)


def a_list():
    return tf.raw_ops.EmptyTensorList(
        element_shape=[2], max_num_elements=3, element_dtype=tf.float32
    )


WRONG, NO_TYPE = tf_pfor.ArgumentError, tf_pfor.ArgumentTypeError
# By name: the call, its error, and what the message says.
ERRORS = {
    "leading sizes differ": (
        mapped({"a": tf.zeros([3, 2]), "b": tf.zeros([4])}), WRONG,
        "differ in the size of axis 0", "elems['a']: (3, 2)", "elems['b']: (4,)"),
    "zero and another size differ": (
        mapped((tf.zeros([0]), tf.zeros([2]))), WRONG, "elems[0]: (0,)", "elems[1]: (2,)"),
    "a scalar element": (
        mapped((X, 1.0)), WRONG, "elems[1] is a scalar", "[n, ...]", "Close over it"),
    "two arguments": (
        mapped(X, X), NO_TYPE, "fallback_to_while_loop must be a bool", "vmap(fn)(x, y)"),
    "vmap of a tensor": (
        lambda: tf_pfor.vmap(Untraced(), X), WRONG, "in_axes", "a tensor of shape", "vmap(fn)(x)"),
    "grad of a tensor": (
        lambda: tf_pfor.grad(Untraced(), X), WRONG, "argnums", "a tensor of shape", "grad(fn)(x)"),
    "axes of a dict": (
        lambda: tf_pfor.vmap(Untraced(), in_axes={"a": 0})({"a": X}), WRONG,
        "in_axes is {'a': 0}", "one entry for each argument"),
    "jit_compile of a text": (
        lambda: tf_pfor.vmap(Untraced(), jit_compile="yes"), NO_TYPE, "jit_compile must be a bool"),
    "map for apply": (
        lambda: tf_pfor.data.map_and_batch(Untraced(), 2)(X, X), NO_TYPE, "ds.apply(...)"),
    "a model for its folder": (
        lambda: tf_pfor.saved_model.batch(tf.Module(), "a"), NO_TYPE, "in_dir", "Module"),
    "an example of a number": (
        lambda: tf_pfor.per_example_gradients(Untraced(), tf.Variable(1.0), [1.0]), WRONG,
        "batch[0][0] is a scalar", "Close over it in loss_fn"),
    "a spec of ragged rows": (
        lambda: tf_pfor.explain(Untraced(), tf.RaggedTensorSpec([None, None])), NO_TYPE,
        "RaggedTensorSpec", "a RaggedTensor of two rows"),
    "an element that is no tensor": (
        mapped((X, object())), NO_TYPE, "elems[1] is a object", "expected a tensor"),
    "for_loop, structures differ": (
        looped(lambda i: (i, i), tf.int32), WRONG, "differ in structure",
        "one dtype for each result", "Found: int32 and ('int32', 'int32')"),
    "for_loop, another nest": (
        looped(lambda i: {"a": i}, [tf.int32]), WRONG, "loop_fn_dtypes", "same nest"),
    "for_loop, dtypes differ": (
        looped(lambda i: i, tf.float32), WRONG, "loop_fn_dtypes", "float32", "int32"),
    "for_loop, None is returned": (looped(lambda i: None, tf.int32), WRONG, "loop_fn_dtypes"),
    "for_loop, None is expected": (looped(lambda i: i, None), WRONG, "loop_fn_dtypes"),
    "a dataclass with an object": (
        lambda: tf_pfor.vectorized_map(lambda x: Unknown(object()), X), NO_TYPE, "type object"),
    "a dtype that cannot be stacked": (
        lambda: tf_pfor.pfor(lambda i: a_list(), 2), NO_TYPE, "variant", "Return"),
    "a body that returns an object": (
        returns(object()), NO_TYPE, "returned an object of type object", *TENSORS),
    "a body that returns a function": (
        returns(print), NO_TYPE, "an object of type builtin_function_or_method", *TENSORS),
    "a body that returns a set": (
        returns({1, 2}), NO_TYPE, "returned an object of type set", *TENSORS),
}  # fmt: skip


test_table_of_errors = table_of_errors(ERRORS)

# -- vectorized_map --------------------------------------------------------------------------------

# By name: the map, and the name of its argument in messages.
WAYS = {
    "vectorized_map": (tf_pfor.vectorized_map, "elems"),
    "vmap": (lambda fn, x: tf_pfor.vmap(fn)(x), "args[0]"),
    "explain": (tf_pfor.explain, "elems"),
}
NO_ROWS = {
    "range": (range(3), "is a range", "pfor(fn, n)"),
    "dataset": (tf.data.Dataset.range(3), "is a tf.data.Dataset", "dataset.batch(n).map("),
    "generator": ((x for x in [X]), "is a generator", "stack what it gives"),
    "zip": (zip(X, X), "is a zip", "stack what it gives"),
    "set": ({1.0, 2.0}, "is a set, which has no order", "stack what it gives"),
}


@grid(way=WAYS, kind=NO_ROWS)
def test_what_is_iterated_in_python_has_no_rows(call, kind, way):
    given, *texts = NO_ROWS[kind]
    run, name = WAYS[way]
    check(call, lambda: run(Untraced(), {"x": given}), NO_TYPE, *texts, f"{name}['x']")


def test_a_range_that_all_examples_share():
    made = tf_pfor.vmap(lambda x, steps: x * len(steps), in_axes=(0, None))(X, range(3))
    np.testing.assert_allclose(made, 3 * X)


@pytest.mark.parametrize("elems", [(), [], {}, {"a": []}, None, (None, None)], ids=str)
def test_no_elements(call, elems):
    check(call, mapped(elems), WRONG, "elems holds no tensor", "use pfor")


@pytest.mark.parametrize("fn", [None, 3, "tanh", X], ids=["None", "int", "str", "array"])
def test_not_callable(call, fn):
    for run in (
        lambda: tf_pfor.vectorized_map(fn, X),
        lambda: tf_pfor.pfor(fn, 3),
        lambda: tf_pfor.for_loop(fn, tf.int32, 3),
    ):
        check(call, run, tf_pfor.ArgumentTypeError, "must be a function", type(fn).__name__)


# -- pfor and for_loop -----------------------------------------------------------------------------

LOOPS = [
    lambda iters, **k: tf_pfor.pfor(Untraced(), iters, **k),
    lambda iters, **k: tf_pfor.for_loop(Untraced(), tf.int32, iters, **k),
]


@pytest.mark.parametrize("loop", LOOPS, ids=["pfor", "for_loop"])
@pytest.mark.parametrize("iters", [-1, np.int64(-3), tf.constant(-2)], ids=repr)
def test_negative_iters(call, loop, iters):
    number = str(int(tf.get_static_value(iters) if tf.is_tensor(iters) else iters))
    check(call, lambda: loop(iters), tf_pfor.ArgumentError, "must not be negative", number)


@pytest.mark.parametrize("loop", LOOPS, ids=["pfor", "for_loop"])
@pytest.mark.parametrize(("iters", "text"), [
    (2.0, "2.0"),
    (True, "True"),
    (None, "None"),
    ("3", "string"),
    (tf.constant(2.0), "dtype float32"),
    (tf.constant([2, 3]), "shape (2,)"),
    (np.float32(2), "float32"),
], ids=lambda x: x if isinstance(x, str) else "")  # fmt: skip
def test_iters_that_are_no_integer(call, loop, iters, text):
    wanted = "iters must be an integer or a scalar integer tensor"
    check(call, lambda: loop(iters), NO_TYPE, wanted, text)


def test_negative_iters_at_run_time():
    run = tf.function(
        lambda n: tf_pfor.pfor(lambda i: i, n), input_signature=[tf.TensorSpec([], tf.int32)]
    )
    assert run(tf.constant(0)).shape == [0]
    with pytest.raises(tf.errors.InvalidArgumentError):
        run(tf.constant(-1))


@pytest.mark.parametrize("loop", LOOPS, ids=["pfor", "for_loop"])
@pytest.mark.parametrize("block", [0, -1, 1.5, "2", True], ids=repr)
def test_bad_parallel_iterations(call, loop, block):
    wanted = "parallel_iterations must be a positive int or None"
    check(call, lambda: loop(3, parallel_iterations=block), WRONG, wanted, repr(block))


# -- Ops without a converter -----------------------------------------------------------------------


_no_converter = lambda x: tf.raw_ops.UnicodeScript(input=tf.cast(x, tf.int32))


def test_unsupported_op_with_the_fallback_off(call):
    """All of them at once, with type, line and reason."""

    def body(x):
        first = _no_converter(x)
        return first, tf.raw_ops.UnicodeScript(input=first)

    with tf_pfor.registry.REGISTRY.temporary():
        _forget("UnicodeScript")
        check(
            call,
            lambda: tf_pfor.vectorized_map(body, X, fallback_to_while_loop=False),
            tf_pfor.NotVectorizableError,
            "UnicodeScript",
            "test_errors.py:",
            "no converter is registered for it",
            "the fallback loop is off",
            "fallback_to_while_loop=True",
            "RegisterPFor",
        )


def test_failures_are_listed():
    body = lambda x: (_no_converter(x), _no_converter(x + 1))
    with tf_pfor.registry.REGISTRY.temporary():
        _forget("UnicodeScript")
        with pytest.raises(tf_pfor.NotVectorizableError) as caught:
            tf_pfor.vectorized_map(body, X, fallback_to_while_loop=False)
    assert len(caught.value.failures) == 2
    assert all("UnicodeScript" in line for line in caught.value.failures)


def _forget(op_type):
    @tf_pfor.RegisterPFor(op_type, override=True)
    def refuse(call, *_):
        raise tf_pfor.CannotVectorize("no converter is registered for it")


def test_a_converter_that_breaks_its_promise_is_named(call):
    with tf_pfor.registry.REGISTRY.temporary():

        @tf_pfor.RegisterPFor("Tanh", override=True)
        def wrong(call, x):
            return [x.tensor, x.tensor]

        check(
            call,
            lambda: tf_pfor.vectorized_map(tf.tanh, X),
            tf_pfor.ConversionError,
            "Tanh",
            "test_errors.py",
            "returned 2, expected 1 results",
        )


def test_an_error_in_the_body_is_the_users_own():
    def body(x):
        raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        tf_pfor.vectorized_map(body, X)


def test_an_error_in_a_map_fn_leaves_nothing_behind():
    """TensorFlow's map_fn leaves a caching device, with which no recompute_grad works."""

    def wrong(x):
        raise ValueError("mine")

    with pytest.raises(ValueError, match="mine"):
        tf_pfor.vectorized_map(lambda row: tf.map_fn(wrong, row), tf.zeros([2, 3]))
    assert tf.compat.v1.get_variable_scope().caching_device is None
    np.testing.assert_equal(tf.recompute_grad(tf.square)(tf.constant(3.0)).numpy(), 9.0)


@pytest.mark.parametrize("passed", ["mapped", "captured", "in two maps"])
def test_strings_under_jit_compile(passed):
    """XLA has none, and ends the process where a loop over rows gets some."""
    body = lambda x, text: x * tf.cast(tf.size(tf.strings.split(text)), tf.float32)

    def run(x, words):
        if passed == "mapped":
            return tf_pfor.vmap(body)(x, words)
        if passed == "captured":
            return tf_pfor.vmap(lambda x: body(x, words[0]))(x)
        return tf_pfor.vmap(tf_pfor.vmap(body, in_axes=(0, None)), in_axes=(None, 0))(x, words)

    error = tf_pfor.ArgumentTypeError
    with pytest.raises(error, match=r"reads .*strings of shape .*XLA compiles numbers only"):
        tf.function(run, jit_compile=True)(X[:2, 0], tf.constant(["a b", "c"]))


@pytest.mark.parametrize("call", [tf.py_function, tf.numpy_function])
def test_python_under_jit_compile(call):
    one = lambda x: call(lambda a: a * 2.0, [x], tf.float32)
    with pytest.raises(
        tf_pfor.NotVectorizableError, match="it calls Python, and under jit_compile"
    ):
        tf.function(lambda: tf_pfor.vectorized_map(one, X), jit_compile=True)()


_TABLE = tf.lookup.StaticHashTable(
    tf.lookup.KeyValueTensorInitializer(tf.range(5), tf.range(5) * 2), default_value=-1
)
_NOT_COMPILED = {
    "a table": lambda k, on: _TABLE.lookup(k),
    "a table, one key": lambda k, on: k + _TABLE.lookup(tf.constant(1)),
    "a table in a branch": lambda k, on: _TABLE.lookup(k) if on else k,
    "numpy in a branch": lambda k, on: tf.numpy_function(lambda a: a, [k], tf.int32) if on else k,
    "a range": lambda k, on: tf.reduce_sum(tf.range(0, 4, k)) if on else k,
    "segments": lambda k, on: tf.reduce_sum(
        tf.math.segment_sum(tf.range(2), tf.stack([0, k]))
    ),
    "segments in a branch": lambda k, on: (
        tf.reduce_sum(tf.math.segment_sum(tf.range(2), tf.stack([0, k]))) if on else k
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", _NOT_COMPILED)
def test_table_of_ops_that_xla_cannot_compile(name):
    """One error before anything runs, without a warning of a loop; it has the op and the line."""
    run = tf_pfor.vmap(_NOT_COMPILED[name], jit_compile=True)
    match = r"(under jit_compile, (XLA has no kernel|the size)|it calls Python).*test_errors.py:"
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(tf_pfor.NotVectorizableError, match=match) as caught:
            run(tf.constant([1, 2, 3]), tf.constant([True, False, True]))
    assert str(caught.value).count("under jit_compile, ") <= 1


def test_the_traceback_is_short():
    """Between the user's call and the error stand our frames only, few of them."""
    with pytest.raises(tf_pfor.ArgumentError) as caught:
        tf_pfor.vectorized_map(lambda x: x, (X, 3.0))
    frames = traceback.extract_tb(caught.value.__traceback__)
    package = os.path.dirname(tf_pfor.__file__) + os.sep
    ours = [f for f in frames if f.filename.startswith(package)]
    assert len(ours) <= 5
    assert caught.value.__cause__ is None


# -- Registration ----------------------------------------------------------------------------------


def test_duplicates_name_both_places():
    with tf_pfor.registry.REGISTRY.temporary():

        @tf_pfor.RegisterPFor("Cross", stacked=("a", "b"), override=True)
        def first(call, a, b):
            return a.tensor

        with pytest.raises(tf_pfor.RegistrationError) as caught:

            @tf_pfor.RegisterPFor("Cross", stacked=("a", "b"))
            def second(call, a, b):
                return b.tensor

    assert str(caught.value).count("test_errors.py:") == 2
    assert "override=True" in str(caught.value)


# -- What bodies do: errors name the user's own lines, and none of the package's ------------------


@pytest.mark.parametrize("kind", ["layer", "model", "variable"])
def test_what_makes_variables_in_the_body(call, kind):
    def body(x):
        if kind == "variable":
            return tf.Variable([1.0, 2.0]) * x
        dense = keras.layers.Dense(2)
        return (keras.Sequential([dense]) if kind == "model" else dense)(x[None])[0]

    name = "Variable" if kind == "variable" else "kernel"
    check(
        call,
        lambda: tf_pfor.vectorized_map(body, X),
        UnsupportedStateError,
        f"The body makes the variable '{name}'",
        f"{__file__}:{body.__code__.co_firstlineno + (2 if kind == 'variable' else 4)}",
        "outside of the function that is mapped",
    )


def _lines_of(error):
    """The lines of this file that an error of TensorFlow names, and all files that it names."""
    found = re.findall(r'File "(.+)", line (\d+), in', str(error.value))
    return [int(k) for file, k in found if file == __file__], {file for file, _ in found}


@pytest.mark.parametrize("where", ["eager", "function", "unknown n"])
@pytest.mark.parametrize("way", [tf_pfor.vectorized_map, lambda fn, x: tf_pfor.vmap(fn)(x)])
@of_cpus
def test_an_error_when_it_runs_names_the_users_line(where, way):
    def body(x):
        y = tf.exp(x)
        return tf.gather(y, tf.cast(x[0] * 0, tf.int32) + 7)  # the line

    def run(x):
        return way(body, x)

    signature = [tf.TensorSpec([None, 2])] if where == "unknown n" else None
    fn = run if where == "eager" else tf.function(run, input_signature=signature)
    with pytest.raises(tf.errors.InvalidArgumentError, match="7 is not in") as caught:
        fn(X)
    lines, files = _lines_of(caught)
    assert body.__code__.co_firstlineno + 2 in lines
    package = os.path.dirname(tf_pfor.__file__)
    assert not [f for f in files if f.startswith(package)]


def test_inputs_that_differ_are_named():
    rows = (tf.zeros([3, 2, 4]), tf.constant([[0, 1], [0, 0], [0, 1]]))
    with pytest.raises(tf_pfor.NotVectorizableError, match="takes it where 'k' differs between it"):
        strict_map(lambda r: tf.linalg.diag_part(r[0], k=r[1]), rows)


@pytest.mark.parametrize("around", [lambda f: f, tf.function], ids=["eager", "tf.function"])
def test_a_shape_error_of_the_body_lists_the_users_lines_only(around):
    def mapped(x):
        return tf_pfor.vectorized_map(lambda row: row @ tf.ones([3, 2]), x)

    with pytest.raises(ValueError, match="in user code") as caught:
        around(mapped)(tf.ones([3, 4]))
    text = str(caught.value)
    assert "row @ tf.ones([3, 2])" in text, text
    assert "tf_pfor/" not in text.replace("tf_pfor/tests", ""), text
