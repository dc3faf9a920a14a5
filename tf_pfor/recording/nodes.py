"""Recorded calls, their kinds, and their results as the recorded function sees them."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NoReturn

import tensorflow as tf

from tf_pfor._tf import _eager_ops
from tf_pfor.api.vmap import vmap
from tf_pfor.core.errors import NotVectorizableError
from tf_pfor.recording.errors import with_text
from tf_pfor.recording.tensors import Deferred


class Kind:
    """Calls that can run as one: the same function, with inputs of the same shapes and dtypes.

    Attributes:
      run: the function of one call: its inputs to the list of its results.
      results: the specs of the results; None where only a run shows them.
      pack: makes what the caller gets from the list of results.
      may_share: whether equal calls give equal results.
      handles: the handles of the variables that a call reads.
      graph: the traced function; None for an op.
      gradients: functions of inputs and gradients of results to gradients of inputs.
      gradient: the gradient of an op. Its arguments: which inputs ask for it, the inputs, the
        results, and the gradients of the results.
      may_fail: whether a call may be an error that depends on values.
      captured: the handles of variables and other resources that a function captures.
    """

    __slots__ = (
        "_stacked",
        "captured",
        "forms",
        "gradient",
        "gradients",
        "graph",
        "handles",
        "inputs",
        "is_single",
        "may_fail",
        "may_share",
        "name",
        "number",
        "pack",
        "results",
        "run",
        "writes",
    )
    _numbers = itertools.count()

    def __init__(
        self,
        name: str,
        run: Callable[..., list[tf.Tensor]],
        inputs: Sequence[tf.TensorSpec],
        results: Sequence[tf.TensorSpec] | None,
        pack: Callable[[list[Any]], Any],
        *,
        is_single: bool = False,
        may_share: bool,
        handles: Sequence[tf.Tensor] = (),
        graph: tf.Graph | None = None,
        gradient: Callable[..., list[Any]] | None = None,
        may_fail: bool = True,
        writes: bool = False,
    ) -> None:
        self.name = name
        self.run = run
        self.inputs = inputs
        self.results = results
        self.forms = None if results is None else _forms(results)
        self.pack = pack
        self.is_single = is_single
        self.may_share = may_share
        self.number = next(Kind._numbers)
        self.handles = handles
        self.graph = graph
        self.gradient = gradient
        self.may_fail = may_fail
        self.writes = writes
        captures = getattr(graph, "external_captures", ())
        self.captured = [x for x in captures if x.dtype == tf.resource]
        self.gradients: dict[Any, Any] = {}
        self._stacked: dict[tuple[bool, ...], Any] = {}

    def of_rows(self, tensors: Sequence[tf.Tensor], stacked: Sequence[bool]) -> list[tf.Tensor]:
        """The results [k, ...] of k calls; ``stacked``: true for the inputs that are [k, ...]."""
        pattern = tuple(stacked)
        if pattern not in self._stacked:
            axes = tuple(0 if s else None for s in pattern)
            specs = [
                tf.TensorSpec([None, *spec.shape] if s else spec.shape, spec.dtype)
                for spec, s in zip(self.inputs, pattern)
            ]
            rows = vmap(self.run, axes)
            self._stacked[pattern] = tf.function(rows, input_signature=specs, autograph=False)
        return list(self._stacked[pattern](*tensors))


@dataclasses.dataclass(eq=False, slots=True)
class Node:
    """One call that was recorded.

    Attributes:
      depth: the longest way from an input of the program.
      number: its number among the calls that run next.
      results: its results, as the function sees them. An equal call has the same ones.
      ran: the calls that it ran with, None before that.
      row: its number among them.
      line: the user's line, if the call may fail.
      failure: its error, or the error of a call whose result it reads.
    """

    kind: Kind
    inputs: list[Any]
    depth: int
    wait: Callable[[], None]
    number: int
    results: list[Recorded] = dataclasses.field(default_factory=list)
    ran: Ran | None = None
    row: int = 0
    example: int = 0
    line: str = ""
    failure: Failure | None = None

    def run(self) -> Ran:
        """The calls that it ran with; all that was recorded runs now.

        Raises:
          Exception: the call has failed, or one whose result it reads.
        """
        if self.ran is None and self.failure is None:
            self.wait()
        if self.failure is not None:
            raise self.failure.raised()
        assert self.ran is not None
        return self.ran

    def value(self, index: int) -> tf.Tensor:
        """A result of this call."""
        ran = self.run()
        made = ran.results[index]
        if ran.is_single:
            return made
        if _eager_ops.catcher() is None:
            return made[self.row]
        with _eager_ops.caught(None):  # the row is read, not recorded
            return made[self.row]


class Failure:
    """The error of a recorded call.

    Attributes:
      node: the call.
      is_known: whether an example that asked for the value has got the error.
    """

    def __init__(self, node: Node, error: Exception) -> None:
        self.node = node
        self.is_known = False
        self._error = error

    def raised(self) -> Exception:
        """An error to raise, with the line of the call."""
        self.is_known = True
        node = self.node
        place = f" in {node.line}" if node.line else ""
        return with_text(
            self._error,
            f"{node.kind.name} was called{place}, in tf_pfor.batched: it runs later than it is "
            "called.",
        )


@dataclasses.dataclass(frozen=True, eq=False, slots=True)
class Ran:
    """Calls of one kind that ran together.

    Attributes:
      results: [k, ...] each, or the results of the only call.
      count: the number of calls.
      is_single: whether the results have no axis of calls.
    """

    results: list[tf.Tensor]
    count: int
    is_single: bool


class Recorded(Deferred):
    """A result of an op that has not run yet, or that ran with the ops of other examples.

    Attributes:
      form: dtype and sizes, by which calls are compared.
      key: equal for the same result of the same op.
    """

    def __init__(self, node: Node, index: int, spec: tf.TensorSpec, form: object) -> None:
        self.node = node
        self.index = index
        self.form = form
        self.key = id(self)
        self._its_shape = spec.shape
        self._its_dtype = spec.dtype

    @property
    def dtype(self) -> tf.DType:
        """The dtype."""
        return self._its_dtype

    @property
    def shape(self) -> tf.TensorShape:
        """The static shape."""
        return self._its_shape

    def set_shape(self, shape: tf.TensorShape) -> None:
        """Merges what the caller knows into the static shape."""
        self._its_shape = self._its_shape.merge_with(shape)

    def as_input(self) -> tuple[Any, Any]:
        """Its form, and its key."""
        return self.form, self.key

    @property
    def name(self) -> str:
        """The type of the op, or the name of the function."""
        return self.node.kind.name

    def _capture_as_const(self, name: str | None) -> NoReturn:
        raise NotVectorizableError(
            f"a function that is traced inside of batched() captures {self!r}. Pass it as an "
            "argument: a tf_pfor.cell and a tf.function get recorded values as arguments only. If "
            "a library traces the function, call the library in a cell that takes the value."
        )

    def __tf_tensor__(self, dtype: tf.DType | None = None, name: str | None = None) -> tf.Tensor:
        self._check_dtype(dtype)
        if _eager_ops.catcher() is None and self.node.ran is not None:  # after the call
            return self.node.value(self.index)
        return self

    @property
    def _datatype_enum(self) -> Callable[[], int]:
        if _eager_ops.catcher() is None:
            raise NotVectorizableError(
                f"{self!r} has left the function that was batched. Return it from the function, or "
                "make a tensor of it by tf.convert_to_tensor."
            )
        return lambda: self._its_dtype.as_datatype_enum

    def copy(self) -> Recorded:
        """The same value, which tapes take for another tensor."""
        other = Recorded(
            self.node, self.index, tf.TensorSpec(self._its_shape, self._its_dtype), self.form
        )
        other.key = self.key
        return other

    def alone(self, runs: dict[Any, Ran]) -> Recorded:
        """The same value after a run, without what it was made from; ``runs`` were made before."""
        ran = self.node.run()
        key = ran, self.index
        if key not in runs:
            runs[key] = Ran([ran.results[self.index]], ran.count, ran.is_single)
        node = Node(self.node.kind, [], 0, self.node.wait, 0, ran=runs[key], row=self.node.row)
        return Recorded(node, 0, tf.TensorSpec(self._its_shape, self._its_dtype), self.form)

    def tensor(self, asked: str) -> tf.Tensor:
        """The value: what was recorded for all examples so far runs now."""
        if not hasattr(self.node.run().results[self.index], "numpy"):
            raise NotVectorizableError(
                f"the function that is batched asks for the value of {self!r}, but batched() is "
                "called in a tf.function, where no values are known. Call it outside, or put the "
                "choice into a tf_pfor.cell."
            )
        return self.node.value(self.index)

    def __str__(self) -> str:
        return str(self.node.value(self.index))

    def __format__(self, spec: str) -> str:
        return format(self.node.value(self.index), spec)

    def __repr__(self) -> str:
        return (
            f"<tf_pfor recorded {self.name}: shape={self._its_shape}, dtype={self._its_dtype.name}>"
        )


def results_of(node: Node) -> list[Recorded]:
    """The results of a call, the same ones each time."""
    if node.results:
        return node.results
    specs, forms = node.kind.results, node.kind.forms
    if specs is None or forms is None:  # only a run shows the shapes
        specs = [tf.TensorSpec(x.shape, x.dtype) for x in node.run().results]
        forms = _forms(specs)
    found = enumerate(zip(specs, forms))
    node.results = [Recorded(node, i, spec, form) for i, (spec, form) in found]
    return node.results


def _forms(specs: Sequence[tf.TensorSpec]) -> list[Any]:
    """Dtypes and sizes, as ``form_of_tensor`` gives them."""
    return [(s.dtype.as_datatype_enum, tuple(s.shape)) for s in specs]


def values(items: Iterable[Any]) -> list[Any]:
    """Recorded values that have run as tensors; other things stay."""
    return [x.node.value(x.index) if isinstance(x, Recorded) else x for x in items]
