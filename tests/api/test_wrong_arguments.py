"""Arguments that are no tensor, have no rows, or do not fit: one error that says what to do."""

import datetime
import math
import os

import keras
import numpy as np
import pytest
import tensorflow as tf

import tf_pfor
from tests.api.test_errors import (  # noqa: F401  (call is a fixture)
    CALLS,
    WAYS,
    Untraced,
    call,
    check,
    table_of_errors,
)
from tests.cases import grid
from tests.devices import of_cpus
from tf_pfor.core.errors import UnsupportedStateError

X = np.ones([3, 2], np.float32)


@tf.autograph.experimental.do_not_convert
def unconverted(x):
    return x if x[0] > 0 else -x


_structured = lambda: np.zeros([3], [("a", "f4"), ("b", "i4")])
_dataset = lambda: tf.data.Dataset.range(3)._variant_tensor
of_keys = lambda derivative: lambda: derivative(Untraced())({"x": {1: X, "a": X}})
of_keyword = lambda **given: lambda: tf_pfor.vmap(lambda x, **_: x)(X, **given)
of_two = lambda *args, **kwargs: lambda: tf_pfor.vmap(lambda a, b: a)(*args, **kwargs)
WRONG, NO_TYPE = tf_pfor.ArgumentError, tf_pfor.ArgumentTypeError
KEYS = "args[0]['x'] is a dict with keys of the types int, str"
SHARED = ("keyword argument scale", "by position with None in in_axes", "close over it")
CALLED = ("fn must take what the mapped function is called with", "<lambda>(a, b)")
# By name: the call, its error, and what the message says.
ERRORS = {
    "keys without an order, hessian": (of_keys(tf_pfor.hessian), NO_TYPE, KEYS),
    "keys without an order, jacfwd": (of_keys(tf_pfor.jacfwd), NO_TYPE, KEYS),
    "keys without an order, jacrev": (of_keys(tf_pfor.jacrev), NO_TYPE, KEYS),
    "a date in a list": (
        lambda: tf_pfor.vectorized_map(Untraced(), [datetime.datetime(2020, 1, 1)]), NO_TYPE,
        "elems[0] is a datetime"),
    "a result with keys of several types": (
        lambda: tf_pfor.vectorized_map(lambda x: {1: x, "a": x}, X), NO_TYPE,
        "The result of the body is a dict with keys of the types int, str"),
    "vmap without arguments": (
        lambda: tf_pfor.vmap(Untraced())(), WRONG, "called without any", "axis_size"),
    "a keyword that all rows share, a float": (of_keyword(scale=2.0), WRONG, *SHARED),
    "a keyword that all rows share, a tensor": (of_keyword(scale=tf.constant(2.0)), WRONG, *SHARED),
    "a keyword of another size": (
        of_keyword(y=tf.ones([5])), WRONG, "keyword argument y: shape (5,)"),
    "a keyword of no tensor": (of_keyword(y=object()), NO_TYPE, "keyword argument y is a object"),
    "keywords have no entry of in_axes": (
        lambda: tf_pfor.vmap(Untraced(), in_axes=(0, 1))(X, y=X), WRONG,
        "in_axes has 2 entries", "Keyword arguments are mapped over axis 0"),
    "a function of several arguments gets one row": (
        lambda: tf_pfor.vectorized_map(lambda a, b: a + b, (X, X)), NO_TYPE,
        "fn must take one argument, a row of elems, here: a tuple of 2", "<lambda>(a, b)",
        "test_wrong_arguments.py:", "a, b = row", "tf_pfor.vmap(fn)(*elems)"),
    "vmap, too few": (of_two(X), NO_TYPE, *CALLED, "missing a required argument: 'b'"),
    "vmap, too many": (of_two(X, X, X), NO_TYPE, *CALLED, "too many positional arguments"),
    "vmap, another keyword": (
        of_two(X, X, q=X), NO_TYPE, *CALLED, "unexpected keyword argument 'q'"),
    "a bool without AutoGraph": (
        lambda: tf_pfor.vectorized_map(unconverted, X), NO_TYPE,
        "Python bool in a conditional expression", "Or use tf.where or tf.cond"),
}  # fmt: skip


test_table_of_errors = table_of_errors(ERRORS)

# By name: how it is made, the error, what the message says behind the name.
NO_TENSORS = {
    "objects": (lambda: np.array([None, {}], object), "dtype object", "tf.ragged.constant"),
    "rows": (lambda: np.array([[1, 2], [3]], object), "dtype object", "np.stack"),
    "dates": (lambda: np.array(["2020-01-01"], "M8[D]"), "datetime64[D]", "astype('int64')"),
    "fields": (_structured, "'<f4'", "{k: x[k] for k in ['a', 'b']}"),
    "records": (lambda: _structured().view(np.recarray), "'<f4'", "{k: x[k]"),
    "keras": (lambda: keras.Input([2]), "KerasTensor", "tf_pfor.keras.Vectorized"),
    "keys": (lambda: {1: X, "a": X}, "keys of the types int, str", "keys of one type"),
    "variable": (lambda: tf.Variable(1.0).handle, "handle (dtype resource)", "share"),
    "dataset": (_dataset, "handle (dtype variant)", "share"),
}


@grid(kind=NO_TENSORS, way=WAYS)
def test_what_is_no_tensor(way, kind):
    make, *texts = NO_TENSORS[kind]
    run, name = WAYS[way]
    wrong = lambda: run(Untraced(), {"x": make()})
    check(CALLS["eager"], wrong, NO_TYPE, f"{name}['x'] is a", "xpected", *texts)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("given", [[1.0, 2.0], [[1, 2], [3, 4]], ["a", "b"], [True]], ids=repr)
def test_a_list_of_numbers_is_a_nest(call, way, given):
    run, name = WAYS[way]
    path = "[0][0]" if isinstance(given[0], list) else "[0]"
    check(
        call,
        lambda: run(Untraced(), given),
        tf_pfor.ArgumentError,
        f"{name}{path} is a scalar, {given[0][0] if path == '[0][0]' else given[0]!r}",
        "[n, ...]",
        "nest of scalars",
        "tf.constant([...])",
    )


@pytest.mark.parametrize("form", ["plain", "branch", "gathered"])
def test_handles_that_differ_between_rows(form):
    """Kernels take the first of several handles: all rows had the first variable's values."""
    variables = [tf.Variable([float(i)]) for i in range(3)]
    handles = tf.stack([v.handle for v in variables])
    read = lambda handle: tf.raw_ops.ReadVariableOp(resource=handle, dtype=tf.float32)

    def body(handle):
        tf.raw_ops.AssignAddVariableOp(resource=handle, value=[1.0])
        if form == "branch":
            return tf.cond(
                tf.constant([1.0])[0] > 0.0, lambda: read(handle), lambda: tf.constant([0.0])
            )
        return read(handle)

    def run():
        if form == "gathered":
            return tf_pfor.pfor(lambda i: body(handles[i]), 3)
        return tf_pfor.vectorized_map(body, handles)

    with pytest.raises(UnsupportedStateError, match="variable, table or queue differs"):
        run()
    assert [v.numpy()[0] for v in variables] == [0.0, 1.0, 2.0]


# -- A function that does not take what it gets ----------------------------------------------------


@pytest.mark.parametrize("way", ["ragged", "sparse"])
def test_a_function_of_several_arguments_gets_one_composite_row(way):
    rows = tf.ragged.constant([[1.0], [2.0, 3.0]])
    rows = rows.to_sparse() if way == "sparse" else rows
    wrong = lambda: tf_pfor.vectorized_map(lambda a, b: a, (rows, X[:2]))
    texts = ("fn must take one argument", "tf_pfor.vmap(fn)(*elems)")
    check(CALLS["eager"], wrong, NO_TYPE, *texts)


@pytest.mark.parametrize(
    "loop",
    [lambda f: tf_pfor.pfor(f, 3), lambda f: tf_pfor.for_loop(f, tf.int32, 3),
     lambda f: tf_pfor.explain(f, 3)],
    ids=["pfor", "for_loop", "explain"],
)  # fmt: skip
def test_a_loop_gives_one_number(loop):
    texts = ("loop_fn must take one argument, the number of the iteration", "Close over the rest")
    for fn in (lambda i, j: i, lambda: 1):
        check(CALLS["eager"], lambda fn=fn: loop(fn), NO_TYPE, *texts)


def test_a_wrong_call_inside_of_the_body_is_the_users_own():
    inner = lambda a, b: a + b
    with pytest.raises(TypeError, match="missing 1 required") as caught:
        tf_pfor.vectorized_map(lambda x: inner(x), X)
    assert not isinstance(caught.value, tf_pfor.PforError)


# -- Python that needs the value of a tensor -------------------------------------------------------

NEED_VALUES = {
    "numpy": (lambda x: np.sin(x) + 1, "to NumPy", "tf.experimental.numpy"),
    "numpy()": (lambda x: x.numpy(), "to NumPy", "tf.numpy_function"),
    "generator": (lambda x: sum(v * v for v in x), "iterates over", "tf.reduce_sum"),
    "comprehension": (lambda x: [v * v for v in x], "iterates over", "tf.map_fn"),
    "sum": (lambda x: sum(x), "iterates over", "for statement"),
    "unpacked": (lambda x: (lambda a, b: a)(*x), "takes it apart", "a, b = tf.unstack(v)"),
    "math": (lambda x: math.sin(x[0]), "to NumPy", "tf.sin for np.sin or math.sin"),
    "max": (lambda x: max(x[0], x[1]), "Python bool", "tf.maximum for max()"),
}


@pytest.mark.parametrize("kind", NEED_VALUES)
def test_python_that_needs_values(call, kind):
    body, *texts = NEED_VALUES[kind]
    check(
        call,
        lambda: tf_pfor.vectorized_map(body, X),
        tf_pfor.ArgumentTypeError,
        f"test_wrong_arguments.py:{body.__code__.co_firstlineno}",
        "traced before it runs",
        *texts,
    )


@pytest.mark.parametrize("ends", ["stacked", "returned"])
def test_a_list_that_a_loop_fills(call, ends):
    def body(x):
        found = []
        for v in x:
            found.append(v * 2.0)
        return tf.stack(found) if ends == "stacked" else found

    texts = ("outside of it", "test_wrong_arguments.py", "tf.TensorArray")
    check(call, lambda: tf_pfor.vectorized_map(body, X), NO_TYPE, *texts)


@pytest.mark.parametrize("layer", ["dense", "model", "convolution"])
def test_a_layer_of_keras_takes_a_batch(layer):
    layers = tf.keras.layers
    found = {
        "dense": (layers.Dense(2), X),
        "model": (tf.keras.Sequential([tf.keras.Input([2]), layers.Dense(2)]), X),
        "convolution": (layers.Conv1D(2, 3), tf.ones([2, 8, 1])),
    }
    one, rows = found[layer]
    texts = ("takes a batch", "model(x[None])[0]", "Keras says: ")
    check(CALLS["eager"], lambda: tf_pfor.vectorized_map(one, rows), WRONG, *texts)


@pytest.mark.parametrize("way", WAYS)
def test_a_function_of_numpy(way):
    texts = ("the function sin", "tf.sin for np.sin")
    check(CALLS["eager"], lambda: WAYS[way][0](np.sin, X), NO_TYPE, *texts)


def goes_over(x):
    for v in x:
        x = x * v
    return x


def counts(x):
    for _ in range(tf.size(x) + tf.cast(x[0], tf.int32)):
        x = x * 2.0
    return x


def repeats(x):
    while tf.abs(x[0]) > 3.0 and (x[0] > -1.0):
        x = x / 2.0
    return x


def chooses(x):
    if x[0] > 3.0:
        x = x / 2.0
    return x


def takes(x):
    return max(x[0], x[1])


STATEMENTS = {
    goes_over: "iterates over a tensor in a for statement",
    counts: "iterates over a tensor in a for statement",
    repeats: "as a Python bool in a while statement",
    chooses: "as a Python bool in an if statement",
}  # fmt: skip
CALLERS = {
    "custom gradient": lambda f: tf.custom_gradient(lambda x: (f(x), lambda d: d)),
    "lambda of two": lambda f: [lambda x: f(x), lambda x: f(x) + 1.0][1],
    "a function around": lambda f: around(tf.custom_gradient(lambda x: (f(x), lambda d: d))),
}


def around(g):
    def body(x):
        return g(x) * 2.0

    return body


@grid(f=list(STATEMENTS), caller=list(CALLERS))
def test_a_statement_that_autograph_does_not_convert(f, caller):
    """The message names the function and the line of the statement; the advice helps."""
    line = f.__code__.co_firstlineno + 1
    place = f"that AutoGraph did not convert: the function {f.__name__} ({__file__}:{line})"
    texts = (STATEMENTS[f], place, "into a function of its own that has @tf.function")
    check(CALLS["eager"], lambda: tf_pfor.vectorized_map(CALLERS[caller](f), X), NO_TYPE, *texts)
    found = tf_pfor.vectorized_map(CALLERS[caller](tf.function(f)), X)
    assert found.shape == X.shape


class Doubles(tf.keras.layers.Layer):
    def call(self, x):
        if tf.reduce_sum(x) > 0:
            x = x * 2.0
        return x


class OnRows(tf.keras.layers.Layer):
    def __init__(self):
        super().__init__()
        self.inner = Doubles()

    def call(self, x):
        return self.inner(x) + 1.0


@pytest.mark.parametrize("layer", [Doubles, OnRows])
def test_a_statement_in_a_layer_of_keras(layer):
    """The message names what helps, and it does."""
    body, line = layer(), Doubles.call.__code__.co_firstlineno + 1
    texts = ("an if statement", f"the function call ({__file__}:{line})", "Put @tf.function on it")
    check(CALLS["eager"], lambda: tf_pfor.vectorized_map(body, X), NO_TYPE, *texts)
    assert tf_pfor.keras.Vectorized(layer())(X).shape == X.shape


@pytest.mark.parametrize("caller", CALLERS)
def test_a_bool_outside_of_statements(caller):
    line = takes.__code__.co_firstlineno + 1
    texts = ("does not convert the code: the function takes", f":{line})", "tf.maximum for max()")
    body = CALLERS[caller](takes)
    check(CALLS["eager"], lambda: tf_pfor.vectorized_map(body, X), NO_TYPE, *texts)


@grid(way=["vectorized_map", "vmap", "pfor", "in a map"], where=["eager", "function"])
def test_an_error_of_shapes_lists_the_users_lines_only(where, way):
    def body(x):
        return tf.matmul(x[None], tf.ones([5, 5]))  # the line

    ways = {
        "vectorized_map": lambda: tf_pfor.vectorized_map(body, X),
        "vmap": lambda: tf_pfor.vmap(body)(X),
        "pfor": lambda: tf_pfor.pfor(lambda i: body(tf.constant(X)[i]), 3),
        "in a map": lambda: tf_pfor.vmap(lambda x: tf_pfor.vmap(body)(x))(X[None]),
    }
    run = ways[way] if where == "eager" else tf.function(ways[way])
    with pytest.raises(ValueError, match="Dimensions must be equal, but are 2 and 5") as caught:
        run()
    text = str(caught.value)
    assert f'{__file__}", line {body.__code__.co_firstlineno + 1}' in text
    assert os.path.dirname(tf_pfor.__file__) not in text, text


# -- When it runs ----------------------------------------------------------------------------------


@pytest.mark.parametrize("loop", [
    lambda n: tf_pfor.pfor(lambda i: i, n),
    lambda n: tf_pfor.pfor(lambda i: 3.0, n),
    lambda n: tf_pfor.pfor(lambda i: i, n, parallel_iterations=2),
    lambda n: tf_pfor.for_loop(lambda i: i, tf.int32, n),
], ids=["rows", "constant", "blocks", "for_loop"])  # fmt: skip
@of_cpus
def test_negative_iters_when_it_runs_are_named(loop):
    run = tf.function(loop, input_signature=[tf.TensorSpec([], tf.int64)])
    assert run(tf.constant(0, tf.int64)).shape == [0]
    assert run(tf.constant(3, tf.int64)).shape == [3]
    with pytest.raises(tf.errors.InvalidArgumentError, match=r"iters must not be negative.*-2"):
        run(tf.constant(-2, tf.int64))


def test_a_size_is_not_checked():
    """Nothing is emitted for what cannot be negative."""
    run = tf.function(lambda x: tf_pfor.pfor(lambda i: i, tf.shape(x)[0]))
    graph = run.get_concrete_function(tf.TensorSpec([None])).graph
    assert "Assert" not in {op.type for op in graph.get_operations()}


# -- RegisterPFor ----------------------------------------------------------------------------------


register = tf_pfor.RegisterPFor
of_cross = lambda **options: lambda: register("Cross", **options)(lambda call, a, b: a)
NO_NAME = "name of an op type"
REGISTRATIONS = {
    "misspelled": (lambda: register("Chloesky")(lambda call, x: x), "'Chloesky'", "Cholesky"),
    "one of two": (lambda: register("Chloesky Cross")(lambda call, x: x), "op type 'Chloesky'"),
    "lower case": (lambda: register("matmul")(lambda call, a, b: a), "Did you mean MatMul"),
    "no op": (lambda: register("Nothing4")(lambda call: None), "tf.load_op_library"),
    "a number": (lambda: register(3), NO_NAME, "found 3", "type int"),
    "no name": (lambda: register(lambda call, x: x), NO_NAME, "type function"),
    "stacked": (lambda: register("MatMul", stacked=3), "stacked is 3", "ANY or ALWAYS"),
    "attrs": (lambda: register("MatMul", attrs=3), "attrs is 3", "attributes"),
    "an input that it lacks": (of_cross(stacked=("a", "c")), "has no input", "'c'"),
    "an attribute that it lacks": (of_cross(attrs=("nope",)), "has no attribute", "'nope'"),
    "no function": (lambda: register("Cross")(3), "expects a function"),
}


@pytest.mark.parametrize("name", REGISTRATIONS)
def test_registration(name):
    run, *texts = REGISTRATIONS[name]
    check(CALLS["eager"], run, tf_pfor.RegistrationError, *texts)
