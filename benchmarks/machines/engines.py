"""Functions of one row in engines of data: what batches gain, and what the way there costs.

    python -m benchmarks.machines.engines [--rows 2000] [columns beam ...]

``columns``: ``column_function`` on NumPy and Arrow, against one call for each row and against a
function written for a batch of tensors. ``hugging_face``, ``ray``, ``spark`` and ``beam``: where
these are installed. ``service``: ``map_and_batch`` in two workers of tf.data service, against the
same in this process. ``replicas`` and ``mesh``: a strategy and a DTensor mesh of two virtual CPUs,
against one device.
"""

from __future__ import annotations

import argparse
import importlib
import importlib.util
import os
import socket
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf
from tensorflow.data.experimental import service

import tf_pfor
from benchmarks import timing

WIDTH = 64
EPOCHS = 100
RNG = np.random.default_rng(0)
WEIGHTS = [RNG.normal(size=[WIDTH, WIDTH]).astype(np.float32) / 8 for _ in range(4)]


def dense(row: dict[str, Any]) -> dict[str, Any]:
    """Four layers."""
    x = row["x"]
    for w in WEIGHTS:
        x = tf.tanh(tf.linalg.matvec(w, x))
    return {"y": tf.reduce_sum(x)}


def features(row: dict[str, Any]) -> dict[str, Any]:
    """Text and a list of numbers, whose length differs."""
    words = tf.strings.split(tf.strings.lower(row["text"]))
    ids = tf.strings.to_hash_bucket_fast(words, 1000)
    numbers = tf.cast(row["list"], tf.float32)
    return {"ids": ids, "norm": tf.norm(numbers), "last": row["list"][-3:]}


def dense_by_hand(x: tf.Tensor) -> tf.Tensor:
    """Four layers of a batch."""
    for w in WEIGHTS:
        x = tf.tanh(tf.matmul(x, w, transpose_b=True))
    return tf.reduce_sum(x, 1)


def table(rows: int) -> dict[str, Any]:
    """The columns of so many rows."""
    return {
        "x": RNG.normal(size=[rows, WIDTH]).astype(np.float32),
        "text": ["The quick Brown fox " * (1 + i % 3) for i in range(rows)],
        "list": [[*range(1 + i % 20)] for i in range(rows)],
    }


# Contenders without tf_pfor.
OTHERS = ("nothing", "row by row", "batch by hand")


def report(name: str, times: dict[str, list[float]], rows: int, base: str) -> list[timing.Record]:
    """Microseconds of a row, and ratios to ``base``, which are printed as well."""
    found: list[timing.Record] = []
    for key in times:
        workload, better = f"{name}, {key}", None if key in OTHERS else "lower"
        us = 1e3 * timing.milliseconds(times, key) / rows
        found.append(timing.record(workload, "us of a row", us, better=better))
        if key != base:
            ratio = timing.ratio(times, key, base)
            found.append(timing.record(workload, "time", ratio, base, better))
    print(timing.overview(found), flush=True)
    return found


def columns(rows: int) -> list[timing.Record]:
    """The adapter on columns in memory."""
    batch, result = table(rows), list[timing.Record]()
    specs = {
        "x": tf.TensorSpec([WIDTH]),
        "text": tf.TensorSpec([], tf.string),
        "list": tf.TensorSpec([None], tf.int64),
    }
    for fn, names in ((dense, ["x"]), (features, ["text", "list"])):
        part = {name: batch[name] for name in names}
        one = tf.function(fn, input_signature=[{name: specs[name] for name in names}])
        mapped = tf_pfor.column_function(fn)

        def by_row(one: Any = one, part: Any = part) -> list[Any]:
            cells = [dict(zip(part, row)) for row in zip(*part.values())]
            return [tf.nest.map_structure(lambda t: t.numpy(), one(cell)) for cell in cells]

        runs: dict[str, Callable[[], Any]] = {
            "row by row": by_row,
            "column_function": lambda mapped=mapped, part=part: mapped(part),
        }
        if fn is dense:
            hand = tf.function(dense_by_hand)
            runs["batch by hand"] = lambda hand=hand: hand(tf.constant(batch["x"])).numpy()
        if importlib.util.find_spec("pyarrow") is not None:
            arrow = importlib.import_module("pyarrow")
            lists = {k: v if k != "x" else list(v) for k, v in part.items()}
            given = arrow.table(lists)
            spec = {name: specs[name] for name in names}
            of_arrow = tf_pfor.column_function(fn, columns=spec)
            runs["Arrow"] = lambda of_arrow=of_arrow, given=given: of_arrow(given)
        times = timing.interleaved(runs, seconds=1.0)
        result += report(fn.__name__, times, rows, "row by row")
    return result


def beam(rows: int) -> list[timing.Record]:
    """A pipeline on this machine: with nothing to do, one row at a time, and in batches."""
    if importlib.util.find_spec("apache_beam") is None:
        print("beam      is not installed")
        return []
    engine: Any = importlib.import_module("apache_beam")
    elements = [{"x": x} for x in table(rows)["x"]]
    one = tf.function(dense, input_signature=[{"x": tf.TensorSpec([WIDTH])}])

    def by_row(element: dict[str, Any]) -> float:
        return float(one(element)["y"])

    def run(transform: Any) -> None:
        with engine.Pipeline() as pipeline:
            made = pipeline | engine.Create(elements) | transform
            _ = made | engine.combiners.Count.Globally()

    runs = {
        "nothing": lambda: run(engine.Map(lambda element: 1.0)),
        "row by row": lambda: run(engine.Map(by_row)),
        "tf_pfor.beam.Map": lambda: run(tf_pfor.beam.Map(dense)),
    }
    return report("beam", timing.interleaved(runs, seconds=1.0, least=3), rows, "row by row")


def hugging_face(rows: int) -> list[timing.Record]:
    """``Dataset.map`` of rows and of batches, where datasets are installed; no cache is used."""
    if importlib.util.find_spec("datasets") is None:
        print("datasets  is not installed")
        return []
    engine: Any = importlib.import_module("datasets")
    engine.disable_progress_bars()
    engine.disable_caching()
    batch = table(rows)
    data = engine.Dataset.from_dict({"text": batch["text"], "list": batch["list"]})
    data = data.with_format("arrow")
    spec = {"text": tf.TensorSpec([], tf.string), "list": tf.TensorSpec([None], tf.int64)}
    one = tf.function(features, input_signature=[spec])
    mapped = tf_pfor.column_function(features)

    def by_row(row: dict[str, Any]) -> dict[str, Any]:
        return {name: t.numpy() for name, t in one(row).items()}

    plain = data.with_format(None)
    runs = {
        "nothing": lambda: data.map(lambda given: given, batched=True),
        "row by row": lambda: plain.map(by_row),
        "column_function": lambda: data.map(mapped, batched=True),
    }
    return report("datasets", timing.interleaved(runs, seconds=1.0, least=3), rows, "row by row")


def ray(rows: int) -> list[timing.Record]:
    """``map_batches`` in processes of this machine, where Ray is installed."""
    if importlib.util.find_spec("ray") is None:
        print("ray       is not installed")
        return []
    engine: Any = importlib.import_module("ray")
    arrow: Any = importlib.import_module("pyarrow")
    engine.init(num_cpus=2, log_to_driver=False, include_dashboard=False)
    rows *= EPOCHS
    batch = table(rows)
    data = engine.data.from_arrow(arrow.table({k: batch[k] for k in ("text", "list")}))
    data = data.repartition(8).materialize()
    mapped = tf_pfor.column_function(features)

    def run(fn: Callable[[Any], Any]) -> None:
        data.map_batches(fn, batch_size=4096, batch_format="pyarrow").materialize()

    runs = {"nothing": lambda: run(lambda given: given), "column_function": lambda: run(mapped)}
    times = timing.interleaved(runs, seconds=2.0, least=3)
    engine.shutdown()
    return report("ray", times, rows, "nothing")


def spark(rows: int) -> list[timing.Record]:
    """``mapInArrow`` in processes of this machine, where Spark is installed."""
    if importlib.util.find_spec("pyspark") is None:
        print("spark     is not installed")
        return []
    sql: Any = importlib.import_module("pyspark.sql")
    os.environ["PYSPARK_PYTHON"] = sys.executable
    session = sql.SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
    session = session.getOrCreate()
    batch = table(rows)
    data = session.createDataFrame(
        [*zip(batch["text"], batch["list"])], "text string, list array<long>"
    )
    for _ in range(5):
        data = data.union(data)
    data = data.repartition(2).cache()
    data.count()
    mapped = tf_pfor.column_function(features)
    schema = "ids array<long>, norm float, last array<long>"

    def run(fn: Callable[[Any], Any], types: Any) -> None:
        made = data.mapInArrow(lambda batches: map(fn, batches), types)
        made.write.format("noop").mode("overwrite").save()

    runs = {
        "nothing": lambda: run(lambda given: given, data.schema),
        "column_function": lambda: run(mapped, schema),
    }
    times = timing.interleaved(runs, seconds=2.0, least=3)
    session.stop()
    return report("spark", times, 32 * rows, "nothing")


def workers(count: int, folder: str) -> tuple[Any, list[Any]]:
    """A dispatcher and so many workers in this process."""
    dispatcher = service.DispatchServer(service.DispatcherConfig(work_dir=folder))
    made = []
    for _ in range(count):
        with socket.socket() as found:
            found.bind(("localhost", 0))
            port = found.getsockname()[1]
        address = dispatcher.target.removeprefix("grpc://")
        made.append(service.WorkerServer(service.WorkerConfig(address, f"localhost:{port}", port)))
    return dispatcher, made


def served(rows: int) -> list[timing.Record]:
    """An input pipeline in workers, all of which use the cores of this machine."""
    batch = table(rows)
    ragged = {**batch, "list": tf.ragged.constant(batch["list"], tf.int64)}
    rows_of = tf.data.Dataset.from_tensor_slices(ragged)
    # Workers ask the dispatcher for each element of the source: here for the rows of a "file".
    files = tf.data.Dataset.range(EPOCHS).flat_map(lambda _: rows_of)
    local = files.apply(tf_pfor.data.map_and_batch(features, 256))
    slow = rows_of.repeat(EPOCHS // 10).apply(tf_pfor.data.map_and_batch(features, 256))
    with tempfile.TemporaryDirectory() as folder:
        dispatcher, made = workers(2, folder)
        policy = service.ShardingPolicy.DYNAMIC
        remote = local.apply(service.distribute(policy, dispatcher.target))

        firsts: dict[str, list[float]] = {}

        def run(name: str, ds: Any) -> None:
            start, first = time.perf_counter(), None
            for _ in ds:
                first = first or time.perf_counter() - start
            firsts.setdefault(name, []).append(first or 0.0)

        contenders = {"in this process": local, "two workers": remote}
        by_row = slow.apply(service.distribute(policy, dispatcher.target))
        start = time.perf_counter()
        run("rows one by one", by_row)
        seconds = time.perf_counter() - start
        print(f"service   us of a row, rows one by one: {1e7 * seconds / EPOCHS / rows:.0f}")
        runs = {name: lambda name=name, ds=ds: run(name, ds) for name, ds in contenders.items()}
        times = timing.interleaved(runs, seconds=3.0, least=3)
        del made
    flat = tf.nest.flatten(next(iter(local)), expand_composites=True)
    size = sum(np.asarray(t).nbytes for t in flat) / 256
    print(f"service   bytes of a row: {size:.0f}")
    for name, seconds in firsts.items():
        print(f"service   ms to the first batch, {name}: {1e3 * statistics.median(seconds):.0f}")
    return report("service", times, EPOCHS * rows, "in this process")


def replicas(rows: int) -> list[timing.Record]:
    """Rows over two virtual CPUs of a strategy, which use the same cores as one."""
    strategy = tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
    x = tf.constant(table(rows)["x"])

    def shared(row: tf.Tensor) -> tf.Tensor:
        return dense({"x": row / tf_pfor.psum(row)})["y"]

    result: list[timing.Record] = []
    for fn in (lambda row: dense({"x": row})["y"], shared):
        one, two = (tf.function(tf_pfor.vmap(fn, strategy=s)) for s in (None, strategy))
        runs = {
            "one device": lambda one=one: one(x).numpy(),
            "two replicas": lambda two=two: two(x).numpy(),
        }
        name = "with psum" if fn is shared else "replicas"
        result += report(name, timing.interleaved(runs, seconds=1.0), rows, "one device")
    return result


def mesh(rows: int) -> list[timing.Record]:
    """Rows over two virtual CPUs of a DTensor mesh, which use the same cores as one."""
    dtensor = tf.experimental.dtensor
    devices = dtensor.create_mesh([("rows", 2)], devices=["CPU:0", "CPU:1"])
    rows -= rows % 2
    x = tf.constant(table(rows)["x"])
    whole = dtensor.copy_to_mesh(x, dtensor.Layout.replicated(devices, 2))
    given = dtensor.relayout(whole, dtensor.Layout(["rows", dtensor.UNSHARDED], devices))
    weights = [dtensor.copy_to_mesh(w, dtensor.Layout.replicated(devices, 2)) for w in WEIGHTS]

    @tf.function
    def mapped(x: tf.Tensor, *weights: tf.Tensor) -> tf.Tensor:
        def one(row: tf.Tensor) -> tf.Tensor:
            for w in weights:
                row = tf.tanh(tf.linalg.matvec(w, row))
            return tf.reduce_sum(row)

        return tf_pfor.vmap(one)(x)

    runs = {
        "one device": lambda: mapped(x, *WEIGHTS).numpy(),
        "mesh of two": lambda: [t.numpy() for t in dtensor.unpack(mapped(given, *weights))],
    }
    return report("mesh", timing.interleaved(runs, seconds=1.0), rows, "one device")


PARTS = {
    "columns": columns,
    "hugging_face": hugging_face,
    "beam": beam,
    "service": served,
    "replicas": replicas,
    "mesh": mesh,
    "ray": ray,
    "spark": spark,
}


def main() -> None:
    """Prints microseconds of a row and ratios, and saves them."""
    parser = argparse.ArgumentParser(
        "python -m benchmarks.machines.engines", description=main.__doc__
    )
    parser.add_argument("parts", nargs="*", metavar="part", help=f"one of {', '.join(PARTS)}")
    parser.add_argument("--rows", type=int, default=2000)
    args = parser.parse_args()
    (cpu,) = tf.config.list_physical_devices("CPU")
    two = [tf.config.LogicalDeviceConfiguration()] * 2
    tf.config.set_logical_device_configuration(cpu, two)
    result: list[timing.Record] = []
    for name in args.parts or PARTS:
        result += PARTS[name](args.rows)
    if not args.parts and args.rows == parser.get_default("rows"):
        timing.save("engines", result)


if __name__ == "__main__":
    main()
