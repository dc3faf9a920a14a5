"""``find_failure``: the first element of a dataset for which a function fails."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable
from typing import Any

import tensorflow as tf

from tf_pfor import _tf
from tf_pfor._tf._all_ops import all_ops
from tf_pfor.api.checks import check_callable
from tf_pfor.core.errors import ArgumentTypeError
from tf_pfor.core.nests import Nest
from tf_pfor.frontends.data._elements import arguments
from tf_pfor.tracing.user_code import autographed

_NODE = "[[{{node "  # in messages, before the name of an op


@dataclasses.dataclass(frozen=True, slots=True)
class Failure:
    """An element for which a function fails.

    Attributes:
      index: the place of the element in the dataset, from 0.
      element: the element.
      op_type: the type of the op that failed, "" if unknown.
      line: ``file:line`` of the user's code that made the op, "" if unknown.
      error: TensorFlow's message.
    """

    index: int
    element: Nest
    op_type: str
    line: str
    error: str

    def at(self, index: int) -> Failure:
        """The same failure, of an element at another place."""
        return dataclasses.replace(self, index=index)

    def is_same(self, other: Failure) -> bool:
        """Whether another search has found the same failure."""
        mine = (self.index, self.op_type, self.error, self.element)
        return repr(mine) == repr((other.index, other.op_type, other.error, other.element))

    @property
    def place(self) -> str:
        """The op and its line, for messages."""
        return f"{self.op_type or 'an op'} ({self.line or 'line unknown'})"

    def __str__(self) -> str:
        return f"Element {self.index} fails in {self.place}: {self.error}"


@tf.autograph.experimental.do_not_convert
def find_failure(fn: Callable[..., Any], dataset: object) -> Failure | None:
    """Calls ``fn`` for one element after the other, and tells the first for which it fails.

    tf.data says only that an error was in a ``map``; ``find_failure`` tells the element, the op
    and the line. The search is slow. State that ``fn`` changes is changed by the search.

    Args:
      fn: a function of one element, called as ``Dataset.map`` calls it.
      dataset: a finite dataset of single elements.

    Returns:
      The ``Failure``, or None if ``fn`` fails for none of the elements.

    Raises:
      ArgumentTypeError: if an argument is wrong.

    >>> import tensorflow as tf
    >>> import tf_pfor
    >>> ds = tf.data.Dataset.from_tensor_slices(["1", "2", "three"])
    >>> failure = tf_pfor.data.find_failure(tf.strings.to_number, ds)
    >>> failure.index, failure.op_type
    (2, 'StringToNumber')
    """
    check_callable(fn, "fn")
    if not isinstance(dataset, tf.data.Dataset):
        raise ArgumentTypeError(f"dataset must be a tf.data.Dataset, found {dataset!r}.")
    return first_failure(autographed(fn), dataset.element_spec, dataset)


def first_failure(fn: Callable[..., Any], spec: Nest, elements: Iterable[Any]) -> Failure | None:
    """The first of some elements for which a function, converted by AutoGraph, fails."""
    traced = tf.function(fn, arguments(spec), autograph=False).get_concrete_function()
    for index, element in enumerate(elements):
        try:
            traced(*arguments(element))
        except tf.errors.OpError as why:
            return _failure(index, element, traced.graph, why)
    return None


def with_text(why: tf.errors.OpError, text: str) -> tf.errors.OpError:
    """An error of TensorFlow with a text in front of its message."""
    kind = type(why)
    is_plain = kind is tf.errors.OpError  # whose constructor needs more than a message
    return why if is_plain else kind(why.node_def, why.op, f"{text}\n{why.message}")


def _failure(index: int, element: Nest, graph: tf.Graph, why: tf.errors.OpError) -> Failure:
    """The failure of an error that names an op of the graph, or of a function it calls."""
    *before, after = why.message.rsplit(_NODE, 1) if _NODE in why.message else [why.message]
    name = after.split("}}")[0] if before else None
    op = next((op for op in all_ops(graph) if op.name == name), None)
    lines = [line.strip() for line in (before or [after])[0].splitlines() if line.strip()]
    what = lines[-1] if lines else why.message
    return Failure(index, element, op.type if op else "", _tf.user_line(op) if op else "", what)
