"""vmap: a function of one example becomes a compiled function of a batch."""

from __future__ import annotations

import dataclasses
import functools
import numbers
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import tensorflow as tf

from tf_pfor import _tf
from tf_pfor.api import composites, leaves
from tf_pfor.api.function import called_with, has_pushed_rows
from tf_pfor.api.inputs import Element
from tf_pfor.api.maps import check_blocks
from tf_pfor.api.options import Options
from tf_pfor.api.progress import check_progress
from tf_pfor.api.replicas import Strategy, check_strategy, run_distributed
from tf_pfor.api.run import Job, run
from tf_pfor.core import nests
from tf_pfor.core.axes import check_name
from tf_pfor.core.emit import Dim
from tf_pfor.core.errors import ArgumentError, ArgumentTypeError
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
from tf_pfor.core.values import dims
from tf_pfor.tracing.caching import UNCACHED, EagerCall, Signatures
from tf_pfor.tracing.compiled_function import CompiledFunction
from tf_pfor.tracing.fingerprint import Transformed
from tf_pfor.tracing.memory import advised
from tf_pfor.tracing.row_numbers import Rows
from tf_pfor.tracing.user_code import arguments_of, autographed

Axes = Any
"""An int, None, or a nest of them that is a prefix of another nest."""


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
        them. Collectives go over all rows. ``docs/distribution.md`` has more.
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
        return functools.partial(
            vmap, in_axes=in_axes, out_axes=out_axes, axis_size=axis_size, axis_name=axis_name,
            chunk_size=chunk_size, memory_budget=memory_budget, fallback=fallback,
            warn=warn, randomness=randomness, while_strategy=while_strategy, out_shapes=out_shapes,
            jit_compile=jit_compile, progress=progress, strategy=strategy, per_replica=per_replica,
        )  # fmt: skip
    if not callable(fn):
        raise ArgumentTypeError(
            f"vmap expects a function of one example, found {fn!r} of type {type(fn).__name__}."
        )
    _check_axes(in_axes, "in_axes")
    _check_axes(out_axes, "out_axes")
    _check_size(axis_size, "axis_size", 0)
    block, budget = check_blocks(chunk_size, memory_budget, "chunk_size")
    is_shown = check_progress(progress, block, "chunk_size")
    if is_shown and jit_compile:
        raise ArgumentError("progress=True and jit_compile=True: XLA cannot show text.")
    options = Options.of(
        fallback, randomness, while_strategy, out_shapes, warn=warn, progress=is_shown
    )
    name = check_name(axis_name)
    check_strategy(strategy, per_replica, jit_compile, is_shown=is_shown)
    spread = None if strategy is None else (strategy, bool(per_replica))
    return _make(
        fn, in_axes, out_axes, axis_size, block, options, name, budget, jit_compile, spread
    )


def _make(
    fn: Callable[..., Any], in_axes: Axes, out_axes: Axes, axis_size: int | None,
    block: int | str | None, options: Options, name: str, budget: int | None,
    jit_compile: bool | None, spread: tuple[Any, bool] | None = None,
) -> Any:  # fmt: skip
    """The function that ``vmap`` returns, of checked options."""

    def of_call() -> tuple[Any, ...]:
        return axis_size, block, options.settings(), name, budget, jit_compile, spread

    def mapped(*args: Any, **kwargs: Any) -> Any:
        return _map(fn, in_axes, out_axes, args, kwargs, *of_call())

    own: dict[Any, Any] = {}
    rows = functools.partial(_rows, in_axes) if axis_size is None else None

    @functools.cache  # a tf.function is dear to make, and seldom needed
    def compiled(_: Defaults) -> Any:
        return nests.as_function(mapped, jit_compile)

    @tf.autograph.experimental.do_not_convert
    def call(noted: Signatures, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        _check_rows(args, kwargs, in_axes)
        if tf.executing_eagerly() and options.progress:
            return mapped(*args, **kwargs)
        if tf.executing_eagerly() and spread is None:
            closures = (fn, in_axes, out_axes)
            eager = EagerCall(
                _map, closures, (args, kwargs), of_call(), jit_compile, own, noted, rows
            )
            result = eager()
            if result is not UNCACHED:
                return result
            if not jit_compile and _tf.may_record_gradients() and eager.holds_tape():
                return mapped(*args, **kwargs)  # a row leads to what was recorded around this call
        if tf.executing_eagerly() or jit_compile:
            _check_tensors(args, kwargs)
            with advised():
                return compiled(current())(*args, **kwargs)
        return mapped(*args, **kwargs)

    given = (axis_size, block, options, name, budget, jit_compile, spread)
    made = Transformed(_make, (fn, in_axes, out_axes), given)
    called = f"vmap_{getattr(fn, '__name__', type(fn).__name__)}"
    return CompiledFunction(call, mapped, made, called, jit_compile)


def _map(
    fn: Callable[..., Any], in_axes: Axes, out_axes: Axes, args: tuple[Any, ...],
    kwargs: dict[str, Any], axis_size: int | None, block: int | str | None, settings: Settings,
    axis_name: str, budget: int | None, jit_compile: bool | None,
    spread: tuple[Any, bool] | None = None,
) -> Any:  # fmt: skip
    """One call of a mapped function, in the graph being built."""
    if jit_compile:
        _tf.mark_jit_compiled(tf.compat.v1.get_default_graph())
    if has_pushed_rows((args, kwargs)):
        options = (axis_size, block, settings, axis_name, budget, jit_compile, spread)
        return called_with(
            (args, kwargs), lambda a: _map(fn, in_axes, out_axes, a[0], a[1], *options)
        )
    found = (
        None
        if spread is not None
        else _gradients_of_rows(
            fn, in_axes, out_axes, args, kwargs, axis_size, block, settings, axis_name, budget
        )
    )
    if found is not None:
        return found
    one, elements, n = elements_of(
        fn, args, kwargs, in_axes, axis_size, in_blocks=block is not None
    )
    job = Job(one, settings, block, out_axes=out_axes, axis_name=axis_name, budget=budget)
    if spread is not None:
        strategy, per_replica = spread
        return run_distributed(strategy, job, elements, n, per_replica=per_replica)
    return run(job, elements, n)


def elements_of(
    fn: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any], in_axes: Axes,
    axis_size: int | None, *, in_blocks: bool = False,
) -> tuple[Callable[..., Any], list[Element], Dim]:  # fmt: skip
    """``fn`` as a function of flat tensors of one example, its elements, and their number."""
    one, args = _of_dense(fn, args, in_axes, in_blocks=in_blocks)
    plan = Plan(args, kwargs, in_axes, axis_size)
    return nests.named_as(plan.of_rows(one), fn), plan.elements, plan.n


class Mapped(NamedTuple):
    """The parts of a function that ``vmap`` returned: its arguments, checked."""

    fn: Callable[..., Any]
    in_axes: Axes
    out_axes: Axes
    axis_size: int | None
    block: int | str | None
    options: Options
    name: str
    budget: int | None
    jit_compile: bool | None
    spread: tuple[Any, bool] | None


def mapped_by(function: CompiledFunction) -> Mapped | None:
    """The parts of a function that ``vmap`` returned; None for other functions."""
    made = function.made
    return Mapped(*made.roots, *made.options) if made.make is _make else None


def _rows(in_axes: Axes, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Rows:
    """The places of the number of rows; none if ``in_axes`` does not fit."""
    if isinstance(in_axes, (list, tuple)) and len(in_axes) != len(args):
        return Rows([])
    given, named = nests.from_user((args, kwargs))
    axes = nests.spread(tuple(in_axes) if isinstance(in_axes, list) else in_axes, given, "in_axes")
    owners = [x for x in tf.nest.flatten(given) for _ in nests.flatten(x)]
    by_name = [(x, 0) for x in tf.nest.flatten(named) if not _is_switch(x, True)]
    return Rows([*zip(owners, axes), *by_name])


def _gradients_of_rows(
    fn: Callable[..., Any], in_axes: Axes, out_axes: Axes, args: tuple[Any, ...],
    kwargs: dict[str, Any], axis_size: int | None, block: int | str | None, settings: Settings,
    axis_name: str, budget: int | None,
) -> Any:  # fmt: skip
    """Derivatives of one number for each row, as derivatives of the sum (``row_gradients``).

    They are None where a tape watches, which would not see that its loops are differentiated.
    """
    of = vars(fn).get("row_gradient") if isinstance(fn, CompiledFunction) else None
    graph = tf.compat.v1.get_default_graph()
    axes = list(in_axes) if isinstance(in_axes, (list, tuple)) else [in_axes] * len(args)
    if of is None or kwargs or block is not None or axis_name or out_axes != 0:
        return None
    if len(axes) != len(args) or not all(axis is None or axis == 0 for axis in axes):
        return None
    if _tf.in_xla_context(graph) or _tf.in_body(graph) or _tf.may_record_gradients():
        return None
    return of.of_rows(
        lambda one, given: _map(
            one, in_axes, 0, given, {}, axis_size, None, settings, "", budget, None
        ),
        args,
        axes,
    )


def _of_dense(
    fn: Callable[..., Any], args: tuple[Any, ...], in_axes: Axes, *, in_blocks: bool
) -> tuple[Callable[..., Any], tuple[Any, ...]]:
    """``fn`` and arguments with dense tensors in place of ragged and sparse ones to map over."""
    entries: Any = in_axes if isinstance(in_axes, (list, tuple)) else [in_axes] * len(args)
    pairs = [
        composites.opened(a, in_blocks=in_blocks, axes=_axes_of(a, axis, f"in_axes[{i}]"))
        for i, (a, axis) in enumerate(zip(args, entries))
    ]
    opened = tuple(a for a, _ in pairs)
    converted = autographed(fn, "vmap")
    if len(entries) != len(args) or all(a is b for a, b in zip(args, opened)):
        return converted, args

    def of_rows(*rows: Any, **kwargs: Any) -> Any:
        with arguments_of(fn):
            given = [cut(row) for row, (_, cut) in zip(rows, pairs)]
        return converted(*given, **kwargs)

    return of_rows, opened


def _axes_of(arg: Any, axes: Any, name: str) -> Callable[[Any], Any]:
    """Over which axis a composite tensor of an argument is mapped."""

    def axis_of(x: Any) -> Any:
        structure = nests.from_user(arg)
        spread = nests.spread(axes, tf.nest.map_structure(lambda _: 0, structure), name)
        found = [a for leaf, a in zip(tf.nest.flatten(structure), spread) if leaf is x]
        return found[0] if found else 0  # in one of the argument's composites

    return axis_of


def _check_axes(axes: Axes, name: str) -> None:
    for leaf in tf.nest.flatten(nests.from_user(axes)):
        if leaf is not None and (isinstance(leaf, bool) or not isinstance(leaf, numbers.Integral)):
            raise ArgumentError(
                f"{name} must be an int, None, or a nest of these; found {leaf!r} in {axes!r}."
            )


def _check_size(value: Any, name: str, least: int) -> None:
    if value is None:
        return
    if isinstance(value, bool) or not isinstance(value, numbers.Integral) or value < least:
        raise ArgumentError(f"{name} must be an int of at least {least} or None, found {value!r}.")


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


def _check_rows(args: tuple[Any, ...], kwargs: dict[str, Any], in_axes: Axes) -> None:
    """Refuses dicts without an order, and ranges, datasets or iterators that are to be mapped over.

    As the user has them: a tf.function makes tuples of some.
    """
    entries: Any = in_axes if isinstance(in_axes, (list, tuple)) else [in_axes] * len(args)
    for i, (arg, axis) in enumerate(zip(args, entries)):
        nests.check_keys(arg, f"args[{i}]")
        if axis is not None:
            nests.check_rows(arg, f"args[{i}]")
    for key, arg in kwargs.items():
        nests.check_keys(arg, f"keyword argument {key}")


def _check_tensors(args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """Refuses leaves that a tf.function does not take, which would not say which they are."""
    names = [*nests.paths(args, "args"), *_names_of_keywords(kwargs)]
    n_args = len(nests.flatten(args))
    for i, (leaf, name) in enumerate(zip(nests.flatten((args, kwargs)), names)):
        leaves.check_tensor(leaf, name, _shared(i >= n_args))


def _is_switch(leaf: Any, is_keyword: bool) -> bool:
    """A keyword argument with nothing in it to map over, such as ``training=True``."""
    return is_keyword and isinstance(leaf, (bool, str))


def _check_dense(leaf: Any, name: str) -> None:
    if isinstance(leaf, (tf.RaggedTensor, tf.SparseTensor)):
        raise ArgumentTypeError(
            f"{name} is a {type(leaf).__name__}, which is not supported yet as a mapped argument "
            "(RaggedTensors of one ragged dimension are, along axis 0). Convert it to a dense "
            "tensor first (.to_tensor() or tf.sparse.to_dense()), or set its "
            "entry of in_axes to None if all examples share it."
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


def _mapped_tensor(leaf: Any, axis: int, name: str, shared: str) -> tuple[tf.Tensor, int]:
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
    return tf.transpose(tensor, [axis, *[i for i in range(tensor.shape.rank) if i != axis]])


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
