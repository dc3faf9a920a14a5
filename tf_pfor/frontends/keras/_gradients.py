"""A model that is trained by the gradient of each example, clipped: DP-SGD (Abadi et al., 2016)."""

from __future__ import annotations

import numbers
from collections.abc import Mapping
from typing import Any

import tensorflow as tf

from tf_pfor._tf._types import RAGGED
from tf_pfor.api.checks import check_blocks
from tf_pfor.core.errors import ArgumentError, ArgumentTypeError
from tf_pfor.core.nests import Nest
from tf_pfor.core.settings import ChunkSize
from tf_pfor.derivatives.per_example import clipped_gradient_sum
from tf_pfor.frontends.keras import _specs
from tf_pfor.frontends.keras._scopes import keras, unscaled_loss

_no_autograph = tf.autograph.experimental.do_not_convert


@keras.saving.register_keras_serializable("tf_pfor")
class PerExampleGradientModel(keras.Model):
    """A Keras model whose training clips the gradient of each example (Abadi et al., 2016).

    ``fit`` takes the gradient of each example's loss and scales it to a norm of at most
    ``clip_norm``. It adds up the gradients, adds Gaussian noise of standard deviation
    ``noise_multiplier * clip_norm``, and divides by the number of examples. That is DP-SGD; without
    noise it is clipping against outliers. Any loss, metrics and optimizer may be compiled; all else
    is as in ``keras.Model``. The penalties of weight regularizers do not depend on the examples:
    their gradients are added unclipped.

    Args:
      model: maps a batch to outputs; examples must not see each other (no batch normalization that
        is trained).
      clip_norm: the largest norm of one example's gradient.
      noise_multiplier: the standard deviation of the noise, in units of ``clip_norm``.
      microbatch_size: the number of examples whose mean loss has the gradient that is clipped.
      chunk_size: the number of gradients held at once; None for all, "auto" for as many as fit into
        ``memory_budget``.
      memory_budget: bytes that "auto" may use for all that a call allocates. None: half of the free
        memory.
      seed: the seed of the noise.
      **kwargs: as for ``keras.Model``: ``name``, ``dtype``.

    Raises:
      ArgumentError, ArgumentTypeError: if an argument is wrong.

    >>> import keras
    >>> import numpy as np
    >>> import tf_pfor
    >>> inner = keras.Sequential([keras.Input([3]), keras.layers.Dense(1)])
    >>> model = tf_pfor.keras.PerExampleGradientModel(inner, clip_norm=1.0, noise_multiplier=0.5)
    >>> model.compile("adam", "mse")
    >>> history = model.fit(np.ones([8, 3]), np.ones([8, 1]), epochs=2, verbose=0)
    >>> len(history.history["loss"])
    2
    """

    def __init__(
        self,
        model: Any,
        *,
        clip_norm: float = 1.0,
        noise_multiplier: float = 0.0,
        microbatch_size: int = 1,
        chunk_size: ChunkSize = None,
        memory_budget: int | None = None,
        seed: int | None = None,
        **kwargs: Nest,
    ):
        super().__init__(**kwargs)
        if not isinstance(model, keras.Model):
            raise ArgumentTypeError(f"model must be a keras.Model, found {model!r}.")
        _check_number(clip_norm, "clip_norm", may_be_zero=False)
        _check_number(noise_multiplier, "noise_multiplier", may_be_zero=True)
        is_count = isinstance(microbatch_size, numbers.Integral) and microbatch_size >= 1
        if not is_count or isinstance(microbatch_size, bool):
            raise ArgumentError(
                f"microbatch_size must be a positive integer, found {microbatch_size!r}."
            )
        check_blocks(chunk_size, memory_budget, "chunk_size")
        self.model = model
        self.clip_norm = float(clip_norm)
        self.noise_multiplier = float(noise_multiplier)
        self.microbatch_size = int(microbatch_size)
        self.chunk_size: ChunkSize = chunk_size
        self.memory_budget = memory_budget
        self.seed = seed
        self.noise = keras.random.SeedGenerator(seed)
        self._only_of_examples = False
        if model.built:
            inputs = _specs.inputs_of(model)
            self.built = True
            if inputs is not None:  # an export asks for their shapes
                self.build(tf.nest.map_structure(lambda x: x.shape, inputs))

    def build(self, input_shape: Nest) -> None:
        """Makes the variables of the model inside, for a batch of this shape."""
        if not self.model.built:
            self.model.build(input_shape)

    def call(self, inputs: Nest, training: bool | None = None) -> Any:
        """The outputs of a batch."""
        return self.model(inputs, training=training)

    def export(self, filepath: object, *args: Nest, **kwargs: Nest) -> None:
        """Exports as ``keras.Model`` does, with the dtypes and names of the model inside."""
        inputs = _specs.inputs_of(self.model)
        super().export(filepath, *args, **_specs.with_inputs(super().export, inputs, args, kwargs))

    @property
    def losses(self) -> list[Any]:
        """The losses of ``keras.Model``, without penalties of weights for one example."""
        found = super().losses
        if not self._only_of_examples:
            return found
        penalties = [w for w in self.trainable_weights if w.regularizer is not None]
        return found[: len(found) - len(penalties)]  # Keras puts them at the end

    def gradients(
        self, x: object, y: Nest, sample_weight: Nest = None, scale: float | tf.Tensor = 1.0
    ) -> tuple[list[tf.Tensor], tf.Tensor, Any]:
        """The gradients for the optimizer; a subclass may combine gradients in another way.

        Args:
          x: the inputs of a batch.
          y: the targets, or None.
          sample_weight: the weights of the examples, or None.
          scale: the factor of the loss (mixed precision); 1 otherwise.

        Returns:
          (gradients, losses, outputs): one gradient for each of ``trainable_weights``, times
          ``scale``; the loss of each example, or of each microbatch; the outputs of the batch.
        """
        if not self.model.built:
            self(x)  # makes the variables
        _refuse_batch_statistics(self.model)
        weights = self.trainable_weights
        groups = tf.nest.map_structure(self._in_groups, (x, y, sample_weight))
        kept: list[Any] = []

        def loss_of_group(*group: Nest) -> Any:
            x, y, sample_weight = tf.nest.map_structure(self._of_known_number, group)
            outputs = self(x, training=True)
            self._only_of_examples = True
            try:
                loss = unscaled_loss(self.compute_loss(x, y, outputs, sample_weight))
            finally:
                self._only_of_examples = False
            if loss.shape.rank != 0:
                raise ArgumentError(
                    f"The compiled loss has shape {loss.shape} for {self.microbatch_size} "
                    'example(s), expected one number. Leave reduction="none" out.'
                )
            kept[:] = [tf.nest.map_structure(lambda t: None, outputs)]
            return tf.cast(scale, loss.dtype) * loss, (loss, tf.nest.flatten(outputs))

        limit = tf.cast(self.clip_norm, tf.float32) * tf.cast(scale, tf.float32)
        sums, _, (losses, outputs) = clipped_gradient_sum(
            loss_of_group,
            weights,
            *groups,
            clip_norm=limit,
            has_aux=True,
            chunk_size=self.chunk_size,
            memory_budget=self.memory_budget,
        )
        count = _over_replicas(tf.shape(losses)[0])
        gradients = [self._noisy(s, limit) / tf.cast(count, s.dtype) for s in sums]
        penalties = self._gradients_of_penalties(scale)
        gradients = [
            g if p is None else g + tf.cast(p, g.dtype) for g, p in zip(gradients, penalties)
        ]
        outputs = [tf.reshape(t, [-1, *t.shape[2:]]) for t in outputs]
        return gradients, losses, tf.nest.pack_sequence_as(kept[0], outputs)

    def _in_groups(self, x: Nest) -> Any:
        """[n, ...] -> [n / k, k, ...]."""
        if x is None:
            return None
        if isinstance(x, tf.SparseTensor):
            raise ArgumentTypeError(
                "PerExampleGradientModel takes dense and ragged batches, found a SparseTensor. "
                "Make it dense first: tf.sparse.to_dense."
            )
        k, is_ragged = self.microbatch_size, isinstance(x, tf.RaggedTensor)
        x = x if is_ragged else tf.convert_to_tensor(x)
        n = x.shape[0]
        size = tf.cast(x.nrows(), tf.int32) if is_ragged else tf.shape(x)[0]
        message = (
            f"microbatch_size is {k}, and the batch has another number of examples than a multiple "
            "of it. Give fit such a batch_size and number of examples, or "
            "dataset.batch(..., drop_remainder=True)."
        )
        if n is not None and n % k:
            raise ArgumentError(f"{message} Found: {n} examples.")
        checks = []
        if n is None and k > 1:
            checks = [tf.debugging.assert_equal(tf.math.floormod(size, k), 0, message)]
        with tf.control_dependencies([c for c in checks if c is not None]):
            if is_ragged:
                splits = tf.identity(x.row_splits)
                x = RAGGED.from_row_splits(x.values, splits, validate=False)
                return RAGGED.from_uniform_row_length(x, k)
            grouped = tf.reshape(x, tf.concat([[size // k, k], tf.shape(x)[1:]], 0))
        grouped.set_shape([None if n is None else n // k, k, *x.shape[1:]])
        return grouped

    def _of_known_number(self, group: Nest) -> Any:
        """A group with as many examples as it has, which a row of a RaggedTensor does not know."""
        if not isinstance(group, tf.RaggedTensor):
            return group
        splits = tf.ensure_shape(group.row_splits, [self.microbatch_size + 1])
        return RAGGED.from_row_splits(group.values, splits, validate=False)

    def _noisy(self, total: tf.Tensor, limit: tf.Tensor) -> tf.Tensor:
        if not self.noise_multiplier:
            return total
        replicas, shape = _replicas(), tf.shape(total)
        if replicas == 1:
            noise = keras.random.normal(shape, dtype=total.dtype, seed=self.noise)
        else:  # all replicas have the same seed, and their noises are added up
            replica = tf.distribute.get_replica_context().replica_id_in_sync_group
            seed = tf.cast(self.noise.next(), tf.int32) + [7919 * replica, 0]
            noise = tf.random.stateless_normal(shape, seed, dtype=total.dtype)
        deviation = self.noise_multiplier * limit / replicas**0.5
        return total + noise * tf.cast(deviation, total.dtype)

    def _gradients_of_penalties(self, scale: float | tf.Tensor) -> list[Any]:
        weights = self.trainable_weights
        with tf.GradientTape() as tape:
            penalties = _penalties(weights, tf.float32)
            total = tf.add_n(penalties or [tf.zeros([])]) * scale / _replicas()
        return tape.gradient(total, [w.value for w in weights])

    @_no_autograph
    def train_step(self, data: Nest) -> dict[str, Any]:
        """One step of training; Keras calls it in ``fit``."""
        x, y, sample_weight = keras.utils.unpack_x_y_sample_weight(data)
        scale = self.optimizer.scale_loss(tf.constant(1.0))
        gradients, losses, outputs = self.gradients(x, y, sample_weight, scale)
        loss = tf.add_n([tf.reduce_mean(losses), *_penalties(self.trainable_weights, losses.dtype)])
        self.optimizer.apply_gradients(zip(gradients, self.trainable_weights))
        size = tf.shape(losses)[0] * self.microbatch_size
        for metric in self.metrics:
            if metric.name == "loss":
                metric.update_state(loss, sample_weight=size)
        return self.compute_metrics(x, y, outputs, sample_weight)

    def get_config(self) -> dict[str, Any]:
        """The config that ``from_config`` makes the model of."""
        names = (
            "clip_norm",
            "noise_multiplier",
            "microbatch_size",
            "chunk_size",
            "memory_budget",
            "seed",
            "name",
        )
        return {
            "model": keras.saving.serialize_keras_object(self.model),
            **{name: getattr(self, name) for name in names},
        }

    @classmethod
    def from_config(
        cls, config: dict[str, Any], custom_objects: Mapping[str, object] | None = None
    ) -> PerExampleGradientModel:
        """The model that ``get_config`` has described."""
        config = dict(config)
        model = keras.saving.deserialize_keras_object(
            config.pop("model"), custom_objects=custom_objects
        )
        return cls(model, **config)


def _replicas() -> int:
    """The number of replicas of a ``tf.distribute`` strategy.

    The optimizer adds up the gradients of replicas.
    """
    return int(tf.distribute.get_strategy().num_replicas_in_sync)


def _over_replicas(count: tf.Tensor) -> tf.Tensor:
    """The number of examples in all replicas."""
    if _replicas() == 1:
        return count
    return tf.distribute.get_replica_context().all_reduce(tf.distribute.ReduceOp.SUM, count)


def _penalties(weights: list[Any], dtype: tf.DType) -> list[tf.Tensor]:
    """The penalties of the regularizers of weights."""
    return [tf.cast(tf.reduce_sum(w.regularizer(w)), dtype) for w in weights if w.regularizer]


def _check_number(value: Any, name: str, *, may_be_zero: bool) -> None:
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
    if not is_number or not (value > 0 or (may_be_zero and value == 0)):
        least = "a number of at least 0" if may_be_zero else "a positive number"
        raise ArgumentError(f"{name} must be {least}, found {value!r}.")


def _refuse_batch_statistics(model: Any) -> None:
    """Refuses layers in which an example changes what the others give."""
    for layer in model._flatten_layers():
        if isinstance(layer, keras.layers.BatchNormalization) and layer.trainable:
            raise ArgumentError(
                f"The layer {layer.name!r} normalizes over the batch, so that an example has no "
                "gradient of its own. Use GroupNormalization or LayerNormalization, or freeze it "
                "(layer.trainable = False)."
            )
