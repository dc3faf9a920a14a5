"""Calls on a variable-length row, and the calls that stand for them elsewhere.

A case has the call on one row, and the call on a ``tf.RaggedTensor`` of all rows, which TensorFlow
takes or refuses. It has the name of the operator in torch's table of operators of jagged tensors
(``torch/nested/_internal/ops.py``), if it stands there.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf

import tf_pfor
from tools.sweep.cases import resolve, words

N, T, D = 4, 6, 4
LENGTHS = np.int32([3, 6, 1, 4])
_RNG = np.random.default_rng(3)


def _floats(*shape: int) -> tf.Tensor:
    return tf.constant(_RNG.uniform(0.2, 0.9, (N, *shape)).astype(np.float32))


FLOATS = _floats(T, D)
NUMBERS = tf.constant(_RNG.integers(1, 5, (N, T)).astype(np.int32))
TEXTS = tf.constant([[f"w{i}{j}" + "a" * j for j in range(T)] for i in range(N)])
SQUARES = _floats(T, T)
IMAGES = _floats(8, 6, 3)
W = tf.constant(_RNG.normal(size=(D, 3)).astype(np.float32))
TABLE = tf.constant(_RNG.normal(size=(8, D)).astype(np.float32))
KERNEL = tf.constant(_RNG.normal(size=(3, D, 2)).astype(np.float32))
FILTERS = tf.constant(_RNG.normal(size=(3, 3, 3, 2)).astype(np.float32))


@dataclasses.dataclass(frozen=True)
class RaggedCase:
    """One operation on a variable-length row.

    Attributes:
      kind: the heading under which it stands.
      name: the operation as users write it.
      data: [n, ...] of which the row is the first ``LENGTHS[i]`` elements (of an image: of its
        rows and columns).
      row: the operation on the dense row.
      ragged: the same on a RaggedTensor of all rows; None if no call says that.
      torch: the operator in torch's table, "" if there is none.
    """

    kind: str
    name: str
    data: tf.Tensor
    row: Callable[[Any], Any]
    ragged: Callable[[Any], Any] | None = None
    torch: str = ""

    def cut(self, x: tf.Tensor, length: Any) -> tf.Tensor:
        """The row, cut to its length."""
        if self.data is IMAGES:
            return x[: length + 2, :length]
        return x[:length, :length] if self.data is SQUARES else x[:length]

    def elements(self) -> Any:
        """All rows as one RaggedTensor."""
        rows = [self.cut(x, k) for x, k in zip(tf.unstack(self.data), LENGTHS)]
        return tf.ragged.stack(rows)


def _elementwise(names: str, data: Any = FLOATS, torch: str = "pointwise") -> list[RaggedCase]:
    made = []
    for name in words(names):
        fn = resolve(name)
        made.append(RaggedCase("elementwise", name, data, fn, fn, torch))
    return made


def _pairs(names: str, data: Any = FLOATS, torch: str = "pointwise") -> list[RaggedCase]:
    made = []
    for name in words(names):
        fn = resolve(name)

        def call(x: Any, fn: Any = fn, data: Any = data, name: str = name) -> Any:
            if name == "tf.maximum":  # of x + x oneDNN makes a leaky relu, which is the minimum
                return fn(x, x + 0.5)
            return fn(x, x + x if data.dtype != tf.bool else tf.logical_not(x))

        made.append(RaggedCase("of two", name, data, call, call, torch))
    return made


SAME = object()  # the call on a RaggedTensor is the call on a row


def _of(kind: str, data: Any, *rows: tuple[Any, ...]) -> list[RaggedCase]:
    made = []
    for name, row, ragged, *torch in rows:
        made.append(RaggedCase(kind, name, data, row, row if ragged is SAME else ragged, *torch))
    return made


def _reductions() -> list[RaggedCase]:
    made = []
    known = {"reduce_sum": "sum", "reduce_mean": "mean"}
    for name in words("reduce_sum reduce_mean reduce_max reduce_min reduce_prod reduce_std "
                      "reduce_variance reduce_logsumexp reduce_euclidean_norm argmax argmin "
                      "count_nonzero"):  # fmt: skip
        fn = getattr(tf.math, name)
        for axis in (0, 1):
            where = "the ragged axis" if axis == 0 else "a dense axis"
            known["reduce_prod"] = "prod" if axis else ""
            made.append(
                RaggedCase(
                    "reductions", f"tf.math.{name} over {where}", FLOATS,
                    lambda x, fn=fn, axis=axis: fn(x, axis=axis),
                    lambda x, fn=fn, axis=axis: fn(x, axis=axis + 1), known.get(name, ""),
                )
            )  # fmt: skip
    for name in ("reduce_all", "reduce_any"):
        fn = getattr(tf.math, name)
        made.append(
            RaggedCase("reductions", f"tf.math.{name}", NUMBERS, lambda x, fn=fn: fn(x > 2, 0),
                       lambda x, fn=fn: fn(x > 2, 1))
        )  # fmt: skip
    return made


def _attention(x: Any) -> Any:
    return tf.nn.softmax(tf.matmul(x, x, transpose_b=True)) @ x


def _regular(x: Any) -> Any:
    return tf.matmul(x, x, transpose_b=True) + tf.eye(tf.shape(x)[0])


_UNARY = """tf.abs tf.acos tf.acosh tf.asin tf.asinh tf.atan tf.atanh tf.math.ceil tf.cos tf.cosh
tf.math.digamma tf.math.erf tf.math.erfc tf.math.erfinv tf.math.erfcinv tf.exp tf.math.expm1
tf.floor tf.identity tf.math.is_finite tf.math.is_inf tf.math.is_nan tf.math.lgamma tf.math.log
tf.math.log1p tf.math.log_sigmoid tf.math.ndtri tf.negative tf.ones_like tf.math.reciprocal
tf.math.reciprocal_no_nan tf.math.rint tf.round tf.math.rsqrt tf.sigmoid tf.sign tf.sin tf.sinh
tf.math.softplus tf.sqrt tf.square tf.stop_gradient tf.tan tf.tanh tf.zeros_like
tf.nn.relu tf.nn.relu6 tf.nn.elu tf.nn.selu tf.nn.gelu tf.nn.silu tf.nn.softsign tf.nn.leaky_relu
tf.math.bessel_i0 tf.math.bessel_i0e tf.math.bessel_i1 tf.math.bessel_i1e tf.math.special.dawsn
tf.math.special.expint tf.math.special.fresnel_cos tf.math.special.fresnel_sin
tf.math.special.spence tf.math.special.bessel_j0 tf.math.special.bessel_y0
tf.math.special.bessel_k0 tf.as_string tf.math.conj tf.math.real"""

_BINARY = """tf.add tf.subtract tf.multiply tf.divide tf.math.floordiv tf.math.floormod tf.pow
tf.maximum tf.minimum tf.math.squared_difference tf.math.atan2 tf.equal tf.not_equal tf.less
tf.less_equal tf.greater tf.greater_equal tf.math.xdivy tf.math.xlogy tf.math.xlog1py
tf.math.divide_no_nan tf.math.multiply_no_nan tf.math.igamma tf.math.igammac tf.math.nextafter
tf.complex tf.math.truediv"""

_BITS = """tf.bitwise.bitwise_and tf.bitwise.bitwise_or tf.bitwise.bitwise_xor
tf.bitwise.left_shift tf.bitwise.right_shift tf.truncatediv tf.truncatemod"""

_STRINGS = """tf.strings.lower tf.strings.upper tf.strings.strip tf.strings.length
tf.io.encode_base64"""

CASES: list[RaggedCase] = [
    *_elementwise(_UNARY),
    *_elementwise("tf.bitwise.invert", NUMBERS),
    *_elementwise("tf.logical_not", NUMBERS > 2),
    *_of("elementwise", FLOATS, ("tf.cast", lambda x: tf.cast(x, tf.float64), SAME, "_to_copy"),
        ("tf.bitcast", lambda x: tf.bitcast(x, tf.int32), SAME),
        ("tf.clip_by_value", lambda x: tf.clip_by_value(x, 0.3, 0.6), SAME, "pointwise"),
        ("tf.where", lambda x: tf.where(x > 0.5, x, 0.0), SAME, "where"),
        ("tf.debugging.check_numerics", lambda x: tf.debugging.check_numerics(x, "x"), SAME),
        ("tf.nn.dropout", lambda x: tf.nn.dropout(x, 0.0), SAME, "native_dropout"),
        ("tf.nn.crelu", tf.nn.crelu, SAME),
        ("tf.quantization.fake_quant_with_min_max_args",
        lambda x: tf.quantization.fake_quant_with_min_max_args(x, -1, 1), None)),
    *_pairs(_BINARY),
    *_pairs(_BITS, NUMBERS),
    *_pairs("tf.logical_and tf.logical_or tf.math.logical_xor", NUMBERS > 2),
    *_of("of two", FLOATS,
        ("with a vector that all rows share", lambda x: x * W[:, 0], SAME, "pointwise"),
        ("tf.math.polygamma", lambda x: tf.math.polygamma(1.0, x), SAME),
        ("tf.math.zeta", lambda x: tf.math.zeta(x + 1.0, 2.0), SAME),
        ("tf.math.betainc", lambda x: tf.math.betainc(x, x, x), SAME),
        ("tf.add_n", lambda x: tf.add_n([x, x, x]), SAME)),
    *_reductions(),
    *_of("products", FLOATS, ("x @ w", lambda x: x @ W, lambda x: tf.matmul(x, W), "matmul"),
        ("x @ x^T", lambda x: tf.matmul(x, x, transpose_b=True), SAME),
        ("x^T @ x", lambda x: tf.matmul(x, x, transpose_a=True), SAME),
        ("tf.einsum", lambda x: tf.einsum("td,de->te", x, W),
        lambda x: tf.einsum("ntd,de->nte", x, W)),
        ("tf.tensordot", lambda x: tf.tensordot(x, W, 1), SAME),
        ("attention", _attention, lambda x: _attention(x), "scaled_dot_product_attention"),
        ("tf.linalg.matvec", lambda x: tf.linalg.matvec(x, W[:, 0]), SAME, "matmul"),
        ("tf.nn.bias_add", lambda x: tf.nn.bias_add(x, W[:, 0]), SAME, "pointwise"),
        ("Dense", lambda x: tf.nn.relu(x @ W + 1.0), lambda x: tf.nn.relu(tf.matmul(x, W) + 1.0),
        "linear")),
    *_of("neural networks", FLOATS,
        ("tf.nn.softmax over a dense axis", tf.nn.softmax, SAME, "_softmax"),
        ("tf.nn.softmax over the ragged axis", lambda x: tf.nn.softmax(x, 0),
        lambda x: tf.nn.softmax(x, 1), "_softmax"),
        ("tf.nn.log_softmax", lambda x: tf.nn.log_softmax(x, 0), lambda x: tf.nn.log_softmax(x, 1)),
        ("tf.nn.conv1d", lambda x: tf.nn.conv1d(x[None], KERNEL, 1, "SAME")[0],
        lambda x: tf.nn.conv1d(x, KERNEL, 1, "SAME")),
        ("tf.nn.conv1d with strides", lambda x: tf.nn.conv1d(x[None], KERNEL, 2, "SAME")[0],
        lambda x: tf.nn.conv1d(x, KERNEL, 2, "SAME")),
        ("tf.nn.convolution with dilations",
        lambda x: tf.nn.convolution(x[None], KERNEL, 1, "SAME", dilations=2)[0],
        lambda x: tf.nn.convolution(x, KERNEL, 1, "SAME", dilations=2)),
        ("tf.nn.max_pool1d", lambda x: tf.nn.max_pool1d(x[None], 2, 2, "SAME")[0],
        lambda x: tf.nn.max_pool1d(x, 2, 2, "SAME")),
        ("tf.nn.avg_pool1d", lambda x: tf.nn.avg_pool1d(x[None], 2, 2, "SAME")[0],
        lambda x: tf.nn.avg_pool1d(x, 2, 2, "SAME")),
        ("layer normalization", lambda x: _normalized(x), SAME, "native_layer_norm"),
        ("tf.nn.l2_normalize", lambda x: tf.nn.l2_normalize(x, 1),
        lambda x: tf.nn.l2_normalize(x, 2)),
        ("tf.nn.moments", lambda x: tf.nn.moments(x, [0])[1], lambda x: tf.nn.moments(x, [1])[1]),
        ("tf.nn.softmax_cross_entropy_with_logits",
        lambda x: tf.nn.softmax_cross_entropy_with_logits(tf.stop_gradient(tf.ones_like(x)), x),
        lambda x: tf.nn.softmax_cross_entropy_with_logits(tf.ones_like(x), x)),
        ("tf.nn.sigmoid_cross_entropy_with_logits",
        lambda x: tf.nn.sigmoid_cross_entropy_with_logits(tf.ones_like(x), x), SAME, "pointwise"),
        ("tf.nn.l2_loss", tf.nn.l2_loss, SAME)),
    *_of("images of different sizes", IMAGES,
        ("tf.nn.conv2d", lambda x: tf.nn.conv2d(x[None], FILTERS, 1, "SAME")[0],
        lambda x: tf.nn.conv2d(x, FILTERS, 1, "SAME")),
        ("tf.nn.max_pool2d", lambda x: tf.nn.max_pool2d(x[None], 2, 1, "SAME")[0],
        lambda x: tf.nn.max_pool2d(x, 2, 1, "SAME")),
        ("tf.image.resize", lambda x: tf.image.resize(x, [4, 4]), SAME),
        ("tf.image.flip_left_right", lambda x: x[:, ::-1], tf.image.flip_left_right),
        ("global mean", lambda x: tf.reduce_mean(x, [0, 1]), lambda x: tf.reduce_mean(x, [1, 2])),
        ("tf.image.rgb_to_grayscale", tf.image.rgb_to_grayscale, SAME),
        ("tf.image.adjust_brightness", lambda x: tf.image.adjust_brightness(x, 0.1), SAME,
        "pointwise"), ("tf.image.rgb_to_hsv", tf.image.rgb_to_hsv, SAME)),
    *_of("shapes and slices", FLOATS, ("x[0]", lambda x: x[0], lambda x: x[:, 0]),
        ("x[1:]", lambda x: x[1:], lambda x: x[:, 1:]),
        ("x[::-1]", lambda x: x[::-1], lambda x: x[:, ::-1]),
        ("x[:, 1:3]", lambda x: x[:, 1:3], lambda x: x[:, :, 1:3], "slice"),
        ("tf.slice", lambda x: tf.slice(x, [0, 1], [-1, 2]), None),
        ("tf.expand_dims", lambda x: tf.expand_dims(x, 1), lambda x: tf.expand_dims(x, 2),
        "unsqueeze"), ("tf.squeeze", lambda x: tf.squeeze(x[:, :, None], 2),
        lambda x: tf.squeeze(tf.expand_dims(x, 3), 3), "squeeze"),
        ("tf.reshape to one axis", lambda x: tf.reshape(x, [-1]), lambda x: x.merge_dims(1, 2)),
        ("tf.reshape of dense axes", lambda x: tf.reshape(x, [-1, 2, 2]),
        lambda x: tf.reshape(x, [N, -1, 2, 2]), "view"),
        ("tf.transpose", tf.transpose, lambda x: tf.transpose(x, [0, 2, 1]), "transpose"),
        ("tf.concat along the ragged axis", lambda x: tf.concat([x, x], 0),
        lambda x: tf.concat([x, x], 1)),
        ("tf.concat along a dense axis", lambda x: tf.concat([x, x], 1),
        lambda x: tf.concat([x, x], 2), "cat"),
        ("tf.stack", lambda x: tf.stack([x, x], 1), lambda x: tf.stack([x, x], 2), "stack"),
        ("tf.unstack", lambda x: tf.unstack(x, axis=1)[0], lambda x: tf.unstack(x, axis=2)[0]),
        ("tf.split", lambda x: tf.split(x, 2, 1)[0], lambda x: tf.split(x, 2, 2)[0], "split"),
        ("tf.tile", lambda x: tf.tile(x, [2, 1]), lambda x: tf.tile(x, [1, 2, 1])),
        ("tf.repeat", lambda x: tf.repeat(x, 2, 0), lambda x: tf.repeat(x, 2, 1)),
        ("tf.reverse", lambda x: tf.reverse(x, [0]), lambda x: tf.reverse(x, [1])),
        ("tf.roll", lambda x: tf.roll(x, 1, 0), lambda x: tf.roll(x, 1, 1)),
        ("tf.pad", lambda x: tf.pad(x, [[1, 0], [0, 0]]),
        lambda x: tf.pad(x, [[0, 0], [1, 0], [0, 0]])),
        ("tf.pad, mirrored", lambda x: tf.pad(x, [[1, 1], [0, 0]], "SYMMETRIC"),
        lambda x: tf.pad(x, [[0, 0], [1, 1], [0, 0]], "SYMMETRIC")),
        ("tf.shape", tf.shape, SAME, "sym_size"), ("tf.size", tf.size, SAME, "numel"),
        ("tf.broadcast_to", lambda x: tf.broadcast_to(x[:, :1], tf.shape(x)), None, "expand")),
    *_of("gathers, scatters and segments", FLOATS,
        ("tf.gather of a row", lambda x: tf.gather(x, [0, 0]),
        lambda x: tf.gather(x, tf.zeros([N, 2], tf.int32), batch_dims=1)),
        ("tf.boolean_mask", lambda x: tf.boolean_mask(x, x[:, 0] > 0.5),
        lambda x: tf.ragged.boolean_mask(x, x[:, :, 0] > 0.5)),
        ("tf.scatter_nd", lambda x: tf.scatter_nd(tf.range(tf.shape(x)[0])[:, None] % 3, x, [3, D]),
        None), ("tf.math.unsorted_segment_sum",
        lambda x: tf.math.unsorted_segment_sum(x, tf.range(tf.shape(x)[0]) % 2, 2), None),
        ("tf.math.unsorted_segment_max",
        lambda x: tf.math.unsorted_segment_max(x, tf.range(tf.shape(x)[0]) % 2, 2), None),
        ("tf.math.unsorted_segment_mean",
        lambda x: tf.math.unsorted_segment_mean(x, tf.range(tf.shape(x)[0]) % 2, 2), None),
        ("tf.dynamic_partition",
        lambda x: tf.dynamic_partition(x, tf.range(tf.shape(x)[0]) % 2, 2)[0], None),
        ("tf.gather_nd", lambda x: tf.gather_nd(x, [[0, 1], [0, 2]]),
        lambda x: tf.gather_nd(x, [[[0, 0, 1]], [[1, 0, 2]]])),
        ("tf.tensor_scatter_nd_update",
        lambda x: tf.tensor_scatter_nd_update(x, [[0]], [tf.zeros([D])]), None)),
    *_of("of integers", NUMBERS,
        ("tf.gather, an embedding", lambda x: tf.gather(TABLE, x), SAME, "embedding"),
        ("tf.nn.embedding_lookup", lambda x: tf.nn.embedding_lookup(TABLE, x), SAME, "embedding"),
        ("tf.one_hot", lambda x: tf.one_hot(x, 5), SAME),
        ("tf.unique", lambda x: tf.unique(x)[0], None),
        ("tf.unique_with_counts", lambda x: tf.unique_with_counts(x)[2], None),
        ("tf.math.bincount", lambda x: tf.math.bincount(x, minlength=6, maxlength=6),
        lambda x: tf.math.bincount(x, minlength=6, maxlength=6, axis=-1)),
        ("tf.range", lambda x: tf.range(tf.size(x)), lambda x: tf.ragged.range(x.row_lengths())),
        ("tf.sequence_mask", lambda x: tf.sequence_mask(x, 5), None),
        ("tf.sort", tf.sort, lambda x: tf.sort(x)),
        ("tf.argsort", tf.argsort, lambda x: tf.argsort(x)),
        ("tf.searchsorted", lambda x: tf.searchsorted([1, 2, 4], x), None),
        ("tf.cumsum", tf.cumsum, lambda x: tf.cumsum(x, 1)),
        ("tf.where, one argument", lambda x: tf.where(x > 2)[:, 0], lambda x: tf.where(x > 2)),
        ("tf.sets.size of a difference",
        lambda x: tf.sets.size(tf.sets.difference(x[None], tf.constant([[1, 2]]))), None),
        ("tf.sparse.from_dense", lambda x: tf.sparse.reduce_sum(tf.sparse.from_dense(x)), None)),
    *_of("orders and cumulative ops", FLOATS,
        ("tf.math.top_k of a dense axis", lambda x: tf.math.top_k(x, 2)[0], SAME),
        ("tf.math.top_k, k per row", lambda x: tf.math.top_k(x[:, 0], (tf.shape(x)[0] + 1) // 2)[0],
        None), ("a jacobian",
        lambda x: tf_pfor.jacrev(lambda y: tf.reduce_sum(tf.tanh(y @ W), 0))(x), None),
        ("tf.sort along the ragged axis", lambda x: tf.sort(x, 0), lambda x: tf.sort(x, 1)),
        ("tf.math.cumprod", lambda x: tf.math.cumprod(x), lambda x: tf.math.cumprod(x, 1)),
        ("tf.math.cumulative_logsumexp", lambda x: tf.math.cumulative_logsumexp(x),
        lambda x: tf.math.cumulative_logsumexp(x, 1)),
        ("tf.map_fn over items", lambda x: tf.map_fn(lambda r: tf.reduce_sum(r * r), x),
        lambda x: tf.map_fn(lambda r: tf.reduce_sum(r * r, 1), x,
        fn_output_signature=tf.RaggedTensorSpec([None], ragged_rank=0))),
        ("tf.scan over items", lambda x: tf.scan(lambda a, r: 0.5 * a + r, x, tf.zeros([D])), None),
        ("tf.signal.rfft of dense axes", lambda x: tf.abs(tf.signal.rfft(x)), SAME),
        ("tf.signal.frame", lambda x: tf.signal.frame(tf.reshape(x, [-1]), 3, 2), None)),
    *_of("linear algebra of matrices of different sizes", SQUARES,
        ("tf.linalg.cholesky", lambda x: tf.linalg.cholesky(_regular(x)), None),
        ("tf.linalg.inv", lambda x: tf.linalg.inv(_regular(x)), None),
        ("tf.linalg.solve", lambda x: tf.linalg.solve(_regular(x), x), None),
        ("tf.linalg.triangular_solve", lambda x: tf.linalg.triangular_solve(_regular(x), x), None),
        ("tf.linalg.logdet", lambda x: tf.linalg.logdet(_regular(x)), None),
        ("tf.linalg.diag_part", tf.linalg.diag_part, None),
        ("tf.linalg.set_diag", lambda x: tf.linalg.set_diag(x, x[:, 0]), None),
        ("tf.linalg.diag", lambda x: tf.linalg.diag(x[:, 0]), None),
        ("tf.linalg.band_part", lambda x: tf.linalg.band_part(x, 1, 0), None),
        ("tf.linalg.trace", tf.linalg.trace, None),
        ("tf.eye", lambda x: tf.eye(tf.shape(x)[0]), None),
        ("tf.linalg.lstsq", lambda x: tf.linalg.lstsq(_regular(x), x, l2_regularizer=0.5), None)),
    *[dataclasses.replace(c, kind="text", torch="") for c in _elementwise(_STRINGS, TEXTS)],
    *_of("text", TEXTS,
        ("tf.strings.regex_replace", lambda x: tf.strings.regex_replace(x, "a+", "b"), SAME),
        ("tf.strings.regex_full_match", lambda x: tf.strings.regex_full_match(x, "w.*"), SAME),
        ("tf.strings.join", lambda x: tf.strings.join([x, x], " "), SAME),
        ("tf.strings.substr", lambda x: tf.strings.substr(x, 0, 2), SAME),
        ("tf.strings.reduce_join", lambda x: tf.strings.reduce_join(x, 0),
        lambda x: tf.strings.reduce_join(x, 1)),
        ("tf.strings.split",
        lambda x: tf.strings.split(tf.strings.reduce_join(x, 0, separator=" ")),
        lambda x: tf.strings.split(tf.strings.reduce_join(x, 1, separator=" "))),
        ("tf.strings.to_hash_bucket_fast", lambda x: tf.strings.to_hash_bucket_fast(x, 9), SAME),
        ("tf.strings.to_hash_bucket_strong",
        lambda x: tf.strings.to_hash_bucket_strong(x, 9, [1, 2]), SAME),
        ("tf.strings.to_hash_bucket", lambda x: tf.strings.to_hash_bucket(x, 9), SAME),
        ("tf.strings.to_number", lambda x: tf.strings.to_number(tf.as_string(tf.strings.length(x))),
        SAME), ("tf.strings.ngrams", lambda x: tf.strings.ngrams(x, 2), SAME),
        ("tf.strings.unicode_transcode",
        lambda x: tf.strings.unicode_transcode(x, "UTF-8", "UTF-16-BE"), SAME),
        ("tf.strings.unicode_decode of words",
        lambda x: tf.strings.unicode_decode(x, "UTF-8").flat_values,
        lambda x: tf.strings.unicode_decode(x, "UTF-8"))),
]  # fmt: skip


def _normalized(x: Any) -> Any:
    mean = tf.reduce_mean(x, -1, keepdims=True)
    return (x - mean) / tf.sqrt(tf.reduce_mean((x - mean) ** 2, -1, keepdims=True) + 1e-3)
