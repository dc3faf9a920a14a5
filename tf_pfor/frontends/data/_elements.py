"""Elements of a dataset as batches, whatever their structure, and rows of a batch as elements.

A dense component whose shape is not fully known may have another shape in each element. It is
padded, and its sizes go along, so that the function of one element gets the component unpadded. An
extension type is batched as the tensors that its type stacks, each as a component.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import tensorflow as tf

from tf_pfor._tf import _types
from tf_pfor.core import nests
from tf_pfor.core.emit import Dim
from tf_pfor.core.errors import ArgumentError, ArgumentTypeError
from tf_pfor.core.nests import Nest

_COMPONENTS = (tf.TensorSpec, tf.RaggedTensorSpec, tf.SparseTensorSpec)


class Uneven(NamedTuple):
    """A dense component whose shape differs per element.

    In an element of the dataset it holds the tensor and its shape. In a batch it holds the padded
    tensor, [n, largest, ...], and the shapes, [n, rank]. In a row it holds the padded row and its
    shape.
    """

    tensor: tf.Tensor
    sizes: tf.Tensor
    axes: dict[int, tuple[()]]  # the axes that differ: keys without leaves, known to the structure

    @classmethod
    def of(cls, tensor: Any) -> Uneven:
        """Makes one of a tensor of an element of the dataset."""
        axes = [i for i, size in enumerate(tensor.shape.as_list()) if size is None]
        return cls(tensor, tf.shape(tensor), {i: () for i in axes})

    @property
    def cut(self) -> tf.Tensor:
        """The element of a row, without its padding."""
        slices = [slice(None)] * self.tensor.shape.rank
        for axis in self.axes:
            slices[axis] = slice(None, self.sizes[axis])
        return self.tensor[tuple(slices)]


class _Kind:
    """The type of a composite, as a row: a key, so that it is in the structure of an element."""

    __slots__ = ("encoder", "nest", "spec")

    def __init__(self, spec: tf.TypeSpec[Any], encoder: _types.Encoder, nest: Nest):
        self.spec, self.encoder, self.nest = spec, encoder, nest


class Opened(NamedTuple):
    """A component of an extension type, an operator or the like, which its type stacks."""

    parts: tuple[Any, ...]
    known: dict[_Kind, tuple[()]]

    @property
    def kind(self) -> _Kind:
        """The type of the composite."""
        return next(iter(self.known))


def has_opened(spec: object) -> bool:
    """Whether a component of elements is ``Opened``."""
    found: list[Any] = []
    nests.replaced(spec, Opened, found.append)
    return bool(found)


def opened(batch: Nest) -> Any:
    """The batch with components that their type batches as ``Opened``."""
    return nests.replaced(
        batch, _types.COMPOSITE, lambda x: _opened(x, tf.type_spec_from_value(x), is_batch=True)
    )


def _opened(x: object, spec: tf.TypeSpec[Any], *, is_batch: bool = False) -> Any:
    """A component as ``Opened``, or as it is; its spec may know more than its tensors."""
    if not _types.is_opened(spec):
        return x
    encoder = _types.encoder(x)
    parts = encoder.encode(spec, x, minimum_rank=int(is_batch))
    leaves, specs = tf.nest.flatten(parts), tf.nest.flatten(encoder.encoding_specs(spec))
    leaves = [_opened(y, s, is_batch=is_batch) for y, s in zip(leaves, specs, strict=True)]
    nest = tf.nest.map_structure(lambda _: None, parts)
    known = {_Kind(encoder.unbatch(spec) if is_batch else spec, encoder, nest): ()}
    return Opened(tuple(leaves), known)


def closed(nest: Nest, *, is_batch: bool = False) -> Any:
    """The inverse, of a row or of a batch."""

    def of(x: Opened) -> Any:
        encoder, spec = x.kind.encoder, x.kind.spec
        parts = [closed(part, is_batch=is_batch) for part in x.parts]
        spec = encoder.batch(spec, None) if is_batch else spec
        return encoder.decode(spec, tf.nest.pack_sequence_as(x.kind.nest, parts))

    return nests.replaced(nest, Opened, of)


def arguments(element: Nest) -> tuple[Any, ...]:
    """The arguments of an element in ``Dataset.map``: ``fn(*element)`` of a tuple, else one."""
    return element if type(element) is tuple else (element,)


def check_components(spec: object) -> None:
    """Refuses datasets whose elements cannot be batched."""
    for leaf in tf.nest.flatten(spec):
        if _is_none(leaf):
            continue
        is_taken = isinstance(leaf, _COMPONENTS) or _types.is_opened(leaf)
        if not is_taken or getattr(leaf, "dtype", None) == tf.variant:
            raise ArgumentTypeError(
                f"A component of the dataset's elements is a {leaf}, expected tensors, "
                "RaggedTensors, SparseTensors and extension types. Make tensors of it first, or "
                "use Dataset.map(fn)."
            )


def _is_none(spec: tf.TypeSpec[Any]) -> bool:
    return spec is None or type(spec).__name__ == "NoneTensorSpec"


def may_differ(spec: tf.TypeSpec[Any]) -> bool:
    """Whether elements with this component's spec may have different shapes."""
    return isinstance(spec, tf.TensorSpec) and not spec.shape.is_fully_defined()


def in_batches(
    dataset: tf.data.Dataset[Any], size: Dim, *, drop_remainder: bool, may_be_ragged: bool
) -> tf.data.Dataset[Any]:
    """The dataset in batches; dense components of different shapes are ``Uneven``.

    ``may_be_ragged``: elements may have different shapes where their spec leaves them open.

    Raises:
      ArgumentError: if a component of unknown rank stands beside others of unknown sizes.
    """
    check_components(dataset.element_spec)
    dataset = with_parts(dataset)
    leaves = tf.nest.flatten(dataset.element_spec)
    uneven = [x for x in leaves if may_differ(x)]
    if not may_be_ragged or all(x.shape.rank is None for x in uneven):
        return dataset.batch(size, drop_remainder)
    if any(x.shape.rank is None for x in uneven):
        raise ArgumentError(
            f"Components of the dataset's elements have unknown sizes and unknown ranks: {uneven}. "
            "Say their ranks before, with tf.ensure_shape(x, [None, ...]); or, if all elements "
            "have one shape, pass ragged=False."
        )
    measured = dataset.map(_with_sizes)
    spec = nests.replaced(measured.element_spec, Uneven, lambda _: None)
    if any(may_differ(x) for x in tf.nest.flatten(spec)):
        raise ArgumentTypeError(
            "The dataset's elements have tensors of unknown sizes in a structure that is neither "
            f"a tuple, a namedtuple, a dict nor a dataclass: {dataset.element_spec}. Make one of "
            "these of it first; or, if all elements have one shape, pass ragged=False."
        )
    if all(isinstance(x, tf.TensorSpec) or _is_none(x) for x in leaves):
        return measured.padded_batch(size, drop_remainder=drop_remainder)
    return measured.ragged_batch(size, drop_remainder).map(_padded)


def with_parts(dataset: tf.data.Dataset[Any]) -> tf.data.Dataset[Any]:
    """The dataset with components that their type batches as ``Opened``."""
    spec = dataset.element_spec
    specs = tf.nest.flatten(spec)
    if not any(map(_types.is_opened, specs)):
        return dataset

    @tf.autograph.experimental.do_not_convert
    def of(*element: Nest) -> Any:
        whole = element if type(spec) is tuple else element[0]
        return tf.nest.pack_sequence_as(whole, [*map(_opened, tf.nest.flatten(whole), specs)])

    return dataset.map(of)


@tf.autograph.experimental.do_not_convert
def _with_sizes(*element: Nest) -> Any:
    def of(x: Nest) -> Any:
        return x if x.shape.is_fully_defined() else Uneven.of(x)

    return nests.replaced(element, tf.Tensor, of)


@tf.autograph.experimental.do_not_convert
def _padded(*batch: Nest) -> Any:
    """Pads ragged batches, where other components are ragged or sparse themselves."""

    def of(x: Uneven) -> Uneven:
        dense = x.tensor.to_tensor()
        # A ragged tensor does not know the sizes of rows without elements.
        missing = tf.maximum(tf.reduce_max(x.sizes, 0) - tf.shape(dense)[1:], 0)
        after = tf.concat([[0], missing], 0)
        padded = tf.pad(dense, tf.stack([tf.zeros_like(after), after], 1))
        padded.set_shape(x.tensor.shape)
        return Uneven(padded, x.sizes, x.axes)

    return nests.replaced(batch, Uneven, of)


def rows(batch_row: Nest) -> Any:
    """The element of an iteration, as the user's function gets it."""
    return closed(nests.replaced(batch_row, Uneven, lambda x: x.cut))
