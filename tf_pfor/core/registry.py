"""Rules, and the registry that holds them: one place for each op type.

A rule says how to vectorize one op type when a given set of its inputs is stacked. Users add
their own with ``RegisterPFor``; the package's own live in ``tf_pfor.converters``.
"""

from __future__ import annotations

import contextlib
import dataclasses
import enum
import inspect
import threading
import weakref
from collections.abc import Callable, Generator, Iterable
from typing import Any, Final

from tf_pfor import _tf
from tf_pfor.core.errors import RegistrationError, did_you_mean


class Stacked(enum.Enum):
    """Patterns of stacked inputs that are not one exact set."""

    ANY = "any"  # any non-empty set of inputs
    ALWAYS = "always"  # also when no input is stacked: the op is never simply kept


ANY: Final = Stacked.ANY
ALWAYS: Final = Stacked.ALWAYS

Pattern = frozenset[str] | Stacked
ConverterFn = Callable[..., Any]


class FunctionRule:
    """A rule of the user's for calls of one function graph, in place of the ops in it.

    It lives as long as the graph that calls the function.

    Attributes:
      convert: the rule of the call: takes a Call and the Values of its inputs. It returns the
        Values of the outputs, or None for the ops of the function.
    """

    def __init__(self, convert: ConverterFn):
        self.convert = convert


FUNCTION_RULES: Final = weakref.WeakValueDictionary[str, FunctionRule]()
"""By the name of the function."""


class Outcome(enum.Enum):
    """The outcome of an op of the body: what happened to it."""

    KEPT = "kept"  # loop-invariant: emitted once, as it is
    VECTORIZED = "vectorized"
    TILED = "tiled"  # vectorized after repeating an invariant input
    LOOPED = "looped"  # in a sequential loop
    REJECTED = "rejected"


@dataclasses.dataclass(frozen=True, slots=True)
class Rule:
    """A rule that vectorizes one op type for one pattern of stacked inputs.

    Attributes:
      op_type: the OpDef name.
      stacked: the set of input names that may be stacked, or ANY, or ALWAYS.
      attrs: the attributes that the rule reads or that do not matter to it. An op with another
        attribute that is not at its default is refused: a rule never drops an unread attribute.
      function: ``function(call, *inputs)``, the inputs as Values in OpDef order.
      family: the maker of the rule, for reports.
      outcome: the outcome in reports of the ops that this rule takes.
      note: the reason, for rules that loop on purpose.
      where: ``file:line`` of the registration.
    """

    op_type: str
    stacked: Pattern
    attrs: frozenset[str]
    function: ConverterFn
    family: str
    outcome: Outcome
    note: str
    where: str


class Registry:
    """Rules by op type. Thread-safe.

    Attributes:
      version: a number that differs between states with different rules.
    """

    def __init__(self) -> None:
        self.version = 0
        self._changes = 0
        self._rules: dict[str, dict[Pattern, Rule]] = {}
        self._lock = threading.RLock()

    def add(self, rule: Rule, *, override: bool = False) -> None:
        """Adds a rule.

        Raises:
          RegistrationError: if the op has no such input or attribute; or if the op type already has
            a rule for this pattern, unless ``override``.
        """
        schema = _tf.schema(rule.op_type)
        if schema is not None:
            _check_names(rule, schema)
        elif not _is_own(rule):
            raise _unknown_op(rule)
        with self._lock:
            known = self._rules.get(rule.op_type, {})
            if override:
                known = {}
            elif rule.stacked in known:
                raise RegistrationError(
                    f"{rule.op_type} already has a converter for stacked="
                    f"{describe(rule.stacked)}: registered at {known[rule.stacked].where}, and "
                    f"again at {rule.where}. Pass override=True to replace the first."
                )
            self._rules[rule.op_type] = {**known, rule.stacked: rule}
            self._changes += 1
            self.version = self._changes

    def family_of(self, op_type: str) -> str:
        """The maker of an op's rules, "" if they were written for it alone."""
        rules = self._rules.get(op_type)
        return next(iter(rules.values())).family if rules else ""

    def find(self, op_type: str, stacked: frozenset[str]) -> list[Rule]:
        """The rules that can take an op with these stacked inputs, the best first.

        The exact set comes first, then ANY, then supersets (whose other inputs must be tiled), the
        smallest first. For an op without stacked inputs there is only ALWAYS.
        """
        rules = self._rules.get(op_type)
        if not rules:
            return []
        found = [rules[ALWAYS]] if ALWAYS in rules else []
        if not stacked:
            return found + ([rules[stacked]] if stacked in rules else [])
        if stacked in rules:
            found.insert(0, rules[stacked])
        if ANY in rules:
            found.append(rules[ANY])
        larger = [p for p in rules if isinstance(p, frozenset) and p > stacked]
        found += [rules[p] for p in sorted(larger, key=lambda p: (len(p), sorted(p)))]
        return found

    def why_none(self, op_type: str, stacked: frozenset[str]) -> str:
        """Why ``find`` has no rule: there is none at all, or none for these stacked inputs."""
        patterns = [p for p in self._rules.get(op_type, ()) if isinstance(p, frozenset)]
        if not patterns:
            return "no converter is registered for it"
        names = sorted(stacked.difference(*patterns) or stacked)
        inputs = ", ".join(f"'{name}'" for name in names)
        verb = "differ" if len(names) > 1 else "differs"
        return f"no converter takes it where {inputs} {verb} between iterations"

    def rules(self, op_type: str) -> list[Rule]:
        """All rules of an op type."""
        return list(self._rules.get(op_type, {}).values())

    def op_types(self) -> list[str]:
        """All op types that have a rule, sorted."""
        return sorted(self._rules)

    def __contains__(self, op_type: str) -> bool:
        return op_type in self._rules

    @contextlib.contextmanager
    def temporary(self) -> Generator[None]:
        """Undoes every registration made inside the ``with`` block at its end."""
        with self._lock:
            saved, version = dict(self._rules), self.version
        try:
            yield
        finally:
            with self._lock:
                self._rules, self.version = saved, version


REGISTRY: Final = Registry()


class RegisterPFor:
    """Registers a converter for an op type: a decorator (Agarwal and Ganichev, 2019).

    The converter is called as ``converter(call, *inputs)``. The inputs are ``Value`` objects in
    OpDef order, a list of them for a list input. The converter returns the vectorized output: a
    tensor whose axis 0 is the loop, or a ``Value``. For an op with several outputs it returns a
    list. If it cannot help, it raises ``CannotVectorize(why)`` before it emits anything.

    Args:
      op_type: the OpDef name, e.g. "MatMul"; or several, with spaces between.
      stacked: the inputs that may be stacked. A tuple of OpDef input names is this exact set.
        ``ANY`` is any non-empty set. ``ALWAYS`` also takes an op without stacked inputs. One
        decorator registers one pattern.
      attrs: the attributes that the converter reads, or whose meaning stays the same in
        ``call.rebuild``: a tuple, or a string with spaces between. An op with any other attribute
        off its default is refused.
      override: whether to replace all rules of this op type.

    Raises:
      RegistrationError: if the pattern is registered already; the message names both places.

    Example: an op of one's own whose kernel takes any leading dimensions.

    >>> import tf_pfor
    >>> with tf_pfor.registry.REGISTRY.temporary():
    ...     @tf_pfor.RegisterPFor("Cross", stacked=("a", "b"), override=True)
    ...     def cross(call, a, b):
    ...         return call.rebuild(a=a.tensor, b=b.tensor)
    """

    def __init__(
        self,
        op_type: str,
        stacked: Iterable[str] | Stacked = ANY,
        *,
        attrs: Iterable[str] = (),
        override: bool = False,
        family: str = "",
        outcome: Outcome = Outcome.VECTORIZED,
        note: str = "",
    ):
        if not isinstance(op_type, str):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise RegistrationError(
                "RegisterPFor expects the name of an op type, such as 'MatMul', found "
                f"{op_type!r} of type {type(op_type).__name__}."
            )
        self._op_type = op_type
        self._stacked: Pattern = (
            stacked if isinstance(stacked, Stacked) else _names(stacked, op_type, "stacked")
        )
        self._attrs = _names(attrs, op_type, "attrs")
        self._override = override
        self._family = family
        self._outcome = outcome
        self._note = note

    def __call__(self, function: ConverterFn, where: str = "") -> ConverterFn:
        """Registers ``function``; ``where`` is ``file:line`` when a family made it."""
        if not callable(function):
            raise RegistrationError(
                f"RegisterPFor({self._op_type!r}) expects a function, found {function!r}."
            )
        for op_type in self._op_type.split() or [self._op_type]:
            rule = Rule(
                op_type=op_type,
                stacked=self._stacked,
                attrs=self._attrs,
                function=function,
                family=self._family or getattr(function, "__name__", "converter"),
                outcome=self._outcome,
                note=self._note,
                where=where or source_of(function),
            )
            REGISTRY.add(rule, override=self._override)
        return function


def _names(names: Iterable[str], op_type: str, argument: str) -> frozenset[str]:
    if isinstance(names, str):
        return frozenset(names.split())
    try:
        return frozenset(names)
    except TypeError:
        raise RegistrationError(
            f"RegisterPFor({op_type!r}): {argument} is {names!r}. Expected: a tuple of names of "
            f"the op's{' inputs, ANY or ALWAYS' if argument == 'stacked' else ' attributes'}."
        ) from None


def source_of(function: Callable[..., Any]) -> str:
    """``file:line`` of a function, for messages and reports."""
    try:
        code = inspect.unwrap(function).__code__
        return f"{code.co_filename}:{code.co_firstlineno}"
    except AttributeError:
        return repr(function)


def describe(pattern: Pattern) -> str:
    """A pattern as messages show it."""
    return pattern.value if isinstance(pattern, Stacked) else str(sorted(pattern))


def _is_own(rule: Rule) -> bool:
    """Whether a rule is the package's: such rules name ops of several versions of TensorFlow."""
    return getattr(rule.function, "__module__", "").startswith("tf_pfor.converters")


def _unknown_op(rule: Rule) -> RegistrationError:
    _tf.schema.cache_clear()  # the user's library may be loaded after this
    hint = did_you_mean(rule.op_type, _tf.op_types())
    return RegistrationError(
        f"RegisterPFor: TensorFlow has no op type {rule.op_type!r} (registered at {rule.where})."
        f"{hint} Expected: the name of an OpDef. Load the library of an op of your own first "
        "(tf.load_op_library)."
    )


def _check_names(rule: Rule, schema: _tf.Schema) -> None:
    inputs = {a.name for a in schema.inputs}
    if isinstance(rule.stacked, frozenset) and not rule.stacked <= inputs:
        raise RegistrationError(
            f"{rule.op_type} has no input {sorted(rule.stacked - inputs)}; its inputs are "
            f"{[a.name for a in schema.inputs]} (registered at {rule.where})."
        )
    if not _is_own(rule) and not rule.attrs <= set(schema.attr_types):
        raise RegistrationError(
            f"{rule.op_type} has no attribute {sorted(rule.attrs - set(schema.attr_types))}; its "
            f"attributes are {sorted(schema.attr_types)} (registered at {rule.where})."
        )
