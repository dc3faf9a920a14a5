"""``Vectorized``: a layer or a function of one example, as a layer of batches."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

import numpy as np
import tensorflow as tf

from tf_pfor.api.options import Options, check_bool
from tf_pfor.api.vmap import vmap
from tf_pfor.core.errors import ArgumentError, ArgumentTypeError
from tf_pfor.core.nests import Nest
from tf_pfor.core.settings import ChunkSize, Fallback, OutShapes, Randomness, WhileStrategy
from tf_pfor.frontends.keras import _rows, _scopes, _specs
from tf_pfor.frontends.keras._example import Wrapped, outputs_of
from tf_pfor.frontends.keras._scopes import keras
from tf_pfor.reports.explain import explain as explain_function
from tf_pfor.reports.report import Report
from tf_pfor.reports.subjects import Subject, subject_of

_no_autograph = tf.autograph.experimental.do_not_convert


class _Memo:
    """The calls that a layer remembers; no attribute that Keras would track."""

    def __init__(self) -> None:
        self.specs: Nest = None  # ((inputs, *args), kwargs, masks) of one example
        self.given: Nest = None  # the same, of the call that is about to build the layer
        self.full: dict[str, Any] = {}  # outputs of an example of full length, by its specs


def _of_text(x: object) -> Any:
    """A tensor of NumPy's strings, which Keras does not take; all else as it is."""
    return tf.constant(x) if isinstance(x, np.ndarray) and x.dtype.kind in "SUO" else x


@keras.saving.register_keras_serializable("tf_pfor")
class Vectorized(keras.layers.Layer):
    """A Keras layer that runs a layer or a function of ONE example on each example of a batch.

    All examples run at once, without a loop (``tf_pfor.vmap``). The layer works as any other, in
    Functional, Sequential and subclassed models; it can be trained by ``fit``, saved and loaded.
    The wrapped layer or function gets ``x[i]`` of each input, without the batch axis. It may hold
    Python control flow on tensors.

    A Keras mask [batch, time] cuts each example to its valid steps (``x[:length]`` for a mask with
    the padding at the end). If ``fn`` has an argument ``mask``, the example stays whole, and ``fn``
    gets its mask [time]. Variable-length results are padded with zeros, and have a Keras mask.

    Args:
      fn: a ``keras.layers.Layer`` whose ``call`` takes one example, or a function. An argument
        ``training`` of it is passed on.
      uses: layers and ``keras.Variable``s that a function ``fn`` uses, to be trained. A model with
        these cannot be saved as ``.keras``: write a layer.
      batch_of_one: whether ``fn`` takes a batch, as layers and models of Keras do. It is called
        with ``x[i][None]``, a batch of one example, and ``[0]`` of its results is taken.
      masks: the use of a mask. "cut" cuts examples to their valid steps. "pass" passes the mask to
        ``fn``. "auto" passes it if ``fn`` has the argument, and cuts otherwise.
      axis_name: the name of the batch for collectives (``tf_pfor.psum`` ...) in ``fn``.
      chunk_size: the number of examples to run at once; None for all, "auto" for as many as fit
        into ``memory_budget``.
      memory_budget: bytes that "auto" may use for all that a call allocates. None: half of the free
        memory.
      fallback: "loop", "error", or a set of op types that may run in a sequential loop. None here
        and below follows ``tf_pfor.settings``.
      warn: whether to warn of ops that run in a sequential loop.
      randomness: "different", "same" or "error": each row draws, all rows share one draw, or such
        ops are refused. Also of ``keras.random.SeedGenerator``.
      while_strategy: "auto", "compact" (a while loop computes the rows that still go on), or "mask"
        (it computes all rows).
      out_shapes: "padded": see above; "dense": rows of different shapes are an error.
      supports_jit: whether Keras may compile models with this layer by XLA. The default is False,
        since XLA refuses shapes that depend on data, and ``compile`` would choose it ("auto").
      **kwargs: as for any layer: ``name``, ``dtype``, ``trainable``, ``activity_regularizer``.

    Raises:
      ArgumentError, ArgumentTypeError: if an argument is wrong.

    >>> import keras
    >>> import tensorflow as tf
    >>> import tf_pfor
    >>> class Halve(keras.layers.Layer):
    ...     def call(self, x):  # [3]: one example
    ...         while tf.reduce_sum(x) > 1.0:
    ...             x = x / 2.0
    ...         return x
    >>> layer = tf_pfor.keras.Vectorized(Halve())
    >>> layer(tf.constant([[4., 0., 0.], [0., 1., 2.]])).numpy().tolist()
    [[1.0, 0.0, 0.0], [0.0, 0.25, 0.5]]
    """

    def __init__(
        self,
        fn: Callable[..., Any],
        *,
        uses: Sequence[Any] = (),
        batch_of_one: bool = False,
        masks: Literal["auto", "cut", "pass"] = "auto",
        axis_name: str | None = None,
        chunk_size: ChunkSize = None,
        memory_budget: int | None = None,
        fallback: Fallback | None = None,
        warn: bool | None = None,
        randomness: Randomness | None = None,
        while_strategy: WhileStrategy = "auto",
        out_shapes: Literal["padded", "dense"] = "padded",
        supports_jit: bool = False,
        **kwargs: Nest,
    ):
        super().__init__(**kwargs)
        _check(fn, uses, masks, out_shapes)
        self.fn = fn
        self.uses = list(uses)
        self.batch_of_one = check_bool(batch_of_one, "batch_of_one")
        self.masks = masks
        self.out_shapes: OutShapes = out_shapes
        self.supports_jit = check_bool(supports_jit, "supports_jit")
        self.map_options = _Options(
            axis_name, chunk_size, memory_budget, _plain(fallback), warn, randomness, while_strategy
        )
        self.map_options.mapped(fn, out_shapes)  # says what is wrong with the options
        self._memo = _Memo()

    @property
    def _wrapped(self) -> Wrapped:
        return Wrapped.of(self.fn, self.uses, self.batch_of_one, self.map_options.axis_name)

    @property
    def _hands_masks_on(self) -> bool:
        is_own = isinstance(self.fn, Vectorized)  # its mask would have the batch axis of that layer
        takes_one = "mask" in self._wrapped.takes and not is_own
        return self.masks == "pass" or (self.masks == "auto" and takes_one)

    @property
    def of_one_example(self) -> Callable[..., Any]:
        """The wrapped layer as a function of one example, for ``tf_pfor.explain``."""
        wrapped, autocast = self._wrapped, _autocast(self)

        @_no_autograph
        def of_one_example(*args: Nest) -> Any:
            return wrapped.called(args, {}, None, False, autocast)[0]

        of_one_example.__qualname__ = wrapped.name
        return of_one_example

    def __call__(self, *args: Nest, **kwargs: Nest) -> Any:
        """Calls the layer with a batch; builds the wrapped layer by the specs of one example."""
        if not args and "inputs" in kwargs:
            args = (kwargs.pop("inputs"),)
        args, kwargs = keras.tree.map_structure(_of_text, (args, kwargs))
        if not any(_may_be_batch(x) for x in _rows.flat((args, kwargs))):
            raise ArgumentError(
                f"{self.name!r} was called with {args!r}. Expected: at least one tensor with a "
                "batch axis, [batch, ...]."
            )
        if not self.built:
            self._memo.given = _specs.of_call(self, args, kwargs, self._hands_masks_on)
        return super().__call__(*args, **kwargs)

    def build(self, input_shape: Nest = None) -> None:
        """Makes the variables of the wrapped layer; ``input_shape`` is the shape of a batch."""
        specs = self._memo.given or _specs.of_shapes(self, input_shape)
        self._memo.given = None
        if specs is None:
            return
        self._memo.specs = specs
        args, kwargs, masks = specs
        if not kwargs:
            self._wrapped.build(args)
        outputs_of(self._wrapped, args, kwargs, masks, False, _autocast(self))

    def get_build_config(self) -> dict[str, Any] | None:
        """Shapes and dtypes of one example."""
        return None if self._memo.specs is None else {"example": _specs.encoded(self._memo.specs)}

    def build_from_config(self, config: dict[str, Any]) -> None:
        """Builds the layer as it was when it was saved."""
        if "example" in config:
            self._memo.given = _specs.decoded(config["example"])
            self.build()

    @_no_autograph
    def call(
        self,
        inputs: Nest,
        *args: Nest,
        training: bool | None = None,
        mask: Nest = None,
        **kwargs: Nest,
    ) -> Any:
        """Runs all examples of a batch at once."""
        if _scopes.is_symbolic():  # Keras asks an outer layer for shapes
            found = self.compute_output_spec(inputs, *args, training=training, mask=mask, **kwargs)
            return keras.tree.map_structure(_specs.zeros, found)
        is_cut = not self._hands_masks_on
        batch = _Batch.of(self._wrapped, ((inputs, *args), kwargs), mask, is_cut)
        autocast = _scopes.autocast_dtype()
        shapes: OutShapes = "ragged" if self.out_shapes == "padded" else self.out_shapes
        mapped = self.map_options.mapped(_of_rows(self._wrapped, batch, training, autocast), shapes)
        with _scopes.outside_of_layers():
            outputs, masks, losses = mapped(batch.rows, batch.lengths, batch.masks)
        for loss in losses:
            count = tf.cast(tf.shape(loss)[0], loss.dtype)
            self.add_loss(tf.math.divide_no_nan(tf.reduce_sum(loss), count))
        return self._with_masks(outputs, masks, batch, training, autocast)

    def _with_masks(
        self,
        outputs: Nest,
        masks: list[Any],
        batch: _Batch,
        training: bool | None,
        autocast: str | None,
    ) -> Any:
        """Dense outputs; variable-length outputs are as long as for an example of full length."""
        leaves = _rows.flat(outputs)
        sizes: list[Any] = [None] * len(leaves)
        if batch.is_cut and any(isinstance(y, tf.RaggedTensor) for y in leaves):
            stand_ins, specs = batch.full_specs()
            key, full = repr((specs, training, autocast)), self._memo.full
            if key not in full:
                args, kwargs = specs
                full[key] = outputs_of(self._wrapped, args, kwargs, None, training, autocast)
            sizes = [
                _rows.full_sizes(spec, batch.cuts, stand_ins) for spec in _rows.flat(full[key])
            ]
        name = f"Vectorized({self._wrapped.name})"
        done = [_rows.finished(*given, name) for given in zip(leaves, masks, sizes)]
        return keras.tree.pack_sequence_as(outputs, done)

    def compute_output_spec(
        self,
        inputs: Nest,
        *args: Nest,
        training: bool | None = None,
        mask: Nest = None,
        **kwargs: Nest,
    ) -> Any:
        """Shapes and dtypes of the outputs, from one example: no batch is traced."""
        size = _specs.batch_size((inputs, args, kwargs))
        args, kwargs = _specs.of_batch(((inputs, *args), kwargs))
        masks = _specs.of_batch(mask) if self._hands_masks_on else None
        autocast = _scopes.autocast_dtype()
        outputs = outputs_of(self._wrapped, args, kwargs, masks, training, autocast)
        return keras.tree.map_structure(
            lambda spec: spec and keras.KerasTensor((size, *spec.shape), spec.dtype.name), outputs
        )

    def compute_output_shape(self, input_shape: Nest) -> Any:
        """The shapes of the outputs, for inputs of the layer's dtype."""
        inputs = keras.tree.map_shape_structure(
            lambda shape: keras.KerasTensor(shape, self.compute_dtype), input_shape
        )
        return keras.tree.map_structure(lambda x: x.shape, self.compute_output_spec(inputs))

    def compute_mask(self, inputs: Nest, previous_mask: Nest) -> None:
        """Nothing beside the masks that ``call`` hangs on what it returns."""

    def explain(self) -> Report:
        """The outcome of each op, of the inputs that the layer was built for; prints nothing.

        Raises:
          ArgumentError: if it was not built.
        """
        return explain_function(self)

    def of_built(self) -> tuple[Callable[..., Any], list[Any]]:
        """The wrapped layer as a function of a list, and specs of a batch that it was built for."""
        if (specs := self._memo.specs) is None:
            raise ArgumentError(f"{self.name!r} was not built yet. Call it, or its model, before.")
        wrapped, autocast, leaves = self._wrapped, _autocast(self), _rows.flat(specs)
        slots = [i for i, x in enumerate(leaves) if isinstance(x, tf.TypeSpec)]

        @_no_autograph
        def of_leaves(rows: list[Any]) -> Any:
            given = list(leaves)
            for slot, x in zip(slots, rows):
                given[slot] = x
            args, kwargs, masks = keras.tree.pack_sequence_as(specs, given)
            return wrapped.called(args, kwargs, masks, False, autocast)[0]

        of_leaves.__qualname__ = wrapped.name
        return of_leaves, [_specs.in_batch(leaves[i]) for i in slots]

    def get_config(self) -> dict[str, Any]:
        """The config that ``from_config`` makes the layer of.

        Raises:
          ArgumentError: if it has ``uses``: a function cannot be saved together with its layers.
        """
        if self.uses:
            raise ArgumentError(
                f"{self.name!r} wraps {self._wrapped.name}, a function with layers of its own "
                "(uses=[...]), which cannot be saved with it. Make it a keras.layers.Layer that "
                "holds them. Weights alone can be saved (save_weights), and models be exported."
            )
        own = {name: getattr(self, name) for name in ("batch_of_one", "masks", "out_shapes")}
        return {
            **super().get_config(),
            "fn": keras.saving.serialize_keras_object(self.fn),
            **own,
            "supports_jit": self.supports_jit,
            **dataclasses.asdict(self.map_options),
        }

    @classmethod
    def from_config(
        cls, config: dict[str, Any], custom_objects: Mapping[str, object] | None = None
    ) -> Vectorized:
        """The layer that ``get_config`` has described."""
        config = dict(config)
        fn = keras.saving.deserialize_keras_object(config.pop("fn"), custom_objects=custom_objects)
        return cls(fn, **config)


@dataclasses.dataclass(frozen=True)
class _Options:
    """The options of ``tf_pfor.vmap`` that a layer passes on."""

    axis_name: str | None
    chunk_size: ChunkSize
    memory_budget: int | None
    fallback: Fallback | None
    warn: bool | None
    randomness: Randomness | None
    while_strategy: WhileStrategy

    def mapped(self, fn: Callable[..., Any], out_shapes: OutShapes) -> Callable[..., Any]:
        return vmap(fn, out_shapes=out_shapes, **dataclasses.asdict(self))


@dataclasses.dataclass(frozen=True)
class _Batch:
    """The arguments of a call of the layer.

    Attributes:
      structure: ((inputs, *args), kwargs).
      kept: the leaves of the structure, None in the place of leaves to map over.
      slots: the places of the leaves to map over.
      given: the tensors to map over.
      cuts: for each of these tensors its rows cut by a mask, None without a mask.
      masks: for each of these tensors the Keras mask to be handed on, else None.
    """

    structure: Nest
    kept: tuple[Any, ...]
    slots: tuple[int, ...]
    given: tuple[Any, ...]
    cuts: tuple[_rows.Cut | None, ...]
    masks: list[Any]

    @classmethod
    def of(cls, wrapped: Wrapped, structure: Nest, mask: Nest, is_cut: bool) -> _Batch:
        """Splits the arguments, and cuts what is to be cut."""
        leaves = _rows.flat(structure)
        valid: list[Any] = [_scopes.mask_of(x) for x in leaves]
        for i, own in enumerate(_rows.flat(mask)):
            valid[i] = own if own is not None else valid[i]
        # A mask [batch] says which examples count: that is for who reads the results.
        valid = [None if m is not None and m.shape.rank == 1 else m for m in valid]
        slots = tuple(i for i, x in enumerate(leaves) if tf.is_tensor(x) and x.shape.rank != 0)
        cuts = tuple(
            _rows.cut(leaves[i], valid[i], f"An input of Vectorized({wrapped.name})")
            if is_cut and valid[i] is not None
            else None
            for i in slots
        )
        return cls(
            structure=keras.tree.map_structure(lambda x: None, structure),
            kept=tuple(None if i in slots else x for i, x in enumerate(leaves)),
            slots=slots,
            given=tuple(leaves[i] for i in slots),
            cuts=cuts,
            masks=[None if is_cut else valid[i] for i in slots],
        )

    @property
    def is_cut(self) -> bool:
        return any(c is not None for c in self.cuts)

    @property
    def rows(self) -> list[Any]:
        """The tensors to map over, cut where masks say so."""
        return [x if c is None else c.rows for x, c in zip(self.given, self.cuts)]

    @property
    def lengths(self) -> list[Any]:
        """The length of each row, where rows are cut."""
        return [None if c is None else c.lengths for c in self.cuts]

    def full_specs(self) -> tuple[list[int | None], Any]:
        """An example from which nothing is cut; which sizes stand for unknown ones in it."""
        stand_ins = _rows.probes(self.cuts)
        leaves = list(self.kept)
        for slot, x, size in zip(self.slots, self.given, stand_ins):
            spec = _specs.of_row(x)
            if size is not None:
                spec = tf.TensorSpec([size, *spec.shape[1:]], spec.dtype)
            leaves[slot] = spec
        return stand_ins, keras.tree.pack_sequence_as(self.structure, leaves)


def _of_rows(
    wrapped: Wrapped, batch: _Batch, training: bool | None, autocast: str | None
) -> Callable[..., Any]:
    """The function of one example that is mapped."""
    structure, kept, slots = batch.structure, batch.kept, batch.slots

    @_no_autograph
    def of_rows(rows: list[Any], lengths: list[Any], masks: list[Any]) -> Any:
        leaves = list(kept)
        for slot, x, length, mask in zip(slots, rows, lengths, masks):
            leaves[slot] = x if length is None else x[:length]
            if mask is not None:
                _scopes.set_mask(x, mask)
        args, kwargs = keras.tree.pack_sequence_as(structure, leaves)
        own = keras.tree.map_structure(_scopes.mask_of, args[0])
        own = own if any(m is not None for m in _rows.flat(own)) else None
        outputs, losses = wrapped.called(args, kwargs, own, training, autocast)
        return outputs, [_scopes.mask_of(y) for y in _rows.flat(outputs)], losses

    of_rows.__name__ = f"Vectorized({wrapped.name})"
    return of_rows


def explain(model: Any) -> dict[str, Report]:
    """The outcome of each op in the ``Vectorized`` layers of a model that has been built.

    Args:
      model: a model or a layer, which was called before or built.

    Returns:
      The report of each ``Vectorized`` layer, by its name.

    Raises:
      ArgumentError, ArgumentTypeError: if there is no such layer, or one that was not built.

    >>> import keras
    >>> import tensorflow as tf
    >>> import tf_pfor
    >>> layer = tf_pfor.keras.Vectorized(lambda x: tf.cumsum(x), name="sums")
    >>> model = keras.Sequential([keras.Input([3]), layer])
    >>> reports = tf_pfor.keras.explain(model)
    >>> reports["sums"].totals["looped"]
    0
    """
    if not isinstance(model, keras.layers.Layer):
        raise ArgumentTypeError(f"model must be a Keras model or layer, found {model!r}.")
    found = [x for x in _scopes.all_layers([model]) if isinstance(x, Vectorized)]
    if not found:
        raise ArgumentError(f"{model.name!r} holds no tf_pfor.keras.Vectorized layer to explain.")
    reports: dict[str, Report] = {}
    for layer in found:
        reports[layer.name] = layer.explain()
    return reports


@subject_of.register
def _of_layer(layer: Vectorized, given: Subject) -> Subject | Report:
    """The layer inside, of the elements that are given or that it was built for."""
    known = layer.map_options
    options = Options.of(
        known.fallback, known.randomness, known.while_strategy, layer.out_shapes, warn=known.warn
    )
    if given.args:
        fn, args = layer.of_one_example, given.args
    else:
        fn, elements = layer.of_built()
        args = (elements,)
    return given.mapped_as(fn, args, known.axis_name or "", options)


def _check(fn: Callable[..., Any], uses: Any, masks: str, out_shapes: str) -> None:
    if not callable(fn) or (isinstance(fn, type) and issubclass(fn, keras.layers.Layer)):
        raise ArgumentTypeError(
            f"Vectorized expects a layer or a function of one example, found {fn!r}."
        )
    if masks not in ("auto", "cut", "pass"):
        raise ArgumentError(f"masks must be 'auto', 'cut' or 'pass', found {masks!r}.")
    if out_shapes not in ("padded", "dense"):
        raise ArgumentError(
            f"out_shapes must be 'padded' or 'dense' in a Keras layer, found {out_shapes!r}."
        )
    if uses and isinstance(fn, keras.layers.Layer):
        raise ArgumentError("uses is for functions; a layer holds what it uses itself.")
    for x in uses if isinstance(uses, (list, tuple)) else [uses]:
        if x is uses or not isinstance(x, (keras.layers.Layer, keras.Variable)):
            raise ArgumentTypeError(
                f"uses holds {x!r}. Expected: a list of layers of Keras and keras.Variables; Keras "
                "does not train others."
            )


def _may_be_batch(x: object) -> bool:
    """Whether an argument has an axis, or may have one: of some the rank is not known."""
    return tf.TensorShape(getattr(x, "shape", ())).rank != 0


def _plain(fallback: object) -> Any:
    """A set of op types as a list, which can be saved."""
    return sorted(fallback) if isinstance(fallback, (set, frozenset)) else fallback


def _autocast(layer: Any) -> str | None:
    return layer.compute_dtype if layer.compute_dtype != layer.variable_dtype else None
