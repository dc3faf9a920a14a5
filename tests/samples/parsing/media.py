"""Samples of tf_pfor/converters/parsing/media.py: images and sounds of one shape."""

import base64

import numpy as np
import tensorflow as tf

from tests.sample import In, drawn, ints, normal, sample, uniform
from tests.samples.parsing.text import PLAIN, texts

raw = tf.raw_ops
PICTURES = [np.random.default_rng(i).integers(0, 255, [4, 5, 3]).astype(np.uint8) for i in range(3)]
JPEG = [tf.io.encode_jpeg(x).numpy() for x in PICTURES]
PNG = [tf.io.encode_png(x).numpy() for x in PICTURES]
WAV = [tf.audio.encode_wav(tf.ones([6, 1]) * i / 4.0, 8000).numpy() for i in range(3)]
TENSORS = [tf.io.serialize_tensor(tf.ones([2]) * i).numpy() for i in range(3)]
WEBP = base64.b64decode("UklGRiQAAABXRUJQVlA4IBgAAAAwAQCdASoBAAEAAwA0JaQAA3AA/vuUAAA=")
GIF = base64.b64decode("R0lGODlhAQABAIAAAAAAAP///yH5BAEAAAAALAAAAAABAAEAAAIBRAA7")


def bitmap(blue):
    """One pixel."""
    head = b"BM" + (58).to_bytes(4, "little") + bytes(4) + (54).to_bytes(4, "little")
    info = (40).to_bytes(4, "little") + (1).to_bytes(4, "little") * 2
    more = (1).to_bytes(2, "little") + (24).to_bytes(2, "little") + bytes(24)
    return head + info + more + bytes([blue, 2, 3, 0])


def window():
    return drawn((4,), lambda rng: np.asarray([rng.integers(0, 2), 1, 2, 2], np.int32))


def image(*shape) -> In:
    return ints(*shape, high=255, dtype=np.uint8)


def decoder(op_type, of, shape, label="", **attrs):
    """A sample of a decoder of one text, of which the shape is said."""

    def fn(x):
        return tf.ensure_shape(getattr(raw, op_type)(contents=x, **attrs), shape)

    return sample(op_type, fn, texts(of=of), label=label, **PLAIN)


SAMPLES = [
    sample("DecodeAndCropJpeg",
        lambda x, window: tf.ensure_shape(tf.io.decode_and_crop_jpeg(x, window, channels=3),
        [2, 2, 3]), texts(of=JPEG), window(), **PLAIN),
    decoder("DecodeBmp", [bitmap(1), bitmap(200)], [1, 1, 3]),
    decoder("DecodeGif", [GIF], [1, 1, 1, 3]),
    decoder("DecodeImage", [*JPEG, *PNG], [4, 5, 3], channels=3),
    decoder("DecodeImage", PNG, [4, 5, 3], "floats", channels=3, dtype=tf.float32),
    decoder("DecodeJpeg", JPEG, [4, 5, 1], channels=1),
    decoder("DecodePng", PNG, [4, 5, 4], channels=4, dtype=tf.uint16),
    sample("DecodeWav", lambda x: tf.audio.decode_wav(x, desired_channels=1, desired_samples=4),
        texts(of=WAV), **PLAIN),
    decoder("DecodeWebP", [WEBP], [1, 1, 1, 3], channels=3),
    sample("EncodeJpeg", lambda x: tf.io.encode_jpeg(x, quality=80), image(4, 5, 3), **PLAIN),
    sample("EncodeJpegVariableQuality",
        lambda x, quality: raw.EncodeJpegVariableQuality(images=x, quality=quality), image(4, 5, 3),
        ints(low=50, high=90), **PLAIN),
    sample("EncodePng", tf.io.encode_png, image(4, 5, 3), **PLAIN),
    sample("EncodePng", tf.io.encode_png, image(2, 4, 5, 1), label="several", **PLAIN),
    sample("EncodeWav", lambda x, rate: tf.audio.encode_wav(x, rate), uniform(6, 2),
           ints(low=8000, high=9000), **PLAIN),
    sample("ExtractJpegShape", tf.io.extract_jpeg_shape, texts(of=JPEG), **PLAIN),
    sample("ParseTensor", lambda x: tf.ensure_shape(tf.io.parse_tensor(x, tf.float32), [2]),
        texts(of=TENSORS), **PLAIN),
    sample("SerializeTensor", tf.io.serialize_tensor, normal(2, 3), **PLAIN),
    sample("StatelessSampleDistortedBoundingBox",
        lambda seed: list(tf.image.stateless_sample_distorted_bounding_box([30, 40, 3],
        np.float32([[[0.1, 0.1, 0.8, 0.8]]]), seed)), ints(2, high=1000), **PLAIN),
]  # fmt: skip
