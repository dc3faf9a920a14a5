"""all_to_all, psum_scatter, pargmax, tiled gathers, several axes: values, gradients, errors."""

import numpy as np
import pytest
import tensorflow as tf

import tf_pfor
from tests.comparisons import gradient_of, strict, strict_map
from tf_pfor import (
    ArgumentError,
    ArgumentTypeError,
    NotVectorizableError,
    all_gather,
    all_to_all,
    axis_index,
    axis_size,
    pargmax,
    pargmin,
    pmax,
    pmean,
    ppermute,
    psum,
    psum_scatter,
    vmap,
)

# What each does with all rows [n, n, 2] at once, n = 3 or 1.
WHOLE = {
    "all_to_all": (all_to_all, lambda x: tf.transpose(x, [1, 0, 2])),
    "all_to_all to 1": (lambda x: all_to_all(x, split_axis=0, concat_axis=-1),
        lambda x: tf.transpose(x, [1, 2, 0])),
    "all_to_all from 1": (lambda x: all_to_all(tf.transpose(x), split_axis=1),
        lambda x: tf.transpose(x, [1, 0, 2])),
    "all_to_all tiled": (lambda x: all_to_all(tf.concat([x, -x], 1), None, 0, 1, tiled=True),
        lambda x: tf.reshape(tf.transpose(tf.concat([x, -x], 2), [1, 0, 2]),
        [tf.shape(x)[0], 1, -1])),
    "psum_scatter": (psum_scatter, lambda x: tf.reduce_sum(x, 0)),
    "psum_scatter 1": (lambda x: psum_scatter(tf.transpose(x), scatter_dimension=-1),
        lambda x: tf.reduce_sum(x, 0)),
    "psum_scatter tiled": (lambda x: psum_scatter(tf.concat([x, 2 * x], 0), tiled=True),
        lambda x: tf.reshape(tf.concat([tf.reduce_sum(x, 0), 2 * tf.reduce_sum(x, 0)], 0),
        [tf.shape(x)[0], -1, 2])),
    "all_gather tiled": (lambda x: all_gather(x, axis=1, tiled=True),
        lambda x: tf.tile(tf.reshape(tf.transpose(x, [1, 0, 2]), [1, tf.shape(x)[0], -1]),
        [tf.shape(x)[0], 1, 1])),
}  # fmt: skip
KINDS = pytest.mark.parametrize("kind", WHOLE)


def rows(n, dtype=np.float32):
    return np.random.default_rng(n).normal(size=[n, n, 2]).astype(dtype)


def close(found, expected):
    found, expected = tf.convert_to_tensor(found), tf.convert_to_tensor(expected)
    assert found.dtype == expected.dtype
    assert found.shape == expected.shape
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)


@KINDS
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("n", [0, 1, 3])
def test_values(kind, n, dtype):
    fn, whole = WHOLE[kind]
    x = tf.constant(rows(n, dtype))
    expected = whole(x) if n else strict(fn)(x)
    assert expected.shape[0] == n
    for way in (strict(fn), tf.function(strict(fn)), strict(fn, jit_compile=True)):
        close(way(x), expected)
    close(strict_map(fn, x), expected)


@KINDS
def test_unknown_size(kind):
    fn, whole = WHOLE[kind]
    for spec in (tf.TensorSpec([None, None, 2]), tf.TensorSpec([None, 3, 2])):
        run = tf.function(strict(fn), input_signature=[spec])
        close(run(rows(3)), whole(rows(3)))


@KINDS
def test_gradients(kind):
    """Outside of the map, and inside: there the sum over all examples is differentiated."""
    fn, whole = WHOLE[kind]
    x = tf.constant(rows(3))
    weights = tf.random.stateless_normal(whole(x).shape, [1, 2])

    def gradient(f):
        return gradient_of(lambda: tf.reduce_sum(f(tf.sin(x)) * weights), x)

    def taped(row, weight):
        return gradient_of(lambda: tf.reduce_sum(fn(tf.sin(row)) * weight), row)

    expected = gradient(whole)
    close(tf.convert_to_tensor(gradient(strict(fn))), expected)
    close(strict(taped)(x, weights), expected)
    by_grad = tf_pfor.grad(lambda row, w: tf.reduce_sum(fn(tf.sin(row)) * w))
    close(strict(by_grad)(x, weights), expected)


def test_over_an_outer_axis():
    x = tf.random.stateless_normal([3, 4, 3, 2], [1, 2])

    def inner(v):
        return (
            all_to_all(v, "i"),
            all_to_all(v, "i", 0, 1),
            psum_scatter(v, "i"),
            pargmax(v, "i"),
            all_gather(v, "i", tiled=True),
        )

    first, second, part, largest, joined = strict(strict(inner), axis_name="i")(x)
    close(first, tf.transpose(x, [2, 1, 0, 3]))
    close(second, tf.transpose(x, [2, 1, 3, 0]))
    close(part, tf.transpose(tf.reduce_sum(x, 0), [1, 0, 2]))
    assert np.array_equal(largest[2], np.argmax(x, 0))
    close(joined[1], tf.reshape(tf.transpose(x, [1, 0, 2, 3]), [4, 9, 2]))


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int32, np.int64])
def test_extremes(dtype):
    x = np.array([[3, 1, 2], [5, 1, 0], [5, -1, 2]], dtype)
    largest, smallest = strict(lambda r: (pargmax(r), pargmin(r)))(x)
    assert largest.numpy().tolist() == [[1, 0, 0]] * 3
    assert smallest.numpy().tolist() == [[0, 2, 1]] * 3
    assert largest.dtype == smallest.dtype == tf.int32
    assert strict(pargmax)(x[:0]).shape == [0, 3]
    assert strict(pargmin, out_axes=None)(x[:0]).numpy().tolist() == [2**31 - 1] * 3  # no row
    assert strict(pargmax, jit_compile=True)(x[:1]).numpy().tolist() == [[0, 0, 0]]


def test_extremes_of_nan_and_infinity():
    x = np.array([[np.inf, np.nan, 1], [np.nan, np.nan, np.inf], [1, 0, np.inf]], np.float32)
    for fn, reference in ((pargmax, np.argmax), (pargmin, np.argmin)):
        assert strict(fn, out_axes=None)(x).numpy().tolist() == reference(x, 0).tolist()


# -- several axes, and integers ------------------------------------------------------------


def test_several_axes():
    x = tf.random.stateless_normal([2, 3, 4], [1, 2])

    def inner(v):
        both = ("i", "j")
        return {
            "sum": psum(v, both),
            "mean": pmean(v, ["j", "i"]),
            "max": pmax(v, both),
            "count": psum(1, both),
            "index": axis_index(both),
            "turned": axis_index(("j", "i")),
            "size": axis_size(both),
            "all": all_gather(v, both),
            "joined": all_gather(v, ("j", "i"), axis=-1, tiled=True),
        }

    found = strict(strict(inner, axis_name="j"), axis_name="i")(x)
    whole = [2, 3, 4]
    close(found["sum"], np.broadcast_to(tf.reduce_sum(x, [0, 1]), whole))
    close(found["mean"], np.broadcast_to(tf.reduce_mean(x, [0, 1]), whole))
    close(found["max"], np.broadcast_to(tf.reduce_max(x, [0, 1]), whole))
    assert found["count"].numpy().tolist() == found["size"].numpy().tolist() == [[6] * 3] * 2
    assert found["index"].numpy().tolist() == [[0, 1, 2], [3, 4, 5]]
    assert found["turned"].numpy().tolist() == [[0, 2, 4], [1, 3, 5]]
    close(found["all"][1, 2], tf.reshape(x, [6, 4]))
    turned = tf.reshape(tf.transpose(x, [1, 0, 2]), [6, 4])
    close(found["joined"][0, 1], tf.reshape(tf.concat(tf.unstack(turned), 0), [24]))
    gradient = tf_pfor.grad(lambda v: tf.reduce_sum(psum(v**2, ("i", "j"))))
    close(strict(strict(gradient, axis_name="j"), axis_name="i")(x), 12 * x)


@pytest.mark.parametrize("dtype", [np.int8, np.uint8, np.int32, np.int64])
def test_means_of_integers_are_floats(dtype):
    x = np.array([[1, 100], [2, 120]], dtype)
    close(strict(pmean, out_axes=None)(x), np.array([1.5, 110], np.float32))
    close(strict(lambda _: pmean(2), out_axes=None)(x), np.float32(2))


# -- errors --------------------------------------------------------------------------------

X = np.ones([3, 2], np.float32)
WRONG = {
    "outside": (lambda: all_to_all(X), ArgumentError, "outside of a mapped function"),
    "outside too": (lambda: psum_scatter(X), ArgumentError, "psum_scatter was called outside"),
    "outside again": (lambda: pargmax(X), ArgumentError, "pargmax was called outside"),
    "name": (lambda: vmap(lambda x: pargmin(x, "a"))(X), ArgumentError, "names the axis 'a'"),
    "rows": (lambda: vmap(all_to_all)(X), ArgumentError, "Expected: size 3"),
    "scatter": (lambda: vmap(psum_scatter)(X), ArgumentError, "Expected: size 3"),
    "tiled": (lambda: vmap(lambda x: psum_scatter(x, tiled=True))(X), ArgumentError,
        "Expected: size a multiple of 3"),
    "split": (lambda: vmap(lambda x: all_to_all(x, None, 1))(X), ArgumentError, "split_axis is 1"),
    "concat": (lambda: vmap(lambda x: all_to_all(x, None, 0, 0.5))(X), ArgumentTypeError,
        "concat_axis must be an int"),
    "dimension": (lambda: vmap(lambda x: psum_scatter(x, scatter_dimension=2))(X), ArgumentError,
        "scatter_dimension is 2"),
    "text": (lambda: vmap(lambda x: psum_scatter("a"))(X), ArgumentError, "has 0 axes"),
    "complex": (lambda: vmap(lambda x: pargmax(tf.complex(x, x)))(X), ArgumentTypeError, "real"),
    "object": (lambda: vmap(lambda x: all_to_all(object()))(X), ArgumentTypeError, "nest of"),
    "gather": (lambda: vmap(lambda x: all_gather(x, axis=1, tiled=True))(X), ArgumentError,
        "from -1 to 0 for a tensor of shape (2,) and tiled=True"),
    "gather a scalar": (lambda: vmap(lambda x: all_gather(x[0], tiled=True))(X), ArgumentError,
        "a tensor that has axes"),
    "permute": (lambda: vmap(ppermute)(X), ArgumentError, "ppermute needs perm"),
    "permute two": (lambda: vmap(lambda x: ppermute(x, ("i", "j"), []), axis_name="i")(X),
        ArgumentError, "axis_name must be a non-empty string"),
    "no axes": (lambda: vmap(lambda x: psum(x, ()))(X), ArgumentError, "several that differ"),
    "no names": (lambda: vmap(lambda x: psum(x, [["i"]]))(X), ArgumentError, "several that differ"),
    "one twice": (lambda: vmap(lambda x: psum(x, ("i", "i")), axis_name="i")(X), ArgumentError,
        "several that differ"),
    "blocks": (lambda: vmap(all_to_all, chunk_size=2)(tf.ones([3, 3])), NotVectorizableError,
        "in blocks"),
}  # fmt: skip


@pytest.mark.parametrize("kind", WRONG)
def test_errors(kind):
    run, error, words = WRONG[kind]
    with pytest.raises(error) as caught:
        run()
    assert words in str(caught.value)


@pytest.mark.parametrize("fn", [all_to_all, psum_scatter, lambda x: all_to_all(x, tiled=True)])
def test_a_wrong_number_of_parts_is_found_as_it_runs(fn):
    run = tf.function(strict(fn), input_signature=[tf.TensorSpec([None, None])])
    with pytest.raises(tf.errors.InvalidArgumentError):
        run(X)
    reused = tf.function(fn)
    with pytest.raises((tf.errors.InvalidArgumentError, NotVectorizableError, ValueError)):
        strict(lambda x: reused(x))(X)
    if fn is not psum_scatter:
        return
    close(strict(lambda x: reused(x))(tf.ones([3, 3])), 3 * np.ones([3], np.float32))


def test_an_empty_permutation_is_zero():
    close(strict(lambda x: ppermute(x, perm=[]))(X), 0 * X)
