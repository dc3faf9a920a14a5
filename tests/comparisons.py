"""A function of a row: mapped, in a Python loop over the rows, with gradients; and comparisons."""

import concurrent.futures

import numpy as np
import tensorflow as tf

import tf_pfor
from tf_pfor import _tf
from tf_pfor._tf import _functions
from tf_pfor.api.bodies import convert_body
from tf_pfor.api.inputs import Element
from tf_pfor.core import nests
from tf_pfor.core.report import Recorder
from tf_pfor.tracing.trace import trace
from tf_pfor.walker.walker import Settings


@tf.autograph.experimental.do_not_convert
def vectorized(f, args, recorder=None, **settings):
    """``f`` over the rows of ``args``, in the current graph; nothing may loop over rows."""
    n = args[0].shape[0]
    n = tf.shape(args[0])[0] if n is None else n
    elements = [Element(a) for a in args]
    body = trace(_functions.autographed(f), [e.spec for e in elements])
    recorder = Recorder() if recorder is None else recorder
    leaves = convert_body(
        body, elements, n, Settings(settings.pop("fallback", "error"), **settings), recorder
    )
    return [x for x in leaves if isinstance(x, tf.Tensor)]


def looped(f, args, n):
    """A Python loop over the rows, and tf.stack."""
    f = _functions.autographed(f)
    rows = [nests.flatten(f(*[a[r] for a in args])) for r in range(n)]
    return [tf.stack(column) for column in zip(*rows)]


def notes(f, *args, **settings):
    """The notes of the report on control flow."""
    recorder = Recorder()
    with tf.Graph().as_default():
        tf.function(
            lambda *a: vectorized(f, a, recorder, **settings), autograph=False
        ).get_concrete_function(*[tf.TensorSpec(np.shape(a), tf.as_dtype(a.dtype)) for a in args])
    return [reason for _, _, reason in recorder.entries if reason]


def _total(outputs):
    total = tf.constant(0.0, tf.float64)
    for k, out in enumerate(outputs):
        if out.dtype.is_floating:
            weight = tf.cos(tf.range(tf.size(out), dtype=tf.float64) + float(k))
            total += tf.reduce_sum(tf.cast(tf.reshape(out, [-1]), tf.float64) * weight)
    return total


def _gradients(run, args, second):
    floats = [i for i, a in enumerate(args) if a.dtype.is_floating]

    @tf.function(autograph=False)
    def go(*given):
        watched = [given[i] for i in floats]
        with tf.GradientTape() as outer:
            outer.watch(watched)
            with tf.GradientTape() as tape:
                tape.watch(watched)
                total = _total(run(given))
            first = tape.gradient(total, watched, unconnected_gradients="zero")
            first = [tf.convert_to_tensor(g) for g in first]
            again = _total(first)
        if not second:
            return first
        more = outer.gradient(again, watched, unconnected_gradients="zero")
        return first, [tf.convert_to_tensor(g) for g in more]

    return tf.nest.flatten(go(*args))


def check(f, *args, xla=True, grad=True, second=False, unknown=False, rtol=2e-5, **settings):
    """Compares ``f`` over the rows of ``args`` with a Python loop over them.

    Args:
      f: one iteration.
      *args: arrays; axis 0 is the loop.
      xla: also under jit_compile.
      grad: also gradients.
      second: also second gradients.
      unknown: also with n known only when running.
      rtol: tolerance, also the absolute one.
      **settings: the settings of the conversion.
    """
    args = [tf.constant(a) for a in args]
    n = args[0].shape[0]
    expected = tf.function(lambda *a: looped(f, a, n))(*args) if n else None

    def same(found, wanted, what):
        assert len(found) == len(wanted), what
        for a, b in zip(found, wanted):
            assert a.shape == b.shape, (what, a.shape, b.shape)
            assert a.dtype == b.dtype, (what, a.dtype, b.dtype)
            np.testing.assert_allclose(a.numpy(), b.numpy(), rtol, rtol, err_msg=what)

    modes = [("static", {}, False)]
    modes += [("unknown n", {}, True)] if unknown else []
    modes += [("jit_compile", {"jit_compile": True}, False)] if xla and n else []
    for what, options, dynamic in modes:
        specs = [tf.TensorSpec([None, *a.shape[1:]] if dynamic else a.shape, a.dtype) for a in args]
        run = tf.function(lambda *a: vectorized(f, a, **settings), autograph=False, **options)
        concrete = run.get_concrete_function(*specs)
        found = concrete(*args)
        if expected is None:
            assert all(x.shape[0] == 0 for x in found), what
        else:
            same(found, expected, what)
            for x in concrete.outputs:
                assert x.shape[0] == (None if dynamic else n), (what, x.shape)
    if grad and n and any(a.dtype.is_floating for a in args):
        found = _gradients(lambda a: vectorized(f, a, **settings), args, second)
        wanted = _gradients(lambda a: looped(f, a, n), args, second)
        same(found, wanted, "gradients")


def value_and_gradient(of, sources, **options):
    """The result of ``of()`` under a tape, which finds variables, and its gradients."""
    with tf.GradientTape() as tape:
        tape.watch([s for s in tf.nest.flatten(sources) if not isinstance(s, tf.Variable)])
        y = of()
    return y, tape.gradient(y, sources, **options)


def gradient_of(of, sources, **options):
    return value_and_gradient(of, sources, **options)[1]


def gradient_in_body(model, power=2):
    """The gradient of the sum of ``model(*args) ** power`` by the last argument, in the body."""
    return lambda *args: gradient_of(lambda: tf.reduce_sum(model(*args) ** power), args[-1])


def gradients_in_body(model, by=(-1,), also=()):
    """Gradients of the sum of squares, by the arguments at ``by`` and by ``also``; or zeros."""

    def one(*args):
        sources = [*(args[i] for i in by), *also]
        loss = lambda: tf.reduce_sum(model(*args) ** 2)  # noqa: E731
        return gradient_of(loss, sources, unconnected_gradients="zero")

    return one


def mapped(one, *args, **options):
    """vectorized_map of ``one(*row)``; nothing may loop over rows, unless ``fallback`` says so."""
    options = {"fallback": "error", **options}
    return tf_pfor.vectorized_map(lambda row: one(*row), args, **options)


def by_row(one, *args, maps=1):
    """``one(*row)`` for one row after the other, over the first ``maps`` axes of ``args``."""
    one, shape = tf.function(one), args[0].shape[:maps]
    rows = [one(*(a[place] for a in args)) for place in np.ndindex(*shape)]
    return tf.nest.map_structure(
        lambda *parts: tf.reshape(tf.stack(parts), [*shape, *parts[0].shape]), *rows
    )


def in_threads(work, numbers):
    """The results of ``work`` for each number, in a thread for each; raises errors of threads."""
    with concurrent.futures.ThreadPoolExecutor(len(numbers)) as pool:
        return list(pool.map(work, numbers))


def of_unknown_n(x):
    """The spec of a tensor or of ragged rows, with the number of rows not known."""
    if isinstance(x, tf.RaggedTensor):
        return tf.RaggedTensorSpec([None, *x.shape[1:]], x.dtype, x.ragged_rank)
    return tf.TensorSpec([None, *x.shape[1:]], x.dtype)


def assert_close(found, expected, rtol=1e-9, atol=1e-12):
    """Two nests have tensors of the same shapes and dtypes, and of equal values up to rounding."""
    found, expected = tf.nest.flatten(found), tf.nest.flatten(expected)
    for f, e in zip(found, expected, strict=True):
        assert (f.shape, f.dtype) == (e.shape, e.dtype)
        np.testing.assert_allclose(f, e, rtol=rtol, atol=atol)


def check_ragged_rows(function, elements, *, unknown, rtol, atol):
    """``function`` over variable-length rows against a call for each; no rows for unknown n."""

    def run(x):
        return tf_pfor.vectorized_map(function, x, fallback="error")

    def dense(row):
        return row.to_tensor() if isinstance(row, tf.RaggedTensor) else row

    if unknown:
        spec = tf.RaggedTensorSpec([None, *elements.shape[1:]], elements.dtype, 1)
        run = tf.function(run, input_signature=[spec])
        assert run(elements[:0]).shape[0] == 0
    found = run(elements)
    assert found.shape[0] == elements.nrows()
    for i in range(int(elements.nrows())):
        row, expected = dense(found[i]), function(elements[i])
        if tf.size(expected) == 0:
            assert tf.size(row) == 0
            continue
        np.testing.assert_allclose(row, expected, rtol=rtol, atol=atol)


def in_two_maps(one, *args):
    """``one`` over the first two axes of ``args``."""
    return mapped(lambda *rows: mapped(one, *rows), *args)


def all_ops(graph):
    """The ops of a graph and of the loops in it."""
    for op in graph.get_operations():
        yield op
        if op.type in ("While", "StatelessWhile"):
            for name in ("cond", "body"):
                yield from all_ops(_tf.function_graph(graph, op.get_attr(name).name))
