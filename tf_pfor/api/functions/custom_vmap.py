"""custom_vmap: a Python function with a rule of the user's for many rows at once."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any

import tensorflow as tf

from tf_pfor.api.leaves import filled
from tf_pfor.core import nests
from tf_pfor.core.call import Call
from tf_pfor.core.errors import ArgumentError, ArgumentTypeError, Refused
from tf_pfor.core.nests import Nest
from tf_pfor.core.registry import FUNCTION_RULES, FunctionRule
from tf_pfor.core.values import Stacked, Unstacked, Value
from tf_pfor.tracing.user_code import autographed


class custom_vmap:  # noqa: N801  (a decorator, named as in JAX)
    """A function with a rule that computes it for many rows, as JAX's ``custom_vmap``.

    Outside of a map it is the function. A map is ``vmap``, ``vectorized_map``, ``pfor`` or another
    rule. Where an argument differs between rows, it runs the rule once, in place of the ops of the
    function. In a branch, or in a loop whose trip count differs per row, the rule sees the active
    rows. If an argument is a variable-length row, the map runs the ops of the function instead.

    A gradient around a map differentiates the rule. A gradient that the mapped function itself
    takes differentiates the function, whose ops are vectorized then; so both must compute the same.

    Args:
      fn: a function of nests of tensors, which returns a nest of tensors. It may close over tensors
        that all rows share. A tensor that differs between rows must be an argument.

    Raises:
      ArgumentError: when called without a rule, or if the rule returns other outputs than the
        function.
      NotVectorizableError: if ``fn`` closes over a tensor that differs between rows.

    >>> import tensorflow as tf
    >>> import tf_pfor
    >>> @tf_pfor.custom_vmap
    ... def total(x, w):
    ...     return tf.reduce_sum(x * w)
    >>> @total.def_vmap
    ... def total_of_rows(axis_size, in_batched, x, w):
    ...     if not all(in_batched):
    ...         x, w = (v if b else v[None] for v, b in zip((x, w), in_batched))
    ...     return tf.reduce_sum(x * w, 1), True
    >>> rows = tf.constant([[1., 2.], [3., 4.]])
    >>> tf_pfor.vmap(total, in_axes=(0, None))(rows, tf.constant([1., 10.])).numpy().tolist()
    [21.0, 43.0]
    """

    def __init__(self, fn: Callable[..., Any]):
        if not callable(fn):
            raise ArgumentTypeError(
                f"custom_vmap expects a function, found {fn!r} of type {type(fn).__name__}."
            )
        self.fn = fn
        self.rule: Callable[..., Any] | None = None
        functools.update_wrapper(self, fn)

    def def_vmap(self, rule: Callable[..., Any]) -> Callable[..., Any]:
        """Sets the rule, and returns it: a decorator.

        Args:
          rule: ``rule(axis_size, in_batched, *args)``. ``axis_size`` is the number of rows, an int
            or, where it is not known before running, an int32 scalar. ``in_batched`` has for each
            argument a nest of bools: whether a tensor has the rows in front, [n, ...], or is the
            same for all. The rule returns (outputs, out_batched): the nest that the function
            returns, and such bools for it, or one bool for all.
        """
        if not callable(rule):
            raise ArgumentTypeError(
                f"def_vmap expects a function, found {rule!r} of type {type(rule).__name__}."
            )
        self.rule = rule
        return rule

    @tf.autograph.experimental.do_not_convert
    def __call__(self, *args: Nest, **kwargs: Nest) -> Any:
        """Calls the function, or makes a call that the walker of a map finds the rule for."""
        if self.rule is None:
            raise ArgumentError(
                f"the custom_vmap function {self} has no rule. Give it one: @{self}.def_vmap."
            )
        if kwargs:
            bound = inspect.signature(self.fn).bind(*args, **kwargs)
            bound.apply_defaults()
            if bound.kwargs:
                raise ArgumentError(
                    f"custom_vmap: {self} has arguments by keyword only, {[*bound.kwargs]}. "
                    "Expected: arguments that have a position, as the rule gets them."
                )
            args = bound.args
        return self.fn(*args) if tf.executing_eagerly() else _Traced(self, args).call()

    def __str__(self) -> str:
        return getattr(self.fn, "__name__", type(self.fn).__name__)


class _Traced:
    """One call in a graph: a new function graph, by whose name the rule is known."""

    def __init__(self, of: custom_vmap, args: tuple[Any, ...]):
        self._of = of
        assert of.rule is not None
        self._rule = autographed(of.rule)
        self._given = nests.from_user(args)
        names = nests.paths(self._given, "argument")
        self._tensors = [
            self._tensor(x, name) for x, name in zip(tf.nest.flatten(self._given), names)
        ]
        self._result: Nest = None

    def _tensor(self, x: Nest, name: str) -> Any:
        try:
            return None if x is None else tf.convert_to_tensor(x)
        except (TypeError, ValueError) as why:
            raise ArgumentTypeError(
                f"custom_vmap: {name} of {self._of} is a {type(x).__name__}, expected a tensor."
            ) from why

    def call(self) -> Any:
        """The outputs, in the graph being built."""
        graph = tf.compat.v1.get_default_graph()
        given = [x for x in self._tensors if x is not None]
        specs = [tf.TensorSpec(x.shape, x.dtype) for x in given]
        concrete = tf.function(self._run, autograph=False).get_concrete_function(*specs)
        rule = FUNCTION_RULES[concrete.name.decode()] = FunctionRule(self.convert)
        graph.tf_pfor_rules = [*getattr(graph, "tf_pfor_rules", ()), rule]
        return filled(self._result, concrete(*given))

    def _run(self, *given: tf.Tensor) -> list[tf.Tensor]:
        args = nests.to_user(filled(self._given, given))
        self._result = nests.from_user(autographed(self._of.fn)(*args))
        return [tf.convert_to_tensor(x) for x in tf.nest.flatten(self._result) if x is not None]

    def convert(self, call: Call, args: list[Value]) -> list[Value] | None:
        """The results of the rule for the rows."""
        count = sum(x is not None for x in self._tensors)
        if any(x.is_stacked for x in args[count:]):
            raise Refused(
                f"the custom_vmap function {self._of} closes over a tensor that differs between "
                "rows: make it an argument"
            )
        given = args[:count]
        is_plain = all(isinstance(x, (Stacked, Unstacked)) for x in given)
        if not is_plain or not any(x.is_stacked for x in given):
            return None
        loop = call.loop
        n = loop.length_tensor if loop.static_length is None else loop.static_length
        tensors = filled(self._given, [x.tensor for x in given])
        batched = filled(self._given, [x.is_stacked for x in given])
        with call.emit.as_default():
            result = self._rule(n, [*nests.to_user(batched)], *nests.to_user(tensors))
            made = self._checked(result, call)
        return made

    def _checked(self, result: Nest, call: Call) -> list[Value]:
        if not isinstance(result, tuple) or len(result) != 2:
            raise ArgumentError(
                f"the rule of {self._of} must return (outputs, out_batched), found {result!r}."
            )
        outputs, batched = map(nests.from_user, result)
        if isinstance(batched, bool):
            batched = tf.nest.map_structure(lambda _: result[1], self._result)
        expected = tf.nest.map_structure(lambda _: "*", self._result)
        for nest, name in ((outputs, "outputs"), (batched, "out_batched")):
            try:
                tf.nest.assert_same_structure(self._result, nest, check_types=False)
            except (TypeError, ValueError):
                raise ArgumentError(
                    f"the rule of {self._of} must return {name} like what the function returns, "
                    f"{expected}; found {nest!r}."
                ) from None
        pairs = zip(*map(tf.nest.flatten, (self._result, outputs, batched)))
        present = [(x, b) for y, x, b in pairs if y is not None]
        return [self._value(x, b, like, call) for (x, b), like in zip(present, call.op.outputs)]

    def _value(self, x: Nest, is_batched: object, like: tf.Tensor, call: Call) -> Value:
        tensor = tf.convert_to_tensor(x)
        shape = like.shape
        if is_batched:
            shape = tf.TensorShape([call.loop.static_length]).concatenate(shape)
        is_bool = isinstance(is_batched, bool)
        if not is_bool or tensor.dtype != like.dtype or not tensor.shape.is_compatible_with(shape):
            raise ArgumentError(
                f"the rule of {self._of} returned {tensor.dtype.name}{tensor.shape} with "
                f"out_batched {is_batched!r}. Expected: a bool, and {like.dtype.name}{shape} for "
                "that."
            )
        value = Value.stacked(tensor) if is_batched else Value.unstacked(tensor)
        return value.with_inner_shape(tuple(like.shape) if like.shape.rank is not None else None)
