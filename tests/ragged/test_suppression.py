"""Non-max suppression: the boxes that the kernel chooses in each row, ties and all."""

import numpy as np
import tensorflow as tf

from tests.ways import errors_of, table_of

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


def _kept(boxes, scores):
    kept = scores > 0.3
    boxes, scores = tf.boolean_mask(boxes, kept), tf.boolean_mask(scores, kept)
    return tf.gather(boxes, image.non_max_suppression(boxes, scores, 9, 0.4))


def _masked_apart(boxes, scores):
    return tf.boolean_mask(boxes, scores > 0.3), tf.boolean_mask(scores, scores > 0.3)


def _kept_apart(boxes, scores):
    boxes, scores = _masked_apart(boxes, scores)
    return tf.gather(boxes, image.non_max_suppression(boxes, scores, 9, 0.4))


def _more_boxes(boxes, scores):
    boxes, scores = _masked_apart(boxes, scores)
    return image.non_max_suppression(boxes[:-1], scores, 9, 0.4)


def _by_overlaps(overlaps, scores):
    return image.non_max_suppression_overlaps(overlaps, scores, 9, 0.8, 0.1)


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
    "masked apart": (_kept_apart, (BOXES, SCORES * tf.cast(tf.range(6) > 0, tf.float32)[:, None])),
    "numbers and limits of the row": (image.non_max_suppression, (BOXES, SCORES, CAPS, LIMITS)),
    "overlaps": (_by_overlaps, (OVERLAPS, SCORES)),
    "scores by shared overlaps": (lambda s: _by_overlaps(OVERLAPS[1], s), SCORES),
    "overlaps by shared scores": (lambda o: _by_overlaps(o, SCORES[1]), OVERLAPS),
}
test_table_of_boxes = table_of(
    CASES, BOXES, SCORES, ways=["eager", "compiled", "two maps", "unknown n, few rows"],
    only={
        "compiled": ["filled up"],
        "two maps": ["filled up"],
        "unknown n, few rows": ["third"],
    },
    tolerance=(1e-6, 0.0),
)  # fmt: skip
test_errors = errors_of({
    "more boxes than scores": (_more_boxes, (BOXES, SCORES), "sizes of two inputs"),
    "negative scores": (
        lambda b, s: image.non_max_suppression_with_scores(b, s, 9, soft_nms_sigma=0.5),
        (BOXES, SCORES - 1.0), "must not be negative"),
    "a threshold above one": (
        lambda b, s, t: image.non_max_suppression(b, s, 9, t), (BOXES, SCORES, LIMITS * 2.0),
        r"not in \[0, 1\]"),
    "a threshold below zero": (
        lambda b, s, t: image.non_max_suppression_with_scores(b, s, 9, t)[0],
        (BOXES, SCORES, LIMITS - 0.2), r"not in \[0, 1\]"),
})  # fmt: skip
