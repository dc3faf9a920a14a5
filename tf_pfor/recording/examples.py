"""Runs a function for one example after the other, each up to where it asks for a value."""

from __future__ import annotations

import contextvars
import sys
import threading
from collections.abc import Callable, Sequence
from typing import Any

from tf_pfor._tf import _eager_ops, _threads
from tf_pfor.core import nests
from tf_pfor.recording.nodes import Failure, Recorded
from tf_pfor.recording.plans import Plans, execute
from tf_pfor.recording.recorder import Recorder
from tf_pfor.recording.schedule import Schedule


class _Stopped(BaseException):
    """Ends an example after another one has failed."""


class Examples:
    """The calls of a function for the examples of a chunk, which share what they record.

    Examples run in threads, one at a time. A thread that waits for a value leaves the other
    examples to the next thread. Without such a wait, one thread runs all examples. When all wait or
    are done, the thread of the caller runs what was recorded: a tape there sees it.
    """

    def __init__(
        self,
        fn: Callable[[Any], Any],
        examples: Sequence[Any],
        chunk: range,
        kinds: dict[Any, Any],
        plans: Plans,
        schedule: Schedule,
    ) -> None:
        self.recorder = Recorder(kinds, self._wait)
        self.results: list[Any] = [None] * len(chunk)
        self.batches = 0
        self._fn = fn
        self._examples = examples
        self._chunk = chunk
        self._following = 0
        self._plans = plans
        self._schedule: Schedule = schedule
        self._failed: BaseException | None = None
        self._failures: list[Failure] = []
        self._turn = threading.local()  # what the thread of an example waits for
        self._back = threading.Semaphore(0)  # what the thread of the caller waits for
        self._waiting: list[threading.Semaphore] = []

    def run(self) -> list[Any]:
        """The results of all examples: nests of recorded values that have run."""
        try:
            while self._following < len(self._chunk) and not self._failed:
                self._start()
            while self._waiting and not self._failed:
                self._execute()
                waiting, self._waiting = self._waiting, []
                for one in waiting:
                    self._go_on(one)
            if not self._failed:
                self._execute()
                self._check()
        except BaseException as error:
            self._failed = error
        for one in self._waiting:  # they end with _Stopped
            self._go_on(one)
        self.recorder.forget()
        if self._failed:
            raise self._failed
        results, self.results = self.results, []
        return results

    def _go_on(self, one: threading.Semaphore) -> None:
        one.release()
        self._back.acquire()

    def _execute(self) -> None:
        nodes, self.recorder.nodes = self.recorder.nodes, []
        for variable in self.recorder.variables.values():
            _eager_ops.watch(variable)
        self.batches += execute(nodes, self._schedule, self._plans, self._failures)

    def _check(self) -> None:
        """Raises the error of a call that no example has got.

        The first example comes first, as in a loop.
        """
        for k, result in enumerate(self.results if self._failures else ()):
            for x in nests.flatten(nests.from_user(result)):
                if isinstance(x, Recorded) and x.node.failure is not None:
                    raise _noted(x.node.failure.raised(), self._chunk[k])
        for failure in self._failures:
            if not failure.is_known:
                raise _noted(failure.raised(), failure.node.example)

    def _start(self) -> None:
        """Runs examples in a thread until one of them waits, or all are done."""
        context, put_settings = contextvars.copy_context(), _threads.settings()

        def work() -> None:
            put_settings()
            context.run(self._work)

        threading.Thread(target=work, daemon=True).start()
        self._back.acquire()

    def _work(self) -> None:
        self._turn.semaphore, i = threading.Semaphore(0), 0
        try:
            with _eager_ops.caught(self.recorder):
                while self._following < len(self._chunk) and not self._failed:
                    k, self._following = self._following, self._following + 1
                    i = self.recorder.example = self._chunk[k]
                    self.results[k] = self._fn(self._examples[i])
        except _Stopped:
            pass
        except BaseException as error:
            self._failed = self._failed or _noted(error, i)
        finally:
            self._back.release()

    def _wait(self) -> None:
        """Waits until what was recorded has run."""
        semaphore = getattr(self._turn, "semaphore", None)
        if semaphore is None:  # the caller's thread, after the examples
            return self._execute()
        example = self.recorder.example
        self._waiting.append(semaphore)
        self._back.release()
        semaphore.acquire()
        self.recorder.example = example
        if self._failed:
            raise _Stopped
        return None


def _noted(error: BaseException, example: int) -> BaseException:
    """The error, with the number of its example."""
    if sys.version_info >= (3, 11):
        error.add_note(f"This is example {example} of batched().")
    return error
