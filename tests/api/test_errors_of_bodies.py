"""Errors of what bodies do, as they name it: the user's own lines, and none of the package's."""

import os
import re

import keras
import numpy as np
import pytest
import tensorflow as tf

import tf_pfor
from tests.api.test_errors import call, check  # noqa: F401  (a fixture)
from tests.devices import of_cpus
from tf_pfor.core.errors import UnsupportedStateError

X = np.ones([3, 2], np.float32)


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


# -- When it runs ----------------------------------------------------------------------------------


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


@pytest.mark.parametrize(
    ("name", "fn", "second"), [("k", tf.linalg.diag_part, [[0, 1], [0, 0], [0, 1]])]
)
def test_inputs_that_differ_are_named(name, fn, second):
    rows = (tf.zeros([3, 2, 4]), tf.constant(second))
    with pytest.raises(tf_pfor.NotVectorizableError) as caught:
        tf_pfor.vectorized_map(lambda r: fn(r[0], k=r[1]), rows, fallback_to_while_loop=False)
    assert f"no converter takes it where '{name}' differs between iterations" in str(caught.value)


@pytest.mark.parametrize("is_written_inside", [True, False], ids=["lambda", "function"])
@pytest.mark.parametrize("around", [lambda f: f, tf.function], ids=["eager", "tf.function"])
def test_a_shape_error_of_the_body_lists_the_users_lines_only(around, is_written_inside):
    def mapped(x):
        if is_written_inside:
            return tf_pfor.vectorized_map(lambda row: row @ tf.ones([3, 2]), x)
        return tf_pfor.vectorized_map(lambda row: row @ tf.ones([3, 2]), x)

    with pytest.raises(ValueError, match="in user code") as caught:
        around(mapped)(tf.ones([3, 4]))
    text = str(caught.value)
    assert "row @ tf.ones([3, 2])" in text, text
    assert "tf_pfor/" not in text.replace("tf_pfor/tests", ""), text
