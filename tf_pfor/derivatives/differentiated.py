"""One call of a function that is differentiated: its arguments, outputs and their checks."""

from __future__ import annotations

import functools
import numbers
from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

from tf_pfor import _tf
from tf_pfor._tf._types import COMPOSITE
from tf_pfor.api.leaves import filled
from tf_pfor.core import nests
from tf_pfor.core.errors import ArgumentError, ArgumentTypeError
from tf_pfor.core.late_gradients import own_constants
from tf_pfor.core.nests import Nest
from tf_pfor.core.settings import Defaults, current
from tf_pfor.derivatives.missing_gradients import refuse_constants
from tf_pfor.derivatives.pullbacks import differentiated, has_derivative
from tf_pfor.tracing.caching import UNCACHED, EagerCall, Signatures
from tf_pfor.tracing.compiled_function import CompiledFunction
from tf_pfor.tracing.fingerprint import Transformed
from tf_pfor.tracing.row_numbers import in_front
from tf_pfor.tracing.user_code import autographed

Argnums = int | Sequence[int]
Fn = Callable[..., Any]


class Differentiated:
    """A call of a function, and which of its arguments to differentiate with respect to.

    Attributes:
      wrt: the tensors to differentiate with respect to; Nones are left out.
      extra: the last arguments, which are not for the function.
    """

    def __init__(
        self,
        fn: Fn,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        argnums: Argnums,
        has_aux: bool,
        extra: int,
    ):
        cut = max(len(args) - extra, 0)
        self.extra = args[cut:]
        self._fn, self._args, self._kwargs, self._has_aux = fn, args[:cut], kwargs, has_aux
        self._aux: Nest = None
        numbers = (argnums,) if isinstance(argnums, int) else tuple(argnums)
        for k in numbers:
            if not -cut <= k < cut:
                where = " in front of the vector" if extra else ""
                raise ArgumentError(
                    f"argnums names argument {k}, and the function was called with {cut} "
                    f"positional arguments{where}."
                )
        self._numbers = tuple(k % cut for k in numbers)
        if len(set(self._numbers)) < len(numbers):
            raise ArgumentError(f"argnums names an argument twice, found {argnums!r}.")
        chosen = [nests.opened(self._args[k]) for k in self._numbers]
        self._structure = chosen[0] if isinstance(argnums, int) else tuple(chosen)
        self._chosen = chosen
        self.wrt: list[tf.Tensor] = []
        self._names: list[str] = []
        for k, structure in zip(self._numbers, chosen):
            self._add(structure, f"argument {k}")

    def _add(self, structure: Nest, name: str) -> None:
        """Makes the leaves of an argument inputs."""
        for x, path in present(structure, name):
            tensor = tf.identity(tf.convert_to_tensor(x))
            _check_differentiable(tensor, path, "Cast it, or leave it out of argnums.")
            self.wrt.append(tensor)
            self._names.append(path)

    def require(self, *, is_complex: bool, why: str) -> None:
        """Refuses arguments that are, or are not, complex."""
        _check_kind(self.wrt, self._names, is_complex, why)

    def like_the_arguments(self, structure: Nest, name: str) -> list[tf.Tensor]:
        """The leaves of a nest that must have the structure and the shapes of the arguments."""
        return leaves_like(self._structure, structure, name, "the argument")

    def evaluate(self) -> Any:
        """Outputs as a nest of tensors and Nones."""
        args = list(self._args)
        supply = iter(self.wrt)
        for k, structure in zip(self._numbers, self._chosen):
            count = len(present(structure, ""))
            args[k] = nests.to_user(filled(structure, [next(supply) for _ in range(count)]))
        with own_constants(), differentiated():
            result = self._fn(*args, **self._kwargs)
        if self._has_aux:
            if not isinstance(result, tuple) or len(result) != 2:
                raise ArgumentError(
                    f"With has_aux=True the function must return (outputs, aux), found "
                    f"{nests.shown(result)}."
                )
            result, self._aux = result
        if result is None:
            raise ArgumentError("the function must return tensors to differentiate, found None.")
        structure = nests.opened(result)
        leaves: list[tf.Tensor] = []
        for x, path in present(structure, "output"):
            leaves.append(tf.convert_to_tensor(x))
            _check_differentiable(leaves[-1], path, "Cast it, or return it as aux.")
        refuse_constants(leaves, self.wrt)
        return filled(structure, leaves)

    def with_aux(self, result: Nest, *others: Nest) -> Any:
        """The results for the user, with aux behind them if the function has it."""
        if self._has_aux:
            return (result, *others, self._aux)
        return (result, *others) if others else result

    def like_arguments(self, row: Sequence[Any]) -> Any:
        """The nest of the arguments, with other leaves, as the user sees it."""
        return nests.to_user(filled(self._structure, row))

    def nested(self, outputs: Nest, found: Sequence[Sequence[Any]]) -> Any:
        """The nest of the outputs, with the nest of the arguments at each leaf."""
        return nests.to_user(filled(outputs, [self.like_arguments(row) for row in found]))


def tensors_of(structure: Nest) -> list[tf.Tensor]:
    """The leaves that are not None."""
    return [x for x in nests.flatten(structure) if x is not None]


def leaves_like(structure: Nest, given: object, name: str, other: str) -> list[tf.Tensor]:
    """The leaves of a nest that must have the structure and the shapes of another one.

    ``name`` and ``other`` are the user's names of the two.
    """
    given = nests.opened(given)
    pairs = present(given, name)
    try:
        tf.nest.assert_same_structure(structure, given, check_types=False)
    except (TypeError, ValueError):
        pairs = []
    like = [tf.convert_to_tensor(x) for x, _ in present(structure, other)]
    found = [tf.convert_to_tensor(v) for v, _ in pairs]
    if len(found) == len(like) and all(
        v.shape.is_compatible_with(x.shape) and not v.dtype.is_complex for v, x in zip(found, like)
    ):
        return [tf.cast(v, x.dtype) for v, x in zip(found, like)]
    raise ArgumentError(
        f"{name} must be like {other}, {_described(structure)}; found {_described(given)}."
    )


def check_outputs(outputs: Nest, *, is_complex: bool, why: str) -> None:
    """Refuses outputs as ``Differentiated.require`` refuses arguments."""
    names = [path for _, path in present(outputs, "output")]
    _check_kind(tensors_of(outputs), names, is_complex, why)


def _check_kind(
    tensors: Sequence[tf.Tensor], names: Sequence[str], is_complex: bool, why: str
) -> None:
    for x, name in zip(tensors, names):
        if x.dtype.is_complex != is_complex:
            wanted = "complex" if is_complex else "real"
            raise ArgumentError(f"{name} has dtype {x.dtype.name}, expected a {wanted} one. {why}")


def present(structure: Nest, name: str) -> list[tuple[Any, str]]:
    """The leaves that are not None, each with what a user would write."""
    leaves = tf.nest.flatten(structure)
    for x in leaves:
        if isinstance(x, COMPOSITE) and not isinstance(x, (tf.Variable, tf.IndexedSlices)):
            raise ArgumentTypeError(
                f"{name} holds a {type(x).__name__}, expected dense tensors. Take its values "
                "instead, and make it of them where it is needed."
            )
    return [(x, path) for x, path in zip(leaves, nests.paths(structure, name)) if x is not None]


def _described(structure: Nest) -> str:
    """The shapes and dtypes of a nest, for messages."""
    return str(tf.nest.map_structure(_kind, structure))


def _kind(x: Nest) -> str | None:
    if x is None:
        return None
    tensor = tf.convert_to_tensor(x)
    return f"{tensor.dtype.name}{tensor.shape}"


def _check_differentiable(x: tf.Tensor, what: str, advice: str) -> None:
    if not has_derivative(x.dtype):
        raise ArgumentError(f"{what} has dtype {x.dtype.name}, which has no derivative. {advice}")


def compiled(
    fn: Fn,
    argnums: Argnums,
    has_aux: bool,
    compute: Callable[[Differentiated], Any],
    extra: int = 0,
) -> Fn:
    """A function that differentiates in the graph being built, or eagerly in a compiled one.

    ``compute`` makes the derivative of a call, with its aux. The last ``extra`` arguments are not
    for ``fn``.
    """
    if not callable(fn):
        raise ArgumentError(f"expected a function to differentiate, found {nests.shown(fn)}.")
    return _compiled(fn, _checked_argnums(argnums), has_aux, compute, extra)


def _compiled(
    fn: Fn, argnums: Argnums, has_aux: bool, compute: Callable[..., Any], extra: int
) -> Fn:
    closures, options = (fn, argnums, has_aux, compute), (extra,)

    def traced(*args: Nest, **kwargs: Nest) -> Any:
        return _differentiate(*closures, args, kwargs, extra)

    own: dict[Any, Any] = {}
    rows = functools.partial(in_front, are_seen=True)

    @functools.cache  # a tf.function is dear to make, and seldom needed
    def function(_: Defaults) -> Any:
        return nests.as_function(traced)

    @tf.autograph.experimental.do_not_convert
    def call(noted: Signatures, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        nests.check_leaves(args, "args")
        nests.check_leaves(kwargs, "kwargs")
        if not tf.executing_eagerly():
            # A tape does not notice that tf.gradients rewrites loops that it has seen, and would
            # differentiate them wrongly. What happens in a function it does not see.
            inside = function(current()) if _tf.may_record_gradients() else traced
            return inside(*args, **kwargs)
        eager = EagerCall(
            _differentiate, closures, (args, kwargs), options, own=own, noted=noted, rows=rows
        )
        result = eager()
        return function(current())(*args, **kwargs) if result is UNCACHED else result

    made = Transformed(_compiled, closures, options)
    return CompiledFunction(call, traced, made, f"derivative_{getattr(fn, '__name__', 'fn')}")


def _differentiate(
    fn: Fn,
    argnums: Argnums,
    has_aux: bool,
    compute: Callable[[Differentiated], Any],
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    extra: int,
) -> Any:
    """One call of a derivative, in the graph being built."""
    return compute(Differentiated(autographed(fn), args, kwargs, argnums, has_aux, extra))


def _checked_argnums(argnums: Any) -> Argnums:
    """An int, or a tuple of them."""
    several = isinstance(argnums, Sequence) and not isinstance(argnums, str)
    given: Sequence[Any] = argnums if several else [argnums]
    if any(isinstance(k, bool) or not isinstance(k, numbers.Integral) for k in given):
        raise ArgumentError(
            f"argnums must be an int or several, found {nests.shown(argnums)}. A derivative is a "
            "function, as in grad(fn)(x)."
        )
    return tuple(map(int, given)) if several else int(given[0])
