"""Functions and containers with placeholders in the place of their tensors."""

from __future__ import annotations

import dataclasses
import functools
import types
from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from tf_pfor._tf import _functions
from tf_pfor.tracing.code_reads import reads
from tf_pfor.tracing.fingerprint import Walk, transformed
from tf_pfor.tracing.objects import rows_spec


class Rebuilt:
    """Copies of what a walk has visited, as far as it holds inputs."""

    def __init__(self, walk: Walk, placeholders: Sequence[tf.Tensor]):
        self._walk = walk
        self._placeholders = placeholders
        self._made: dict[int, Any] = {}

    def __call__(self, x: object) -> Any:
        """``x``, or a copy of it with placeholders."""
        number = self._walk.numbers.get(id(x))
        if number is not None:
            return self._placeholders[number]
        if id(x) not in self._walk.hot:
            return x
        if id(x) not in self._made:
            self._made[id(x)] = made = self._copy(x)
            return made
        return self._made[id(x)]

    def _copy(self, x: Any) -> Any:
        if isinstance(x, (types.FunctionType, _functions.PolymorphicFunction)):
            made = transformed(x)
            if made is None:
                return self._function(x)
            return made.make(*map(self, made.roots), *made.options)
        if isinstance(x, functools.partial):
            keywords = {k: self(v) for k, v in x.keywords.items()}
            return functools.partial(self(x.func), *map(self, x.args), **keywords)
        if isinstance(x, dict):
            mapping = x.copy()  # of the same type
            self._made[id(x)] = mapping
            mapping.update((k, self(v)) for k, v in x.items())
            return mapping
        if isinstance(x, list):
            items: list[Any] = []
            self._made[id(x)] = items
            items.extend(map(self, x))
            return items
        if isinstance(x, tuple):
            return type(x)(*map(self, x)) if hasattr(x, "_fields") else tuple(map(self, x))
        if isinstance(x, tf.RaggedTensor):
            parts = [*map(self, tf.nest.flatten(x, expand_composites=True))]
            ends = parts[1].shape[0]  # of the rows; the number of rows may be unknown
            spec = rows_spec(x, None if ends is None else ends - 1)
            return tf.nest.pack_sequence_as(spec, parts, expand_composites=True)
        fields = [f for f in dataclasses.fields(x) if f.init]
        return type(x)(**{f.name: self(getattr(x, f.name)) for f in fields})

    def _function(self, f: types.FunctionType) -> types.FunctionType:
        cells = tuple(types.CellType() for _ in f.__closure__ or ())
        space = f.__globals__
        made = types.FunctionType(f.__code__, dict(space), f.__name__, None, cells or None)
        self._made[id(f)] = made
        made.__dict__.update((k, self(v)) for k, v in f.__dict__.items())
        for name in ("__module__", "__qualname__", "__doc__", "__annotations__"):
            setattr(made, name, getattr(f, name))
        made.__defaults__ = self(f.__defaults__)
        made.__kwdefaults__ = self(f.__kwdefaults__)
        for chain in reads(f.__code__).names:
            if chain[0] in space:
                made.__globals__[chain[0]] = self(space[chain[0]])
        for new, old in zip(cells, f.__closure__ or ()):
            try:
                new.cell_contents = self(old.cell_contents)
            except ValueError:  # not assigned yet
                continue
        return made
