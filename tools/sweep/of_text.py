"""Sweep of tf.strings and tf.lookup."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf

from tools.sweep.cases import Case, Rows, ascending, body, call, each, floats, integers, positive

_WORD = Rows(["Hello", "wörld", ""])
_WORDS = Rows([["a b", "c"], ["D e f", ""], ["x", "yy  z"]])
_TEXT = Rows(["to be or", "not", "to be"])
_DIGITS = Rows([["1", "2.5"], ["-3", "4e2"], ["0", "7"]])
_CODES = integers(4, low=97, high=120)
_SENTENCES = Rows([["a", "b", "c", "d"], ["x", "y", "z", "x"], ["p", "q", "r", "s"]])
_KEYS = tf.constant(["to", "be", "or"])


def _static(default: int = -1) -> Any:
    given = tf.lookup.KeyValueTensorInitializer(_KEYS, tf.constant([10, 20, 30], tf.int64))
    return tf.lookup.StaticHashTable(given, default)


def _vocabulary() -> Any:
    given = tf.lookup.KeyValueTensorInitializer(_KEYS, tf.constant([0, 1, 2], tf.int64))
    return tf.lookup.StaticVocabularyTable(given, 2)


def _mutable() -> Any:
    table = tf.lookup.experimental.MutableHashTable(tf.string, tf.int64, -1)
    table.insert(_KEYS, tf.constant([10, 20, 30], tf.int64))
    return table


def _dense() -> Any:
    table = tf.lookup.experimental.DenseHashTable(tf.string, tf.int64, -1, "", "$")
    table.insert(_KEYS, tf.constant([10, 20, 30], tf.int64))
    return table


def _looked_up(make: Callable[[], Any]) -> Callable[[Any], Any]:
    table = make()
    return lambda x: table.lookup(tf.strings.split(x))


def _found(make: Callable[[], Any]) -> Callable[[Any], Any]:
    table = make()
    return lambda x: table.lookup(tf.strings.substr(x, 0, 2))


def _sized(table: Any) -> Callable[[Any], Any]:
    return lambda x: table.size() + tf.cast(x, tf.int64)


TEXT: list[Case] = [
    *each("tf.strings", "lower upper strip length bytes_split", _WORDS),
    *each("tf.strings", "lower upper", _WORD, encoding="utf-8", label="utf-8"),
    call("tf.strings.length", _WORD, unit="UTF8_CHAR", label="characters"),
    *[call(f"tf.strings.{k}", _WORD, "UTF-8", label="scalar")
        for k in ("unicode_decode", "unicode_decode_with_offsets", "unicode_split")],
    *[call(f"tf.strings.{k}", _WORDS, "UTF-8", label="vector")
        for k in ("unicode_decode", "unicode_decode_with_offsets", "unicode_split")],
    call("tf.strings.unicode_split_with_offsets", _WORD, "UTF-8"),
    call("tf.strings.unicode_encode", _CODES, "UTF-8"),
    call("tf.strings.unicode_script", _CODES),
    call("tf.strings.unicode_transcode", _WORDS, "UTF-8", "UTF-16-BE"),
    call("tf.strings.as_string", integers(3)),
    call("tf.strings.as_string", floats(3), precision=3, label="floats"),
    call("tf.strings.format", "{} and {}", (integers(3), floats(2))),
    call("tf.strings.join", [_WORDS, _WORDS], "-"),
    call("tf.strings.join", [_WORD, "suffix"], label="shared suffix"),
    call("tf.strings.ngrams", _SENTENCES, 2),
    call("tf.strings.ngrams", _SENTENCES, [1, 3], label="two widths"),
    body("tf.strings.ngrams", lambda x: tf.strings.ngrams(tf.strings.split(x), 2), _TEXT,
        label="own number of words"),
    call("tf.strings.reduce_join", _WORDS, axis=0, separator=" "),
    body("tf.strings.reduce_join",
        lambda x: tf.strings.reduce_join(tf.strings.split(x), axis=-1, separator="+"), _TEXT,
        label="own number of words"),
    call("tf.strings.regex_full_match", _WORDS, "[a-z ]*"),
    call("tf.strings.regex_full_match", _WORDS, _WORD, label="pattern of the row"),
    call("tf.strings.regex_replace", _WORDS, "[a-c]", "?"),
    call("tf.strings.regex_replace", _WORDS, "[a-c]", _WORD, label="rewrite of the row"),
    call("tf.strings.split", _TEXT),
    call("tf.strings.split", _WORDS, label="vector"),
    call("tf.strings.split", _TEXT, "o", label="separator"),
    call("tf.strings.split", _TEXT, maxsplit=1, label="most pieces"),
    call("tf.strings.substr", _WORDS, 0, 2),
    body("tf.strings.substr", lambda x, i: tf.strings.substr(x + "abc", i, 2), _WORD,
        integers(low=0, high=3), label="place of the row"),
    *each("tf.strings", "to_hash_bucket to_hash_bucket_fast", _WORDS, 97),
    call("tf.strings.to_hash_bucket_strong", _WORDS, 97, [1, 2]),
    call("tf.strings.to_number", _DIGITS),
    call("tf.strings.to_number", Rows([["1", "2"], ["3", "4"], ["5", "6"]]), tf.int64, label="int"),
    call("tf.strings.unsorted_segment_join", _SENTENCES, integers(4, high=2), 2),
    call("tf.as_string", integers(3)),
    *[body(f"tf.lookup.{name}", fn(make), _TEXT, label=label)
        for name, make in (("StaticHashTable", _static), ("StaticVocabularyTable", _vocabulary),
        ("experimental.MutableHashTable", _mutable), ("experimental.DenseHashTable", _dense))
        for label, fn in (("", _found), ("own number of keys", _looked_up))],
    body("tf.lookup.StaticHashTable.size", _sized(_static()), integers()),
    body("tf.ragged.map_flat_values",
        lambda x: tf.ragged.map_flat_values(tf.strings.upper, tf.strings.split(x)), _WORDS),
    body("tf.ragged.cross", lambda x: tf.ragged.cross([tf.strings.split(x), tf.strings.split(x)]),
        _WORDS),
    call("tf.ragged.row_splits_to_segment_ids", Rows([[0, 1, 4], [0, 2, 4], [0, 4, 4]])),
    body("tf.ragged.segment_ids_to_row_splits", lambda i: tf.ragged.segment_ids_to_row_splits(i, 5),
        ascending(4)),
    body("tf.ragged.stack_dynamic_partitions",
        lambda x, p: tf.ragged.stack_dynamic_partitions(x, p, 3), positive(5), integers(5, high=3)),
    body("tf.sparse.cross", lambda x: tf.sparse.cross([x[None], x[None]]), _SENTENCES),
    body("tf.sparse.sampled_addmm",
        lambda a, b: tf.sparse.sampled_addmm(np.asarray([[0, 1], [1, 0], [2, 2]], np.int64),
        np.ones([3], np.float32), [3, 3], a, b), floats(3, 2), floats(2, 3)),
    *[call(f"tf.sparse.{k}", floats(5, 2), integers(3), [0, 0, 1])
        for k in ("segment_mean", "segment_sqrt_n")],
    body("tf.sparse.retain",
        lambda v: tf.sparse.retain(tf.SparseTensor(tf.constant([[0, 1], [1, 0], [2, 3]], tf.int64),
        v, [3, 4]), v > 0), floats(3)),
]  # fmt: skip
