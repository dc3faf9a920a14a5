"""The arguments of a mapped function: which are mapped over which axis, and how often."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import tensorflow as tf

from tf_pfor import _tf
from tf_pfor._tf import _types
from tf_pfor.api import composites, leaves
from tf_pfor.api.inputs import Element
from tf_pfor.core import nests
from tf_pfor.core.emit import Dim
from tf_pfor.core.errors import ArgumentError, ArgumentTypeError
from tf_pfor.core.nests import Nest
from tf_pfor.core.values import dims
from tf_pfor.tracing.row_numbers import Rows
from tf_pfor.tracing.user_code import arguments_of, autographed

Axes: TypeAlias = Nest
"""An int, None, or a nest of them that is a prefix of another nest."""


def places_of_rows(in_axes: Axes, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Rows:
    """The places of the number of rows; none if ``in_axes`` does not fit."""
    if isinstance(in_axes, (list, tuple)) and len(in_axes) != len(args):
        return Rows([])
    given, named = nests.from_user((args, kwargs))
    axes = nests.spread(tuple(in_axes) if isinstance(in_axes, list) else in_axes, given, "in_axes")
    owners = [x for x in tf.nest.flatten(given) for _ in nests.flatten(x)]
    by_name = [(x, 0) for x in tf.nest.flatten(named) if not _is_switch(x, True)]
    return Rows([*zip(owners, axes), *by_name])


def padded(args: tuple[Any, ...], in_axes: Axes) -> tuple[Any, ...]:
    """The arguments with padded rows in place of ragged and sparse tensors to map over.

    They are made before XLA sees them: it has no ops for that, and knows no longest row.
    """
    opened = tuple(a for a, _ in _opened(args, in_axes, in_blocks=True, of=_types.ROWS))
    return opened if len(opened) == len(args) else args


def with_dense(
    fn: Callable[..., Any], args: tuple[Any, ...], in_axes: Axes, *, in_blocks: bool
) -> tuple[Callable[..., Any], tuple[Any, ...]]:
    """``fn`` and arguments with dense tensors in place of ragged and sparse ones to map over."""
    pairs = _opened(args, in_axes, in_blocks=in_blocks)
    opened = tuple(a for a, _ in pairs)
    converted = autographed(fn, "vmap")
    if len(opened) != len(args) or all(a is b for a, b in zip(args, opened)):
        return converted, args

    def of_rows(*rows: Nest, **kwargs: Nest) -> Any:
        with arguments_of(fn):
            given = [cut(row) for row, (_, cut) in zip(rows, pairs)]
        return converted(*given, **kwargs)

    return of_rows, opened


def _opened(
    args: tuple[Any, ...],
    in_axes: Axes,
    *,
    in_blocks: bool,
    of: tuple[type, ...] = (_types.COMPOSITE,),
) -> list[tuple[Any, Callable[[Any], Any]]]:
    """Each argument that ``in_axes`` has an entry for, opened, and what cuts its rows."""
    entries = in_axes if isinstance(in_axes, (list, tuple)) else [in_axes] * len(args)
    return [
        composites.opened(a, of=of, in_blocks=in_blocks, axes=_axes_of(a, axis, f"in_axes[{i}]"))
        for i, (a, axis) in enumerate(zip(args, entries))
    ]


def _axes_of(arg: object, axes: object, name: str) -> Callable[[Any], Any]:
    """Over which axis a composite tensor of an argument is mapped."""

    def axis_of(x: object) -> Any:
        structure = nests.from_user(arg)
        spread = nests.spread(axes, tf.nest.map_structure(lambda _: 0, structure), name)
        found = [a for leaf, a in zip(tf.nest.flatten(structure), spread) if leaf is x]
        return found[0] if found else 0  # in one of the argument's composites

    return axis_of


class Plan:
    """The arguments of one call: which are mapped over which axis, and how often.

    Attributes:
      elements: the mapped arguments, the mapped axis in front.
      n: the number of examples.
    """

    def __init__(
        self, args: tuple[Any, ...], kwargs: dict[str, Any], in_axes: Axes, axis_size: int | None
    ):
        self._structure = nests.from_user((args, kwargs))
        given_args, given_kwargs = self._structure
        if isinstance(in_axes, list):
            in_axes = tuple(in_axes)
        if isinstance(in_axes, tuple) and len(in_axes) != len(args):
            raise ArgumentError(
                f"in_axes has {len(in_axes)} entries and fn was called with {len(args)} "
                "positional arguments. Expected: one entry for each, or a single int or None. "
                "Keyword arguments are mapped over axis 0 and have no entry."
            )
        axes = nests.spread(in_axes, given_args, "in_axes")
        names_of_args = nests.paths(given_args, "args")
        names = [*names_of_args, *_names_of_keywords(given_kwargs)]
        flat = nests.flatten(self._structure)
        owners = [x for x in tf.nest.flatten(self._structure) for _ in nests.flatten(x)]
        axes += [0] * (len(flat) - len(axes))
        self._kept: list[Any] = list(flat)
        self._slots: list[int] = []
        self.elements: list[Element] = []
        sizes: list[tuple[str, tf.TensorShape, int, int | None]] = []
        for i, (leaf, axis, name) in enumerate(zip(flat, axes, names)):
            is_keyword = i >= len(names_of_args)
            if axis is None or leaf is None or _is_switch(leaf, is_keyword):
                continue
            _check_dense(owners[i], name)
            tensor, place = _mapped_tensor(leaf, axis, name, _shared(is_keyword))
            shape = dims(tensor)
            sizes.append((name, tensor.shape, axis, None if shape is None else shape[place]))
            front = tensor if place == 0 else _move_to_front(tensor, place)
            self.elements.append(Element(front))
            self._slots.append(i)
        self.n = _size(sizes, self.elements, axis_size)
        unknown = [k for k, (*_, size) in enumerate(sizes) if size is None]
        if len(unknown) > int(isinstance(self.n, tf.Tensor)):
            self.elements = _checked(self.elements, self.n, unknown, [x[0] for x in sizes])

    def of_rows(self, fn: Callable[..., Any]) -> Callable[..., Any]:
        """``fn`` as a function of the flat mapped elements of one example."""

        def of_flat(*rows: tf.Tensor) -> Any:
            given = list(self._kept)
            for slot, row in zip(self._slots, rows):
                given[slot] = row
            args, kwargs = nests.pack(self._structure, given)
            return fn(*nests.to_user(args), **nests.to_user(kwargs))

        return of_flat


def elements_of(
    fn: Callable[..., Any],
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    in_axes: Axes,
    axis_size: int | None,
    *,
    in_blocks: bool = False,
) -> tuple[Callable[..., Any], list[Element], Dim]:
    """``fn`` as a function of flat tensors of one example, its elements, and their number."""
    one, args = with_dense(fn, args, in_axes, in_blocks=in_blocks)
    plan = Plan(args, kwargs, in_axes, axis_size)
    return nests.named_as(plan.of_rows(one), fn), plan.elements, plan.n


def check_rows(args: tuple[Any, ...], kwargs: dict[str, Any], in_axes: Axes) -> None:
    """Refuses what has no leaves, and ranges, datasets or iterators that are to be mapped over.

    As the user has them: a tf.function makes tuples of some.
    """
    entries = in_axes if isinstance(in_axes, (list, tuple)) else [in_axes] * len(args)
    for i, (arg, axis) in enumerate(zip(args, entries)):
        nests.check_leaves(arg, f"args[{i}]")
        if axis is not None:
            nests.check_rows(arg, f"args[{i}]")
    for key, arg in kwargs.items():
        nests.check_leaves(arg, f"keyword argument {key}")


def check_tensors(args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """Refuses leaves that a tf.function does not take, which would not say which they are."""
    names = [*nests.paths(args, "args"), *_names_of_keywords(kwargs)]
    n_args = len(nests.flatten(args))
    for i, (leaf, name) in enumerate(zip(nests.flatten((args, kwargs)), names)):
        leaves.check_tensor(leaf, name, _shared(i >= n_args))


def _is_switch(leaf: object, is_keyword: bool) -> bool:
    """A keyword argument with nothing in it to map over, such as ``training=True``."""
    return is_keyword and isinstance(leaf, (bool, str))


def _check_dense(leaf: object, name: str) -> None:
    if isinstance(leaf, (tf.RaggedTensor, tf.SparseTensor)):
        raise ArgumentTypeError(
            f"{name} is a {type(leaf).__name__}, which is mapped as a positional argument only. "
            "Pass it by position (its entry of in_axes may be None if all examples share it), or "
            "convert it to a dense tensor first (.to_tensor() or tf.sparse.to_dense())."
        )


def _names_of_keywords(kwargs: dict[str, Any]) -> list[str]:
    """For each leaf: ``keyword argument x``, ``keyword argument x['a']``."""
    keys = sorted(kwargs)
    return [p for k in keys for p in nests.paths(kwargs[k], f"keyword argument {k}")]


def _shared(is_keyword: bool) -> str:
    """The advice of a message on an argument that all examples share."""
    if is_keyword:
        return (
            "Keyword arguments are mapped over axis 0, except bools and strings. If all examples "
            "share it, pass it by position with None in in_axes, or close over it."
        )
    return "If all examples share it, set its entry of in_axes to None."


def _mapped_tensor(leaf: object, axis: int, name: str, shared: str) -> tuple[tf.Tensor, int]:
    """The leaf as a tensor, and the axis counted from the front."""
    tensor = leaves.tensor_of(leaf, name, shared)
    rank = tensor.shape.rank
    if rank is None:
        if axis < 0:
            raise ArgumentError(f"{name} has unknown rank: its entry of in_axes must be >= 0.")
        return tensor, axis
    if not -rank <= axis < rank:
        axes = f"an axis from {-rank} to {rank - 1}" if rank else "at least one axis"
        raise ArgumentError(
            f"{name} has shape {tensor.shape} and no axis {axis} to map over. Expected: {axes}. "
            f"{shared}"
        )
    return tensor, axis % rank


def _move_to_front(tensor: tf.Tensor, axis: int) -> tf.Tensor:
    if tensor.shape.rank is None:
        others = [tf.range(axis), tf.range(axis + 1, tf.rank(tensor))]
        perm: Any = tf.concat([[axis], *others], 0)
        return tf.transpose(tensor, perm)
    return leaves.moved(tensor, axis, 0)


def _checked(
    elements: list[Element], n: Dim, unknown: Sequence[int], names: Sequence[str]
) -> list[Element]:
    """Elements of which some have an unknown number of rows, which is n or an error when they run.

    Not in the body of another map, whose rows may each have a number of their own.
    """
    graph = tf.compat.v1.get_default_graph()
    if tf.executing_eagerly() or _tf.in_body(graph):
        return elements
    tensors = [e.tensor for e in elements if e.tensor is not None]
    if _tf.in_xla_context(graph):  # which has no checks, but refuses a wrong shape
        for k in unknown:
            shape = tf.concat([[n], tf.shape(tensors[k])[1:]], 0)
            made = tf.reshape(tensors[k], shape)
            made.set_shape(tensors[k].shape)
            tensors[k] = made
    else:
        rows = tf.stack([tf.shape(t)[0] for t in tensors])
        text = f"The arguments disagree in the size of the mapped axis. {', '.join(names)} have:"
        check = tf.debugging.Assert(tf.reduce_all(rows == n), [text, rows], len(names))
        with tf.control_dependencies([check]):
            for k in unknown:
                tensors[k] = tf.identity(tensors[k])
    return [dataclasses.replace(e, tensor=t) for e, t in zip(elements, tensors)]


def _size(
    sizes: list[tuple[str, tf.TensorShape, int, int | None]],
    elements: list[Element],
    axis_size: int | None,
) -> Dim:
    known = {s for *_, s in sizes if s is not None}
    if axis_size is not None:
        known.add(axis_size)
    if len(known) > 1:
        lines = [f"{name}: shape {shape}, axis {axis}: {s}" for name, shape, axis, s in sizes]
        if axis_size is not None:
            lines.append(f"axis_size: {axis_size}")
        raise ArgumentError(
            "The arguments disagree in the size of the mapped axis:\n  " + "\n  ".join(lines)
        )
    if known:
        return known.pop()
    if not elements:
        raise ArgumentError(
            "No argument is mapped (fn was called without any, or all entries of in_axes are "
            "None), so the number of examples is unknown. Call the mapped function with a batch, "
            "or pass axis_size to vmap."
        )
    first = elements[0].tensor
    assert first is not None
    return tf.shape(first)[0]


def with_dense_elements(
    fn: Callable[[Any], Any],
    elems: Nest,
    kinds: tuple[type, ...] = (_types.COMPOSITE,),
    *,
    in_blocks: bool = False,
) -> tuple[Callable[[Any], Any], Any]:
    """``fn`` and ``elems`` with dense tensors in place of ragged or sparse ones."""
    opened, cut = composites.opened(elems, of=kinds, in_blocks=in_blocks)
    if opened is elems:
        return fn, elems
    converted = autographed(fn, "vectorized_map")

    @tf.autograph.experimental.do_not_convert
    def of_rows(row: Nest) -> Any:
        with arguments_of(fn):
            row = cut(row)
        return converted(row)

    return functools.update_wrapper(of_rows, fn, ("__name__", "__qualname__"), ()), opened
