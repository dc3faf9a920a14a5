"""Ways to compute per-example filter gradients, and the fastest of them, by shape.

    python -m benchmarks.kernels.filter_gradients [--quick] [--out results.json]

Every contender runs in the same process, interleaved, on the same data; the table gives medians as
ratios to the best. ``rows`` is the C++ parallel map over rows (tf.raw_ops.MapDefun), ``while`` a
tf.while_loop over rows (tf.map_fn). ``sum`` is the hand-batched sum over all rows, which is less
work: one filter instead of n.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from typing import Any

import numpy as np
import tensorflow as tf

from tf_pfor.converters.nn import filter_gradients as fg
from tf_pfor.core.emit import Emitter

LAYERS = (
    # size, depth, features, kernel, stride
    (28, 1, 32, 5, 1),  # ConvMNIST, first layer
    (14, 32, 64, 5, 1),  # ConvMNIST, second layer
    (8, 1, 8, 3, 1),
    (8, 16, 32, 3, 1),
    (8, 64, 64, 3, 1),
    (8, 64, 64, 1, 1),
    (16, 3, 16, 3, 1),
    (16, 16, 16, 3, 2),
    (16, 32, 32, 5, 2),
    (32, 3, 32, 3, 1),
    (32, 16, 16, 3, 1),
    (32, 64, 64, 1, 1),
    (64, 3, 16, 5, 2),
    (64, 8, 8, 3, 1),
)


def window(n: int, size: int, depth: int, features: int, kernel: int, stride: int) -> fg.Window:
    """A SAME convolution of one image in each iteration."""
    return fg.Window.of(
        Emitter(), n=n, images=1, size=(size, size), kernel=(kernel, kernel),
        strides=(stride, stride), dilations=(1, 1), padding="SAME", depth=depth, features=features,
    )  # fmt: skip


# ---------------------------------------------------------------------------
# The ways that lost: kept here, so that a new TensorFlow can be measured again
# ---------------------------------------------------------------------------


def by_native_patches(emit: Emitter, x: tf.Tensor, dy: tf.Tensor, w: fg.Window) -> tf.Tensor:
    """The way of ``by_patches``, with ExtractImagePatches."""
    seen = emit(
        "ExtractImagePatches", fg.pad(emit, x, w),
        ksizes=[1, *w.kernel, 1], strides=[1, *w.strides, 1], rates=[1, *w.dilations, 1],
        padding="VALID",
    )  # fmt: skip
    positions = w.positions(emit)
    a = emit.reshape(seen, [w.n, positions, w.taps * w.depth])
    b = emit.reshape(dy, [w.n, positions, w.features])
    product = emit("BatchMatMulV2", a, b, adj_x=True)
    return emit.reshape(product, [w.n, *w.kernel, w.depth, w.features])


def by_channel_groups(emit: Emitter, x: tf.Tensor, dy: tf.Tensor, w: fg.Window) -> tf.Tensor:
    """Conv2DBackpropFilter itself with n groups of channels; its kernels refuse most shapes."""
    wide = emit("Transpose", x, np.asarray([1, 2, 0, 3], np.int32))  # [h, w, n, c]
    wide_dy = emit("Transpose", dy, np.asarray([1, 2, 0, 3], np.int32))
    assert isinstance(w.n, int)
    out = emit(
        "Conv2DBackpropFilter",
        emit.reshape(wide, [1, *w.size, w.n * w.depth]),
        emit.shape_vector([*w.kernel, w.depth, w.n * w.features]),
        emit.reshape(wide_dy, [1, *w.out, w.n * w.features]),
        strides=[1, *w.strides, 1], padding="SAME", dilations=[1, *w.dilations, 1],
    )  # fmt: skip
    split = emit.reshape(out, [*w.kernel, w.depth, w.n, w.features])
    return emit("Transpose", split, np.asarray([3, 0, 1, 2, 4], np.int32))


def by_forward_groups(emit: Emitter, x: tf.Tensor, dy: tf.Tensor, w: fg.Window) -> tf.Tensor:
    """A forward convolution with n groups: channels are the batch, rows the channels.

    x as [c, h, w, n] filtered by dy as [h', w', 1, n*o]: strides and dilations change places.
    """
    assert isinstance(w.n, int)
    source = emit("Transpose", fg.pad(emit, x, w), np.asarray([3, 1, 2, 0], np.int32))
    kernel = emit("Transpose", dy, np.asarray([1, 2, 0, 3], np.int32))  # [h', w', n, o]
    out = emit(
        "Conv2D", source, emit.reshape(kernel, [*w.out, 1, w.n * w.features]),
        strides=[1, *w.dilations, 1], dilations=[1, *w.strides, 1], padding="VALID",
    )  # [c, >= kh, >= kw, n*o]  # fmt: skip
    cut = emit(
        "StridedSlice", out, np.zeros(4, np.int32), np.asarray([0, *w.kernel, 0], np.int32),
        np.ones(4, np.int32), begin_mask=15, end_mask=9,
    )  # fmt: skip
    split = emit.reshape(cut, [w.depth, *w.kernel, w.n, w.features])
    return emit("Transpose", split, np.asarray([3, 1, 2, 0, 4], np.int32))


def by_depthwise(emit: Emitter, x: tf.Tensor, dy: tf.Tensor, w: fg.Window) -> tf.Tensor:
    """The way of ``by_forward_groups`` with the depthwise kernel, strides and dilations one."""
    source = emit("Transpose", fg.pad(emit, x, w), np.asarray([3, 1, 2, 0], np.int32))
    kernel = emit("Transpose", dy, np.asarray([1, 2, 0, 3], np.int32))  # [h', w', n, o]
    out = emit(
        "DepthwiseConv2dNative", source, kernel, strides=[1, 1, 1, 1], padding="VALID"
    )  # [c, kh, kw, n*o]
    split = emit.reshape(out, [w.depth, *w.kernel, w.n, w.features])
    return emit("Transpose", split, np.asarray([3, 1, 2, 0, 4], np.int32))


WAYS = {
    "patches": fg.by_patches,
    "strips": fg.by_strips,
    "taps": fg.by_taps,
    "native": by_native_patches,
    "groups": by_channel_groups,
    "forward": by_forward_groups,
    "depthwise": by_depthwise,
}


def contenders(w: fg.Window) -> dict[str, Any]:
    """Compiled functions of x [n, h, w, c] and dy [n, h', w', o]."""
    strides = [1, *w.strides, 1]
    sizes = [*w.kernel, w.depth, w.features]

    def one(args: tuple[tf.Tensor, tf.Tensor]) -> tf.Tensor:
        x, dy = args
        return tf.raw_ops.Conv2DBackpropFilter(
            input=x[None], filter_sizes=sizes, out_backprop=dy[None], strides=strides,
            padding="SAME",
        )  # fmt: skip

    def by_while(x: tf.Tensor, dy: tf.Tensor) -> tf.Tensor:
        return tf.map_fn(one, (x, dy), fn_output_signature=x.dtype)

    specs = [
        tf.TensorSpec([*w.size, w.depth], tf.float32),
        tf.TensorSpec([*w.out, w.features], tf.float32),
    ]
    row = tf.function(lambda x, dy: one((x, dy))).get_concrete_function(*specs)

    def by_rows(x: tf.Tensor, dy: tf.Tensor) -> tf.Tensor:
        return tf.raw_ops.MapDefun(
            arguments=[x, dy], captured_inputs=[], output_types=[tf.float32],
            output_shapes=[sizes], f=row,
        )[0]  # fmt: skip

    def summed(x: tf.Tensor, dy: tf.Tensor) -> tf.Tensor:
        return tf.raw_ops.Conv2DBackpropFilter(
            input=x, filter_sizes=sizes, out_backprop=dy, strides=strides, padding="SAME"
        )

    def way(strategy: fg.Way) -> Any:
        return lambda x, dy: strategy(Emitter(), x, dy, w)

    found: dict[str, Any] = {k: way(s) for k, s in WAYS.items()}
    if set(w.strides) != {1}:
        del found["depthwise"]
    found |= {"rows": by_rows, "while": by_while, "sum": summed}
    batch = [tf.TensorSpec([w.n, *s.shape], s.dtype) for s in specs]
    return {
        k: tf.function(f, autograph=False).get_concrete_function(*batch) for k, f in found.items()
    }


def measure(w: fg.Window, seconds: float) -> dict[str, float]:
    """Median milliseconds of each contender; every result is checked against ``while``."""
    rng = np.random.default_rng(0)
    x = tf.constant(rng.normal(size=[w.n, *w.size, w.depth]).astype(np.float32))
    dy = tf.constant(rng.normal(size=[w.n, *w.out, w.features]).astype(np.float32))
    functions = contenders(w)
    expected = np.asarray(functions["while"](x, dy)) if w.n <= 64 else None
    times: dict[str, list[float]] = {k: [] for k in functions}
    first: dict[str, float] = {}
    for k, f in list(functions.items()):
        start = time.perf_counter()
        try:
            found = f(x, dy)
        except tf.errors.OpError:  # a kernel that does not take this shape
            del functions[k], times[k]
            continue
        first[k] = time.perf_counter() - start
        if expected is not None and k != "sum":
            scale = np.abs(expected).max()
            np.testing.assert_allclose(found / scale, expected / scale, atol=1e-5, err_msg=k)
    limit = 6 * min(first.values()) + 0.02
    stop = time.perf_counter() + seconds
    while time.perf_counter() < stop or min(map(len, times.values())) < 1:
        for k, f in functions.items():
            if times[k] and times[k][0] > limit:
                continue  # far behind: once is enough
            start = time.perf_counter()
            f(x, dy)
            times[k].append(time.perf_counter() - start)
    return {k: 1e3 * statistics.median(v) for k, v in times.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="the ConvMNIST layers only")
    parser.add_argument("--seconds", type=float, default=1.5, help="for each row of the table")
    parser.add_argument("--lengths", type=int, nargs="*", default=[16, 64, 256])
    parser.add_argument("--out", help="write the results as JSON")
    given = parser.parse_args()
    names = [*WAYS, "rows", "while", "sum"]
    print("| image | c -> o | kernel | stride | n | best ms | " + " | ".join(names) + " | chosen |")
    print("|---" * (len(names) + 7) + "|")
    results = []
    for layer in LAYERS[:2] if given.quick else LAYERS:
        for n in given.lengths:
            w = window(n, *layer)
            if n * w.out[0] ** 2 * w.taps * w.depth > 1.5e8:
                continue  # more than 600 MB of patches
            found = measure(w, given.seconds)
            best = min(v for k, v in found.items() if k != "sum")
            size, depth, features, kernel, stride = layer
            cells = " | ".join(f"{found[k] / best:.2f}" if k in found else "-" for k in names)
            chosen = fg.choose(w).__name__.removeprefix("by_")
            print(
                f"| {size}x{size} | {depth} -> {features} | {kernel} | {stride} | {n} | {best:.2f} "
                f"| {cells} | {chosen} |",
                flush=True,
            )
            results.append({"layer": layer, "n": n, "ms": found, "chosen": chosen})
    if given.out:
        with open(given.out, "w") as file:
            json.dump(results, file, indent=1)


if __name__ == "__main__":
    main()
