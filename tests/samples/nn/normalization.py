"""Samples of tf_pfor/converters/nn/normalization.py."""

import numpy as np
import tensorflow as tf

from tests.sample import normal, sample, uniform

raw = tf.raw_ops
NONE = np.zeros([0], np.float32)
# Sums over the batch in another order, then divided by small deviations.
LONG = {"rtol": 1e-4, "atol": 1e-4, "max_ops": 40}


def forward(version, training, image=(2, 3, 4, 3), label="", dtype=np.float32, **options):
    """A batch norm; its statistics too where it computes them."""
    op, form = f"FusedBatchNorm{version}", "NDHWC" if len(image) == 5 else "NHWC"
    c = image[-1]

    def emit(x, scale, offset, mean, variance):
        found = getattr(raw, op)(
            x=x, scale=scale, offset=offset, mean=NONE if training else mean,
            variance=NONE if training else variance, is_training=training, epsilon=1e-3,
            data_format=form,
        )  # fmt: skip
        return [found[0], found[1], found[2]]

    mean, variance = normal(c), uniform(c)
    return sample(
        op, emit, normal(*image, dtype=dtype), normal(c), normal(c),
        mean.fixed if training else mean, variance.fixed if training else variance,
        label=("training" if training else "inference") + label, **{**LONG, **options},
    )  # fmt: skip


def backward(version, training, image=(2, 3, 4, 3), label=""):
    """The gradient of a batch norm."""
    op, c = f"FusedBatchNormGrad{version}", image[-1]
    form = "NDHWC" if len(image) == 5 else "NHWC"

    def emit(dy, x, scale, first, second):
        more = {"reserve_space_3": NONE} if version == "V3" else {}
        found = getattr(raw, op)(
            y_backprop=dy, x=x, scale=scale, reserve_space_1=first, reserve_space_2=second,
            is_training=training, epsilon=1e-3, data_format=form, **more,
        )  # fmt: skip
        return list(found)[:3]

    return sample(
        op, emit, normal(*image), normal(*image), normal(c), normal(c), uniform(c),
        label=("training" if training else "inference") + label, **LONG,
        grad=not training,  # mean and variance are x's own in truth: as free inputs it is wrong
    )  # fmt: skip


SAMPLES = [
    *[forward(v, t) for v in ("", "V2", "V3") for t in (True, False)],
    *[backward(v, t) for v in ("", "V2", "V3") for t in (True, False)],
    forward("V3", True, (1, 2, 3, 2, 2), "-space"),
    forward("V3", False, (1, 2, 3, 2, 2), "-space"),
    forward("V3", False, (1, 3, 2, 2), "-half", np.float16, rtol=1e-2, atol=1e-2, grad=False),
    sample("LRN", lambda x: tf.nn.local_response_normalization(x, 2), normal(2, 3, 3, 7)),
    sample(
        "LRNGrad",
        lambda g, x, y: raw.LRNGrad(input_grads=g, input_image=x, output_image=y),
        normal(1, 2, 3, 7), normal(1, 2, 3, 7), normal(1, 2, 3, 7), grad=False,  # it has none
    ),
]  # fmt: skip
