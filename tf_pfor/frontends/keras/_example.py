"""The layer or function that a ``Vectorized`` layer wraps, called with one example."""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

from tf_pfor import _tf
from tf_pfor.core.axes import Axis, entered
from tf_pfor.core.errors import ArgumentError
from tf_pfor.core.nests import Nest
from tf_pfor.frontends.keras import _scopes
from tf_pfor.frontends.keras._scopes import keras
from tf_pfor.tracing.user_code import WANTS_A_BATCH, autographed

_no_autograph = tf.autograph.experimental.do_not_convert


@dataclasses.dataclass(frozen=True)
class Wrapped:
    """A layer or a function of one example.

    Attributes:
      fn: the layer or the function.
      layers: the layers that it runs, as far as we know.
      tracked: these layers, and variables.
      takes: the arguments that it has, of "training" and "mask".
      batch_of_one: whether it is called with a batch of one example.
      axis_name: the name of the batch for collectives, "" if it has no name.
    """

    fn: Callable[..., Any]
    layers: tuple[Any, ...]
    tracked: tuple[Any, ...]
    takes: frozenset[str]
    batch_of_one: bool
    axis_name: str

    @classmethod
    def of(
        cls, fn: Callable[..., Any], uses: Sequence[Any], batch_of_one: bool, axis_name: str | None
    ) -> Wrapped:
        """Inspects ``fn``: a layer or a function."""
        is_layer = isinstance(fn, keras.layers.Layer)
        tracked = (fn,) if is_layer else tuple(uses)
        layers = tuple(x for x in tracked if isinstance(x, keras.layers.Layer))
        try:
            call = getattr(fn, "call") if is_layer else fn  # noqa: B009  (unknown to types)
            names = frozenset(inspect.signature(call).parameters)
        except (TypeError, ValueError):
            names = frozenset[str]()
        takes = names & {"training", "mask"}
        return cls(fn, layers, tracked, takes, batch_of_one, axis_name or "")

    @property
    def is_layer(self) -> bool:
        """Whether ``fn`` is a layer, which Keras gives the training flag in any case."""
        return isinstance(self.fn, keras.layers.Layer)

    @property
    def name(self) -> str:
        """The name in messages."""
        if self.is_layer:
            return f"the layer {self.layers[0].name!r}"
        return getattr(self.fn, "__qualname__", type(self.fn).__name__).split("<locals>.")[-1]

    def build(self, args: Sequence[Any]) -> None:
        """Builds the layer, if one of a class of its own, outside of the graph of one example.

        What ``build`` makes besides variables, as a table of positions, would be lost with that.
        """
        layer: Any = self.fn
        if not self.is_layer or layer.built or len(args) != 1:
            return
        is_own = type(layer).build is not keras.layers.Layer.build
        if is_own and isinstance(args[0], tf.TensorSpec) and args[0].shape.rank is not None:
            lead = (1,) if self.batch_of_one else ()
            with tf.init_scope():
                self._outputs(layer.build, [(*lead, *args[0].shape)], {})

    def called(
        self, args: Nest, kwargs: Nest, masks: Nest, training: bool | None, autocast: str | None
    ) -> tuple[Any, list[tf.Tensor]]:
        """The outputs for one example, and what ``add_loss`` was called with.

        Args:
          args: a nest of tensors of one example.
          kwargs: named nests of tensors of one example.
          masks: the nest of the first argument, with Keras masks or None; None if the example has
            been cut to what is valid.
          training: the flag of Keras.
          autocast: the dtype to which variables are cast where they are read.
        """
        options: dict[str, Any] = {}
        if self.is_layer or "training" in self.takes:
            options["training"] = training
        if "mask" in self.takes and masks is not None:
            options["mask"] = masks
        fn = self.fn if self.is_layer else autographed(self.fn)
        if self.batch_of_one:
            args, kwargs, options = keras.tree.map_structure(_in_a_batch, (args, kwargs, options))
        with (
            _scopes.inside_of_a_layer(training, autocast),
            _scopes.with_autograph(self.layers),
            _scopes.losses_of(self.layers) as losses,
        ):
            outputs = self._outputs(fn, args, {**kwargs, **options})
        self._check_variables()
        if self.batch_of_one:
            outputs = keras.tree.map_structure(self._out_of_the_batch, outputs)
        return outputs, [_total(loss) for loss in losses]

    def _outputs(self, fn: Callable[..., Any], args: Nest, kwargs: Nest) -> Any:
        try:
            return fn(*args, **kwargs)
        except ValueError as why:
            own = isinstance(why, ArgumentError) or self.batch_of_one
            if own or not WANTS_A_BATCH.search(str(why)):
                raise
            raise ArgumentError(
                f"{self.name} does not take one example without a batch axis: {why} What "
                "Vectorized wraps gets one example, x[i]. Pass batch_of_one=True to call it with "
                "x[i][None], or use the layer without Vectorized: layers of Keras take batches."
            ) from why

    def _check_variables(self) -> None:
        """Refuses variables that nobody would train or save."""
        graph = tf.compat.v1.get_default_graph()
        if self.is_layer or not (found := _scopes.strays(graph, self.tracked)):
            return
        names = ", ".join(sorted(repr(v.name.split(":")[0]) for v in found))
        raise ArgumentError(
            f"{self.name} reads trainable variables that Vectorized does not know: {names}. They "
            "would be neither trained nor saved with the model. Make it a keras.layers.Layer that "
            "holds what it needs, or pass Vectorized(fn, uses=[...]) with the layers and variables."
        )

    def _out_of_the_batch(self, x: Nest) -> Any:
        if not tf.is_tensor(x):
            return x
        if x.shape.rank == 0 or x.shape[0] not in (1, None):
            raise ArgumentError(
                f"{self.name} returned shape {x.shape} for a batch of one example. Expected: "
                "[1, ...], since batch_of_one=True."
            )
        found = tf.squeeze(x, 0) if x.shape.rank else x[0]
        if (mask := _scopes.mask_of(x)) is not None:
            _scopes.set_mask(found, tf.squeeze(mask, 0))
        return found


def _in_a_batch(x: Nest) -> Any:
    if not tf.is_tensor(x):
        return x
    found = tf.expand_dims(x, 0)
    if (mask := _scopes.mask_of(x)) is not None:
        _scopes.set_mask(found, tf.expand_dims(mask, 0))
    return found


def _total(loss: Nest) -> tf.Tensor:
    """One number for the example, as Keras makes one for the batch."""
    loss = tf.convert_to_tensor(loss)
    if not loss.dtype.is_floating:
        loss = tf.cast(loss, keras.config.floatx())
    return tf.reduce_sum(loss)


@_no_autograph
def outputs_of(
    wrapped: Wrapped,
    args: Nest,
    kwargs: Nest,
    masks: Nest,
    training: bool | None,
    autocast: str | None,
) -> Any:
    """Shapes and dtypes of the outputs for one example; makes the variables of its layers.

    The arguments are as for ``Wrapped.called``. They and the outputs have ``tf.TensorSpec``s in the
    place of tensors.
    """
    with keras.StatelessScope(), keras.SymbolicScope():
        graph = _tf.FuncGraph("keras_example")
        with graph.as_default(), entered(Axis(wrapped.axis_name)):
            args, kwargs, masks = keras.tree.map_structure(_placeholder, (args, kwargs, masks))
            outputs, _ = wrapped.called(args, kwargs, masks, training, autocast)
            return keras.tree.map_structure(_spec, outputs)


def _placeholder(x: object) -> Any:
    if not isinstance(x, tf.TypeSpec):
        return x
    make = lambda spec: tf.compat.v1.placeholder(spec.dtype, spec.shape)  # noqa: E731
    return tf.nest.map_structure(make, x, expand_composites=True)


def _spec(x: Nest) -> Any:
    if x is None:
        return None
    x = x if tf.is_tensor(x) else tf.convert_to_tensor(x)
    return tf.TensorSpec(x.shape, x.dtype)
