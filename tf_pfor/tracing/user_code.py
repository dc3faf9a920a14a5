"""Calls of the user's functions, with AutoGraph; errors of such a call in the user's own terms."""

from __future__ import annotations

import contextlib
import inspect
import re
from collections.abc import Callable
from typing import Any

import tensorflow as tf

from tf_pfor import _tf
from tf_pfor._tf import _functions, _stacks
from tf_pfor.core.errors import ArgumentError, ArgumentTypeError, PforError, UnsupportedStateError
from tf_pfor.core.nests import Nest
from tf_pfor.core.registry import source_of
from tf_pfor.tracing.statements import statement_at

# By who calls: what the function must take, and what to do where it does not.
_CALLERS = {
    "vectorized_map": (
        "fn must take one argument, a row of elems",
        "Take the row apart in fn (a, b = row), or map a function of several arguments: "
        "tf_pfor.vmap(fn)(*elems).",
    ),
    "pfor": ("loop_fn must take one argument, the number of the iteration", "Close over the rest."),
    "vmap": (
        "fn must take what the mapped function is called with",
        "Call the mapped function with the arguments of fn. in_axes has None for arguments that "
        "all examples share.",
    ),
    "loss_fn": ("loss_fn must take one example of the batch", "Pass all that it takes as batch."),
    "": ("The function must take what it is called with", "Give it the arguments that it takes."),
}

_CALL = re.compile(
    r"missing \d+ required|takes .* positional argument|unexpected keyword|multiple values for"
)

_LINE = re.compile(r":\d+$")

WANTS_A_BATCH = re.compile(
    r"expected (min_|max_)?ndim=\d+, found ndim|Invalid input shape for input"
    r"|Kernel shape must have the same length as input"
)
"""Errors of Keras layers that get one example."""

# By the error of a tensor that has no value yet: what the body does, and what to do instead.
_NEED_VALUES = (
    (
        re.compile(
            r"Cannot convert a symbolic|Tensor' object has no attribute 'numpy'"
            r"|must be real number, not \w*Tensor"
            r"|Tensor' object cannot be interpreted as an integer"
        ),
        "gives a tensor to NumPy, or to Python code that needs its value",
        "Use TensorFlow's function in its place (tf.sin for np.sin or math.sin; "
        "tf.experimental.numpy has NumPy's names). Or call the code by tf.numpy_function, which "
        "runs it for each row and has no gradient.",
    ),
    (
        re.compile(r"Iterating over a symbolic"),
        "iterates over a tensor in a comprehension, a generator, sum(), list() or zip(), or takes "
        "it apart (a, b = v)",
        "Where the size is known use tf.unstack (a, b = tf.unstack(v)). Else use an op of the "
        "whole tensor (tf.reduce_sum(v * v)), tf.map_fn, or a for statement over the tensor alone.",
    ),
    (
        re.compile(r"is out of scope and cannot be used here"),
        "uses a tensor of a loop or a branch outside of it",
        "Collect what a loop makes in a tf.TensorArray, or use tf.map_fn. Return from a branch "
        "what it makes.",
    ),
    (
        re.compile(r"Using a symbolic .*bool"),
        "takes a tensor as a Python bool where AutoGraph does not convert the code",
        "Use tf.where or tf.cond, tf.maximum for max(), tf.debugging.Assert for assert, or an if "
        "statement in a function whose source can be read.",
    ),
)


# By the same errors: what a statement does that AutoGraph did not convert, and what else would do.
_IN_STATEMENTS = (
    (
        re.compile(r"Iterating over a symbolic|cannot be interpreted as an integer"),
        "iterates over a tensor",
        "",
    ),
    (
        re.compile(r"Using a symbolic .*bool"),
        "takes a tensor as a Python bool",
        " Or use tf.where or tf.cond.",
    ),
)


_BY_KERAS = re.compile(r"when calling \S+\.call\(\)")
_OF_KERAS = (
    "Keras does not let AutoGraph convert the call of a layer. Put @tf.function on it, or call "
    "tf_pfor.keras.Vectorized(layer) on all rows."
)
_OF_OTHERS = (
    "AutoGraph leaves functions as they are that are called from tf.custom_gradient, from one with "
    "do_not_convert, or from a lambda whose source it cannot tell from another in its line. Move "
    "the statement into a function of its own that has @tf.function, and call that."
)


def autographed(function: Callable[..., Any], caller: str = "") -> Any:
    """``function`` with Python control flow on tensors converted, as tf.function does.

    Args:
      function: the user's.
      caller: who calls it, for the message where it does not take its arguments.

    Returns:
      A function that raises ArgumentTypeError where the call cannot be right, and where Python
      needs the value of a tensor. It raises UnsupportedStateError where one replica of a strategy
      waits for others. Other errors are the user's own.
    """
    converted = _functions.autographed(function)

    def call(*args: Nest, **kwargs: Nest) -> Any:
        try:
            return converted(*args, **kwargs)
        except PforError:
            raise
        except (AttributeError, NotImplementedError, TypeError, ValueError) as why:
            text = _wrong_call(function, caller, args, kwargs, why) or _needs_value(function, why)
            if not text and WANTS_A_BATCH.search(str(why)):
                raise ArgumentError(_without_batch(function, why)) from why
            if not text:
                raise
            raise ArgumentTypeError(text) from None
        except RuntimeError as why:
            if "merge_call" not in str(why):
                raise
            raise UnsupportedStateError(_waits(function, why)) from None

    vars(call)["__tf_pfor_autographed__"] = (call, function, caller)
    return call


def arguments_of(function: Callable[..., Any]) -> contextlib.AbstractContextManager[None]:
    """A scope for ops that cut the rows of ``function``: their line is where it is written."""
    line = _stacks.written_at(source_of(function))
    return _stacks.made_for("" if _tf.is_library(line.rpartition(":")[0]) else line)


def _wrong_call(
    function: Callable[..., Any],
    caller: str,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    why: Exception,
) -> str:
    """The message if a function cannot be called with these arguments; "" if it can."""
    if not isinstance(why, TypeError) or not _CALL.search(str(why)):
        return ""
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):
        return ""
    try:
        signature.bind(*args, **kwargs)
    except TypeError as problem:
        expected, advice = _CALLERS[caller]
        given = ", ".join([*map(_described, args), *(f"{k}=..." for k in kwargs)]) or "nothing"
        return (
            f"{expected}, here: {given}. Found: {_name_of(function)}{signature} "
            f"({_stacks.written_at(source_of(function))}): {problem}. {advice}"
        )
    return ""


def _described(x: object) -> str:
    if isinstance(x, tf.Tensor):
        return f"a tensor of shape {x.shape}"
    if isinstance(x, dict):
        return f"a dict of {', '.join(map(repr, x))}"
    if isinstance(x, (list, tuple)):
        return f"a {type(x).__name__} of {len(x)}"
    return f"a {type(x).__name__}"


def _needs_value(function: Callable[..., Any], why: Exception) -> str:
    """The message if Python needs the value of a tensor that is traced; "" for other errors."""
    for pattern, problem, advice in _NEED_VALUES:
        if pattern.search(str(why)):
            return _not_converted(why) or (
                f"The body {problem}: {_place(function, why)}. The body is traced before it runs, "
                f"and its tensors have no values then. {advice}"
            )
    return ""


def _without_batch(function: Callable[..., Any], why: Exception) -> str:
    """The message if a layer of Keras gets one example."""
    said = next(x.strip() for x in str(why).splitlines() if WANTS_A_BATCH.search(x))
    return (
        f"The body calls a layer or model of Keras on one example, and it takes a batch: "
        f"{_place(function, why)}. Give it a batch of one, model(x[None])[0], or use "
        f"tf_pfor.keras.Vectorized(layer, batch_of_one=True). Keras says: {said}"
    )


def _place(function: Callable[..., Any], why: Exception) -> str:
    """The line of an error, or the function and its line where AutoGraph knows no line."""
    written = _stacks.written_at(source_of(function))
    name = f"the function {_name_of(function)}" + f" ({written})" * bool(_LINE.search(written))
    frame = _functions.user_frame_of(why)
    return name if frame is None else _named(frame)


def _named(frame: _functions.UserFrame) -> str:
    """A call of user code, in words; a comprehension has a line only."""
    is_function = frame.name.isidentifier() or frame.name == "<lambda>"
    return f"the function {frame.name} ({frame.line})" if is_function else frame.line


def _not_converted(why: Exception) -> str:
    """The message if AutoGraph did not convert a statement that needs a value; "" for others."""
    frame = _functions.user_frame_of(why)
    if frame is None or frame.is_converted:
        return ""
    for pattern, problem, instead in _IN_STATEMENTS:
        if not pattern.search(str(why)):
            continue
        kind = statement_at(frame.line, iterates="iterates" in problem)
        if kind:
            return (
                f"The body {problem} in {kind} that AutoGraph did not convert: {_named(frame)}. "
                f"{_OF_KERAS if _BY_KERAS.search(str(why)) else _OF_OTHERS}{instead}"
            )
    return ""


def _waits(function: Callable[..., Any], why: Exception) -> str:
    """The message if a body waits for the other replicas of a strategy."""
    return (
        f"The body waits for the other replicas of a strategy: {_place(function, why)}. "
        "It changes a variable that has an aggregation, or calls all_reduce. Return what the "
        "variable is changed by, and change it after the map. Or call vmap(fn, strategy=...) "
        "outside of strategy.run."
    )


def _name_of(function: object) -> str:
    name = getattr(function, "__qualname__", "") or getattr(function, "__name__", "")
    return str(name).split("<locals>.")[-1] or type(function).__name__
