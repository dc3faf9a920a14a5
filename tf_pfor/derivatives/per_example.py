"""Per-example gradients, their norms, and their clipped sum (Agarwal, 2019)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

from tf_pfor.api import composites
from tf_pfor.api.blocks import followed_by, in_turn, join, readable, several
from tf_pfor.api.inputs import Element, mapped, stand_ins, with_mapped
from tf_pfor.api.maps import check_blocks, check_callable
from tf_pfor.api.run import convert_body
from tf_pfor.api.vmap import Plan, vmap
from tf_pfor.core import nests
from tf_pfor.core.axes import Axis
from tf_pfor.core.emit import Dim, salted
from tf_pfor.core.errors import ArgumentError, ArgumentTypeError
from tf_pfor.core.loop import Block
from tf_pfor.core.report import Recorder, warn_of_loops
from tf_pfor.core.settings import ChunkSize, current
from tf_pfor.derivatives.factored import FactoredGradient
from tf_pfor.derivatives.indexed_slices import BatchedIndexedSlices
from tf_pfor.derivatives.missing_gradients import refuse_constants
from tf_pfor.derivatives.pullbacks import has_derivative
from tf_pfor.tracing.caching import UNCACHED, EagerCall
from tf_pfor.tracing.memory import fitting_block
from tf_pfor.tracing.row_numbers import Rows, in_front
from tf_pfor.tracing.trace import trace
from tf_pfor.tracing.user_code import autographed

LossFn = Callable[..., Any]
_no_autograph = tf.autograph.experimental.do_not_convert


def _example_gradients(loss_fn: LossFn, variables: Any, has_aux: bool) -> Callable[..., Any]:
    """A function of one example: gradients (slices for lookups), loss and aux."""
    check_callable(loss_fn, "loss_fn")
    converted = autographed(loss_fn)
    leaves = _checked(variables)

    def one(*example: Any) -> tuple[list[Any], tf.Tensor, Any]:
        with tf.GradientTape(watch_accessed_variables=False) as tape:
            tape.watch(leaves)
            result = converted(*example)
            loss, aux = _loss_and_aux(result) if has_aux else (result, None)
        if loss is None:
            raise ArgumentError("loss_fn must return the loss of one example, found None.")
        loss = tf.convert_to_tensor(loss)
        if not loss.dtype.is_floating:
            raise ArgumentError(
                f"loss_fn must return a real number, found dtype {loss.dtype.name}: integers have "
                "no gradient, and complex numbers no order."
            )
        if loss.shape.rank not in (0, None):
            raise ArgumentError(
                f"loss_fn must return a scalar for one example, found shape {loss.shape}. It sees "
                "one example, without the batch axis."
            )
        refuse_constants([loss], leaves)
        grads = tape.gradient(loss, leaves, unconnected_gradients=tf.UnconnectedGradients.ZERO)
        return [_leaf(g, v) for g, v in zip(grads, leaves)], loss, aux

    return one


def _loss_and_aux(result: Any) -> tuple[Any, Any]:
    if not isinstance(result, tuple) or len(result) != 2:
        raise ArgumentError(f"With has_aux=True loss_fn must return (loss, aux), found {result!r}.")
    return result


def _leaf(gradient: Any, variable: Any) -> Any:
    """A gradient as a tensor, or as slices of fewer rows than the variable has."""
    if not isinstance(gradient, tf.IndexedSlices):
        return tf.convert_to_tensor(gradient)
    count, rows = gradient.indices.shape[0], variable.shape[0]
    if count is not None and rows is not None and count >= rows:
        return tf.convert_to_tensor(gradient)
    return BatchedIndexedSlices.of(gradient, variable)


def _dense(gradient: Any) -> tf.Tensor:
    is_sparse = isinstance(gradient, BatchedIndexedSlices)
    return gradient.to_dense() if is_sparse else gradient


def _parts(gradient: Any) -> Any:
    """The parts of a gradient that differ between examples: a tensor, or values and indices."""
    is_sparse = isinstance(gradient, BatchedIndexedSlices)
    return (gradient.values, gradient.indices) if is_sparse else gradient


def _whole(gradient: Any, variable: Any) -> Any:
    """The inverse of ``_parts``."""
    if isinstance(gradient, FactoredGradient) or not isinstance(gradient, tuple):
        return gradient
    values, indices = gradient
    return BatchedIndexedSlices(values, indices, tf.shape(variable))


def _factored(gradient: Any) -> Any:
    """A dense gradient by its factors where it is a product of smaller ones, else as it is."""
    if isinstance(gradient, BatchedIndexedSlices):
        return gradient
    return FactoredGradient.of(gradient) or gradient


def _tensors(variables: Any) -> list[Any]:
    """The leaves, Keras variables as the TensorFlow variables that they hold."""
    return [
        v if isinstance(v, (tf.Tensor, tf.Variable)) else getattr(v, "value", v)
        for v in tf.nest.flatten(variables)
    ]


def _checked(variables: Any) -> list[Any]:
    """The leaves, which must be tensors or variables with gradients.

    Raises:
      ArgumentError: if they are not.
    """
    leaves = _tensors(variables)
    if not leaves:
        raise ArgumentError(
            "variables holds nothing to differentiate with respect to. The variables of a Keras "
            "model exist once it is built: call it once before, or begin it with a keras.Input."
        )
    for leaf, name in zip(leaves, nests.paths(variables, "variables")):
        if not isinstance(leaf, (tf.Tensor, tf.Variable)):
            raise ArgumentTypeError(
                f"{name} is {leaf!r} of type {type(leaf).__name__}, expected a variable or a "
                "tensor that loss_fn uses."
            )
        if not has_derivative(leaf.dtype):
            raise ArgumentError(
                f"{name} has dtype {leaf.dtype.name}, which has no gradient. Leave it out."
            )
    return leaves


@_no_autograph
def per_example_gradients(
    loss_fn: LossFn,
    variables: Any,
    *batch: Any,
    has_aux: bool = False,
    chunk_size: ChunkSize = None,
    memory_budget: int | None = None,
    sparse: bool = False,
) -> Any:
    """The gradient of each example's loss: one gradient for each example.

    Args:
      loss_fn: ``loss_fn(*example)`` returns the scalar loss of one example, or (loss, aux) with
        ``has_aux``.
      variables: a nest of variables or tensors to differentiate with respect to.
      *batch: the examples: nests of tensors [n, ...].
      has_aux: whether ``loss_fn`` returns more than the loss.
      chunk_size: the number of examples to process at once; None for all, "auto" for as many as
        fit.
      memory_budget: bytes for "auto", as for ``vmap``.
      sparse: whether the gradient of a table that is looked up (an embedding) stays sparse. It is a
        ``BatchedIndexedSlices`` where fewer rows are looked up than the table has.

    Returns:
      (gradients, losses), or (gradients, losses, aux). The gradients are the nest of ``variables``
      with tensors of shape [n] + variable shape. They are zero for a variable that the loss does
      not depend on. The losses are [n]; aux is stacked.

    Raises:
      ArgumentError: if an argument is not as described. Also if the loss depends on the variables
        through an op that TensorFlow takes for a constant, such as ``tf.numpy_function``.

    >>> import tensorflow as tf
    >>> import tf_pfor
    >>> w = tf.Variable(3.0)
    >>> grads, losses = tf_pfor.per_example_gradients(
    ...     lambda x: (w * x) ** 2, w, tf.constant([1., 2.]))
    >>> grads.numpy().tolist(), losses.numpy().tolist()
    ([6.0, 24.0], [9.0, 36.0])
    """
    return _cached(
        _gradients, loss_fn, (variables, batch), (has_aux, chunk_size, memory_budget, sparse)
    )


def _gradients(
    loss_fn: LossFn,
    variables: Any,
    batch: tuple[Any, ...],
    has_aux: bool,
    chunk_size: ChunkSize,
    budget: int | None,
    sparse: bool,
) -> Any:
    one = _example_gradients(loss_fn, variables, has_aux)
    _check_batch(batch)

    def plain(*example: Any) -> Any:
        grads, loss, aux = one(*example)
        return [_parts(g) if sparse else _dense(g) for g in grads], loss, aux

    call = vmap(plain, chunk_size=chunk_size, memory_budget=budget, out_shapes="ragged")
    grads, losses, aux = call(*batch)
    grads = [_whole(g, v) for g, v in zip(grads, _tensors(variables))]
    grads = tf.nest.pack_sequence_as(variables, grads)
    return (grads, losses, aux) if has_aux else (grads, losses)


def _cached(
    implementation: Callable[..., Any],
    loss_fn: LossFn,
    arguments: tuple[Any, ...],
    options: tuple[Any, ...],
) -> Any:
    """Runs ``implementation(loss_fn, *arguments, *options)``, by a kept trace where possible."""
    if tf.executing_eagerly():
        result = EagerCall(implementation, (loss_fn,), arguments, options, rows=_rows)()
        if result is not UNCACHED:
            return result
    return implementation(loss_fn, *arguments, *options)


def _rows(variables: Any, batch: tuple[Any, ...], *shared: Any) -> Rows:
    return in_front(batch, shared=(variables, shared))


@_no_autograph
def gradient_norms(
    loss_fn: LossFn,
    variables: Any,
    *batch: Any,
    has_aux: bool = False,
    chunk_size: ChunkSize = None,
    memory_budget: int | None = None,
) -> Any:
    """The global norm of each example's gradient, [n]; (norms, aux) with ``has_aux``.

    Args:
      loss_fn: as for ``per_example_gradients``.
      variables: as for ``per_example_gradients``.
      *batch: as for ``per_example_gradients``.
      has_aux: as for ``per_example_gradients``; the loss may be part of aux.
      chunk_size: the number of examples to process at once; None for all, "auto" for as many as
        fit. No more than so many gradients are ever held. Gradients of tables that are looked up
        are never dense.
      memory_budget: bytes for "auto", as for ``vmap``.

    >>> import tensorflow as tf
    >>> import tf_pfor
    >>> w = tf.Variable(3.0)
    >>> tf_pfor.gradient_norms(lambda x: w * x, w, tf.constant([1., -2.])).numpy().tolist()
    [1.0, 2.0]
    """
    return _cached(_norms, loss_fn, (variables, batch), (has_aux, chunk_size, memory_budget))


def _norms(
    loss_fn: LossFn, variables: Any, batch: tuple[Any, ...], has_aux: bool, chunk_size: Any,
    budget: int | None,
) -> Any:  # fmt: skip
    one = _example_gradients(loss_fn, variables, has_aux)
    _check_batch(batch)

    def norm(*example: Any) -> Any:
        grads, _, aux = one(*example)
        found = _norm([_squares(_flat(_factored(g))) for g in grads])
        return (found, aux) if has_aux else found

    return vmap(norm, chunk_size=chunk_size, memory_budget=budget, out_shapes="ragged")(*batch)


@_no_autograph
def clipped_gradient_sum(
    loss_fn: LossFn,
    variables: Any,
    *batch: Any,
    clip_norm: float | tf.Tensor,
    has_aux: bool = False,
    chunk_size: ChunkSize = None,
    memory_budget: int | None = None,
) -> Any:
    """The sum of the examples' gradients, each clipped by its global norm: the heart of DP-SGD.

    The caller adds the noise: normal, of standard deviation noise_multiplier * clip_norm. It is
    added to the sums before they are divided by the (expected) size of the batch. For microbatches
    of k examples pass a batch [n, k, ...] and the mean loss of k examples. The method comes from
    Abadi et al. (2016).

    Args:
      loss_fn: as for ``per_example_gradients``.
      variables: as for ``per_example_gradients``.
      *batch: as for ``per_example_gradients``.
      clip_norm: the largest global norm that one example's gradient keeps: a float or a scalar
        tensor, more than 0.
      has_aux: as for ``per_example_gradients``.
      chunk_size: as for ``gradient_norms``.
      memory_budget: bytes for "auto", as for ``vmap``.

    Returns:
      (sums, losses), or (sums, losses, aux). The sums are the nest of ``variables`` with tensors of
      the variables' shapes. The losses are [n]. Aux is stacked, with zeros behind shorter rows.

    >>> import tensorflow as tf
    >>> import tf_pfor
    >>> w = tf.Variable(3.0)
    >>> total, losses = tf_pfor.clipped_gradient_sum(
    ...     lambda x: w * x, w, tf.constant([0.5, 8., -4.]), clip_norm=1.0)
    >>> float(total)
    0.5
    """
    limit = _checked_clip_norm(clip_norm)
    blocks = check_blocks(chunk_size, memory_budget, "chunk_size")
    return _cached(_clipped, loss_fn, (variables, batch, limit), (has_aux, *blocks))


def _check_batch(batch: tuple[Any, ...]) -> None:
    if all(x is None for x in tf.nest.flatten(nests.from_user(batch))):
        raise ArgumentError(
            "batch holds no tensor, so there are no examples. Expected: tensors of shape [n, ...], "
            "behind the variables."
        )


def _checked_clip_norm(clip_norm: Any) -> tf.Tensor:
    """A tensor, so that a schedule of norms shares one trace."""
    is_number = isinstance(clip_norm, (int, float)) and not isinstance(clip_norm, bool)
    try:
        number: Any = float(clip_norm) if is_number else clip_norm
        tensor = tf.convert_to_tensor(number, tf.float64 if is_number else None)
        known = tf.get_static_value(tensor)
    except (OverflowError, TypeError, ValueError):
        tensor = known = None
    if (
        tensor is None
        or not (tensor.dtype.is_floating or tensor.dtype.is_integer)
        or tensor.shape.rank not in (0, None)
        or (known is not None and not known > 0)
    ):
        raise ArgumentError(f"clip_norm must be a positive number, found {clip_norm!r}.")
    return tensor


def _clipped(
    loss_fn: LossFn, variables: Any, batch: tuple[Any, ...], clip_norm: Any, has_aux: bool,
    block: int | str | None, budget: int | None,
) -> Any:  # fmt: skip
    if tf.executing_eagerly():
        graph = nests.as_function(
            lambda *b: _clipped(loss_fn, variables, b, clip_norm, has_aux, block, budget)
        )
        return graph(*batch)
    work = _ClippedSum(loss_fn, variables, batch, clip_norm, has_aux)
    sums, (losses, aux) = work.run(block, budget)
    sums = tf.nest.pack_sequence_as(variables, sums)
    return (sums, losses, nests.to_user(aux)) if has_aux else (sums, losses)


class _ClippedSum:
    """The examples traced once, their gradients in blocks, clipped and added up."""

    def __init__(
        self, loss_fn: LossFn, variables: Any, batch: tuple[Any, ...], clip_norm: Any, has_aux: bool
    ):
        one = _example_gradients(loss_fn, variables, has_aux)
        _check_batch(batch)
        self._variables = _tensors(variables)
        self._clip_norm = clip_norm
        opened, cut = composites.opened(tuple(batch), in_blocks=True)
        self._plan = plan = Plan(opened, {}, 0, None)

        def parts(*example: Any) -> Any:
            grads, loss, aux = one(*cut(example))
            return [_parts(_factored(g)) for g in grads], (loss, aux)

        size = plan.n if isinstance(plan.n, int) else None
        self._body = trace(plan.of_rows(parts), [e.spec for e in plan.elements], Axis("", size))
        self._recorder = Recorder()

    def run(self, block: int | str | None, budget: int | None) -> tuple[list[tf.Tensor], Any]:
        """The sums for the variables; (losses, aux), stacked."""
        plan, n = self._plan, self._plan.n
        if isinstance(block, str):
            block = fitting_block(
                n if isinstance(n, int) else None,
                lambda rows: self._results(stand_ins(plan.elements, rows), rows),
                budget,
                are_sums=True,
            )
        if block is None or (isinstance(n, int) and n <= block):
            result = self._chunk(plan.elements, n)
        else:
            result = self._in_blocks(n, block)
        if current().warn:
            warn_of_loops(self._recorder)
        return result

    def _results(self, elements: Sequence[Element], n: Dim) -> list[tf.Tensor]:
        sums, stacked = self._chunk(elements, n)
        return [*sums, *_only_tensors(stacked)]

    def _chunk(
        self, elements: Sequence[Element], n: Dim, place: Block | None = None
    ) -> tuple[list[tf.Tensor], Any]:
        """The sums of some examples; their losses and aux.

        Args:
          elements: the examples.
          n: the number of examples.
          place: for one of several blocks, its first example and how many there are in all.
        """
        recorder = Recorder() if self._recorder.entries else self._recorder
        # slices of a table are as many as an example has ids: what is padded is zero, and adds none
        padded = current().settings("padded")
        made = convert_body(self._body, elements, n, padded, recorder, place)
        grads, stacked = nests.pack(self._body.structure, made)
        grads = [_whole(g, v) for g, v in zip(grads, self._variables)]
        grads = [_flat(g, n) for g in grads]
        norms = _norm([_squares(g) for g in grads])
        limit = tf.minimum(tf.cast(self._clip_norm, norms.dtype), norms.dtype.max)
        scales = limit / tf.maximum(norms, limit)  # [n], 1 where the norm is small enough
        return [_scaled_sum(g, scales, v) for g, v in zip(grads, self._variables)], stacked

    def _in_blocks(self, n: Dim, block: int) -> tuple[list[tf.Tensor], Any]:
        """Adds up blocks of examples, one after the other; the last has what is left, or all."""
        elements = self._plan.elements
        full = max((n - 1) // block, 0) if isinstance(n, int) else tf.maximum((n - 1) // block, 0)

        sources = [readable(x, n) for x in mapped(elements)]

        def step(given: list[tf.Tensor], sums: list[tf.Tensor]) -> Any:
            ids = given[0] + tf.range(block)  # a slice has no static size under XLA
            rows = with_mapped(elements, [tf.gather(x, ids) for x in sources])
            more, stacked = self._chunk(rows, block, Block(given[0], n))
            return _only_tensors(stacked), [a + b for a, b in zip(sums, more)]

        _, like = nests.pack(self._body.structure, list(self._body.leaves))
        signature = [several(x, block) for x in _only_tensors(like)]
        zeros = [tf.zeros(tf.shape(v), v.dtype) for v in self._variables]
        blocks, sums = in_turn(step, [tf.range(full) * block], signature, full, zeros)
        done = full * block
        with tf.control_dependencies(sums), salted(1):  # or both need memory at once
            rest = with_mapped(elements, [tf.identity(x[done:]) for x in mapped(elements)])
            first = tf.identity(tf.convert_to_tensor(done, tf.int32))
            more, stacked = self._chunk(rest, n - done, Block(first, n))
        pairs = zip(blocks, _only_tensors(stacked))
        supply = iter([followed_by(join(a, block), b) for a, b in pairs])
        leaves = [next(supply) if isinstance(x, tf.Tensor) else x for x in nests.flatten(stacked)]
        return [a + b for a, b in zip(sums, more)], nests.pack(stacked, leaves)


def _only_tensors(structure: Any) -> list[tf.Tensor]:
    return [x for x in nests.flatten(structure) if isinstance(x, tf.Tensor)]


# ---------------------------------------------------------------------------
# Norms and sums
# ---------------------------------------------------------------------------


def _flat(gradient: Any, *rows: Dim) -> Any:
    """[*rows, ...] -> [*rows, m]; slices and factors as they are."""
    if isinstance(gradient, (BatchedIndexedSlices, FactoredGradient)):
        return gradient
    known: Any = gradient.shape[len(rows) :]
    count = known.num_elements()
    if count is None:  # no -1, which stands for nothing if there are no rows
        count = tf.reduce_prod(tf.shape(gradient)[len(rows) :])
    return tf.reshape(gradient, [*rows, count])


def _squares(gradient: Any) -> tf.Tensor:
    """The sum of squares over the last axis of a dense gradient, of slices or of a product."""
    if isinstance(gradient, (BatchedIndexedSlices, FactoredGradient)):
        return gradient.squared_norms()
    if gradient.dtype in (tf.float16, tf.bfloat16):  # their squares overflow
        gradient = tf.cast(gradient, tf.float32)
    return tf.reduce_sum(tf.math.real(gradient * tf.math.conj(gradient)), -1)


def _norm(squares: Sequence[tf.Tensor]) -> tf.Tensor:
    """The global norm, in double precision if one of the gradients is."""
    dtype = tf.float64 if any(s.dtype == tf.float64 for s in squares) else tf.float32
    return tf.sqrt(tf.add_n([tf.cast(s, dtype) for s in squares]))


def _scaled_sum(gradient: Any, scales: tf.Tensor, variable: Any) -> tf.Tensor:
    """The sum over examples of scale times gradient: the shape of the variable."""
    if isinstance(gradient, BatchedIndexedSlices):
        return tf.convert_to_tensor(gradient.sum(scales))
    if isinstance(gradient, FactoredGradient):
        return gradient.sum(scales, variable)
    total = tf.linalg.matvec(gradient, tf.cast(scales, gradient.dtype), transpose_a=True)
    return tf.reshape(total, tf.shape(variable))
