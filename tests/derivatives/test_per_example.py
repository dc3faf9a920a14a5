"""Per-example gradients: what is refused, odd clip norms, dataclasses."""

import dataclasses
import os

import numpy as np
import pytest
import tensorflow as tf

import tf_pfor
from tests.cases import grid
from tests.comparisons import assert_close, gradient_of
from tf_pfor._tf import _functions
from tf_pfor.core.errors import ArgumentError, ArgumentTypeError

X = tf.constant([1.0, -4.0])
PACKAGE = os.path.dirname(tf_pfor.__file__)


def clipped(*args, **kwargs):
    return tf_pfor.clipped_gradient_sum(*args, **{"clip_norm": 1.0, **kwargs})


of_forms = pytest.mark.parametrize(
    "form", [tf_pfor.per_example_gradients, tf_pfor.gradient_norms, clipped]
)


@pytest.mark.parametrize("chunk", [None, 1])
def test_a_norm_that_clips_nothing(chunk):
    w = tf.Variable(2.0)
    total, _ = clipped(lambda x: w * x, w, X, clip_norm=float("inf"), chunk_size=chunk)
    assert float(total) == -3.0
    zero, _ = clipped(lambda x: 0 * w * x, w, X, chunk_size=chunk)
    assert float(zero) == 0.0


@pytest.mark.parametrize("norm", [2, np.float32(2.0), tf.constant(2), tf.Variable(2.0), "unknown"])
def test_norms_of_all_types(norm):
    w = tf.Variable(1.0)
    if isinstance(norm, str):  # a tensor that is not known before running
        total, _ = tf.function(lambda c: clipped(lambda x: w * x, w, X, clip_norm=c))(2.0)
    else:
        total, _ = clipped(lambda x: w * x, w, X, clip_norm=norm)
    assert float(total) == -1.0


def test_norms_of_a_schedule_share_one_trace():
    w = tf.Variable(tf.ones([3], tf.float64))
    examples = tf.constant(np.arange(12.0).reshape(4, 3) - 5)
    norms = np.linalg.norm(examples, axis=1)
    total = lambda norm: clipped(lambda x: tf.reduce_sum(w * x), w, examples, clip_norm=norm)[0]
    total(3.0)
    before = tf_pfor.cache_info().misses
    for norm in (0.1, 1, np.float64(0.5), 1e300, 10**30, float("inf")):
        scales = np.minimum(1, float(norm) / norms)
        np.testing.assert_allclose(total(norm), scales @ examples.numpy(), rtol=1e-14)
    assert tf_pfor.cache_info().misses == before


@pytest.mark.parametrize(
    "norm",
    [0, -1.0, True, None, "1", 1j, float("nan"), np.float32(-1.0), tf.constant(-1.0), [1.0, 2.0]],
    ids=str,
)
def test_norms_that_clip_wrongly(norm):
    w = tf.Variable(2.0)
    with pytest.raises(ArgumentError, match="clip_norm must be a positive number, found"):
        clipped(lambda x: w * x, w, X, clip_norm=norm)


@of_forms
def test_examples_that_are_dataclasses(form):
    @dataclasses.dataclass
    class Example:
        x: tf.Tensor
        mask: None = None

    w = tf.Variable(3.0)
    found = form(lambda e: w * e.x, w, Example(X))
    assert_close(found, form(lambda x: w * x, w, X), rtol=1e-7, atol=0)


@of_forms
@pytest.mark.parametrize(("run", "error", "text"), [
    (lambda f, w: f(3, w, X), ArgumentTypeError, "loss_fn must be a function"),
    (lambda f, w: f(lambda x: w * x, None, X), ArgumentTypeError, "variables is None"),
    (lambda f, w: f(lambda x: w * x, [w, "w"], X), ArgumentTypeError, r"variables\[1\] is 'w'"),
    (lambda f, w: f(lambda x: w * x, {"a": tf.Variable(1)}, X), ArgumentError,
        r"variables\['a'\] has dtype int32"),
    (lambda f, w: f(lambda x: tf.complex(w, x), w, X), ArgumentError, "found dtype complex64"),
    (lambda f, w: f(lambda: w, w), ArgumentError, "batch holds no tensor"),
])  # fmt: skip
def test_errors(form, run, error, text):
    with pytest.raises(error, match=text):
        run(form, tf.Variable(2.0))


@grid(jit=[False, True], chunk=[None, 2, "auto"])
def test_aux_of_norms_and_sums_in_blocks_of_unknown_batches(jit, chunk):
    w = tf.constant([[1.0, 2.0], [3.0, 4.0], [-1.0, 0.5]])

    def loss(x):
        y = tf.linalg.matvec(w, x, transpose_a=True)
        return tf.reduce_sum(tf.sin(y) ** 2), {"y": y, "none": None}

    def both(x):
        options = {"has_aux": True, "chunk_size": chunk}
        norms = tf_pfor.gradient_norms(loss, w, x, **options)
        return norms, tf_pfor.clipped_gradient_sum(loss, w, x, clip_norm=0.5, **options)

    compiled = tf.function(both, jit_compile=jit, input_signature=[tf.TensorSpec([None, 3])])
    for n in (0, 1, 5):
        x = tf.random.stateless_normal([n, 3], [1, n])
        gradients, losses, aux = tf_pfor.per_example_gradients(loss, w, x, has_aux=True)
        norms = tf.sqrt(tf.reduce_sum(gradients**2, [1, 2]))
        sums = tf.einsum("n,nij->ij", tf.minimum(1.0, 0.5 / norms), gradients)
        for found in (both(x), compiled(x)):
            expected = (norms, aux), (sums, losses, aux)
            tf.nest.assert_same_structure(found, expected)
            for a, b in zip(tf.nest.flatten(found), tf.nest.flatten(expected)):
                np.testing.assert_allclose(
                    [] if a is None else a, [] if b is None else b, 1e-4, 1e-5
                )


def test_microbatches():
    """The mean gradient of k examples is clipped, as where noise is added once for so many."""
    w = tf.Variable([1.0, -2.0])
    x = tf.reshape(tf.range(8.0), [2, 2, 2])
    total, _ = clipped(lambda rows: tf.reduce_mean(tf.linalg.matvec(rows, w)), w, x, clip_norm=4.0)
    means = tf.reduce_mean(x, 1)
    np.testing.assert_allclose(total, tf.reduce_sum(tf.clip_by_norm(means, 4.0, 1), 0), 1e-6)


def test_rows_of_their_own_length():
    """A sequence model on a ragged batch."""
    rows = tf.RaggedTensor.from_row_lengths(
        tf.random.stateless_normal([10, 3], [1, 2]), [2, 4, 1, 3]
    )
    w = tf.Variable(tf.random.stateless_normal([3, 2], [1, 3]))
    loss = lambda x: tf.reduce_mean(tf.tanh(x @ w) ** 2)
    expected = []
    for row in rows:
        expected.append(gradient_of(lambda row=row: loss(row), w))
    found, losses = tf_pfor.per_example_gradients(loss, w, rows)
    np.testing.assert_allclose(losses, [loss(row) for row in rows], rtol=1e-4)
    np.testing.assert_allclose(found, tf.stack(expected), rtol=1e-4, atol=1e-6)
    norms = tf_pfor.gradient_norms(loss, w, rows)
    np.testing.assert_allclose(norms, [tf.norm(g) for g in expected], rtol=1e-4)


@pytest.mark.parametrize("chunk", [None, 2])
def test_embeddings_of_own_many_ids(chunk):
    """The slices of a table are as many as an example has ids, perhaps none."""
    ids = tf.ragged.constant([[1, 2, 1], [3], [], [5, 0]], dtype=tf.int32)
    table = tf.Variable(tf.random.stateless_normal([6, 4], [1, 2]))
    w = tf.Variable(tf.random.stateless_normal([4, 2], [1, 3]))
    loss = lambda row: (tf.reduce_sum(tf.gather(table, row) @ w) - 1.0) ** 2
    expected = [tf.zeros([6, 4]), tf.zeros([4, 2])]
    for row in ids:
        one = [tf.convert_to_tensor(g) for g in gradient_of(lambda r=row: loss(r), [table, w])]
        one, _ = tf.clip_by_global_norm(one, 0.5)
        expected = [a + b for a, b in zip(expected, one)]
    total, _ = clipped(loss, [table, w], ids, clip_norm=0.5, chunk_size=chunk)
    assert_close(total, expected, rtol=1e-4, atol=1e-5)


@of_forms
def test_no_code_of_the_package_is_converted(form, monkeypatch):
    """AutoGraph took two seconds for the checks of gradients, and warned of lambdas."""
    autograph, converted = _functions._ag_api, []

    class Noted(type(autograph._TRANSPILER)):  # a new one, which has converted nothing yet
        def transform(self, function, context):
            converted.append(function.__code__.co_filename)
            return super().transform(function, context)

    monkeypatch.setattr(autograph, "_TRANSPILER", Noted())
    w = tf.Variable(2.0)

    def loss(x):
        return w * x if x > 0.0 else 2.0 * w * x

    found = form(loss, w, X)
    expected = {"per_example_gradients": [1.0, -8.0], "gradient_norms": [1.0, 8.0], "clipped": 0.0}
    first = found[0] if isinstance(found, tuple) else found
    np.testing.assert_allclose(first, expected[form.__name__])
    assert __file__ in converted
    assert {f for f in converted if f.startswith(PACKAGE)} == set()
