"""Traces kept between eager calls: ``cache_info``, ``clear_cache``. See docs/caching.md."""

from __future__ import annotations

import collections
import contextlib
import dataclasses
import sys
import threading
import weakref
from collections.abc import Callable, Hashable, Sequence
from typing import Any, Final

import numpy as np
import tensorflow as tf

from tf_pfor import _tf
from tf_pfor._tf import _functions
from tf_pfor.core import nests
from tf_pfor.core.nests import Nest
from tf_pfor.core.registry import REGISTRY
from tf_pfor.core.settings import current
from tf_pfor.tracing import memory
from tf_pfor.tracing.fingerprint import ARGUMENT, BY_IDENTITY, CLOSURE, Walk
from tf_pfor.tracing.identity import HoldsTape, Uncacheable, tokens
from tf_pfor.tracing.rebuild import Rebuilt
from tf_pfor.tracing.row_numbers import Rows, Shape

MAX_TRACES: Final = 256
_MAX_REASONS: Final = 64


@dataclasses.dataclass(frozen=True, slots=True)
class CacheInfo:
    """Counts of the cache since the start or the last ``clear_cache()``.

    Attributes:
      hits: calls that ran a trace of an earlier call.
      misses: calls that made a trace and kept it.
      uncacheable: calls whose trace could not be kept.
      size: the number of traces held now.
      max_size: the most traces held; the one used longest ago goes first.
      reasons: the reasons why calls were uncacheable, with counts.
    """

    hits: int
    misses: int
    uncacheable: int
    size: int
    max_size: int
    reasons: dict[str, int]


def cache_info() -> CacheInfo:
    """The counts of the cache of eager calls; docs/caching.md says what the cache tracks.

    >>> import tensorflow as tf
    >>> import tf_pfor
    >>> tf_pfor.clear_cache()
    >>> for step in range(3):
    ...     scale = tf.constant(float(step))
    ...     y = tf_pfor.vectorized_map(lambda x: scale * x, tf.range(4.))
    >>> info = tf_pfor.cache_info()
    >>> info.misses, info.hits
    (1, 2)
    """
    return _CACHE.info()


def clear_cache() -> None:
    """Forgets all traces of eager calls, and the counts of ``cache_info``.

    >>> import tf_pfor
    >>> tf_pfor.clear_cache()
    >>> tf_pfor.cache_info().size
    0
    """
    _CACHE.clear()


class Signatures:
    """The arguments of the calls: specs of the tensors, other arguments as they are.

    Args:
      n_bound: the number of arguments in front that are not noted: the instance of a method.
    """

    def __init__(self, n_bound: int = 0):
        self._n_bound = n_bound
        self._noted: dict[Any, tuple[Any, Any]] = {}

    def add(self, key: Hashable, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Notes the arguments of a call, unless a call with this key was noted before."""
        if (key is not None and key in self._noted) or len(self._noted) >= MAX_TRACES:
            return
        bound = 0 if key is None else self._n_bound
        with contextlib.suppress(TypeError):  # what cannot be held weakly is not kept alive
            specs = tf.nest.map_structure(_spec, (args[bound:], kwargs))
            self._noted[object() if key is None else key] = specs

    def all(self) -> list[tuple[Any, Any]]:
        """Args and kwargs of each signature, each once; signatures of lost objects are left out."""
        found: dict[str, tuple[Any, Any]] = {}
        for specs in [*self._noted.values()]:
            given = tf.nest.map_structure(lambda x: x() if _is_weak(x) else x, specs)
            weak = [x for x in tf.nest.flatten(specs) if _is_weak(x)]
            if all(x() is not None for x in weak):
                found.setdefault(repr(given), given)
        return [*found.values()]


_BY_VALUE = (bool, bytes, complex, float, int, str, tf.DType, tf.TensorShape, tf.TypeSpec)


def _spec(x: object) -> Any:
    """The note of an argument; objects are held weakly."""
    if isinstance(x, (tf.Tensor, np.ndarray, np.generic)):
        return tf.TensorSpec(x.shape, tf.as_dtype(x.dtype))
    if isinstance(x, tf.RaggedTensor):
        return tf.type_spec_from_value(x)
    return x if x is None or isinstance(x, _BY_VALUE) else weakref.ref(x)


def _is_weak(x: object) -> bool:
    return isinstance(x, weakref.ref)


@dataclasses.dataclass(frozen=True, slots=True)
class EagerCall:
    """An eager call of a public function.

    Attributes:
      implementation: ``implementation(*closures, *arguments, *options)`` does it in a graph.
      closures: the user's functions, and options that are nests or functions.
      arguments: nests; tensors and arrays in them are inputs of the trace.
      own: traces that only the function called may use again, by key. A function that was made
        once (by ``vmap``, ``jacrev`` ...) promises what ``tf.function`` does: Python runs once for
        each trace. None: what cannot be kept for all is traced each time.
      noted: the notes of the signatures of ``arguments``, args and kwargs.
      rows: ``rows(*arguments)`` tells which axes have the number of rows. A second number makes a
        trace for any number. None: each number has a trace.
    """

    implementation: Callable[..., Any]
    closures: tuple[Any, ...]
    arguments: tuple[Any, ...]
    options: tuple[Any, ...]
    jit_compile: bool | None = None
    own: dict[Any, Any] | None = None
    noted: Signatures | None = None
    rows: Callable[..., Rows] | None = None

    def __call__(self) -> Any:
        """Runs a kept trace, or makes one; ``UNCACHED`` if it is for the caller to do.

        That is so where the walk finds what it does not know, and for errors: the caller raises
        them. First the tensors of closures are inputs. If that fails, or the trace cannot be kept,
        they stay what they are: Python may need their values.
        """
        try:
            for mode in (CLOSURE, BY_IDENTITY):
                walk, n_closed = self._fingerprint(mode)
                key = self._key(walk, walk.shapes)
                found = self._kept(key) or self._made(key, walk, mode, n_closed)
                if isinstance(found, _Trace):
                    if self.noted is not None:
                        self.noted.add(key, *self.arguments)
                    return found(walk.inputs)
                if found is not _BY_IDENTITY:
                    return _refuse(found)
        except Uncacheable as why:
            return _refuse(str(why))
        return UNCACHED

    def holds_tape(self) -> bool:
        """Whether the functions hold a tape, so that they may ask it for derivatives."""
        try:
            self._fingerprint(BY_IDENTITY)
        except HoldsTape:
            return True
        except Uncacheable:
            pass
        return False

    def _key(self, walk: Walk, shapes: Sequence[Shape]) -> Any:
        of_call = self.implementation, self.jit_compile, self.options
        return *_environment(), *of_call, walk.key(), tuple(shapes)

    def _kept(self, key: Hashable) -> _Trace | str | None:
        found = self.own.get(key) if self.own else None
        return found or _CACHE.get(key)

    def _fingerprint(self, mode: int, placeholders: Sequence[tf.Tensor] = ()) -> tuple[Walk, int]:
        """The walk over this call, and how many tensors of closures became inputs."""
        walk = Walk(placeholders)
        try:
            for x in self.closures:
                walk.visit(x, mode)
            n_closed = len(walk.inputs)
            for x in self.arguments:
                walk.visit(x, ARGUMENT)
        except RecursionError:
            raise Uncacheable("it is nested too deeply") from None
        return walk, n_closed

    def _unsized(self, walk: Walk, n_closed: int) -> list[Shape] | None:
        """The shapes of the inputs, of any number of rows; None if each number has its trace."""
        if self.rows is None or self.jit_compile:
            return None
        rows = self.rows(*self.arguments)
        return None if rows.are_seen and walk.asks_sizes else rows.unsized(walk, n_closed)

    def _made(self, key: Hashable, walk: Walk, mode: int, n_closed: int) -> _Trace | str:
        """From the second number of rows on the trace for any number; else one for this number."""
        shapes = self._unsized(walk, n_closed)
        general = None if shapes is None else self._key(walk, shapes)
        found = None if general is None else self._kept(general)
        if shapes and found is None and _CACHE.is_other(general, walk.shapes):
            found = self._first(general, walk, mode, n_closed, shapes)
            if not isinstance(found, _Trace):
                found = _EACH_NUMBER
                _CACHE.put(general, found)
        if isinstance(found, _Trace) or found == _BY_IDENTITY:
            return found
        found = self._first(key, walk, mode, n_closed, walk.shapes)
        if general is not None and found == _BY_IDENTITY:
            _CACHE.put(general, _BY_IDENTITY)
        return found

    def _first(
        self, key: Hashable, walk: Walk, mode: int, n_closed: int, shapes: list[Shape]
    ) -> _Trace | str:
        """Makes a trace, and keeps it if it may be kept; or the reason why there is none."""
        try:
            trace = _Trace(self, walk, mode, shapes)
        except Exception as why:
            if not n_closed:
                return f"tracing it failed ({type(why).__name__})"
            _CACHE.put(key, _BY_IDENTITY)
            return _BY_IDENTITY
        if not trace.reason:
            _CACHE.put(key, trace, walk.tokens)
            self._note(walk, n_closed)
        elif n_closed:
            _CACHE.put(key, _BY_IDENTITY)
            return _BY_IDENTITY
        else:
            _CACHE.refused(trace.reason)
            if self.own is not None:
                self._keep_own(trace, is_general=shapes is not walk.shapes)
            elif not trace.has_changed:
                _CACHE.put(key, trace.reason, walk.tokens)
        return trace

    def _note(self, walk: Walk, n_closed: int) -> None:
        """Notes the number of rows, so that another one is seen to be the second."""
        shapes = self._unsized(walk, n_closed)
        if shapes is not None:
            _CACHE.note(self._key(walk, shapes), walk.shapes)

    def _keep_own(self, trace: _Trace, *, is_general: bool) -> None:
        """Keeps a trace for this function alone, for the state that tracing has left behind."""
        assert self.own is not None
        if len(self.own) >= MAX_TRACES:
            self.own.clear()
        for mode in (CLOSURE, BY_IDENTITY):
            walk, n_closed = self._fingerprint(mode)
            shapes = self._unsized(walk, n_closed) if is_general else walk.shapes
            key = self._key(walk, shapes or walk.shapes)
            if n_closed:
                _CACHE.put(key, _BY_IDENTITY)
            else:
                self.own[key] = trace
                self._note(walk, n_closed)

    def rebuilt(self, walk: Walk, placeholders: Sequence[tf.Tensor]) -> EagerCall:
        """The same call with placeholders for its tensors."""
        copy = Rebuilt(walk, placeholders)
        closures, arguments = map(copy, self.closures), map(copy, self.arguments)
        return dataclasses.replace(self, closures=tuple(closures), arguments=tuple(arguments))

    def is_still(self, walk: Walk, mode: int, placeholders: Sequence[tf.Tensor]) -> bool:
        """Whether tracing has left all that was tracked as it was."""
        try:
            return self._fingerprint(mode, placeholders)[0].key() == walk.key()
        except Uncacheable:
            return False

    def run(self) -> Any:
        """The result, in the graph being built."""
        return self.implementation(*self.closures, *self.arguments, *self.options)


def cached_call(
    implementation: Callable[..., Any],
    closures: tuple[Any, ...],
    arguments: tuple[Any, ...],
    options: tuple[Any, ...],
    *,
    rows: Callable[..., Rows] | None = None,
    in_function: bool = False,
) -> Any:
    """The result of an ``EagerCall`` with these attributes, or of the same call in a graph.

    An eager call of which no trace can be kept runs as it is, or in a ``tf.function``.
    """
    if tf.executing_eagerly():
        found = EagerCall(implementation, closures, arguments, options, rows=rows)()
        if found is not UNCACHED:
            return found
        if in_function:
            run = nests.as_function(lambda *given: implementation(*closures, *given, *options))
            return run(*arguments)
    return implementation(*closures, *arguments, *options)


UNCACHED: Final = object()
_BY_IDENTITY: Final = "by identity"  # instead of a trace: tensors must be what they are
_EACH_NUMBER: Final = "each number"  # instead of a trace for any number of rows: there is none


def _refuse(reason: str) -> Any:
    _CACHE.refused(reason)
    return UNCACHED


class _Trace:
    """A compiled call.

    Attributes:
      reason: why it must not be used again; "" if it may.
      has_changed: whether the trace changed what it was made of.
    """

    __slots__ = (
        "_captured",
        "_concrete",
        "_is_compiled",
        "_leaves",
        "_lock",
        "_structure",
        "has_changed",
        "reason",
    )

    def __init__(self, call: EagerCall, walk: Walk, mode: int, shapes: Sequence[Shape]):
        self._lock = threading.Lock()

        def build(*given: tf.Tensor) -> list[tf.Tensor]:
            inner = call.rebuilt(walk, given)
            result = nests.from_user(inner.run())
            leaves = [_graph_leaf(x) for x in nests.flatten(result)]
            self._structure = nests.skeleton(result)
            self._leaves = [x is not None for x in leaves]
            self.has_changed = not inner.is_still(walk, mode, given)
            return [x for x in leaves if x is not None]

        compiled = tf.function(build, autograph=False, jit_compile=call.jit_compile)
        specs = [tf.TensorSpec(s, t.dtype) for s, t in zip(shapes, walk.inputs)]
        self._concrete = compiled.get_concrete_function(*specs)
        self._captured = self._concrete.captured_inputs
        self._is_compiled = bool(call.jit_compile)
        self.reason = (
            "tracing it changes what it reads"
            if self.has_changed
            else _unknown_capture(self._concrete.graph, walk) or _bad_op(self._concrete.graph)
        )

    def __call__(self, inputs: list[tf.Tensor]) -> Any:
        # TensorFlow makes the gradient when a tape records the call, which threads must not share:
        # of a while loop it would be wrong or fail.
        alone = self._lock if _tf.may_record_gradients() else contextlib.nullcontext()
        with memory.advised(), alone:
            outputs = _functions.call_flat(
                self._concrete, inputs, self._captured, self._is_compiled
            )
        if self._structure is None and self._leaves == [True]:
            return outputs[0]
        supply = iter(outputs)
        leaves = [next(supply) if present else None for present in self._leaves]
        return nests.to_user(nests.pack(self._structure, leaves))


def _graph_leaf(x: Nest) -> tf.Tensor | None:
    if x is None or isinstance(x, tf.Operation):
        return None
    return _functions.returned(tf.convert_to_tensor(x))


def _unknown_capture(graph: tf.Graph, walk: Walk) -> str:
    """A tensor or resource that the trace refers to, and that the walk has not come by."""
    known = {id(x.handle if isinstance(x, tf.Variable) else x) for x in walk.known}
    for outside, _ in graph.captures:
        if id(outside) not in known:
            return f"it uses a {outside.dtype.name} tensor or resource that was not found in it"
    return ""


def _bad_op(graph: tf.Graph) -> str:
    """An op that calls Python, or whose random numbers start anew with each trace."""
    nodes = [*graph.as_graph_def().node]
    for function in graph.as_graph_def().library.function:
        nodes += function.node_def
    for node in nodes:
        if node.op in _tf.PYTHON_OPS:
            return f"it has a {node.op}, which calls Python"
        if _tf.draws_randomly(node.op) and (node.attr["seed"].i or node.attr["seed2"].i):
            return f"it has a {node.op} with a seed, whose numbers begin anew with each trace"
    return ""


def _environment() -> tuple[Any, ...]:
    """The state that a trace depends on beside the functions and arguments.

    Raises:
      Uncacheable: where traces must not be kept.
    """
    state = _tf.eager_state()
    if state is None or tf.config.functions_run_eagerly() or tf.distribute.has_strategy():
        raise Uncacheable("run_functions_eagerly, a distribution strategy or op callbacks are on")
    defaults = current()
    if not defaults.cache_size:
        raise Uncacheable("settings(cache_size=0) keeps no traces")
    return (REGISTRY.version, *state, *_keras_state(), dataclasses.replace(defaults, cache_size=1))


_KERAS_SCOPES = (
    "autocast_scope",
    "current_call_ctx",
    "distribution",
    "remat_scope_stack",
    "stateless_scope",
    "symbolic_scope",
)


def _keras_state() -> tuple[Any, ...]:
    keras = sys.modules.get("keras")
    tracker = sys.modules.get("keras.src.backend.common.global_state")
    if keras is None or tracker is None:
        return ()
    state = vars(tracker.GLOBAL_STATE_TRACKER)
    if any(state.get(name) for name in _KERAS_SCOPES):
        raise Uncacheable("it runs inside a Keras layer or scope")
    config, policy = keras.config, state.get("dtype_policy")
    return config.floatx(), config.image_data_format(), policy and policy.name


class _Cache:
    """Traces by key, the one used longest ago goes first. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self.clear()

    def clear(self) -> None:
        with self._lock:
            self._kept: collections.OrderedDict[Any, _Trace | str] = collections.OrderedDict()
            self._of_token: dict[int, set[Any]] = {}
            self._tokens: dict[Any, tuple[int, ...]] = {}
            self._numbers: collections.OrderedDict[Any, list[Shape]] = collections.OrderedDict()
            self._reasons: collections.Counter[str] = collections.Counter()
            self._hits = self._misses = self._uncacheable = 0

    def get(self, key: Hashable) -> _Trace | str | None:
        """A trace, the reason why there is none, or None for a new key."""
        with self._lock:
            self._forget_dead()
            found = self._kept.get(key)
            if found is not None:
                self._kept.move_to_end(key)
                self._hits += isinstance(found, _Trace)
            return found

    def put(self, key: Hashable, trace: _Trace | str, held: Sequence[int] = ()) -> None:
        with self._lock:
            self._drop(key)
            self._misses += isinstance(trace, _Trace)
            self._kept[key] = trace
            self._tokens[key] = tuple(set(held))
            for token in self._tokens[key]:
                self._of_token.setdefault(token, set()).add(key)
            while len(self._kept) > current().cache_size:
                self._drop(next(iter(self._kept)))

    def note(self, general: object, shapes: list[Shape]) -> None:
        """Notes the shapes of the inputs of a call that has a trace for its number of rows."""
        with self._lock:
            self._numbers.setdefault(general, shapes)
            while len(self._numbers) > MAX_TRACES:
                self._numbers.popitem(last=False)

    def is_other(self, general: object, shapes: list[Shape]) -> bool:
        """Whether there was a trace for another number of rows."""
        with self._lock:
            return self._numbers.get(general, shapes) != shapes

    def refused(self, reason: str) -> None:
        with self._lock:
            self._uncacheable += 1
            if reason in self._reasons or len(self._reasons) < _MAX_REASONS:
                self._reasons[reason] += 1

    def info(self) -> CacheInfo:
        with self._lock:
            self._forget_dead()
            size = sum(isinstance(x, _Trace) for x in self._kept.values())
            return CacheInfo(
                self._hits,
                self._misses,
                self._uncacheable,
                size,
                current().cache_size,
                dict(self._reasons),
            )

    def _forget_dead(self) -> None:
        """Drops the traces of objects that are gone."""
        while tokens.dead:
            for key in self._of_token.pop(tokens.dead.popleft(), ()):
                self._drop(key)

    def _drop(self, key: Hashable) -> None:
        self._kept.pop(key, None)
        for token in self._tokens.pop(key, ()):
            keys = self._of_token.get(token)
            if keys is not None:
                keys.discard(key)
                if not keys:
                    del self._of_token[token]


_CACHE: Final = _Cache()
