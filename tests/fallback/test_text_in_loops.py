"""Texts of a row: split, looked up, made dense; as a loop over the rows does it."""

import keras
import numpy as np
import pytest
import tensorflow as tf

import tf_pfor

pytestmark = pytest.mark.filterwarnings("ignore::tf_pfor.FallbackWarning")

TEXTS = tf.constant(["a b C", "hello", "", "a b, hello a b"])
WORDS = ["a", "b", "hello"]
L = keras.layers
TABLE = tf.lookup.StaticHashTable(tf.lookup.KeyValueTensorInitializer(WORDS, [1, 2, 3]), -1)
BUCKETS = tf.lookup.StaticVocabularyTable(
    tf.lookup.KeyValueTensorInitializer(WORDS, tf.range(3, dtype=tf.int64)), 2
)
WORD_IDS = L.TextVectorization(output_sequence_length=4, vocabulary=WORDS)
PAIRS = L.TextVectorization(output_sequence_length=4, ngrams=2, vocabulary=WORDS)
IS_IN = L.TextVectorization(output_mode="multi_hot", vocabulary=WORDS)
LOOKUP = L.StringLookup(vocabulary=WORDS)

BODIES = {
    "bytes": lambda s: tf.reduce_sum(tf.io.decode_raw(s, tf.uint8)),
    "characters": lambda s: tf.size(tf.strings.bytes_split(s)),
    "found": lambda s: tf.reduce_sum(TABLE.lookup(tf.strings.split(s))),
    "in buckets": lambda s: tf.reduce_sum(BUCKETS.lookup(tf.strings.split(s))),
    "longest": lambda s: tf.reduce_max(tf.strings.length(tf.strings.split(s + " x"))),
    "lower, split": lambda s: tf.size(tf.strings.split(tf.strings.lower(tf.strings.strip(s)))),
    "padded": lambda s: LOOKUP(tf.strings.split(s[None]).to_tensor("", shape=[1, 5])),
    "rejoined": lambda s: tf.strings.reduce_join(tf.strings.split(s), separator="-"),
    "TextVectorization": lambda s: WORD_IDS(s[None])[0],
    "TextVectorization, multi_hot": lambda s: IS_IN(s[None])[0],
    "TextVectorization, pairs": lambda s: PAIRS(s[None])[0],
}  # fmt: skip


def _loop(body, rows):
    return np.stack([body(r) for r in rows])


def _in_a_data_set(fn, rows):
    (found,) = tf.data.Dataset.from_tensor_slices(rows).batch(8).map(lambda x: _map(fn, x))
    return found


def _map(fn, rows, **options):
    return tf_pfor.vectorized_map(fn, rows, **options)


def _of_unknown_size(fn, rows):
    mapped = tf.function(lambda x: _map(fn, x), input_signature=[tf.TensorSpec([None], tf.string)])
    return mapped(rows)


def _in_a_map(fn, rows):
    found = _map(lambda r: _map(fn, r), tf.reshape(rows, [2, -1]))
    return tf.reshape(found, tf.concat([[-1], tf.shape(found)[2:]], 0))


MAPS = {
    "data": _in_a_data_set,
    "fixed": lambda fn, rows: tf.function(lambda x: _map(fn, x))(rows),
    "in a map": _in_a_map,
    "vectorized_map": _map,
    "unknown": _of_unknown_size,
}


@pytest.mark.parametrize("name", sorted(BODIES))
def test_texts(name):
    np.testing.assert_array_equal(_map(BODIES[name], TEXTS), _loop(BODIES[name], TEXTS))


@pytest.mark.parametrize("where", sorted(MAPS))
@pytest.mark.parametrize("name", ["found", "lower, split", "TextVectorization"])
def test_wherever_it_is_called(name, where):
    np.testing.assert_array_equal(MAPS[where](BODIES[name], TEXTS), _loop(BODIES[name], TEXTS))


@pytest.mark.parametrize("n", [0, 1])
@pytest.mark.parametrize("where", ["unknown", "vectorized_map"])
def test_few_rows(where, n):
    found = MAPS[where](BODIES["TextVectorization"], TEXTS[:n])
    assert found.shape == (n, 4)
    if n:
        np.testing.assert_array_equal(found, _loop(BODIES["TextVectorization"], TEXTS[:n]))


def test_texts_of_one_length_are_a_result():
    rows = tf.constant(["a b", "b c"])
    found = _map(lambda s: TABLE.lookup(tf.strings.split(s)), rows)
    assert found.numpy().tolist() == [[1, 2], [2, -1]]


@pytest.mark.parametrize(
    "body",
    [
        lambda s: TABLE.lookup(tf.strings.split(s)),
        lambda s: tf.strings.length(tf.strings.split(tf.strings.lower(s))),
        lambda s: tf.strings.split(s),
    ],
)
def test_results_of_different_lengths(body):
    found = _map(body, TEXTS)
    assert isinstance(found, tf.RaggedTensor)
    assert found.to_list() == [body(s).numpy().tolist() for s in TEXTS]
    with pytest.raises(tf.errors.InvalidArgumentError) as caught:
        _map(body, TEXTS, out_shapes="dense")
    assert "differs between iterations" in str(caught.value)
    assert "test_text_in_loops.py" in str(caught.value)
    assert "Mismatch" not in str(caught.value)


@pytest.mark.parametrize("where", ["vectorized_map", "unknown"])
def test_a_shape_that_set_shape_claims_is_checked(where):
    """By the loop, which names the line; the kernel that runs rows would name itself."""

    def body(s):
        made = tf.io.decode_raw(s, tf.uint8)
        made.set_shape([2])
        return made

    found = MAPS[where](body, tf.constant(["ab", "cd"]))
    assert found.numpy().tolist() == [[97, 98], [99, 100]]
    with pytest.raises(tf.errors.InvalidArgumentError, match=r"DecodeRaw(.|\n)*test_text"):
        MAPS[where](body, tf.constant(["ab", "cde"]))
