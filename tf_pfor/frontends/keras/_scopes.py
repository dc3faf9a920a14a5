"""State that Keras keeps while layers run: masks, losses, the training flag.

All uses of private names of Keras are here. Keras has no type stubs, so that it is ``Any``.
"""

from __future__ import annotations

import contextlib
import importlib
from collections.abc import Generator, Sequence
from typing import Any

import tensorflow as tf

from tf_pfor.core.nests import Nest
from tf_pfor.tracing.user_code import autographed

keras: Any = importlib.import_module("keras")
_state: Any = importlib.import_module("keras.src.backend.common.global_state")
_variables: Any = importlib.import_module("keras.src.backend.common.variables")
_AutocastScope: Any = getattr(_variables, "AutocastScope", None) or _variables.AutoCastScope
_losses: Any = importlib.import_module("keras.src.losses.loss")
_layer: Any = importlib.import_module("keras.src.layers.layer")
_CONTEXT, _AUTOCAST = "current_call_ctx", "autocast_scope"


def mask_of(x: object) -> Any:
    """The Keras mask of a tensor, or None."""
    return getattr(x, "_keras_mask", None)


def is_sparse(x: Nest) -> bool:
    """Whether a tensor, also a symbolic one of Keras, is sparse.

    Keras says so of a product with a number, ``2.0 * x``, as well: what counts are its inputs.
    """
    if isinstance(x, tf.SparseTensor) or not isinstance(x, keras.KerasTensor) or not x.sparse:
        return isinstance(x, tf.SparseTensor)
    history = getattr(x, "_keras_history", None)
    if history is None or isinstance(history.operation, keras.layers.InputLayer):
        return True
    node = history.operation._inbound_nodes[history.node_index]
    return any(map(is_sparse, node.input_tensors))


def set_mask(x: Nest, mask: Nest) -> None:
    """Hangs a Keras mask on a tensor."""
    x._keras_mask = mask


def is_symbolic() -> bool:
    """Whether Keras only asks for shapes: nothing is run, and variables have no values yet."""
    return _state.get_global_attribute("symbolic_scope") is not None


def unscaled_loss(loss: tf.Tensor) -> tf.Tensor:
    """A loss that Keras has divided by the number of replicas, as it was."""
    undo = getattr(_losses, "unscale_loss_for_distribution", None)
    return loss if undo is None else undo(loss)


def has_config_of_defaults(model: Any) -> bool:
    """Whether Keras makes up the config of a subclassed model.

    Keras has the defaults of arguments then, whatever the model was made with.
    """
    return bool(getattr(model.get_config, "_is_default", False))


def undecayed(optimizer: Nest, variables: Sequence[Any], others: Sequence[Any]) -> list[Any] | None:
    """The variables of which the weights do not decay; None if nothing was said of any.

    ``others`` has for each variable the one in whose place it stands. Names mean these.
    """
    keys = getattr(optimizer, "_exclude_from_weight_decay", ())
    if not keys and not getattr(optimizer, "_exclude_from_weight_decay_pattern", None):
        return None
    return [
        variable
        for variable, other in zip(variables, others)
        if optimizer._var_key(variable) in keys or not optimizer._use_weight_decay(other.value)
    ]


def scaled_loss(loss: tf.Tensor) -> tf.Tensor:
    """A loss divided by the number of replicas, where Keras divides losses by it."""
    scale: Any = getattr(_losses, "scale_loss_for_distribution", None)
    return loss if scale is None else scale(loss)


def autocast_dtype() -> str | None:
    """The dtype to which variables are cast where they are read."""
    scope = _state.get_global_attribute(_AUTOCAST)
    return None if scope is None else scope.dtype


@contextlib.contextmanager
def outside_of_layers() -> Generator[None]:
    """A scope without a running layer: an eager trace that knows no outer layer can be kept."""
    if not tf.executing_eagerly():
        yield
        return
    held = {name: _state.get_global_attribute(name) for name in (_CONTEXT, _AUTOCAST)}
    try:
        for name in held:
            _state.set_global_attribute(name, None)
        yield
    finally:
        for name, value in held.items():
            _state.set_global_attribute(name, value)


@contextlib.contextmanager
def inside_of_a_layer(training: bool | None, autocast: str | None) -> Generator[None]:
    """Gives the layers that are called the training flag, and variables their dtype."""
    held = _state.get_global_attribute(_CONTEXT)
    if held is None:
        context = _layer.CallContext(entry_layer=None)
        context.training = training
        _state.set_global_attribute(_CONTEXT, context)
    try:
        with _AutocastScope(autocast):
            yield
    finally:
        _state.set_global_attribute(_CONTEXT, held)


def all_layers(layers: Sequence[Any]) -> list[Any]:
    """The layers and all layers in them, each once."""
    found = {id(x): x for layer in layers for x in (layer, *layer._flatten_layers())}
    return list(found.values())


@contextlib.contextmanager
def losses_of(layers: Sequence[Any]) -> Generator[list[tf.Tensor]]:
    """A list that has, at the end, what ``add_loss`` was called with; the layers forget it."""
    found: list[tf.Tensor] = []
    every = all_layers(layers)
    held = [list(layer._losses) for layer in every]
    for layer in every:
        layer._losses.clear()
    try:
        yield found
        found.extend(loss for layer in every for loss in layer._losses)
    finally:
        for layer, losses in zip(every, held):
            layer._losses[:] = losses


@contextlib.contextmanager
def with_autograph(layers: Sequence[Any]) -> Generator[None]:
    """Python control flow on tensors in the ``call`` of the user's layers: Keras converts none."""
    own = [
        layer
        for layer in all_layers(layers)
        if not type(layer).__module__.startswith(("keras.", "keras_", "tf_pfor."))
        and "call" not in vars(layer)
    ]
    for layer in own:
        object.__setattr__(layer, "call", autographed(layer.call))
    try:
        yield
    finally:
        for layer in own:
            object.__delattr__(layer, "call")


def strays(graph: tf.Graph, tracked: Sequence[Any]) -> list[Any]:
    """Trainable variables that a body has read and that belong to none of what is tracked."""
    known = {id(v._value) for x in tracked for v in _variables_of(x)}
    watched = getattr(graph, "_watched_variables", ())
    return [v for v in watched if v.trainable and id(v) not in known]


def _variables_of(x: Nest) -> list[Any]:
    return [x] if isinstance(x, keras.Variable) else x.variables
