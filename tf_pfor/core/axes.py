"""The mapped axes around the code that is being traced, and their names for collectives.

A collective is traced inside the body (Agarwal, 2019). The loop that it names converts it; this may
be an outer loop. The name stands on the op.
"""

from __future__ import annotations

import contextlib
import contextvars
import dataclasses
import itertools
from collections.abc import Generator

import tensorflow as tf

from tf_pfor.core.errors import ArgumentError

_NUMBERS = itertools.count(1)
_TRACED_AFRESH = ("CondBranchFuncGraph", "WhileBodyFuncGraph", "WhileCondFuncGraph")


@dataclasses.dataclass(eq=False, slots=True)
class Axis:
    """A mapped axis, while its body is traced.

    Attributes:
      name: the user's name for it, "" if it has none.
      size: the number of iterations, if it is known before running.
      is_hidden: no map of the user's, but one over the rows of a jacobian.
      why_not: why collectives cannot run over it, "" if they can.
      key: a name that no other axis has.
      graph: the graph of the body.
    """

    name: str = ""
    size: int | None = None
    is_hidden: bool = False
    why_not: str = ""
    key: str = dataclasses.field(default_factory=lambda: f"#{next(_NUMBERS)}")
    graph: tf.Graph | None = None

    @property
    def names(self) -> frozenset[str]:
        """All by which a collective may name it."""
        return frozenset({self.name or self.key, self.key})


_AXES: contextvars.ContextVar[tuple[Axis, ...]] = contextvars.ContextVar("tf_pfor_axes", default=())


@contextlib.contextmanager
def entered(axis: Axis) -> Generator[None]:
    """Makes ``axis`` the innermost one for what is traced in the ``with`` block.

    A name means the innermost axis that has it. The inner map is converted before the outer one,
    so it takes all collectives of that name in its body.
    """
    token = _AXES.set((*_AXES.get(), axis))
    axis.graph = tf.compat.v1.get_default_graph()
    try:
        yield
    finally:
        _AXES.reset(token)


def check_name(name: object) -> str:
    """An axis name, "" for none.

    Raises:
      ArgumentError: if it is not a string that can be one.
    """
    if name is None:
        return ""
    if not isinstance(name, str) or not name or name.startswith("#"):
        raise ArgumentError(
            f"axis_name must be a non-empty string that does not start with '#', or None; found "
            f"{name!r}."
        )
    return name


def find(name: str | None, collective: str) -> Axis:
    """The axis that a collective means: the axis of this name, or the innermost axis.

    Raises:
      ArgumentError: if there is none, or collectives cannot run over it.
    """
    around = _AXES.get()
    if all(a.is_hidden for a in around) or tf.executing_eagerly():
        raise ArgumentError(
            f"{collective} was called outside of a mapped function. Call it in the function that "
            "you pass to vmap, vectorized_map or pfor."
        )
    wanted = check_name(name)
    for axis in reversed(around):
        if axis.name == wanted if wanted else not axis.is_hidden:
            break
    else:
        known = ", ".join(repr(a.name) for a in around if a.name) or "none has a name"
        raise ArgumentError(
            f"{collective} names the axis {wanted!r}, and no map around it has that name. Found: "
            f"{known}. Pass axis_name to vmap."
        )
    if axis.why_not:
        raise ArgumentError(f"{collective} cannot run here: {axis.why_not}")
    return axis


def size_here(axis: Axis) -> int | None:
    """The size of ``axis``, None if unknown or inside a tf.function, whose trace may be reused."""
    graph = tf.compat.v1.get_default_graph()
    while graph is not None and graph is not axis.graph:
        is_body = getattr(graph, "name", "") == "pfor_body"
        if not is_body and type(graph).__name__ not in _TRACED_AFRESH:
            return None
        graph = getattr(graph, "outer_graph", None)
    return axis.size
