"""Everyday ops that TensorFlow's own map loops over: tf_pfor, ``tf.map_fn``, ``tf.vectorized_map``.

    python -m benchmarks.ops [PART...]

There are 1000 rows each, all contenders in turn in one process. ``PART`` selects the ops whose
names contain it. Milliseconds are CPU time, over all cores. Ratios are tf_pfor's time divided by
the time of the others, by CPU time and by the clock, which says less on a busy machine.
"""

from __future__ import annotations

import os
import statistics
import sys
import time
import warnings
from collections.abc import Callable
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import numpy as np
import tensorflow as tf

import tf_pfor
from benchmarks import timing

N = 1000
Work = tuple[Callable[..., Any], tuple[Any, ...], Any]
RNG = np.random.default_rng(0)


def floats(*shape: int) -> tf.Tensor:
    """Normal floats, [n, ...]."""
    return tf.constant(RNG.normal(size=(N, *shape)).astype(np.float32))


def integers(*shape: int, high: int) -> tf.Tensor:
    """Integers of [0, high), [n, ...]."""
    return tf.constant(RNG.integers(0, high, (N, *shape)).astype(np.int32))


def own(dtype: tf.DType) -> tf.RaggedTensorSpec:
    """A variable-length vector."""
    return tf.RaggedTensorSpec([None], dtype, 0)


def _examples() -> tf.Tensor:
    made = []
    for i in range(N):
        x = tf.train.Feature(float_list=tf.train.FloatList(value=[i] * 8))
        k = tf.train.Feature(int64_list=tf.train.Int64List(value=[i]))
        features = tf.train.Features(feature={"x": x, "k": k})
        made.append(tf.train.Example(features=features).SerializeToString())
    return tf.constant(made)


def texts() -> dict[str, Work]:
    """Strings, lookups and parsing."""
    words = [f"Word{i}" for i in range(200)]
    text = tf.constant([" ".join(RNG.choice(words, 8)) for _ in range(N)])
    word = tf.constant(RNG.choice(words, N))
    given = tf.lookup.KeyValueTensorInitializer(words, tf.range(200))
    table = tf.lookup.StaticHashTable(given, -1)
    s = tf.strings
    lines = tf.constant([f"{i},{i / 2},w{i}" for i in range(N)])
    features = {
        "x": tf.io.FixedLenFeature([8], tf.float32),
        "k": tf.io.FixedLenFeature([], tf.int64),
    }
    return {
        "strings.lower": (s.lower, (text,), None),
        "strings.length": (s.length, (text,), None),
        "strings.join": (lambda a, b: s.join([a, b], "-"), (text, word), None),
        "strings.split": (s.split, (text,), own(tf.string)),
        "strings.reduce_join": (
            lambda x: s.reduce_join(s.split(x), axis=-1, separator="_"),
            (text,),
            tf.TensorSpec([], tf.string),
        ),
        "strings.regex_replace": (lambda x: s.regex_replace(x, "[0-9]+", "#"), (text,), None),
        "strings.substr": (lambda x, i: s.substr(x, i, 3), (text, integers(high=5)), None),
        "strings.to_number": (s.to_number, (s.as_string(integers(high=99)),), None),
        "strings.to_hash_bucket_fast": (lambda x: s.to_hash_bucket_fast(x, 97), (word,), None),
        "lookup.StaticHashTable": (table.lookup, (word,), None),
        "io.parse_single_example": (
            lambda x: tf.io.parse_single_example(x, features),
            (_examples(),),
            None,
        ),
        "io.decode_csv": (lambda x: tf.io.decode_csv(x, [[0], [0.0], [""]]), (lines,), None),
        "io.decode_raw": (
            lambda x: tf.ensure_shape(tf.io.decode_raw(x, tf.uint8), [16]),
            (tf.constant([bytes(RNG.integers(1, 256, 16).astype(np.uint8)) for _ in range(N)]),),
            None,
        ),
    }


def images() -> dict[str, Work]:
    """Images of 32 x 32, and amounts of the row."""
    im = tf.image
    picture = tf.constant(RNG.uniform(size=(N, 32, 32, 3)).astype(np.float32))
    amount = tf.constant(RNG.uniform(0.1, 0.9, N).astype(np.float32))
    boxes = tf.constant(np.sort(RNG.uniform(size=(N, 4, 4)), -1).astype(np.float32))
    return {
        "image.resize": (lambda x: im.resize(x, [24, 24]), (picture,), None),
        "image.crop_and_resize": (
            lambda x, b: im.crop_and_resize(x[None], b, tf.zeros([4], tf.int32), [8, 8]),
            (picture, boxes),
            None,
        ),
        **{
            f"image.adjust_{k}": (getattr(im, f"adjust_{k}"), (picture, amount), None)
            for k in ("brightness", "contrast", "hue", "saturation")
        },
    }


def arrays() -> dict[str, Work]:
    """Sorts, scatters, segments, slices of vectors and small matrices."""
    vector, matrix, at = floats(64), floats(16, 16), integers(16, high=64)
    ascending = tf.sort(floats(64), -1)
    return {
        "linalg.svd": (tf.linalg.svd, (floats(8, 8),), None),
        "linalg.eigh": (tf.linalg.eigh, (matrix + tf.linalg.matrix_transpose(matrix),), None),
        "linalg.qr": (tf.linalg.qr, (matrix,), None),
        "scatter_nd": (lambda i, u: tf.scatter_nd(i[:, None], u, [64]), (at, floats(16)), None),
        "tensor_scatter_nd_update": (
            lambda x, i, u: tf.tensor_scatter_nd_update(x, i[:, None], u),
            (vector, at, floats(16)),
            None,
        ),
        "math.segment_sum": (
            lambda x, i: tf.ensure_shape(tf.math.segment_sum(x, i), [8]),
            (vector, tf.constant(np.tile(np.repeat(np.arange(8), 8), (N, 1)))),
            None,
        ),
        "math.unsorted_segment_sum": (
            lambda x, i: tf.math.unsorted_segment_sum(x, i, 8),
            (vector, integers(64, high=8)),
            None,
        ),
        "math.bincount": (
            lambda i: tf.math.bincount(i, minlength=64, maxlength=64),
            (at,),
            tf.TensorSpec([64], tf.int32),
        ),
        "unique": (lambda i: tf.unique(i).y, (at,), own(tf.int32)),
        "sort": (tf.sort, (vector,), None),
        "argsort": (tf.argsort, (vector,), None),
        "math.top_k": (lambda x: tf.math.top_k(x, 5), (vector,), None),
        "searchsorted": (tf.searchsorted, (ascending, floats(16)), None),
        "histogram_fixed_width": (
            lambda x: tf.histogram_fixed_width(x, [-2.0, 2.0], 10),
            (vector,),
            None,
        ),
        "linspace": (lambda a, b: tf.linspace(a, b, 20), (floats(), floats()), None),
        "roll": (lambda x, k: tf.roll(x, k, 0), (vector, integers(high=64)), None),
        "reverse_sequence": (
            lambda x, k: tf.reverse_sequence(x, k, seq_axis=1, batch_axis=0),
            (matrix, integers(16, high=16)),
            None,
        ),
        "cumsum": (lambda x: tf.cumsum(x, 1), (matrix,), None),
        "boolean_mask": (lambda x: tf.boolean_mask(x, x > 0), (vector,), own(tf.float32)),
        "where": (lambda x: tf.where(x > 0)[:, 0], (vector,), own(tf.int64)),
        "ragged.range": (
            lambda k: tf.ragged.range([k, 3]).flat_values,
            (integers(high=20),),
            own(tf.int32),
        ),
    }


def others() -> dict[str, Work]:
    """Sparse tensors, sets, sequences."""
    sparse = tf.constant((RNG.random((N, 8, 16)) < 0.1).astype(np.float32))
    ids = integers(8, high=20)
    labels = integers(2, 5, high=9) + 1
    weights = tf.constant(RNG.normal(size=(16, 8)).astype(np.float32))
    from_dense = tf.sparse.from_dense
    return {
        "sparse.sparse_dense_matmul": (
            lambda x: tf.sparse.sparse_dense_matmul(from_dense(x), weights),
            (sparse,),
            tf.TensorSpec([8, 8], tf.float32),
        ),
        "sparse.reduce_sum": (
            lambda x: tf.sparse.reduce_sum(from_dense(x), 1),
            (sparse,),
            tf.TensorSpec([8], tf.float32),
        ),
        "sets.intersection": (
            lambda a, b: tf.sets.intersection(a[None], b[None]).values,
            (ids, integers(8, high=20)),
            own(tf.int32),
        ),
        "edit_distance": (
            lambda a, b: tf.edit_distance(from_dense(a[None]), from_dense(b[None])),
            (ids, integers(8, high=20)),
            tf.TensorSpec([1], tf.float32),
        ),
        "nn.ctc_loss": (
            lambda y, x: tf.nn.ctc_loss(y, x, [5, 5], [12, 12], blank_index=0),
            (labels, floats(12, 2, 10)),
            tf.TensorSpec([2], tf.float32),
        ),
        "nn.embedding_lookup_sparse": (
            lambda i: tf.nn.embedding_lookup_sparse(weights, from_dense(i[None] % 16), None),
            (tf.cast(ids, tf.int64),),
            tf.TensorSpec([None, 8], tf.float32),
        ),
    }


def measured(name: str, work: Work) -> list[timing.Record]:
    """The records of one op."""
    fn, rows, spec = work

    def one(given: tuple[Any, ...]) -> Any:
        return fn(*given)

    if spec is None:
        row = tf.function(one).get_concrete_function(tuple(x[0] for x in rows))
        spec = tf.nest.map_structure(
            lambda x: tf.TensorSpec(x.shape, x.dtype), row.structured_outputs
        )
    contenders: dict[str, Any] = {
        "tf_pfor": lambda x: tf_pfor.vectorized_map(one, x, fallback="error"),
        "map_fn": lambda x: tf.map_fn(one, x, fn_output_signature=spec),
        "TensorFlow's": lambda x: tf.vectorized_map(one, x, warn=False),
    }
    compiled: dict[str, Callable[[], Any]] = {}
    for who, run in contenders.items():
        function = tf.function(run, autograph=False)
        try:
            function(rows)
        except Exception:  # what TensorFlow's own map cannot do is a result
            if who == "tf_pfor":
                raise
            continue
        compiled[who] = lambda f=function: tf.nest.map_structure(
            lambda t: t.numpy(), f(rows), expand_composites=True
        )
    cpu = timing.interleaved(compiled, seconds=0.2, clock=time.process_time)
    wall = timing.interleaved(compiled, seconds=0.2)
    by_cpu = timing.records(name, cpu, contenders, clock="CPU ")
    return by_cpu + timing.records(name, wall, contenders)


def main(parts: list[str]) -> None:
    """Prints the table and saves it."""
    warnings.simplefilter("error", tf_pfor.FallbackWarning)
    found: list[timing.Record] = []
    ratios: dict[str, list[float]] = {}
    for name, work in {**texts(), **images(), **arrays(), **others()}.items():
        if not parts or any(part in name for part in parts):
            found += measured(name, work)
            print(name, flush=True)
    print("\n" + timing.overview(found))
    for record in found:
        if record["against"] and record["value"] is not None:
            ratios.setdefault(timing.column(record), []).append(record["value"])
    for column, values in ratios.items():
        print(f"{column}: median {statistics.median(values):.2f}, largest {max(values):.2f}")
    if not parts:
        timing.save("ops", found)


if __name__ == "__main__":
    main(sys.argv[1:])
