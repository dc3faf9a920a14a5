"""Results of vmap and jacrev have the methods of a tf.function: SavedModel, signatures."""

import copy
import gc
import inspect
import pickle
import weakref

import numpy as np
import pytest
import tensorflow as tf

import tf_pfor


def total(x, scale=2.0):
    """The sum of the squares."""
    return tf.reduce_sum(x * x * scale)


class Scaled(tf.Module):
    def __init__(self):
        self.w = tf.Variable([1.0, 2.0, 3.0])
        self.each = tf_pfor.vmap(self.one)
        self.jacobian = tf_pfor.jacrev(lambda x: self.w * x)
        self.compiled = tf_pfor.vmap(self.one, jit_compile=True)

    def one(self, x):
        return tf.reduce_sum(self.w * x)

    @tf_pfor.vmap(in_axes=(None, 0, None))
    def method(self, x, y):
        """A row by all weights."""
        return {"scaled": self.w * x + y}


ROWS = np.arange(12, dtype=np.float32).reshape(4, 3)


def results(module):
    return [
        module.each(ROWS), module.jacobian(ROWS[0]), module.compiled(ROWS),
        module.method(ROWS, tf.constant(3.0))["scaled"],
    ]  # fmt: skip


def test_what_was_called_is_saved(tmp_path):
    module = Scaled()
    expected = results(module)
    tf.saved_model.save(module, str(tmp_path))
    for found, wanted in zip(results(tf.saved_model.load(str(tmp_path))), expected):
        np.testing.assert_allclose(found, wanted)


def test_a_trace_that_another_function_made_is_saved_too(tmp_path):
    tf_pfor.vmap(total)(ROWS)
    module = tf.Module()
    module.f = tf_pfor.vmap(total)
    expected = module.f(ROWS)
    tf.saved_model.save(module, str(tmp_path))
    np.testing.assert_allclose(tf.saved_model.load(str(tmp_path)).f(tf.constant(ROWS)), expected)


def test_signatures(tmp_path):
    module = Scaled()
    spec = tf.TensorSpec([None, 3], name="x")
    signatures = {
        "each": module.each.get_concrete_function(spec),
        "method": module.method.get_concrete_function(spec, 1.0),
    }
    tf.saved_model.save(module, str(tmp_path), signatures=signatures)
    loaded = tf.saved_model.load(str(tmp_path))
    rows = tf.constant(ROWS)
    np.testing.assert_allclose(
        loaded.signatures["each"](x=rows)["output_0"], ROWS @ np.float32([1, 2, 3])
    )
    np.testing.assert_allclose(
        loaded.signatures["method"](x=rows)["scaled"], ROWS * np.float32([1, 2, 3]) + 1
    )
    np.testing.assert_allclose(loaded.each(rows), module.each(rows))  # any number of rows
    np.testing.assert_allclose(loaded.each(rows[:0]), [])


def test_what_was_not_called_has_no_traces(tmp_path):
    tf.saved_model.save(Scaled(), str(tmp_path))
    with pytest.raises(ValueError, match="zero restored functions"):
        tf.saved_model.load(str(tmp_path)).each(ROWS)


def test_tf_function_interface():
    f = tf_pfor.vmap(total)
    f(ROWS)
    f(ROWS[:2])
    assert f.experimental_get_tracing_count() == 2
    concrete = f.get_concrete_function(tf.TensorSpec([None, 3]))
    np.testing.assert_allclose(concrete(tf.constant(ROWS)), f(ROWS))
    assert "args_0" in f.pretty_printed_concrete_signatures()
    assert isinstance(f, tf.types.experimental.PolymorphicFunction)
    assert f.__doc__ == "The sum of the squares."
    assert f.__name__ == "vmap_total"
    assert Scaled.method.__doc__ == "A row by all weights."
    assert str(inspect.signature(f)) == "(*args, **kwargs)"
    with pytest.raises(AttributeError, match="no attribute 'unknown'"):
        f.unknown  # noqa: B018


@pytest.mark.parametrize("way", [copy.deepcopy, lambda f: pickle.loads(pickle.dumps(f))])
def test_copies(way):
    f = tf_pfor.vmap(total)
    np.testing.assert_allclose(way(f)(ROWS), f(ROWS))


def test_a_copied_module_has_its_own_weights():
    module = Scaled()
    copied = copy.deepcopy(module)
    copied.w.assign(tf.zeros(3))
    np.testing.assert_allclose(copied.each(ROWS), np.zeros(4))
    np.testing.assert_allclose(module.each(ROWS), ROWS @ np.float32([1, 2, 3]))


def test_methods_keep_no_instance_alive():
    module = Scaled()
    module.method(ROWS, 1.0)
    module.method.get_concrete_function(tf.TensorSpec([None, 3]), 1.0)
    gone = weakref.ref(module)
    del module
    tf_pfor.clear_cache()
    gc.collect()
    assert gone() is None


def test_in_graphs():
    f = tf_pfor.vmap(total)

    @tf.function
    def branching(x):
        return f(x) if tf.reduce_sum(x) > 0 else -f(x)

    np.testing.assert_allclose(branching(ROWS), f(ROWS))
    np.testing.assert_allclose(tf.function(f)(ROWS), f(ROWS))
    np.testing.assert_allclose(tf_pfor.vmap(f)(ROWS[None]), f(ROWS)[None])
    batches = tf.data.Dataset.from_tensor_slices(ROWS).batch(3).map(f)
    np.testing.assert_allclose(tf.concat([*batches], 0), f(ROWS))


def test_arguments_are_not_kept_alive():
    class Model:
        scale = 2.0

    f = tf_pfor.vmap(lambda model, x: model.scale * x, in_axes=(None, 0))
    model = Model()
    f(model, ROWS)
    assert f.experimental_get_tracing_count() == 1
    gone = weakref.ref(model)
    del model
    tf_pfor.clear_cache()
    gc.collect()
    assert gone() is None
    assert f.experimental_get_tracing_count() == 0
