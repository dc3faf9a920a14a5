"""Optimizers of stacked variables: each member must be updated as if it were alone."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from tf_pfor._tf._devices import outside_of_strategies
from tf_pfor.core.errors import ArgumentError
from tf_pfor.core.nests import Nest
from tf_pfor.frontends.keras import _scopes
from tf_pfor.frontends.keras._scopes import keras

# Classes of Keras that update each element by itself. Others are tried.
_BY_ELEMENT = (
    "Adadelta",
    "Adagrad",
    "Adam",
    "AdamW",
    "Adamax",
    "Ftrl",
    "Lion",
    "Nadam",
    "RMSprop",
    "SGD",
)
_USE = (
    "Expected: an optimizer that updates each element by itself, such as "
    f"{', '.join(_BY_ELEMENT)}. Use one of these (clipvalue is fine), or train the models one by "
    "one."
)
_LARGEST, _STEPS, _RATE = 3, 3, 0.1  # sizes of the variables of a trial, its steps, and their size
_TRIED = {"learning_rate": _RATE, "gradient_accumulation_steps": None}


def check_optimizer(optimizer: Nest, pairs: Sequence[Any], policy: str, *, scales: bool) -> None:
    """Refuses optimizers by which members of an ensemble change each other.

    ``pairs`` has each trainable variable of the ensemble, [k, ...], and the one of a model.
    ``scales``: Keras may wrap the optimizer, to scale the loss.
    """
    if optimizer is None:
        return
    every = [optimizer, *_inside(optimizer)]
    is_scaled = any(isinstance(x, keras.optimizers.LossScaleOptimizer) for x in every)
    if is_scaled or (scales and policy == "mixed_float16"):
        raise ArgumentError(
            "LossScaleOptimizer skips the step of all members of an Ensemble where the gradient of "
            "one is not finite. Expected: each member is trained as if alone. Use the policy "
            "mixed_bfloat16. Or pass compile(auto_scale_loss=False) and an optimizer with a fixed "
            "loss_scale_factor, such as 1024."
        )
    for one in every:
        for option in ("clipnorm", "global_clipnorm"):
            if value := getattr(one, option, None):
                raise ArgumentError(
                    f"{type(one).__name__} has {option}={value}, a norm of a variable that holds "
                    "all members of the Ensemble. Expected: each element is updated by itself. "
                    "Use clipvalue, or train the models one by one."
                )
    known = [getattr(keras.optimizers, name, None) for name in _BY_ELEMENT]
    if type(optimizer) in known or not pairs:
        return
    with outside_of_strategies():
        is_by_member = _is_by_member(optimizer, pairs)
    if not is_by_member:
        raise ArgumentError(
            f"{type(optimizer).__name__} updates a member of an Ensemble otherwise than alone. It "
            "computes over a whole variable, or chooses by the name or the shape of a variable. "
            f"{_USE}"
        )


def exclude_by_member(optimizer: Nest, pairs: Sequence[Any]) -> None:
    """Takes weight decay off stacked variables where it is off the variable of a model.

    The user told ``exclude_from_weight_decay`` variables of the first model or of the ensemble, or
    parts of the names of the model's variables.
    """
    every = [] if optimizer is None or not pairs else [optimizer, *_inside(optimizer)]
    for one in every:
        found = None if one.built else _scopes.undecayed(one, *zip(*pairs))
        if found is not None:
            one.exclude_from_weight_decay(var_list=found)


def _inside(optimizer: Nest) -> Iterator[Any]:
    """Yields the optimizers that an optimizer wraps."""
    for value in vars(optimizer).values():
        parts = value if isinstance(value, (list, tuple)) else [value]
        for part in parts:
            if isinstance(part, keras.optimizers.Optimizer) and part is not optimizer:
                yield part
                yield from _inside(part)


def _is_by_member(optimizer: Nest, pairs: Sequence[Any]) -> bool:
    """Whether copies of an optimizer give stacked variables what they give each member.

    In the last step the gradients of the second member are no numbers: the first must not see it.
    """
    random = np.random.default_rng(0)
    shapes = [tuple(min(size, _LARGEST) for size in alone.shape) for _, alone in pairs]
    values = [random.normal(size=(2, *shape)) for shape in shapes]
    stacked = [_variable(whole.path, x) for (whole, _), x in zip(pairs, values)]
    members = [
        [_variable(alone.path, x[i]) for (_, alone), x in zip(pairs, values)] for i in range(2)
    ]
    of_all, *of_one = [_copied(optimizer) for _ in range(3)]
    for step in range(_STEPS):
        gradients = [random.normal(size=x.shape) for x in values]
        for x in gradients:
            x[1] *= np.nan if step == _STEPS - 1 else 1e3
        _apply(of_all, gradients, stacked)
        for i, own in enumerate(of_one):
            _apply(own, [x[i] for x in gradients], members[i])
        for whole, *alone in zip(stacked, *members):
            found = keras.ops.convert_to_numpy(whole)
            for i, x in enumerate(alone):
                wanted = keras.ops.convert_to_numpy(x)
                if not np.allclose(found[i], wanted, rtol=1e-4, atol=1e-5, equal_nan=True):
                    return False
    return True


def _variable(path: str, value: np.ndarray) -> Any:
    """A variable whose path is ``path``, by which some optimizers choose."""
    *scopes, name = path.split("/")
    with contextlib.ExitStack() as stack:
        for scope in scopes:
            stack.enter_context(keras.name_scope(scope))
        return keras.Variable(value.astype(np.float32), name=name)


def _apply(optimizer: Nest, gradients: Sequence[np.ndarray], variables: Sequence[Any]) -> None:
    tensors = [keras.ops.convert_to_tensor(x.astype(np.float32)) for x in gradients]
    optimizer.apply(tensors, variables)


def _copied(optimizer: Nest) -> Any:
    """A new optimizer of the same config, with a fixed learning rate."""
    try:
        made = type(optimizer).from_config(_tried(optimizer.get_config()))
    except Exception as why:  # whatever a class of the user raises
        raise ArgumentError(
            f"{type(optimizer).__name__} cannot be copied, so that nobody can see whether it "
            "updates each member of an Ensemble as if alone. Define its get_config, with all "
            f"arguments of its constructor. {_USE}"
        ) from why
    return made


def _tried(config: Nest) -> Any:
    """The config with the options that a trial needs, also of optimizers inside."""
    if isinstance(config, dict):
        items: Nest = config
        return {k: _TRIED[k] if k in _TRIED else _tried(v) for k, v in items.items()}
    if isinstance(config, (list, tuple)):
        return type(config)(map(_tried, config))
    return config
