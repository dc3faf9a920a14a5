"""The harness catches wrong rules: each of these breaks one promise, and one check must see it."""

import contextlib

import numpy as np
import pytest
import tensorflow as tf

import tf_pfor
from tests import harness
from tests.cases import case
from tests.sample import normal, sample
from tf_pfor.core.registry import REGISTRY, Outcome
from tf_pfor.core.values import Folded, Stacked

TANH = sample("Tanh", tf.tanh, normal(2, 3))
ADD = sample("AddV2", tf.add, normal(2), normal(3, 2))
SUM = sample("Sum", lambda x: tf.reduce_sum(x, 0), normal(2, 2))
# The kernel refuses to broadcast; the second input is the bias.
BIAS = sample("BiasAdd", tf.nn.bias_add, normal(2, 3), normal(3))


@contextlib.contextmanager
def rule(op_type, function, **options):
    """One rule for an op type in place of all others, for a while."""
    with REGISTRY.temporary():
        tf_pfor.RegisterPFor(op_type, override=True, **options)(function)
        harness.forget()
        yield
    harness.forget()


def caught(check, s, what):
    """A check sees that something is wrong with a sample."""
    with pytest.raises((AssertionError, tf.errors.OpError, tf_pfor.PforError, ValueError)) as why:
        check(s)
    assert what in str(why.value), f"another failure: {why.value}"


def wrong(function, op_type, check, s, what, *, passes=None, **options):
    """A check, and not the one that it ``passes``, sees what is wrong with a rule."""
    with rule(op_type, function, **options):
        if passes is not None:
            passes(s)
        caught(check, s, what)


vectorized = lambda s: harness.check_outcome(s, set())


def test_the_right_rules_pass():
    for s in (TANH, ADD, SUM, BIAS):
        harness.check_outcome(s, set())
        harness.check_values(s)
        harness.check_gradients(s)
        harness.check_nested(s)
        harness.check_folded(s)


@case(wrong, "Tanh", harness.check_values, TANH, "Not equal to tolerance")
def test_wrong_values(call, x):
    return call.emit("Sin", x.tensor)


OF_STATIC_N = sample("Tanh", tf.tanh, normal(2, 3), unknown=False)


@case(wrong, "Tanh", harness.check_values, OF_STATIC_N, "Not equal to tolerance")
def test_one_row_for_all(call, x):
    return call.emit("Tanh", call.emit("GatherV2", x.tensor, np.zeros(3, np.int32), np.int32(0)))


@case(wrong, "Sum", harness.check_values, SUM, "Not equal to tolerance", attrs=("keep_dims",))
def test_a_wrong_axis(call, input, reduction_indices):
    """The sum over the loop: right shape, since the rows have two of each."""
    return call.emit("Sum", input.tensor, np.asarray([2], np.int32))


SQUARE = sample("AddV2", tf.add, normal(3), normal(3, 3))


@case(wrong, "AddV2", harness.check_values, SQUARE, "expected inner shape (3, 3)")
def test_wrong_alignment_of_ranks(call, x, y):
    """[n, 2] + [n, 3, 2] does not align by itself."""
    return call.emit("AddV2", x.tensor, y.tensor)


@case(wrong, "Tanh", harness.check_values, TANH, "returned float64, expected float32")
def test_a_wrong_dtype(call, x):
    return call.emit("Cast", call.emit("Tanh", x.tensor), DstT=tf.float64)


RESHAPE = sample("Reshape", lambda x: tf.reshape(x, [3, 2]), normal(2, 3))


@case(wrong, "Reshape", harness.check_values, RESHAPE, "expected inner shape (3, 2)")
def test_a_wrong_static_shape(call, tensor, shape):
    """The walker knows the number of rows; it does not know an unknown dimension."""
    return call.emit("Transpose", tensor.tensor, np.asarray([0, 1, 2], np.int32))


@case(wrong, "Tanh", vectorized, TANH, "loops")
def test_a_hidden_loop(call, x):
    """Through the public tf.map_fn, with no record of it."""
    return tf.map_fn(tf.tanh, x.tensor)


@case(wrong, "Tanh", vectorized, TANH, "loops", outcome=Outcome.LOOPED)
def test_a_recorded_loop(call, x):
    return call.loop_over_rows()


def test_a_gap_that_closed_stays_not_listed():
    caught(lambda s: harness.check_outcome(s, {"Tanh[0]"}), TANH, "vectorized now")


@case(wrong, "Tanh", harness.check_values, TANH, "21 ops")
def test_too_many_ops(call, x):
    y = x.tensor
    for _ in range(10):
        y = call.emit("Neg", call.emit("Neg", y))
    return call.emit("Tanh", y)


@case(wrong, "Tanh", harness.check_gradients, TANH, "None", passes=harness.check_values)
def test_a_wrong_gradient(call, x):
    """Right values from an op whose gradient is cut."""
    return call.emit("Tanh", call.emit("StopGradient", x.tensor))


SAME = sample("AddV2", tf.add, normal(2), normal(2))
TO_INPUT_0 = "with respect to input 0"


@case(wrong, "AddV2", harness.check_gradients, SAME, TO_INPUT_0, passes=harness.check_values)
def test_a_gradient_that_is_wrong_for_one_input(call, x, y):
    return call.emit("AddV2", call.emit("StopGradient", call.stacked(x)), call.stacked(y))


@case(wrong, "Tanh", harness.check_values, TANH, "n=3 unknown")
def test_a_rule_that_knows_only_static_lengths(call, x):
    rows = call.loop.static_length
    shape = np.asarray([3 if rows is None else rows, 2, 3])
    return call.emit("Reshape", call.emit("Tanh", x.tensor), shape)


@case(wrong, "Tanh", harness.check_nested, TANH, "nested")
def test_a_rule_that_fails_when_nested(call, x):
    """It asks for a loop that is not inside of another one."""
    rows = call.emit("Tanh", x.tensor)
    return rows if call.loop.static_length != 2 else call.emit("Neg", rows)


@case(wrong, "Tanh", harness.check_folded, OF_STATIC_N, "with 18 elements to shape [3,2]")
def test_a_rule_that_mistakes_the_folded_form(call, x):
    made = call.emit("Tanh", x.any_form)
    return call.emit("Reshape", made, np.asarray([3, 2, 3], np.int32)[: made.shape.rank])


@case(wrong, "Tanh", harness.check_folded, TANH, "returned (2, 3)")
def test_a_rule_that_says_a_wrong_fold(call, x):
    """Nobody reads the folded form, and it is held against the shape all the same."""
    made = call.emit("Tanh", x.tensor)
    return Stacked.deferred(lambda: made, (2, 3), made.dtype, folded=Folded(made, 1))


@case(wrong, "Tanh", harness.check_xla, TANH, "AsString", passes=harness.check_values)
def test_a_rule_that_does_not_compile(call, x):
    """XLA has no strings."""
    text = call.emit("AsString", call.emit("Tanh", x.tensor), precision=9)
    return call.emit("StringToNumber", text, out_type=tf.float32)


KEPT = sample("Sum", lambda x: tf.reduce_sum(x, 0, keepdims=True), normal(2, 2))


@case(wrong, "Sum", vectorized, KEPT, "keep_dims")
def test_an_attribute_that_nobody_read(call, input, reduction_indices):
    """``attrs`` leaves out what the op uses: refused, not computed without it."""
    return call.emit("Sum", input.tensor, np.asarray([1], np.int32))
