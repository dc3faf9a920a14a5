"""Input pipelines as people write them: ``map_and_batch`` beside ``map(...).batch(...)``.

    python -m benchmarks.input_pipelines [--auto] [name ...]

There are twelve functions of one element. The peer is
``ds.map(fn, AUTOTUNE).batch(n).prefetch(AUTOTUNE)`` (``padded_batch`` where lengths differ per
result). The source is in memory. Both forms take turns, and their results are compared. Then
elements in a second are counted, and the time that all processors spend on one element. On a
machine that others use, the second number tells more.
"""

from __future__ import annotations

import argparse
import os
import time
import warnings
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import numpy as np
import tensorflow as tf

import tf_pfor
from benchmarks import timing

AUTOTUNE = tf.data.AUTOTUNE
SECONDS = 0.25  # for each form in each round
ROUNDS = 3
WARM = 3  # batches that are not timed
RNG = np.random.default_rng(0)
WORDS = [f"word{i}" for i in range(500)]
Dataset: Any = tf.data.Dataset


class Pipeline(NamedTuple):
    """A function of one element, and elements for it."""

    elements: Any  # what from_tensor_slices takes
    fn: Callable[..., Any]
    batch: int
    padded_shapes: Any = None

    def loop(self) -> Any:
        """The pipeline as people write it."""
        made = Dataset.from_tensor_slices(self.elements).repeat().map(self.fn, AUTOTUNE)
        if self.padded_shapes is None:
            return made.batch(self.batch).prefetch(AUTOTUNE)
        return made.padded_batch(self.batch, self.padded_shapes).prefetch(AUTOTUNE)

    def vectorized(self, choose: str) -> Any:
        """Batched first, or what ``choose`` says."""
        form = tf_pfor.data.map_and_batch(
            self.fn, self.batch, padded_shapes=self.padded_shapes, choose=choose
        )
        return Dataset.from_tensor_slices(self.elements).repeat().apply(form).prefetch(AUTOTUNE)


def floats(*shape: int) -> Any:
    """Normal numbers."""
    return RNG.normal(size=shape).astype(np.float32)


def table_of(keys: Sequence[str]) -> Any:
    """From words to numbers; 0 for others."""
    numbers = tf.range(1, len(keys) + 1, dtype=tf.int64)
    return tf.lookup.StaticHashTable(tf.lookup.KeyValueTensorInitializer(list(keys), numbers), 0)


# ---------------------------------------------------------------------------
# Parsing and text
# ---------------------------------------------------------------------------


def csv_lines() -> Pipeline:
    """Lines of a CSV file: eight numbers, a category, a label."""
    lines = [
        ",".join([f"{x:.4f}" for x in row] + [RNG.choice(["red", "green"]), str(i % 2)])
        for i, row in enumerate(floats(2048, 8))
    ]
    mean, scale = tf.constant(floats(8)), tf.constant(np.exp(floats(8)))

    def parse(line: Any) -> Any:
        *numbers, colour, label = tf.io.decode_csv(line, [[0.0]] * 8 + [[""], [0]])
        return {"x": (tf.stack(numbers) - mean) / scale, "is_red": colour == "red"}, label

    return Pipeline(lines, parse, 256)


def tf_examples() -> Pipeline:
    """Serialized ``tf.train.Example``s of fixed features."""

    def serialized(row: Any) -> bytes:
        feature = {
            "x": tf.train.Feature(float_list=tf.train.FloatList(value=row)),
            "y": tf.train.Feature(int64_list=tf.train.Int64List(value=[int(row[0] > 0)])),
        }
        return tf.train.Example(features=tf.train.Features(feature=feature)).SerializeToString()

    spec = {"x": tf.io.FixedLenFeature([32], tf.float32), "y": tf.io.FixedLenFeature([], tf.int64)}

    def parse(example: Any) -> Any:
        found = tf.io.parse_single_example(example, spec)
        x = found["x"]
        return (x - tf.reduce_mean(x)) / (tf.math.reduce_std(x) + 1e-6), found["y"]

    return Pipeline([serialized(row) for row in floats(2048, 32)], parse, 256)


def text() -> Pipeline:
    """Sentences: lower case, no punctuation, words, their numbers in a vocabulary."""
    vocabulary = table_of(WORDS)
    texts = [
        " ".join(RNG.choice(WORDS, RNG.integers(3, 30))).capitalize() + "!" for _ in range(2048)
    ]

    def numbers(sentence: Any) -> Any:
        sentence = tf.strings.regex_replace(tf.strings.lower(sentence), "[^a-z0-9 ]", "")
        words = tf.strings.split(tf.strings.strip(sentence))
        return vocabulary.lookup(words[:24])

    return Pipeline(texts, numbers, 128, [24])


def tabular() -> Pipeline:
    """Columns of a table: logarithms, buckets, categories by a lookup, a hashed cross."""
    cities = table_of(WORDS[:50])
    edges = [0.5, 1.0, 2.0, 4.0, 8.0]
    columns = {
        "amount": np.exp(floats(4096)), "age": RNG.integers(18, 90, 4096).astype(np.int32),
        "city": RNG.choice(WORDS[:60], 4096), "kind": RNG.choice(["a", "b", "c"], 4096),
        "history": floats(4096, 12),
    }  # fmt: skip

    def features(row: Any) -> Any:
        cross = tf.strings.join([row["city"], row["kind"]], "_")
        history = row["history"]
        return {
            "amount": tf.math.log1p(row["amount"]),
            "bucket": tf.one_hot(tf.searchsorted(edges, row["amount"][None])[0], 6),
            "age": (tf.cast(row["age"], tf.float32) - 45.0) / 20.0,
            "city": cities.lookup(row["city"]),
            "cross": tf.strings.to_hash_bucket_fast(cross, 1000),
            "trend": history[-1] - tf.reduce_mean(history[:-1]),
            "spread": tf.math.reduce_std(history),
        }

    return Pipeline(columns, features, 256)


def tokens() -> Pipeline:
    """Variable-length rows: cut, framed by two marks, shifted targets, weights; padded."""
    lengths = RNG.integers(2, 100, 4096)
    rows = tf.RaggedTensor.from_row_lengths(
        RNG.integers(3, 1000, lengths.sum()).astype(np.int32), lengths
    )

    def example(ids: Any) -> Any:
        ids = tf.concat([[1], ids[:62], [2]], 0)
        return {"inputs": ids[:-1], "targets": ids[1:], "weights": tf.ones_like(ids[1:])}

    return Pipeline(rows, example, 128, {"inputs": [63], "targets": [63], "weights": [63]})


# ---------------------------------------------------------------------------
# Images and sound
# ---------------------------------------------------------------------------


def smooth_images(count: int, size: int) -> Any:
    """uint8 images that are no noise."""
    small = tf.constant(RNG.integers(0, 256, [count, 6, 6, 3]), tf.float32)
    return tf.cast(tf.image.resize(small, [size, size]), tf.uint8)


def images() -> Pipeline:
    """JPEGs: decoded, a random crop, flip, brightness and contrast, a seed for each."""
    jpegs = tf.stack([tf.io.encode_jpeg(x) for x in smooth_images(256, 64)])
    seeds = RNG.integers(0, 1000, [256, 2]).astype(np.int32)

    def augment(jpeg: Any, seed: Any) -> Any:
        image = tf.ensure_shape(tf.io.decode_jpeg(jpeg, channels=3), [64, 64, 3])
        image = tf.image.stateless_random_crop(image, [56, 56, 3], seed)
        image = tf.image.stateless_random_flip_left_right(image, seed)
        image = tf.image.convert_image_dtype(image, tf.float32)
        image = tf.image.stateless_random_brightness(image, 0.2, seed)
        image = tf.image.stateless_random_contrast(image, 0.7, 1.3, seed)
        return tf.clip_by_value(image, 0.0, 1.0)

    return Pipeline((jpegs, seeds), augment, 32)


def crops() -> Pipeline:
    """Boxes of different sizes, standardized, padded to one size."""
    corners, sizes = RNG.integers(0, 20, [512, 2]), RNG.integers(16, 44, [512, 2])
    boxes = np.concatenate([corners, sizes], 1).astype(np.int32)

    def crop(image: Any, box: Any) -> Any:
        y, x, h, w = tf.unstack(box)
        part = tf.cast(image[y : y + h, x : x + w], tf.float32) / 255.0
        mean = tf.reduce_mean(part, [0, 1])
        deviation = tf.sqrt(tf.reduce_mean((part - mean) ** 2, [0, 1]) + 1e-6)
        return (part - mean) / deviation

    return Pipeline((smooth_images(512, 64), boxes), crop, 32, [44, 44, 3])


def audio() -> Pipeline:
    """Frames of a wave: spectrum, mel bands, logarithm."""
    mel = tf.signal.linear_to_mel_weight_matrix(20, 129, 8000)

    def spectrogram(wave: Any) -> Any:
        wave = wave / (tf.reduce_max(tf.abs(wave)) + 1e-6)
        spectrum = tf.abs(tf.signal.stft(wave, 256, 128))
        return tf.math.log(spectrum**2 @ mel + 1e-6)

    return Pipeline(floats(512, 4096), spectrogram, 64)


# ---------------------------------------------------------------------------
# Numbers
# ---------------------------------------------------------------------------


def groups() -> Pipeline:
    """Values in groups: mean and largest of each, and what each is above its group."""
    numbers = RNG.integers(0, 8, [4096, 64]).astype(np.int32)

    def statistics(values: Any, group: Any) -> Any:
        mean = tf.math.unsorted_segment_mean(values, group, 8)
        top = tf.math.unsorted_segment_max(values, group, 8)
        count = tf.math.bincount(group, minlength=8, maxlength=8)
        return mean, tf.where(count > 0, top, 0.0), values - tf.gather(mean, group)

    return Pipeline((floats(4096, 64), numbers), statistics, 256)


def sparse() -> Pipeline:
    """Variable-length numbers with weights: a normalized vector of the numbers."""
    lengths = RNG.integers(1, 40, 4096)
    total = lengths.sum()
    ids = tf.RaggedTensor.from_row_lengths(RNG.integers(0, 200, total).astype(np.int32), lengths)
    weights = ids.with_values(tf.constant(np.abs(floats(total))))

    def vector(ids: Any, weights: Any) -> Any:
        dense = tf.scatter_nd(ids[:, None], tf.math.log1p(weights), [200])
        return dense / tf.norm(dense), tf.size(ids)

    return Pipeline((ids, weights), vector, 128)


def geometry() -> Pipeline:
    """Points in space: turned by an angle, distances, the nearest neighbours, a great circle."""

    def features(points: Any, angle: Any, places: Any) -> Any:
        c, s, zero, one = tf.cos(angle), tf.sin(angle), 0.0 * angle, 1.0 + 0.0 * angle
        turned = points @ tf.stack([[c, -s, zero], [s, c, zero], [zero, zero, one]])
        centred = turned - tf.reduce_mean(turned, 0)
        distances = tf.norm(centred[:, None] - centred[None] + 1e-9, axis=-1)
        nearest = -tf.math.top_k(-distances, 5).values[:, 1:]
        (a, b), (p, q) = tf.unstack(places[0]), tf.unstack(places[1])
        h = tf.sin((p - a) / 2) ** 2 + tf.cos(a) * tf.cos(p) * tf.sin((q - b) / 2) ** 2
        return centred, tf.reduce_mean(nearest, 1), 12742.0 * tf.asin(tf.sqrt(h))

    return Pipeline((floats(2048, 24, 3), floats(2048), floats(2048, 2, 2) / 3), features, 128)


def windows() -> Pipeline:
    """Windows of a series: standardized, differences, a moving average, what comes after."""
    series = tf.constant(np.cumsum(floats(20_000)).astype(np.float32))

    def window(start: Any) -> Any:
        past, future = series[start : start + 96], series[start + 96 : start + 120]
        past = tf.ensure_shape(past, [96])
        mean, deviation = tf.reduce_mean(past), tf.math.reduce_std(past) + 1e-6
        x = (past - mean) / deviation
        sums = tf.cumsum(x)
        average = (sums[8:] - sums[:-8]) / 8.0
        return tf.stack([x[8:], average, x[8:] - x[7:-1]], 1), (
            tf.ensure_shape(future, [24]) - mean
        ) / deviation

    return Pipeline(RNG.integers(0, 19_000, 4096).astype(np.int32), window, 256)


PIPELINES = {
    "CSV lines": csv_lines,
    "tf.Example": tf_examples,
    "text, vocabulary": text,
    "tabular, tables": tabular,
    "image, augment": images,
    "crops of different sizes": crops,
    "audio frames": audio,
    "tokens, padded": tokens,
    "group statistics": groups,
    "sparse features": sparse,
    "geometry": geometry,
    "windows of a series": windows,
}


# ---------------------------------------------------------------------------
# Comparing and timing
# ---------------------------------------------------------------------------


def largest_difference(found: Any, wanted: Any, batches: int = 3) -> float:
    """The largest difference of two datasets' first batches, relative to values above 1.

    It is infinite where other results than floats differ.
    """
    largest = 0.0
    for a, b in zip(found.take(batches), wanted.take(batches), strict=True):
        tf.nest.assert_same_structure(a, b)
        for x, y in zip(tf.nest.flatten(a), tf.nest.flatten(b)):
            if x.shape != y.shape or x.dtype != y.dtype:
                return np.inf
            if x.dtype.is_floating:
                scale = max(1.0, float(tf.reduce_max(tf.abs(y))))
                largest = max(largest, float(tf.reduce_max(tf.abs(x - y))) / scale)
            elif not bool(tf.reduce_all(x == y)):
                return np.inf
    return largest


def rate(batches: Any, size: int) -> tuple[float, float]:
    """Elements in a second, and microseconds of all processors for one."""
    began, worked, count = time.perf_counter(), time.process_time(), 0
    for count, _ in enumerate(batches, 1 - WARM):
        now = time.perf_counter()
        if count == 0:
            began, worked = now, time.process_time()
        if count > 0 and now - began > SECONDS:
            break
    elements = count * size
    return (
        elements / (time.perf_counter() - began),
        (time.process_time() - worked) / elements * 1e6,
    )


def measured(name: str, choose: str) -> list[timing.Record]:
    """The records of one pipeline."""
    pipeline = PIPELINES[name]()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", tf_pfor.FallbackWarning)
        vectorized = pipeline.vectorized(choose)
    looped = [str(w.message) for w in caught if w.category is tf_pfor.FallbackWarning]
    types = sorted({text.split("of type ")[1].split(" ")[0] for text in looped})
    loop = pipeline.loop()
    difference = largest_difference(vectorized, loop, 2)
    found: list[list[tuple[float, float]]] = [[], []]
    for _ in range(ROUNDS):
        for rates, form in zip(found, (loop, vectorized)):
            rates.append(rate(form, pipeline.batch))
    (by_loop, work), (by_batch, less) = (
        (max(r for r, _ in rates), min(w for _, w in rates)) for rates in found
    )
    print(f"{name}: done, looped ops: {', '.join(types) or 'none'}", flush=True)
    workload = f"{name}, batch {pipeline.batch}"
    return [
        timing.record(workload, "a second", by_batch, better="higher"),
        timing.record(workload, "a second, map.batch", by_loop, better=None),
        timing.record(workload, "time", by_loop / by_batch, "map.batch"),
        *timing.amounts(workload, "CPU us", {"tf_pfor": less, "map.batch": work}),
        timing.record(workload, "CPU time", less / work, "map.batch"),
        timing.record(workload, "difference", difference, better=None),
        timing.record(workload, "looped ops", len(types)),
    ]


def main() -> None:
    """Prints the table and saves it."""
    parser = argparse.ArgumentParser("python -m benchmarks.input_pipelines")
    parser.add_argument("names", nargs="*", help=f"some of: {', '.join(PIPELINES)}")
    parser.add_argument("--auto", action="store_true", help='choose="auto" in place of batches')
    given = parser.parse_args()
    chosen, choose = given.names, "auto" if given.auto else "vectorized"
    names = [name for name in PIPELINES if not chosen or name in chosen]
    found = [record for name in names for record in measured(name, choose)]
    print(timing.overview(found))
    if not chosen and not given.auto:
        timing.save("input_pipelines", found)


if __name__ == "__main__":
    main()
