"""Samples of tf_pfor/converters/state/generator.py: it converts everywhere.

``test_random.py`` compares the numbers and the state with the loop.
"""

import tensorflow as tf

from tests.sample import normal, sample

r = tf.raw_ops
GENERATOR = tf.random.Generator.from_seed(1)
HANDLE = GENERATOR.state.handle


def _drawn(op_type, fn, **options):
    # Drawing moves the state on: every run gives other numbers.
    options = {"grad": False, "xla": False, "random": True, "max_ops": 60, **options}
    return sample(op_type, fn, normal(2), **options)


def _skip(x):
    r.RngSkip(resource=HANDLE, algorithm=tf.constant(1, tf.int64), delta=tf.constant(3, tf.int64))
    return x


def _stateful(op_type, **inputs):
    def body(x):
        made = getattr(r, op_type)(
            resource=HANDLE, algorithm=tf.constant(1, tf.int64), shape=[2], **inputs
        )
        return x + tf.cast(made, tf.float32)

    return body


SAMPLES = [
    # The uniform numbers are drawn by Philox in ten rounds of integer ops.
    _drawn("RngReadAndSkip", lambda x: x + GENERATOR.uniform([2]), max_ops=220),
    _drawn("RngSkip", _skip),
    _drawn("StatefulRandomBinomial", _stateful("StatefulRandomBinomial", counts=5.0, probs=0.5)),
    _drawn("StatefulStandardNormalV2", _stateful("StatefulStandardNormalV2")),
    _drawn("StatefulTruncatedNormal", _stateful("StatefulTruncatedNormal")),
    _drawn("StatefulUniform", _stateful("StatefulUniform")),
    _drawn("StatefulUniformFullInt", _stateful("StatefulUniformFullInt")),
    _drawn("StatefulUniformInt", _stateful("StatefulUniformInt", minval=1, maxval=9)),
]
