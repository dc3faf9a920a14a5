"""Signatures of a SavedModel: as a function of one example, and as a function of a batch."""

from __future__ import annotations

import numbers
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from tf_pfor.api.vmap import vmap
from tf_pfor.core.errors import ArgumentError
from tf_pfor.core.settings import Fallback
from tf_pfor.frontends import inputs as described
from tf_pfor.frontends.inputs import LENGTHS, Input

# ---------------------------------------------------------------------------
# Of one example
# ---------------------------------------------------------------------------


class Row:
    """A signature as a function of one tensor for each input, in its order.

    Attributes:
      inputs: the inputs of one example.
      shapes: the shapes of the outputs in one example.
    """

    def __init__(
        self, one: Any, shared: Iterable[str], ragged: Iterable[str], batch_of_one: bool
    ) -> None:
        self._one, self._args = one, [arg for arg, _ in _arguments(one)]
        self._of_one = batch_of_one
        shapes = {name: x.shape for name, x in sorted(one.structured_outputs.items())}
        self.shapes: dict[str, tf.TensorShape] = shapes
        if batch_of_one:
            self.shapes = {k: _without_axis("output", k, s) for k, s in shapes.items()}
        self.inputs = _inputs(one, shared, ragged, batch_of_one)

    @tf.autograph.experimental.do_not_convert
    def __call__(self, *row: tf.Tensor) -> dict[str, tf.Tensor]:
        """The outputs for one example."""
        if not self._of_one:
            return self._one(**dict(zip(self._args, row, strict=True)))
        whole = [x if i.kind == "shared" else x[None] for x, i in zip(row, self.inputs)]
        results = self._one(**dict(zip(self._args, whole, strict=True)))
        return {name: tf.squeeze(x, 0) for name, x in results.items()}


def _without_axis(kind: str, name: str, shape: tf.TensorShape) -> tf.TensorShape:
    """The shape in an example of what has a batch axis of size 1."""
    if shape.rank is None or shape.rank == 0 or shape[0] not in (1, None):
        raise ArgumentError(
            f"batch_of_one: the {kind} {name} has shape {shape}. Expected: a first axis of size 1, "
            "which the batch can take the place of"
            + ("; or name it in shared." if kind == "input" else ".")
        )
    return shape[1:]


def _arguments(one: Any) -> list[tuple[str, tf.TensorSpec]]:
    """Arguments of a signature by name: a SavedModel keeps them in a map, which has no order."""
    return sorted(one.structured_input_signature[1].items())


def _inputs(
    one: object, shared: Iterable[str], ragged: Iterable[str], batch_of_one: bool
) -> list[Input]:
    """The inputs of a signature, in the order of their names, as one example has them."""
    specs = {served_name(arg, spec): spec for arg, spec in _arguments(one)}
    kinds: dict[str, str] = {}
    for kind, names in (("shared", shared), ("ragged", ragged)):
        for name in [names] if isinstance(names, str) else names:
            if name not in specs or name in kinds:
                why = "both shared and ragged" if name in kinds else "no input of the signature"
                raise ArgumentError(
                    f"{kind} names {name!r}, which is {why}. The inputs are: {', '.join(specs)}."
                )
            kinds[name] = kind
    if batch_of_one:
        specs = {
            k: tf.TensorSpec(_without_axis("input", k, spec.shape), spec.dtype, spec.name)
            if kinds.get(k) != "shared"
            else spec
            for k, spec in specs.items()
        }
    found = [described.checked(k, spec, kinds.get(k, "row")) for k, spec in specs.items()]
    if all(x.kind == "shared" for x in found):
        what = "no inputs" if not found else "shared inputs only"
        raise ArgumentError(f"The signature has {what}: there is nothing to make a batch of.")
    _check_names([x.name for x in found], [x.name for x in found if x.kind == "ragged"])
    return found


def _check_names(names: Sequence[str], ragged: Sequence[str]) -> None:
    for name in ragged:
        if name + LENGTHS in names:
            raise ArgumentError(
                f"The sizes of {name} would be called {name + LENGTHS}, which is a name of the "
                "signature already. Rename one of them."
            )


def served_name(arg: str, spec: tf.TensorSpec) -> str:
    """The name in the file: a Python argument may have another one, without signs."""
    name = spec.name or arg
    return name if _identifier(name) == arg else arg


def _identifier(name: str) -> str:
    """The name of the Python argument that TensorFlow makes for the name of an input."""
    found = re.sub(r"\W", "_", name, flags=re.ASCII)
    return found if found[:1].isalpha() or found[:1] == "_" else f"arg_{found}"


# ---------------------------------------------------------------------------
# Of a batch
# ---------------------------------------------------------------------------


class Batched:
    """A signature of one example, as a signature of a batch.

    Attributes:
      row: the signature of one example.
      specs: the inputs of the batch, in their order.
      outputs: for each output, the specs that stand for it; known once ``concrete`` was called.
      open_axes: for each output whose shape differs between rows, the axes of a row that differ.
    """

    def __init__(self, row: Row, block: int | None, fallback: Fallback | None):
        self.row, self._block = row, block
        self.outputs: dict[str, tuple[tf.TensorSpec, ...]] = {}
        self.open_axes: dict[str, list[int]] = {}
        self.specs = [spec for x in row.inputs for spec in x.batched(None)]

        @tf.autograph.experimental.do_not_convert
        def with_sizes(*inputs: tf.Tensor) -> Any:
            results = row(*inputs)
            is_open = [k for k, x in results.items() if not x.shape.is_fully_defined()]
            return results, {k: tf.shape(results[k], tf.int64) for k in is_open}

        with_sizes.__qualname__ = "the signature"
        flat, axes = described.of_flat(with_sizes, row.inputs), described.in_axes(row.inputs)
        self._mapped: Callable[..., Any] = vmap(
            flat, axes, chunk_size=block, fallback=fallback, out_shapes="ragged"
        )

    def concrete(self) -> Any:
        """The function to save."""

        @tf.autograph.experimental.do_not_convert
        def of_batch(**given: tf.Tensor) -> dict[str, tf.Tensor]:
            known = {_identifier(k): x for k, x in given.items()}
            flat = [known[_identifier(name_of(spec))] for spec in self.specs]
            with tf.control_dependencies(self._checks(flat)):
                flat = [tf.identity(x) for x in flat]
            return self._named(*self._mapped(*flat))

        specs = {name_of(spec): spec for spec in self.specs}
        if len(set(map(_identifier, specs))) < len(self.specs):
            raise ArgumentError(
                f"Two of the inputs {', '.join(specs)} would have one name in Python. Rename one."
            )
        try:
            return tf.function(of_batch, autograph=False).get_concrete_function(**specs)
        except ArgumentError as why:
            if self._block is None:
                raise
            raise ArgumentError(f"max_batch={self._block} cannot be: {why}") from why

    def _checks(self, flat: Sequence[tf.Tensor]) -> list[Any]:
        """Checks that all inputs have equally many rows, and that sizes fit into the padding."""
        axes, names = described.in_axes(self.row.inputs), [name_of(s) for s in self.specs]
        mapped = [k for k, axis in enumerate(axes) if axis is not None]
        rows = tf.stack([tf.shape(flat[k])[0] for k in mapped])
        agree = tf.reduce_all(tf.equal(rows, rows[0]))
        text = f"The inputs differ in the number of rows. {', '.join(names[k] for k in mapped)}:"
        found: list[Any] = [tf.debugging.Assert(agree, [text, rows], len(mapped))]
        supply = iter(flat)
        for x in self.row.inputs:
            padded = next(supply)
            if x.kind != "ragged":
                continue
            lengths, axes = next(supply), x.open_axes
            room = tf.gather(tf.shape(padded, tf.int64), [1 + axis for axis in axes])
            fits = tf.reduce_all((lengths >= 0) & (lengths <= room))
            text = f"{x.name + LENGTHS} has sizes below 0 or beyond the padded {x.name}:"
            found.append(tf.debugging.Assert(fits, [text, lengths, "padded to", room]))
        return found

    def _named(
        self, results: Mapping[str, Any], sizes: Mapping[str, tf.Tensor]
    ) -> dict[str, tf.Tensor]:
        """The outputs; variable-length outputs are padded, with their sizes, [n, rank] each."""
        made: dict[str, tf.Tensor] = {}
        _check_names(
            list(results), [k for k, x in results.items() if isinstance(x, tf.RaggedTensor)]
        )
        for name, x in results.items():
            found = {name: x}
            if isinstance(x, tf.RaggedTensor):
                shape, axes = self.row.shapes[name], range(x.ragged_rank)
                axes = [a for a in axes if shape.rank is None or shape[a] is None]
                self.open_axes[name] = axes
                known = tf.gather(sizes[name], axes[0] if len(axes) == 1 else axes, axis=1)
                found = {name: x.to_tensor(), name + LENGTHS: known}
            self.outputs[name] = tuple(tf.TensorSpec(t.shape, t.dtype, k) for k, t in found.items())
            made |= found
        return made

    def rows(self, verify: object) -> list[np.ndarray]:
        """The flat tensors to compare with; none if nothing is to be compared."""
        if isinstance(verify, Mapping):
            return self._given(verify)
        if isinstance(verify, bool) or not isinstance(verify, numbers.Integral) or verify < 0:
            raise ArgumentError(
                "verify must be a number of rows, or a dict with an array for each input of the "
                f"batch; found {verify!r}."
            )
        return described.made(self.row.inputs, int(verify)) if verify else []

    def _given(self, given: Mapping[str, Any]) -> list[np.ndarray]:
        names = [name_of(spec) for spec in self.specs]
        if set(given) != set(names):
            raise ArgumentError(
                f"verify has values for {sorted(given)}. Expected: for {', '.join(names)}."
            )
        found = [np.asarray(given[name]) for name in names]
        for i, spec in enumerate(self.specs):
            x, dtype = found[i], spec.dtype.as_numpy_dtype
            if x.dtype.kind in "SUO" and spec.dtype != tf.string:
                raise ArgumentError(
                    f"verify has {x.dtype} for {name_of(spec)}. Expected: {text_of(spec)}."
                )
            found[i] = x if spec.dtype == tf.string else x.astype(dtype)
        for x, spec in zip(found, self.specs):
            if not spec.shape.is_compatible_with(x.shape):
                raise ArgumentError(
                    f"verify has values of shape {list(x.shape)} for {name_of(spec)}. Expected: "
                    f"{text_of(spec)}, the rows one behind the other."
                )
        axes = described.in_axes(self.row.inputs)
        sizes = {name_of(s): len(x) for s, x, a in zip(self.specs, found, axes) if a is not None}
        if len(set(sizes.values())) > 1 or not min(sizes.values()):
            raise ArgumentError(
                f"verify needs equally many rows of all, at least one; has {sizes}."
            )
        return found


def name_of(spec: tf.TensorSpec) -> str:
    """The name of an input or output, as servers see it."""
    return str(spec.name)


def text_of(spec: tf.TensorSpec) -> str:
    """Dtype and shape, for a reader."""
    shape = spec.shape
    sizes = "..." if shape.rank is None else ",".join(map(str, shape.as_list()))
    return f"{spec.dtype.name}[{sizes}]"
