"""Progress of blocks of iterations: a bar for an eager call, lines in a graph."""

from __future__ import annotations

import importlib
import sys
import threading
from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from tf_pfor import _tf
from tf_pfor.core.emit import Dim
from tf_pfor.core.errors import ArgumentError

_LINES = 20  # at most, in a graph


class Bar:
    """A bar of one eager call: tqdm's if that is installed, else Keras'."""

    def __init__(self, name: str):
        self._name, self._shown, self._done = name, None, 0
        self._lock = threading.Lock()
        self._is_keras = False

    def after(
        self, results: Sequence[tf.Tensor], done: tf.Tensor, total: Dim, block: int
    ) -> list[tf.Tensor]:
        """``results``, which show that so many iterations are done when they are there."""
        del block
        with tf.control_dependencies(results):
            step = tf.numpy_function(self._step, [done, tf.cast(total, tf.int32)], [])
        with tf.control_dependencies([step]):
            return [tf.identity(x) for x in results]

    def _step(self, done: np.ndarray, total: np.ndarray) -> None:
        with self._lock:
            if self._shown is None:
                self._shown = self._made(int(total))
            if self._is_keras:
                self._shown.update(int(done))
            else:
                self._shown.update(int(done) - self._done)
            self._done = int(done)

    def _made(self, total: int) -> Any:
        try:
            tqdm = importlib.import_module("tqdm")
        except ImportError:
            self._is_keras = True
            return tf.keras.utils.Progbar(total, unit_name="iteration")
        return tqdm.tqdm(total=total, desc=self._name)

    def close(self) -> None:
        """Ends the bar, also where the call has failed."""
        with self._lock:
            if self._shown is not None and not self._is_keras:
                self._shown.close()
            self._shown = None


class Lines:
    """In a graph, which runs without Python: a line now and then, on stderr."""

    def __init__(self, name: str):
        self._name = name
        if _tf.in_xla_context(tf.compat.v1.get_default_graph()):
            raise ArgumentError(
                "progress=True shows text while blocks run, which a function with jit_compile=True "
                "cannot do. Leave one of them out."
            )

    def after(
        self, results: Sequence[tf.Tensor], done: tf.Tensor, total: Dim, block: int
    ) -> list[tf.Tensor]:
        """Results after which a line is printed now and then; a step has ``block`` iterations."""
        every = tf.cast(total, tf.int32) // _LINES + 1

        def say() -> tf.Tensor:
            tf.print(f"{self._name}:", done, "of", total, "iterations", output_stream=sys.stderr)
            return tf.constant(0)

        with tf.control_dependencies(results):
            before = tf.identity(done)
        is_due = tf.logical_or((before % every) < block, tf.equal(before, total))
        step = tf.cond(is_due, say, lambda: tf.constant(0))
        with tf.control_dependencies([step]):
            return [tf.identity(x) for x in results]

    def close(self) -> None:
        """Nothing is open."""
