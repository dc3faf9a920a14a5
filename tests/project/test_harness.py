"""The harness catches wrong rules: each of these breaks one promise, and one check must see it."""

import contextlib

import numpy as np
import pytest
import tensorflow as tf

import tf_pfor
from tests import harness
from tests.sample import normal, sample
from tf_pfor.core.registry import REGISTRY, Outcome
from tf_pfor.core.values import Folded, Stacked

raw = tf.raw_ops
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
    with pytest.raises((AssertionError, tf.errors.OpError, tf_pfor.PforError, ValueError)) as why:
        check(s)
    assert what in str(why.value), f"another failure: {why.value}"


def test_the_right_rules_pass():
    for s in (TANH, ADD, SUM, BIAS):
        harness.check_outcome(s, set())
        harness.check_values(s)
        harness.check_gradients(s)
        harness.check_nested(s)
        harness.check_folded(s)


def test_wrong_values():
    with rule("Tanh", lambda call, x: call.emit("Sin", x.tensor)):
        caught(harness.check_values, TANH, "Not equal to tolerance")


def test_one_row_for_all():
    def first(call, x):
        row = call.emit("GatherV2", x.tensor, np.zeros(3, np.int32), np.int32(0))
        return call.emit("Tanh", row)

    one = sample("Tanh", tf.tanh, normal(2, 3), unknown=False)
    with rule("Tanh", first):
        caught(harness.check_values, one, "Not equal to tolerance")


def test_a_wrong_axis():
    """The sum over the loop: right shape, since the rows have two of each."""

    def unshifted(call, input, reduction_indices):
        return call.emit("Sum", input.tensor, np.asarray([2], np.int32))

    with rule("Sum", unshifted, attrs=("keep_dims",)):
        caught(harness.check_values, SUM, "Not equal to tolerance")


def test_wrong_alignment_of_ranks():
    """[n, 2] + [n, 3, 2] does not align by itself."""
    square = sample("AddV2", tf.add, normal(3), normal(3, 3))
    with rule("AddV2", lambda call, x, y: call.emit("AddV2", x.tensor, y.tensor)):
        caught(harness.check_values, square, "expected inner shape (3, 3)")


def test_a_wrong_dtype():
    wide = lambda call, x: call.emit("Cast", call.emit("Tanh", x.tensor), DstT=tf.float64)
    with rule("Tanh", wide):
        caught(harness.check_values, TANH, "returned float64, expected float32")


def test_a_wrong_static_shape():
    """The walker knows the number of rows; it does not know an unknown dimension."""
    body = sample("Reshape", lambda x: tf.reshape(x, [3, 2]), normal(2, 3))

    def transposed(call, tensor, shape):
        return call.emit("Transpose", tensor.tensor, np.asarray([0, 1, 2], np.int32))

    with rule("Reshape", transposed):
        caught(harness.check_values, body, "expected inner shape (3, 2)")


def test_a_hidden_loop():
    """Through the public tf.map_fn, with no record of it."""
    loop = lambda call, x: tf.map_fn(tf.tanh, x.tensor)
    with rule("Tanh", loop):
        caught(lambda s: harness.check_outcome(s, set()), TANH, "loops")


def test_a_recorded_loop():
    loop = lambda call, x: call.loop_over_rows()
    with rule("Tanh", loop, outcome=Outcome.LOOPED):
        caught(lambda s: harness.check_outcome(s, set()), TANH, "loops")


def test_a_gap_that_closed_stays_not_listed():
    caught(lambda s: harness.check_outcome(s, {"Tanh[0]"}), TANH, "vectorized now")


def test_too_many_ops():
    def many(call, x):
        y = x.tensor
        for _ in range(10):
            y = call.emit("Neg", call.emit("Neg", y))
        return call.emit("Tanh", y)

    with rule("Tanh", many):
        caught(harness.check_values, TANH, "21 ops")


def test_a_wrong_gradient():
    """Right values from an op whose gradient is cut."""
    cut = lambda call, x: call.emit("Tanh", call.emit("StopGradient", x.tensor))
    with rule("Tanh", cut):
        harness.check_values(TANH)
        caught(harness.check_gradients, TANH, "None")


def test_a_gradient_that_is_wrong_for_one_input():
    def cut(call, x, y):
        stopped = call.emit("StopGradient", call.stacked(x))
        return call.emit("AddV2", stopped, call.stacked(y))

    same = sample("AddV2", tf.add, normal(2), normal(2))
    with rule("AddV2", cut):
        harness.check_values(same)
        caught(harness.check_gradients, same, "with respect to input 0")


def test_a_rule_that_knows_only_static_lengths():
    def static(call, x):
        rows = call.loop.static_length
        shape = np.asarray([3 if rows is None else rows, 2, 3])
        return call.emit("Reshape", call.emit("Tanh", x.tensor), shape)

    with rule("Tanh", static):
        caught(harness.check_values, TANH, "n=3 unknown")


def test_a_rule_that_fails_when_nested():
    """It asks for a loop that is not inside of another one."""

    def outermost(call, x):
        rows = call.emit("Tanh", x.tensor)
        return rows if call.loop.static_length != 2 else call.emit("Neg", rows)

    with rule("Tanh", outermost):
        caught(harness.check_nested, TANH, "nested")


def test_a_rule_that_mistakes_the_folded_form():
    def any_form(call, x):
        made = call.emit("Tanh", x.any_form)
        return call.emit("Reshape", made, np.asarray([3, 2, 3], np.int32)[: made.shape.rank])

    known = sample("Tanh", tf.tanh, normal(2, 3), unknown=False)
    with rule("Tanh", any_form):
        caught(harness.check_folded, known, "with 18 elements to shape [3,2]")


def test_a_rule_that_says_a_wrong_fold():
    """Nobody reads the folded form, and it is held against the shape all the same."""

    def mislabelled(call, x):
        made = call.emit("Tanh", x.tensor)
        return Stacked.deferred(lambda: made, (2, 3), made.dtype, folded=Folded(made, 1))

    with rule("Tanh", mislabelled):
        caught(harness.check_folded, sample("Tanh", tf.tanh, normal(2, 3)), "returned (2, 3)")


def test_a_rule_that_does_not_compile():
    """XLA has no strings."""

    def printed(call, x):
        text = call.emit("AsString", call.emit("Tanh", x.tensor), precision=9)
        return call.emit("StringToNumber", text, out_type=tf.float32)

    with rule("Tanh", printed):
        harness.check_values(TANH)
        caught(harness.check_xla, TANH, "AsString")


def test_an_attribute_that_nobody_read():
    """``attrs`` leaves out what the op uses: refused, not computed without it."""
    kept = sample("Sum", lambda x: tf.reduce_sum(x, 0, keepdims=True), normal(2, 2))

    def careless(call, input, reduction_indices):
        return call.emit("Sum", input.tensor, np.asarray([1], np.int32))

    with rule("Sum", careless):
        caught(lambda s: harness.check_outcome(s, set()), kept, "keep_dims")
