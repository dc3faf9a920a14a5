"""Objects in a fingerprint: variables, layers, modules, and instances of the user's classes."""

from __future__ import annotations

import functools
import sys
import types
import typing
from collections.abc import Callable, Iterable
from typing import Any

import tensorflow as tf

from tf_pfor.tracing.identity import HoldsTape, Uncacheable, is_library, tokens

_BY_IDENTITY = 0
MAX_PARTS = 100_000
"""What refers to more than this is not looked at in each call."""
# What TensorFlow and Keras note for themselves about modules, layers and models. The layers of a
# model are in its attributes once more.
_OF_MODULES = frozenset({"_name_scope"})
_OF_LAYERS = _OF_MODULES | {
    "_auto_config",
    "_build_shapes_dict",
    "_call_context_args",
    "_call_has_context_arg",
    "_call_signature",
    "_called",
    "_inbound_nodes",
    "_input_spec",
    "_lock",
    "_loss_ids",
    "_losses_override",
    "_outbound_nodes",
    "_parent_path",
    "_path",
    "_saved_model_arg_spec",
    "_saved_model_inputs_spec",
    "_tracked",
    "_tracker",
    "build",
    "call_signature_parameters",
    "quantize",
}
_OF_MODELS = _OF_LAYERS | {
    "_compile_loss",
    "_compile_metrics",
    "_inputs",
    "_inputs_struct",
    "_loss_tracker",
    "_nodes",
    "_nodes_by_depth",
    "_operations",
    "_operations_by_depth",
    "_outputs",
    "_outputs_struct",
    "predict_function",
    "test_function",
    "train_function",
}
# Classes of Keras whose attributes are settings; others are known by identity.
_KERAS_SETTINGS = (
    "keras.src.constraints",
    "keras.src.losses",
    "keras.src.metrics",
    "keras.src.random",
    "keras.src.regularizers",
)
# The content of a table is read when a trace runs.
_TABLES = (
    tf.lookup.StaticHashTable,
    tf.lookup.StaticVocabularyTable,
    tf.lookup.experimental.DenseHashTable,
    tf.lookup.experimental.MutableHashTable,
)
_PLAIN = frozenset({bool, int, str, bytes, type(None)})
_CONSTRUCTION = frozenset({"__init__", "__new__", "__post_init__"})
_NEVER_TRACED = frozenset(
    {
        "__annotate__",
        "__annotate_func__",
        "__del__",
        "__delattr__",
        "__getstate__",
        "__init_subclass__",
        "__reduce__",
        "__reduce_ex__",
        "__repr__",
        "__setstate__",
        "__str__",
        "from_config",
        "get_config",
    }
)


_Visitor = Callable[[Any, Any], None]
_visitors: dict[type, _Visitor] = {}


class Key:
    """The key of a walk over functions, containers and objects, as far as it has come.

    Attributes:
      parts: the key without the shapes of inputs: types, values, tokens, in the order of the walk.
      inputs: the tensors that the trace takes as inputs.
      shapes: their shapes, as far as the trace depends on them: the other half of the key.
      known: tensors and variables that the trace may refer to as they are.
      hot: ids of the functions and containers that hold an input.
      numbers: the place of a tensor or array among the inputs, by its id.
      uses: the number of places where an input was met.
      tokens: the tokens of objects that count by identity.
    """

    def __init__(self, placeholders: Iterable[tf.Tensor] = ()):
        self.parts: list[Any] = []
        self.inputs: list[tf.Tensor] = []
        self.shapes: list[tuple[int | None, ...]] = []
        self.known: list[Any] = []
        self.hot: set[int] = set()
        self.numbers: dict[int, int] = {}
        self.uses = 0
        self.tokens: list[int] = []
        self._placeholders = {id(t) for t in placeholders}
        self._seen: dict[int, int] = {}
        self._open: dict[int, int] = {}  # the uses before what was begun
        self._alive: list[Any] = []

    def visit(self, x: object, mode: int) -> None:
        """Adds a value to the key.

        Raises:
          Uncacheable: if it may change without being seen.
        """
        raise NotImplementedError

    def enter(self, x: object, mode: int) -> bool:
        """Begins a function, container or object; False if it was visited before."""
        place = id(x) if mode else ~id(x)
        number = self._seen.get(place)
        if number is not None:
            self.parts += ("again", number)
            if mode and (place in self._open or place in self.hot):
                self.uses += 1
            return False
        if len(self.parts) > MAX_PARTS:
            raise Uncacheable("it refers to too much to look at in each call")
        self._seen[place] = len(self._seen)
        self._alive.append(x)
        self._open[place] = self.uses
        return True

    def leave(self, x: object, mode: int) -> None:
        """Ends what ``enter`` began; it is hot if it has used inputs."""
        place = id(x) if mode else ~id(x)
        if self._open.pop(place) != self.uses and mode:
            self.hot.add(place)

    def token(self, x: object) -> None:
        """Adds the identity of an object."""
        number = tokens(x)
        self.tokens.append(number)
        self.parts += ("token", number)

    def may_be_input(self, x: object) -> bool:
        """Whether a tensor has a value, or is a placeholder of the trace that is being made."""
        return id(x) in self._placeholders or isinstance(x, tf.__internal__.EagerTensor)

    def input(
        self, x: object, tensor: tf.Tensor, shape: Iterable[int | None] | None = None
    ) -> None:
        """Adds ``x``, which is an input with the value of ``tensor``, of which a shape is kept."""
        self.uses += 1
        number = self.numbers.get(id(x))
        if number is not None:
            self.parts += ("input", number)
            return
        self.numbers[id(x)] = number = len(self.inputs)
        self.inputs.append(tensor)
        self.shapes.append(tuple(tensor.shape if shape is None else shape))
        self._alive.append(x)
        self.parts += ("input", number, tensor.dtype)


def visit_rows(walk: Key, x: tf.RaggedTensor, mode: int) -> None:
    """Adds an argument with variable-length rows: any lengths, of the same number of rows."""
    parts: list[Any] = tf.nest.flatten(x, expand_composites=True)
    if not all(map(walk.may_be_input, parts)):
        raise Uncacheable("it holds a RaggedTensor of a graph")
    if walk.enter(x, mode):
        walk.parts += ("ragged", repr(rows_spec(x)))
        for part in parts:
            is_fixed = part is x.row_splits or not part.shape.rank
            walk.input(part, part, part.shape if is_fixed else [None, *part.shape[1:]])
        walk.leave(x, mode)


def rows_spec(x: tf.RaggedTensor, n: int | None = None) -> tf.RaggedTensorSpec:
    """The type of a ragged tensor, with another number of rows."""
    ragged = x
    shape = tf.TensorShape([n]).concatenate(ragged.shape[1:])
    return tf.RaggedTensorSpec(shape, x.dtype, ragged.ragged_rank, ragged.row_splits.dtype)


def visit_object(walk: Key, x: object) -> None:
    """Adds an instance: its class and its attributes, and its identity where that counts.

    Raises:
      Uncacheable: if its state cannot be seen.
    """
    visitor = _visitors.get(type(x))
    if visitor is None:
        if len(_visitors) >= 1024:
            _visitors.clear()
        visitor = _visitors[type(x)] = _visitor(x)
    visitor(walk, x)


def _visitor(x: object) -> _Visitor:
    """The visitor of objects of the type of ``x``."""
    if isinstance(x, tf.Variable):
        return _variable
    if isinstance(x, tf.types.experimental.PolymorphicFunction):
        return _tf_function
    if isinstance(x, (property, classmethod, staticmethod, functools.cached_property)):
        return _descriptor
    if isinstance(x, (types.MethodDescriptorType, types.WrapperDescriptorType)):
        return lambda walk, x: walk.parts.append(x)
    root = type(x).__module__.split(".", 1)[0]
    if root == "keras":
        return _keras(x)
    return _library if root in ("tensorflow", "numpy") else _instance(x)


def _tf_function(walk: Key, x: Any) -> None:
    walk.token(x)
    walk.visit(x.python_function, _BY_IDENTITY)


def _variable(walk: Key, x: Any) -> None:
    walk.token(x)
    walk.parts.append(x.trainable)
    walk.known.append(x)


def _descriptor(walk: Key, x: Any) -> None:
    walk.parts.append(type(x))
    if isinstance(x, property):
        walk.visit((x.fget, x.fset), _BY_IDENTITY)
    else:
        function: Any = x.func if isinstance(x, functools.cached_property) else x.__func__
        walk.visit(function, _BY_IDENTITY)


def _library(walk: Key, x: Any) -> None:
    """Instances of classes of TensorFlow and numpy: those that are known."""
    cls = type(x)
    if isinstance(x, tf.Module):
        _attributes(walk, x, _OF_MODULES)
    elif isinstance(x, tf.random.Generator):
        walk.token(x)
        walk.visit([x.state, x.algorithm], _BY_IDENTITY)
    elif cls.__module__ == "tensorflow.python.ops.custom_gradient" and cls.__name__ == "Bind":
        walk.parts.append(cls)
        walk.visit(x._f, _BY_IDENTITY)
    elif isinstance(x, tf.GradientTape):
        raise HoldsTape("it holds a GradientTape, whose state is not known")
    elif isinstance(x, _TABLES):
        _table(walk, x)
    elif cls.__name__ == "PythonAPIDispatcher":  # of a function of TensorFlow
        walk.parts.append(cls)
    elif cls.__module__ == "numpy" and callable(x):  # ufuncs and dispatched functions
        walk.parts.append(x)
    else:
        raise Uncacheable(f"it holds a {cls.__qualname__}, whose state is not known")


def _table(walk: Key, x: Any) -> None:
    """The identity of a table, of its handle and its default value, and of tables in it."""
    walk.token(x)
    for value in vars(x).values():
        if isinstance(value, (tf.Tensor, *_TABLES)):
            walk.visit(value, _BY_IDENTITY)


def _keras(x: object) -> _Visitor:
    """The visitor of objects of the classes of Keras itself."""
    keras = sys.modules["keras"]
    if isinstance(x, keras.Variable):
        return _keras_variable
    if isinstance(x, keras.dtype_policies.DTypePolicy):
        return lambda walk, x: walk.parts.append(x.name)
    if isinstance(x, keras.layers.Layer) or type(x).__module__.startswith(_KERAS_SETTINGS):
        bookkeeping = _bookkeeping(x)
        return lambda walk, x: _attributes(walk, x, bookkeeping)
    return lambda walk, x: walk.token(x)


def _keras_variable(walk: Key, x: Any) -> None:
    inner = vars(x).get("_value")
    if not isinstance(inner, tf.Variable):
        raise Uncacheable("it holds a Keras variable that is not initialized")
    walk.token(x)
    walk.parts.append(x.trainable)
    _variable(walk, inner)


def _bookkeeping(x: object) -> frozenset[str]:
    keras = sys.modules.get("keras")
    if keras is None or not isinstance(x, keras.Operation):
        return _OF_MODULES if isinstance(x, tf.Module) else _OF_LAYERS
    return _OF_MODELS if isinstance(x, keras.Model) else _OF_LAYERS


def _attributes(walk: Key, x: Any, bookkeeping: frozenset[str]) -> None:
    """Layers and modules: the identity, and all attributes that are not bookkeeping."""
    walk.token(x)
    found = vars(x).copy()
    for name in bookkeeping.intersection(found):
        del found[name]
    parts, values = walk.parts, found.values()
    parts.append(tuple(found))
    parts.append(tuple(map(type, values)))
    for name, value in found.items():
        if type(value) in _PLAIN:
            parts.append(value)
        elif not name.startswith("_self_"):
            walk.visit(value, _BY_IDENTITY)


def _instance(x: object) -> _Visitor:
    """The visitor of instances of users' classes: functions of the class, and all attributes."""
    _check_visible(type(x))
    keras = sys.modules.get("keras")
    if isinstance(x, tf.Module) or (keras is not None and isinstance(x, keras.Operation)):
        bookkeeping = _bookkeeping(x)

        def of_layer(walk: Key, x: object) -> None:
            visit_class(walk, type(x), with_construction=False)
            _attributes(walk, x, bookkeeping)

        return of_layer
    slots: list[str] = []
    for cls in type(x).__mro__:
        found = vars(cls).get("__slots__", ())
        slots += (found,) if isinstance(found, str) else found

    def of_object(walk: Key, x: object) -> None:
        visit_class(walk, type(x), with_construction=False)
        values: dict[str, Any] = dict(getattr(x, "__dict__", {}))
        for name in slots:
            if hasattr(x, name) and name not in ("__dict__", "__weakref__"):
                values[name] = getattr(x, name)
        walk.visit(values, _BY_IDENTITY)

    return of_object


_HEAP_TYPE, _IMMUTABLE_TYPE = 1 << 9, 1 << 8  # flags of CPython's types
_WITHOUT_STATE = (object, types.SimpleNamespace, typing.Generic)


def _check_visible(cls: type) -> None:
    """Refuses classes that are not written in Python: attributes are not all of their state."""
    has_dict = False
    for base in reversed(cls.__mro__):
        if base in _WITHOUT_STATE:
            has_dict = has_dict or base is types.SimpleNamespace
            continue
        has_dict = has_dict or "__dict__" in vars(base)
        is_python = base.__flags__ & _HEAP_TYPE and not base.__flags__ & _IMMUTABLE_TYPE
        is_pybind = type(base).__module__.startswith("pybind11")
        if not is_python or is_pybind or not (has_dict or "__slots__" in vars(base)):
            raise Uncacheable(f"it holds a {cls.__qualname__}, whose state is not known")


def visit_class(walk: Key, cls: type, *, with_construction: bool) -> None:
    """Adds a class: its name, and functions and values of the classes that users wrote.

    Args:
      walk: the walk.
      cls: the class.
      with_construction: whether code may make instances, not only use one.
    """
    if is_library(cls.__module__):
        walk.parts.append(cls)
        return
    if not walk.enter(cls, _BY_IDENTITY):
        return
    walk.parts += (cls.__qualname__, with_construction)
    visit_class(walk, type(cls), with_construction=False)
    for base in reversed(cls.__mro__):
        if is_library(base.__module__):
            walk.parts.append(base)
            continue
        for name, value in list(vars(base).items()):
            if _counts(name, value, with_construction):
                walk.parts.append(name)
                walk.visit(value, _BY_IDENTITY)
    walk.parts.append("end of class")
    walk.leave(cls, _BY_IDENTITY)


def _counts(name: str, value: object, with_construction: bool) -> bool:
    if name in _NEVER_TRACED or name == "_abc_impl":
        return False
    if isinstance(value, (types.MemberDescriptorType, types.GetSetDescriptorType)):
        return False
    if name in _CONSTRUCTION:
        return with_construction
    is_dunder = name.startswith("__") and name.endswith("__")
    return not is_dunder or isinstance(value, types.FunctionType)
