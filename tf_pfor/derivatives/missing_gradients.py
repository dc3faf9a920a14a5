"""Derivatives that TensorFlow leaves out without a word: of ops that it takes for constants."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Any

import tensorflow as tf

from tf_pfor import _tf
from tf_pfor._tf._custom_gradients import has_gradient
from tf_pfor.core.errors import ArgumentError
from tf_pfor.core.facts import facts_of, is_linear_in
from tf_pfor.core.nests import Nest

# Ops that have derivatives, but no gradient: TensorFlow takes them for constants.
_NO_CONSTANTS = (
    "DrawBoundingBoxes",
    "ExtractGlimpse",
    "HSVToRGB",
    "LinSpace",
    "OneHot",
    "PyFunc",
    "PyFuncStateless",
    "RandomShuffle",
    "Range",
    "SparseConcat",
    "TensorListConcatLists",
    "TensorListPushBackBatch",
)


def refuse_constants(results: Sequence[tf.Tensor], sources: Sequence[Any]) -> None:
    """Refuses derivatives through ops that TensorFlow takes for constants and that are none.

    TensorFlow would leave their part of the derivative out and say nothing. Such an op is
    ``tf.numpy_function``; for second derivatives the gradient of a ``tf.image.resize`` is one.
    """
    op, _ = _between(results, {id(_seen(x)) for x in sources}, _is_left_out)
    if op is None:
        return
    what, often, advice = (
        "derivative",
        "",
        "If zero is meant, give it tf.stop_gradient of its input.",
    )
    if _is_of_backward_pass(op):
        what, often, advice = "second derivative", " twice", "For a first derivative use jacrev."
    line = _tf.user_line(op) or "line unknown"
    raise ArgumentError(
        f"the function has a {what} through {op.type} ('{op.name}', {line}), which TensorFlow does "
        f"not differentiate: that part would be left out. Expected: ops that can be differentiated"
        f"{often}. {advice}"
    )


def refuse_nonlinear(pulled: Sequence[tf.Tensor], cotangents: Sequence[tf.Tensor]) -> None:
    """Refuses forward mode through a gradient that is not linear in its cotangent.

    No jacobian has such a gradient, for example one that is clipped: the gradient for one cotangent
    says nothing about that for another.
    """
    op, _ = _between(pulled, {id(_seen(x)) for x in cotangents}, _is_not_linear)
    if op is not None:
        raise ArgumentError(
            "the gradient of the function is not linear in its cotangent, since a "
            f"tf.custom_gradient applies {op.type} to that ('{op.name}', "
            f"{_tf.user_line(op) or 'line unknown'}). Expected, in forward mode: a gradient that "
            "is linear. Use jacrev, which takes the gradient of each output as it is written."
        )


_OF_CUSTOM_GRADIENT = re.compile(r"IdentityN(_\d+)?_grad/")


def _is_not_linear(op: tf.Operation, depends: Collection[int]) -> bool:
    """Whether an op is no linear function of its inputs that depend on cotangents.

    Only ops of users' custom gradients count. TensorFlow's gradients are linear, although some ops
    in them are not.
    """
    is_known = _OF_CUSTOM_GRADIENT.search(op.name) and not facts_of(op.type).is_of_shapes
    return bool(is_known) and not _is_solve(op) and is_linear_in(op, depends) is False


def _is_solve(op: tf.Operation) -> bool:
    """Whether an op gives a constant its linear derivative, as ``conjugate_gradient`` does."""
    return op.type == "IdentityN" and op.inputs[0].op.type == "StopGradient"


def _seen(source: Nest) -> tf.Tensor:
    """A tensor, or the handle of a variable, as the graph being built sees it."""
    tensor = source.handle if isinstance(source, tf.Variable) else source
    graph: tf.Graph = tf.compat.v1.get_default_graph()
    if tf.is_symbolic_tensor(tensor) and tensor.graph is graph:
        return tensor
    return graph.capture(tensor) if hasattr(graph, "capture") else tensor


_Wrong = Callable[[tf.Operation, Collection[int]], bool]


def _between(
    results: Sequence[tf.Tensor], sources: Collection[int], wrong: _Wrong
) -> tuple[tf.Operation | None, set[int]]:
    """An op that depends on the sources, that the results need, and that is wrong.

    ``wrong`` says so, of an op and the ids of what depends on the sources.

    Returns:
      The op, None if there is none, and the ids of what depends on the sources.
    """
    needed, depends = _read(results), set(sources)
    wanted, graphs = set(map(id, results)), {id(x.graph): x.graph for x in results}
    for op in (op for graph in graphs.values() for op in graph.get_operations()):
        if op not in needed or not any(id(x) in depends for x in op.inputs):
            continue
        if wrong(op, depends):
            return op, depends
        if op.type in _tf.LOOPS:
            found, dependent = _in_loop(op, depends, wrong)
        elif functions := _tf.functions_of(op):
            read = [x for x in op.outputs if id(x) in wanted or needed.intersection(x.consumers())]
            found, dependent = _in_functions(op, functions, depends, read, wrong)
        else:
            found, dependent = None, () if _is_constant(op) else _passing(op.outputs)
        if found is not None:
            return found, depends
        depends.update(map(id, dependent))
    return None, depends


def _read(results: Sequence[tf.Tensor]) -> set[tf.Operation]:
    """The ops whose outputs results are computed from; not those that only run before."""
    found, todo = set[tf.Operation](), [x.op for x in results]
    while todo:
        op = todo.pop()
        if op not in found:
            found.add(op)
            todo += [x.op for x in op.inputs]
    return found


def _in_functions(
    op: tf.Operation,
    functions: Sequence[Any],
    depends: Collection[int],
    read: Sequence[tf.Tensor],
    wrong: _Wrong,
) -> tuple[tf.Operation | None, list[tf.Tensor]]:
    """``_between`` of a call or a conditional; the outputs that depend, of those that are read."""
    dependent: list[tf.Tensor] = []
    for graph in functions:
        given = op.inputs[len(op.inputs) - len(graph.inputs) :]  # behind the predicate
        inside = _passing(b for a, b in zip(given, graph.inputs) if id(a) in depends)
        made = [graph.outputs[x.value_index] for x in read]
        found, reach = _between(made, set(map(id, inside)), wrong)
        if found is not None:
            return found, []
        dependent += [x for x, y in zip(read, made) if id(y) in reach]
    return None, _passing(dependent)


def _in_loop(
    op: tf.Operation, depends: Collection[int], wrong: _Wrong
) -> tuple[tf.Operation | None, list[tf.Tensor]]:
    """``_between`` of a loop; the outputs that depend after however many trips."""
    body = _tf.function_graph(op.graph, op.get_attr("body").name)
    which = {k for k, x in enumerate(op.inputs) if id(x) in depends}
    while True:
        inside = {id(x) for x in _passing(body.inputs[k] for k in which)}
        found, reach = _between(body.outputs, inside, wrong)
        if found is not None:
            return found, []
        more = {k for k, x in enumerate(body.outputs) if id(x) in reach} - which
        if not more:
            return None, _passing(op.outputs[k] for k in which)
        which |= more


def _is_left_out(op: tf.Operation, depends: Collection[int]) -> bool:
    del depends
    return _is_constant(op) and (op.type in _NO_CONSTANTS or _is_of_backward_pass(op))


def _is_constant(op: tf.Operation) -> bool:
    """Whether TensorFlow has no gradient of an op; of most ops that is an error of its own."""
    try:
        return _tf.registered_gradient(op.type) is None and not _tf.has_own_gradient(op)
    except LookupError:
        return _is_of_backward_pass(op)


def _is_of_backward_pass(op: tf.Operation) -> bool:
    return op.type.endswith(("Grad", "Gradient")) and op.type != "StopGradient"


def _passing(tensors: Iterable[tf.Tensor]) -> list[tf.Tensor]:
    """The tensors that gradients pass through."""
    handles = (tf.variant, tf.resource)
    return [x for x in tensors if has_gradient(x) or x.dtype in handles]
