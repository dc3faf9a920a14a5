"""The subject of ``explain`` and ``check``: a function of one row, and how it is mapped.

Front ends register their objects at ``subject_of``.
"""

from __future__ import annotations

import dataclasses
import functools
from typing import Any

from tf_pfor.api import signature_elements
from tf_pfor.api.options import Options
from tf_pfor.api.vmap import Axes, mapped_by
from tf_pfor.core.errors import ArgumentError
from tf_pfor.reports.report import Report
from tf_pfor.tracing.compiled_function import CompiledFunction, method_of


@dataclasses.dataclass(frozen=True, slots=True)
class Subject:
    """A function of one row, its elements, and the options of the map.

    Attributes:
      args: the elements, or the number of iterations.
      in_axes: as for ``vmap``; 0 also takes what ``vectorized_map`` and ``pfor`` take.
      axis_name: the name of the mapped axis, "" for none.
    """

    fn: Any
    args: tuple[Any, ...]
    in_axes: Axes
    axis_size: int | None
    axis_name: str
    options: Options

    def mapped_as(
        self, fn: Any, args: tuple[Any, ...], axis_name: str, options: Options, **changes: Any
    ) -> Subject:
        """The same of a function with options of its own, which are kept where none are given."""
        if self.in_axes != 0 or self.axis_size is not None:
            raise ArgumentError(
                f"{self.fn!r} is mapped already, and in_axes or axis_size is given. Expected: the "
                "arguments of the mapped function, or the function inside with in_axes."
            )
        name = self.axis_name or axis_name
        chosen = self.options.over(options)
        return dataclasses.replace(
            self, fn=fn, args=args, axis_name=name, options=chosen, **changes
        )


@functools.singledispatch
def subject_of(fn: Any, given: Subject) -> Subject | Report:
    """The function that an object stands for; or a report, where it is no function of a row."""
    signatures = getattr(fn, "signatures", None)
    if signatures and not callable(fn):  # a SavedModel that was loaded
        if "serving_default" not in signatures and len(signatures) > 1:
            raise ArgumentError(
                f"{fn!r} has the signatures {', '.join(signatures)}. Expected: one of them, "
                "model.signatures[name]."
            )
        fn = signatures.get("serving_default") or next(iter(signatures.values()))
    fn, args = signature_elements.opened(fn, given.args)
    return dataclasses.replace(given, fn=fn, args=args)


@subject_of.register
def _of_compiled(fn: CompiledFunction, given: Subject) -> Subject | Report:
    """The function that ``vmap`` maps; a method gets its instance."""
    if (method := method_of(fn)) is not None:
        function, instance = method
        return _of_compiled(function, dataclasses.replace(given, args=(instance, *given.args)))
    known = mapped_by(fn)
    if known is None:
        return dataclasses.replace(given)
    args = given.args or _of_last_call(fn)
    axes = known.in_axes
    in_axes = axes if isinstance(axes, (list, tuple)) else (axes,) * len(args)
    chosen = {"in_axes": in_axes, "axis_size": known.chosen.axis_size}
    return given.mapped_as(known.fn, args, known.chosen.axis_name, known.options, **chosen)


def _of_last_call(fn: CompiledFunction) -> tuple[Any, ...]:
    noted = fn.noted.all()
    if not noted:
        raise ArgumentError(f"{fn!r} was not called yet: give it elements, or specs of them.")
    args, kwargs = noted[-1]
    if kwargs:
        raise ArgumentError(f"{fn!r} was called with keyword arguments: give it elements.")
    return tuple(args)
