"""Samples of tf_pfor/converters/nn/pool.py."""

import numpy as np
import tensorflow as tf

from tests.sample import fixed, ints, normal, sample

raw = tf.raw_ops
PLAIN = {"ksize": [1, 2, 3, 1], "strides": [1, 2, 2, 1], "padding": "SAME"}
SPACE = {"ksize": [1, 2, 2, 1, 1], "strides": [1, 2, 1, 1, 1], "padding": "VALID"}
IMAGE, POOLED = (2, 5, 6, 2), (2, 3, 3, 2)
VOLUME, SMALL = (2, 4, 3, 2, 2), (2, 2, 2, 2, 2)
EXPLICIT = {
    "ksize": [1, 2, 2, 1], "strides": [1, 2, 2, 1], "padding": "EXPLICIT",
    "explicit_paddings": [0, 0, 1, 0, 0, 1, 0, 0],
}  # fmt: skip


def v1(attrs):
    return {"ksize": attrs["ksize"], "strides": attrs["strides"], "padding": attrs["padding"]}


def max_grad(op, image, pooled, back, label="", attrs=PLAIN, **options):
    """A gradient of a max pool whose output belongs to its input; ``back`` is grad's shape."""

    def emit(x, grad):
        forward = tf.raw_ops.MaxPool3D if len(image) == 5 else tf.raw_ops.MaxPool
        y = forward(input=x, **attrs)
        return getattr(raw, op)(orig_input=x, orig_output=y, grad=grad, **attrs)

    return sample(op, emit, normal(*image), normal(*back), label=label, **options)


SAMPLES = [
    sample("MaxPool", lambda x: raw.MaxPool(input=x, **PLAIN), normal(*IMAGE)),
    sample(
        "MaxPool", lambda x: raw.MaxPool(input=x, **EXPLICIT), normal(*IMAGE), label="explicit",
        xla=False,  # XLA's max pool has no explicit padding
    ),
    sample(
        "MaxPool",
        lambda x: raw.MaxPool(
            input=x, ksize=[1, 1, 1, 3], strides=[1, 1, 1, 3], padding="VALID"
        ),
        normal(2, 3, 3, 6), label="depth", grad=False,  # its gradient has no CPU kernel
    ),
    sample("MaxPool", lambda x: raw.MaxPool(input=x, **PLAIN), normal(*IMAGE, dtype=np.float64),
        label="f64"),
    sample("MaxPoolV2", lambda x: raw.MaxPoolV2(input=x, **PLAIN), normal(*IMAGE)),
    sample("MaxPool3D", lambda x: raw.MaxPool3D(input=x, **SPACE), normal(*VOLUME)),
    sample("AvgPool", lambda x: raw.AvgPool(value=x, **PLAIN), normal(*IMAGE)),
    sample("AvgPool3D", lambda x: raw.AvgPool3D(input=x, **SPACE), normal(*VOLUME)),
    max_grad("MaxPoolGrad", IMAGE, POOLED, POOLED, max_ops=20),
    sample(
        "MaxPoolGrad",
        lambda x, y, g: raw.MaxPoolGrad(orig_input=x, orig_output=y, grad=g, **PLAIN),
        normal(*IMAGE), normal(*POOLED), normal(*POOLED), label="three",
        grad=False,  # orig_output does not belong to orig_input: meaningless
        max_ops=20,
    ),
    max_grad("MaxPoolGradGrad", IMAGE, POOLED, IMAGE, max_ops=20),
    max_grad(
        "MaxPoolGradGrad", IMAGE, IMAGE, IMAGE, label="same-size", max_ops=20,
        attrs={**PLAIN, "strides": [1, 1, 1, 1], "padding": "SAME"},
        grad=False,  # by the image: None, where TensorFlow has zeros
    ),
    max_grad("MaxPoolGradV2", IMAGE, POOLED, POOLED, max_ops=20),
    max_grad("MaxPoolGradGradV2", IMAGE, POOLED, IMAGE, max_ops=20, grad=False),  # no gradient
    max_grad("MaxPool3DGrad", VOLUME, SMALL, SMALL, attrs=SPACE, max_ops=20),
    max_grad("MaxPool3DGradGrad", VOLUME, SMALL, VOLUME, attrs=SPACE, max_ops=20),
    sample("AvgPoolGrad", lambda g: raw.AvgPoolGrad(orig_input_shape=IMAGE, grad=g, **PLAIN),
        normal(*POOLED)),
    sample("AvgPool3DGrad", lambda g: raw.AvgPool3DGrad(orig_input_shape=VOLUME, grad=g, **SPACE),
        normal(*SMALL)),
    *[
        sample(
            "MaxPoolWithArgmax",
            lambda x, b=b: list(raw.MaxPoolWithArgmax(input=x, include_batch_in_index=b, **PLAIN)),
            normal(*IMAGE), label=f"batch-{b}", xla=False,  # XLA has no such op
        )
        for b in (False, True)
    ],
    sample(
        "MaxPoolWithArgmax",
        lambda x: list(
            raw.MaxPoolWithArgmax(
                input=x, include_batch_in_index=True, Targmax=tf.int32, **PLAIN
            )
        ),
        normal(1, 4, 4, 1), label="one-image", xla=False,
        grad=False,  # of int32 positions it has no kernel
    ),
    *[
        sample(
            "MaxPoolGradWithArgmax",
            lambda x, g, a, b=b: raw.MaxPoolGradWithArgmax(
                input=x, grad=g, argmax=a + (np.reshape([0, 60], [2, 1, 1, 1]) if b else 0),
                include_batch_in_index=b, **PLAIN,
            ),
            normal(*IMAGE), normal(*POOLED), ints(*POOLED, high=60, dtype=np.int64),
            label=f"batch-{b}", grad=False, xla=False, max_ops=20,  # neither exists
        )
        for b in (False, True)
    ],
    sample(
        "FractionalMaxPoolGrad",
        lambda x, g, rows, cols: raw.FractionalMaxPoolGrad(
            orig_input=x, orig_output=tf.reshape(
                tf.stack([x[:, 0, 0], x[:, 0, 2], x[:, 3, 0], x[:, 3, 2]], 1), [1, 2, 2, 2]
            ), out_backprop=g, row_pooling_sequence=rows, col_pooling_sequence=cols,
        ),
        normal(1, 4, 4, 2), normal(1, 2, 2, 2), fixed(np.int64([0, 2, 4])),
        fixed(np.int64([0, 2, 4])), grad=False, xla=False,  # no gradient; XLA has no such op
        max_ops=60,
    ),
    sample(
        "FractionalAvgPoolGrad",
        lambda g: raw.FractionalAvgPoolGrad(
            orig_input_tensor_shape=np.int64([1, 4, 5, 2]), out_backprop=g,
            row_pooling_sequence=np.int64([0, 2, 4]), col_pooling_sequence=np.int64([0, 2, 5]),
        ),
        normal(1, 2, 2, 2), grad=False, xla=False,  # no gradient; XLA has no such op
    ),
]  # fmt: skip
