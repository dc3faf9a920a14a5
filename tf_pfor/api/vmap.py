"""vmap: a function of one example becomes a compiled function of a batch."""

from __future__ import annotations

import dataclasses
import functools
import numbers
from collections.abc import Callable
from typing import Any, NamedTuple

import tensorflow as tf

from tf_pfor import _tf
from tf_pfor.api.checks import check_blocks, check_progress
from tf_pfor.api.function import called_with, has_pushed_rows
from tf_pfor.api.mapped_arguments import (
    Axes,
    check_rows,
    check_tensors,
    elements_of,
    padded,
    places_of_rows,
)
from tf_pfor.api.options import Job, Options, check_bool
from tf_pfor.api.replicas import Strategy, checked_strategy, run_distributed
from tf_pfor.api.run import run
from tf_pfor.core import nests
from tf_pfor.core.axes import check_name
from tf_pfor.core.errors import ArgumentError, ArgumentTypeError
from tf_pfor.core.nests import Nest
from tf_pfor.core.settings import (
    ChunkSize,
    Defaults,
    Fallback,
    OutShapes,
    Randomness,
    Settings,
    WhileStrategy,
    current,
)
from tf_pfor.tracing.caching import UNCACHED, EagerCall, Signatures
from tf_pfor.tracing.compiled_function import CompiledFunction
from tf_pfor.tracing.fingerprint import Transformed
from tf_pfor.tracing.memory import advised


def vmap(
    fn: Callable[..., Any] | None = None,
    in_axes: Axes = 0,
    out_axes: Axes = 0,
    *,
    axis_size: int | None = None,
    axis_name: str | None = None,
    chunk_size: ChunkSize = None,
    memory_budget: int | None = None,
    fallback: Fallback | None = None,
    warn: bool | None = None,
    randomness: Randomness | None = None,
    while_strategy: WhileStrategy = "auto",
    out_shapes: OutShapes | None = None,
    jit_compile: bool | None = None,
    progress: bool = False,
    strategy: Strategy | None = None,
    per_replica: bool = False,
) -> Callable[..., Any]:
    """Makes a function of one example work on a batch, without a loop.

    The result is compiled: it is traced once for each signature, as ``tf.function`` does. Arguments
    that are not tensors, arrays or variables are constants of the trace. The method comes from
    Agarwal and Ganichev (2019).

    Args:
      fn: a function of one example; may also be a Keras layer or a bound method. When left out,
        ``vmap`` is a decorator: ``@vmap(in_axes=1)``.
      in_axes: the axis to map over, for each positional argument. An int is an axis; negative ints
        count from the end. None stands for an argument that all examples share. A nest of these
        must be a prefix of the argument's nest. One int or None stands for all arguments. Keyword
        arguments are mapped over axis 0; bools and strings among them are passed as they are.
      out_axes: the place of the mapped axis in each output, in the form of ``in_axes``. None
        stands for an output that does not depend on the mapped arguments.
      axis_size: the number of examples, needed when no argument is mapped.
      axis_name: the name of the mapped axis for collectives (``psum`` ...) in ``fn``.
      chunk_size: the number of examples to run at once. None runs all of them. "auto" runs as many
        as fit into ``memory_budget``, by the sizes of the tensors in the vectorized ``fn``. 1 runs
        the plain function in a loop.
      memory_budget: bytes for ``chunk_size="auto"``. They cover all that a call allocates, with its
        results where n is known, but not the tensors that a tape around the call keeps. None takes
        half of the memory that is free for one chunk.
      fallback: "loop", "error", or a set of op types that may run in a sequential loop. None here
        and below follows ``tf_pfor.settings``, which begins with "loop".
      warn: whether to warn of ops that run in such a loop; they are warned of by default.
      randomness: the behaviour of stateful random ops (``tf.random.normal`` ...), generators and
        Keras' seeds. "different": each example draws other numbers. "same": all examples share one
        draw. "error": these ops are refused. The default is "different".
      while_strategy: the strategy for a while loop in which examples make different numbers of
        trips. "compact" computes only the examples that still go on. "mask" computes all examples
        and drops the results of finished ones. "auto" chooses by cost; ``explain`` shows the
        choice.
      out_shapes: the form of results whose shape may differ between examples. "ragged" makes a
        RaggedTensor. "dense" makes a tensor, and checks at run time that all shapes are equal.
        "padded" makes a tensor with zeros behind shorter rows. ``tf.ensure_shape`` in ``fn`` makes
        one result dense. The default is "ragged".
      jit_compile: as in ``tf.function``.
      progress: whether to show how many examples are done, which needs ``chunk_size``. An eager
        call shows a bar (of tqdm, if that is installed) and is traced anew. A graph prints lines
        on stderr.
      strategy: a ``tf.distribute`` strategy whose replicas share the rows: each runs a part of
        them. Collectives go over all rows. ``docs/many_machines.md`` has more.
      per_replica: whether results of a strategy stay as its replicas made them, as
        ``strategy.run`` returns them, instead of being gathered.

    Returns:
      A function with the arguments of ``fn``.

    Raises:
      ArgumentError, ArgumentTypeError: if an option is wrong; or, in a call of the result, if
        sizes or structures disagree.

    >>> import tensorflow as tf
    >>> import tf_pfor
    >>> dot = tf_pfor.vmap(lambda x, y: tf.reduce_sum(x * y), in_axes=(0, None))
    >>> dot(tf.constant([[1., 2.], [3., 4.]]), tf.constant([10., 1.])).numpy().tolist()
    [12.0, 34.0]
    """
    if fn is None:
        given: dict[str, Any] = {name: x for name, x in locals().items() if name != "fn"}
        return functools.partial(vmap, **given)
    if not callable(fn):
        raise ArgumentTypeError(
            f"vmap expects a function of one example, found {nests.shown(fn)} of type "
            f"{type(fn).__name__}."
        )
    _check_axes(in_axes, "in_axes")
    _check_axes(out_axes, "out_axes")
    _check_size(axis_size)
    if jit_compile is not None:
        check_bool(jit_compile, "jit_compile")
    block, budget = check_blocks(chunk_size, memory_budget, "chunk_size")
    is_shown = check_progress(progress, block, "chunk_size")
    if is_shown and jit_compile:
        raise ArgumentError("progress=True and jit_compile=True: XLA cannot show text.")
    options = Options.of(
        fallback, randomness, while_strategy, out_shapes, warn=warn, progress=is_shown
    )
    name = check_name(axis_name)
    strategy = checked_strategy(strategy, per_replica, jit_compile, is_shown=is_shown)
    chosen = Chosen(axis_size, block, budget, name, jit_compile, strategy, bool(per_replica))
    return _make(fn, in_axes, out_axes, options, chosen)


@dataclasses.dataclass(frozen=True, slots=True)
class Chosen:
    """Arguments of ``vmap``, checked, that stay the same for all calls.

    Attributes:
      block: the number of examples to run at once; None for all; "auto" for as many as fit.
      axis_name: the name of the mapped axis, "" for none.
      strategy: the strategy whose replicas share the rows; None for none.
    """

    axis_size: int | None
    block: int | str | None
    budget: int | None
    axis_name: str
    jit_compile: bool | None
    strategy: Strategy | None
    per_replica: bool


class Mapped(NamedTuple):
    """The parts of a function that ``vmap`` returned: its arguments, checked."""

    fn: Callable[..., Any]
    in_axes: Axes
    out_axes: Axes
    options: Options
    chosen: Chosen


def mapped_by(function: CompiledFunction) -> Mapped | None:
    """The parts of a function that ``vmap`` returned; None for other functions."""
    made = function.made
    return Mapped(*made.roots, *made.options) if made.make is _make else None


def _make(
    fn: Callable[..., Any], in_axes: Axes, out_axes: Axes, options: Options, chosen: Chosen
) -> Any:
    """The function that ``vmap`` returns, of checked options."""
    closures, jit_compile = (fn, in_axes, out_axes), chosen.jit_compile

    def mapped(*args: Nest, **kwargs: Nest) -> Any:
        return _map(*closures, args, kwargs, options.settings(), chosen)

    own: dict[Any, Any] = {}
    rows = functools.partial(places_of_rows, in_axes) if chosen.axis_size is None else None

    @functools.cache  # a tf.function is dear to make, and seldom needed
    def compiled(_: Defaults) -> Any:
        return nests.as_function(mapped, jit_compile)

    @tf.autograph.experimental.do_not_convert
    def call(noted: Signatures, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        check_rows(args, kwargs, in_axes)
        if jit_compile and not _tf.in_xla_context(tf.compat.v1.get_default_graph()):
            args = padded(args, in_axes)
        if tf.executing_eagerly() and options.progress:
            return mapped(*args, **kwargs)
        if tf.executing_eagerly():
            of_call = options.settings(), chosen
            eager = EagerCall(
                _map, closures, (args, kwargs), of_call, jit_compile, own, noted, rows
            )
            result = eager() if chosen.strategy is None else UNCACHED
            if result is not UNCACHED:
                return result
            if not jit_compile and _tf.may_record_gradients() and eager.holds_tape():
                return mapped(*args, **kwargs)  # a row leads to what was recorded around this call
        if tf.executing_eagerly() or jit_compile:
            check_tensors(args, kwargs)
            with advised():
                return compiled(current())(*args, **kwargs)
        return mapped(*args, **kwargs)

    made = Transformed(_make, closures, (options, chosen))
    called = f"vmap_{getattr(fn, '__name__', type(fn).__name__)}"
    return CompiledFunction(call, mapped, made, called, jit_compile)


def _map(
    fn: Callable[..., Any],
    in_axes: Axes,
    out_axes: Axes,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    settings: Settings,
    chosen: Chosen,
) -> Any:
    """One call of a mapped function, in the graph being built."""
    if chosen.jit_compile:
        _tf.mark_jit_compiled(tf.compat.v1.get_default_graph())
    if has_pushed_rows((args, kwargs)):
        return called_with(
            (args, kwargs), lambda a: _map(fn, in_axes, out_axes, a[0], a[1], settings, chosen)
        )
    gradient = vars(fn).get("row_gradient") if isinstance(fn, CompiledFunction) else None
    if gradient is not None and not kwargs and out_axes == 0:
        found = _gradients_of_rows(gradient, in_axes, args, settings, chosen)
        if found is not None:
            return found
    one, elements, n = elements_of(
        fn, args, kwargs, in_axes, chosen.axis_size, in_blocks=chosen.block is not None
    )
    job = Job(
        one,
        settings,
        chosen.block,
        out_axes=out_axes,
        axis_name=chosen.axis_name,
        budget=chosen.budget,
    )
    if chosen.strategy is None:
        return run(job, elements, n)
    return run_distributed(chosen.strategy, job, elements, n, per_replica=chosen.per_replica)


def _gradients_of_rows(
    gradient: Any, in_axes: Axes, args: tuple[Any, ...], settings: Settings, chosen: Chosen
) -> Any:
    """Derivatives of one number for each row, as derivatives of the sum (``row_gradients``).

    They are None where a tape watches, which would not see that its loops are differentiated.
    """
    graph = tf.compat.v1.get_default_graph()
    axes = list(in_axes) if isinstance(in_axes, (list, tuple)) else [in_axes] * len(args)
    if chosen.block is not None or chosen.axis_name or chosen.strategy is not None:
        return None
    if len(axes) != len(args) or not all(axis is None or axis == 0 for axis in axes):
        return None
    if _tf.in_xla_context(graph) or _tf.in_body(graph) or _tf.may_record_gradients():
        return None
    plain = dataclasses.replace(chosen, jit_compile=None)
    return gradient(
        lambda one, given: _map(one, in_axes, 0, given, {}, settings, plain), args, axes
    )


def _check_axes(axes: Axes, name: str) -> None:
    for leaf in tf.nest.flatten(nests.from_user(axes)):
        if leaf is not None and (isinstance(leaf, bool) or not isinstance(leaf, numbers.Integral)):
            raise ArgumentError(
                f"{name} must be an int, None, or a nest of these; found {nests.shown(leaf)}. vmap "
                "makes a function, and does not call it: vmap(fn)(x)."
            )


def _check_size(size: object) -> None:
    if size is None:
        return
    if isinstance(size, bool) or not isinstance(size, numbers.Integral) or size < 0:
        raise ArgumentError(f"axis_size must be an int of at least 0 or None, found {size!r}.")
