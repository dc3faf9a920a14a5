"""From a user function to a ``Body``: the traced graph of one iteration."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable, Hashable, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from tf_pfor import _tf
from tf_pfor._tf import _graphs, _stacks, _strategies
from tf_pfor.core import nests
from tf_pfor.core.accesses import Access, accesses, handle_key
from tf_pfor.core.axes import Axis, entered
from tf_pfor.core.errors import ArgumentTypeError, UnsupportedStateError
from tf_pfor.core.nests import Nest


@dataclasses.dataclass(frozen=True, slots=True)
class Body:
    """The traced body of a loop.

    Attributes:
      graph: the FuncGraph.
      placeholders: the placeholders of one iteration's elements.
      captures: pairs (tensor outside, placeholder inside).
      structure: the nest of outputs.
      leaves: the leaves of the structure: a tensor, an operation or None.
      operations: operations that must run although no output needs them.
      axes: the names by which collectives know the loop.
      copied: the handles of variables of a ``tf.distribute`` strategy that the body changes on the
        first replica only. The copies on other replicas must get their values (``update_copies``).
    """

    graph: tf.Graph
    placeholders: tuple[tf.Tensor, ...]
    captures: tuple[tuple[tf.Tensor, tf.Tensor], ...]
    structure: Nest
    leaves: tuple[tf.Tensor | tf.Operation | None, ...]
    operations: tuple[tf.Operation, ...]
    axes: frozenset[str]
    copied: tuple[tf.Tensor, ...] = ()

    @property
    def outputs(self) -> list[tf.Tensor]:
        """The leaves that are tensors."""
        return [x for x in self.leaves if isinstance(x, tf.Tensor)]


def trace(
    fn: Callable[..., Any],
    specs: Sequence[tf.TensorSpec],
    axis: Axis | None = None,
    link: Callable[[Sequence[tf.Tensor]], Sequence[tf.Tensor]] | None = None,
    *,
    first_copies: bool = False,
) -> Body:
    """Runs ``fn`` once, on placeholders for one iteration, and returns what it did.

    Variables may be made; closures over tensors, variables and tensors of the graph outside
    become captures. For AutoGraph pass ``autographed(user_function)``.

    Args:
      fn: called with one tensor for each spec.
      specs: shapes and dtypes of one iteration's inputs.
      axis: the axis that is mapped, for collectives; one without a name when None.
      link: gives the arguments of ``fn`` from the inputs (``row_links``); None for the inputs.
        Inputs beyond those are not for ``fn``.
      first_copies: whether the body reads and changes variables of a strategy on the first replica
        only. Whoever runs it calls ``update_copies`` then.

    Raises:
      ArgumentTypeError: if ``fn`` returns something that is not a tensor, None or an operation.
    """
    kept: dict[str, Any] = {}
    axis = axis or Axis()

    def run(*inputs: tf.Tensor) -> list[tf.Tensor]:
        args = inputs if link is None else link(inputs)
        kept["placeholders"] = (*args, *inputs[len(args) :])
        copies = _strategies.first_copies() if first_copies else contextlib.nullcontext()
        with tf.variable_creator_scope(_lifted), entered(axis), copies:
            structure = nests.from_user(fn(*args))
        nests.check_leaves(structure, "The result of the body")
        structure = tf.nest.map_structure(dense, structure)
        kept["structure"] = structure
        kept["leaves"] = nests.flatten(structure)
        _check_outside(kept["leaves"])
        return [_as_tensor(x) for x in kept["leaves"] if not _is_silent(x)]

    graph = _graphs.trace("pfor_body", run, specs)
    outputs = iter(graph.outputs)
    leaves = tuple(x if _is_silent(x) else next(outputs) for x in kept["leaves"])
    body = Body(
        graph=graph,
        placeholders=kept["placeholders"],
        captures=tuple(graph.captures),
        structure=kept["structure"],
        leaves=leaves,
        operations=(
            *graph.control_outputs,
            *(x for x in leaves if isinstance(x, tf.Operation)),
        ),
        axes=axis.names,
    )
    if not first_copies:
        return body
    changed = [handle for handle, _ in changed_variables(body)]
    return dataclasses.replace(body, copied=tuple(filter(_strategies.is_first_copy, changed)))


def _check_outside(leaves: Sequence[Any]) -> None:
    """Refuses tensors that were made in a loop or a branch, and handed on by Python."""
    here = tf.compat.v1.get_default_graph()
    for x in leaves:
        graph = x.graph if isinstance(x, tf.Tensor) and tf.is_symbolic_tensor(x) else here
        while graph is not here and graph is not None:
            graph = getattr(graph, "outer_graph", None)
            if graph is here:
                raise ArgumentTypeError(
                    "The body returns a tensor of a loop or a branch outside of it: "
                    f"'{x.op.type}' ({_tf.user_line(x.op) or 'line unknown'}). Collect what a loop "
                    "makes in a tf.TensorArray, or use tf.map_fn. Return from a branch what it "
                    "makes."
                )


def trace_for_all_copies(
    fn: Callable[..., Any],
    specs: Sequence[tf.TensorSpec],
    axis: Axis | None = None,
    link: Callable[[Sequence[tf.Tensor]], Sequence[tf.Tensor]] | None = None,
) -> Body:
    """A body, traced as ``trace`` does; whoever runs it calls ``update_copies`` then.

    A body that changes all copies of a variable of a strategy is traced again, with the first ones.
    """
    body = trace(fn, specs, axis, link)
    return trace(fn, specs, axis, link, first_copies=True) if _changes_copies(body) else body


def changed_variables(body: Body) -> list[tuple[tf.Tensor, list[Access]]]:
    """The handles of variables that a body changes, each with the accesses that do."""
    found: dict[Hashable, list[Access]] = {}
    for access in accesses(body.graph, {}).all:
        if access.writes:
            found.setdefault(access.handle, []).append(access)
    pairs = [(outer, found.get(handle_key(inner), [])) for outer, inner in body.captures]
    return [(handle, writes) for handle, writes in pairs if writes]


def _changes_copies(body: Body) -> bool:
    """Whether a body changes all copies of a variable of which each replica of a strategy has one.

    A body that runs in a replica, or with first copies already, changes one copy only.
    """
    if _strategies.in_one_replica() or not any(_strategies.copies(x) for x, _ in body.captures):
        return False
    return any(_strategies.copies(handle) for handle, _ in changed_variables(body))


def update_copies(body: Body) -> None:
    """Gives all replicas what a body has made of variables on the first one, in this graph."""
    for handle in body.copied:
        first, *others = _strategies.copies(handle)
        for other in others:
            with tf.device(other.device):
                other.assign(first.read_value(), read_value=False)


def _lifted(next_creator: Callable[..., Any], **kwargs: Nest) -> Any:
    """Makes a variable of the body outside of it, once, where its first value allows that."""
    first = kwargs.get("initial_value")
    if isinstance(first, tf.Tensor) and not hasattr(first, "numpy"):
        known = tf.get_static_value(first)
        if known is None:
            return next_creator(**kwargs)
        kwargs["initial_value"] = known
        kwargs["dtype"] = kwargs.get("dtype") or first.dtype
    try:
        with tf.init_scope():
            return next_creator(**kwargs)
    except ValueError as why:
        if "singleton tf.Variable" not in str(why):
            raise
        raise UnsupportedStateError(_made_in_body(str(kwargs.get("name") or "Variable"))) from None


def _made_in_body(name: str) -> str:
    line = _stacks.user_line() or "line unknown"
    return (
        f"The body makes the variable '{name}' ({line}): it would be made anew in each trace, and "
        "its value would be lost. Make the variable, or the layer or module that makes it, once "
        "and outside of the function that is mapped, and use it there; a Keras layer makes its "
        "variables when it is built: call build(...), or call it once before."
    )


def leaves_of(result: Nest) -> list[Any]:
    """The leaves of what a body returned: tensors, operations and None."""
    structure = tf.nest.map_structure(dense, nests.from_user(result))
    return [x if _is_silent(x) else _as_tensor(x) for x in nests.flatten(structure)]


def _is_silent(leaf: object) -> bool:
    return leaf is None or isinstance(leaf, tf.Operation)


def dense(leaf: object) -> Any:
    """IndexedSlices (gradients of gathers) as a tensor; sparse and ragged results are refused."""
    if isinstance(leaf, tf.IndexedSlices):
        return tf.convert_to_tensor(leaf)
    if isinstance(leaf, (tf.SparseTensor, tf.RaggedTensor)):
        raise ArgumentTypeError(
            f"The body returned a {type(leaf).__name__}, which is not supported yet. Expected: "
            "dense tensors. Return its components (values, row_splits, indices), or convert it "
            "with tf.sparse.to_dense or .to_tensor()."
        )
    return leaf


def _as_tensor(leaf: Nest) -> tf.Tensor:
    if isinstance(leaf, tf.Tensor):
        return leaf
    try:
        if isinstance(leaf, (float, int, bool, complex, str, bytes, np.ndarray, np.generic)):
            return tf.constant(leaf)  # pyright: ignore[reportArgumentType]
        return tf.convert_to_tensor(leaf)
    except (TypeError, ValueError) as why:
        raise ArgumentTypeError(
            f"The body returned an object of type {type(leaf).__name__}. Expected: tensors, "
            "composite tensors, None or operations, in nested tuples, lists, dicts, namedtuples "
            "or dataclasses. Return the tensors that the object holds."
        ) from why
