"""Images, sounds and tensors: kernels for one of them, run for all rows; against a Python loop."""

import warnings

import tensorflow as tf

import tf_pfor
from tests.parsing.rows import EXACT, WAYS
from tests.ways import errors_of, table_of


def picture(i, height, width, channels=3):
    drawn = tf.random.stateless_uniform([height, width, channels], [i, 1], 0, 255, tf.int32)
    return tf.cast(drawn, tf.uint8)


UNEVEN = [picture(i, 3 + i, 6 - i) for i in range(4)]
EVEN = [picture(i, 4, 5) for i in range(4)]
JPEG = tf.stack([tf.io.encode_jpeg(x) for x in UNEVEN])
PNG = tf.stack([tf.io.encode_png(x) for x in UNEVEN])
PNG_EVEN = tf.stack([tf.io.encode_png(x) for x in EVEN])
MIXED = tf.stack([JPEG[0], PNG[1], JPEG[2], PNG[3]])
WAV = tf.stack([tf.audio.encode_wav(tf.ones([3 + i, 1]) * 0.25 * i, 8000 + i) for i in range(4)])
TENSORS = tf.stack([tf.io.serialize_tensor(tf.range(2.0) + i) for i in range(3)])
PICTURES = tf.stack(EVEN)


def resized(x):
    image = tf.image.resize(tf.io.decode_jpeg(x, channels=3), [4, 4])
    return image / 255.0, tf.reduce_mean(image)


def cropped(x):
    image = tf.io.decode_png(x, channels=3)
    return tf.cast(image[:4, :2], tf.float32) * 0.5


def middle(x):
    image = tf.io.decode_jpeg(x, channels=3)
    start = (tf.shape(image)[:2] - 2) // 2
    return tf.slice(image, [start[0], start[1], 0], [2, 2, 3])


def sized(x):
    image = tf.io.decode_png(x, channels=1)
    image.set_shape([4, 5, 1])
    return image


BODIES = {
    "jpeg": (lambda x: tf.io.decode_jpeg(x, channels=3), JPEG),
    "png": (lambda x: tf.io.decode_png(x, channels=4), PNG),
    "jpeg or png": (lambda x: tf.io.decode_image(x, channels=3, expand_animations=False), MIXED),
    "numbers": (lambda x: tf.cast(tf.io.decode_png(x, channels=3), tf.float32) * 0.5, PNG),
    "brightness": (
        lambda x: tf.reduce_sum(tf.cast(tf.io.decode_png(x, channels=3), tf.int32)), PNG),
    "its shape": (lambda x: tf.shape(tf.io.decode_png(x, channels=3)), PNG),
    "of one shape": (sized, PNG_EVEN),
    "ensured": (lambda x: tf.ensure_shape(tf.io.decode_png(x, channels=3), [4, 5, 3]), PNG_EVEN),
    "ensured, of unknown rank": (
        lambda x: tf.ensure_shape(tf.io.decode_image(x, channels=3), [4, 5, 3]), PNG_EVEN),
    "cropped": (cropped, PNG),
    "cropped to one shape": (middle, JPEG),
    "flipped": (lambda x: tf.reverse(tf.io.decode_png(x, channels=3), [1]), PNG),
    "padded": (lambda x: tf.pad(tf.io.decode_png(x, channels=1), [[1, 1], [0, 2], [0, 0]]), PNG),
    "beside each other": (lambda x: tf.concat([tf.io.decode_png(x, channels=3)] * 2, 1), PNG),
    "wide numbers": (lambda x: tf.io.decode_png(x, channels=3, dtype=tf.uint16), PNG),
    "sizes only": (tf.io.extract_jpeg_shape, JPEG),
    "part of a jpeg": (lambda x: tf.io.decode_and_crop_jpeg(x, [0, 1, 2, 2], channels=3), JPEG),
    "sound": (lambda x: tuple(tf.audio.decode_wav(x)), WAV),
    "sound of one length": (
        lambda x: tuple(tf.audio.decode_wav(x, desired_channels=1, desired_samples=6)), WAV),
    "loudness": (lambda x: tf.reduce_sum(tf.audio.decode_wav(x, desired_channels=1).audio), WAV),
    "to jpeg": (lambda x: tf.io.encode_jpeg(x, quality=90), PICTURES),
    "to png": (lambda x: tf.io.encode_png(x), PICTURES),
    "to jpeg and back": (
        lambda x: tf.ensure_shape(tf.io.decode_jpeg(tf.io.encode_jpeg(x)), [4, 5, 3]), PICTURES),
    "to sound": (lambda x: tf.audio.encode_wav(x, 8000), tf.ones([3, 4, 1]) * 0.5),
    "serialized": (tf.io.serialize_tensor, tf.reshape(tf.range(12.0), [3, 2, 2])),
    "parsed": (lambda x: tf.ensure_shape(tf.io.parse_tensor(x, tf.float32), [2]) * 2.0, TENSORS),
}  # fmt: skip
# One loop by the kernel, without a warning.
LOOP = {"options": {"fallback": "loop"}}
test_table_of_media = table_of(
    BODIES, ways=[*WAYS, "two maps"], only={"two maps": ["ensured"]},
    looped={"two maps": ["ensured"]}, tolerance=EXACT, **LOOP,
)  # fmt: skip
test_table_of_resized = table_of({"resized": (resized, JPEG)}, ways=WAYS, **LOOP)
test_errors = errors_of(
    {
        "another shape than set": (sized, PNG),
        "another shape than ensured": (BODIES["ensured"][0], PNG),
        "no image": (BODIES["png"][0], tf.concat([PNG, [b"no image"]], 0)),
    },
    **LOOP["options"],
)
_parsed = lambda x: tf.io.parse_tensor(x, tf.float32)
test_table_of_no_rows = table_of(
    {"ensured": (BODIES["parsed"][0], TENSORS)}, ways=["no rows", "unknown n, few rows"], **LOOP
)
# Nobody knows the shape of a result; a row that stands in for one has no tensor to parse.
test_errors_of_no_rows = errors_of(
    {"parsed": (_parsed, TENSORS[:0]), "image": (tf.io.decode_image, PNG[:0])},
    match="there are no rows.*tf.ensure_shape", warn=False, **LOOP["options"],
)  # fmt: skip


def test_it_is_reported():
    """``explain`` says that rows are decoded one by one, by what."""
    records = tf_pfor.explain(BODIES["jpeg"][0], JPEG).records
    assert [(r.op_type, r.outcome.value) for r in records] == [("DecodeJpeg", "looped")]
    assert "for all rows in parallel" in records[0].reason


def test_padded_result():
    found = tf_pfor.vectorized_map(BODIES["png"][0], PNG, out_shapes="padded")
    for made, text in zip(found, PNG, strict=True):
        image = tf.io.decode_png(text, channels=4)
        height, width, _ = image.shape
        assert tf.reduce_all(made[:height, :width] == image)
        assert tf.reduce_sum(tf.cast(made, tf.int32)) == tf.reduce_sum(tf.cast(image, tf.int32))


def test_a_training_example():
    """The steps of a tf.data pipeline: parse, decode, resize, scale."""

    def serialized(image, label):
        features = {
            "image": tf.train.Feature(bytes_list=tf.train.BytesList(value=[image.numpy()])),
            "label": tf.train.Feature(int64_list=tf.train.Int64List(value=[label])),
        }
        made = tf.train.Features(feature=features)
        return tf.train.Example(features=made).SerializeToString()

    texts = tf.constant([serialized(x, k) for k, x in enumerate(JPEG)])

    def one(text):
        row = tf.io.parse_single_example(
            text,
            {
                "image": tf.io.FixedLenFeature([], tf.string),
                "label": tf.io.FixedLenFeature([], tf.int64),
            },
        )
        image = tf.io.decode_jpeg(row["image"], channels=3)
        return tf.image.resize(image, [8, 8]) / 255.0, row["label"]

    with warnings.catch_warnings():
        warnings.simplefilter("error", tf_pfor.FallbackWarning)
        data = tf.data.Dataset.from_tensor_slices(texts).batch(3)
        pieces = [*data.map(lambda x: tf_pfor.vectorized_map(one, x))]
    images, labels = (tf.concat(column, 0) for column in zip(*pieces, strict=True))
    expected = tf.stack([one(x)[0] for x in texts])
    tf.debugging.assert_near(images, expected, rtol=1e-5, atol=1e-5)
    assert labels.numpy().tolist() == [0, 1, 2, 3]


def test_files(tmp_path):
    names = [str(tmp_path / f"{i}.jpg") for i in range(4)]
    for name, content in zip(names, JPEG.numpy()):
        (tmp_path / name).write_bytes(content)
    pattern = str(tmp_path / "[01].jpg")
    with warnings.catch_warnings():
        warnings.simplefilter("error", tf_pfor.FallbackWarning)
        found = tf_pfor.vectorized_map(tf.io.read_file, tf.constant(names))
        small = tf_pfor.vectorized_map(lambda x: resized(tf.io.read_file(x)), tf.constant(names))
        listed = tf_pfor.vectorized_map(tf.io.matching_files, tf.constant([pattern, names[3]]))
    assert found.numpy().tolist() == JPEG.numpy().tolist()
    assert small[0].shape == [4, 4, 4, 3]
    assert listed.to_list() == [[n.encode() for n in names[:2]], [names[3].encode()]]
