"""Fourier transforms: kernels that take any leading dimensions."""

from __future__ import annotations

from typing import Any

from tf_pfor.converters.math._families import native_batch, table
from tf_pfor.core.call import Call
from tf_pfor.core.registry import RegisterPFor
from tf_pfor.core.values import Value

native_batch(table("FFT FFT2D FFT3D IFFT IFFT2D IFFT3D"))


@RegisterPFor("IRFFT IRFFT2D IRFFT3D RFFT RFFT2D RFFT3D", ("input",))
def real_fft(call: Call, input: Value, fft_length: Value) -> Any:
    """The kernel works on the last axes, which the loop in front does not move."""
    return call.rebuild()
