"""Several models of one architecture at once: stacked variables, functional calls, ensembles."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Literal, NamedTuple

import numpy as np
import tensorflow as tf

from tf_pfor.api.options import check_bool
from tf_pfor.api.vmap import vmap
from tf_pfor.core.errors import ArgumentError, ArgumentTypeError
from tf_pfor.core.nests import Nest
from tf_pfor.frontends.keras import _scopes, _specs
from tf_pfor.frontends.keras._optimizers import check_optimizer, exclude_by_member
from tf_pfor.frontends.keras._scopes import keras

_no_autograph = tf.autograph.experimental.do_not_convert
_SEED = "seed_generator_state"  # Keras' name of the state of a SeedGenerator

# Keys of a config that may differ between members: they do not say what a call computes.
_FREE = frozenset(["compile_config", "registered_name", "seed", "shared_object_id", "trainable"])


class Variables(NamedTuple):
    """The variables of a model, or of several models with the members on axis 0.

    Attributes:
      trainable: tensors in the order of ``model.trainable_variables``.
      non_trainable: tensors in the order of ``model.non_trainable_variables``: statistics, and the
        states of random seeds.
    """

    trainable: list[Any]
    non_trainable: list[Any]


@_no_autograph
def stack(models: Sequence[Any]) -> Variables:
    """The variables of models of one architecture as one set: tensors [k, ...] for k models.

    ``vmap`` of ``functional_call`` over them calls all models at once. ``torch.func`` has it as
    ``stack_module_state``.

    Args:
      models: Keras models or layers that were built, all of the same class and config. Names,
        seeds and weights may differ.

    Returns:
      The ``Variables``.

    Raises:
      ArgumentError, ArgumentTypeError: if there is no model, one is not built, or they differ.

    >>> import keras
    >>> import tensorflow as tf
    >>> import tf_pfor
    >>> models = [keras.Sequential([keras.Input([3]), keras.layers.Dense(2)]) for _ in range(5)]
    >>> variables = tf_pfor.keras.stack(models)
    >>> variables.trainable[0].shape
    TensorShape([5, 3, 2])
    >>> call = lambda v, x: tf_pfor.keras.functional_call(models[0], v, x)
    >>> tf_pfor.vmap(call, in_axes=(0, None))(variables, tf.ones([4, 3])).shape
    TensorShape([5, 4, 2])
    """
    members = _checked(models)
    first = members[0]
    sides = [[m.trainable_variables, m.non_trainable_variables] for m in members]
    for member, side in zip(members, sides):
        known = [[(tuple(v.shape), v.dtype) for v in part] for part in side]
        if known != [[(tuple(v.shape), v.dtype) for v in part] for part in sides[0]]:
            raise ArgumentError(
                f"The variables of {member.name!r} have other shapes or dtypes than the variables "
                f"of {first.name!r}, or others are trainable. Expected: models of one kind."
            )
    made = [[tf.stack([v.value for v in same]) for same in zip(*part)] for part in zip(*sides)]
    return Variables(*made)


@_no_autograph
def functional_call(
    model: Any, variables: Nest, *inputs: Nest, updates: bool = False, **options: Any
) -> Any:
    """Calls a model with other values in the place of its variables, which stay as they are.

    A call with ``training=True`` makes new moving averages (batch normalization) and random seeds.
    They are in no variable: pass ``updates=True``, and give the returned variables to the next
    call.

    Args:
      model: a Keras model or layer that was built.
      variables: ``Variables``, or a pair of lists like it: a value for each variable. Or a list for
        the trainable variables; the others have the values of the model then.
      *inputs: the arguments of ``model.call``.
      updates: whether the ``Variables`` after the call are returned, too. What a call changes
        (statistics, random seeds) is dropped otherwise.
      **options: keyword arguments of ``model.call``, such as ``training``.

    Returns:
      The outputs of the model; with ``updates`` (outputs, variables).

    Raises:
      ArgumentError, ArgumentTypeError: if the model is not built, or values do not fit.

    >>> import keras
    >>> import tensorflow as tf
    >>> import tf_pfor
    >>> model = keras.Sequential([keras.Input([2]), keras.layers.Dense(1)])
    >>> values = tf_pfor.keras.Variables([tf.ones([2, 1]), tf.constant([3.])], [])
    >>> tf_pfor.keras.functional_call(model, values, tf.ones([1, 2])).numpy().tolist()
    [[5.0]]
    """
    outputs, after, _ = _called(model, variables, inputs, options)
    return (outputs, after) if updates else outputs


def _called(
    model: Any, variables: Nest, inputs: Sequence[Any], options: dict[str, Any]
) -> tuple[Any, Variables, list[Any]]:
    """The outputs, the variables after the call, and the penalties of a functional call."""
    (model,) = _checked([model])
    trainable, fixed = _matched(model, variables)
    outputs, after, losses = model.stateless_call(
        trainable, fixed, *inputs, return_losses=True, **options
    )
    return outputs, Variables(trainable, list(after)), losses


def _matched(model: Any, variables: Nest) -> list[list[tf.Tensor]]:
    """A tensor for each variable."""
    own = [model.trainable_variables, model.non_trainable_variables]
    groups = [*variables] if isinstance(variables, (list, tuple)) else []
    if not any(isinstance(x, (list, tuple)) for x in groups):
        groups = [groups, own[1]]  # as in torch.func, the others stay
    if [len(x) if isinstance(x, (list, tuple)) else -1 for x in groups] != [*map(len, own)]:
        raise ArgumentError(
            f"variables must be a list for the {len(own[0])} trainable variables of "
            f"{model.name!r}, or a pair of lists, for these and the {len(own[1])} others, as "
            "stack returns it."
        )
    made: list[list[tf.Tensor]] = []
    for known, given in zip(own, groups):
        made.append([tf.convert_to_tensor(x) for x in given])
        for v, x in zip(known, made[-1]):
            if not x.shape.is_compatible_with(v.shape) or x.dtype.name != v.dtype:
                raise ArgumentError(
                    f"The value for {v.path} has shape {x.shape} and dtype {x.dtype.name}, "
                    f"expected {tuple(v.shape)} and {v.dtype}. The members of a stack are mapped: "
                    "vmap(..., in_axes=(0, None))."
                )
    return made


# ---------------------------------------------------------------------------
# Ensembles
# ---------------------------------------------------------------------------


class _Template:
    """The model whose call the members share; no attribute that Keras would track.

    Attributes:
      model: the model.
    """

    def __init__(self, model: Any):
        self.model = model
        self._seen: Nest = None  # the specs of inputs

    def see(self, inputs: Nest) -> None:
        """Notes the shapes and dtypes of a batch: a subclass does not know its inputs before."""
        self._seen = _specs.of_batches(self._seen, inputs)

    def inputs(self, count: int | None) -> Any:
        """The specs of the inputs of an ensemble; None if they are unknown.

        Args:
          count: the number of members if each has examples of its own, else None.
        """
        known = _specs.inputs_of(self.model)
        if known is None:
            return self._seen
        if count is None:
            return known

        def of_all(x: Nest) -> Any:
            return keras.InputSpec(shape=(None, count, *x.shape[1:]), dtype=x.dtype, name=x.name)

        return keras.tree.map_structure(of_all, known)


@keras.saving.register_keras_serializable("tf_pfor")
class Ensemble(keras.Model):
    """A Keras model that trains k models of one architecture at once, and predicts their mean.

    All members run in one vectorized pass. Each is trained by the gradient of its loss alone, as if
    it were trained by itself. So the optimizer must update each element by itself, as SGD and Adam
    do. ``compile`` refuses others, and clipping by a norm. Each member keeps its statistics and
    random seeds. Members with equal seeds get different ones. ``compile``, ``fit``, ``evaluate``,
    ``predict``, ``save``, ``export`` and ``keras.saving.load_model`` work as for any model. The
    loss that Keras reports is the mean loss of the members. Metrics are of the mean prediction.

    Args:
      models: models that were built, of one class and config, which say how members begin. The
        ensemble copies their values; they are not trained.
      data: "shared": all members see the same batches. "own": each member has examples, targets
        and weights of its own, [batch, k, ...], as for bootstrap aggregation.
      supports_jit: whether Keras may compile the ensemble by XLA.
      **kwargs: as for ``keras.Model``: ``name``, ``dtype``.

    Raises:
      ArgumentError, ArgumentTypeError: if there is no model, one is not built, or they differ.

    >>> import keras
    >>> import numpy as np
    >>> import tf_pfor
    >>> models = [keras.Sequential([keras.Input([3]), keras.layers.Dense(1)]) for _ in range(5)]
    >>> ensemble = tf_pfor.keras.Ensemble(models)
    >>> ensemble.compile("adam", "mse")
    >>> history = ensemble.fit(np.ones([8, 3]), np.ones([8, 1]), verbose=0)
    >>> ensemble.predict(np.ones([8, 3]), verbose=0).shape, ensemble.members(np.ones([8, 3])).shape
    ((8, 1), TensorShape([5, 8, 1]))
    """

    def __init__(
        self,
        models: Sequence[Any],
        *,
        data: Literal["shared", "own"] = "shared",
        supports_jit: bool = False,
        **kwargs: Any,
    ):
        super().__init__(**kwargs)
        if data not in ("shared", "own"):
            raise ArgumentError(f"data must be 'shared' or 'own', found {data!r}.")
        values = stack(models)
        self.data, self.count = data, len(models)
        self.supports_jit = check_bool(supports_jit, "supports_jit")
        self._template = _Template(models[0])
        template = models[0]
        self._stacked = [
            [self._weight(v, x, trainable=side == 0) for v, x in zip(own, some)]
            for side, (own, some) in enumerate(
                zip([template.trainable_variables, template.non_trainable_variables], values)
            )
        ]
        self.built = True

    def _weight(self, like: Any, value: tf.Tensor, *, trainable: bool) -> Any:
        """A stacked variable that begins with ``value``."""
        values = value.numpy()
        if like.name == _SEED and (values == values[:1]).all():
            values = values + np.arange(len(values), dtype=values.dtype)[:, None] * [7919, 0]
        weight = self.add_weight(
            shape=value.shape,
            dtype=like.dtype,
            trainable=trainable,
            autocast=False,
            name=like.path.replace("/", "_"),
            initializer="zeros",
            constraint=_of_members(like.constraint),
        )
        weight.assign(values.astype(like.dtype))
        return weight

    def _run(self, inputs: Nest, training: bool | None) -> tuple[Any, list[Any], tf.Tensor]:
        """For each member: outputs [k, batch, ...], other variables after the call, penalty [k]."""
        model = self._template.model
        takes_training = model._call_has_training_arg
        options = {"training": training} if takes_training else {}

        @_no_autograph
        def one(variables: Nest, inputs: Nest) -> Any:
            outputs, after, losses = _called(model, variables, [inputs], options)
            penalty = tf.add_n([tf.cast(tf.reduce_sum(x), tf.float32) for x in losses] or [0.0])
            return outputs, after.non_trainable, penalty

        values = Variables(*[[w.value for w in side] for side in self._stacked])
        self._check_own(inputs, "inputs")
        self._template.see(inputs)
        axis = None if self.data == "shared" else 1
        with _scopes.outside_of_layers():
            return vmap(one, in_axes=(0, axis), out_shapes="ragged")(values, inputs)

    def _check_own(self, x: Nest, name: str) -> None:
        """Refuses data that is not of each member."""
        for leaf in keras.tree.flatten(x) if self.data == "own" else ():
            shape = tf.TensorShape(leaf.shape)
            if shape.rank is not None and not shape[1:2].is_compatible_with([self.count]):
                raise ArgumentError(
                    f'With data="own" {name} must be [batch, {self.count}, ...], with the '
                    f"examples of each of the {self.count} members; found shape {shape}."
                )

    def members(self, inputs: Nest, training: bool = False) -> Any:
        """The outputs of each member: [k, batch, ...]."""
        return self._run(keras.tree.map_structure(tf.convert_to_tensor, inputs), training)[0]

    @_no_autograph
    def call(self, inputs: Nest, training: bool | None = None) -> Any:
        """The mean of the members' outputs, [batch, ...]."""
        outputs, after, _ = self._run(inputs, bool(training))
        if training:
            self._keep(after)
        return keras.tree.map_structure(lambda y: tf.reduce_mean(y, 0), outputs)

    def _keep(self, after: Sequence[tf.Tensor]) -> None:
        for weight, value in zip(self._stacked[1], after):
            weight.assign(value)

    def compute_output_spec(self, inputs: Nest, training: bool | None = None) -> Any:
        """The shapes and dtypes of the outputs: as of one member."""

        def of_one(x: Nest) -> Any:
            shape = x.shape if self.data == "shared" else (x.shape[0], *x.shape[2:])
            return keras.KerasTensor(shape, x.dtype)

        return self._template.model.compute_output_spec(keras.tree.map_structure(of_one, inputs))

    def _member_losses(
        self, x: Nest, y: Nest, sample_weight: Nest, *, training: bool
    ) -> tuple[tf.Tensor, Any, list[tf.Tensor]]:
        """The loss of each member, the mean outputs, and other variables after the call.

        A loss is [k], or [k, batch, ...] if the compiled loss is not reduced. The penalty counts in
        each element then, which keeps the ratio that it has to a mean.
        """
        outputs, after, penalties = self._run(x, training)

        @_no_autograph
        def of_member(y_pred: Nest, x: Nest, y: Nest, sample_weight: Nest) -> Any:
            return self.compute_loss(x, y, y_pred, sample_weight, training)

        axis = None if self.data == "shared" else 1
        for v, name in ((y, "targets"), (sample_weight, "sample_weight")):
            if v is not None:
                self._check_own(v, name)
        given = [None if v is None else axis for v in (x, y, sample_weight)]
        losses = vmap(of_member, in_axes=(0, *given))(outputs, x, y, sample_weight)
        mean = keras.tree.map_structure(lambda t: tf.reduce_mean(t, 0), outputs)
        penalties = tf.reshape(penalties, [self.count, *[1] * (losses.shape.rank - 1)])
        return losses + _scopes.scaled_loss(tf.cast(penalties, losses.dtype)), mean, after

    @_no_autograph
    def train_step(self, data: Nest) -> dict[str, Any]:
        """One step of training for all members; Keras calls it in ``fit``."""
        x, y, sample_weight = keras.utils.unpack_x_y_sample_weight(data)
        with tf.GradientTape() as tape:
            losses, y_pred, after = self._member_losses(x, y, sample_weight, training=True)
            total = self.optimizer.scale_loss(tf.reduce_sum(losses))  # a sum: each has its gradient
        self._keep(after)
        weights = self.trainable_weights
        gradients = tape.gradient(total, [w.value for w in weights])
        self.optimizer.apply_gradients(zip(gradients, weights))
        return self._reported(losses, x, y, y_pred, sample_weight)

    @_no_autograph
    def test_step(self, data: Nest) -> dict[str, Any]:
        """One step of evaluation; Keras calls it in ``evaluate``."""
        x, y, sample_weight = keras.utils.unpack_x_y_sample_weight(data)
        losses, y_pred, _ = self._member_losses(x, y, sample_weight, training=False)
        return self._reported(losses, x, y, y_pred, sample_weight)

    def _reported(
        self, losses: tf.Tensor, x: Nest, y: Nest, y_pred: Nest, sample_weight: Nest
    ) -> dict[str, Any]:
        size = tf.shape(keras.tree.flatten(x)[0])[0]
        loss = _scopes.unscaled_loss(tf.reduce_mean(losses, 0))
        self._loss_tracker.update_state(loss, sample_weight=size)
        if self.data == "own":  # a mean prediction has no target: report the loss
            return {"loss": self._loss_tracker.result()}
        return self.compute_metrics(x, y, y_pred, sample_weight)

    def compile(self, optimizer: Nest = "rmsprop", *args: Nest, **kwargs: Nest) -> None:
        """Compiles as ``keras.Model`` does.

        Raises:
          ArgumentError: if the optimizer would not train each member as if it were alone.
        """
        made = keras.optimizers.get(optimizer)
        pairs = [*zip(self._stacked[0], self._template.model.trainable_variables)]
        scales = bool(kwargs.get("auto_scale_loss", True))
        check_optimizer(made, pairs, self.dtype_policy.name, scales=scales)
        exclude_by_member(made, pairs)
        super().compile(made, *args, **kwargs)

    def compile_from_config(self, config: Nest) -> None:
        """Compiles with what a saved ensemble was compiled with."""
        self.compile(**keras.saving.deserialize_keras_object(config))
        if self.optimizer is not None:
            self.optimizer.build(self.trainable_variables)

    def export(self, filepath: object, *args: Nest, **kwargs: Nest) -> None:
        """Exports as ``keras.Model`` does, with the inputs of the members.

        Raises:
          ArgumentError: if the inputs are unknown: a subclass has none before its first batch.
        """
        inputs = self._template.inputs(self.count if self.data == "own" else None)
        given = _specs.with_inputs(super().export, inputs, args, kwargs)
        if inputs is None and "input_signature" not in given and len(args) < 3:
            raise ArgumentError(
                "The inputs of the ensemble are unknown: its models are subclasses, and it has "
                "seen no batch. Call it once before, or pass input_signature."
            )
        super().export(filepath, *args, **given)

    def member(self, number: int) -> Any:
        """A copy of one member as a model of its own, with its values.

        Raises:
          ArgumentError: if there is no such member.
        """
        if not 0 <= number < self.count:
            raise ArgumentError(f"number must be from 0 to {self.count - 1}, found {number!r}.")
        template = self._template.model
        made = _copied(template)
        own = [made.trainable_variables, made.non_trainable_variables]
        for mine, stacked in zip(own, self._stacked):
            for v, x in zip(mine, stacked):
                v.assign(x.value[number])
        return made

    def get_config(self) -> dict[str, Any]:
        """The config that ``from_config`` makes the ensemble of; weights are saved beside it."""
        return {
            "model": keras.saving.serialize_keras_object(self._template.model),
            "build": _build_config(self._template.model),
            "count": self.count,
            "data": self.data,
            "supports_jit": self.supports_jit,
            "name": self.name,
        }

    @classmethod
    def from_config(cls, config: dict[str, Any], custom_objects: Any = None) -> Ensemble:
        """The ensemble that ``get_config`` has described."""
        config = dict(config)
        model = _built(
            keras.saving.deserialize_keras_object(
                config.pop("model"), custom_objects=custom_objects
            ),
            config.pop("build"),
        )
        return cls([model] * config.pop("count"), **config)


def _of_members(constraint: Nest) -> Any:
    """A constraint of the variable of a model as one of a stacked variable."""
    if constraint is None:
        return None

    def of_all(weights: Nest) -> Any:
        return vmap(constraint)(tf.convert_to_tensor(weights))

    return of_all


def _copied(model: Any) -> Any:
    """A model of the same config, built."""
    made = keras.saving.deserialize_keras_object(keras.saving.serialize_keras_object(model))
    return _built(made, _build_config(model))


def _build_config(model: Any) -> Any:
    return model.get_build_config() if hasattr(model, "get_build_config") else None


def _built(model: Any, build: Any) -> Any:
    if not model.built and build:
        model.build_from_config(build)
    return model


# ---------------------------------------------------------------------------
# Checks
# ---------------------------------------------------------------------------


def _checked(models: Any) -> list[Any]:
    """Layers of one architecture that were built."""
    members = list(models) if isinstance(models, (list, tuple)) else []
    if not members:
        raise ArgumentError(f"models must be a list of at least one model, found {models!r}.")
    for model in members:
        if not isinstance(model, keras.layers.Layer):
            raise ArgumentTypeError(f"Expected a Keras model or layer, found {model!r}.")
        if not model.built:
            raise ArgumentError(
                f"{model.name!r} was not built, so it has no variables. Call it, or build it."
            )
    first = members[0]
    others = [m for m in members if m is not first]
    known = _architecture(first) if others else None
    for model in others:
        if type(model) is not type(first) or _architecture(model) != known:
            raise ArgumentError(
                f"{model.name!r} and {first.name!r} differ in their class or config. Expected: "
                "models of one architecture, of which only names, seeds and weights differ."
            )
    return members


def _architecture(model: Any) -> Any:
    """The config of a model, with numbers for names, and without what may differ."""
    try:
        for layer in _scopes.all_layers([model]):
            if isinstance(layer, keras.Model) and _scopes.has_config_of_defaults(layer):
                raise NotImplementedError
        config = keras.saving.serialize_keras_object(model)
    except NotImplementedError as why:
        raise ArgumentError(
            f"{model.name!r} has no config, so that nobody can see whether the models are alike. "
            "Define get_config in its class, and in the classes of the models in it."
        ) from why
    names: dict[str, int] = {}
    _walk(config, lambda key, x: names.setdefault(x, len(names)) if key == "name" else None)
    return _walk(config, lambda _, x: f"name {names[x]}" if x in names else x)


def _walk(x: Nest, of_text: Callable[[Any, str], Any], key: Any = None) -> Any:
    """A config with ``of_text(key, text)`` in the place of each text."""
    if isinstance(x, dict):
        return {k: _walk(v, of_text, k) for k, v in x.items() if k not in _FREE}
    if isinstance(x, (list, tuple)):
        return [_walk(v, of_text, key) for v in x]
    return of_text(key, x) if isinstance(x, str) else x
