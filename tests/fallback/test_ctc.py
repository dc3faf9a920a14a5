"""Losses of sequences, whose loops TensorFlow writes as functions of TensorFlow 1."""

import keras
import pytest
import tensorflow as tf

import tf_pfor
from tests.cases import grid
from tests.comparisons import assert_close, gradient_of, strict_map, value_and_gradient

LABELS, LENGTHS = tf.constant([[1, 2, 3], [2, 2, 0], [4, 0, 0]]), tf.constant([3, 2, 1])
LOGITS, FRAMES = tf.random.stateless_normal([3, 8, 5], seed=[1, 2]), tf.constant([8, 7, 3])
ROWS = (LABELS, LENGTHS, LOGITS, FRAMES)


def loss(row):
    labels, length, logits, frames = row
    one = (labels[None], logits[:, None], length[None], frames[None])
    return tf.nn.ctc_loss(*one, blank_index=0)[0]


with_gradient = lambda row: value_and_gradient(lambda: loss(row), row[2])


def expected(fn, rows):
    made = [fn(row) for row in zip(*rows)]
    return tf.nest.map_structure(lambda *x: tf.stack(x), *made)


def check(found, wanted):
    assert_close(found, wanted, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("jit", [False, True])
def test_values_and_gradients_in_the_body(jit):
    run = tf.function(lambda *rows: strict_map(with_gradient, rows), jit_compile=jit)
    check(run(*ROWS), expected(with_gradient, ROWS))


def test_tape_around_and_an_unknown_number():
    specs = [tf.TensorSpec([None, *x.shape[1:]], x.dtype) for x in ROWS]

    @tf.function(input_signature=specs)
    def around(*rows):
        return value_and_gradient(lambda: strict_map(loss, rows), rows[2])

    check(around(*ROWS), expected(with_gradient, ROWS))
    assert [x.shape for x in around(*[x[:0] for x in ROWS])] == [(0,), (0, 8, 5)]


@pytest.mark.parametrize("mask", [[1, 0, 1], [0, 1, 1], [0, 0, 1]], ids=str)
def test_logits_in_a_branch(mask):
    """Sparse labels of the rows that take it have their places among these rows."""

    def guarded(row):
        is_on, logits = row
        if is_on == 0:
            return tf.reduce_sum(logits)
        places = tf.constant([[0, 0], [0, 1]], tf.int64)
        of_labels = {"labels_indices": places, "labels_values": [1, 2], "sequence_length": [8]}
        losses = tf.raw_ops.CTCLoss(inputs=logits[:, None], **of_labels)[0]
        return tf.reduce_sum(losses)

    both = lambda row: value_and_gradient(lambda: guarded(row), row[1])
    rows = (tf.constant(mask), LOGITS)
    for function in (guarded, both):
        check(strict_map(function, rows), expected(function, rows))


def test_no_rows():
    assert strict_map(loss, tuple(x[:0] for x in ROWS)).shape == (0,)


def test_keras():
    ctc = tf.keras.losses.CTC()
    body = lambda row: ctc(row[0][None], row[1][None])
    rows = (tf.constant([[1, 2, 3], [2, 2, 1]]), tf.nn.softmax(LOGITS[:2]))
    check(strict_map(body, rows), expected(body, rows))


def of_own_labels(row):
    labels, length, logits, frames = row
    one = (labels[None, :length], logits[:, None], length[None], frames[None])
    return tf.nn.ctc_loss(*one, blank_index=0)[0]


def of_own_times(row):
    labels, length, logits, frames = row
    one = (labels[None, :length], logits[:frames, None], length[None], frames[None])
    return tf.nn.ctc_loss(*one, blank_index=0)[0]


def of_sparse_labels(row):
    labels, length, logits, frames = row
    sparse = tf.sparse.from_dense(labels[None, :length])
    return tf.nn.ctc_loss(sparse, logits[:frames, None], None, frames[None], blank_index=0)[0]


def of_unique_labels(row):
    labels, length, logits, frames = row
    one = (labels[None, :length], logits[:, None], length[None], frames[None])
    unique = tf.nn.ctc_unique_labels(one[0])
    return tf.nn.ctc_loss(*one, blank_index=0, unique=unique)[0]


def of_keras_ops(row):
    labels, length, logits, frames = row
    one = (labels[None, :length], logits[None, :frames], length[None], frames[None])
    return keras.ops.ctc_loss(*one, mask_index=0)[0]


@pytest.mark.parametrize(
    "fn", [of_own_labels, of_own_times, of_sparse_labels, of_unique_labels, of_keras_ops]
)
def test_tape_around_what_loops(fn):
    """The gradient function reads what the loop over rows did not keep: it is run once more."""
    around = lambda losses: value_and_gradient(losses, LOGITS)
    found = around(lambda: tf_pfor.vectorized_map(fn, ROWS, warn=False))
    check(found, around(lambda: expected(fn, ROWS)))


def test_gradients_around_logits_that_are_cut():
    """The gradient of the loss has the shape of what the row has cut, whatever is known of it."""

    def cut(row):
        labels, length, logits, frames = row
        one = (labels[None, :length], logits[:frames][:, None], length[None], frames[None])
        return tf.nn.ctc_loss(*one, blank_index=0)[0]

    def slopes(run, logits):
        return value_and_gradient(lambda: run((LABELS, LENGTHS, logits, FRAMES)), logits)

    unknown = tf.TensorSpec([None, None, None])
    run = tf.function(
        lambda logits: slopes(
            lambda rows: tf.reduce_sum(tf_pfor.vectorized_map(cut, rows, warn=False)), logits
        ),
        input_signature=[unknown],
    )
    check(run(LOGITS), slopes(lambda rows: tf.add_n([cut(row) for row in zip(*rows)]), LOGITS))


@grid(n=[0, 3], is_cut=[False, True])
def test_sparse_labels(n, is_cut):
    def sparse(row):
        labels, _, logits, frames = row
        logits = logits[:frames] if is_cut else logits
        one = (tf.sparse.from_dense(tf.stack([labels, labels[::-1]])), tf.stack([logits] * 2, 1))
        return tf.compat.v1.nn.ctc_loss(*one, tf.stack([frames, frames]))

    both = lambda row: value_and_gradient(lambda: sparse(row), row[2])
    found = strict_map(both, tuple(a[:n] for a in ROWS))
    if n:
        check(found, expected(both, ROWS))
    assert [t.shape[0] for t in found] == [n, n]


def test_a_sequence_longer_than_its_logits():
    def body(row):
        labels, length, logits, frames = row
        sparse = tf.sparse.from_dense(labels[None, :length])
        return tf.compat.v1.nn.ctc_loss(sparse, logits[:frames, None], frames[None] + 1)

    with pytest.raises(tf.errors.InvalidArgumentError, match="longer than its logits"):
        strict_map(body, ROWS)


def test_second_derivatives_of_logits_that_are_cut():
    """TensorFlow has none, and says so: its loss is made of functions of TensorFlow 1."""

    def cut(labels, length, logits, frames):
        one = (labels[None, :length], logits[:frames, None], length[None], frames[None])
        return tf.sin(tf.nn.ctc_loss(*one, blank_index=0)[0])

    def second(row):
        labels, length, logits, frames = row

        def slopes():
            of = gradient_of(lambda: cut(labels, length, logits, frames), logits)
            return tf.reduce_sum(tf.sin(of))

        return gradient_of(slopes, logits)

    for run in (
        lambda: tf.function(second)([a[0] for a in ROWS]),
        lambda: tf_pfor.vectorized_map(second, ROWS, warn=False),
    ):
        with pytest.raises(tf.errors.NotFoundError, match="SymbolicGradient"):
            run()
