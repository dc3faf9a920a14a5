"""Protocol buffers, decoded: fields as long as the longest of the row."""

import pytest
import tensorflow as tf

from tests.comparisons import strict_map
from tests.parsing.rows import looped, of_rows

VersionDef = type(tf.compat.v1.GraphDef().versions)
LISTS = [tf.train.Int64List(value=range(k)).SerializeToString() for k in (3, 0, 1, 2)]
VERSIONS = [
    VersionDef(producer=3, bad_consumers=[1, 2]).SerializeToString(),
    VersionDef(min_consumer=4).SerializeToString(),
    b"",
    VersionDef(bad_consumers=[5]).SerializeToString(),
]


def decoded(texts):
    made = tf.raw_ops.DecodeProtoV2(
        bytes=texts, message_type="tensorflow.VersionDef",
        field_names=["producer", "min_consumer", "bad_consumers"],
        output_types=[tf.int32, tf.int32, tf.int32],
    )  # fmt: skip
    return [made.sizes, *made.values]


def of_lists(texts):
    made = tf.raw_ops.DecodeProtoV2(
        bytes=texts, message_type="tensorflow.Int64List", field_names=["value"],
        output_types=[tf.int64],
    )  # fmt: skip
    return [made.sizes, made.values[0] + 1]


def again(texts):
    sizes, values = of_lists(texts)
    return tf.raw_ops.EncodeProto(
        sizes=sizes, values=[values], field_names=["value"], message_type="tensorflow.Int64List"
    )


@pytest.mark.parametrize(
    ("body", "pairs"),
    [(decoded, False), (decoded, True), (of_lists, False), (of_lists, True), (again, True)],
)
def test_messages(body, pairs):
    texts = tf.constant(VERSIONS if body is decoded else LISTS)
    rows = tf.reshape(texts, [2, 2]) if pairs else texts
    found = strict_map(body, rows)
    assert of_rows(found, len(rows)) == looped(body, rows)
