"""Samples of tf_pfor/converters/state/debug.py: that it converts everywhere; test_debug.py has what
is printed and raised."""

import tensorflow as tf

from tests.sample import normal, sample, uniform

r = tf.raw_ops


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


def _one(op_type, fn, **options):
    """Python and files: nothing that XLA compiles."""
    options = {"grad": False, "xla": False, "max_ops": 40, **options}
    return sample(op_type, fn, uniform(2), **options)


def _string(x):
    return tf.strings.length(r.StringFormat(inputs=[x], template="%s"))


SAMPLES = [
    sample("Assert", _assert, normal(2)),
    _one("EagerPyFunc", lambda x: _shaped(_python(x), x)),
    _one("Print", _print_v1),
    _one("PrintV2", _print),
    _one("PyFunc", _numpy("PyFunc")),
    _one("PyFuncStateless", _numpy("PyFuncStateless")),
    _one("StringFormat", _print, label="printed"),
]  # fmt: skip
