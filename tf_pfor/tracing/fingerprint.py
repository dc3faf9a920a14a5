"""The key of everything that the trace of a Python function depends on; its tensors as inputs.

A ``Walk`` goes through functions and arguments: code, closure cells, the globals that the code
reads, defaults, containers, objects with their attributes. Python values count by value, variables
and layers by identity (weakly). Tensors become numbered inputs. ``rebuild`` makes the same
functions and containers with placeholders in their place. So one trace serves all tensors of the
same dtype and shape. An object that a walk does not know makes it ``Uncacheable``.
"""

from __future__ import annotations

import collections
import dataclasses
import enum
import functools
import hashlib
import inspect
import sys
import types
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import tensorflow as tf

from tf_pfor._tf import _functions
from tf_pfor.tracing import objects
from tf_pfor.tracing.code_reads import Chain, reads
from tf_pfor.tracing.identity import Uncacheable, is_library
from tf_pfor.tracing.user_code import autographed

BY_IDENTITY, CLOSURE, ARGUMENT = range(3)
"""How a tensor counts: by identity; as an input, but small integers by value; as an input."""
SMALL = 16
"""Integer tensors of up to so many elements may be shapes and axes: closed over, they are values.
"""
_EFFECTS = frozenset(
    {
        "__import__",
        "breakpoint",
        "compile",
        "eval",
        "exec",
        "globals",
        "id",
        "input",
        "locals",
        "open",
        "print",
    }
)
_BUILTINS = vars(sys.modules["builtins"])
_exported: dict[int, Any] = {}  # functions that modules of libraries export


class Walk(objects.Key):
    """One fingerprint.

    Attributes:
      asks_sizes: whether the code that was visited may ask for static shapes of tensors.
    """

    def __init__(self, placeholders: Iterable[tf.Tensor] = ()):
        super().__init__(placeholders)
        self.asks_sizes = False
        self._by_identity: set[int] = set()

    def visit(self, x: object, mode: int) -> None:
        """Adds a value to the key, by the visitor of its type."""
        visitor = _EXACT.get(type(x)) or _others.get(type(x))
        if visitor is None:
            if len(_others) >= 1024:
                _others.clear()
            visitor = _others[type(x)] = _visitor(x)
        visitor(self, x, mode)

    def key(self) -> tuple[Any, ...]:
        """The key of all that was visited.

        Raises:
          Uncacheable: if a tensor would be an input in one place and itself in another.
        """
        if self._by_identity and not self._by_identity.isdisjoint(self.numbers):
            raise Uncacheable("a tensor is reached both directly and through an object")
        return tuple(self.parts)

    def tensor(self, x: Any, mode: int) -> None:
        """Adds a tensor: as an input, by value or by identity."""
        if vars(x).get("_keras_mask") is not None:
            raise Uncacheable("it holds a tensor with a Keras mask")
        if id(x) not in self._placeholders:
            if not self.may_be_input(x):
                raise Uncacheable("it holds a tensor of a graph")
            dtype = x.dtype
            if mode == BY_IDENTITY or dtype in (tf.resource, tf.variant):
                self._by_identity.add(id(x))
                self.known.append(x)
                return self.token(x)
            if (
                mode == CLOSURE
                and (dtype.is_integer or dtype.is_bool)
                and not dtype.is_quantized
                and x.shape.num_elements() <= SMALL
            ):
                self.known.append(x)
                self.parts += ("value", dtype, tuple(x.shape), x.numpy().tobytes())
                return None
        return self.input(x, x)

    def chain(self, value: object, attributes: Chain, mode: int) -> None:
        """Adds what code reads from a name: through modules only what it names."""
        for name in attributes:
            if not isinstance(value, types.ModuleType):
                break
            if value.__name__.startswith("numpy.random"):
                raise Uncacheable("it reads numpy.random")
            found = getattr(value, name, _MISSING)
            if found is _MISSING:
                self.parts.append("missing")
                return
            value, mode = found, BY_IDENTITY  # a module is not rebuilt
        self.visit(value, mode)

    def function(self, f: Any, mode: int) -> None:
        """Adds a Python function."""
        if _exported.get(id(f)) is f:
            self.parts.append(f)
            return None
        space = f.__globals__
        library = is_library(space.get("__name__"))
        if library and (f.__closure__ is None or _is_exported(f)):
            if _is_exported(f):
                _exported[id(f)] = f
            self.parts.append(f)
            return None
        mode = BY_IDENTITY if "_tf_decorator" in f.__dict__ else min(mode, CLOSURE)
        made = transformed(f)
        if made is not None:
            return self.transformed(f, made, mode)
        if not self.enter(f, mode):
            return None
        code = f.__code__
        self.parts.append(code)
        read = reads(code)
        if read.problem and not library:
            raise Uncacheable(read.problem)
        if not library:
            self.asks_sizes |= read.asks_sizes
            self._globals(space, read.names, mode)
        self._cells(f, read.cells, mode)
        self.visit(f.__defaults__, mode)
        if f.__kwdefaults__:
            self.visit(f.__kwdefaults__, mode)
        if f.__dict__ and not library:
            self.visit({k: v for k, v in f.__dict__.items() if k not in _DECORATION}, BY_IDENTITY)
        return self.leave(f, mode)

    def transformed(self, f: object, made: Transformed, mode: int) -> None:
        """Adds a function of this package: of what it was made."""
        mode = min(mode, CLOSURE)
        if self.enter(f, mode):
            self.parts += (made.make, made.options)
            self.visit(made.roots, mode)
            self.leave(f, mode)

    def _globals(self, space: dict[str, Any], names: tuple[Chain, ...], mode: int) -> None:
        for chain in names:
            name = chain[0]
            if name in space:
                self.chain(space[name], chain[1:], mode)
            elif name in _EFFECTS:
                raise Uncacheable(f"it uses {name}()")
            elif name not in _BUILTINS:
                self.parts.append("missing")

    def _cells(self, f: Any, chains: tuple[Chain, ...], mode: int) -> None:
        if f.__closure__ is None:
            return
        cells = dict(zip(f.__code__.co_freevars, f.__closure__))
        if "__class__" in cells:  # read by super()
            objects.visit_class(self, cells["__class__"].cell_contents, with_construction=False)
        for name, *attributes in chains:
            try:
                value = cells[name].cell_contents
            except ValueError:  # not assigned yet
                self.parts.append("missing")
                continue
            if name != "__class__":
                self.chain(value, tuple(attributes), mode)


_MISSING = object()
_DECORATION = frozenset(
    {
        "__wrapped__",
        "__original_wrapped__",
        "_tf_decorator",
        "__signature__",
        "autograph_info__",
        "__tf_pfor__",
        "__tf_pfor_autographed__",
    }
)


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class Transformed:
    """The parts of a function made by ``vmap``, ``jacrev`` ...

    Attributes:
      make: makes the function, from the roots and the options.
      roots: the user's function, and options that are nests or functions.
      options: hashable options.
    """

    make: Callable[..., Any]
    roots: tuple[Any, ...]
    options: tuple[Any, ...]


def transformed(f: object) -> Transformed | None:
    """The parts of a function made by this package; None for others, and for its wrappers."""
    if isinstance(f, _functions.PolymorphicFunction):  # one around it has copies of its attributes
        return None if type(f) is _functions.PolymorphicFunction else getattr(f, "made", None)
    of, function, caller = f.__dict__.get("__tf_pfor_autographed__", (None, None, ""))
    return Transformed(autographed, (function,), (caller,)) if of is f else None


def _is_exported(f: Any) -> bool:
    """Whether a module holds ``f`` under its own name."""
    holder = sys.modules.get(getattr(f, "__module__", None) or "")
    for name in f.__qualname__.split("."):
        holder = getattr(holder, name, None)
    return holder is f


# ---------------------------------------------------------------------------
# By type
# ---------------------------------------------------------------------------

_Visitor = Callable[[Walk, Any, int], None]


def _value(walk: Walk, x: object, mode: int) -> None:
    del mode
    walk.parts += (type(x), x)


def _float(walk: Walk, x: object, mode: int) -> None:
    del mode
    walk.parts += (type(x), x if x and x == x else repr(x))  # 0.0 == -0.0, nan != nan


def _slice(walk: Walk, x: slice, mode: int) -> None:
    walk.parts.append(slice)
    for part in (x.start, x.stop, x.step):
        walk.visit(part, mode)


def _sequence(walk: Walk, x: Any, mode: int) -> None:
    if not x:
        walk.parts += (type(x), 0)
    elif walk.enter(x, mode):
        walk.parts += (type(x), len(x))
        if len(x) > objects.MAX_PARTS:
            raise Uncacheable("it refers to too much to look at in each call")
        for item in x:
            walk.visit(item, mode)
        walk.leave(x, mode)


def _mapping(walk: Walk, x: Any, mode: int) -> None:
    if walk.enter(x, mode):
        walk.parts += (type(x), len(x))
        for key, item in x.items():
            walk.visit(key, BY_IDENTITY)
            walk.visit(item, mode)
        if isinstance(x, collections.defaultdict):
            walk.visit(x.default_factory, BY_IDENTITY)
        walk.leave(x, mode)


def _set(walk: Walk, x: Any, mode: int) -> None:
    del mode
    if not all(isinstance(i, (int, str, bytes, float, type(None))) for i in x):
        raise Uncacheable("it holds a set of objects")
    walk.parts += (type(x), frozenset((type(i), i) for i in x))


def _array(walk: Walk, x: np.ndarray, mode: int) -> None:
    if mode == ARGUMENT:
        known = walk.numbers.get(id(x))
        try:
            return walk.input(x, tf.convert_to_tensor(x) if known is None else walk.inputs[known])
        except (TypeError, ValueError):
            raise Uncacheable("it holds an array that is no tensor") from None
    if x.dtype.hasobject:
        raise Uncacheable("it holds an array of objects")
    digest = hashlib.blake2b(np.ascontiguousarray(x).data.cast("B") if x.size else b"").digest()
    walk.parts += ("array", x.dtype.str, x.shape, digest)
    return None


def _ragged(walk: Walk, x: tf.RaggedTensor, mode: int) -> None:
    if mode != ARGUMENT:
        return objects.visit_object(walk, x)
    return objects.visit_rows(walk, x, mode)


def _compiled(walk: Walk, x: Any, mode: int) -> None:
    walk.transformed(x, x.made, mode)


def _method(walk: Walk, x: types.MethodType, mode: int) -> None:
    walk.parts.append(types.MethodType)
    walk.visit(x.__func__, BY_IDENTITY)
    walk.visit(x.__self__, BY_IDENTITY)


def _partial(walk: Walk, x: functools.partial[Any], mode: int) -> None:
    if walk.enter(x, mode):
        walk.parts.append(functools.partial)
        walk.visit(x.func, mode)
        walk.visit(x.args, mode)
        walk.visit(x.keywords, mode)
        walk.leave(x, mode)


def _builtin(walk: Walk, x: Any, mode: int) -> None:
    owner = getattr(x, "__self__", None)
    if isinstance(owner, types.ModuleType) or owner is None:
        module = x.__module__ if owner is None else owner.__name__
        if not is_library(module) or (module == "builtins" and x.__name__ in _EFFECTS):
            raise Uncacheable(f"it uses {module}.{x.__name__}")
        walk.parts.append(x)
        return
    walk.parts += ("method", x.__name__)
    walk.visit(owner, BY_IDENTITY)


def _module(walk: Walk, x: types.ModuleType, mode: int) -> None:
    del mode
    if not is_library(x.__name__):
        raise Uncacheable(f"it uses the module {x.__name__} as a value")
    walk.parts.append(x.__name__)


def _class(walk: Walk, x: type, mode: int) -> None:
    del mode
    objects.visit_class(walk, x, with_construction=True)


def _dataclass(walk: Walk, x: Any, mode: int) -> None:
    """An argument: its fields may hold inputs."""
    if walk.enter(x, mode):
        objects.visit_class(walk, type(x), with_construction=True)
        for field in dataclasses.fields(x):
            walk.visit(getattr(x, field.name), mode if field.init else BY_IDENTITY)
        walk.leave(x, mode)


def _object(walk: Walk, x: object, mode: int) -> None:
    if walk.enter(x, BY_IDENTITY):
        objects.visit_object(walk, x)
        walk.leave(x, BY_IDENTITY)


_EXACT: dict[type, _Visitor] = {
    **dict.fromkeys(
        (bool, int, str, bytes, type(None), type(Ellipsis), type(NotImplemented), range, tf.DType),
        _value,
    ),
    float: _float,
    complex: _float,
    slice: _slice,
    list: _sequence,
    tuple: _sequence,
    dict: _mapping,
    collections.OrderedDict: _mapping,
    collections.defaultdict: _mapping,
    set: _set,
    frozenset: _set,
    np.ndarray: _array,
    tf.__internal__.EagerTensor: Walk.tensor,
    types.FunctionType: Walk.function,
    types.MethodType: _method,
    types.BuiltinFunctionType: _builtin,
    functools.partial: _partial,
    types.ModuleType: _module,
    type: _class,
}


_others: dict[type, _Visitor] = {}


def _visitor(x: object) -> _Visitor:
    """The visitor of an object whose type is not in the table."""
    if isinstance(x, tf.Tensor):
        return Walk.tensor
    if isinstance(x, tf.RaggedTensor):
        return _ragged
    if isinstance(x, _functions.PolymorphicFunction) and transformed(x) is not None:
        return _compiled
    if isinstance(x, np.generic):
        return lambda walk, x, _: _array(walk, np.asarray(x), BY_IDENTITY)
    if isinstance(x, (tf.TensorShape, tf.TypeSpec)):
        return lambda walk, x, _: walk.parts.append((type(x), repr(x)))
    if isinstance(x, enum.Enum):
        return _enum
    if isinstance(x, type):
        return _class
    if isinstance(x, types.ModuleType):
        return _module
    if isinstance(x, tuple) and hasattr(x, "_fields"):
        return _named_tuple
    if is_library(type(x).__module__):
        if isinstance(x, (list, tuple)):
            return lambda walk, x, _: _sequence(walk, x, BY_IDENTITY)
        if isinstance(x, dict):
            return lambda walk, x, _: _mapping(walk, x, BY_IDENTITY)
        if isinstance(x, set):
            return _set
        if isinstance(x, inspect.Signature):
            return lambda walk, x, _: walk.parts.append("signature")
    elif dataclasses.is_dataclass(x):
        return lambda walk, x, mode: (_dataclass if mode == ARGUMENT else _object)(walk, x, mode)
    return _object


def _enum(walk: Walk, x: object, mode: int) -> None:
    del mode
    objects.visit_class(walk, type(x), with_construction=False)
    walk.token(x)


def _named_tuple(walk: Walk, x: object, mode: int) -> None:
    for name, item in vars(type(x)).items():
        if isinstance(item, types.FunctionType) and not name.startswith("_"):
            walk.visit(item, BY_IDENTITY)
    _sequence(walk, x, mode)
