"""Non-max suppression: the boxes that the kernel chooses in each row, ties and all."""

import numpy as np
import pytest
import tensorflow as tf

import tf_pfor
from tests.comparisons import compare_rows, strict_map

RNG = np.random.default_rng(0)
FIRST = RNG.uniform(0, 1, (6, 25, 2))
# Rounded, so that there are ties of scores, and boxes that are the same.
BOXES = tf.constant(
    np.round(np.concatenate([FIRST, FIRST + RNG.uniform(-0.6, 0.6, (6, 25, 2))], -1), 1), tf.float32
)
SCORES = tf.constant(np.round(RNG.uniform(0, 1, (6, 25)), 1), tf.float32)
OVERLAPS = tf.constant(RNG.uniform(0, 1, (6, 25, 25)), tf.float32)
CAPS, LIMITS = tf.range(6), tf.constant(np.linspace(0.1, 0.8, 6), tf.float32)
PADDED = {"max_output_size": 12, "iou_threshold": 0.4, "score_threshold": 0.2}
raw, image = tf.raw_ops, tf.image


def compare(body, *elements):
    compare_rows(body, *elements, rtol=1e-6, atol=0)


def _kept(boxes, scores):
    kept = scores > 0.3
    boxes, scores = tf.boolean_mask(boxes, kept), tf.boolean_mask(scores, kept)
    return tf.gather(boxes, image.non_max_suppression(boxes, scores, 9, 0.4))


CASES = {
    "first": lambda b, s: raw.NonMaxSuppression(boxes=b, scores=s, max_output_size=9),
    "second": lambda b, s: raw.NonMaxSuppressionV2(
        boxes=b, scores=s, max_output_size=9, iou_threshold=0.3
    ),
    "third": lambda b, s: image.non_max_suppression(b, s, 9, 0.4),
    "all": lambda b, s: image.non_max_suppression(b, s, 100, 0.4, 0.3),
    "none": lambda b, s: image.non_max_suppression(b, s, 0, 0.4),
    "no score is enough": lambda b, s: image.non_max_suppression(b, s, 9, 0.4, 5.0),
    "no boxes": lambda b, s: image.non_max_suppression(b[:0], s[:0], 9, 0.4),
    "with scores": lambda b, s: image.non_max_suppression_with_scores(b, s, 9, 0.4, 0.2),
    "softly": lambda b, s: image.non_max_suppression_with_scores(
        b, s, 9, 0.4, 0.2, soft_nms_sigma=0.5
    ),
    "filled up": lambda b, s: raw.NonMaxSuppressionV4(
        boxes=b, scores=s, pad_to_max_output_size=True, **PADDED
    ),
    "fourth": lambda b, s: raw.NonMaxSuppressionV4(boxes=b, scores=s, **PADDED),
    "halves": lambda b, s: image.non_max_suppression(
        tf.cast(b, tf.half), tf.cast(s, tf.half), 9, 0.4
    ),
    "boxes of all": lambda b, s: image.non_max_suppression(BOXES[0], s, 9, 0.4) + 0 * tf.size(b),
    "kept before": _kept,
}


@pytest.mark.parametrize("name", CASES)
def test_boxes(name):
    compare(CASES[name], BOXES, SCORES)


def _masked_apart(boxes, scores):
    return tf.boolean_mask(boxes, scores > 0.3), tf.boolean_mask(scores, scores > 0.3)


def test_boxes_and_scores_that_are_masked_apart():
    def body(boxes, scores):
        boxes, scores = _masked_apart(boxes, scores)
        return tf.gather(boxes, image.non_max_suppression(boxes, scores, 9, 0.4))

    compare(body, BOXES, SCORES * tf.cast(tf.range(6) > 0, tf.float32)[:, None])


def test_more_boxes_than_scores_are_an_error():
    def body(row):
        boxes, scores = _masked_apart(*row)
        return image.non_max_suppression(boxes[:-1], scores, 9, 0.4)

    with pytest.raises(tf.errors.InvalidArgumentError, match="sizes of two inputs"):
        strict_map(body, (BOXES, SCORES))


def test_numbers_and_limits_of_the_row():
    compare(lambda b, s, m, t: image.non_max_suppression(b, s, m, t), BOXES, SCORES, CAPS, LIMITS)


def test_overlaps():
    compare(lambda o, s: image.non_max_suppression_overlaps(o, s, 9, 0.8, 0.1), OVERLAPS, SCORES)
    compare(lambda s: image.non_max_suppression_overlaps(OVERLAPS[1], s, 9, 0.8, 0.1), SCORES)
    compare(lambda o: image.non_max_suppression_overlaps(o, SCORES[1], 9, 0.8, 0.1), OVERLAPS)


def test_under_jit_compile_and_in_a_map_of_a_map():
    body = CASES["filled up"]

    def run(boxes, scores):
        return tf_pfor.vectorized_map(lambda row: body(*row), (boxes, scores))

    for found, wanted in zip(tf.function(run, jit_compile=True)(BOXES, SCORES), run(BOXES, SCORES)):
        np.testing.assert_array_equal(found, wanted)
    halves = [tf.reshape(x, [2, 3, *x.shape[1:]]) for x in (BOXES, SCORES)]
    nested = tf_pfor.vectorized_map(lambda rows: run(*rows), tuple(halves))
    for found, wanted in zip(nested, run(BOXES, SCORES)):
        np.testing.assert_array_equal(tf.reshape(found, wanted.shape), wanted)


def test_no_rows_and_rows_of_unknown_number():
    @tf.function(
        input_signature=[tf.TensorSpec([None, 25, 4]), tf.TensorSpec([None, 25])], autograph=False
    )
    def run(boxes, scores):
        return tf_pfor.vectorized_map(lambda row: CASES["third"](*row), (boxes, scores))

    assert run(BOXES[:0], SCORES[:0]).shape == [0, None]
    found = run(BOXES, SCORES)
    for i in range(6):
        np.testing.assert_array_equal(found[i], CASES["third"](BOXES[i], SCORES[i]))


def test_negative_scores_are_not_suppressed_softly():
    with pytest.raises(tf.errors.InvalidArgumentError, match="must not be negative"):
        tf_pfor.vectorized_map(
            lambda row: image.non_max_suppression_with_scores(*row, 9, soft_nms_sigma=0.5),
            (BOXES, SCORES - 1.0),
        )
