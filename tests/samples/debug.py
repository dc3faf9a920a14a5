"""Samples of tf_pfor/converters/debug.py: that it converts everywhere; test_debug.py has what is
printed and raised."""

import tempfile

import tensorflow as tf

from tests.harness import normal, sample, uniform

r = tf.raw_ops
WRITER = tf.summary.create_file_writer(tempfile.mkdtemp())._resource


def _assert(x):
    r.Assert(condition=tf.reduce_all(x < 5.0), data=["too large:", x])
    return x + 1.0


def _print(x):
    r.PrintV2(input=r.StringFormat(inputs=[x], template="%s"), output_stream="log(info)")
    return x + 1.0


def _print_v1(x):
    return r.Print(input=x, data=[x], message="", first_n=0) + 1.0


def _python(x):
    return tf.py_function(lambda v: v * 2.0, [x], tf.float32, name="double")


def _shaped(made, x):
    return tf.ensure_shape(made, x.shape)


def _numpy(op_type):
    stateful = op_type == "PyFunc"

    def body(x):
        made = tf.numpy_function(lambda v: v * 2, [x], tf.float32, stateful=stateful)
        return _shaped(made, x)

    return body


def _write(op_type, **inputs):
    def body(x):
        given = {k: f(x) for k, f in inputs.items()}
        getattr(r, op_type)(writer=WRITER, step=tf.constant(1, tf.int64), **given)
        return x + 1.0

    return body


def _tag(_):
    return "tag"


def _image(x):
    return tf.clip_by_value(tf.reshape(x, [1, 2, 1, 1]), 0.0, 1.0)


def _effect(op_type):
    def body(x):
        getattr(r, op_type)(writer=WRITER)
        return x + 1.0

    return body


def _one(op_type, fn, **options):
    """Python and files: nothing that XLA compiles."""
    options = {"grad": False, "xla": False, "max_ops": 40, **options}
    return sample(op_type, fn, uniform(2), **options)


def _string(x):
    return tf.strings.length(r.StringFormat(inputs=[x], template="%s"))


SAMPLES = [
    sample("Assert", _assert, normal(2)),
    _one("EagerPyFunc", lambda x: _shaped(_python(x), x)),
    _one("FlushSummaryWriter", _effect("FlushSummaryWriter"), unknown=False),
    _one("Print", _print_v1),
    _one("PrintV2", _print),
    _one("PyFunc", _numpy("PyFunc")),
    _one("PyFuncStateless", _numpy("PyFuncStateless")),
    _one("StringFormat", _print, label="printed"),
    _one("WriteAudioSummary", _write(
        "WriteAudioSummary", tag=_tag, tensor=lambda x: x[None, :, None],
        sample_rate=lambda _: 44100.0)),
    _one("WriteHistogramSummary", _write("WriteHistogramSummary", tag=_tag, values=tf.identity)),
    _one("WriteImageSummary", _write(
        "WriteImageSummary", tag=_tag, tensor=_image,
        bad_color=lambda _: tf.constant([255, 0, 0, 255], tf.uint8))),
    _one("WriteScalarSummary", _write("WriteScalarSummary", tag=_tag, value=lambda x: x[0])),
    _one("WriteSummary", _write(
        "WriteSummary", tensor=tf.identity, tag=_tag, summary_metadata=lambda _: "")),
]  # fmt: skip
