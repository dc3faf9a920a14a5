"""Functions that run the calls of a trace at once; and the calls of a trace one by one."""

from __future__ import annotations

import functools
import threading
import time
from collections.abc import Sequence
from typing import Protocol

import tensorflow as tf

from tf_pfor import _tf
from tf_pfor._tf import _eager_ops, _graphs
from tf_pfor.recording.errors import with_text
from tf_pfor.recording.nodes import Kind

_SMALL = 4096  # elements of a tensor


class Call(Protocol):
    """A call of a trace: its kind, the places that it reads, and the user's line."""

    kind: Kind | None
    reads: Sequence[int]
    line: str


class Compiled:
    """A function that runs a trace.

    Attributes:
      seconds: the time that compiling took; 0 before the first run.
    """

    def __init__(
        self,
        path: Sequence[Call],
        alive: Sequence[int],
        *,
        jit: bool,
    ) -> None:
        self._path = path
        self.alive = alive
        self._lock = threading.Lock()
        self._made: tuple[str, list[tf.Tensor], int, object] | None = None
        self._is_small = not jit and all(call.kind and _is_small(call.kind) for call in path)
        self.seconds = 0.0
        self.is_jit = jit

    def run(self, inputs: list[tf.Tensor]) -> dict[int, tf.Tensor]:
        """The results by their numbers."""
        made = self._made
        if made is None:
            with self._lock:
                made = self._made or self._first(inputs)
                self._made = made
        name, captured, count, _ = made
        given = inputs + captured
        found = _eager_ops.run_function(name, given, count, is_small=self._is_small)
        return dict(zip(self.alive, found))

    def leave_xla(self) -> None:
        """Compiles again without XLA, which has no kernel of an op."""
        with self._lock:
            self.is_jit, self._made = False, None

    def _first(self, inputs: list[tf.Tensor]) -> tuple[str, list[tf.Tensor], int, object]:
        began = time.perf_counter()
        specs = [tf.TensorSpec(x.shape, x.dtype) for x in inputs]
        examples = list(inputs)

        def body(*tensors: tf.Tensor) -> list[tf.Tensor]:
            for x, inside in zip(examples, tensors):
                if x.dtype == tf.resource:
                    _tf.copy_handle_data(x, inside)
            results = _results(self._path, self.alive, tensors)
            _graphs.keep_from_merging(tf.compat.v1.get_default_graph())
            return results

        function = tf.function(
            body, input_signature=specs, autograph=False, jit_compile=self.is_jit or None
        )
        with _eager_ops.caught(None):
            traced = function.get_concrete_function()
        examples.clear()  # the function keeps no tensor of the first run
        self.seconds = time.perf_counter() - began
        name = traced.name
        text = name.decode() if isinstance(name, bytes) else str(name)
        return text, list(traced.captured_inputs), len(traced.outputs), traced


def _is_small(kind: Kind) -> bool:
    """Whether a call is an op that takes microseconds."""
    sizes = [spec.shape.num_elements() or 0 for spec in (*kind.inputs, *(kind.results or ()))]
    return kind.graph is None and max(sizes, default=0) <= _SMALL


def _results(
    path: Sequence[Call], alive: Sequence[int], tensors: Sequence[tf.Tensor]
) -> list[tf.Tensor]:
    """The wanted results in a graph.

    A write waits for the calls before it that may fail. So if one fails, nothing was written.
    """
    results: list[tf.Tensor] = []
    guards: list[tf.Operation] = []
    for call in path:
        kind = call.kind
        assert kind is not None
        given = [results[k] if k >= 0 else tensors[~k] for k in call.reads]
        with tf.control_dependencies(guards if kind.writes else []):
            made = [_sum(given)] if kind.name == "AddN" else kind.run(*given)
        if kind.may_fail:
            guards += [x.op for x in made]
        results += made
    wanted = [results[k] for k in alive]
    if guards:  # those whose results nobody wants must run, too
        with tf.control_dependencies([tf.group(*guards)]):
            wanted[:1] = [tf.identity(wanted[0]) if wanted else tf.zeros([])]
    return wanted


def _sum(tensors: Sequence[tf.Tensor]) -> tf.Tensor:
    """The sum in the order of eager AddN; in a graph AddN begins with a buffer that is free.

    Its kernel adds the first two to nine tensors, and then the sums of eight more.
    """
    first = len(tensors) % 8
    first = first if first > 1 else first + 8
    groups = [tensors[:first], *[tensors[k : k + 8] for k in range(first, len(tensors), 8)]]
    return _chain([_chain(group) for group in groups])


def _chain(tensors: Sequence[tf.Tensor]) -> tf.Tensor:
    return functools.reduce(lambda a, b: tf.raw_ops.AddV2(x=a, y=b), tensors)


def one_by_one(path: Sequence[Call], inputs: Sequence[tf.Tensor], results: list[tf.Tensor]) -> None:
    """Runs the calls of a trace as eager ops; results are added up to the call that fails.

    Raises:
      Exception: the error of the call, with the user's line in it.
    """
    for call in path:
        given = [results[k] if k >= 0 else inputs[~k] for k in call.reads]
        assert call.kind is not None
        try:
            made = call.kind.run(*given)
            if call.kind.results is None or len(made) != len(call.kind.results):
                made = _traced(call.kind, given)  # a gradient may have other results eagerly
            results += made
        except Exception as error:
            raise with_line(error, call.kind.name, call.line) from error


def _traced(kind: Kind, given: Sequence[tf.Tensor]) -> list[tf.Tensor]:
    """The results of a call, as a graph has them."""
    traced = tf.function(kind.run, autograph=False).get_concrete_function(*given)
    return list(traced(*given))


def with_line(error: Exception, name: str, line: str) -> Exception:
    """The error of a call, with the line where the user made the call."""
    return with_text(
        error, f"{name} was called in {line}, in tf_pfor.lazy: it runs later than it is called."
    )


def nothing_was_written(path: Sequence[Call], error: Exception) -> bool:
    """Whether no write has happened in a trace whose function has failed.

    All writes wait for the calls that may fail. Errors of other kinds, such as of memory, may come
    after a write, and so may the error of a write itself.
    """
    writes = [call.kind for call in path if call.kind and call.kind.writes]
    is_of_values = isinstance(error, tf.errors.InvalidArgumentError)
    return not writes or (is_of_values and not any(kind.may_fail for kind in writes))
