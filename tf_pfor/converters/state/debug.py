"""Prints, asserts, summaries, Python functions."""

from __future__ import annotations

from typing import Any

import numpy as np
import tensorflow as tf

from tf_pfor import _tf
from tf_pfor._tf import _functions
from tf_pfor.converters.math._families import table
from tf_pfor.converters.state._state import once
from tf_pfor.core.call import Call
from tf_pfor.core.errors import CannotVectorize, ConversionError, Refused
from tf_pfor.core.registry import ALWAYS, ANY, Outcome, RegisterPFor
from tf_pfor.core.values import Stacked, Value
from tf_pfor.fallback import uneven_regions
from tf_pfor.layouts.ragged import Ragged, is_ragged
from tf_pfor.layouts.ragged_rules import family_rule, ragged_rule

_FORMAT = ("placeholder", "summarize", "template")


@ragged_rule("StringFormat")
@RegisterPFor("StringFormat", ANY, attrs=_FORMAT)
def string_format(call: Call, inputs: list[Value]) -> Any:
    """For a print: left to it. It prints all iterations at once and needs no string for each."""
    readers = call.op.outputs[0].consumers()
    results = getattr(call.op.graph, "outputs", ())
    if any(o.type != "PrintV2" for o in readers) or any(t.op is call.op for t in results):
        raise CannotVectorize("it makes one string for each iteration")
    return Stacked.deferred(_unread, (), tf.string)


def _unread() -> tf.Tensor:
    raise ConversionError("the string of a print is read by somebody else. A bug.")


@RegisterPFor("PrintV2", ALWAYS, attrs=("end", "output_stream"))
def print_v2(call: Call, input: Value) -> Any:
    """Once, the stacked values, also when nobody reads a result."""
    source = call.op.inputs[0].op
    if not input.is_stacked:
        once(call, lambda: call.rebuild())
        return None
    if call.loop.static_length == 0:
        return None
    template, attrs, tensors = "%s", {}, []
    values = [call.value_of(t) for t in source.inputs]
    if source.type != "StringFormat" or None in values:  # the strings of a loop over rows
        tensors = [input.tensor]
    else:
        given = _tf.attr_map(source)
        tensors = [_shown(v, given) for v in values if v is not None]
        attrs = {k: given[k] for k in ("placeholder", "summarize") if k in given}
        template = given["template"] if "template" in given else "%s"  # noqa: SIM401
    text = call.emit("StringFormat", tensors, template=template, **attrs)
    once(call, lambda: call.rebuild(input=text), [text])
    return None


def _shown(value: Value, attrs: dict[str, Any]) -> tf.Tensor:
    """The text that a print shows of all iterations: the stack, or rows as of a RaggedTensor."""
    if not isinstance(value, Ragged):
        return value.tensor
    summarize = attrs["summarize"].i if "summarize" in attrs else 3
    return tf.strings.format("{}", value.ragged_tensor(), summarize=summarize)


@RegisterPFor("Print", ANY, attrs=("first_n", "message", "summarize"))
def print_v1(call: Call, input: Value, data: list[Value]) -> Any:
    """Once, the stacked values."""
    return call.rebuild()


@RegisterPFor("Assert", ALWAYS, attrs=("summarize",))
def assert_all(call: Call, condition: Value, data: list[Value]) -> Any:
    """Holds for all active iterations; the message shows the numbers of those where not.

    Inside another map it shows all of them, since others fail in each of its iterations.
    """
    rows, failing, text = call.loop.index, None, "Failed in the iterations:"
    if not condition.is_stacked:
        if not any(v.is_stacked for v in data):
            once(call, lambda: call.rebuild())
            return None
        held = condition.tensor
        if call.loop.static_length == 0:
            return None
        if call.loop.static_length is None:
            none = call.emit("Equal", call.loop.length_tensor, np.int32(0))
            held = call.emit("LogicalOr", held, none)
    else:
        if condition.inner_shape not in ((), None):
            raise CannotVectorize("the condition is not a scalar")
        held = call.emit("All", condition.tensor, np.int32(0))
        if _tf.in_xla_context(call.emit.graph):  # where asserts are dropped
            call.rebuild(condition=held)
            return None
        if _tf.in_body(call.emit.graph):
            text = "Failed in some of the iterations:"
        else:
            wrong = call.emit("LogicalNot", condition.tensor)
            failing = call.emit("Where", wrong)  # [k, 1]
            failing = call.emit("Reshape", failing, np.asarray([-1], np.int32))
            rows = call.emit("GatherV2", call.loop.index, failing, np.int32(0))
    shown: list[tf.Tensor] = [_text(call, text), rows]
    for value in data:
        tensor = value.tensor
        if value.is_stacked and failing is not None:
            tensor = call.emit("GatherV2", tensor, failing, np.int32(0))
        shown.append(tensor)
    call.emit("Assert", held, shown, summarize=max(call.attr("summarize"), 10))
    return None


@ragged_rule("Assert")
def assert_of_rows(call: Call, condition: Value, data: list[Value]) -> Any:
    """The rule of dense rows; the message shows rows of different shapes padded with zeros."""
    shown = [Value.stacked(v.in_rows) if isinstance(v, Ragged) else v for v in data]
    return assert_all(call, condition, shown)


def _text(call: Call, text: str) -> tf.Tensor:
    return call.emit.constant(np.asarray(text.encode(), object), tf.string)


# ---------------------------------------------------------------------------
# One iteration after the other
# ---------------------------------------------------------------------------

_IN_ORDER = {
    **table("EagerPyFunc", "Tin", "Tout", "is_async", "token"),
    **table("PyFunc PyFuncStateless", "Tin", "Tout", "token"),
    **table("WriteAudioSummary", "max_outputs"),
    **table("WriteHistogramSummary WriteRawProtoSummary WriteScalarSummary WriteSummary"),
    **table("WriteImageSummary", "max_images"),
}


_OF_PY_FUNCTION = (
    "it is the gradient of a tf.py_function, which keeps what it needs of its last call only, and "
    "all rows call it before the first gradient: use tf.map_fn with the tape in its function, or "
    "give the Python function a gradient by tf.custom_gradient"
)


_NO_RANK = (
    "the rank of what the Python function returns is not known; say it by "
    "tf.ensure_shape(result, [None]), and what reads the result is vectorized"
)


@family_rule("loop_in_order")
def _one_by_one(call: Call, *_: object) -> Any:
    """Calls Python, or writes a summary, for each iteration in its turn."""
    if _functions.is_gradient(call.op):
        raise Refused(_OF_PY_FUNCTION)
    for output in call.op.outputs:
        _tell_rank(output)
    may_loop = call.settings.may_loop(call.op_type)  # together with what reads its results
    gradients = uneven_regions.gradients(call.op, call.walker)
    for gradient in gradients:
        for found, given in zip(gradient.outputs, call.op.inputs):
            found.set_shape(given.shape)
    if gradients and may_loop:
        raise CannotVectorize("its gradient is taken in the body, and each follows its own call")
    is_unknown = any(t.shape.rank is None for t in call.op.outputs)
    if is_unknown and may_loop and any(map(is_ragged, call.flat_inputs())):
        raise CannotVectorize(_NO_RANK)
    return call.loop_in_order()


def _tell_rank(output: tf.Tensor) -> None:
    """Sets the shape that tf.ensure_shape gives a result; Python code does not tell its rank."""
    readers = output.consumers()
    shapes = [op.outputs[0].shape for op in readers if op.type == "EnsureShape"]
    if output.shape.rank is None and shapes and len(shapes) == len(readers):
        output.set_shape(shapes[0])  # another one fails where it is read in any case


for _name, _attrs in _IN_ORDER.items():
    RegisterPFor(
        _name,
        ANY if _name == "PyFuncStateless" else ALWAYS,
        attrs=_attrs,
        family="loop_in_order",
        outcome=Outcome.LOOPED,
        note="called once for each iteration, in order",
    )(_one_by_one)

# A graph summary, and flushing and closing a writer, are the same for all iterations.


@RegisterPFor("CloseSummaryWriter FlushSummaryWriter WriteGraphSummary", ALWAYS)
def effect_once(call: Call, *inputs: Value) -> Any:
    """An effect that is the same in all iterations: once."""
    if any(v.is_stacked for v in inputs):
        raise CannotVectorize("an input differs between iterations")
    once(call, lambda: call.rebuild())
    return None
