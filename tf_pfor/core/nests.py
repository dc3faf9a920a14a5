"""Nested structures: tf.nest, and dataclasses beside what it knows."""

from __future__ import annotations

import collections
import dataclasses
import functools
import numbers
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from typing import Any, TypeAlias

import numpy as np
import tensorflow as tf

from tf_pfor._tf import _types
from tf_pfor.core.errors import ArgumentError, ArgumentTypeError

Nest: TypeAlias = Any
"""A leaf, or leaves in dicts, lists, tuples and dataclasses: what ``tf.nest`` takes apart.

Leaves are tensors, composites, variables, specs or Python values. The name says that a function
opens what it gets by ``tf.nest``, or hands it on to one that does. A type checker cannot tell more.
"""


_SHOWN = 200  # characters of a value in a message

_OF_REPLICAS = tf.distribute.DistributedValues


def _tuple_type(name: str, fields: Sequence[str]) -> Any:
    make: Any = collections.namedtuple  # its fields are not known to a type checker
    return make(name, fields, rename=True)


@functools.lru_cache(maxsize=256)
def _stand_in(cls: type) -> Any:
    """A namedtuple type that stands for the dataclass ``cls``."""
    made = _tuple_type(cls.__name__, [f.name for f in dataclasses.fields(cls) if f.init])
    made.dataclass_type = cls
    return made


def _is_plain_dataclass(x: object) -> bool:
    return (
        dataclasses.is_dataclass(x)
        and not isinstance(x, type)
        and not hasattr(x, "__tf_flatten__")
        and not isinstance(x, (tf.Tensor, tf.TypeSpec))
    )


def from_user(structure: Nest) -> Any:
    """Replaces dataclasses by stand-ins that tf.nest can open."""
    if _is_plain_dataclass(structure):
        cls = type(structure)
        fields = [f.name for f in dataclasses.fields(cls) if f.init]
        return _stand_in(cls)(*[from_user(getattr(structure, name)) for name in fields])
    if isinstance(structure, tuple) and hasattr(structure, "_fields"):
        return type(structure)(*[from_user(x) for x in structure])
    if type(structure) in (list, tuple):
        return type(structure)(from_user(x) for x in structure)
    if type(structure) in (dict, collections.OrderedDict):
        items: Nest = structure
        return type(structure)((k, from_user(v)) for k, v in items.items())
    return structure


@functools.lru_cache(maxsize=256)
def _stand_in_of(spec: tf.TypeSpec[Any], names: tuple[str, ...]) -> Any:
    """A namedtuple type that stands for an extension type."""
    made = _tuple_type(spec.value_type.__name__, names)
    made.spec = spec
    return made


def opened(structure: Nest) -> Any:
    """``from_user``, with stand-ins for extension types too; ``to_user`` is the inverse."""

    def visit(x: Nest) -> Any:
        if not isinstance(x, tf.experimental.ExtensionType):
            return x
        spec, fields = _types.fields_of(x)
        return _stand_in_of(spec, tuple(fields))(*map(opened, fields.values()))

    return tf.nest.map_structure(visit, from_user(structure))


def to_user(structure: Nest) -> Any:
    """The inverse of ``from_user``."""
    if isinstance(structure, tuple) and hasattr(structure, "_fields"):
        parts = [to_user(x) for x in structure]
        spec = getattr(type(structure), "spec", None)
        if spec is not None:
            return _types.of_fields(spec, parts)
        cls = getattr(type(structure), "dataclass_type", None)
        if cls is None:
            return type(structure)(*parts)
        names = [f.name for f in dataclasses.fields(cls) if f.init]
        return cls(**dict(zip(names, parts)))
    if type(structure) in (list, tuple):
        return type(structure)(to_user(x) for x in structure)
    if type(structure) in (dict, collections.OrderedDict):
        items: Nest = structure
        return type(structure)((k, to_user(v)) for k, v in items.items())
    return structure


def replaced(nest: Nest, kind: type | tuple[type, ...], make: Callable[[Any], Any]) -> Any:
    """The nest with ``make(x)`` in place of every x of type ``kind``, or of one of these."""

    def visit(x: Nest) -> Any:
        if isinstance(x, kind):
            return make(x)
        if isinstance(x, tuple) and hasattr(x, "_fields"):
            return type(x)(*map(visit, x))
        if type(x) in (list, tuple):
            return type(x)(map(visit, x))
        if type(x) in (dict, collections.OrderedDict):
            items: Nest = x
            return type(x)((k, visit(v)) for k, v in items.items())
        return x

    return to_user(visit(from_user(nest)))


def as_function(fn: Callable[..., Any], jit_compile: bool | None = None) -> Callable[..., Any]:
    """``fn`` as a ``tf.function`` of which arguments and results may be dataclasses."""

    def of_nests(args: Nest, kwargs: Nest) -> Any:
        return from_user(fn(*to_user(args), **to_user(kwargs)))

    compiled = tf.function(of_nests, autograph=False, jit_compile=jit_compile)

    def call(*args: Nest, **kwargs: Nest) -> Any:
        return to_user(compiled(from_user(args), from_user(kwargs)))

    return call


def named_as(fn: Callable[..., Any], other: Callable[..., Any]) -> Callable[..., Any]:
    """``fn`` with the name and the signature of another function, which may be any callable."""
    return functools.update_wrapper(fn, other, ("__name__", "__qualname__", "__doc__"), ())


def flatten(structure: Nest) -> list[Any]:
    """Leaves; composites are opened, None stays a leaf."""
    return tf.nest.flatten(structure, expand_composites=True)


def pack(structure: Nest, leaves: list[Any]) -> Any:
    """The nest ``structure`` with other leaves: the inverse of ``flatten``."""
    return tf.nest.pack_sequence_as(structure, leaves, expand_composites=True)


def skeleton(structure: Nest) -> Any:
    """The nest to ``pack`` other leaves in that holds no tensor: specs of composites, and None."""

    def of_leaf(leaf: object) -> Any:
        is_composite = isinstance(leaf, tf.__internal__.CompositeTensor)
        return tf.type_spec_from_value(leaf) if is_composite else None

    return tf.nest.map_structure(of_leaf, structure)


def paths(structure: Nest, name: str) -> list[str]:
    """For each leaf, how a user would write it: ``elems['a'][0]``."""
    if isinstance(structure, tuple) and hasattr(structure, "_fields"):
        fields = getattr(structure, "_fields")  # noqa: B009  (no attribute of a plain tuple)
        return [p for f, x in zip(fields, structure) for p in paths(x, f"{name}.{f}")]
    if isinstance(structure, (list, tuple)):
        return [p for i, x in enumerate(structure) for p in paths(x, f"{name}[{i}]")]
    if isinstance(structure, dict):
        return [p for k in sorted(structure) for p in paths(structure[k], f"{name}[{k!r}]")]
    return [name] * len(flatten(structure))


def shown(value: object) -> str:
    """A value in a message: a tensor by its shape, anything else as Python writes it, cut."""
    if isinstance(value, (tf.Tensor, tf.Variable, np.ndarray)):
        return f"a tensor of shape {value.shape}"
    text = repr(value)
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."


def check_leaves(structure: Nest, name: str) -> None:
    """Refuses what TensorFlow cannot flatten: dicts without an order, and values of replicas.

    Raises:
      ArgumentTypeError: for a dict whose keys have no order, and for values of replicas.
    """
    if isinstance(structure, Mapping):
        try:
            sorted(structure)
        except TypeError:
            kinds = sorted({type(key).__name__ for key in structure})
            raise ArgumentTypeError(
                f"{name} is a dict with keys of the types {', '.join(kinds)}, which have no order. "
                "Expected: keys of one type, such as str."
            ) from None
        for key, part in structure.items():
            check_leaves(part, f"{name}[{key!r}]")
    elif isinstance(structure, (list, tuple)):
        for i, part in enumerate(structure):
            check_leaves(part, f"{name}[{i}]")
    elif isinstance(structure, _OF_REPLICAS) and not isinstance(structure, tf.Variable):
        raise ArgumentTypeError(
            f"{name} is a {type(structure).__name__}: values of the replicas of a strategy. "
            "Expected: tensors. Call the mapped function, without strategy, in each replica: "
            "strategy.run(tf_pfor.vmap(fn), args=(x,)). Or pass one tensor of all rows, as "
            "strategy.gather(x, 0) makes it."
        )


def check_rows(structure: Nest, name: str) -> None:
    """Refuses what is a sequence of numbers or examples for Python, but no tensor with axis 0.

    Raises:
      ArgumentTypeError: for a range, a set, a dataset or an iterator; it says what to pass instead.
    """
    if isinstance(structure, range):
        raise ArgumentTypeError(
            f"{name} is a range, expected a nest of tensors of shape [n, ...]. Pass tf.range(...); "
            "to call a function with the numbers 0 ... n - 1 use pfor(fn, n)."
        )
    if isinstance(structure, tf.data.Dataset):
        raise ArgumentTypeError(
            f"{name} is a tf.data.Dataset, expected a nest of tensors of shape [n, ...]. Map over "
            "its batches: dataset.batch(n).map(lambda batch: tf_pfor.vectorized_map(fn, batch))."
        )
    if isinstance(structure, (Iterator, Set)):
        lack = "order" if isinstance(structure, Set) else "axis 0, and can be read once"
        raise ArgumentTypeError(
            f"{name} is a {type(structure).__name__}, which has no {lack}. "
            "Expected: a nest of tensors of shape [n, ...]: stack what it gives."
        )
    if isinstance(structure, Mapping):
        for key, part in structure.items():
            check_rows(part, f"{name}[{key!r}]")
    elif isinstance(structure, (list, tuple)):
        for i, part in enumerate(structure):
            check_rows(part, f"{name}[{i}]")


def spread(prefix: Nest, tree: Nest, name: str) -> list[int | None]:
    """One axis for each leaf of ``tree``, from a nest that is a prefix of it.

    Raises:
      ArgumentError: if it is not a prefix.
    """
    if prefix is None:
        return [None] * len(flatten(tree))
    if isinstance(prefix, numbers.Integral) and not isinstance(prefix, bool):  # pyright: ignore[reportUnnecessaryIsInstance]
        return [int(prefix)] * len(flatten(tree))
    prefix = from_user(prefix)
    if isinstance(prefix, (list, tuple)) and isinstance(tree, (list, tuple)):
        if len(prefix) == len(tree):
            parts = [spread(p, t, f"{name}[{i}]") for i, (p, t) in enumerate(zip(prefix, tree))]
            return [a for part in parts for a in part]
    elif isinstance(prefix, dict) and isinstance(tree, dict) and set(prefix) == set(tree):
        keys = sorted(tree)
        return [a for k in keys for a in spread(prefix[k], tree[k], f"{name}[{k!r}]")]
    of_arguments = name.startswith("in_axes") and (
        " The outer tuple has one entry for each argument: ({'a': 0, 'b': None},) for one argument "
        "that is a dict."
    )
    raise ArgumentError(
        f"{name} is {shown(prefix)}. Expected: an int, None or a prefix of the nest "
        f"{shown(tf.nest.map_structure(lambda x: '*', tree))}.{of_arguments or ''}"
    )
