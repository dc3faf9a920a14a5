"""Texts that split: tf_pfor, TensorFlow's ragged ops by hand, ``tf.map_fn``, in one run.

    python -m benchmarks.text

1000 texts of 0 to 19 words. Medians in ms, and the ratios of tf_pfor to the others.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import keras
import numpy as np
import tensorflow as tf

import tf_pfor
from benchmarks import timing

N, MOST = 1000, 20
WORDS = [f"w{i}" for i in range(200)]
split, strings = tf.strings.split, tf.strings
ROWS = {t: tf.RaggedTensorSpec([None], t, 0) for t in (tf.int32, tf.int64, tf.string)}


class Data:
    """Texts, a table of their words, embeddings."""

    def __init__(self) -> None:
        rng = np.random.default_rng(0)
        texts = [" ".join(rng.choice(WORDS, rng.integers(0, MOST))) for _ in range(N)]
        self.texts = tf.constant(texts)
        ids = tf.range(1, len(WORDS) + 1)
        self.table = tf.lookup.StaticHashTable(
            tf.lookup.KeyValueTensorInitializer(WORDS, ids), default_value=0
        )
        self.embeddings = tf.Variable(tf.random.normal([len(WORDS) + 1, 16]))
        self.ids = keras.layers.TextVectorization(vocabulary=WORDS)
        self.counts = keras.layers.TextVectorization(vocabulary=WORDS, output_mode="count")


def bag(d: Data) -> tuple[Any, Any, Any]:
    """The mean of the embeddings of the words."""

    def one(text: Any) -> Any:
        ids = d.table.lookup(split(text))
        total = tf.reduce_sum(tf.gather(d.embeddings, ids), 0)
        return total / tf.maximum(tf.cast(tf.size(ids), tf.float32), 1.0)

    def by_hand(texts: Any) -> Any:
        words: Any = split(texts)
        found = tf.gather(d.embeddings, d.table.lookup(words.values))
        total = tf.math.unsorted_segment_sum(found, words.value_rowids(), words.nrows())
        return total / tf.maximum(tf.cast(words.row_lengths(), tf.float32), 1.0)[:, None]

    return one, by_hand, tf.TensorSpec([16])


def looked_up(d: Data) -> tuple[Any, Any, Any]:
    """The ids of the words."""

    def by_hand(texts: Any) -> Any:
        words: Any = split(texts)
        return words.with_values(d.table.lookup(words.values))

    return lambda text: d.table.lookup(split(text)), by_hand, ROWS[tf.int32]


def joined(text: Any) -> Any:
    """The words with other signs between."""
    return strings.reduce_join(split(text), axis=-1, separator="-")


def both(fn: Callable[..., Any], spec: Any) -> Callable[[Data], tuple[Any, Any, Any]]:
    """The contenders for a function of one text that also takes a vector of texts."""
    return lambda d: (lambda x: fn(d, x), lambda x: fn(d, x), spec)


WORK: dict[str, Callable[[Data], tuple[Any, Any, Any]]] = {
    "bag of words": bag,
    "split, looked up": looked_up,
    "`TextVectorization`": both(lambda d, x: d.ids(x), ROWS[tf.int64]),
    "`TextVectorization`, count": both(lambda d, x: d.counts(x), None),
    "`unicode_decode`": both(lambda d, x: strings.unicode_decode(x, "UTF-8"), ROWS[tf.int32]),
    "`ngrams` of words": both(lambda d, x: strings.ngrams(split(x), 2), ROWS[tf.string]),
    "split, `reduce_join`": both(lambda d, x: joined(x), tf.TensorSpec([], tf.string)),
}


def run(name: str, data: Data) -> list[timing.Record]:
    """The records of one work."""
    one, by_hand, spec = WORK[name](data)
    contenders: dict[str, Any] = {
        "tf_pfor": lambda x: tf_pfor.vectorized_map(one, x),
        "by hand": by_hand,
    }
    if spec is not None:  # Keras says another shape of counts than they have
        contenders["map_fn"] = lambda x: tf.map_fn(one, x, fn_output_signature=spec)
    compiled: dict[str, Callable[[], Any]] = {}
    for who, mapped in contenders.items():
        function = tf.function(mapped, autograph=False)
        compiled[who] = lambda f=function: tf.nest.map_structure(
            lambda t: t.numpy(), f(data.texts), expand_composites=True
        )
    times = timing.interleaved(compiled, seconds=1.5)
    return timing.records(name, times)


def main() -> None:
    """Prints the table and saves it."""
    warnings.simplefilter("error", tf_pfor.FallbackWarning)
    data = Data()
    found = [record for name in WORK for record in run(name, data)]
    print(timing.overview(found))
    timing.save("text", found)


if __name__ == "__main__":
    main()
