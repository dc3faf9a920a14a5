"""Results of ``vmap``, ``jacrev`` ...: functions with the methods of a ``tf.function``."""

from __future__ import annotations

import inspect
import threading
import weakref
from collections.abc import Callable
from typing import Any

from tf_pfor._tf import _functions
from tf_pfor.core.nests import Nest
from tf_pfor.tracing.caching import Signatures
from tf_pfor.tracing.fingerprint import Transformed

Call = Callable[[Signatures, tuple[Any, ...], dict[str, Any]], Any]
"""What a call does: eagerly it runs a kept trace and notes the signature."""


class CompiledFunction(_functions.PolymorphicFunction):
    """A function that is traced for each signature and kept by ``tf.saved_model.save``.

    Eager calls run traces that all functions share, and calls in a graph are built in place. The
    attributes of a ``tf.function`` (``get_concrete_function``, ``python_function`` ...) are made of
    ``build`` when they are first asked for. The signatures of eager calls, and of concrete
    functions that were asked for, are saved.

    Attributes:
      made: the parts that it was made of: equal parts have equal traces.
      noted: the signatures.
    """

    def __init__(
        self,
        call: Call,
        build: Callable[..., Any],
        made: Transformed,
        name: str,
        jit_compile: bool | None = None,
        noted: Signatures | None = None,
    ):
        self.made = made
        self.noted = noted or Signatures()
        self.__name__ = self.__qualname__ = name
        self.__doc__ = getattr(made.roots[0], "__doc__", None)
        self.__signature__ = (
            _ANY_ARGUMENTS  # with defaults, TensorFlow would pass them to be mapped
        )
        self.autograph_info__ = None  # what it runs is not for AutoGraph to convert
        self._call_rows = call
        self._build = build
        self._jit = jit_compile
        self._methods: Any = None

    def __getattr__(self, attribute: str) -> Any:
        """The attributes of a ``tf.function``; most functions are never asked for them."""
        with _LOCK:
            if "_python_function" not in self.__dict__ and not attribute.startswith("__"):
                self._python_function = self._build
                super().__init__(self._build, self.__name__, autograph=False, jit_compile=self._jit)
            if attribute in self.__dict__:
                return self.__dict__[attribute]
        raise AttributeError(f"{self!r} has no attribute {attribute!r}")

    def __call__(self, *args: Nest, **kwargs: Nest) -> Any:
        """Calls it, eagerly or in the graph being built."""
        return self._call_rows(self.noted, args, kwargs)

    def __get__(self, instance: object, owner: Any = None) -> Any:
        """The function as a method, whose first argument is the instance."""
        if instance is None:
            return self
        with _LOCK:
            if self._methods is None:
                self._methods = weakref.WeakKeyDictionary()
            noted = self._methods.setdefault(instance, Signatures(1))

        def call(noted: Signatures, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
            return self._call_rows(noted, (instance, *args), kwargs)

        def build(*args: Nest, **kwargs: Nest) -> Any:
            return self._build(instance, *args, **kwargs)

        made = Transformed(_method, (self, instance), ())
        return CompiledFunction(call, build, made, self.__name__, self._jit, noted)

    def __reduce__(self) -> Any:
        return self.made.make, (*self.made.roots, *self.made.options)

    def __repr__(self) -> str:
        return f"<{self.__name__} of {self.made.roots[0]!r}>"

    def get_concrete_function(self, *args: Nest, **kwargs: Nest) -> Any:
        """The trace for some arguments or specs of them, as ``tf.function`` has it."""
        concrete = super().get_concrete_function(*args, **kwargs)
        self.noted.add(None, args, kwargs)
        return concrete

    def experimental_get_tracing_count(self) -> int:
        """For how many signatures it was called eagerly, or was asked for a concrete function."""
        return len(self.noted.all())

    def _list_all_concrete_functions(self) -> Any:
        for args, kwargs in self.noted.all():
            super().get_concrete_function(*args, **kwargs)
        return super()._list_all_concrete_functions()


_LOCK = threading.RLock()
_ANY_ARGUMENTS = inspect.signature(lambda *args, **kwargs: None)


def _method(function: CompiledFunction, instance: object) -> Any:
    return function.__get__(instance)


def method_of(fn: CompiledFunction) -> tuple[CompiledFunction, Any] | None:
    """The function and the instance of a method; None for other functions."""
    return fn.made.roots if fn.made.make is _method else None  # type: ignore[return-value]
