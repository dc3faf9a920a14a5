"""Collectives: sums, maxima and exchanges across the iterations of a loop (Agarwal, 2019).

A collective is called for one example and combines the values of all examples. While the body is
traced, a collective is one op, which fails when it is run. An attribute of the op says which
collective it is. The walker of the loop that the op names puts the real ops in its place
(``converters/math/_collectives.py``).

A gradient that is taken inside the body, of one example's result by its input, is the gradient of
the sum over all examples. JAX defines it so, too. So the gradient of ``psum`` is the ``psum`` of
the gradient.
"""

from __future__ import annotations

import dataclasses
import functools
import json
import math
import numbers
from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

from tf_pfor import _tf
from tf_pfor._tf import _graphs
from tf_pfor.core import axes, nests
from tf_pfor.core.errors import ArgumentError, ArgumentTypeError
from tf_pfor.core.nests import Nest
from tf_pfor.core.values import Shape, dims, is_static

Names = str | Sequence[str] | None
"""The name of a mapped axis, several, or None for the innermost one."""

_no_autograph = tf.autograph.experimental.do_not_convert
_GRADIENT = "TfPforCollective"


@_no_autograph
def psum(x: object, axis_name: Names = None) -> Any:
    """The sum of ``x`` over all examples of a mapped axis, or of several.

    Args:
      x: a nest of numeric tensors, inside a function that is mapped.
      axis_name: the ``axis_name`` of a map around the call, or a tuple of several names; None for
        the innermost map.

    Returns:
      The nest of ``x``, of the same shapes and dtypes; equal for all examples.

    Raises:
      ArgumentError: outside of a map, or if no map has this name.
      NotVectorizableError: when the map is converted, if only some of the examples get to the
        call. That is so in a branch, in a loop whose trip count differs per example, and in blocks.

    >>> import tensorflow as tf
    >>> import tf_pfor
    >>> share = tf_pfor.vmap(lambda x: x / tf_pfor.psum(x))
    >>> share(tf.constant([1., 3.])).numpy().tolist()
    [0.25, 0.75]
    """
    return _each("psum", x, axis_name)


@_no_autograph
def pmean(x: object, axis_name: Names = None) -> Any:
    """The mean of ``x`` over all examples of a mapped axis, or of several.

    Args:
      x: a nest of numeric tensors, inside a function that is mapped.
      axis_name: the name of the mapped axis, or several names. None is the innermost map.

    Returns:
      The nest of ``x``, of the same shapes and dtypes; of integers it is float32, as in JAX.

    >>> import tensorflow as tf
    >>> import tf_pfor
    >>> tf_pfor.vmap(lambda x: x - tf_pfor.pmean(x))(tf.constant([1., 3.])).numpy().tolist()
    [-1.0, 1.0]
    """
    return _each("pmean", x, axis_name)


@_no_autograph
def pmax(x: object, axis_name: Names = None) -> Any:
    """The elementwise maximum of ``x`` over all examples of a mapped axis.

    Examples that share the maximum share its gradient, as in ``tf.reduce_max``.

    Args:
      x: a nest of real tensors, inside a function that is mapped.
      axis_name: the name of the mapped axis, or several names. None is the innermost map.

    Returns:
      The nest of ``x``, of the same shapes and dtypes.

    >>> import tensorflow as tf
    >>> import tf_pfor
    >>> tf_pfor.vmap(lambda x: tf_pfor.pmax(x) - x)(tf.constant([1, 3])).numpy().tolist()
    [2, 0]
    """
    return _each("pmax", x, axis_name)


@_no_autograph
def pmin(x: object, axis_name: Names = None) -> Any:
    """The elementwise minimum of ``x`` over all examples of a mapped axis: see ``pmax``.

    >>> import tensorflow as tf
    >>> import tf_pfor
    >>> tf_pfor.vmap(lambda x: x - tf_pfor.pmin(x))(tf.constant([1, 3])).numpy().tolist()
    [0, 2]
    """
    return _each("pmin", x, axis_name)


@_no_autograph
def all_gather(x: object, axis_name: Names = None, *, axis: int = 0, tiled: bool = False) -> Any:
    """The values of ``x`` of all examples of a mapped axis, in each of them.

    Args:
      x: a nest of tensors, inside a function that is mapped.
      axis_name: the name of the mapped axis, or several names. None is the innermost map. The
        examples of several axes are in the order of a nest of loops.
      axis: the axis of the examples in the result; a negative axis counts from the end.
      tiled: whether the tensors are joined along ``axis`` of ``x``, instead of stacked.

    Returns:
      The nest of ``x``: tensors with one axis more, of the size of the mapped axis. With ``tiled``
      the axis is that many times as long instead.

    Raises:
      ArgumentError: as for ``psum``, or if there is no such axis.

    >>> import tensorflow as tf
    >>> import tf_pfor
    >>> rank = tf_pfor.vmap(lambda x: tf.reduce_sum(tf.cast(tf_pfor.all_gather(x) < x, tf.int32)))
    >>> rank(tf.constant([5., 1., 3.])).numpy().tolist()
    [2, 0, 1]
    >>> joined = tf_pfor.vmap(lambda x: tf_pfor.all_gather(x, tiled=True), out_axes=None)
    >>> joined(tf.constant([[1, 2], [3, 4]])).numpy().tolist()
    [1, 2, 3, 4]
    """
    if isinstance(axis, bool) or not isinstance(axis, numbers.Integral):
        raise ArgumentTypeError(f"all_gather: axis must be an int, found {axis!r}.")
    innermost, *others = reversed(_names(axis_name))

    def gather(tensor: tf.Tensor) -> tf.Tensor:
        place = _place(tensor, axis, tiled)
        made = _gathered(tensor, innermost, place)
        for name in others:
            made = merged(_gathered(made, name, place), place)
        return merged(made, place) if tiled else made

    return map_tensors("all_gather", gather, x)


def _place(tensor: tf.Tensor, axis: int, tiled: bool) -> int:
    """The axis of ``all_gather``, counted from the front."""
    rank = tensor.shape.rank
    if rank is None:
        if axis:
            raise ArgumentError("all_gather: a tensor of unknown rank needs axis=0.")
        return 0
    count = rank if tiled else rank + 1
    if not -count <= axis < count:
        places = f"from {-count} to {count - 1}" if count else "of a tensor that has axes"
        raise ArgumentError(
            f"all_gather: axis must be {places} for a tensor of shape {tensor.shape}"
            f"{' and tiled=True' if tiled else ''}, found {axis}."
        )
    return axis % count


def _gathered(tensor: tf.Tensor, name: str | None, place: int) -> tf.Tensor:
    over = axes.find(name, "all_gather")
    shape = dims(tensor)
    if shape is not None:
        shape = (*shape[:place], axes.size_here(over), *shape[place:])
    return _traced(Collective("all_gather", _name(name, over), place), [tensor], shape)


def merged(x: tf.Tensor, axis: int) -> tf.Tensor:
    """The tensor with an axis and the one behind it made one."""
    shape = tf.shape(x)
    size = shape[axis] * shape[axis + 1]
    made = tf.reshape(x, tf.concat([shape[:axis], [size], shape[axis + 2 :]], 0))
    known = dims(x)
    if known is not None:
        both = known[axis : axis + 2]
        joined = math.prod(both) if is_static(both) else None
        made.set_shape([*known[:axis], joined, *known[axis + 2 :]])
    return made


@_no_autograph
def ppermute(
    x: object, axis_name: str | None = None, perm: Sequence[tuple[int, int]] | None = None
) -> Any:
    """Sends ``x`` from example to example of a mapped axis of known size.

    Args:
      x: a nest of numeric tensors, inside a function that is mapped.
      axis_name: the ``axis_name`` of one map; None: the innermost one.
      perm: pairs (source, destination). No two have the same source or the same destination;
        examples that are no destination get zeros.

    Returns:
      The nest of ``x``, of the same shapes and dtypes.

    >>> import tensorflow as tf
    >>> import tf_pfor
    >>> left = tf_pfor.vmap(lambda x: tf_pfor.ppermute(x, perm=[(1, 0), (2, 1)]))
    >>> left(tf.constant([5., 6., 7.])).numpy().tolist()
    [6.0, 7.0, 0.0]
    """
    if perm is None:
        raise ArgumentError(
            "ppermute needs perm, pairs (source, destination): ppermute(x, axis_name, perm)."
        )
    pairs = _check_perm(perm)

    def permute(tensor: tf.Tensor) -> tf.Tensor:
        _check_numeric(tensor, "ppermute")
        over = axes.find(axis_name, "ppermute")
        moved = Collective("ppermute", _name(axis_name, over), perm=pairs)
        return _traced(moved, [tensor], dims(tensor))

    return map_tensors("ppermute", permute, x)


@_no_autograph
def axis_index(axis_name: Names = None) -> tf.Tensor:
    """The number of this example on a mapped axis, an int32 scalar.

    Works also where only some of the examples are active, and in blocks of them. Of several axes it
    is the number in a nest of loops, the first axis outside.

    >>> import tensorflow as tf
    >>> import tf_pfor
    >>> fn = tf_pfor.vmap(lambda x: x + tf_pfor.axis_index())
    >>> fn(tf.constant([10, 10])).numpy().tolist()
    [10, 11]
    """
    first, *others = _names(axis_name)
    number = _index(first)
    for name in others:
        number = number * axis_size(name) + _index(name)
    return number


def _index(name: str | None) -> tf.Tensor:
    over = axes.find(name, "axis_index")
    return _traced(Collective("axis_index", _name(name, over)), [], ())


@_no_autograph
def axis_size(axis_name: Names = None) -> tf.Tensor:
    """The number of examples on a mapped axis, an int32 scalar; of several axes the product.

    >>> import tensorflow as tf
    >>> import tf_pfor
    >>> fn = tf_pfor.vmap(lambda x: x * tf_pfor.axis_size())
    >>> fn(tf.constant([1, 2, 3])).numpy().tolist()
    [3, 6, 9]
    """
    first, *others = _names(axis_name)
    size = _count(first)
    for name in others:
        size *= _count(name)
    return size


def _count(name: str | None) -> tf.Tensor:
    over = axes.find(name, "axis_size")
    known = axes.size_here(over)
    if known is not None:
        return tf.constant(known, tf.int32)
    return _traced(Collective("axis_size", _name(name, over)), [], ())


@_no_autograph
def exchanged(x: tf.Tensor, axis_name: str | None, place: int) -> tf.Tensor:
    """Row j of example i, along axis ``place``, becomes row i of example j."""
    over = axes.find(axis_name, "all_to_all")
    return _traced(Collective("all_to_all", _name(axis_name, over), place), [x], dims(x))


# ---------------------------------------------------------------------------
# Checks
# ---------------------------------------------------------------------------


def _each(kind: str, x: object, axis_name: Names) -> Any:
    names = _names(axis_name)

    def one(tensor: tf.Tensor) -> tf.Tensor:
        _check_numeric(tensor, kind)
        if kind == "pmean" and tensor.dtype.is_integer:
            tensor = tf.cast(tensor, tf.float32)
        if kind in ("pmax", "pmin") and tensor.dtype.is_complex:
            raise ArgumentTypeError(f"{kind} expects a real tensor, found {tensor.dtype.name}.")
        for name in names:
            what = Collective(kind, _name(name, axes.find(name, kind)))
            tensor = _traced(what, [tensor], dims(tensor))
        return tensor

    for name in names:
        axes.find(name, kind)
    return map_tensors(kind, one, x)


def _names(axis_name: Names) -> list[str | None]:
    """One axis, or several that differ."""
    if not isinstance(axis_name, (list, tuple)):
        return [axis_name]  # type: ignore[list-item]
    is_named = axis_name and all(isinstance(x, str) for x in axis_name)  # pyright: ignore[reportUnnecessaryIsInstance]
    if not is_named or len(set(axis_name)) < len(axis_name):
        raise ArgumentError(
            f"axis_name must be the name of an axis, or several that differ; found {axis_name!r}."
        )
    return [*axis_name]


def map_tensors(kind: str, one: Callable[[tf.Tensor], Any], x: object) -> Any:
    """Calls ``one`` for each leaf of a nest.

    Raises:
      ArgumentTypeError: if a leaf is no tensor.
    """

    def leaf(item: Nest) -> Any:
        try:
            tensor = tf.convert_to_tensor(item)
        except (TypeError, ValueError) as why:
            raise ArgumentTypeError(
                f"{kind} expects a nest of tensors, found a {type(item).__name__} in it."
            ) from why
        if tensor.dtype in (tf.resource, tf.variant):
            raise ArgumentTypeError(f"{kind} expects tensors, found a {tensor.dtype.name} handle.")
        return one(tensor)

    return nests.to_user(tf.nest.map_structure(leaf, nests.from_user(x)))


def _check_numeric(tensor: tf.Tensor, kind: str) -> None:
    dtype = tensor.dtype
    if not (dtype.is_floating or dtype.is_complex or dtype.is_integer):
        raise ArgumentTypeError(
            f"{kind} expects a tensor of numbers, found dtype {dtype.name}. Cast it: "
            "tf.cast(x, tf.int32)."
        )


def _check_perm(perm: Any) -> tuple[tuple[int, int], ...]:
    try:
        pairs = tuple((int(a), int(b)) for a, b in perm)
    except (TypeError, ValueError) as why:
        raise ArgumentTypeError(
            f"perm must be pairs of ints (source, destination), found {perm!r}."
        ) from why
    for side, which in enumerate(("source", "destination")):
        found = [p[side] for p in pairs]
        if len(set(found)) != len(found) or any(i < 0 for i in found):
            raise ArgumentError(
                f"perm must have each {which} once, and none below 0; found {list(pairs)}."
            )
    return pairs


def _name(axis_name: str | None, axis: axes.Axis) -> str:
    """The op's name of its axis. It also holds in another map that reuses a tf.function."""
    return axis_name or axis.key


# ---------------------------------------------------------------------------
# The op that stands for a collective in the body
# ---------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True, slots=True)
class Collective:
    """The kind of a collective, and its arguments.

    Attributes:
      kind: the name of the public function.
      axis: the name or key of the mapped axis.
      place: the new axis of the result of ``all_gather``; the axis of the rows of ``all_to_all``.
      perm: ``ppermute`` only: pairs (source, destination).
    """

    kind: str
    axis: str
    place: int = 0
    perm: tuple[tuple[int, int], ...] = ()

    @classmethod
    def of(cls, op: tf.Operation) -> Collective:
        """The collective that was traced as ``op``."""
        attrs = getattr(op, "attrs", None)  # all that a tape knows
        found = json.loads(attrs[1] if attrs else op.get_attr(_tf.COLLECTIVE))
        found["perm"] = tuple((a, b) for a, b in found["perm"])
        return cls(**found)

    def emit(self, graph: tf.Graph, inputs: list[tf.Tensor], shape: Shape) -> tf.Tensor:
        """The op in ``graph``, with this static shape."""
        dtype = inputs[0].dtype if inputs else tf.int32
        function = _unconverted(self.kind, dtype if inputs else None)
        if graph._get_function(function.name) is None:
            function.add_to_graph(graph)
        protos = {
            "Tin": _tf.attr_value("list(type)", [t.dtype for t in inputs]),
            "Tout": _tf.attr_value("list(type)", [dtype]),
            "f": _tf.AttrValue(),
            _tf.COLLECTIVE: _tf.attr_value("string", json.dumps(dataclasses.asdict(self))),
            "_gradient_op_type": _tf.attr_value("string", _GRADIENT),
        }
        protos["f"].func.name = tf.compat.as_str(function.name)
        op = _graphs.create_op(graph, "StatefulPartitionedCall", inputs, protos, self.kind)
        op.outputs[0].set_shape(shape)
        return op.outputs[0]


def has_collective(graph: tf.Graph) -> bool:
    """Whether a collective is in ``graph``, or in a function that it calls."""
    return any(
        _tf.COLLECTIVE in _tf.attr_map(op) or any(has_collective(g) for g in _tf.functions_of(op))
        for op in graph.get_operations()
    )


def _traced(collective: Collective, inputs: list[tf.Tensor], shape: Shape) -> tf.Tensor:
    return collective.emit(tf.compat.v1.get_default_graph(), inputs, shape)


@functools.cache
def _unconverted(kind: str, dtype: tf.DType | None) -> Any:
    """The function that the op runs if nobody converts it: an error.

    It is stateful, so that no branch or loop around it is taken for loop-invariant.
    """

    def fail(*inputs: tf.Tensor) -> tf.Tensor:
        message = (
            f"{kind} of tf_pfor was run outside of the map that it was traced in. A tf.function "
            "that calls it can run in a mapped function only."
        )
        with tf.control_dependencies([tf.debugging.Assert(tf.constant(False), [message])]):
            # Of any shape, and of no value that is known before running.
            given, shape = (inputs[0], None) if inputs else (tf.constant(0), [])
            return tf.raw_ops.PlaceholderWithDefault(input=given, shape=shape)

    with tf.init_scope():
        specs = [] if dtype is None else [tf.TensorSpec(None, dtype)]  # pyright: ignore[reportArgumentType]
        return tf.function(fail, autograph=False).get_concrete_function(*specs)


@tf.RegisterGradient(_GRADIENT)
def _gradient(op: tf.Operation, upstream: tf.Tensor) -> Any:
    """The gradient for one example: the gradient of the sum over all examples."""
    if not op.inputs:
        return []
    what = Collective.of(op)
    g = tf.convert_to_tensor(upstream)
    x = op.inputs[0]
    if what.kind in ("psum", "pmean", "all_to_all"):
        return _traced(what, [g], dims(g))
    if what.kind == "ppermute":
        back = dataclasses.replace(what, perm=tuple((b, a) for a, b in what.perm))
        return _traced(back, [g], dims(g))
    total = Collective("psum", what.axis)
    summed = _traced(total, [g], dims(g))
    if what.kind == "all_gather":
        own = _traced(Collective("axis_index", what.axis), [], ())
        return tf.gather(summed, own, axis=what.place)
    hit = tf.cast(tf.equal(x, op.outputs[0]), g.dtype)
    return hit * summed / _traced(total, [hit], dims(hit))
