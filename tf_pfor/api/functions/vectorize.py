"""vectorize: a function of arrays of fixed rank broadcasts over all axes in front of these."""

from __future__ import annotations

import dataclasses
import functools
import re
from collections.abc import Callable, Collection, Sequence
from typing import Any

import tensorflow as tf

from tf_pfor import _tf
from tf_pfor.api.leaves import array
from tf_pfor.api.options import check_fallback
from tf_pfor.api.vmap import vmap
from tf_pfor.core import nests
from tf_pfor.core.emit import Dim
from tf_pfor.core.errors import ArgumentError, ArgumentTypeError
from tf_pfor.core.nests import Nest
from tf_pfor.core.settings import Defaults, Fallback, current
from tf_pfor.tracing.caching import UNCACHED, EagerCall, Signatures
from tf_pfor.tracing.compiled_function import CompiledFunction
from tf_pfor.tracing.fingerprint import Transformed
from tf_pfor.tracing.user_code import autographed

Core = tuple[str, ...]
"""The core dimensions of an argument or output: names, and numbers as strings."""

_LIST = r"\(\s*(?:\w+\s*(?:,\s*\w+\s*)*)?\)"
_SIGNATURE = re.compile(rf"\s*(?:{_LIST}\s*(?:,\s*{_LIST}\s*)*)?->\s*{_LIST}\s*(?:,\s*{_LIST}\s*)*")


def vectorize(
    fn: Callable[..., Any],
    signature: str | None = None,
    *,
    excluded: Collection[int | str] = (),
    fallback: Fallback | None = None,
) -> Callable[..., Any]:
    """Makes a function broadcast over loop dimensions, as ``numpy.vectorize`` and JAX's.

    Each loop dimension is a ``vmap``. It shares arguments without the dimension, or of size 1
    there. Nothing is repeated where the sizes are known before running.

    Args:
      fn: a function of tensors whose last axes are its core dimensions. It sees these alone.
      signature: the core dimensions of its arguments and outputs, such as ``"(m,n),(n)->(m)"``.
        Equal names are equal sizes, and numbers are sizes. None: all are scalars.
      excluded: positions and keywords of arguments that are passed to ``fn`` as they are, and that
        the signature leaves out. Other arguments are passed by position.
      fallback: "loop", "error", or a set of op types that may run in a sequential loop.

    Returns:
      A function of tensors of shape [loop..., core...], whose loop dimensions broadcast. It returns
      the results of ``fn``, a tensor or a tuple of tensors, with all loop dimensions in front.

    Raises:
      ArgumentError: if the signature cannot be read. When called: if the number of arguments or
        outputs is not as in the signature, or if an array has too few axes. Also if core
        dimensions of one name differ, or if loop dimensions do not broadcast.
      ArgumentTypeError: if an argument is no tensor.

    >>> import tensorflow as tf
    >>> import tf_pfor
    >>> product = tf_pfor.vectorize(tf.linalg.matvec, "(m,n),(n)->(m)")
    >>> product(tf.ones([5, 1, 2, 3]), tf.ones([4, 3])).shape
    TensorShape([5, 4, 2])
    """
    if not callable(fn):
        raise ArgumentTypeError(
            f"vectorize expects a function, found {fn!r} of type {type(fn).__name__}."
        )
    _parsed(signature)
    chosen = None if fallback is None else check_fallback(fallback)
    return _make(fn, signature, _checked_excluded(excluded), chosen)


def _make(fn: Callable[..., Any], *options: Any) -> Any:
    """The function that ``vectorize`` returns."""

    def traced(*args: Nest, **kwargs: Nest) -> Any:
        return _broadcast(fn, args, kwargs, *options)

    own: dict[Any, Any] = {}

    @functools.cache  # a tf.function is dear to make, and seldom needed
    def compiled(_: Defaults) -> Any:
        return nests.as_function(traced)

    @tf.autograph.experimental.do_not_convert
    def call(noted: Signatures, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if not tf.executing_eagerly():
            return traced(*args, **kwargs)
        eager = EagerCall(_broadcast, (fn,), (args, kwargs), options, own=own, noted=noted)
        result = eager()
        if result is not UNCACHED:
            return result
        in_place = _tf.may_record_gradients() and eager.holds_tape()
        return (traced if in_place else compiled(current()))(*args, **kwargs)

    name = f"vectorize_{getattr(fn, '__name__', type(fn).__name__)}"
    return CompiledFunction(call, traced, Transformed(_make, (fn,), options), name)


def _broadcast(
    fn: Callable[..., Any],
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    signature: str | None,
    excluded: frozenset[int | str],
    fallback: str,
) -> Any:
    """One call, in the graph being built."""
    wrong = sorted(kwargs.keys() - excluded)
    if wrong:
        raise ArgumentError(
            f"vectorize: the keyword argument {wrong[0]} is not in excluded. Pass it by position "
            "to broadcast it, or exclude it to pass it as it is."
        )
    cores = _parsed(signature)
    places = [k for k in range(len(args)) if k not in excluded]
    if cores is not None and len(places) != len(cores[0]):
        raise ArgumentError(
            f"vectorize: the signature {signature!r} has {len(cores[0])} arguments, and the "
            f"function was called with {len(places)}, excluded ones left out."
        )
    left = cores[0] if cores else [()] * len(places)
    given = [_Array.of(args[k], f"argument {k}", core) for k, core in zip(places, left)]
    _match_cores(given)
    in_axes = dict(zip(places, _match_loops(given)))
    shared = [None] * max((a.loops for a in given), default=0)
    made = functools.partial(_one(fn, cores, places), **kwargs)
    for axes in reversed([*zip(*[in_axes.get(k, shared) for k in range(len(args))])]):
        made = vmap(made, in_axes=axes, fallback=fallback, out_shapes="ragged")
    tensors = {k: a.tensor for k, a in zip(places, given)}
    return made(*[tensors.get(k, x) for k, x in enumerate(args)])


def _parsed(signature: object) -> tuple[list[Core], list[Core]] | None:
    """The core dimensions of the arguments and of the outputs."""
    if signature is None:
        return None
    if not isinstance(signature, str) or not _SIGNATURE.fullmatch(signature):
        raise ArgumentError(
            "signature must be core dimensions of arguments and outputs, such as '(m,n),(n)->(m)', "
            f"found {signature!r}."
        )
    sides = [re.findall(r"\((.*?)\)", side) for side in signature.split("->")]
    left, right = ([tuple(re.findall(r"\w+", core)) for core in side] for side in sides)
    return left, right


def _checked_excluded(excluded: Any) -> frozenset[int | str]:
    is_many = isinstance(excluded, Collection) and not isinstance(excluded, str)
    for x in excluded if is_many else [None]:
        if isinstance(x, bool) or not isinstance(x, (int, str)) or (isinstance(x, int) and x < 0):
            raise ArgumentError(
                "excluded must be a collection of positions (ints from 0) and names of keyword "
                f"arguments, found {excluded!r}."
            )
    return frozenset(excluded)


# ---------------------------------------------------------------------------
# One call of the function
# ---------------------------------------------------------------------------


def _one(
    fn: Callable[..., Any], cores: tuple[list[Core], list[Core]] | None, places: Sequence[int]
) -> Callable[..., Any]:
    """``fn`` of arrays without loop dimensions, with checks of its results.

    ``places`` are the numbers of the arguments that the signature describes.
    """
    converted = autographed(fn)

    @tf.autograph.experimental.do_not_convert  # a copy of a lambda's name has no source
    def one(*args: Nest, **kwargs: Nest) -> Any:
        result = converted(*args, **kwargs)
        outputs = list(result) if isinstance(result, (list, tuple)) else [result]
        left, right = cores or ([()] * len(places), [()] * len(outputs))
        if len(outputs) != len(right):
            raise ArgumentError(
                f"vectorize: the signature has {len(right)} outputs, and the function returned "
                f"{len(outputs)}."
            )
        given = [_Array.of(args[k], f"argument {k}", core) for k, core in zip(places, left)]
        made = [
            _Array.of(x, f"output {k}", core) for k, (x, core) in enumerate(zip(outputs, right))
        ]
        for a in made:
            if a.loops:
                raise ArgumentError(
                    f"vectorize: {a.name} of the function has shape {a.tensor.shape}, and its core "
                    f"dimensions are {a.described}. Expected: {len(a.core)} axes."
                )
        _match_cores([*given, *made])
        tensors = tuple(a.tensor for a in made)
        return tensors if isinstance(result, (list, tuple)) else tensors[0]

    return nests.named_as(one, fn)


# ---------------------------------------------------------------------------
# Dimensions
# ---------------------------------------------------------------------------


@dataclasses.dataclass(slots=True)
class _Array:
    """An argument or output of known rank: its last axes are its core dimensions."""

    name: str
    tensor: tf.Tensor
    core: Core

    @classmethod
    def of(cls, x: Nest, name: str, core: Core) -> _Array:
        """The array of an argument, or of an output of the function."""
        tensor = array(x, f"vectorize: {name}")
        made = cls(name, tensor, core)
        if tensor.shape.rank is None:
            raise ArgumentError(
                f"vectorize: {name} has unknown rank. Give it one: tf.ensure_shape."
            )
        if made.loops < 0:
            raise ArgumentError(
                f"vectorize: {name} has shape {tensor.shape}, and its core dimensions are "
                f"{made.described}. Expected: at least {len(core)} axes."
            )
        return made

    @property
    def loops(self) -> int:
        """The number of loop dimensions."""
        return len(self.tensor.shape) - len(self.core)

    @property
    def described(self) -> str:
        """The core dimensions as in the signature."""
        return f"({','.join(self.core)})"


def _match_cores(arguments: Sequence[_Array]) -> None:
    """Checks that core dimensions of one name have one size: unknown sizes when the map runs."""
    places: dict[str, list[tuple[_Array, int]]] = {}
    for a in arguments:
        for k, name in enumerate(a.core):
            places.setdefault(name, []).append((a, a.loops + k))
    for name, found in places.items():
        sizes: list[Any] = [a.tensor.shape[axis] for a, axis in found]
        known = {s for s in sizes if s is not None} | ({int(name)} if name.isdigit() else set())
        if len(known) > 1:
            shapes = ", ".join(f"{a.name}: {a.tensor.shape} for {a.described}" for a, _ in found)
            raise ArgumentError(
                f"vectorize: the core dimension {name} must have one size, found {sorted(known)}. "
                f"{shapes}."
            )
        first, place = found[0]
        size = next(iter(known)) if known else tf.shape(first.tensor)[place]
        for a, axis in found if known else found[1:]:
            if a.tensor.shape[axis] is None:
                a.tensor = _sized(a, axis, size, name)


def _sized(a: _Array, axis: int, size: Dim, name: str) -> tf.Tensor:
    """The tensor, after a check when it runs of the size of an axis."""
    shape = tf.shape(a.tensor)
    text = f"vectorize: the core dimension {name} must have one size. Of {a.name}, and expected:"
    check = tf.debugging.Assert(shape[axis] == size, [text, shape[axis], size])
    with tf.control_dependencies([check]):
        made = tf.reshape(a.tensor, tf.concat([shape[:axis], [size], shape[axis + 1 :]], 0))
    made.set_shape(a.tensor.shape)
    return made


def _match_loops(arguments: Sequence[_Array]) -> list[list[int | None]]:
    """For each argument the place of each loop dimension: 0, or None where it is shared.

    Dimensions of size 1 that are shared are taken out of the tensors.
    """
    depth = max((a.loops for a in arguments), default=0)
    axes: list[list[int | None]] = [[None] * depth for _ in arguments]
    for d in range(depth):  # counted from the last loop dimension
        having = [k for k, a in enumerate(arguments) if a.loops > d]
        sizes = {k: arguments[k].tensor.shape[arguments[k].loops - 1 - d] for k in having}
        mapped = [k for k in having if sizes[k] != 1] or having
        known = {sizes[k] for k in mapped} - {None}
        if len(known) > 1:
            shapes = ", ".join(
                f"{arguments[k].name}: {arguments[k].tensor.shape[: arguments[k].loops]}"
                for k in having
            )
            raise ArgumentError(
                "vectorize: the loop dimensions of the arguments must broadcast. Found, without "
                f"core dimensions: {shapes}."
            )
        if len(mapped) > 1 and None in [sizes[k] for k in mapped]:
            _repeat([arguments[k] for k in mapped], d)
        for k in mapped:
            axes[k][depth - 1 - d] = 0
    for a, found in zip(arguments, axes):
        own = found[depth - a.loops :]
        if None in own:
            a.tensor = tf.squeeze(a.tensor, [i for i, x in enumerate(own) if x is None])
    return axes


def _repeat(arguments: Sequence[_Array], d: int) -> None:
    """Repeats arguments that turn out to have size 1 in loop dimension d, counted from the last."""
    shapes = [tf.shape(a.tensor) for a in arguments]
    places = [a.loops - 1 - d for a in arguments]
    size = functools.reduce(
        tf.broadcast_dynamic_shape, [s[p : p + 1] for s, p in zip(shapes, places)]
    )
    for a, shape, place in zip(arguments, shapes, places):
        made = tf.broadcast_to(a.tensor, tf.concat([shape[:place], size, shape[place + 1 :]], 0))
        known = [None if i == place else s for i, s in enumerate(a.tensor.shape)]
        made.set_shape(known)
        a.tensor = made
