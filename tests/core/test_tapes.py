"""Jacobians of tapes: blocks of non-persistent ones, unknown shapes, odd targets, errors."""

import numpy as np
import pytest
import tensorflow as tf

import tf_pfor
from tests.comparisons import close
from tf_pfor._tf._functions import is_of_gradients
from tf_pfor.core.errors import ArgumentError, ArgumentTypeError

X = tf.constant([[0.5, -1.0, 2.0], [1.5, 0.0, 1.0]])


def taped(fn, x, persistent=False):
    with tf.GradientTape(persistent=persistent) as tape:
        tape.watch(x)
        y = fn(x)
    return tape, y


def fn(x):
    return tf.sin(x) * tf.reduce_sum(x, 1, keepdims=True)


def expected_of(name):
    tape, y = taped(fn, X, persistent=True)
    return getattr(tape, name)(y, X, experimental_use_pfor=False)


FORMS = {"jacobian": tf_pfor.tape_jacobian, "batch_jacobian": tf_pfor.tape_batch_jacobian}
of_forms = pytest.mark.parametrize("name", FORMS)


@pytest.mark.parametrize("block", [None, 1, 2, 6, 20, "auto"])
@of_forms
def test_a_tape_that_can_be_used_once(name, block):
    """One backward pass is traced for all blocks: also a non-persistent tape does."""
    traces = []

    @tf.custom_gradient
    def counted(x):
        def grad(upstream):
            traces.append(1)
            return upstream

        return tf.identity(x), grad

    tape, y = taped(lambda x: counted(fn(x)), X)
    close(FORMS[name](tape, y, X, parallel_iterations=block), expected_of(name))
    assert len(traces) == 1


@pytest.mark.filterwarnings("ignore::tf_pfor.FallbackWarning")  # ranks that are not known
@pytest.mark.parametrize("block", [None, 1, 4])
@pytest.mark.parametrize("shape", [[None, None], None], ids=str)
@of_forms
def test_unknown_shapes(name, shape, block):
    @tf.function(input_signature=[tf.TensorSpec(shape)], autograph=False)
    def compiled(x):
        tape, y = taped(fn, x)
        return FORMS[name](tape, y, x, parallel_iterations=block)

    close(compiled(X), expected_of(name))
    empty = [0, 3, 0, 3] if name == "jacobian" else [0, 3, 3]
    assert compiled(X[:0]).shape == empty


@pytest.mark.parametrize("dtype", [tf.int32, tf.bool, tf.string])
def test_targets_without_gradients(dtype):
    """The jacobian is not connected, as in ``GradientTape.jacobian``."""

    def target(x):
        return tf.as_string(x) if dtype == tf.string else tf.cast(x, dtype)

    tape, y = taped(target, X, persistent=True)
    assert tf_pfor.tape_jacobian(tape, y, X) is None
    zeros = tf_pfor.tape_jacobian(tape, y, X, "zero")
    assert zeros.shape == [2, 3, 2, 3]
    assert not np.any(zeros)


def test_no_slices():
    table = tf.Variable(tf.ones([4, 2]))
    with tf.GradientTape() as tape:
        y = tf.gather(table, [1, 3])[:0] ** 2
    found = tf_pfor.tape_jacobian(tape, y, table, sparse=True)
    assert found.values.shape == [0, 2, 2, 2]
    assert found.to_dense().shape == [0, 2, 4, 2]


@pytest.mark.parametrize(
    ("run", "error", "text"),
    [
        (lambda t, y: tf_pfor.tape_jacobian(3, y, X), ArgumentTypeError, "must be a tf.Gradient"),
        (lambda t, y: tf_pfor.tape_jacobian(t, y, [X, None]), ArgumentTypeError, r"sources\[1\]"),
        (
            lambda t, y: tf_pfor.tape_jacobian(t, y, {"a": np.ones(2)}),
            ArgumentTypeError,
            r"sources\['a'\] is array",
        ),
        (lambda t, y: tf_pfor.tape_jacobian(t, y, X, "nil"), ArgumentError, "found 'nil'"),
        (lambda t, y: tf_pfor.tape_batch_jacobian(t, y, [X]), ArgumentTypeError, "found list"),
        (
            lambda t, y: tf.function(lambda x: tf_pfor.jacobian(x**2, [x, 1.0]), autograph=False)(
                X
            ),
            ArgumentTypeError,
            r"inputs\[1\] is 1.0",
        ),
    ],
)
def test_errors(run, error, text):
    with pytest.raises(error, match=text):
        run(*taped(fn, X))


@pytest.mark.parametrize(
    ("fn", "is_of_tensorflow"),
    [
        (lambda x: tf.raw_ops.Bincount(arr=[0, 1, 2], size=3, weights=x), True),
        (lambda x: tf.custom_gradient(lambda x: (x + 1.0, lambda dy: dy[1 // 0]))(x), False),
    ],
)
def test_errors_of_tensorflow_while_it_makes_gradients_are_known(fn, is_of_tensorflow):
    with tf.Graph().as_default():
        x = tf.compat.v1.placeholder(tf.float32, [3])
        y = fn(x)
        with pytest.raises((LookupError, ZeroDivisionError)) as caught:
            tf.gradients(y, x)
    assert is_of_gradients(caught.value) is is_of_tensorflow
