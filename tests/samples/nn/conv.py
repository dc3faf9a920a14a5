"""Samples of tf_pfor/converters/nn/conv.py."""

import numpy as np
import tensorflow as tf

from tests.sample import normal, sample

raw = tf.raw_ops
# Filter gradients sum over many positions, in another order than one row's kernel does.
LONG = {"rtol": 1e-4, "atol": 1e-4}
F64 = {"rtol": 1e-11, "atol": 1e-11}
HALF = {"rtol": 2e-2, "atol": 5e-2}  # products are rounded to 10 bits
# What the sums over positions and taps may cost in ops: one slice for each tap of each axis.
OPS = {"max_ops": 40}
CASES = {
    "valid": {"padding": "VALID"},
    "stride": {"padding": "SAME", "strides": (2, 2)},
    "strides-1x2": {"padding": "VALID", "strides": (1, 2)},
    "dilated": {"padding": "SAME", "dilations": (2, 1)},
    "explicit": {"padding": "EXPLICIT", "explicit": ((1, 0), (1, 2))},
}


def _grouped():
    """A grouped convolution, with its gradients where TensorFlow has them: on CPUs with oneDNN."""
    case = "groups", (2, 5, 5, 4), (3, 3, 2, 6)
    filters, upstream = tf.ones([3, 3, 2, 6]), tf.ones([2, 5, 5, 6])
    gradient = tf.function(
        lambda f, dy: raw.Conv2DBackpropInput(
            input_sizes=[2, 5, 5, 4], filter=f, out_backprop=dy, strides=[1] * 4, padding="SAME"
        )
    )
    try:
        gradient(filters, upstream)
    except tf.errors.InvalidArgumentError:
        return conv2d(*case, names="Conv2D", options={"grad": False})
    return conv2d(*case)


def attributes(padding="SAME", strides=(1, 1), dilations=(1, 1), explicit=(), nchw=False):
    """The attributes of a 2-D convolution."""

    def four(pair):
        return [1, 1, *pair] if nchw else [1, *pair, 1]

    found = {
        "padding": padding, "strides": four(strides), "dilations": four(dilations),
        "data_format": "NCHW" if nchw else "NHWC",
    }  # fmt: skip
    if explicit:
        pairs = [(0, 0), (0, 0), *explicit] if nchw else [(0, 0), *explicit, (0, 0)]
        found["explicit_paddings"] = [p for pair in pairs for p in pair]
    return found


def _three(op_type, suffixes, image, kernel, dtype, attrs, label, options):
    """A convolution and its gradients by the image and by the filter."""
    forward, by_image, by_filter = (getattr(raw, op_type + s) for s in ("", *suffixes))
    spec = tf.function(lambda x, f: forward(input=x, filter=f, **attrs)).get_concrete_function(
        tf.TensorSpec(image, dtype), tf.TensorSpec(kernel, dtype)
    )
    y = tuple(spec.outputs[0].shape.as_list())
    x, f, dy = normal(*image, dtype=dtype), normal(*kernel, dtype=dtype), normal(*y, dtype=dtype)

    def of_image(f, dy):
        return by_image(input_sizes=image, filter=f, out_backprop=dy, **attrs)

    def of_filter(x, dy):
        return by_filter(input=x, filter_sizes=kernel, out_backprop=dy, **attrs)

    options = {"label": label, **LONG, **options}
    return [
        sample(op_type, lambda x, f: forward(input=x, filter=f, **attrs), x, f, **options),
        sample(op_type + suffixes[0], of_image, f, dy, **options),
        sample(op_type + suffixes[1], of_filter, x, dy, **options),
    ]


def conv2d(label, image, kernel, dtype=np.float32, nchw=False, names="", options=None, **case):
    """A convolution and its two gradients; ``names`` picks some of them."""
    of = ("Conv2D", ("BackpropInput", "BackpropFilter"), image, kernel, dtype)
    made = _three(*of, attributes(nchw=nchw, **case), label, {**OPS, **(options or {})})
    return [s for s in made if not names or s.op_type in names.split()]


def depthwise(label, image, kernel, dtype=np.float32, options=None, **case):
    """A depthwise convolution and its two gradients."""
    of = ("DepthwiseConv2dNative", ("BackpropInput", "BackpropFilter"), image, kernel, dtype)
    return _three(*of, attributes(**case), label, options or {})


def conv3d(label, image, kernel, dtype=np.float32, strides=(1, 1, 1), padding="SAME", **options):
    """A convolution in space and its two gradients."""
    of = ("Conv3D", ("BackpropInputV2", "BackpropFilterV2"), image, kernel, dtype)
    attrs = {"strides": [1, *strides, 1], "padding": padding}
    return _three(*of, attrs, label, {**OPS, **options})


SAMPLES = [
    *conv2d("", (2, 5, 6, 3), (3, 2, 3, 4)),
    *[s for label, case in CASES.items()
        for s in conv2d(label, (1, 6, 7, 2), (3, 3, 2, 3), **case)],
    *conv2d("1x1", (1, 4, 4, 3), (1, 1, 3, 2)),
    *conv2d("1x1-stride", (1, 5, 4, 3), (1, 1, 3, 2), strides=(2, 2)),
    *conv2d("f64", (1, 6, 5, 2), (3, 3, 2, 3), np.float64, options=F64, strides=(2, 2)),
    *_grouped(),
    *conv2d("half", (1, 4, 4, 2), (2, 2, 2, 3), np.float16, options={**HALF, "grad": False}),
    *depthwise("", (2, 5, 6, 3), (3, 2, 3, 2)),
    *depthwise("valid-stride", (1, 6, 6, 2), (3, 3, 2, 1), padding="VALID", strides=(2, 2)),
    *depthwise("explicit-f64", (1, 5, 5, 2), (3, 3, 2, 2), np.float64, options=F64,
        padding="EXPLICIT", explicit=((1, 0), (2, 1))),
    *conv3d("", (2, 3, 4, 3, 2), (2, 2, 3, 2, 3)),
    *conv3d("stride-f64", (1, 4, 5, 4, 2), (2, 3, 2, 2, 2), np.float64, (2, 1, 2), "VALID", **F64),
    sample(
        "Conv", lambda x, f: raw.Conv(input=x, filter=f, strides=[1, 1, 2, 1], padding="SAME"),
        normal(2, 5, 5, 2), normal(3, 3, 2, 3).fixed, grad=False,  # it has no gradient
    ),
    sample("ExtractImagePatches",
        lambda x: tf.image.extract_patches(x, [1, 2, 3, 1], [1, 2, 1, 1], [1, 1, 2, 1], "SAME"),
        normal(2, 5, 6, 2)),
    sample(
        "ExtractVolumePatches",
        lambda x: tf.extract_volume_patches(x, [1, 2, 2, 1, 1], [1, 1, 2, 1, 1], "VALID"),
        normal(1, 4, 4, 3, 2), xla=False,  # XLA has no such op
    ),
]  # fmt: skip
