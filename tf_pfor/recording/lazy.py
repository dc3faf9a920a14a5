"""``lazy``: eager ops are recorded, and run as compiled functions where a value is asked for."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import threading
import types
from collections.abc import Callable, Generator
from typing import Any, Final

import tensorflow as tf

from tf_pfor._tf import _eager_ops, _functions
from tf_pfor.core.errors import ArgumentTypeError
from tf_pfor.core.nests import Nest
from tf_pfor.recording.errors import checked
from tf_pfor.recording.lazy_tensors import Lazy
from tf_pfor.recording.program import Program
from tf_pfor.recording.traces import Traces

_TRACES: Final = Traces()


def lazy(fn: Callable[..., Any] | None = None, *, jit_compile: bool = False) -> Any:
    """Records eager ops in a block or a function, and runs many of them as one compiled function.

    Python runs as it is written. A TensorFlow op is recorded and returns a tensor with shape and
    dtype, whose value is not made yet. When somebody asks for a value, all that was recorded runs
    as one ``tf.function``. Values that nobody can ask for any more are not made. The function is
    found by what was recorded: ops, attributes, shapes, dtypes, and which op reads which result.
    Tensors, variables and Python numbers are its inputs. So a loop compiles in its first steps, and
    no more. This is LazyTensor (Suhan et al., 2021).

    These ask for values: ``numpy()``, ``print``, ``if`` and ``while`` on a tensor, ``int``,
    ``float``, and ops that are not recorded. So do ``tf_pfor.mark_step()`` and the end of the
    block. Results are equal to eager TensorFlow, bit for bit without ``jit_compile``. An op that
    fails does so where a value is asked for. Its error names the line where it was called.

    ``lazy_report()`` says what was recorded, and which lines ask for values.

    Example:
      >>> import tensorflow as tf, tf_pfor
      >>> w = tf.Variable([1.0, -2.0])
      >>> with tf_pfor.lazy():
      ...     for step in range(3):
      ...         with tf.GradientTape() as tape:
      ...             loss = tf.reduce_sum(w * w)
      ...         _ = w.assign_sub(0.25 * tape.gradient(loss, w))
      ...         tf_pfor.mark_step()
      >>> w.numpy().tolist()
      [0.125, -0.25]
      >>> @tf_pfor.lazy
      ... def norm(x):
      ...     return tf.sqrt(tf.reduce_sum(x * x))
      >>> float(norm(tf.constant([3.0, 4.0])))
      5.0

    Args:
      fn: a function, whose calls are recorded; None: the result is a context for ``with``.
      jit_compile: whether XLA compiles what is recorded. Arithmetic may then be reordered, and most
        ops do not fail for their values, such as an index out of range or a singular matrix. What
        XLA cannot compile runs without it.

    Returns:
      A function as ``fn``, or a context. A context may be used again, and may decorate a function.
      Both do nothing in a ``tf.function`` and in ``tf_pfor.batched``.

    Raises:
      ArgumentTypeError: ``fn`` is no function, or a generator function, or ``jit_compile`` is no
        bool.
    """
    if type(jit_compile) is not bool:
        raise ArgumentTypeError(f"jit_compile must be True or False, found {jit_compile!r}.")
    if fn is None:
        return _Scope(jit=jit_compile)
    called = checked(fn, "a function", "Decorate the function that uses what it yields.")

    @functools.wraps(fn, updated=())
    def recorded(*args: object, **kwargs: object) -> Any:
        with _recording(jit=jit_compile):
            found = _functions.treated_as_here(called)(*args, **kwargs)
        return _made(found)

    return _functions.never_converted(recorded)


class _Scope:
    """A context that may be entered again: inside of itself, and in other threads."""

    def __init__(self, *, jit: bool) -> None:
        self._jit = jit
        self._open: dict[int, list[contextlib.AbstractContextManager[None]]] = {}  # by thread

    def __enter__(self) -> None:
        recording = _recording(jit=self._jit)
        recording.__enter__()
        self._open.setdefault(threading.get_ident(), []).append(recording)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: types.TracebackType | None,
    ) -> None:
        mine = self._open[threading.get_ident()]
        last = mine.pop()
        if not mine:
            del self._open[threading.get_ident()]
        last.__exit__(kind, error, trace)

    def __call__(self, fn: Callable[..., Any]) -> Callable[..., Any]:
        """The function as ``lazy`` decorates it."""
        return lazy(fn, jit_compile=self._jit)


@contextlib.contextmanager
def _recording(*, jit: bool) -> Generator[None]:
    """Records the ops of this thread in the block."""
    around = _eager_ops.catcher()
    if not tf.executing_eagerly() or not (around is None or isinstance(around, Program)):
        yield
        return
    if around is not None:
        around.cut("lazy() in lazy()")
    program = Program(_TRACES, jit=jit)
    with _eager_ops.caught(program):
        try:
            yield
        finally:
            program.cut("the end of lazy()")


def _made(found: Nest) -> Any:
    """A result, with its value in place of a lazy tensor; also in a tuple."""
    if isinstance(found, Lazy):
        return found.followed("a result")
    if type(found) is tuple:
        return tuple(map(_made, found))
    return found


def mark_step() -> None:
    """Runs what ``lazy`` has recorded so far; without ``lazy`` it does nothing.

    A loop that asks for no value has no natural end of a step. Mark it, so that each step is the
    same compiled function.

    Example:
      >>> import tensorflow as tf, tf_pfor
      >>> x = tf.constant(1.0)
      >>> with tf_pfor.lazy():
      ...     for _ in range(3):
      ...         x = 2.0 * x
      ...         tf_pfor.mark_step()
      >>> float(x)
      8.0
    """
    around = _eager_ops.catcher()
    if isinstance(around, Program):
        around.cut("mark_step()")


@dataclasses.dataclass(frozen=True, slots=True)
class LazyReport:
    """Counts of what ``lazy`` has done since the start of the process, in all threads.

    Attributes:
      recorded: calls of ops and functions that were recorded.
      cuts: the number of times that recorded calls ran, by ``file:line`` and reason.
      hits: runs of functions that were compiled before.
      misses: runs without such a function.
      one_by_one: runs of ops one by one, by the line of the cut. Too many different programs ended
        there for compiling to pay.
      without_xla: functions that XLA could not compile, and that run without it.
      functions: compiled functions that are kept now.
      seconds: the time that tracing took. Compilation by XLA comes on top, in the first run.
    """

    recorded: int
    cuts: dict[tuple[str, str], int]
    hits: int
    misses: int
    one_by_one: dict[str, int]
    without_xla: int
    functions: int
    seconds: float

    def __str__(self) -> str:
        lines = [
            f"{self.recorded} calls were recorded. They ran {sum(self.cuts.values())} times:",
            *[
                f"  {count} at {line or 'a line of a library'}: {reason}"
                for (line, reason), count in sorted(self.cuts.items(), key=lambda cut: -cut[1])
            ],
            f"{self.hits} runs found a compiled function, {self.misses} did not.",
            f"{self.functions} functions are kept. Tracing took {self.seconds:.2f} seconds.",
        ]
        if self.without_xla:
            lines.append(f"XLA could not compile {self.without_xla} functions.")
        lines += [
            f"{count} runs at {line} were one by one: each was of another form."
            for line, count in self.one_by_one.items()
        ]
        return "\n".join(lines)


def lazy_report() -> LazyReport:
    """Counts of recorded and compiled calls of ``lazy``, and the lines that ask for values.

    Example:
      >>> import tensorflow as tf, tf_pfor
      >>> before = tf_pfor.lazy_report()
      >>> with tf_pfor.lazy():
      ...     for x in (1.0, 2.0, 3.0):
      ...         y = float(tf.constant(x) * 2.0 + 1.0)
      >>> after = tf_pfor.lazy_report()
      >>> after.recorded - before.recorded, after.misses - before.misses
      (6, 1)
    """
    counts = _TRACES.counts
    return LazyReport(
        counts["recorded"],
        dict(_TRACES.cuts),
        counts["hits"],
        counts["misses"],
        {name: line.alone for name, line in list(_TRACES.lines.items()) if line.alone},
        counts["not by XLA"],
        len(_TRACES),
        _TRACES.seconds,
    )
