"""Protocol buffers, decoded: fields as long as the longest of the row."""

import tensorflow as tf

from tests.ways import table_of

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


TEXTS = {decoded: tf.constant(VERSIONS), of_lists: tf.constant(LISTS), again: tf.constant(LISTS)}
CASES = {body.__name__: (body, texts) for body, texts in TEXTS.items() if body is not again}
PAIRS = {
    f"pairs, {body.__name__}": (body, tf.reshape(texts, [2, 2])) for body, texts in TEXTS.items()
}
test_table_of_messages = table_of({**CASES, **PAIRS}, ways=["eager"])
