"""``doctor``: installed packages, devices, checks that tf_pfor works, and known faults."""

from __future__ import annotations

import glob
import importlib.metadata
import os
import platform
import textwrap
from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf

from tf_pfor.api.vmap import vmap
from tf_pfor.derivatives.functional import jacrev
from tf_pfor.version import __version__

OLDEST, NEWEST = (2, 16), (2, 21)
_PACKAGES = ("keras", "tf-keras", "tensorflow-probability", "tqdm", "jax")

# Faults of TensorFlow that concern writers of loops: the first and the last version in which the
# fault was seen, and the fault. Graphs that tf_pfor emits meet none of them.
_FACTS: tuple[tuple[tuple[int, int], tuple[int, int], str], ...] = (
    (
        (2, 21),
        (2, 21),
        "On CPUs a BatchMatMulV2 of a rank-4 by a rank-2 operand ends the process. tf_pfor makes "
        "none of it; tf.vectorized_map without tf_pfor.drop_in() does (Keras' MultiHeadAttention).",
    ),
    (
        (2, 21),
        (2, 21),
        "Constant folding of tensors without elements may divide by zero and end the process, as "
        "in a hessian of tf.reduce_sum(x**2) ** 3 over no rows, outside of tf_pfor.",
    ),
)


class Doctor:
    """The findings of ``python -m tf_pfor doctor``.

    Attributes:
      versions: the version of each package.
      devices: the physical devices of TensorFlow.
      checks: for each check "works", or the fault.
      problems: the faults that must be mended on this machine.
      facts: known faults of this TensorFlow that need no change.
    """

    def __init__(self) -> None:
        self.versions = _versions()
        devices: list[Any] = tf.config.list_physical_devices()
        self.devices = [d.name.removeprefix("/physical_device:") for d in devices]
        self.checks = {name: _tried(check) for name, check in _CHECKS.items()}
        self.problems = _problems()
        self.problems += [f"{k} does not work: {v}" for k, v in self.checks.items() if v != _WORKS]
        at = _version()
        self.facts = [text for first, last, text in _FACTS if first <= at <= last]

    @property
    def is_well(self) -> bool:
        """Whether there are no problems."""
        return not self.problems

    def to_dict(self) -> dict[str, Any]:
        """Everything as dicts, lists and strings, ready for JSON."""
        names = ("versions", "devices", "checks", "problems", "facts")
        return {name: getattr(self, name) for name in names}

    def text(self, width: int = 100) -> str:
        """Text for a terminal."""
        pairs = {**self.versions, "devices": ", ".join(self.devices), **self.checks}
        wide = max(map(len, pairs))
        lines = [f"{name:<{wide}}  {text}" for name, text in pairs.items()]
        for title, texts in (("Problems", self.problems), ("Known of this TensorFlow", self.facts)):
            lines += ["", f"{title}: {'none' if not texts else ''}".rstrip()]
            for text in texts:
                lines += textwrap.wrap(text, width, initial_indent="- ", subsequent_indent="  ")
        return "\n".join(lines)

    def __str__(self) -> str:
        return self.text()


def _version() -> tuple[int, int]:
    major, minor = tf.__version__.split(".")[:2]
    return int(major), int(minor)


def _versions() -> dict[str, str]:
    gpu = "with" if tf.test.is_built_with_gpu_support() else "no"
    found = {
        "tf_pfor": __version__,
        "Python": f"{platform.python_version()}, {platform.system()} {platform.machine()}",
        "TensorFlow": f"{tf.__version__}, {gpu} GPU support",
        "numpy": np.__version__,
    }
    for name in _PACKAGES:
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found


def _problems() -> list[str]:
    found: list[str] = []
    if not OLDEST <= _version() <= NEWEST:
        found.append(
            f"TensorFlow {tf.__version__} is not one of 2.16 to 2.21, on which tf_pfor is tested: "
            'pip install "tensorflow>=2.16,<2.22".'
        )
    if os.environ.get("TF_USE_LEGACY_KERAS", "0") not in ("", "0", "False", "false"):
        found.append(
            "TF_USE_LEGACY_KERAS is set: tf.keras is Keras 2, and tf_pfor is made for Keras 3. "
            "Unset it unless a library (TensorFlow Probability) asks for it."
        )
    if glob.glob("/dev/nvidia[0-9]*") and not tf.config.list_physical_devices("GPU"):
        found.append(
            "This machine has an NVIDIA GPU, and TensorFlow sees none. pip install "
            '"tensorflow[and-cuda]" brings them. TF_CPP_MIN_LOG_LEVEL=0 shows what is missing.'
        )
    return found


# ---------------------------------------------------------------------------
# What is tried
# ---------------------------------------------------------------------------

_WORKS = "works"
_ROWS = np.arange(12, dtype=np.float32).reshape(4, 3)


def _one(x: tf.Tensor) -> tf.Tensor:
    return tf.reduce_sum(tf.tanh(x) * x)


_SUMS = (np.tanh(_ROWS) * _ROWS).sum(1)
_SLOPES = np.tanh(_ROWS) + _ROWS * (1 - np.tanh(_ROWS) ** 2)
_CHECKS: dict[str, Callable[[], bool]] = {
    "a map": lambda: np.allclose(vmap(_one)(_ROWS), _SUMS, 1e-5),
    "its gradient": lambda: np.allclose(vmap(jacrev(_one))(_ROWS), _SLOPES, 1e-4, 1e-5),
    "jit_compile": lambda: np.allclose(vmap(_one, jit_compile=True)(_ROWS), _SUMS, 1e-5),
}


def _tried(check: Callable[[], bool]) -> str:
    try:
        return _WORKS if check() else "the numbers are wrong"
    except Exception as why:  # whatever it is: it is what was asked
        return f"{type(why).__name__}: {str(why).splitlines()[0]}"
