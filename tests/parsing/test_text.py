"""Text and bytes that are decoded in a body, against a Python loop over rows."""

import json

import numpy as np
import pytest
import tensorflow as tf

import tf_pfor
from tests.comparisons import strict_map
from tests.parsing.rows import SITES, check

LINES = tf.constant(["1.5,a b,3,x", '2,"b,c",,', ",,4,y", "0.25,,5,z", "-1,d,6,"])
BYTES = tf.constant([b"abcdefgh", b"", b"ijkl", b"\x00\x01\xff\xfe", b"mnopqrstuvwx"])
EQUAL = tf.constant([b"abcd", b"efgh", b"\xff\xfe\x00\x01"])
JSON = tf.constant([
    json.dumps({"features": {"feature": {"a": {"int64List": {"value": [k]}}}}}) for k in range(4)
])  # fmt: skip
DEFAULTS = [[0.5], ["none"], [7]]


def with_shape(x):
    found = tf.io.decode_raw(x, tf.uint8)
    found.set_shape([4])
    return found


def columns(line):
    found = tf.io.decode_csv(line, DEFAULTS, select_cols=[0, 1, 2])
    return found[0] * 2.0, tf.strings.length(found[1]), found[2]


BODIES = {
    "columns": (columns, LINES),
    "tabs": (
        lambda x: tuple(tf.io.decode_csv(x, [[0], [0]], "\t", na_value="-")),
        tf.constant(["1\t2", "-\t3", "4\t-"]),
    ),
    "one column": (lambda x: tf.io.decode_csv(x, [["-"]], select_cols=[1]), LINES),
    "json": (tf.io.decode_json_example, JSON),
    "compressed": (lambda x: tf.io.decode_compressed(x, ""), BYTES),
    "base64": (lambda x: tf.io.decode_base64(tf.io.encode_base64(x, pad=True)), BYTES),
    "padded": (lambda x: tf.io.decode_raw(x, tf.int16, fixed_length=6), BYTES),
    "padded, big end first": (
        lambda x: tf.io.decode_raw(x, tf.int32, little_endian=False, fixed_length=4), BYTES),
    "equally long, said before": (with_shape, EQUAL),
    "equally long, said after": (
        lambda x: tf.ensure_shape(tf.io.decode_raw(x, tf.int16), [2]) + 1, EQUAL),
    "pixels": (
        lambda x: tf.cast(tf.reshape(tf.io.decode_raw(x, tf.uint8), [2, 2]), tf.float32) * 0.5,
        EQUAL),
    "of own length, summed": (
        lambda x: tf.reduce_sum(tf.cast(tf.io.decode_raw(x, tf.uint8), tf.int32)), BYTES),
    "of own length, pairs": (
        lambda x: tf.reshape(tf.io.decode_raw(x, tf.int16), [-1, 2]), BYTES),
    "how many": (lambda x: tf.size(tf.io.decode_raw(x, tf.int16)), BYTES),
    "a vector": (
        lambda x: tf.io.decode_raw(tf.stack([x, x]), tf.int16), BYTES),
    "a matrix, of one length": (
        lambda x: tf.io.decode_raw([[x, x], [x, x]], tf.int8), EQUAL),
    "bytes of lines": (
        lambda x: tuple(tf.io.decode_csv(tf.stack([x, x]), DEFAULTS, select_cols=[0, 1, 2])),
        LINES),
}  # fmt: skip
for dtype in (tf.uint8, tf.int16, tf.int32, tf.float16, tf.float32):
    for end in (True, False):
        BODIES[f"of own length, {dtype.name}, {end}"] = (
            lambda x, dtype=dtype, end=end: tf.io.decode_raw(x, dtype, little_endian=end),
            tf.constant([b"abcdefgh", b"", b"\x00\x3c\x00\x40"]),
        )


@pytest.mark.parametrize("site", SITES)
@pytest.mark.parametrize("name", BODIES)
def test_values(name, site):
    body, texts = BODIES[name]
    check(body, texts, site, fallback_to_while_loop=False)


@pytest.mark.parametrize("n", [0, 1])
@pytest.mark.parametrize("name", BODIES)
def test_few_rows(name, n):
    body, texts = BODIES[name]
    for site in ("eager", "unknown n"):
        check(body, texts[:n], site, fallback_to_while_loop=False)


@pytest.mark.parametrize("dtype", [tf.bool, tf.complex64, tf.complex128, tf.float64, tf.int64])
def test_other_numbers(dtype):
    numbers = [np.arange(k).astype(dtype.as_numpy_dtype) for k in (3, 0, 2)]
    texts = tf.constant([x.tobytes() for x in numbers])
    found = tf_pfor.vectorized_map(lambda x: tf.io.decode_raw(x, dtype), texts)
    assert found.to_list() == [x.tolist() for x in numbers]


def test_length_that_is_no_multiple():
    """Four bytes more in one row do not make up for two less in another."""
    texts = tf.constant([b"abc", b"defgh"])
    for body in (lambda x: tf.io.decode_raw(x, tf.int16),
                 lambda x: tf.size(tf.io.decode_raw(x, tf.int16))):  # fmt: skip
        with pytest.raises(tf.errors.InvalidArgumentError, match="no multiple of 2"):
            tf_pfor.vectorized_map(body, texts)


def test_strings_of_a_row_that_differ():
    texts = tf.constant([[b"ab", b"cd"], [b"ef", b"ghij"]])
    with pytest.raises(tf.errors.InvalidArgumentError, match="differ in length"):
        tf_pfor.vectorized_map(lambda x: tf.io.decode_raw(x, tf.int16), texts)


def test_another_length_than_said():
    for texts in ([b"abc", b"def"], [b"abcd", b"abc"]):
        with pytest.raises(tf.errors.InvalidArgumentError):
            tf_pfor.vectorized_map(with_shape, tf.constant(texts))


def test_reshape_of_rows_that_do_not_fill_it():
    def pixels(x):
        return tf.reshape(tf.io.decode_raw(x, tf.uint8), [2, 2])

    with pytest.raises(tf.errors.InvalidArgumentError, match="do not fill its new shape"):
        tf_pfor.vectorized_map(pixels, tf.constant([b"abc", b"defgh"]))


def test_broken_line():
    with pytest.raises(tf.errors.InvalidArgumentError, match="not a valid float"):
        tf_pfor.vectorized_map(columns, tf.constant(["1,a,2,", "x,a,2,"]))


def test_ragged_lines():
    """Lines, as many as a row says."""
    lines = tf.ragged.constant([["1,a", "2,b"], [], ["3,c"]])
    found = strict_map(lambda x: tf.io.decode_csv(x, [[0], [""]]), lines)
    assert found[0].to_list() == [[1, 2], [], [3]]
    assert found[1].to_list() == [[b"a", b"b"], [], [b"c"]]


def test_ragged_padded():
    texts = tf.ragged.constant([["ab", "cde"], [], ["f"]])
    found = strict_map(
        lambda x: tf.io.decode_raw(x, tf.uint8, fixed_length=2), texts)  # fmt: skip
    assert found.to_list() == [[[97, 98], [99, 100]], [], [[102, 0]]]


def test_maps_in_maps():
    texts = tf.constant([["1,a", "2,b"], ["3,c", "4,d"]])

    def inner(row):
        return tf_pfor.vectorized_map(lambda x: tf.io.decode_csv(x, [[0], [""]]), row)

    found = strict_map(inner, texts)
    assert found[0].numpy().tolist() == [[1, 2], [3, 4]]
    assert found[1].numpy().tolist() == [[b"a", b"b"], [b"c", b"d"]]
