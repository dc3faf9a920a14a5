"""Sweep of tf.signal."""

from __future__ import annotations

import numpy as np

from tools.sweep.cases import Case, call, each, floats, integers, positive

SIGNAL: list[Case] = [
    *each("tf.signal", "fft ifft", floats(8, dtype=np.complex64)),
    *each("tf.signal", "fft2d ifft2d fftshift ifftshift", floats(4, 4, dtype=np.complex64)),
    *each("tf.signal", "fft3d ifft3d", floats(2, 4, 4, dtype=np.complex64)),
    call("tf.signal.fftnd", floats(4, 4, dtype=np.complex64), [4, 4], [0, 1]),
    call("tf.signal.ifftnd", floats(4, 4, dtype=np.complex64), [4, 4], [0, 1]),
    call("tf.signal.rfftnd", floats(4, 4), [4, 4], [0, 1]),
    call("tf.signal.irfftnd", floats(4, 3, dtype=np.complex64), [4, 4], [0, 1]),
    call("tf.signal.rfft", floats(8)),
    call("tf.signal.rfft2d", floats(4, 4)),
    call("tf.signal.rfft3d", floats(2, 4, 4)),
    call("tf.signal.irfft", floats(5, dtype=np.complex64)),
    call("tf.signal.irfft2d", floats(4, 3, dtype=np.complex64)),
    call("tf.signal.irfft3d", floats(2, 4, 3, dtype=np.complex64)),
    call("tf.signal.dct", floats(8)),
    call("tf.signal.idct", floats(8)),
    call("tf.signal.mdct", floats(16), 4),
    call("tf.signal.inverse_mdct", floats(4, 4)),
    call("tf.signal.frame", floats(9), 4, 2),
    call("tf.signal.overlap_and_add", floats(3, 4), 2),
    call("tf.signal.stft", floats(16), 8, 4),
    call("tf.signal.inverse_stft", floats(3, 5, dtype=np.complex64), 8, 4),
    call("tf.signal.mfccs_from_log_mel_spectrograms", floats(3, 8)),
    call("tf.signal.hann_window", integers(low=4, high=8)),
    call("tf.signal.kaiser_window", 8, positive()),
]
