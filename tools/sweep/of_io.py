"""Sweep of tf.io and tf.audio, and the codecs of tf.image."""

from __future__ import annotations

from typing import Any

import numpy as np
import tensorflow as tf

from tools.sweep.cases import Case, N, Rows, body, call, each, integers, positive

_RNG = np.random.default_rng(11)


def _pictures(*shape: int) -> np.ndarray:
    return _RNG.integers(0, 256, (N, *shape)).astype(np.uint8)


def _encoded(fn: Any, values: Any) -> Rows:
    return Rows([fn(x).numpy() for x in values])


def _example(i: int) -> bytes:
    ints = tf.train.Int64List(value=range(i + 1))
    feature = {
        "x": tf.train.Feature(float_list=tf.train.FloatList(value=[i, i + 0.5])),
        "k": tf.train.Feature(int64_list=ints),
        "s": tf.train.Feature(bytes_list=tf.train.BytesList(value=[b"row%d" % i])),
    }
    return tf.train.Example(features=tf.train.Features(feature=feature)).SerializeToString()


def _sequence(i: int) -> bytes:
    steps = [
        tf.train.Feature(float_list=tf.train.FloatList(value=[float(t), float(i)]))
        for t in range(i + 1)
    ]
    lists = tf.train.FeatureLists(feature_list={"t": tf.train.FeatureList(feature=steps)})
    ints = tf.train.Feature(int64_list=tf.train.Int64List(value=[i]))
    context = tf.train.Features(feature={"k": ints})
    return tf.train.SequenceExample(context=context, feature_lists=lists).SerializeToString()


_EVEN = _pictures(4, 5, 3)
_JPEG, _PNG = _encoded(tf.io.encode_jpeg, _EVEN), _encoded(tf.io.encode_png, _EVEN)
_UNEVEN = _encoded(tf.io.encode_png, [x[: 2 + i] for i, x in enumerate(_EVEN)])
_EXAMPLES = Rows([_example(i) for i in range(N)])
_SEQUENCES = Rows([_sequence(i) for i in range(N)])
_WAV = _encoded(lambda x: tf.audio.encode_wav(x, 8000), _RNG.uniform(-1, 1, (N, 6, 1)))
_TENSORS = _encoded(tf.io.serialize_tensor, _RNG.normal(size=(N, 3)).astype(np.float32))
_FIXED = {"x": tf.io.FixedLenFeature([2], tf.float32), "s": tf.io.FixedLenFeature([], tf.string)}
_GIF = tf.constant(
    b"GIF89a\x01\x00\x01\x00\x80\x00\x00\xff\xff\xff\x00\x00\x00!\xf9\x04\x01\x00\x00\x00\x00,"
    b"\x00\x00\x00\x00\x01\x00\x01\x00\x00\x02\x02D\x01\x00;"
)


def _bmp(rgb: tuple[int, int, int]) -> bytes:
    size = (70).to_bytes(4, "little")
    head = b"BM" + size + bytes(4) + (54).to_bytes(4, "little") + (40).to_bytes(4, "little")
    two = (2).to_bytes(4, "little")
    head += two + two + b"\x01\x00\x18\x00" + bytes(4) + (16).to_bytes(4, "little") + bytes(16)
    return head + (bytes(rgb) * 2 + bytes(2)) * 2


_BMP = Rows([_bmp((i, 2 * i, 7)) for i in range(N)])


def _features(kind: Any) -> Any:
    return lambda x: tf.io.parse_single_example(x, {"k": kind})


IO: list[Case] = [
    *each("tf.io", "encode_base64", Rows([["ab", "c"], ["de", "f"], ["g", "hij"]])),
    call("tf.io.decode_base64", Rows([["YWI", "Yw"], ["ZGU", "Zg"], ["Zw", "aGlq"]])),
    call("tf.io.decode_raw", Rows([[b"abcd"], [b"efgh"], [b"ijkl"]]), tf.uint8),
    call("tf.io.decode_raw", Rows([b"abcd", b"ef", b"ijklmn"]), tf.int16, label="variable length"),
    call("tf.io.decode_csv", Rows(["1,2.5,a", "2,3.5,b", "3,1.0,"]), [[0], [0.0], [""]]),
    call("tf.io.decode_csv", Rows([["1,2"], ["3,"], [",4"]]), [[7], integers(1)],
        label="default of the row"),
    body("tf.io.decode_compressed", lambda x: tf.io.decode_compressed(x, "ZLIB"),
        Rows([__import__("zlib").compress(b"row%d" % i) for i in range(N)])),
    call("tf.io.decode_json_example", Rows(['{"features": {"feature": {}}}'] * N)),
    call("tf.io.decode_proto", _EXAMPLES, "tensorflow.Example", ["features"], [tf.string],
        label=""),
    body("tf.io.encode_proto",
        lambda x: tf.io.encode_proto(tf.ones([1, 1], tf.int32), [x[None]], ["value"],
        "tensorflow.Int64List"), integers(1, dtype=np.int64)),
    call("tf.io.parse_single_example", _EXAMPLES, _FIXED),
    body("tf.io.parse_single_example", _features(tf.io.VarLenFeature(tf.int64)), _EXAMPLES,
        label="sparse"),
    body("tf.io.parse_single_example", _features(tf.io.RaggedFeature(tf.int64)), _EXAMPLES,
        label="ragged"),
    body("tf.io.parse_single_example",
        _features(tf.io.FixedLenSequenceFeature([], tf.int64, allow_missing=True)), _EXAMPLES,
        label="variable length"),
    body("tf.io.parse_example", lambda x: tf.io.parse_example(x[None], _FIXED), _EXAMPLES),
    call("tf.io.parse_single_sequence_example", _SEQUENCES,
        {"k": tf.io.FixedLenFeature([], tf.int64)},
        {"t": tf.io.FixedLenSequenceFeature([2], tf.float32)}),
    body("tf.io.parse_sequence_example",
        lambda x: tf.io.parse_sequence_example(x[None], {"k": tf.io.FixedLenFeature([], tf.int64)},
        {"t": tf.io.FixedLenSequenceFeature([2], tf.float32)})[:2], _SEQUENCES),
    call("tf.io.parse_tensor", _TENSORS, tf.float32),
    call("tf.io.serialize_tensor", positive(3)),
    body("tf.io.serialize_sparse", lambda v: tf.io.serialize_sparse(tf.sparse.from_dense(v)),
        positive(3)),
    body("tf.io.serialize_many_sparse",
        lambda v: tf.io.serialize_many_sparse(tf.sparse.from_dense(v)), positive(2, 3)),
    body("tf.io.deserialize_many_sparse",
        lambda v:
        tf.io.deserialize_many_sparse(tf.io.serialize_many_sparse(tf.sparse.from_dense(v)),
        tf.float32, rank=2), positive(2, 3)),
    *each("tf.io", "decode_jpeg decode_image is_jpeg extract_jpeg_shape", _JPEG),
    call("tf.io.decode_png", _PNG),
    call("tf.io.decode_png", _UNEVEN, label="variable size"),
    call("tf.io.decode_bmp", _BMP),
    body("tf.io.decode_gif", lambda i: tf.io.decode_gif(tf.strings.join([_GIF, i])),
        Rows([""] * N)),
    call("tf.io.decode_and_crop_jpeg", _JPEG, [1, 1, 2, 3]),
    *each("tf.io", "encode_jpeg encode_png", Rows(_EVEN)),
    *each("tf.image", "random_contrast random_saturation", Rows(_EVEN), 0.5, 0.9, random=True),
    *each("tf.image", "random_flip_up_down", Rows(_EVEN), random=True),
    call("tf.image.random_hue", Rows(_EVEN), 0.2, random=True),
    call("tf.image.random_jpeg_quality", Rows(_EVEN), 50, 90, random=True),
    call("tf.image.adjust_jpeg_quality", Rows(_EVEN), 80),
    call("tf.image.convert_image_dtype", Rows(_EVEN), tf.float32),
    call("tf.image.convert_image_dtype", positive(2, 2, 3), tf.uint8, saturate=True, label="back"),
    call("tf.image.stateless_random_flip_up_down", Rows(_EVEN), integers(2)),
    call("tf.image.stateless_random_jpeg_quality", Rows(_EVEN), 50, 90, integers(2)),
    call("tf.audio.decode_wav", _WAV),
    call("tf.audio.encode_wav", positive(6, 1), 8000),
    call("tf.io.read_file", tf.constant(__file__), label="shared"),
    call("tf.io.matching_files", tf.constant(__file__), label="shared"),
]  # fmt: skip
