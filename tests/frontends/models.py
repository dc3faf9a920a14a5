"""Models of one example, saved: what `tf_pfor.saved_model.batch` gets."""

import numpy as np
import tensorflow as tf


def save(path, *specs, variables=(), resources=(), others=None, **named):
    """A decorator: saves a module with the function as its signature; gives the path."""

    def saved(fn):
        model = tf.Module()
        model.held_variables, model.held_resources = list(variables), list(resources)
        model.one = tf.function(fn, input_signature=[*specs], **named)
        one = model.one.get_concrete_function()
        tf.saved_model.save(model, str(path), signatures={"serving_default": one, **(others or {})})
        return str(path)

    return saved


spec = lambda shape, dtype, name: tf.TensorSpec(shape, dtype, name)


def linear(path):
    """Variables; two outputs, one of which is the same for all rows."""
    w, b = tf.Variable(tf.reshape(tf.range(6.0), [3, 2])), tf.Variable([0.5, -1.0])

    @save(path, spec([3], tf.float32, "x"), variables=[w, b])
    def one(x):
        y = tf.linalg.matvec(w, x, transpose_a=True) + b
        return {"y": y, "loss": tf.reduce_sum(y * y), "bias": b.read_value()}

    return one


def vocabulary(path, folder):
    """A table from a vocabulary file: an asset."""
    file = folder / "vocabulary.txt"
    file.write_text("to\nbe\nor\nnot\n")
    table = tf.lookup.StaticHashTable(
        tf.lookup.TextFileInitializer(
            str(file), tf.string, tf.lookup.TextFileIndex.WHOLE_LINE,
            tf.int64, tf.lookup.TextFileIndex.LINE_NUMBER,
        ),
        -1,
    )  # fmt: skip
    embeddings = tf.Variable(np.arange(10, dtype=np.float32).reshape(5, 2))

    @save(path, spec([None], tf.string, "words"), variables=[embeddings], resources=[table])
    def one(words):
        ids = table.lookup(words)
        rows = tf.gather(embeddings, ids + 1)
        known = tf.boolean_mask(words, ids >= 0)
        return {"ids": ids, "mean": tf.reduce_mean(rows, 0), "known": known}

    file.unlink()  # the copy in the SavedModel counts
    return one


def images(path):
    """An image of any height and width; a result as large as the image."""

    @save(path, spec([None, None, 3], tf.uint8, "image"), spec([3], tf.float32, "weights"))
    def one(image, weights):
        scaled = tf.cast(image, tf.float32) / 255.0
        return {"mean": tf.reduce_mean(scaled, [0, 1]), "grey": tf.reduce_sum(scaled * weights, 2)}

    return one


def of_one(path):
    """An image with a batch axis of size 1, and weights without."""
    filters = tf.Variable(np.linspace(-1, 1, 54, dtype=np.float32).reshape(3, 3, 3, 2))

    @save(
        path, spec([1, 8, 8, 3], tf.float32, "image"), spec([2], tf.float32, "weights"),
        variables=[filters],
    )  # fmt: skip
    def one(image, weights):
        x = tf.nn.conv2d(image, filters, 2, "SAME")
        return {"logits": tf.reduce_mean(x, [1, 2]) * weights, "map": x}

    return one


def counter(path):
    """A signature that changes a variable, and another one that reads it."""
    count = tf.Variable(0)
    read = tf.function(lambda: {"count": count.read_value()}).get_concrete_function()

    @save(path, spec([], tf.int32, "step"), variables=[count], others={"count": read})
    def one(step):
        count.assign_add(step)
        return {"step": step * 2}

    return one


def keras_model():
    """A small network of a batch: [None, 4] -> [None, 2]."""
    import keras

    keras.utils.set_random_seed(1)
    layers = [keras.layers.Dense(8, "relu"), keras.layers.LayerNormalization()]
    return keras.Sequential([keras.layers.Input([4]), *layers, keras.layers.Dense(2)])


def keras_export(path):
    """Keras' export: a set of any number of vectors, which Keras calls its batch."""
    model = keras_model()
    model.export(str(path), verbose=False)
    return str(path), model


def keras_one(path):
    """An archive of Keras' with a signature of one example."""
    import keras

    model = keras_model()
    archive = keras.export.ExportArchive()
    archive.track(model)
    specs = [tf.TensorSpec([4], tf.float32, "x")]
    archive.add_endpoint("one", lambda x: {"logits": model(x[None])[0]}, specs)
    archive.write_out(str(path), verbose=False)
    return str(path), model
