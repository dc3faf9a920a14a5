"""Samples of tf_pfor/converters/parsing/raw.py."""

import tensorflow as tf

from tests.sample import sample
from tests.samples.parsing.text import PLAIN, texts

BYTES = [b"abcd", b"efgh", b"\x00\x01\xff\xfe"]


def decoded(x):
    found = tf.io.decode_raw(x, tf.int16, little_endian=False)
    found.set_shape([2, 2])
    return found


SAMPLES = [
    sample(
        "DecodePaddedRaw", lambda x: tf.io.decode_raw(x, tf.int16, fixed_length=6),
        texts(2, of=[b"abc", b"", b"abcdefgh"]), **PLAIN,
    ),
    sample("DecodeRaw", decoded, texts(2, of=BYTES), **PLAIN, max_ops=32),
]  # fmt: skip
