"""Per-example gradients of a CNN on real handwritten digits.

``python -m examples.demo_digits`` trains a small Keras CNN on scikit-learn's digits for a few
seconds. Then it uses functions that are written for ONE image:

- It classifies a batch.
- It takes the gradient of each image's loss with respect to all weights. It prints the images that
  pull hardest at the weights, and writes a picture of them.
- It prints the outcome of each op of the body.
- It prints the time of others for the same: a loop, TensorFlow's own map, code that is batched by
  hand.
"""

from __future__ import annotations

import json
import os
import pathlib
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import keras
import numpy as np
import tensorflow as tf

OUTPUT = pathlib.Path("demo_output")
BATCH = 512
EPOCHS = 6
SHOWN = 16
TASKS = ("forward", "gradients")
STARTED = time.perf_counter()


def say(text: str) -> None:
    """Prints a line of progress with the seconds since the start."""
    print(f"[{time.perf_counter() - STARTED:5.1f} s] {text}", flush=True)


# ---------------------------------------------------------------------------
# The model, and the two functions of one image
# ---------------------------------------------------------------------------


def make_model() -> keras.Sequential:
    """8x8 grey images to 10 logits. Activations are layers, for ``gradients_by_hand``."""
    return keras.Sequential(
        [
            keras.Input([8, 8, 1]),
            keras.layers.Conv2D(16, 3, padding="same"),
            keras.layers.ReLU(),
            keras.layers.MaxPooling2D(),
            keras.layers.Conv2D(32, 3, padding="same"),
            keras.layers.ReLU(),
            keras.layers.Flatten(),
            keras.layers.Dense(10),
        ]
    )


def logits_of_one(model: keras.Model, image: tf.Tensor) -> tf.Tensor:
    """[8, 8, 1] -> [10]."""
    return model(image[tf.newaxis], training=False)[0]


def gradients_of_one(model: keras.Model, image: tf.Tensor, label: tf.Tensor) -> list[tf.Tensor]:
    """The gradient of one image's loss with respect to every weight."""
    with tf.GradientTape() as tape:
        logits = logits_of_one(model, image)
        loss = tf.nn.sparse_softmax_cross_entropy_with_logits(label, logits)
    return tape.gradient(loss, model.trainable_variables)


def gradients_by_hand(model: keras.Model, images: tf.Tensor, labels: tf.Tensor) -> list[tf.Tensor]:
    """The same for a batch, as an expert would write it for exactly this model.

    Examples are independent. So one backward pass of the summed loss gives each layer's output
    gradient for each example. A weight's per-example gradient is the product of the layer's input
    and this gradient: an outer product for Dense, a product over patches for Conv2D.
    """
    seen: list[tuple[Any, tf.Tensor, tf.Tensor]] = []
    with tf.GradientTape() as tape:
        x = images
        for layer in model.layers:
            y = layer(x)
            if layer.trainable_variables:
                seen.append((layer, x, y))
            x = y
        loss = tf.reduce_sum(tf.nn.sparse_softmax_cross_entropy_with_logits(labels, x))
    results: list[tf.Tensor] = []
    for (layer, x, _), dy in zip(seen, tape.gradient(loss, [y for _, _, y in seen])):
        if isinstance(layer, keras.layers.Dense):
            results += [tf.einsum("ni,no->nio", x, dy), dy]
            continue
        patches = tf.image.extract_patches(x, [1, 3, 3, 1], [1] * 4, [1] * 4, "SAME")
        n, pixels = x.shape[0], x.shape[1] * x.shape[2]
        rows = tf.reshape(patches, [n, pixels, -1])  # [n, pixels, 3 * 3 * channels]
        columns = tf.reshape(dy, [n, pixels, -1])  # [n, pixels, filters]
        kernel = tf.matmul(rows, columns, transpose_a=True)
        results += [tf.reshape(kernel, [n, *layer.kernel.shape]), tf.reduce_sum(dy, [1, 2])]
    return results


# ---------------------------------------------------------------------------
# Data and training
# ---------------------------------------------------------------------------


def load() -> tuple[np.ndarray, np.ndarray]:
    """1797 real digits, 8 by 8 pixels in [0, 1], in a fixed random order."""
    from sklearn.datasets import load_digits

    data = load_digits()
    order = np.random.default_rng(0).permutation(len(data.target))
    images = (data.images[order, :, :, np.newaxis] / 16.0).astype(np.float32)
    return images, data.target[order].astype(np.int32)


def train(images: np.ndarray, labels: np.ndarray) -> keras.Model:
    """Trains on all but the first ``BATCH`` images, which are held out."""
    keras.utils.set_random_seed(0)
    model = make_model()
    model.compile(
        keras.optimizers.Adam(3e-3),
        keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        metrics=["accuracy"],
    )
    for epoch in range(EPOCHS):
        history = model.fit(images[BATCH:], labels[BATCH:], batch_size=64, verbose=0).history
        say(
            f"  epoch {epoch + 1} of {EPOCHS}: loss {history['loss'][0]:.3f}, "
            f"accuracy {history['accuracy'][0]:.3f}"
        )
    return model


# ---------------------------------------------------------------------------
# Contenders
# ---------------------------------------------------------------------------


def mapped(task: str, model: keras.Model, mapper: Callable[..., Any]) -> Callable[..., Any]:
    """The task as a map of its function of one image."""

    @tf.function
    def run(images: tf.Tensor, labels: tf.Tensor) -> list[tf.Tensor]:
        if task == "forward":
            return [mapper(lambda image: logits_of_one(model, image), images)]
        return mapper(lambda e: gradients_of_one(model, *e), (images, labels))

    return run


def by_hand(task: str, model: keras.Model) -> Callable[..., Any]:
    """The task on the whole batch, written by hand."""

    @tf.function
    def run(images: tf.Tensor, labels: tf.Tensor) -> list[tf.Tensor]:
        if task == "forward":
            return [model(images, training=False)]
        return gradients_by_hand(model, images, labels)

    return run


def looped(task: str, model: keras.Model) -> Callable[..., Any]:
    """The task in tf.map_fn."""
    weights = model.trainable_variables
    types = tf.float32 if task == "forward" else [tf.float32] * len(weights)
    return mapped(task, model, lambda fn, x: tf.map_fn(fn, x, fn_output_signature=types))


def measure(function: Callable[..., Any], *args: Any) -> tuple[float, list[np.ndarray]]:
    """Seconds of the fastest of several calls (the first one, which traces, not counted)."""
    results = [x.numpy() for x in function(*args)]
    times: list[float] = []
    while len(times) < 3 or (sum(times) < 1.0 and len(times) < 30):
        began = time.perf_counter()
        for x in function(*args):
            x.numpy()
        times.append(time.perf_counter() - began)
    return min(times), results


def peer_in_child(model: keras.Model, images: Any, labels: Any) -> dict[str, tuple[Any, Any]]:
    """TensorFlow's own vectorized_map in a process of its own: it can crash.

    Returns:
      For each task (seconds, results), or (None, why there are none).
    """
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        weights = {f"w{i}": w for i, w in enumerate(model.get_weights())}
        np.savez(folder / "given.npz", images=images, labels=labels, **weights)
        command = [sys.executable, "-m", "examples.demo_digits", "--peer", name]
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
            last = (done.stderr.strip().splitlines() or [""])[-1]
            why = f"failed (exit status {done.returncode}) {last[:60]}"
        except subprocess.TimeoutExpired:
            why = "not finished after 60 s"
        found: dict[str, tuple[Any, Any]] = {}
        for task in TASKS:
            if not (folder / f"{task}.json").exists():
                found[task] = None, why
                continue
            with np.load(folder / f"{task}.npz") as results:
                arrays = [results[f"arr_{i}"] for i in range(len(results.files))]
            found[task] = json.loads((folder / f"{task}.json").read_text()), arrays
        return found


def peer_main(name: str) -> None:
    """The work of the child: for each task it writes the results, then the seconds."""
    folder = pathlib.Path(name)
    with np.load(folder / "given.npz") as data:
        images, labels = tf.constant(data["images"]), tf.constant(data["labels"])
        model = make_model()
        model.set_weights([data[f"w{i}"] for i in range(len(data.files) - 2)])
    for task in TASKS:
        seconds, results = measure(mapped(task, model, tf.vectorized_map), images, labels)
        np.savez(folder / f"{task}.npz", *results)
        (folder / f"{task}.json").write_text(json.dumps(seconds))


def largest_difference(a: list[np.ndarray], b: list[np.ndarray]) -> float:
    """The largest absolute difference between two lists of arrays."""
    return max(float(np.max(np.abs(x - y))) for x, y in zip(a, b, strict=True))


def table(model: keras.Model, images: tf.Tensor, labels: tf.Tensor) -> list[str]:
    """Measures all contenders; the lines of the table."""
    import tf_pfor

    rows = [
        f"  {'task':<10} {'contender':<28} {'time':>10} {'to by hand':>11}"
        f"{'largest difference':>20}"
    ]
    say("  tf.vectorized_map, in a process of its own ...")
    peer = peer_in_child(model, images.numpy(), labels.numpy())
    for task in TASKS:
        contenders: dict[str, Callable[[], tuple[Any, Any]]] = {
            "batched by hand": lambda t=task: measure(by_hand(t, model), images, labels),
            "tf_pfor.vectorized_map": lambda t=task: measure(
                mapped(t, model, tf_pfor.vectorized_map), images, labels
            ),
            "tf.vectorized_map": lambda t=task: peer[t],
            "sequential loop (tf.map_fn)": lambda t=task: measure(looped(t, model), images, labels),
        }
        found: dict[str, tuple[Any, Any]] = {}
        for name, contender in contenders.items():
            if name != "tf.vectorized_map":
                say(f"  {task}: {name} ...")
            found[name] = contender()
        hand, _ = found["batched by hand"]
        _, truth = found["sequential loop (tf.map_fn)"]
        for name, (seconds, results) in found.items():
            if seconds is None:
                rows.append(f"  {task:<10} {name:<28} {results}")
                continue
            difference = largest_difference(results, truth)
            rows.append(
                f"  {task:<10} {name:<28} {seconds * 1e3:>7.1f} ms {seconds / hand:>10.2f}x "
                f"{difference:>18.1e}"
            )
    return rows


# ---------------------------------------------------------------------------
# The demo
# ---------------------------------------------------------------------------


def draw(path: pathlib.Path, images: Any, titles: list[str]) -> None:
    """Writes the images with their titles as one picture."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot as plt

    columns = 4
    rows = -(-len(images) // columns)
    figure, axes = plt.subplots(rows, columns, figsize=(2 * columns, 2.3 * rows))
    for axis, image, title in zip(axes.flat, images, titles):
        axis.imshow(image[..., 0], cmap="gray_r")
        axis.set_title(title, fontsize=9)
    for axis in axes.flat:
        axis.axis("off")
    figure.suptitle("Digits with the largest gradients")
    figure.tight_layout()
    path.parent.mkdir(exist_ok=True)
    figure.savefig(path, dpi=110)
    plt.close(figure)


def main() -> None:
    """Runs the demo."""
    import tf_pfor

    say(f"tf_pfor {tf_pfor.__version__} on TensorFlow {tf.__version__}")
    images, labels = load()
    say(f"{len(images)} handwritten digits; training on {len(images) - BATCH} of them")
    model = train(images, labels)
    batch = tf.constant(images[:BATCH]), tf.constant(labels[:BATCH])

    say("(a) the forward pass of one image, mapped over the images held out")
    logits = tf_pfor.vectorized_map(lambda image: logits_of_one(model, image), batch[0])
    predicted = tf.argmax(logits, 1).numpy()
    say(f"  {np.mean(predicted == batch[1].numpy()):.1%} of {BATCH} are right")

    say("(b) the gradient of each image's loss with respect to all weights")
    gradients = tf_pfor.vectorized_map(lambda e: gradients_of_one(model, *e), batch)
    squares = [tf.reduce_sum(g**2, range(1, g.shape.rank)) for g in gradients]
    norms = tf.sqrt(tf.add_n(squares)).numpy()
    largest = np.argsort(-norms)[:SHOWN]
    total = sum(int(np.prod(g.shape[1:])) for g in gradients)
    say(f"  {BATCH} gradients of {total} weights; median norm {np.median(norms):.4f}")
    titles = [f"true {labels[i]}, predicted {predicted[i]}, norm {norms[i]:.1f}" for i in largest]
    for i, title in zip(largest, titles):
        print(f"  image {i:>4}: {title}")
    picture = OUTPUT / "largest_gradients.png"
    draw(picture, images[largest], [t.replace(", norm", "\nnorm") for t in titles])
    say(f"  picture: {picture}")

    say("(c) what became of each op of the body")
    print(tf_pfor.explain(lambda e: gradients_of_one(model, *e), batch))

    say(f"(d) the same work of others, {BATCH} images")
    print("\n".join(table(model, *batch)))
    say("done")


if __name__ == "__main__":
    if sys.argv[1:2] == ["--peer"]:
        peer_main(sys.argv[2])
    else:
        main()
