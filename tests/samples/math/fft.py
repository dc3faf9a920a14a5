"""Samples of tf_pfor/converters/math/fft.py."""

import numpy as np
import tensorflow as tf

from tests.sample import fixed, normal, sample

C64 = np.complex64


def real(name, *length):
    return lambda x: getattr(tf.raw_ops, name)(input=x, fft_length=list(length))


SAMPLES = [
    sample("FFT", tf.signal.fft, normal(4, dtype=C64)),
    sample("FFT", tf.signal.fft, normal(2, 5, dtype=np.complex128), label="complex128"),
    sample("FFT2D", tf.signal.fft2d, normal(4, 3, dtype=C64)),
    sample("FFT3D", tf.signal.fft3d, normal(2, 4, 3, dtype=C64)),
    sample("IFFT", tf.signal.ifft, normal(2, 4, dtype=C64)),
    sample("IFFT2D", tf.signal.ifft2d, normal(4, 3, dtype=C64)),
    sample("IFFT3D", tf.signal.ifft3d, normal(2, 2, 4, 3, dtype=C64)),
    sample("IRFFT", real("IRFFT", 6), normal(4, dtype=C64)),
    sample("IRFFT2D", real("IRFFT2D", 4, 6), normal(2, 4, 4, dtype=C64)),
    sample("IRFFT3D", real("IRFFT3D", 2, 4, 6), normal(2, 4, 4, dtype=C64), grad=False),
    sample("RFFT", real("RFFT", 6), normal(2, 6)),
    # TensorFlow's gradient takes no shorter length.
    sample("RFFT", real("RFFT", 4), normal(6), label="cut", grad=False),
    sample("RFFT", lambda x, n: tf.raw_ops.RFFT(input=x, fft_length=n), normal(6),
        fixed(np.int32([6])), label="length_is_input", xla=False),
    sample("RFFT2D", tf.signal.rfft2d, normal(4, 5, dtype=np.float64)),
    sample("RFFT3D", real("RFFT3D", 2, 4, 5), normal(2, 4, 5), grad=False),
]  # fmt: skip
