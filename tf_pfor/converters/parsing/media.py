"""Images, sounds, tensors and files that are encoded or decoded: ops without kernels for batches.

``MapDefun`` runs the kernel for all rows in parallel (``layouts/row_kernels``), as ``tf.data``
would with ``num_parallel_calls``. An op that reads such a result may have no rule for ragged rows.
Then both ops share one such loop (``fallback``): an image that is decoded and resized leaves only
its small form behind.
"""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from tf_pfor import _tf
from tf_pfor.core.call import Call
from tf_pfor.core.errors import CannotVectorize
from tf_pfor.core.regions import Region, key
from tf_pfor.core.registry import ANY, Outcome, RegisterPFor
from tf_pfor.core.values import Shape, Value, dims, is_static
from tf_pfor.fallback import ragged_rows
from tf_pfor.layouts import row_kernels
from tf_pfor.layouts.ragged import Ragged
from tf_pfor.layouts.ragged_rules import BY_KERNEL, ragged_rule, source

_JPEG = "channels ratio fancy_upscaling try_recover_truncated acceptable_fraction dct_method"
_ATTRS = {
    "DecodeAndCropJpeg": _JPEG,
    "DecodeBmp": "channels",
    "DecodeGif": "",
    "DecodeImage": "channels dtype expand_animations",
    "DecodeJpeg": _JPEG,
    "DecodePng": "channels dtype",
    "DecodeWav": "desired_channels desired_samples",
    "DecodeWebP": "channels dtype",
    "EncodeJpeg": "format quality progressive optimize_size chroma_downsampling density_unit "
    "x_density y_density xmp_metadata",
    "EncodeJpegVariableQuality": "",
    "EncodePng": "compression",
    "EncodeWav": "",
    "ExtractJpegShape": "output_type",
    "MatchingFiles": "",
    "ParseTensor": "out_type",
    "ReadFile": "",
    "SerializeTensor": "",
    "StatelessSampleDistortedBoundingBox": "aspect_ratio_range area_range max_attempts "
    "use_image_if_no_bounding_boxes",
}


def of_one_shape(call: Call, *_: Value) -> Any:
    """Results whose shape is known."""
    if not all(is_static(_shape(call, t)) for t in call.op.outputs):
        raise CannotVectorize(
            "it has no kernel for batches, and its result may have another shape in each iteration "
            "(tf.ensure_shape says that it has not)"
        )
    return _by_kernel(call)


for op_type, attrs in _ATTRS.items():
    RegisterPFor(op_type, ANY, attrs=attrs, outcome=Outcome.LOOPED, note=BY_KERNEL)(of_one_shape)


@ragged_rule(_ATTRS)
@source(" ".join(_ATTRS), by_kernel=True)
def of_own_shape(call: Call, *_: Value) -> Any:
    """Inputs or results that differ in shape: the function of a row cuts its inputs."""
    if any(_shape(call, t) is None for t in call.op.outputs):
        raise CannotVectorize("the rank of its result is unknown (tf.ensure_shape says it)")
    return _by_kernel(call)


def _by_kernel(call: Call) -> list[Value]:
    """All rows by one kernel.

    Raises:
      CannotVectorize: in the body of another map, where the fallback makes one loop of both.
    """
    if _tf.in_body(call.emit.graph) or _tf.in_xla_context(call.emit.graph):
        raise CannotVectorize("its kernel cannot run in the body of another map, or under XLA")
    region = Region.of([call.op], call.op.outputs)
    known = {key(t): v for t, v in zip(call.op.inputs, call.flat_inputs(), strict=True)}
    values = [known[key(t)] for t in region.inputs]
    if any(isinstance(v, Ragged) for v in values):
        region, values = ragged_rows.cut(region, values, call.walker)
    order = sorted(range(len(values)), key=lambda i: not values[i].is_stacked)
    rows = sum(v.is_stacked for v in values)
    outputs = call.op.outputs
    inner = [_shape(call, t) for t in outputs]

    def one(*given: tf.Tensor) -> list[tf.Tensor]:
        inputs = dict(zip(order, given, strict=True))
        return region.copy(*[inputs[i] for i in range(len(given))])

    with call.emit.as_default():
        tensors = [values[i].tensor for i in order]
        return row_kernels.all_rows(
            one, tensors[:rows], tensors[rows:], outputs, inner, call.loop.static_length
        )


def _shape(call: Call, output: tf.Tensor) -> Shape:
    """The shape of a result, also where it is the ops that read it that say all of it."""
    own = dims(output)
    readers = output.consumers()
    if is_static(own) or call.walker.is_asked(output) or not readers:
        return own
    said = {dims(op.outputs[0]) if op.type == "EnsureShape" else None for op in readers}
    known = said.pop()
    return own if said or not is_static(known) else known
