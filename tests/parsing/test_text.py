"""Text and bytes that are decoded in a body, against a Python loop over rows."""

import json

import numpy as np
import tensorflow as tf

from tests.parsing.rows import EXACT, WAYS
from tests.ways import errors_of, table_of

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
    "tabs": (lambda x: tuple(tf.io.decode_csv(x, [[0], [0]], "\t", na_value="-")),
        tf.constant(["1\t2", "-\t3", "4\t-"])),
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
    "pixels": (lambda x: tf.cast(tf.reshape(tf.io.decode_raw(x, tf.uint8), [2, 2]),
        tf.float32) * 0.5, EQUAL),
    "of own length, summed": (
        lambda x: tf.reduce_sum(tf.cast(tf.io.decode_raw(x, tf.uint8), tf.int32)), BYTES),
    "of own length, pairs": (lambda x: tf.reshape(tf.io.decode_raw(x, tf.int16), [-1, 2]), BYTES),
    "how many": (lambda x: tf.size(tf.io.decode_raw(x, tf.int16)), BYTES),
    "a vector": (lambda x: tf.io.decode_raw(tf.stack([x, x]), tf.int16), BYTES),
    "a matrix, of one length": (lambda x: tf.io.decode_raw([[x, x], [x, x]], tf.int8), EQUAL),
    "bytes of lines": (lambda x: tuple(tf.io.decode_csv(tf.stack([x, x]), DEFAULTS,
        select_cols=[0, 1, 2])), LINES),
}  # fmt: skip
for dtype in (tf.uint8, tf.int16, tf.int32, tf.float16, tf.float32):
    for end in (True, False):
        BODIES[f"of own length, {dtype.name}, {end}"] = (
            lambda x, dtype=dtype, end=end: tf.io.decode_raw(x, dtype, little_endian=end),
            tf.constant([b"abcdefgh", b"", b"\x00\x3c\x00\x40"]),
        )
for dtype in (tf.bool, tf.complex64, tf.complex128, tf.float64, tf.int64):
    numbers = [np.arange(k).astype(dtype.as_numpy_dtype).tobytes() for k in (3, 0, 2)]
    BODIES[f"of own length, {dtype.name}"] = (
        lambda x, dtype=dtype: tf.io.decode_raw(x, dtype), tf.constant(numbers),
    )  # fmt: skip
PAIRS = tf.constant([["1,a", "2,b"], ["3,c", "4,d"]])
OTHERS = {
    # Lines, as many as a row says.
    "ragged lines": (
        lambda x: tf.io.decode_csv(x, [[0], [""]]),
        tf.ragged.constant([["1,a", "2,b"], [], ["3,c"]])),
    "ragged padded": (
        lambda x: tf.io.decode_raw(x, tf.uint8, fixed_length=2),
        tf.ragged.constant([["ab", "cde"], [], ["f"]])),
    "lines": (lambda x: tf.io.decode_csv(x, [[0], [""]]), tf.reshape(PAIRS, [-1])),
}  # fmt: skip
test_table_of_texts = table_of(BODIES, ways=WAYS, tolerance=EXACT)
test_table_of_others = table_of(
    OTHERS, ways=["eager", "two maps"], only={"two maps": ["lines"]}, tolerance=EXACT
)

UNEVEN = tf.constant([b"abc", b"defgh"])  # as many bytes in all as of one length
test_errors = errors_of({
    "no multiple": (lambda x: tf.io.decode_raw(x, tf.int16), UNEVEN, "no multiple of 2"),
    "the size of no multiple": (
        lambda x: tf.size(tf.io.decode_raw(x, tf.int16)), UNEVEN, "no multiple of 2"),
    "strings of a row that differ": (
        lambda x: tf.io.decode_raw(x, tf.int16),
        tf.constant([[b"ab", b"cd"], [b"ef", b"ghij"]]), "differ in length"),
    "another length than said": (with_shape, tf.constant([b"abc", b"def"])),
    "another length in one row": (with_shape, tf.constant([b"abcd", b"abc"])),
    "rows that do not fill a shape": (
        lambda x: tf.reshape(tf.io.decode_raw(x, tf.uint8), [2, 2]), UNEVEN,
        "do not fill its new shape"),
    "a broken line": (columns, tf.constant(["1,a,2,", "x,a,2,"]), "not a valid float"),
})  # fmt: skip
